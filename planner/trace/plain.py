"""The parts of a model that plain PyTorch modules can have, and for which `planner verify` can therefore measure the plan."""

from __future__ import annotations

from planner.spec.records import Model

SWITCHES = ("sinks", "output_norm", "keys_as_values", "shared_kv", "differential")  # of attention


def beyond_plain_modules(model: Model) -> tuple[str, ...]:
    """Return the names of a model's parts that plain modules do not have, by their keys in a spec."""
    layers = [layer for run in model.runs for layer in run.layers]
    attentions = [layer.attention for layer in layers if layer.attention]
    feed_forwards = [layer.feed_forward for layer in layers if layer.feed_forward]
    parts = {
        "mixer": any(layer.mixers for layer in layers) or len(attentions) < len(layers),
        "experts": any(layer.experts for layer in layers) or len(feed_forwards) < len(layers),
        "causal: false": not model.causal,
        "encoder": model.encoder is not None,
        "vision": model.vision is not None,
        "segments": bool(model.segments),
        f"head.type: {model.head_type}": model.head_type != "language",
        "head.transform": model.head_transform,
        "mixer_norm: false": not all(layer.mixer_norm for layer in layers),
        "embedding_dim": model.embedding_dim is not None,
        "per_layer_embedding": model.per_layer_embedding is not None,
        "extra": bool(model.extra) or any(layer.extra for layer in layers),
        "norm.placement: after_residual": any(layer.norm_placement == "after_residual" for layer in layers),
        "feed_forward.hidden_norm": any(kind.hidden_norm for kind in feed_forwards),
        "feed_forward.sparse": any(kind.sparse for kind in feed_forwards),
        "feed_forward.type: rwkv": any(kind.channel_mix for kind in feed_forwards),
        "attention.window": any(kind.window is not None for kind in attentions),
        "attention.output_gate": any(kind.output_gate != "none" for kind in attentions),
        "attention.v_head_dim": any(kind.v_head_dim not in {None, kind.head_dim} for kind in attentions),
        **{f"attention.qk_norm: {norm}": any(kind.qk_norm == norm for kind in attentions) for norm in ("per_head", "unweighted")},
        **{f"attention.{name}": any(getattr(kind, name) for kind in attentions) for name in SWITCHES},
    }
    return tuple(name for name, present in parts.items() if present)
