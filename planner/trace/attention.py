"""Multi-head attention: projections, norms, positions, attention scores and output gates.

x is [B, n, d_model], heads are [B, heads, n, head_dim].
"""

from __future__ import annotations

from dataclasses import replace

from planner.spec.precision import Dtype
from planner.spec.records import Attention, Layer, Norm
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.blocks import linear, norm
from planner.trace.by_head import merge_heads
from planner.trace.cache import cached
from planner.trace.collectives import enter, gather_heads, leave
from planner.trace.context_parallel import exchange_for_heads, exchange_for_sequences, projected
from planner.trace.implementation import Scores
from planner.trace.mixers.operators import softplus
from planner.trace.nodes import Saved
from planner.trace.positions import PositionTables, position_scale
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def attention(t: Tape, kind: Attention, layer: Layer, positions: PositionTables, x: Tensor) -> Tensor:
    """Multi-head attention over [B, n, d_model]; n_kv_heads KV heads serve n_heads query heads."""
    alike = kind.q_bias == kind.k_bias == kind.v_bias and not (kind.shared_kv or kind.keys_as_values)
    if t.implementation.fuses_qkv and alike:
        kind = replace(kind, qkv="fused_per_head")
    t.parts = []
    with t.at("self_attn", "attention"):
        given, x = x, enter(t, x, readers=3 if kind.qkv == "separate" else 1)
        B, n, d_model = x.shape
        H = kind.n_heads
        gate = gate_scores(t, kind, x) if t.modules.gates_first and kind.output_gate != "none" else None
        queries = None
        if t.modules.gate_in_queries:
            queries, gate = queries_and_gate(t, kind, x)
        q, k, v = heads(t, kind, layer, positions, x, queries)
        t.show("queries by head", q)
        t.show("keys by head", k)
        t.show("values by head", v)
        t.show("scores", Tensor((B, H, n, n), q.dtype, ()))
        dtype: Dtype | None = "float32" if t.modules.sinks_in_float32 else None
        sinks = t.weight("sinks", (H,), "sinks: heads", dtype=dtype) if kind.sinks else None
        if of_mask := t.implementation.mask_buffer(t, "layer"):
            t.buffer("bias", (1, 1, t.model.context_length, t.model.context_length), of_mask)
        terms = replace(positions.scores(t, layer), softcap=bool(kind.logit_softcap), sinks=sinks)
        with t.limited_to(kind.window, chunked=kind.chunked):
            mixed = differential(t, kind, q, k, v, terms) if kind.differential else heads_mixed(t, q, k, v, terms)
        if kind.output_norm:
            mixed = norm(t, Norm(layer.norm.type, bias=False), mixed, "attn_sub_norm")
        if kind.output_gate != "none":
            mixed = gated(t, kind, gate or gate_scores(t, kind, x), mixed)
        out = leave(t, linear(t, t.show("heads joined", mixed), d_model, "o_proj", bias=kind.o_bias))
        out = t.implementation.drop(t, out)
        op.keep_alive(t, given, x, q, k, v, mixed, *t.parts, *(one for one in (gate, terms.relative) if one))
        return out


