"""The gated delta rule with the kernels of flash-linear-attention, in chunks of T = 64 tokens.

Read from fla-core 0.6.0, which transformers 5.24 calls if it is installed: ops/gated_delta_rule/chunk.py, chunk_fwd.py and wy_fast.py,
ops/common/chunk_delta_h.py and chunk_o.py.
"""

from __future__ import annotations

from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

CHUNK = 64  # tokens


def chunk_gated_delta_rule(t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """Return the outputs [B, n, H, v] of queries and keys [B, n, K, k], values [B, n, H, v], log decays and rates [B, n, H].

    Slices of a wider tensor are copied first. Saves normalized queries and keys with their statistics, values, rates, summed decays in
    float32, and the inverse of each chunk's system, a row of T per token and head. Backward computes all else again.
    """
    B, n, H, value = v.shape
    K, width = k.shape[-2:]
    q, k, v = (op.contiguous(t, one, exceeds_one(B * n)) for one in (q, k, v))
    made = t.tensor(v.shape, q.dtype)
    inside = {
        "normalized queries": t.tensor(q.shape, q.dtype, needs_grad=False),
        "reciprocal norm of queries": t.tensor((B, n, K), "float32", needs_grad=False),
        "normalized keys": t.tensor(k.shape, k.dtype, needs_grad=False),
        "reciprocal norm of keys": t.tensor((B, n, K), "float32", needs_grad=False),
        "summed decays": t.tensor((B, n, H), "float32", needs_grad=False),
        "inverse of systems": t.tensor((B, n, H, CHUNK), k.dtype, needs_grad=False),
    }
    saved = [*(Saved(one, what) for what, one in inside.items()), Saved(v, "values"), Saved(beta, "rates")]
    size = BYTES[q.dtype]
    keys, states = B * n * H * width * size, B * ceil_div(n, CHUNK) * H * width * value * size
    return t.record(
        "chunk_gated_delta_rule",
        [q, k, v, decay, beta],
        [made, *inside.values()],
        saved,
        flops_of(B * ceil_div(n, CHUNK) * CHUNK * H, width, value),
        temporary=keys + 2 * v.bytes + states - made.bytes,
        backward_temporary=4 * keys + 3 * v.bytes + 2 * states,
        by=chunk_gated_delta_rule,
    )[0]


def flops_of(rows: Size, width: Size, value: Size) -> Flops:
    """Return the FLOPs of products over whole chunks, each T tokens by T, by a key's or by a value's width. A system's inverse has none.

    Between the T tokens: keys with keys, these systems with keys and values, queries with keys, scores with values. With the state: keys,
    keys with values, queries. Backward: 9, 5 and 8 products instead of 3, 2 and 3, and two of T by T.
    """
    forward = 2 * rows * (3 * CHUNK * width + 2 * CHUNK * value + 3 * width * value)
    backward = 2 * rows * (9 * CHUNK * width + 5 * CHUNK * value + 8 * width * value + 2 * CHUNK * CHUNK)
    return Flops(forward, forward, forward, backward, "2 · tokens · heads · (3·T·k + 2·T·v + 3·k·v)")
