"""Saved bytes and FLOPs of each operator, for inputs with and without gradients, compared with PyTorch on a fake GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from planner.capacity.activations import saved_for_backward
from planner.capacity.flops import total
from planner.spec.precision import Dtype
from planner.spec.records import Attention, FeedForward, Layer, Model, Run, Training
from planner.trace import losses, routing
from planner.trace import primitives as op
from planner.trace.decoder import new_tape
from planner.trace.kernels import fused_attention
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

pytest.importorskip("torch", reason="the extra torch is not installed")
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name in PyTorch programs

from planner.verify import fake_cuda
from planner.verify.allocations import AllocationTracker
from planner.verify.engine import backward as run_backward

B, n, H, h, d, E, k = 2, 16, 4, 8, 24, 3, 2
ROWS, HEADS = (B, n, d), (B, H, n, h)
MODEL = Model(64, 64, n, d, 1, (Run(1, (Layer(Attention(H, H, h), FeedForward(d)),)),))


@dataclass(frozen=True)
class Case:
    """An operator: shapes of the inputs that may need gradients, our trace of it, and PyTorch's call."""

    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Tensor]
    theirs: Callable[..., Any]
    dtype: Dtype = "float32"
    device: str = "cuda"


def by_head(*tensors: Tensor) -> list[Tensor]:
    for tensor in tensors:
        tensor.by_head = True
    return list(tensors)


def index(size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype, device="cuda")


def ints(t: Tape, *shape: int, dtype: Dtype = "int64") -> Tensor:
    return t.tensor(shape, dtype, needs_grad=False)


CASES: dict[str, Case] = {
    "linear": Case((ROWS, (d, d), (d,)), op.linear, F.linear),
    "linear without a bias": Case((ROWS, (d, d)), op.linear, F.linear),
    "matmul": Case((HEADS, (B, H, h, n)), lambda t, a, b: op.matmul(t, *by_head(a, b), pairs=True), torch.matmul),
    "add": Case((ROWS, (d,)), op.add, torch.add),
    "multiply": Case((ROWS, (d,)), op.multiply, torch.mul),
    "scale": Case((ROWS,), op.mul_scalar, lambda x: x * 2.0),
    "gelu": Case((ROWS,), lambda t, x: op.pointwise(t, "gelu", x), F.gelu),
    "silu": Case((ROWS,), lambda t, x: op.pointwise(t, "silu", x), F.silu),
    "relu": Case((ROWS,), op.relu, F.relu),
    "sigmoid": Case((ROWS,), routing.sigmoid, torch.sigmoid),
    "tanh": Case((ROWS,), op.tanh, torch.tanh),
    "square": Case((ROWS,), op.power, lambda x: x.pow(2)),
    "rsqrt": Case((ROWS,), op.rsqrt, torch.rsqrt),
    "mean": Case((ROWS,), op.mean, lambda x: x.mean(-1, keepdim=True)),
    "softmax": Case((HEADS,), op.softmax, lambda x: F.softmax(x, -1)),
    "log-softmax": Case(((B * n, d),), losses.log_softmax, lambda x: F.log_softmax(x, -1)),
    "dropout": Case((ROWS,), op.dropout, lambda x: F.dropout(x, 0.1)),
    "layer norm": Case((ROWS, (d,), (d,)), op.layer_norm, lambda x, w, b: F.layer_norm(x, (d,), w, b)),
    "layer norm without a bias": Case((ROWS, (d,)), lambda t, x, w: op.layer_norm(t, x, w, None), lambda x, w: F.layer_norm(x, (d,), w)),
    "rms norm": Case((ROWS, (d,)), op.rms_norm, lambda x, w: F.rms_norm(x, (d,), w)),
    "embedding": Case(((64, d),), lambda t, w: op.embedding(t, ints(t, n), w), lambda w: F.embedding(index(n), w)),
    "cast": Case((ROWS,), lambda t, x: op.cast(t, x, "bfloat16"), lambda x: x.bfloat16()),
    "cat": Case((ROWS, ROWS), op.cat, lambda a, b: torch.cat([a, b], -1)),
    "rows": Case(((n, d),), lambda t, x: routing.index_select(t, x, ints(t, n)), lambda x: x[index(n)]),
    "top k": Case(((n, E),), lambda t, x: routing.topk(t, x, k)[0], lambda x: torch.topk(x, k)[0]),
    "gather": Case(((n, E),), lambda t, x: routing.gather(t, x, ints(t, n, k)), lambda x: x.gather(1, index(n * k).view(n, k))),
    "nll loss": Case(((n, d),), lambda t, x: losses.nll_loss(t, x, ints(t, n)), lambda x: F.nll_loss(x, index(n))),
    "block linear": Case(
        ((2, n, h), (2, h, h), (2, 1, h)),
        op.block_linear,
        lambda x, w, b: torch.baddbmm(b, x, w),
    ),
    "grouped linear": Case(
        ((n, d), (E, d, d)),
        lambda t, x, w: routing.grouped_mm(t, x, w, ints(t, E, dtype="int32"), d),
        lambda x, w: F.grouped_mm(x, w.transpose(-2, -1), offs=index(E, torch.int32)),
        "bfloat16",
    ),
    "flash attention": Case(
        (HEADS, HEADS, HEADS),
        lambda t, *qkv: fused_attention(t, *by_head(*qkv)),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "bfloat16",
    ),
    "memory-efficient attention": Case(
        (HEADS, HEADS, HEADS),
        lambda t, *qkv: fused_attention(t, *by_head(*qkv)),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "dropout on the CPU": Case((ROWS,), op.dropout, lambda x: F.dropout(x, 0.1), device="cpu"),
    "layer norm on the CPU": Case((ROWS, (d,), (d,)), op.layer_norm, lambda x, w, b: F.layer_norm(x, (d,), w, b), device="cpu"),
}  # fmt: skip


def combinations() -> Iterator[tuple[str, tuple[bool, ...]]]:
    for name, case in CASES.items():
        for needs in product((True, False), repeat=len(case.shapes)):
            yield name, needs


def ours(case: Case, needs: tuple[bool, ...]) -> tuple[bool, int, int, int]:
    """Trace the operator; return whether its output needs a gradient, saved bytes, FLOPs forward and backward."""
    precision = "fp32" if case.dtype == "float32" else "bf16"
    device = "a100" if case.device == "cuda" else "cpu"
    t = new_tape(MODEL, Training(B, n, precision=precision, gradient_dtype="bf16" if precision == "bf16" else "fp32", device=device))  # type: ignore[arg-type] # names of devices
    inputs = [t.tensor(shape, case.dtype, needs_grad=need) for shape, need in zip(case.shapes, needs, strict=True)]
    made = case.ours(t, *inputs)
    counts = sum(entry.bytes for entry in saved_for_backward(t.nodes).entries), total(t.nodes, "forward"), total(t.nodes, "backward")
    return made.needs_grad, *(int(count) for count in counts)  # type: ignore[arg-type, return-value] # sizes of integers are integers


def theirs(case: Case, needs: tuple[bool, ...]) -> tuple[bool, int, int, int]:
    """Run the operator in PyTorch, and its backward pass where it has one."""
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[id(storage)] = storage
        return tensor

    with fake_cuda.cuda() if case.device == "cuda" else nullcontext():
        device, dtype = torch.device(case.device), getattr(torch, case.dtype)
        inputs = [
            torch.zeros(shape, device=device, dtype=dtype, requires_grad=need) for shape, need in zip(case.shapes, needs, strict=True)
        ]
        allocations = AllocationTracker(device)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), allocations:
            made = case.theirs(*inputs)
        flops = allocations.flops
        allocations.start_phase()
        if made.requires_grad:
            with allocations:
                run_backward([(made * torch.ones_like(made)).sum().grad_fn], device, lambda _: None)
        return made.requires_grad, sum(s.nbytes() for s in saved.values()), flops, allocations.flops


