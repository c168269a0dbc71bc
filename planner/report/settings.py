"""A resolved spec in the words of the spec language: dotted keys and the values that they have after every default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from planner.report import units
from planner.spec.mixers import RECORDS
from planner.spec.records import Attention, Experts, Extra, FeedForward, Layer, Mixer, Model, Positions, Run, Training

_MIXERS = {kind: name for name, kind in RECORDS.items()}
_OFF = {  # settings of parts that GPT-2 lacks, as they are where a layer lacks them: told where some layer has them
    "mixer": "attention",
    "attention.v_head_dim": "head_dim",
    "attention.window": "none",
    "attention.chunked": "false",
    "attention.logit_softcap": "none",
    "attention.output_gate": "none",
    "attention.sinks": "false",
    "attention.output_norm": "false",
    "attention.keys_as_values": "false",
    "attention.shared_kv": "false",
    "attention.differential": "false",
    "feed_forward.hidden_norm": "false",
    "experts": "none",
    "experts.latent_dim": "none",
    "experts.empty": "0",
    "experts.capacity_factor": "1",
    "experts.beside_feed_forward": "false",
    "norm.unit_offset": "false",
}
_PER_LAYER = ("experts", "extra")  # told of the layers that they are in: under model they would say something else


def model(model: Model) -> dict[str, str]:
    """Return every setting of a model, by its key under ``model``, as a spec would say it.

    Settings that all layers with the part in question share are told once, others under ``layers``.
    """
    kinds = _kinds(layer for run in model.runs for layer in run.layers)
    found: dict[str, set[str]] = {}
    for key, value in (item for kind in kinds for item in kind.items()):
        found.setdefault(key, set()).add(value)
    shared = {key: min(values) for key, values in found.items() if len(values) == 1 and key not in _PER_LAYER}
    padded = f", padded to {model.padded_vocab_size}" if model.padded_vocab_size != model.vocab_size else ""
    values = {
        "vocab_size": f"{model.vocab_size}{padded}",
        "context_length": str(model.context_length),
        "d_model": str(model.d_model),
        "n_layers": str(model.n_layers),
        **shared,
        "embedding_norm": _bool(model.embedding_norm),
        **_on({"embedding_scale": model.embedding_scale, "embedding_dim": model.embedding_dim, "model_type": model.model_type}),
        "final_norm": _bool(model.final_norm),
        "head.tied": _bool(model.tied_head),
        "head.bias": _bool(model.head_bias),
        **({"head.logit_softcap": units.decimal(model.logit_softcap)} if model.logit_softcap else {}),
        **_record("per_layer_embedding", model.per_layer_embedding),
        **_record("prediction", model.prediction),
        **_extra(model.extra),
    }
    if any(kind.keys() - shared.keys() for kind in kinds):
        values["layers"] = ", ".join(_run(run, kinds, shared) for run, kinds in zip(model.runs, _by_run(model.runs, kinds), strict=True))
    return values


def training(training: Training) -> dict[str, str]:
    """Return every setting of a scenario, by its key under ``training``."""
    return {
        "batch_size": str(training.batch_size),
        "sequence_length": str(training.sequence_length),
        "gradient_accumulation": str(training.gradient_accumulation),
        "tokens": "not given" if training.tokens is None else str(training.tokens),
        "precision": training.precision,
        "gradient_dtype": training.gradient_dtype,
        "optimizer": training.optimizer,
        "dropout": units.decimal(training.dropout),
        "recompute": training.recompute,
        "implementation": training.implementation,
        "device": training.device,
        "attention_kernel": training.attention_kernel,
        "loss": training.loss,
        "keep_logits": _bool(training.keep_logits),
        "kv_cache": _bool(training.kv_cache),
        "optimizer_kernel": training.optimizer_kernel,
        "muon_experts": training.muon_experts,
        "ema": training.ema,
        "reserve_bytes": str(training.reserve_bytes),
        "round_allocations": _bool(training.round_allocations),
        "flops_convention": training.flops_convention,
    }


def _kinds(layers: Iterable[Layer]) -> list[dict[str, str]]:
    """Return each layer's settings, without those that are off in all of them."""
    kinds = [_layer(layer) for layer in layers]
    off = {key for key, value in _OFF.items() if all(kind.get(key, value) == value for kind in kinds)}
    if any("experts.count" in kind for kind in kinds):
        off.discard("experts")
    return [{key: value for key, value in kind.items() if key not in off} for kind in kinds]


def _mixer_names(layer: Layer) -> str:
    names = [*(["attention"] if layer.attention else []), *(_MIXERS[type(mixer)] for mixer in layer.mixers)]
    return f"[{', '.join(names)}]" if len(names) > 1 else (names or ["none"])[0]


def _layer(layer: Layer) -> dict[str, str]:
    mixers = [_mixer(mixer) for mixer in layer.mixers]
    return {
        "mixer": _mixer_names(layer),
        **(_attention(layer.attention) if layer.attention else {}),
        **{key: value for mixer in mixers for key, value in mixer.items()},
        **({} if layer.feed_forward is None and layer.experts else _feed_forward(layer.feed_forward)),
        **(_experts(layer.experts, beside=layer.feed_forward is not None) if layer.experts else {"experts": "none"}),
        "norm.type": layer.norm.type,
        "norm.weight": _bool(layer.norm.weight),
        "norm.bias": _bool(layer.norm.bias),
        "norm.placement": layer.norm_placement,
        "norm.unit_offset": _bool(layer.norm.unit_offset),
        "block": layer.block,
        **_positions(layer.positions),
        **_extra(layer.extra),
    }


