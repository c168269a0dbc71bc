"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), as in transformers' models/deepseek_v3/modeling_deepseek_v3.py."""

from __future__ import annotations

from planner.spec.records import Indexer, LatentAttention, Layer, Norm
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.attention import heads_mixed
from planner.trace.positions import Places
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def latent_attention(t: Tape, kind: LatentAttention, layer: Layer, places: Places, x: Tensor) -> Tensor:
    """Attend over [B, n, d]: queries from a compressed vector or directly, keys and values from one compressed vector a token.

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
        kv, k_rope = op.split(t, compressed, (B, n, kind.kv_rank), (B, 1, n, kind.rope_dim))
        kv = blocks.norm(t, norm, kv, "kv_a_layernorm")
        if layer.positions.type == "rope":
            tables = places.tables[kind.rope_dim]
            q_rope, k_rope = (rotate_pairs(t, part, tables) for part in (q_rope, k_rope))
        queries = op.cat(t, q_nope, q_rope)
        expanded = blocks.linear(t, kv, H * (kind.nope_dim + kind.v_dim), "kv_b_proj", bias=False)
        k_nope, v = op.split(t, expanded, (B, H, n, kind.nope_dim), (B, H, n, kind.v_dim))
        keys = op.fill(t, k_nope, k_rope, (B, H, n, h))
        queries.by_head = keys.by_head = True
        if kind.indexer:
            indexer(t, kind.indexer, x, source)
        t.show("queries by head", queries)
        t.show("scores", Tensor((B, H, n, n), queries.dtype, ()))
        mixed = heads_mixed(t, queries, keys, v, places.bias(layer), softcap=False)
        out = blocks.linear(t, t.show("heads joined", mixed), d, "o_proj", bias=kind.bias)
        return t.implementation.drop(t, out)


def rotate_pairs(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of neighbouring channels of x [B, heads, n, h], all of them: four products with halves of the tables."""
    *outer, h = x.shape
    cos, sin = (table.view(*table.shape[:-1], h // 2) for table in tables)
    even, odd = op.split(t, x, *[(*outer, h // 2)] * 2)
    first = op.add(t, op.multiply(t, even, cos), op.multiply(t, odd, sin))
    second = op.add(t, op.multiply(t, odd, cos), op.multiply(t, even, sin))
    return op.cat(t, first, second)


def indexer(t: Tape, kind: Indexer, x: Tensor, queries: Tensor) -> None:
    """Store the projections that score keys for sparse attention; their products with the scores are the user's ``extra`` to declare."""
    with t.at("indexer"):
        for name, source, outputs in (
            ("wq_b", queries, kind.n_heads * kind.head_dim),
            ("wk", x, kind.head_dim),
            ("weights_proj", x, kind.n_heads),
        ):
            blocks.linear(t, source, outputs, name, bias=False)
        with t.at("k_norm", "norm"):
            t.weight("weight", (kind.head_dim,), "scale of a norm")
            t.weight("bias", (kind.head_dim,), "shift of a norm")
