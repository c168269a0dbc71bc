"""Adapters of weights that are no linears, such as the stacked matrices of experts: the product of A and B is added to the weight.

Read from peft 0.21.2: tuners/lora/layer.py (ParamWrapper), utils/transformers_weight_conversion.py, which lists the classes whose experts
``all-linear`` means, with twice the rank for gate and up in one matrix; torch 2.13, nn/utils/parametrize.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.spec.precision import Dtype
from planner.spec.records import Adapters
from planner.trace import primitives as op
from planner.trace import trained
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.trained import ADAPTERS, ALL, PROMPTS
from planner.trace.unsupported import UnsupportedError

CLASSES = ("mixtral", "qwen3_moe")
"""Classes whose experts were measured with adapters."""
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}


@dataclass(frozen=True, slots=True)
class Factors:
    """A weight [E, o, i], and the matrices in its dtype whose product is added to it: B [E, o, r] and A [E, r, i]."""

    weight: Tensor
    left: Tensor
    right: Tensor


def of_experts(t: Tape) -> Adapters | None:
    """Return the adapters of routed experts and their router. Raises UnsupportedError for those that peft or the planner does not know."""
    kind = t.training.adapters
    if kind is None or kind.type in PROMPTS or ALL not in kind.targets:
        return None
    if kind.layers:
        raise UnsupportedError("adapters of some layers of routed experts are not modeled yet; name the linears, such as q and v")
    if kind.type in ("dora", "ia3"):
        raise UnsupportedError(
            f"adapters of routed experts of type {kind.type} are not supported by peft; name the linears, such as q and v"
        )
    if any("=" in word and not ATTENTION.issuperset(trained.linears(word)) for word in kind.targets):
        raise UnsupportedError("ranks of their own for linears of routed experts are not modeled yet; write one rank")
    if kind.dropout:
        raise UnsupportedError("adapters of routed experts have no dropout in peft; write dropout: 0, or name the linears, such as q and v")
    layers = [layer for run in t.model.runs for layer in run.layers]
    plain = all(layer.experts and layer.experts.shared_d_ff is None and layer.feed_forward is None for layer in layers)
    of_transformers = t.training.implementation.startswith("transformers")
    if t.model.model_type not in CLASSES or not plain or not of_transformers:
        raise UnsupportedError(
            f"adapters of routed experts are modeled under implementation transformers for model_type {' or '.join(CLASSES)} with experts "
            "only in every layer; name the linears, such as q and v"
        )
    return kind


def factors(t: Tape, kind: Adapters, name: str, w: Tensor, rank: Size) -> Factors:
    """Return a stack of matrices [E, o, i] with the factors of its adapters. peft computes the sum once more to check its shape."""
    count, outputs, inputs = w.shape
    dtype: Dtype = "float32" if kind.dtype == "fp32" else w.dtype
    with t.at(name, ADAPTERS):
        a = t.weight("lora_A.weight", (count * rank, inputs), "adapter: experts · rank · in", dtype=dtype)
        b = t.weight("lora_B.weight", (outputs, count * rank), "adapter: out · experts · rank", dtype=dtype)
        (turned,) = t.record("permute", [b], [Tensor((count, outputs, rank), b.dtype, b.parts)], by=factors)
        made = Factors(w, op.cast(t, turned, w.dtype), op.cast(t, a.view(count, rank, inputs), w.dtype))
        with t.without_gradients(trains=True), t.inside_scan():
            summed(t, made)
    return made


def of_router(t: Tape, w: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the router's weight [E, d] plus B · A if it has an adapter, and what stays alive while the router runs."""
    kind = of_experts(t)
    if kind is None:
        return w, []
    outputs, inputs = w.shape
    dtype: Dtype = "float32" if kind.dtype == "fp32" else w.dtype
    with t.at("", ADAPTERS):
        a = t.weight("lora_A.weight", (kind.rank, inputs), "adapter: rank · in", dtype=dtype)
        b = t.weight("lora_B.weight", (outputs, kind.rank), "adapter: out · rank", dtype=dtype)
        delta = op.cast(t, op.mul_scalar(t, op.matmul(t, b, a, pairs=False)), w.dtype)
        with t.without_gradients(trains=True):
            op.add(t, w, delta)
        return op.add(t, w, delta), [delta]


def summed(t: Tape, its: Factors) -> Tensor:
    """Return w + B · A, by one kernel. Saves B and A."""
    w, left, right = its.weight, its.left, its.right
    forward = 2 * product(left.shape) * right.shape[-1]
    flops = Flops(forward, forward, forward, 2 * forward, "2 · experts · out · rank · in")
    saved = [Saved(left, "B"), Saved(right, "A")]
    return t.record("baddbmm", [w, left, right], [t.tensor(w.shape, w.dtype)], saved, flops, by=summed)[0]
