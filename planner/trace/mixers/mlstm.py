"""The mLSTM layer of xLSTM-7B (Beck et al. 2025, arXiv:2503.13427).

Read from transformers 5.24: models/xlstm/modeling_xlstm.py, whose configurations choose the mode ``inference``: chunks of 64 tokens, and
the rest token by token.
"""

from __future__ import annotations

from planner.spec import records
from planner.spec.precision import Dtype
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import of_each, scan
from planner.trace.nodes import Flops, Saved
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, exceeds_one, minimum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)
CHUNK = 64  # tokens


def mlstm(t: Tape, kind: records.Mlstm, x: Tensor) -> Tensor:
    """mLSTM: q, k, v, output, input and forget gates per head, matrix memory, norm over heads, sigmoid output gate, out."""
    B, n, d = x.shape
    with t.at("mlstm_layer", "ssm"):
        q, k = (linear(t, x, kind.qk_dim, name, bias=False) for name in ("q", "k"))
        v = linear(t, x, kind.v_dim, "v", bias=False)
        if not t.implementation.plain_mixers:
            gates = [linear(t, x, kind.n_heads, name, bias=True) for name in ("igate_preact", "fgate_preact")]
            y = norm(t, RMS, scan(t, "mlstm_chunkwise", [q, k, v, *gates], (B, n, kind.v_dim)), "multihead_norm")
            out = sigmoid(t, linear(t, x, kind.v_dim, "ogate_preact", bias=False))
            return linear(t, op.multiply(t, out, y), d, "out_proj", bias=False)
        out = linear(t, x, kind.v_dim, "ogate_preact", bias=False)
        gates = [op.softcap(t, linear(t, x, kind.n_heads, name, bias=True)) for name in ("igate_preact", "fgate_preact")]
        with t.inside_scan():
            y = matrix_memory(t, kind, (q, k, v, *gates))
        y = norm_of_heads(t, kind, y)
        made = linear(t, op.multiply(t, sigmoid(t, out), y), d, "out_proj", bias=False)
        op.keep_alive(t, q, k, v, out, *gates, y)
        return made


def matrix_memory(t: Tape, kind: records.Mlstm, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the outputs [B, n, v_dim] of queries, keys, values, and gates [B, n, H].

    Products forward, per head of q and v channels: in a chunk, keysᵀ · values, queries · keysᵀ, queries · state, scores · values and
    queries · normalizer; per further token, key · valueᵀ, query · state and query · normalizer. Backward, twice that.
    """
    q, _, v, *_ = inputs
    B, n, _ = q.shape
    H = kind.n_heads
    width, value = kind.qk_dim // H, kind.v_dim // H
    chunks = n // CHUNK
    chunked = chunks * CHUNK
    rest, state = n - chunked, width * value
    if not t.precision.autocast and q.dtype != "float32":
        t.note("that transformers runs mLSTM layers in 16 bits without autocast only for sequences shorter than 64 tokens")

    def each(count: Size, dtype: Dtype, what: str) -> Saved:
        return of_each(t, count, (B, H), dtype, what)

    casts = 2 if t.precision.autocast else 1
    viewed = minimum(chunks, 1) * (1 - exceeds_one(chunks))  # a single chunk reads its state as a view of both states
    by_chunk = (chunks + viewed) * (state + width) + chunked * ((1 + casts) * width + 2 * CHUNK + value)
    by_token = rest * (2 * state + 2 * width + 3)
    wide_by_chunk = chunks * (state + width + 3) + chunked * (CHUNK + 8)
    saved = [
        each(n * (width + value + 1) + chunked * width, q.dtype, "queries, keys, values and forget gates by head"),
        each(by_chunk + by_token, q.dtype, "factors of products"),
        each(wide_by_chunk + rest * (state + width + value + 5), "float32", "states, decays and normalizers"),
        each(chunks + chunked, "int64", "indices of maxima"),
        of_each(t, minimum(chunks, 1), (CHUNK, CHUNK), "bool", "causal mask"),
    ]
    products = chunked * (2 * state + CHUNK * (width + value) + width) + rest * (2 * state + width)
    forward = 2 * B * H * products
    made = t.tensor(v.shape, q.dtype)
    flops = Flops(forward, forward, forward, 2 * forward, "5 products per chunk, 3 per further token; backward twice that")
    return t.record("matrix memory", inputs, [made, *(one.tensor for one in saved)], saved, flops, by=matrix_memory)[0]


def norm_of_heads(t: Tape, kind: records.Mlstm, x: Tensor) -> Tensor:
    """LayerNorm of each head in float32, one operator at a time, cast back to x's dtype before the weight.

    Under autocast, outputs of chunks are float32 already, those of single tokens are not.
    """
    B, n, width = x.shape
    with t.at("multihead_norm", "norm"):
        weight = t.weight("weight", (width,), "scale of a norm")
        wide = op.cast(t, x, "float32").view(B, n, kind.n_heads, width // kind.n_heads)
        centered = op.add(t, wide, op.mean(t, wide))
        (variance,) = t.record("var", [wide], [t.tensor((*wide.shape[:-1], 1), "float32")], [Saved(wide, "input")], by=norm_of_heads)
        normed = op.multiply(t, centered, op.rsqrt(t, variance)).view(B, n, width)
        narrow = op.cast(t, normed, x.dtype)
        if t.precision.autocast and x.dtype != "float32":
            chunked = minimum(n // CHUNK, 1)
            parts = (*((storage, chunked) for storage, _ in normed.parts), *((storage, 1 - chunked) for storage, _ in narrow.parts))
            narrow = Tensor(narrow.shape, narrow.dtype, parts, origin=narrow)
        return op.multiply(t, narrow, weight)
