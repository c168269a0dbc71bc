"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), as in transformers' models/deepseek_v3/modeling_deepseek_v3.py."""

from __future__ import annotations

from planner.spec.records import Indexer, LatentAttention, Layer, Norm
from planner.trace import blocks, pytorch
from planner.trace import primitives as op
from planner.trace.attention import heads_mixed
from planner.trace.positions import PositionTables, position_scale
from planner.trace.sizes import minimum, product
from planner.trace.tape import Flops, Tape
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
        if layer.positions.type == "rope":
            tables = positions.rotary(t, layer)
            if t.implementation.rotate_both:
                q_rope, k_rope = t.implementation.rotate_both(t, q_rope, k_rope, tables)
            else:
                q_rope, k_rope = (rotate_pairs(t, part, tables) for part in (q_rope, k_rope))
        queries = op.cat(t, q_nope, q_rope)
        if t.modules.query_scale == "rotated":
            queries = op.multiply(t, queries, position_scale(t, n, queries.dtype))
        kv = blocks.linear(t, narrow, H * (kind.nope_dim + kind.v_dim), "kv_b_proj", bias=False)
        k_nope, v = op.split(t, kv, (B, H, n, kind.nope_dim), (B, H, n, kind.v_dim))
        keys = op.fill(t, k_nope, k_rope, (B, H, n, h))
        queries.by_head = keys.by_head = True
        if kind.indexer:
            indexer(t, kind.indexer, x, source)
        seen = kind.indexer.top_k if kind.indexer else kind.selected_keys
        t.show("queries by head", queries)
        t.show("scores", Tensor((B, H, n, n), queries.dtype, ()))
        with t.limited_to(seen):
            mixed = heads_mixed(t, queries, keys, v, positions.scores(layer))
        out = blocks.linear(t, t.show("heads joined", mixed), d, "o_proj", bias=kind.bias)
        op.keep_alive(t, x, q, compressed, narrow, q_rope, k_rope, queries, keys, v)
        return t.implementation.drop(t, out)


def rotate_pairs(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of neighboring channels of x [B, heads, n, h], all of them: four products with halves of the tables."""
    if t.modules.complex_tables:
        return pytorch.rotate_complex(t, x, tables[0])
    h = x.shape[-1]
    cos, sin = (table.view(*table.shape[:-1], h // 2) for table in tables)
    even, odd = op.narrow(t, x, h // 2), op.narrow(t, x, h // 2)
    return pytorch.rotate_halves(t, even, odd, (cos, sin))


def indexer(t: Tape, kind: Indexer, x: Tensor, queries: Tensor) -> None:
    """Score each query's visible keys and select ``top_k``: the lightning indexer of DeepSeek-V3.2 (arXiv:2512.02556, section 2.1).

    Several small query heads, projected from the compressed queries, score one key head, projected from x [B, n, d]. Its inputs are
    detached from the model, and it has its own loss. It is traced as in transformers 5.24 (models/deepseek_v32, models/glm_moe_dsa), which
    runs it without gradients.
    """
    B, n, _ = x.shape
    with t.at("indexer"), t.without_gradients():
        q = blocks.linear(t, queries, kind.n_heads * kind.head_dim, "wq_b", bias=False)
        k = blocks.norm(t, Norm(), blocks.linear(t, x, kind.head_dim, "wk", bias=False), "k_norm")
        weights = blocks.linear(t, x, kind.n_heads, "weights_proj", bias=False)
        choose(t, kind, q.view(B, n, kind.n_heads, kind.head_dim), k, weights)
    t.note("memory of the indexer of sparse attention while it scores, and the FLOPs and memory of the loss that trains it")


def choose(t: Tape, kind: Indexer, q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """Return the indices of the keys with the largest sums over heads of weight · relu(q · k), at most ``top_k`` per query.

    2·B·heads·n²·head_dim FLOPs for q [B, n, heads, h] and k [B, n, h], over pairs (query, key). The sum over heads is not a matrix product
    in the authors' kernel (deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py: fp8_index).
    """
    B, n = k.shape[:2]
    indices = t.tensor((B, n, minimum(n, kind.top_k)), "int32", needs_grad=False)
    square = 2 * product(q.shape) * n
    flops = Flops(square, square, square // 2, 2 * square, "2 · B · heads · n² · head_dim")
    return t.record("index scores", [q, k, weights], [indices], flops=flops, by=choose)[0]
