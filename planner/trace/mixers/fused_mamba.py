"""Mamba-1 with the kernels of its authors: ``mamba_inner_fn``, or causal_conv1d and ``selective_scan_fn``.

Read from mamba_ssm 2.3.2 (ops/selective_scan_interface.py, csrc/selective_scan/selective_scan.cpp) and causal_conv1d 1.6.1, which
transformers 5.24 calls if they are installed. The scan multiplies element by element, so it has no FLOPs. Channels are [B, inner, n].
"""

from __future__ import annotations

from planner.spec import records
from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import convolution, rows_of_channels
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, exceeds_one, maximum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)
TOKENS_PER_STATE = 2048  # each such part of a sequence saves a state, and the product of its decays


def inner_function(t: Tape, kind: records.Mamba, x: Tensor, both: Tensor, rate: Tensor) -> Tensor:
    """Run everything after the first projection in one function -> [B, n, d].

    It saves its input, copied so that tokens are adjacent, step sizes, B and C, the latter two once more by state, the scan's output and
    states, and casts of weights under autocast. Backward runs the convolution and the projection of the step sizes again.
    """
    B, n, d = x.shape
    inner, state, rank = kind.d_inner, kind.d_state, kind.dt_rank
    with t.at("conv1d"):
        vectors = [t.weight("bias", (inner,), "bias: channels")] if kind.conv_bias else []
        kernel = t.weight("weight", (inner, 1, kind.d_conv), "depthwise convolution: channels · width").view(inner, kind.d_conv)
    shapes = {"x_proj": (rank + 2 * state, inner), "dt_proj": (inner, rank), "out_proj": (d, inner)}
    weights = []
    for name, shape in shapes.items():
        with t.at(name):
            weight = t.weight("weight", shape, op.LINEAR)
            weights.append(op.cast(t, weight, t.precision.autocast or weight.dtype))
    with t.at("dt_proj"):
        shift = op.cast(t, t.weight("bias", (inner,), "bias: out"), "float32")
    skip = op.cast(t, t.weight("D", (inner,), "skip: inner"), "float32")
    if kind.bias:
        with t.at("out_proj"):
            vectors.append(t.weight("bias", (d,), "bias: out"))
    entering = op.contiguous(t, both, exceeds_one(n))
    dtype, each = entering.dtype, B * n * inner * BYTES[entering.dtype]
    made, scanned = t.tensor((B, n, d), dtype), t.tensor((B, inner, n), dtype, needs_grad=False)
    made_inside = {
        "step sizes, B and C": t.tensor((B * n, rank + 2 * state), dtype, needs_grad=False),
        "B by state": t.tensor((B, 1, state, n), dtype, needs_grad=False),
        "C by state": t.tensor((B, 1, state, n), dtype, needs_grad=False),
        "states": states(t, kind, B, n),
        "output of the scan": scanned,
    }
    inputs = {"input": entering, "decays": rate, "skip": skip, "bias of step sizes": shift, "convolution's weight": kernel}
    t.record(
        "mamba_inner_fn",
        [*inputs.values(), *vectors, *weights],
        [made, *made_inside.values()],
        [*(Saved(one, what) for what, one in (inputs | made_inside).items()), *(Saved(w, "weight cast to compute dtype") for w in weights)],
        inner_flops(kind, B * n, d),
        temporary=maximum(3 * each - made.bytes, 2 * each),  # of the scan; of its output and a copy
        backward_temporary=7 * each,
        by=inner_function,
    )
    op.keep_alive(t, both)
    return made


def inner_flops(kind: records.Mamba, tokens: Size, d: Size) -> Flops:
    """Return the FLOPs of the convolution and the projections, twice that backward, and there the convolution and step sizes once more."""
    again = 2 * tokens * kind.d_inner * (kind.d_conv + kind.dt_rank)
    forward = again + 2 * tokens * kind.d_inner * (kind.dt_rank + 2 * kind.d_state + d)
    return Flops(forward, forward, forward, 2 * forward + again, "2 · tokens · inner · (width + 2 · rank + 2 · state + d)")


def states(t: Tape, kind: records.Mamba, B: Size, n: Size) -> Tensor:
    """Return the states between parts of the sequence, each with a product of decays, in float32."""
    return t.tensor((B, kind.d_inner, ceil_div(n, TOKENS_PER_STATE), 2 * kind.d_state), "float32", needs_grad=False)


def one_by_one(t: Tape, kind: records.Mamba, x: Tensor, both: Tensor, rate: Tensor) -> Tensor:
    """Run the convolution, the projections with norms of step sizes, B and C, and the scan, each in its own kernel -> [B, n, d]."""
    B, n, d = x.shape
    inner, state, rank = kind.d_inner, kind.d_state, kind.dt_rank
    u, z = op.split(t, both, (B, n, inner), (B, n, inner))
    u = convolution(t, u, kind.d_conv, bias=kind.conv_bias)
    selected = linear(t, u, rank + 2 * state, "x_proj", bias=False)
    dt, b, c = op.split(t, selected, (B, n, rank), (B, n, state), (B, n, state))
    dt, b, c = (norm(t, RMS, part, f"{name}_layernorm") for part, name in ((dt, "dt"), (b, "b"), (c, "c")))
    with t.at("dt_proj"):
        w = t.weight("weight", (inner, rank), op.LINEAR)
        shift = op.cast(t, t.weight("bias", (inner,), "bias: out"), "float32")
    dt = op.linear(t, dt, w)
    skip = op.cast(t, t.weight("D", (inner,), "skip: inner"), "float32")
    y = selective_scan(t, kind, (u, dt, rate, b, c), z, skip, shift)
    op.keep_alive(t, both, selected, dt, u)
    return linear(t, rows_of_channels(t, op.cast(t, y, x.dtype)), d, "out_proj", bias=kind.bias)


def selective_scan(t: Tape, kind: records.Mamba, inputs: tuple[Tensor, ...], z: Tensor, skip: Tensor, shift: Tensor) -> Tensor:
    """Scan in one kernel -> [B, n, inner]. Saves its inputs, copied so that tokens are adjacent, its output before the gate, and states."""
    u, dt, rate, b, c = inputs
    B, n, inner = u.shape
    u, z, b, c = (op.contiguous(t, one, exceeds_one(n)) for one in (u, z, b, c))
    made, ungated, between = op.like(t, u), t.tensor((B, inner, n), u.dtype, needs_grad=False), states(t, kind, B, n)
    tensors = {"input": u, "step sizes": dt, "decays": rate, "B": b, "C": c, "skip": skip, "gate": z, "bias of step sizes": shift}
    saved = [Saved(one, what) for what, one in tensors.items()] + [Saved(ungated, "output before the gate"), Saved(between, "states")]
    wide = 2 * (b.bytes + c.bytes) if b.dtype != "float32" else 0  # gradients of B and C in float32
    return t.record("selective_scan_fn", [*tensors.values()], [made, ungated, between], saved, backward_temporary=wide, by=selective_scan)[
        0
    ]
