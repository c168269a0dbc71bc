"""The measurements themselves: they equal independent measurements of plain GPT-2, and each other."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, product

import pytest

import planner
from planner.spec.records import (
    Attention,
    AttentionKernel,
    Device,
    Experts,
    Extra,
    FeedForward,
    Implementation,
    Layer,
    Model,
    Norm,
    Positions,
    Precision,
    Recompute,
    Run,
    ShortConvolution,
    Training,
)
from planner.verify import CannotMeasureError
from tests.capacity.training_steps import cases
from tests.capacity.training_steps import model as model_of
from tests.capacity.training_steps import training as training_of

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify.modules import attention_of, parameters
from planner.verify.step import measure

ALL = os.environ.get("CHANGES") == "all"  # `make sweep`
# One large case of each kind: precision, attention, checkpointing, dropout, untied head, odd sizes, another GPU, another kernel.
LARGE = ("476429cc", "660a271e", "e41c6b6a", "26d4dc66", "69dfa2ca", "ecb763dd", "de73b887")
LARGE_OF_TRANSFORMERS = ("0ea28f7e", "c41f2450")


def first_of_each_kind(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return one small case of each class, precision, attention, loss and kernel."""
    kinds: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        kinds.setdefault(tuple(row[key] for key in ("family", "prec", "attn", "loss", "opt", "keep_logits")), row)
    return list(kinds.values())


def chosen() -> list[dict[str, str]]:
    rows = cases()
    plain = [row for row in rows if row["family"] == "nano" and row["device"] == "cpu"][:: 1 if ALL else 3]
    large = [row for row in rows if row["case"] in (*LARGE, *LARGE_OF_TRANSFORMERS)]
    small = first_of_each_kind(row for row in rows if row["family"] != "nano" and row["device"] == "cpu")
    return [*plain, *small, *large]


# The gradient of the scores [256 tokens, 8 experts] in bf16, of which that measurement counts a copy: under a mode, PyTorch
# fills one in the backward pass of topk (value_selecting_reduction_backward).
COPIES = {"d1a31898": 256 * 8 * 2}


