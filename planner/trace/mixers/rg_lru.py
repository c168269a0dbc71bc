"""Griffin's recurrent block (De et al. 2024, arXiv:2402.19427).

Read from transformers 5.24: models/recurrent_gemma/modeling_recurrent_gemma.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear
from planner.trace.mixers.operators import convolution, exp, of_each, rows_of_channels, scan, softplus
from planner.trace.nodes import Saved
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def rg_lru(t: Tape, kind: records.RgLru, x: Tensor) -> Tensor:
    """Griffin's recurrent block: a GELU branch, and a branch of convolution and gated linear recurrence with block-diagonal gates."""
    B, n, d = x.shape
    width = kind.width
    plain = t.implementation.plain_mixers
    with t.at("temporal_block", "ssm"):
        y = op.pointwise(t, "gelu_tanh", linear(t, x, width, "linear_y", bias=True))
        u = linear(t, x, width, "linear_x", bias=True)
        u = convolution(t, u, kind.d_conv, bias=True, activated=False, widened=False, fused=not plain)
        with t.at("rg_lru"):
            decay = t.weight("recurrent_param", (width,), "decay: width")
            rows = rows_of_channels(t, u) if plain else u
            gates = [block_diagonal_gate(t, rows, kind, name) for name in ("input_gate", "recurrent_gate")]
            mixed = recurrence(t, u, gates, decay) if plain else scan(t, "rg_lru", [u, *gates, decay], (B, n, width))
        op.keep_alive(t, x, u)
        return linear(t, op.multiply(t, mixed, y), d, "linear_out", bias=True)


def block_diagonal_gate(t: Tape, x: Tensor, kind: records.RgLru, name: str) -> Tensor:
    """Multiply each slice of x by its own square matrix, add a bias, and apply the sigmoid."""
    blocks, width = kind.n_blocks, kind.width // kind.n_blocks
    w = t.weight(f"{name}_weight", (blocks, width, width), "blocks · width · width")
    b = t.weight(f"{name}_bias", (blocks, width), "bias: blocks · width")
    made = op.block_linear(t, x, w, b)
    if t.implementation.plain_mixers:
        made = op.contiguous(t, made, exceeds_one(blocks) * exceeds_one(x.shape[0] * x.shape[1]))
    return sigmoid(t, made)


def recurrence(t: Tape, u: Tensor, gates: list[Tensor], decay: Tensor) -> Tensor:
    """Run transformers' operators on u [B, n, width] and the gates: decays and normalized inputs of all tokens, then token by token.

    The module keeps the last state [B, width] from one step to the next.
    """
    B, n, width = u.shape
    input_gate, recurrent_gate = gates
    t.buffer("recurrent_states", (B, width), "float32")
    (reset,) = t.record("equals zero", [], [t.tensor((1, n, 1), "bool", needs_grad=False)], by=recurrence)
    logarithm = op.multiply(t, op.mul_scalar(t, recurrent_gate), softplus(t, decay).view(1, 1, width))
    kept = exp(t, logarithm)
    squared = exp(t, op.mul_scalar(t, logarithm))
    gated = op.multiply(t, u, input_gate)
    multiplier = op.pointwise(t, "sqrt", op.add_scalar(t, squared))
    multiplier = op.add_scalar(t, op.multiply(t, continued(t, reset), multiplier))
    taken = op.multiply(t, gated, op.cast(t, multiplier, u.dtype))
    kept = op.multiply(t, kept, continued(t, reset))
    made = token_by_token(t, kept, taken)
    op.store(t, "module", made)
    op.keep_alive(t, reset, logarithm, squared, gated, multiplier, taken, kept, input_gate, recurrent_gate)
    return made


def continued(t: Tape, reset: Tensor) -> Tensor:
    """Return where no sequence starts."""
    return t.record("not", [reset], [op.like(t, reset)], by=continued)[0]


def token_by_token(t: Tape, kept: Tensor, taken: Tensor) -> Tensor:
    """Return the state of each token, kept · previous state + taken, in float32 and then cast -> [B, n, width].

    Saves the first state, each further token's previous state, and its factor in float32.
    """
    B, n, width = taken.shape
    states: tuple[Size, ...] = (B, width)
    saved = [of_each(t, n, states, "float32", "states")]
    saved.append(Saved(kept, "decays") if kept.dtype == "float32" else of_each(t, n - 1, states, "float32", "decays cast to float32"))
    made = t.tensor(taken.shape, taken.dtype)
    outputs = [made, *(one.tensor for one in saved if one.tensor is not kept)]
    return t.record("linear recurrence", [kept, taken], outputs, saved, by=token_by_token)[0]
