"""RWKV-4's time mixing (Peng et al. 2023, arXiv:2305.13048).

Read from transformers 5.24: models/rwkv/modeling_rwkv.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, shifted, time_mix
from planner.trace.mixers.operators import exp, of_each, scan, state_of
from planner.trace.nodes import Saved
from planner.trace.routing import sigmoid
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def rwkv(t: Tape, kind: records.Rwkv, x: Tensor) -> Tensor:
    """RWKV-4's time mixing: three interpolations with the previous token, receptance, key and value, the recurrence, out."""
    B, n, d = x.shape
    plain = t.implementation.plain_mixers
    with t.at("attention", "ssm"):
        decay, first = (t.weight(name, (kind.width,), f"{name}: width") for name in ("time_decay", "time_first"))
        names = ("key", "value", "receptance")
        previous = shifted(t, x)
        mixed = [time_mix(t, x, previous, name) for name in names]
        key, value = (linear(t, part, kind.width, name, bias=False) for part, name in zip(mixed[:2], names, strict=False))
        receptance = sigmoid(t, linear(t, mixed[2], kind.width, "receptance", bias=False))
        if plain:
            y, *states = token_by_token(t, key, value, op.neg(t, exp(t, decay)), first)
        else:
            y, states = scan(t, "rwkv_linear_attention", [key, value, decay, first], (B, n, kind.width)), []
        made = linear(t, op.multiply(t, receptance, y), d, "output", bias=False)
        if t.inference:
            for count, dtype in ((2, x.dtype), (3, "float32")):  # the last tokens of both mixings, the weighted sums and the maximum
                state_of(t, (count, B, d), dtype)
        op.keep_alive(t, x, receptance, key, value, y, *states)
        return made


def token_by_token(t: Tape, key: Tensor, value: Tensor, decay: Tensor, first: Tensor) -> tuple[Tensor, ...]:
    """Return the weighted means of values [B, n, width], token by token in float32.

    Each token saves the two arguments of two maxima, four exponentials, the sums of weights and of weighted values before it, and the
    dividend and the divisor of its mean; the last token's maximum and exponentials for the next one are not read. A key in float32 already
    is an argument itself.
    """
    B, n, width = key.shape
    if t.inference:
        made, states = t.tensor(key.shape, key.dtype), t.tensor((3, B, width), "float32")
        inputs, variables = [key, value, decay, first], 6 * (states.bytes // 3)  # of a token, besides its states
        return t.record("weighted means", inputs, [made, states], temporary=variables, by=token_by_token)
    itself = key.dtype == "float32"
    count = 11 * n - 3 if itself else 12 * n - 4
    saved = [of_each(t, count, (B, width), "float32", "arguments and results"), Saved(value, "values")]
    saved += [Saved(key, "keys")] if itself else []
    made = t.tensor(key.shape, key.dtype)
    outputs = [made, saved[0].tensor]
    return t.record("weighted means", [key, value, decay, first], outputs, saved, by=token_by_token)[:1]