def heads_mixed(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Attend causally with q [B, H, n, h] to k, v [B, K, n, h] -> [B, n, H·h]. Selective recomputation saves only q, k, v and bias."""
    q, k, v = (exchange_for_heads(t, x) for x in (q, k, v))
    inputs = (q, k, v, terms.bias) if terms.bias else (q, k, v)

    def attend(q: Tensor, k: Tensor, v: Tensor, _bias: Tensor | None = None) -> Tensor:
        return t.implementation.attention(t, q, k, v, terms)

    whole = t.implementation.recomputes_whole
    made = t.checkpoint(attend, *inputs, whole=whole) if t.recomputes_attention else attend(*inputs)
    return merge_heads(t, exchange_for_sequences(t, made, q, k, v))


def heads(
    t: Tape, kind: Attention, layer: Layer, positions: PositionTables, x: Tensor, queries: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, H, n, h], keys [B, K, n, h] and values [B, K, n, v], normalized and rotated. ``queries`` are not, if projected."""
    B, n, _ = x.shape
    H, K, h = kind.n_heads, kind.n_kv_heads, kind.head_dim
    qk_norm = replace(layer.norm, weight=True, bias=False)

    def normalized(part: Tensor, count: Size, name: str) -> Tensor:
        """Return queries or keys [B, n, count·h] as [B, count, n, h], normalized if the layer does so."""
        if kind.qk_norm == "full_width":
            joined = exceeds_one(K) if kind.qkv == "fused_per_head" else None
            part = norm(t, qk_norm, op.contiguous(t, part, joined), name)
        part = part.view(B, count, n, h)
        if kind.qk_norm in {"none", "full_width", "unweighted"} or (kind.shared_kv and name == "k_norm") or t.modules.normalizes_rotated:
            return part
        return norm(t, qk_norm, part, name, heads=count if kind.qk_norm == "per_head" else None, of_heads=True)

    if kind.qkv == "separate" and t.modules.normalizes_each and not kind.shared_kv:
        q = normalized(queries or linear(t, x, H * h, "q_proj", bias=kind.q_bias), H, "q_norm")
        k = normalized(linear(t, x, K * h, "k_proj", bias=kind.k_bias), K, "k_norm")
        v = linear(t, x, K * h, "v_proj", bias=kind.v_bias)
    else:
        made = projections(t, kind, x)
        q, k, v = normalized(made[0], H, "q_norm"), normalized(made[1], K, "k_norm"), made[2]
        op.keep_alive(t, *made[:2])
        t.parts += [] if kind.qkv == "separate" else [made[1]]
    v = v.view(B, K, n, v.shape[2] // K)
    if t.modules.normalizes_values and not kind.shared_kv:
        v = norm(t, replace(qk_norm, weight=False), v, "v_norm")
    if kind.qkv != "separate":
        k, v = t.implementation.split_kv(t, k, v, H)
    q, k, v = adjacent(t, q, k, v)
    if layer.positions.type == "rope":
        q, k = rotated(t, q, None if kind.shared_kv else k, positions.rotary(t, layer))
    q, k = rescaled(t, layer, kind, qk_norm, (q, k), positions.query_scale(layer))
    if kind.shared_kv:
        k, v = positions.earlier(kind)
    else:
        k, v = cached(t, k, v, kind.window)
        positions.provide(t, kind, k, v)
    return q, k, v


def adjacent(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return heads [B, heads, n, h], which some classes copy to be adjacent in memory; they have scaled the queries before."""
    if not t.modules.copies_heads:
        return q, k, v
    made = [op.contiguous(t, x, exceeds_one(x.shape[1]) * exceeds_one(x.shape[2])) for x in (op.mul_scalar(t, q), k, v)]
    for x in made:
        x.by_head = True
    return made[0], made[1], made[2]


def rotated(t: Tape, q: Tensor, k: Tensor | None, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return queries and keys rotated, in their dtypes if the class casts them back. Without keys, queries are a placeholder for them."""
    if k is None:
        turned = [t.implementation.rotate(t, q, tables)]
    elif t.implementation.rotate_both:
        turned = [*t.implementation.rotate_both(t, q, k, tables)]
    else:
        turned = [t.implementation.rotate(t, q, tables), t.implementation.rotate(t, k, tables)]
    if t.modules.rotates_in_float32 or t.modules.tables_in_float32:
        turned = [op.cast(t, made, q.dtype) for made in turned]
    op.keep_alive(t, q, *([k] if k else []))
    return turned[0], turned[-1]


def rescaled(
    t: Tape, layer: Layer, kind: Attention, qk_norm: Norm, heads: tuple[Tensor, Tensor], shared: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return queries and keys after rotation: queries scaled by position, or both normalized, if the class does so."""
    q, k = heads
    rotates = layer.positions.type == "rope"
    if t.modules.query_scale == ("rotated" if rotates else "unrotated"):
        q = op.cast(t, op.multiply(t, q, position_scale(t, q.shape[2], q.dtype if rotates else "float32")), q.dtype)
    if shared:
        q = op.cast(t, op.multiply(t, op.cast(t, q, "float32"), shared), q.dtype)
    if rotates and (t.modules.normalizes_rotated or kind.qk_norm == "unweighted"):
        qk_norm = replace(qk_norm, weight=kind.qk_norm not in {"none", "unweighted"})
        q, k = norm(t, qk_norm, q, "q_norm"), norm(t, qk_norm, k, "k_norm")
    return q, k


def projections(t: Tape, kind: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, n, H·h], keys [B, n, K·h] and values [B, n, K·v]: of separate projections, or views of a fused one.

    Devices with the same KV head have a part of its projection each, whose results they gather.

    With ``fused_per_head``, each KV head's queries, key and value are adjacent, and the queries are copied. If an earlier layer provides
    keys and values, views of the queries are placeholders for them.
    """
    B, n, _ = x.shape
    H, K, h = kind.n_heads, kind.n_kv_heads, kind.head_dim
    values = K * (h if kind.v_head_dim is None else kind.v_head_dim)
    if kind.qkv == "separate" or kind.shared_kv or kind.keys_as_values:
        q = projected(t, linear(t, x, H * h, "q_proj", bias=kind.q_bias), H, queries=True)
        if kind.shared_kv:
            return q, q.view(B, n, K * h), q.view(B, n, values)
        k = projected(t, linear(t, x, K * h, "k_proj", bias=kind.k_bias), K)
        return q, k, k if kind.keys_as_values else projected(t, linear(t, x, values, "v_proj", bias=kind.v_bias), K)
    shared, copied = K * h + values, kind.kv_replicas > 1
    qkv = linear(t, x, H * h + (shared // kind.kv_replicas if copied else shared), "qkv_proj", bias=kind.q_bias)
    qkv = gather_heads(t, qkv) if copied else qkv
    q, k, v = op.split(t, qkv, (B, n, H * h), (B, n, K * h), (B, n, values))
    if kind.qkv == "fused_per_head":
        q.interleaved = k.interleaved = v.interleaved = True
        q = op.contiguous(t, q, exceeds_one(K)) if H != K else q
    return projected(t, q, H, queries=True), projected(t, k, K), projected(t, v, K)


def queries_and_gate(t: Tape, kind: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and the scores of their gate [B, n, H·h], halves of each head of one projection. The scores are copied."""
    B, n, _ = x.shape
    width = kind.n_heads * kind.head_dim
    queries, scores = op.split(t, linear(t, x, 2 * width, "q_proj", bias=kind.q_bias), (B, n, width), (B, n, width))
    return queries, op.contiguous(t, scores, exceeds_one(kind.n_heads))


def gate_scores(t: Tape, kind: Attention, x: Tensor) -> Tensor:
    """Project x to one score per element of the heads, or per head. Adds a bias per head that the spec declares under extra (Beam)."""
    H, width = kind.n_heads, kind.head_dim if kind.v_head_dim is None else kind.v_head_dim
    made = linear(t, x, H * width if kind.output_gate == "element" else H, "gate_proj", bias=False)
    if bias := t.declared_weight("gate_bias"):
        made = op.add(t, made.view(*x.shape[:-1], H, width), bias.view(H, 1)).view(*made.shape)
    return made


def gated(t: Tape, kind: Attention, scores: Tensor, mixed: Tensor) -> Tensor:
    """Multiply the heads by the sigmoid, or softplus, of their scores: one gate per element or per head."""
    B, n, width = mixed.shape
    gate = op.cast(t, softplus(t, op.cast(t, scores, "float32")), scores.dtype) if t.modules.softplus_gate else sigmoid(t, scores)
    if kind.output_gate == "element":
        return op.multiply(t, mixed, gate)
    by_head = mixed.view(B, n, kind.n_heads, width // kind.n_heads)
    return op.multiply(t, by_head, gate.view(B, n, kind.n_heads, 1)).view(B, n, width)


def differential(t: Tape, kind: Attention, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Attend with each half of the value heads, and subtract the second half of the joined heads from the first -> [B, n, H·h].

    The difference is weighted by four learned vectors, and normalized per head (transformers 5.24, models/diffllama).
    """
    B, K, m, h = v.shape
    H, n = kind.n_heads, q.shape[2]
    values = [repeat_heads(t, half) for half in op.split(t, v, *[(B, K // 2, m, h)] * 2)]
    mixed = [heads_mixed(t, q, k, half, terms).view(B, n, H, h) for half in values]
    first, second = op.split(t, op.cat(t, *mixed), *[(B, n, H // 2, 2 * h)] * 2)
    lambdas = [exponential_of_product(t, kind, number, q) for number in ("1", "2")]
    factor = op.add_scalar(t, op.add(t, *lambdas))
    difference = op.add(t, first, op.scaled(t, second, factor))
    normed = op.mul_scalar(t, pytorch.norm(t, difference, Norm("rmsnorm", bias=False), None, None))
    op.keep_alive(t, *values, first, factor, *lambdas)
    return normed.view(B, n, H * h)


def repeat_heads(t: Tape, x: Tensor) -> Tensor:
    """Repeat heads [B, heads, n, h] twice: a copy."""
    B, heads, n, h = x.shape
    made = t.tensor((B, 2 * heads, n, h), x.dtype)
    made.by_head = True
    return t.record("repeat", [x], [made], by=repeat_heads)[0]


def exponential_of_product(t: Tape, kind: Attention, number: str, q: Tensor) -> Tensor:
    """Return exp(q · k) of two learned vectors, computed in float32 and cast to the queries' dtype."""
    vectors = [t.weight(f"lambda_{name}{number}", (kind.head_dim,), "lambda: head_dim") for name in ("q", "k")]
    summed = t.record("sum", [op.multiply(t, *vectors)], [t.tensor((), "float32")], by=exponential_of_product)
    made = t.tensor((), "float32")
    t.record("exp", summed, [made], [Saved(made, "output")], by=exponential_of_product)
    return op.cast(t, made, q.dtype)