def _attention(attention: Attention) -> dict[str, str]:
    return {
        "n_heads": str(attention.n_heads),
        "n_kv_heads": str(attention.n_kv_heads),
        "head_dim": str(attention.head_dim),
        "attention.bias.q": _bool(attention.q_bias),
        "attention.bias.k": _bool(attention.k_bias),
        "attention.bias.v": _bool(attention.v_bias),
        "attention.bias.o": _bool(attention.o_bias),
        "attention.qk_norm": attention.qk_norm,
        "attention.qkv": attention.qkv,
        "attention.v_head_dim": "head_dim" if attention.v_head_dim is None else str(attention.v_head_dim),
        "attention.window": _value(attention.window),
        "attention.chunked": _bool(attention.chunked),
        "attention.logit_softcap": units.decimal(attention.logit_softcap) if attention.logit_softcap else "none",
        "attention.output_gate": attention.output_gate,
        "attention.sinks": _bool(attention.sinks),
        "attention.output_norm": _bool(attention.output_norm),
        "attention.keys_as_values": _bool(attention.keys_as_values),
        "attention.shared_kv": _bool(attention.shared_kv),
        "attention.differential": _bool(attention.differential),
    }


def _mixer(mixer: Mixer) -> dict[str, str]:
    name = _MIXERS[type(mixer)]
    told = _record(name, mixer)
    if name == "latent_attention":  # whose heads are the layer's
        return {"n_heads": told.pop("latent_attention.n_heads"), **told}
    return told


def _feed_forward(feed_forward: FeedForward | None) -> dict[str, str]:
    if feed_forward is None:
        return {"feed_forward.type": "none"}
    gate_bias = {"feed_forward.bias.gate": _bool(feed_forward.gate_bias)} if feed_forward.gated else {}
    return {
        "d_ff": str(feed_forward.d_ff),
        "feed_forward.type": "rwkv" if feed_forward.channel_mix else "gated" if feed_forward.gated else "plain",
        "feed_forward.activation": feed_forward.activation,
        "feed_forward.bias.up": _bool(feed_forward.up_bias),
        **gate_bias,
        "feed_forward.bias.down": _bool(feed_forward.down_bias),
        "feed_forward.hidden_norm": _bool(feed_forward.hidden_norm),
    }


def _experts(experts: Experts, *, beside: bool) -> dict[str, str]:
    shared = {"experts.shared.d_ff": experts.shared_d_ff, "experts.shared.gate": experts.shared_gate}
    return {
        "experts.count": str(experts.count),
        "experts.top_k": str(experts.top_k),
        "experts.d_ff": str(experts.d_ff),
        "experts.type": "gated" if experts.gated else "plain",
        "experts.activation": experts.activation,
        "experts.bias": _bool(experts.bias),
        "experts.scoring": experts.scoring,
        "experts.normalize": _bool(experts.normalize),
        "experts.scores_dtype": experts.scores_dtype,
        "experts.router_bias": _bool(experts.router_bias),
        "experts.correction_bias": experts.correction_bias,
        **({key: _value(value) for key, value in shared.items()} if experts.shared_d_ff is not None else {}),
        "experts.latent_dim": _value(experts.latent_dim),
        "experts.empty": str(experts.empty),
        "experts.capacity_factor": units.decimal(experts.capacity_factor),
        "experts.beside_feed_forward": _bool(beside),
    }


def _extra(tensors: tuple[Extra, ...]) -> dict[str, str]:
    told = (f"{{name: {each.name}, shape: {list(each.shape)}, component: {each.component}, uses: {each.uses}}}" for each in tensors)
    return {"extra": f"[{', '.join(told)}]"} if tensors else {}


def _record(group: str, record: object) -> dict[str, str]:
    """Return a group's settings, which are the fields of its record; a group in the group is none or told so itself."""
    if record is None:
        return {}
    told: dict[str, str] = {}
    for field in fields(record):  # type: ignore[arg-type]  # a record of planner.spec.records
        key, value = f"{group}.{field.name}", getattr(record, field.name)
        if field.name == "indexer":
            told |= _record(key, value)
        else:
            told[key] = _value(value)
    return told


def _on(values: dict[str, str | int | bool | None]) -> dict[str, str]:
    """Return the settings that are on: neither none nor false nor zero."""
    return {key: _value(value) for key, value in values.items() if value and value != "none"}


def _value(value: object) -> str:
    if isinstance(value, bool):
        return _bool(value)
    return "none" if value is None else str(value)


def _positions(positions: Positions) -> dict[str, str]:
    offset = {"positions.offset": str(positions.offset)} if positions.type == "learned" else {}
    rotary_dim = {"positions.rotary_dim": str(positions.rotary_dim)} if positions.type == "rope" else {}
    return {"positions.type": positions.type, **offset, **rotary_dim}


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _by_run(runs: tuple[Run, ...], kinds: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    rest = iter(kinds)
    return [[next(rest) for _ in run.layers] for run in runs]


def _run(run: Run, kinds: list[dict[str, str]], shared: dict[str, str]) -> str:
    own = ({key: value for key, value in kind.items() if key not in shared} for kind in kinds)
    layers = ", ".join("{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}" for values in own)
    return f"{run.count} × {layers}" if len(run.layers) == 1 else f"{run.count} × [{layers}]"
