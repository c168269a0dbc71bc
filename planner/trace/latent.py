"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), as in transformers' models/deepseek_v3/modeling_deepseek_v3.py."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import LatentAttention, Layer, Norm
from planner.trace import blocks, pytorch
from planner.trace import primitives as op
from planner.trace.attention import heads_mixed
from planner.trace.cache import cached
from planner.trace.indexer import indexer, limited_to_chosen
from planner.trace.positions import PositionTables, position_scale
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def latent_attention(t: Tape, kind: LatentAttention, layer: Layer, positions: PositionTables, x: Tensor) -> Tensor:
    """MLA over [B, n, d]: keys and values come from one compressed vector per token, queries from another one or from x.

    A query or key head has nope_dim channels without positions and rope_dim rotated ones; all heads share the rotated key.
    """
    B, n, d = x.shape
    H, h = kind.n_heads, kind.nope_dim + kind.rope_dim
    norm = Norm("rmsnorm", bias=False)
    with t.at("self_attn", "attention"):
        if kind.q_rank is None:
            q = source = blocks.linear(t, x, H * h, "q_proj", bias=False)
        else:
            source = blocks.linear(t, x, kind.q_rank, "q_a_proj", bias=kind.bias)
            source = blocks.norm(t, norm, source, "q_a_layernorm")
            q = blocks.linear(t, source, H * h, "q_b_proj", bias=False)
        q_nope, q_rope = op.split(t, q, (B, H, n, kind.nope_dim), (B, H, n, kind.rope_dim))
        compressed = blocks.linear(t, x, kind.kv_rank + kind.rope_dim, "kv_a_proj_with_mqa", bias=kind.bias)
        narrow, k_rope = op.split(t, compressed, (B, n, kind.kv_rank), (B, 1, n, kind.rope_dim))
        narrow = blocks.norm(t, norm, narrow, "kv_a_layernorm")
        tables = positions.rotary(t, layer) if layer.positions.type == "rope" else None
        if tables:
            if t.implementation.rotate_latent:
                q_rope, k_rope = t.implementation.rotate_latent(t, q_rope, k_rope, tables)
            else:
                q_rope, k_rope = (rotate_pairs(t, part, tables) for part in (q_rope, k_rope))
        latent, shared = cached(t, narrow.view(B, 1, n, kind.kv_rank), k_rope, latent=True)
        m = latent.shape[2]
        queries = op.cat(t, q_nope, q_rope)
        if t.modules.query_scale == "rotated":
            queries = op.multiply(t, queries, position_scale(t, n, queries.dtype))
        kv = blocks.linear(t, latent.view(B, m, kind.kv_rank), H * (kind.nope_dim + kind.v_dim), "kv_b_proj", bias=False)
        k_nope, v = op.split(t, kv, (B, H, m, kind.nope_dim), (B, H, m, kind.v_dim))
        keys = op.fill(t, k_nope, shared, (B, H, m, h))
        queries.by_head = keys.by_head = True
        terms = positions.scores(t, layer)
        alive = []
        if kind.indexer:
            positions.selected, positions.selects = indexer(t, kind.indexer, x, source, tables, terms.bias), True
            alive += [source, positions.selected]
        seen = kind.indexer.top_k if kind.indexer else kind.selected_keys
        if seen is not None and terms.bias and positions.selected:
            alive += limited_to_chosen(t, terms.bias, positions.selected)
            terms = replace(terms, bias=alive[-1])
        t.show("queries by head", queries)
        t.show("scores", Tensor((B, H, n, n), queries.dtype, ()))
        with t.limited_to(seen):
            mixed = heads_mixed(t, queries, keys, v, terms)
        out = blocks.linear(t, t.show("heads joined", mixed), d, "o_proj", bias=kind.bias)
        op.keep_alive(t, x, q, compressed, latent, q_rope, shared, queries, keys, v, *alive)
        return t.implementation.drop(t, out)


def rotate_pairs(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of neighboring channels of x [B, heads, n, h], all of them: four products with halves of the tables."""
    if t.modules.complex_tables:
        return pytorch.rotate_complex(t, x, tables[0])
    h = x.shape[-1]
    cos, sin = (table.view(*table.shape[:-1], h // 2) for table in tables)
    even, odd = op.narrow(t, x, h // 2), op.narrow(t, x, h // 2)
    return pytorch.rotate_halves(t, even, odd, (cos, sin))
