"""The delta rule with a decay per channel with the kernels of flash-linear-attention, in chunks of T = 64 tokens.

Read from fla-core 0.6.0, which transformers 5.24 calls if it is installed: ops/kda/chunk.py, chunk_fwd.py, chunk_intra.py, chunk_bwd.py
and gate.py, ops/common/chunk_delta_h.py.
"""

from __future__ import annotations

from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.mixers.fused_delta import CHUNK
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

WIDTH = 32  # channels of which the backward pass makes partial gradients of rates


def chunk_kda(t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, gate: tuple[Tensor, ...] = ()) -> Tensor:
    """Return the outputs [B, n, H, h] of queries, keys, values and log decays [B, n, H, h], and rates [B, n, H].

    Slices of a wider tensor are copied first. Saves normalized queries and keys with their statistics, values, decays, rates, and per chunk
    its scores and the inverse of its system, each a row of T per token and head. Summed decays in float32 are saved too, unless the kernel
    computes decays from the weights ``gate`` (use_gate_in_kernel). Backward computes all else again.
    """
    B, n, H, h = v.shape
    q, k, v = (op.contiguous(t, one, exceeds_one(B * n)) for one in (q, k, v))
    made = t.tensor(v.shape, q.dtype)
    inside = {
        "normalized queries": t.tensor(q.shape, q.dtype, needs_grad=False),
        "reciprocal norm of queries": t.tensor((B, n, H), "float32", needs_grad=False),
        "normalized keys": t.tensor(k.shape, k.dtype, needs_grad=False),
        "reciprocal norm of keys": t.tensor((B, n, H), "float32", needs_grad=False),
        "scores": t.tensor((B, n, H, CHUNK), k.dtype, needs_grad=False),
        "inverse of systems": t.tensor((B, n, H, CHUNK), k.dtype, needs_grad=False),
    }
    sums = t.tensor((B, n, H, h), "float32", needs_grad=False)
    if not gate:
        inside["summed decays"] = sums
    given = {"values": v, "decays": decay, "rates": beta} | {f"weight {number} of the gate": one for number, one in enumerate(gate)}
    saved = [Saved(one, what) for what, one in (inside | given).items()]
    wide, states = sums.bytes, B * ceil_div(n, CHUNK) * H * h * h * BYTES[q.dtype]
    of_rates = 4 * B * n * H * (2 + ceil_div(h, WIDTH)) - beta.bytes
    of_scores = 2 * 4 * B * n * H * CHUNK
    return t.record(
        "chunk_kda",
        [q, k, v, decay, beta, *gate],
        [made, *inside.values()],
        saved,
        flops_of(B * ceil_div(n, CHUNK) * CHUNK * H, h),
        temporary=4 * v.bytes + states + (wide if gate else 0),
        backward_temporary=3 * v.bytes + 2 * states + (6 if gate else 5) * wide + of_scores + of_rates,
        by=chunk_kda,
    )[0]


def flops_of(rows: Size, h: Size) -> Flops:
    """Return the FLOPs of products over whole chunks, each T tokens by T, or by a head's width h. A system's inverse has none.

    Between the T tokens: keys with keys, queries with keys, these systems with keys and values, scores with values. With the state: keys,
    keys with values, queries. Backward: 12 and 8 products instead of 5 and 3, and two of T by T.
    """
    forward = 2 * rows * (5 * CHUNK * h + 3 * h * h)
    backward = 2 * rows * (12 * CHUNK * h + 8 * h * h + 2 * CHUNK * CHUNK)
    return Flops(forward, forward, forward, backward, "2 · tokens · heads · (5·T·h + 3·h·h)")