@pytest.mark.parametrize(
    ("name", "needs"), list(combinations()), ids=lambda value: value if isinstance(value, str) else "".join("01"[need] for need in value)
)
def test_an_operator_respects_which_inputs_need_gradients(name: str, needs: tuple[bool, ...]) -> None:
    assert ours(CASES[name], needs) == theirs(CASES[name], needs)


@pytest.mark.parametrize("trains", [True, False])
def test_autocast_casts_a_trained_weight_once_and_a_frozen_one_for_each_use(trains: bool) -> None:
    t = new_tape(MODEL, Training(B, n, precision="bf16-autocast"))
    x, w = t.tensor(ROWS, "bfloat16"), t.tensor((d, d), "float32", needs_grad=trains)
    w.parts[0][0].leaf = True
    op.linear(t, op.linear(t, x, w), w)
    with fake_cuda.cuda(), torch.autocast("cuda", torch.bfloat16):
        weight = torch.zeros(d, d, device="cuda", requires_grad=trains)
        saved: dict[int, torch.UntypedStorage] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved[id(tensor.untyped_storage())] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            F.linear(F.linear(torch.zeros(ROWS, device="cuda", dtype=torch.bfloat16, requires_grad=True), weight), weight)
    assert sum(entry.bytes for entry in saved_for_backward(t.nodes).entries) == sum(storage.nbytes() for storage in saved.values())


def test_repeated_layers_are_rejected_if_only_the_first_has_an_input_without_gradient() -> None:
    t = new_tape(MODEL, Training(B, n, precision="fp32"))
    x, w = t.tensor(ROWS, "float32", needs_grad=False), t.tensor((d, d), "float32")
    with pytest.raises(UnsupportedError, match="without gradient"):
        t.repeat(3, lambda x: op.linear(t, x, w), x)
