"""Delta rules over one token after others, whose state they read and replace.

Read from transformers 5.24: torch_recurrent_gated_delta_rule in models/qwen3_next/modeling_qwen3_next.py,
recurrent_kimi_delta_attention in models/kimi_linear/modeling_kimi_linear.py.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.trace import primitives as op
from planner.trace.mixers.operators import exp, repeated_heads, state_of
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def next_state(
    t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, normalize: Callable[[Tape, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the output [B, 1, H, v] of a token, and the new state [B, H, k, v], in float32, which is copied into the cache.

    Log decays are [B, 1, H] or, per channel, [B, 1, H, k]; rates [B, 1, H]. The sums over channels are no matrix products.
    """
    B, _, H, value = v.shape
    width, dtype = k.shape[-1], v.dtype
    q, k = repeated_heads(t, q, H), repeated_heads(t, k, H)
    q, k, v, beta = (op.cast(t, part, "float32") for part in (q, k, v, beta))
    q, k = normalize(t, q), normalize(t, k)
    q = op.mul_scalar(t, q)
    made = t.tensor(v.shape, "float32")
    t.record("zeros_like", [], [made], by=next_state)
    keys, queries = k.view(B, H, width, 1), q.view(B, H, width, 1)
    factor = exp(t, decay)
    per_channel = factor.shape[-1] if factor.shape != beta.shape else 1
    old = op.multiply(t, state_of(t, (B, H, width, value), "float32"), factor.view(B, H, per_channel, 1))
    read = read_state(t, old, keys)
    difference = op.add(t, v.view(B, H, value), read)
    delta = op.multiply(t, difference, beta.view(B, H, 1))
    new = op.add(t, old, op.multiply(t, keys, delta.view(B, H, 1, value)))
    op.keep_alive(t, old)
    read_state(t, new, queries)
    made = op.cast(t, made, dtype)
    op.keep_alive(t, q, k, v, beta, factor, read, delta)
    return made, new


def read_state(t: Tape, state: Tensor, channels: Tensor) -> Tensor:
    """Return the sum over channels of the state [B, H, k, v] times one factor each."""
    B, H, _, value = state.shape
    return t.record("sum", [op.multiply(t, state, channels)], [t.tensor((B, H, value), state.dtype)], by=read_state)[0]