def gpt2(n_layers: int = 12, d_model: int = 768, n_heads: int = 12, V: int = 50257, context_length: int = 1024) -> Model:
    layer = Layer(Attention(n_heads, n_heads, d_model // n_heads), FeedForward(4 * d_model))
    return Model(V, V, context_length, d_model, n_layers, (Run(n_layers, (layer,)),))


PLAIN = gpt2(n_layers=1, d_model=32, n_heads=4, V=61, context_length=16)
STEP = Training(batch_size=2, sequence_length=9, precision="fp32")


def test_parameters_of_gpt2_small() -> None:
    assert sum(math.prod(shape) for shape in parameters(gpt2()).values()) == 124_439_808


@pytest.mark.parametrize("row", chosen(), ids=lambda row: f"{row['case']}-{row['family']}-{row['device']}-{row['prec']}-{row['attn']}")
def test_every_metric_of_a_measured_case(row: dict[str, str]) -> None:
    if row["family"] != "nano":
        pytest.importorskip("transformers", reason="transformers is not installed")
    ours = measure(model_of(row), training_of(row))
    figures = {
        "params": ours.params,
        "saved_bytes": ours.saved_bytes,
        "start_bytes": ours.start_bytes,
        "after_fwd_bytes": ours.after_forward_bytes,
        "after_bwd_bytes": ours.after_backward_bytes,
        "peak1_bytes": ours.first_peak_bytes,
        "peak_bytes": ours.peak_bytes,
        "flops_fwd_all": ours.flops_forward,
        "flops_bwd_all": ours.flops_backward,
    }
    right = {name: int(row[name]) for name in figures}
    right["peak_bytes"] -= COPIES.get(row["case"], 0)
    assert figures == right


KINDS = list(
    product(
        ("fp32", "bf16-autocast", "fp16-autocast", "bf16"), ("pytorch", "pytorch-eager"), ("none", "selective", "full"), ("a100", "cpu")
    )
)


@pytest.mark.parametrize(
    ("precision", "implementation", "recompute", "device"),
    KINDS if ALL else random.Random(0).sample(KINDS, 16),  # noqa: S311 - not for secrets
)
def test_saved_tensors_stay_allocated(precision: Precision, implementation: Implementation, recompute: Recompute, device: Device) -> None:
    training = replace(
        STEP, precision=precision, implementation=implementation, recompute=recompute, dropout=Fraction(1, 10), device=device
    )
    ours = measure(PLAIN, training)
    inputs = 2 * 8 * training.batch_size * training.sequence_length
    loss = 2 if precision == "bf16" else 4
    assert ours.after_forward_bytes - ours.start_bytes == ours.saved_bytes - inputs + loss


def test_a_row_per_saved_storage() -> None:
    rows = {(row.path, row.function): row for row in measure(PLAIN, STEP).kept}
    assert rows["model.layers.0.mlp", "gelu"].shape == (2, 9, 128)
    assert rows["model.layers.0.mlp", "gelu"].bytes == 2 * 9 * 128 * 4
    assert rows["model.embed_positions", "embedding"].dtype == "int64"


LAYER = PLAIN.runs[0].layers[0]
ATTENTION = attention_of(LAYER)
GQA = replace(ATTENTION, n_heads=4, n_kv_heads=2, qkv="separate")


def changed(**changes: object) -> Model:
    """Return the plain model with another layer."""
    layer = replace(LAYER, **changes)  # type: ignore[arg-type] # names match their values below
    return replace(PLAIN, runs=(Run(1, (layer,)),), positions=layer.positions, norm=layer.norm)


def kernel_of(model: Model, precision: Precision, device: Device = "a100", attention_kernel: AttentionKernel = "auto") -> set[str]:
    """Return the shapes that fused attention saved, which depend on its kernel."""
    kept = measure(model, replace(STEP, precision=precision, device=device, attention_kernel=attention_kernel)).kept
    return {f"{row.dtype} {row.shape}" for row in kept if row.function == "scaled_dot_product_attention"}


def test_the_kernels_that_a_gpu_selects() -> None:
    # Flash saves statistics per row and 16 bytes of RNG state; the memory-efficient kernel pads rows to 32.
    assert "float32 (2, 4, 9)" in kernel_of(PLAIN, "bf16")
    assert "float32 (2, 4, 32)" in kernel_of(PLAIN, "fp32")
    # Grouped queries: flash supports them, the memory-efficient kernel does not, and plain products save the probabilities.
    assert "float32 (2, 4, 9)" in kernel_of(changed(attention=GQA), "bf16")
    assert "float32 (2, 4, 9, 9)" in kernel_of(changed(attention=GQA), "fp32")
    # An H100-class device prefers cuDNN's kernel to flash.
    assert "float32 (2, 4, 9, 1)" in kernel_of(PLAIN, "bf16", device="h100")
    assert "float32 (2, 4, 9, 9)" in kernel_of(PLAIN, "fp32", attention_kernel="math")
    # Heads are padded to a multiple of 8 for flash.
    odd = replace(ATTENTION, head_dim=6)
    assert "bfloat16 (2, 4, 9, 8)" in kernel_of(changed(attention=odd), "bf16")


SWITCHES: dict[str, dict[str, object]] = {
    "rope": {"positions": Positions("rope", rotary_dim=8)},
    "rope on half": {"positions": Positions("rope", rotary_dim=4)},
    "alibi": {"positions": Positions("alibi")},
    "sinusoidal": {"positions": Positions("sinusoidal")},
    "no positions": {"positions": Positions("none")},
    "rmsnorm": {"norm": Norm("rmsnorm", weight=True, bias=False)},
    "bare norm": {"norm": Norm("layernorm", weight=False, bias=False)},
    "norms after": {"norm_placement": "after"},
    "norms around": {"norm_placement": "before_and_after"},
    "parallel": {"block": "parallel_one_norm"},
    "parallel, two norms": {"block": "parallel_two_norms"},
    "grouped": {"attention": GQA},
    "grouped, interleaved": {"attention": replace(GQA, qkv="fused_per_head")},
    "norm on heads": {"attention": replace(ATTENTION, qk_norm="head_dim")},
    "norm on all heads": {"attention": replace(GQA, qk_norm="full_width")},
    "gated": {"feed_forward": FeedForward(24, gated=True, activation="silu")},
    "relu squared": {"feed_forward": FeedForward(24, activation="relu_squared")},
}


@pytest.mark.parametrize("implementation", ["pytorch", "pytorch-eager"])
@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_trains_on_real_and_fake_tensors(switch: str, implementation: Implementation) -> None:
    model = changed(**SWITCHES[switch])
    training = replace(STEP, precision="bf16-autocast", implementation=implementation)
    fake, real = measure(model, training), measure(model, replace(training, device="cpu"))
    assert fake.params == real.params == sum(math.prod(shape) for shape in parameters(model).values())
    assert fake.start_bytes == real.start_bytes


def test_a_model_that_cannot_be_built_is_reported() -> None:
    from planner.verify.parts import UnbuildableError

    with pytest.raises(UnbuildableError, match="implementation megatron"):
        measure(PLAIN, replace(STEP, implementation="megatron"))
    uneven = Attention(4, 4, 8, qkv="fused", k_bias=False)
    with pytest.raises(UnbuildableError, match="one bias"):
        parameters(changed(attention=uneven))


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"attention": None, "mixers": (ShortConvolution(32, 3),)}, "attention of heads only"),
        ({"feed_forward": None}, "one feed-forward in each layer"),
        ({"attention": None}, "attention of heads only"),
        ({"experts": Experts(4, 2, 8)}, "no experts"),
        ({"attention": replace(GQA, window=4)}, "window"),
        ({"attention": replace(GQA, sinks=True)}, "sinks"),
        ({"attention": replace(GQA, qk_norm="per_head")}, "per_head"),
        ({"feed_forward": FeedForward(24, hidden_norm=True)}, "hidden_norm"),
        ({"feed_forward": FeedForward(24, gated=True, sparse=True)}, "sparse"),
        ({"norm_placement": "after_residual"}, "after_residual"),
        ({"extra": (Extra("x", (3,), "other"),)}, "extra"),
    ],
)
def test_a_part_that_cannot_be_built_is_reported(part: dict[str, object], named: str) -> None:
    from planner.verify.parts import UnbuildableError

    with pytest.raises(UnbuildableError, match=named):
        measure(changed(**part), STEP)


