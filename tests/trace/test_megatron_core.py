"""The implementation ``megatron-core`` against memory that Megatron-LM's own tests record on GPUs, and against sums by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.trace.decoder import trace
from planner.trace.nodes import operations
from planner.trace.unsupported import UnsupportedError

PlanModel = Callable[..., Plan]

# GPT with 12 layers, 8 heads and learned positions, 4 sequences of 1,024 tokens, dropout 0.1; GPT-2's vocabulary padded to 128 rows.
GPT: dict[str, Any] = {
    "vocab_size": 50257, "pad_vocab_to_multiple_of": 128, "context_length": 1024, "d_model": 512, "n_layers": 12, "n_heads": 8,
}  # fmt: skip
STEP: dict[str, Any] = {
    "batch_size": 4, "precision": "bf16-master", "dropout": 0.1, "implementation": "megatron-core", "gradient_accumulation_fusion": False,
    "round_allocations": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "kernel", "allocated", "largest"),
    [
        # Megatron-LM d98e8a64 (core 0.20), tests/functional_tests/test_cases/gpt/*/golden_values_dev_dgx_*.json: mem-allocated-bytes after
        # a step and mem-max-allocated-bytes, of gpt3_mcore_te_tp1_pp1_frozen_resume_torch_dist_dist_optimizer (auto) and
        # gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset (--attention-backend unfused). Each GPU has the whole model, and 1/8 of Adam's
        # state: what is allocated between steps is not compared, what a step adds to it is.
        ("h100", "auto", 581_488_640, 2_690_742_784),
        ("a100", "auto", 552_128_512, 2_711_714_304),
        ("h100", "math", 581_489_664, 4_702_430_720),
    ],
)
def test_a_step_adds_what_runs_on_gpus_record(device: str, kernel: str, allocated: int, largest: int, plan_model: PlanModel) -> None:
    memory = plan_model(GPT, **STEP, device=device, attention_kernel=kernel).memory
    assert memory.peak_bytes - memory.model_states_bytes == largest - allocated


LLAMA: dict[str, Any] = {
    "vocab_size": 100, "context_length": 64, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 96, "positions": "rope",
    "feed_forward": {"type": "gated", "activation": "silu"}, "norm": {"type": "rmsnorm"}, "head": {"tied": False},
    "attention": {"qkv": "separate", "bias": False},
}  # fmt: skip


def kept(plan_model: PlanModel, model: dict[str, Any] = LLAMA, **training: object) -> int:
    """Return the bytes that one layer saves."""
    step: dict[str, Any] = {"batch_size": 2, "precision": "bf16-master", "implementation": "megatron-core"} | training
    one, two = (plan_model(model | {"n_layers": layers}, **step).memory.activations_bytes for layers in (1, 2))
    return two - one


# Bytes per token of a layer, d 64, f 96, heads of 16. Norm and linear save x and the norm's output, 2·2·d, and a float32 statistic.
NORM = 2 * 2 * 64 + 4
# Queries of 4 heads, keys and values of 2 each, the output of 4; a float32 logsumexp per query head.
ATTENTION = 2 * (4 + 2 + 2 + 4) * 16 + 4 * 4
# Gate and up, and the product.
FEED_FORWARD = 2 * 3 * 96
TOKENS = 2 * 64


@pytest.mark.parametrize(
    ("training", "right"),
    [
        ({"device": "h100"}, (2 * NORM + ATTENTION + FEED_FORWARD) * TOKENS + 16),  # and 16 bytes of a state of random numbers
        # flash-attn's output is copied from [B, n, ..] to [n, B, ..]; those of one sequence are the same.
        ({}, (2 * NORM + ATTENTION + 2 * 4 * 16 + FEED_FORWARD) * TOKENS + 16),
        ({"batch_size": 1}, (2 * NORM + ATTENTION + FEED_FORWARD) * 64 + 16),
        # Recomputation of attention saves rotated queries and keys, and the whole projection for its values (4 + 2 + 2 heads).
        (
            {"device": "h100", "recompute": "selective", "mask_in_data_loader": False},
            (2 * NORM + 2 * (4 + 2 + 8 + 4) * 16 + FEED_FORWARD) * TOKENS,
        ),
        ({"recompute": "full"}, 2 * 64 * TOKENS),
        # The feed-forward with its norm is recomputed from x.
        (
            {"device": "h100", "recompute": "selective", "recompute_modules": {"core_attn": False, "mlp": True}},
            (NORM + ATTENTION + 2 * 64) * TOKENS + 16,
        ),
    ],
)
def test_a_layer_saves_the_tensors_of_fused_kernels(training: dict[str, Any], right: int, plan_model: PlanModel) -> None:
    assert kept(plan_model, **training) == right


def test_experts_save_the_tensors_of_grouped_kernels(plan_model: PlanModel) -> None:
    # 6 experts of 40, 2 per token: 256 rows. The norm saves its input and a statistic, the router the norm's output; per token two float32
    # probabilities and int64 indices; per row two int64 indices, the input of 64, gate and up, their product and its weight in bf16.
    model = LLAMA | {"experts": {"count": 6, "top_k": 2, "d_ff": 40}}
    outside, routed = (2 * NORM + ATTENTION) * TOKENS + 16, 256 * (2 * 8 + 2 * 64 + 2 * 3 * 40 + 2) + TOKENS * 2 * (4 + 8)
    assert kept(plan_model, model, device="h100") == outside + routed

    def without(module: str) -> int:
        again = {"recompute": "selective", "recompute_modules": {"core_attn": False, module: True}}
        return kept(plan_model, model, device="h100", **again)

    assert without("moe") == outside
    assert without("moe_act") == outside + routed - 256 * 2 * 40  # the product, for which only the activation runs again


def test_the_cross_entropy_of_transformer_engine_saves_the_gradient_of_the_logits(plan_model: PlanModel) -> None:
    # Per token, both save 100 float32 numbers; the other one also an int64 target and whether it is in the vocabulary's part.
    step: dict[str, Any] = {"batch_size": 2, "precision": "bf16-master", "implementation": "megatron-core"}
    of_te, other = (plan_model(LLAMA | {"n_layers": 1}, **step, cross_entropy_fusion=it).memory for it in ("te", "none"))
    assert other.activations_bytes - of_te.activations_bytes == TOKENS * (8 + 1)


@pytest.mark.parametrize(
    ("device", "queries", "values", "kernel"),
    [
        # Transformer Engine 2.20, common/fused_attn/fused_attn.cpp: on Hopper, cuDNN trains heads to 256, but not of different widths from
        # 128 on, except DeepSeek's; on Ampere to 128. flash-attn pads values to the width of queries (utils.py, fa2_padded_head_dim).
        ("h100", 256, 256, "cudnn"),
        ("h100", 192, 128, "cudnn"),
        ("h100", 256, 128, "flash"),
        ("h100", 192, 64, "cudnn"),
        ("a100", 192, 128, "flash"),
    ],
)
def test_the_kernel_of_wide_heads(device: str, queries: int, values: int, kernel: str, plan_model: PlanModel) -> None:
    latent = {"kv_rank": 32, "nope_dim": queries - 8, "rope_dim": 8, "v_dim": values}
    model = {name: value for name, value in LLAMA.items() if name not in ("attention", "n_kv_heads")}
    model |= {"mixer": "latent_attention", "latent_attention": latent}
    step = {"batch_size": 2, "precision": "bf16-master", "implementation": "megatron-core", "device": device}
    plan = plan_model(model | {"n_layers": 1}, **step)
    names = {node.name for node, _ in operations(trace(plan.model, plan.training).nodes)}
    assert names & {"cudnn_attention", "flash_attention"} == {f"{kernel}_attention"}


def test_the_mask_of_the_data_loader_exists_in_the_forward_pass(plan_model: PlanModel) -> None:
    # [B, 1, n, n] bytes at the peak, which is the loss.
    step: dict[str, Any] = {"batch_size": 2, "precision": "bf16-master", "implementation": "megatron-core"}
    with_mask, without = (plan_model(LLAMA | {"n_layers": 1}, **step, mask_in_data_loader=it).memory for it in (True, False))
    assert (with_mask.peak_bytes - without.peak_bytes, with_mask.activations_bytes) == (2 * 64 * 64, without.activations_bytes)


def test_fused_accumulation_stores_a_dummy_gradient_per_shape(plan_model: PlanModel) -> None:
    # In bf16: QKV [(4 + 2·2)·16, 64], output [64, 64], gate and up [192, 64], down [64, 96], LM head [100, 64].
    step: dict[str, Any] = {"precision": "bf16-master", "implementation": "megatron-core"}
    fused, other = (plan_model(LLAMA | {"n_layers": 2}, **step, gradient_accumulation_fusion=it).memory for it in (True, False))
    assert fused.buffers_bytes - other.buffers_bytes == 2 * (128 * 64 + 64 * 64 + 192 * 64 + 64 * 96 + 100 * 64)


@pytest.mark.parametrize(
    ("device", "attention"),
    [
        # Per token and 4 heads: queries and keys of 24 channels, values and output of 8, in bf16, and a float32 logsumexp.
        ("h100", 4 * (2 * (24 + 24 + 8 + 8) + 4)),
        # flash-attn pads values and output to 24 channels; the slice of the output is copied.
        ("a100", 4 * (2 * (24 + 24 + 24 + 24 + 8) + 4)),
    ],
)
def test_latent_attention_saves_values_without_keys(device: str, attention: int, plan_model: PlanModel) -> None:
    latent = {"kv_rank": 32, "nope_dim": 16, "rope_dim": 8, "v_dim": 8}
    model = {name: value for name, value in LLAMA.items() if name not in ("attention", "n_kv_heads")}
    model |= {"mixer": "latent_attention", "latent_attention": latent}
    # The latent of 32 channels with 8 rotated ones, as the norm's input, its statistic, and the norm's output.
    compressed = 2 * (32 + 8) + 4 + 2 * 32
    right = (2 * NORM + compressed + attention + FEED_FORWARD) * TOKENS + 16
    assert kept(plan_model, model, device=device) == right


@pytest.mark.parametrize(
    ("model", "training", "reason"),
    [
        ({}, {"device": "cpu"}, "requires a GPU"),
        ({}, {"attention_kernel": "efficient"}, "no efficient attention kernel"),
        ({"positions": "alibi"}, {}, "nor adds ALiBi"),
        ({"experts": {"count": 4, "top_k": 2, "d_ff": 32}}, {"float8": True, "device": "h100"}, "experts in float8 are not modeled"),
    ],
)
def test_what_transformer_engine_lacks_is_refused(
    model: dict[str, Any], training: dict[str, Any], reason: str, plan_model: PlanModel
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        plan_model(GPT | model, **STEP | training)
