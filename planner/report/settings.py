"""A resolved spec in the words of the spec language: dotted keys and the values that they have after every default."""

from __future__ import annotations

from planner.report import units
from planner.spec.records import FeedForward, Layer, Model, Positions, Run, Spec, Training

# What is told in one value, and the keys of the spec language that it stands for.
_PARTS = {
    "attention.bias": ("attention.bias.q", "attention.bias.k", "attention.bias.v", "attention.bias.o"),
    "feed_forward.bias": ("feed_forward.bias.up", "feed_forward.bias.down"),
    "positions": ("positions.type",),
}


def left_out(spec: Spec, section: str, key: str) -> bool:
    """Say whether a setting is nowhere in the spec, so that its value is a default."""
    return all(f"{section}.{part}" in spec.defaulted for part in _PARTS.get(key, (key,)))


def model(model: Model) -> dict[str, str]:
    """Every setting of a model, by its key under ``model``; what differs from layer to layer is told under ``layers``."""
    kinds = [_layer(layer) for run in model.runs for layer in run.layers]
    shared = {key: value for key, value in kinds[0].items() if all(kind[key] == value for kind in kinds)}
    padded = f", padded to {model.padded_vocab_size}" if model.padded_vocab_size != model.vocab_size else ""
    values = {
        "vocab_size": f"{model.vocab_size}{padded}",
        "context_length": str(model.context_length),
        "d_model": str(model.d_model),
        "n_layers": str(model.n_layers),
        **shared,
        "embedding_norm": _bool(model.embedding_norm),
        "final_norm": _bool(model.final_norm),
        "head.tied": _bool(model.tied_head),
        "head.bias": _bool(model.head_bias),
    }
    if len(shared) < len(kinds[0]):
        values["layers"] = ", ".join(_run(run, shared) for run in model.runs)
    return values


def training(training: Training) -> dict[str, str]:
    """Every setting of a scenario, by its key under ``training``."""
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
        "flops_convention": training.flops_convention,
    }


def _layer(layer: Layer) -> dict[str, str]:
    attention, feed_forward = layer.attention, layer.feed_forward
    biases = {"q": attention.q_bias, "k": attention.k_bias, "v": attention.v_bias, "o": attention.o_bias}
    return {
        "n_heads": str(attention.n_heads),
        "n_kv_heads": str(attention.n_kv_heads),
        "head_dim": str(attention.head_dim),
        "d_ff": str(feed_forward.d_ff),
        "attention.bias": _biases(biases),
        "attention.qk_norm": attention.qk_norm,
        "attention.qkv": attention.qkv,
        "feed_forward.type": "gated" if feed_forward.gated else "plain",
        "feed_forward.activation": feed_forward.activation,
        "feed_forward.bias": _biases(_feed_forward_biases(feed_forward)),
        "norm.type": layer.norm.type,
        "norm.weight": _bool(layer.norm.weight),
        "norm.bias": _bool(layer.norm.bias),
        "norm.placement": layer.norm_placement,
        "block": layer.block,
        "positions": _positions(layer.positions),
    }


def _feed_forward_biases(feed_forward: FeedForward) -> dict[str, bool]:
    gate = {"gate": feed_forward.gate_bias} if feed_forward.gated else {}
    return {**gate, "up": feed_forward.up_bias, "down": feed_forward.down_bias}


def _positions(positions: Positions) -> str:
    if positions.type == "learned" and positions.offset:
        return f"{{type: learned, offset: {positions.offset}}}"
    if positions.type == "rope":
        return f"{{type: rope, rotary_dim: {positions.rotary_dim}}}"
    return positions.type


def _biases(biases: dict[str, bool]) -> str:
    if len(set(biases.values())) == 1:
        return _bool(next(iter(biases.values())))
    return "{" + ", ".join(f"{name}: {_bool(there)}" for name, there in biases.items()) + "}"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _run(run: Run, shared: dict[str, str]) -> str:
    own = ({key: value for key, value in _layer(layer).items() if key not in shared} for layer in run.layers)
    layers = ", ".join("{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}" for values in own)
    return f"{run.count} × {layers}" if len(run.layers) == 1 else f"{run.count} × [{layers}]"