def test_a_part_of_the_whole_model_that_cannot_be_built_is_reported() -> None:
    from planner.verify.parts import UnbuildableError

    with pytest.raises(UnbuildableError, match="embedding_dim"):
        parameters(replace(PLAIN, embedding_dim=3))


def test_a_kernel_that_does_not_support_its_inputs_is_rejected() -> None:
    with pytest.raises(CannotMeasureError, match="flash"):
        measure(PLAIN, replace(STEP, attention_kernel="flash"))  # float32


def peak_of_pytorchs_engine(model: Model, training: Training) -> int:
    """Return the largest sum of allocated bytes that PyTorch's profiler records of a second step by its own engine, on real tensors."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from planner.verify.step import Step, quiet

    step = Step(model, training, "cpu")
    for _ in range(2):
        with quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            loss, _ = step.forward()
            torch.autograd.backward(loss)
            step.trainer.step()
            step.trainer.free_gradients()
        del loss
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    live: Iterable[int] = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(live)


def test_our_walk_peaks_like_pytorchs_own_engine() -> None:
    """Our walk along the graph must have the same peak."""
    for model in (PLAIN, replace(PLAIN, tied_head=False), changed(feed_forward=FeedForward(24, gated=True, activation="relu"))):
        training = replace(STEP, device="cpu")
        ours = measure(model, training)
        peak = ours.peak_bytes - ours.start_bytes
        assert peak <= peak_of_pytorchs_engine(model, training) <= 1.01 * peak  # a kernel may allocate a little workspace


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_experts_peak_like_in_pytorchs_own_engine() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    rows = {"vocab_size": 11, "context_length": 64, "d_model": 48, "n_layers": 1, "n_heads": 6, "d_ff": 16, "positions": "rope"}
    parts = {"norm": {"type": "rmsnorm"}, "attention": {"bias": False, "qkv": "separate"}, "head": {"tied": False}}
    experts = {"experts": {"count": 4, "top_k": 4, "d_ff": 16}}
    step = {
        "batch_size": 2,
        "sequence_length": 33,
        "precision": "fp32",
        "recompute": "full",
        "implementation": "transformers",
        "device": "cpu",
    }
    spec = planner.load({"name": "mixtral", "model": rows | parts | experts, "training": step})
    ours = measure(spec.model, spec.scenarios[0].training)
    assert ours.peak_bytes - ours.start_bytes == peak_of_pytorchs_engine(spec.model, spec.scenarios[0].training)
