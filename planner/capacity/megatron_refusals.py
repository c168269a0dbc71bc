"""What of Megatron-Core's layouts, and of settings beside them, is not modeled."""

from __future__ import annotations

from collections.abc import Iterator

from planner.capacity.differing import differing
from planner.spec.records import Experts, LatentAttention, Layer, Layout, Model, Training

PRECISIONS = ("fp32", "bf16-master", "fp16-master")
_OF_TRAINING = (
    "batch_size", "sequence_length", "gradient_accumulation", "tokens", "precision", "gradient_dtype", "optimizer", "dropout", "recompute",
    "recompute_every", "recompute_modules", "implementation", "device", "attention_kernel", "gradient_accumulation_fusion",
    "cross_entropy_fusion", "mask_in_data_loader", "reserve_bytes", "flops_convention", "layout",
)  # fmt: skip
_OF_MODEL = (
    "vocab_size", "padded_vocab_size", "vocab_multiple", "context_length", "d_model", "n_layers", "runs", "positions", "norm", "final_norm",
    "tied_head", "model_type",
)  # fmt: skip
_OF_LAYER = ("attention", "mixers", "feed_forward", "experts", "norm", "positions")
_OF_ATTENTION = ("n_heads", "n_kv_heads", "head_dim", "q_bias", "k_bias", "v_bias", "o_bias", "qkv", "qk_norm")
_OF_LATENT = ("n_heads", "kv_rank", "nope_dim", "rope_dim", "v_dim", "q_rank", "bias")
_OF_EXPERTS = (
    "count", "top_k", "d_ff", "gated", "activation", "scoring", "normalize", "scores_dtype", "correction_bias", "shared_d_ff",
)  # fmt: skip
_OF_FEED_FORWARD = ("d_ff", "gated", "activation", "gate_bias", "up_bias", "down_bias")


def unmodeled(model: Model, training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled."""
    found = {
        f"layout.data_parallel {layout.data_parallel}": layout.data_parallel not in ("ddp", "zero1"),
        "layout.gradient_as_bucket_view": layout.gradient_as_bucket_view,
        f"layout.offload {layout.offload}": layout.offload != "none",
        f"attention_kernel {training.attention_kernel} with context_parallel": layout.context_parallel > 1
        and (training.attention_kernel == "math" or training.precision == "fp32"),
        f"precision {training.precision}": training.precision not in PRECISIONS,
        f"gradient_dtype {training.gradient_dtype}": training.gradient_dtype != "fp32",
        f"optimizer {training.optimizer}": training.optimizer not in ("adamw", "adam"),
        "model.prediction": model.prediction,
    }
    if training.implementation == "megatron":  # of 2022
        found |= {f"layout.{degree} above 1": getattr(layout, degree) > 1 for degree in ("context_parallel", "expert_parallel")}
        found["layout.data_parallel zero1"] = layout.data_parallel == "zero1"
        found["layout.expert_tensor_parallel"] = layout.expert_tensor_parallel is not None
    yield from (f"{what} with implementation {training.implementation} and several devices" for what, is_set in found.items() if is_set)
    yield from (f"training.{name} with several devices" for name in differing(training, _OF_TRAINING))
    degrees = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "context_parallel")
    if divides := next((degree for degree in degrees if getattr(layout, degree) > 1), None):
        yield from (f"{what} with {divides}" for what in _undivided(model, layout))
        yield from (f"{what} with {divides}" for what in _newer(model)) if training.implementation == "megatron" else ()
    if layout.pipeline_parallel > 1:
        yield from [f"schedule {layout.schedule} with pipeline_parallel"] if layout.schedule not in ("1f1b", "interleaved") else []
        yield from ["recompute_every with pipeline_parallel"] if training.recompute_every > 1 else []


def _undivided(model: Model, layout: Layout) -> Iterator[str]:
    """Yield the settings of the model that are not modeled with divided layers."""
    yield from differing(model, _OF_MODEL)
    for layer in (layer for run in model.runs for layer in run.layers):
        yield from differing(layer, _OF_LAYER)
        yield from _of_layer(layer)
        yield from _of_experts(layer.experts, layout) if layer.experts else []
        yield from _of_sequences(layer, layout) if layout.context_parallel > 1 else []


def _of_layer(layer: Layer) -> Iterator[str]:
    """Yield the settings of a layer's attention and feed-forward. Projections in one matrix have all biases or none."""
    kind, feed = layer.attention, layer.feed_forward
    latent = [mixer for mixer in layer.mixers if isinstance(mixer, LatentAttention)]
    yield from differing(kind, _OF_ATTENTION) if kind else []
    yield from (name for mixer in latent for name in differing(mixer, _OF_LATENT))
    yield from [] if (kind is None) == (len(latent) == 1) and len(layer.mixers) == len(latent) else ["a layer without attention"]
    yield from differing(feed, _OF_FEED_FORWARD) if feed else []
    yield from [] if bool(feed) != bool(layer.experts) else ["a feed_forward beside experts"]
    yield from ["different biases of queries, keys and values"] if kind and not kind.q_bias == kind.k_bias == kind.v_bias else []
    yield from ["different biases of gate and up"] if feed and feed.gated and feed.gate_bias != feed.up_bias else []
    yield from [f"qk_norm {kind.qk_norm}"] if kind and kind.qk_norm not in ("none", "head_dim") else []
    yield from [f"positions {layer.positions.type}"] if layer.positions.type not in ("learned", "rope", "none") else []


def _of_experts(kind: Experts, layout: Layout) -> Iterator[str]:
    """Yield the settings of experts. Megatron-Core requires sequence parallelism beside tensor parallelism for them."""
    yield from (f"experts.{name}" for name in differing(kind, _OF_EXPERTS))
    yield from ["experts without sequence_parallel"] if layout.tensor_parallel > 1 and not layout.sequence_parallel else []


def _of_sequences(layer: Layer, layout: Layout) -> Iterator[str]:
    """Yield what context parallelism does not support of a layer: heads that it does not divide, and narrower values gathered with keys."""
    latent = [mixer.n_heads for mixer in layer.mixers if isinstance(mixer, LatentAttention)]
    degree = layout.tensor_parallel * layout.context_parallel
    if layout.context_kind == "ulysses":
        heads = [layer.attention.n_kv_heads] if layer.attention else latent
        yield from (f"context_kind ulysses with {count} KV heads on {degree} devices" for count in heads if count % degree)
    if layout.context_kind == "all_gather" and latent:
        yield "context_kind all_gather with latent attention"


def _newer(model: Model) -> Iterator[str]:
    """Yield what the stack of 2022 has no divided modules for: it reads a gathered sequence in one matrix."""
    for layer in (layer for run in model.runs for layer in run.layers):
        yield from ["experts"] if layer.experts else []
        yield from ["latent_attention"] if layer.mixers else []
        yield from ["a gated feed_forward"] if layer.feed_forward and layer.feed_forward.gated else []
        yield from ["attention.qkv separate"] if layer.attention and layer.attention.qkv == "separate" else []
        yield from ["grouped KV heads"] if layer.attention and layer.attention.n_kv_heads != layer.attention.n_heads else []
