"""A resolved spec in the words of the spec language: dotted keys and the values that they have after every default."""

from __future__ import annotations

from planner.report import units
from planner.spec.records import Attention, FeedForward, Layer, Model, Positions, Run, Training


def model(model: Model) -> dict[str, str]:
    """Return every setting of a model, by its key under ``model``; what differs from layer to layer is told under ``layers``."""
    kinds = [_layer(layer) for run in model.runs for layer in run.layers]
    shared = {key: value for key, value in kinds[0].items() if all(kind.get(key) == value for kind in kinds)}
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
    if any(kind != shared for kind in kinds):
        values["layers"] = ", ".join(_run(run, shared) for run in model.runs)
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
        "flops_convention": training.flops_convention,
    }


def _layer(layer: Layer) -> dict[str, str]:
    norm = layer.norm
    return {
        **(_attention(layer.attention) if layer.attention else {}),
        **(_feed_forward(layer.feed_forward) if layer.feed_forward else {}),
        "norm.type": norm.type,
        "norm.weight": _bool(norm.weight),
        "norm.bias": _bool(norm.bias),
        "norm.placement": layer.norm_placement,
        "block": layer.block,
        **_positions(layer.positions),
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
    }


def _feed_forward(feed_forward: FeedForward) -> dict[str, str]:
    gate_bias = {"feed_forward.bias.gate": _bool(feed_forward.gate_bias)} if feed_forward.gated else {}
    return {
        "d_ff": str(feed_forward.d_ff),
        "feed_forward.type": "gated" if feed_forward.gated else "plain",
        "feed_forward.activation": feed_forward.activation,
        "feed_forward.bias.up": _bool(feed_forward.up_bias),
        **gate_bias,
        "feed_forward.bias.down": _bool(feed_forward.down_bias),
    }


def _positions(positions: Positions) -> dict[str, str]:
    offset = {"positions.offset": str(positions.offset)} if positions.type == "learned" else {}
    rotary_dim = {"positions.rotary_dim": str(positions.rotary_dim)} if positions.type == "rope" else {}
    return {"positions.type": positions.type, **offset, **rotary_dim}


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _run(run: Run, shared: dict[str, str]) -> str:
    own = ({key: value for key, value in _layer(layer).items() if key not in shared} for layer in run.layers)
    layers = ", ".join("{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}" for values in own)
    return f"{run.count} × {layers}" if len(run.layers) == 1 else f"{run.count} × [{layers}]"
