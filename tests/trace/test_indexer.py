"""Sparse attention: FLOPs of the indexer of DeepSeek-V3.2 and GLM-5, and of attention over the keys it selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Plan

PlanModel = Callable[..., Plan]

# deepseek-ai/DeepSeek-V3.2-Exp, config.json: hidden_size, num_attention_heads, ranks and widths of latent attention, index_*.
d, H, Q_RANK, KV_RANK, NOPE, ROPE, V_DIM = 7168, 128, 1536, 512, 128, 64, 128
INDEX_HEADS, INDEX_DIM, TOP_K = 64, 128, 2048
INDEXER = {"n_heads": INDEX_HEADS, "head_dim": INDEX_DIM, "top_k": TOP_K}
LATENT: dict[str, Any] = {"q_rank": Q_RANK, "kv_rank": KV_RANK, "nope_dim": NOPE, "rope_dim": ROPE, "v_dim": V_DIM}
MODEL: dict[str, Any] = {
    "vocab_size": 129280,
    "context_length": 163840,
    "d_model": d,
    "n_layers": 1,
    "n_heads": H,
    "mixer": "latent_attention",
    "feed_forward": "none",
    "positions": "rope",
    "norm": {"type": "rmsnorm"},
}


def attention_flops(plan_model: PlanModel, n: int, convention: str = "matmul", **latent: object) -> int:
    """Return the forward FLOPs of the one layer's attention, its projections included."""
    plan = plan_model(MODEL | {"latent_attention": LATENT | latent}, sequence_length=n, flops_convention=convention)
    return plan.flops.chosen.forward_per_step - 2 * n * d * 129280


def projections(n: int, *, indexer: bool) -> int:
    """Return the FLOPs of the products with weights, by hand."""
    weights = d * Q_RANK + Q_RANK * H * (NOPE + ROPE) + d * (KV_RANK + ROPE) + KV_RANK * H * (NOPE + V_DIM) + H * V_DIM * d
    of_indexer = Q_RANK * INDEX_HEADS * INDEX_DIM + d * INDEX_DIM + d * INDEX_HEADS
    return 2 * n * (weights + (of_indexer if indexer else 0))


@pytest.mark.parametrize(
    ("n", "pairs"),
    [
        (1024, 1024**2),  # fewer keys than top_k: all of them
        (2048, 2048**2),
        (4096, 2 * 4096 * 2048 - 2048**2),  # 12,582,912 of 16,777,216
        (131_072, 2 * 131_072 * 2048 - 2048**2),  # 3 % of the square
    ],
)
def test_attention_runs_over_the_selected_keys(plan_model: PlanModel, n: int, pairs: int) -> None:
    scores = 2 * INDEX_HEADS * INDEX_DIM * n**2  # of the indexer: all keys
    attention = 2 * H * (NOPE + ROPE + V_DIM) * pairs
    assert attention_flops(plan_model, n, indexer=INDEXER) == projections(n, indexer=True) + scores + attention
    assert attention_flops(plan_model, n, "matmul-causal", indexer=INDEXER) == projections(n, indexer=True) + scores // 2 + attention // 2


def test_a_layer_that_shares_a_selection_has_no_indexer_and_as_many_keys(plan_model: PlanModel) -> None:
    attention = 2 * H * (NOPE + ROPE + V_DIM) * (2 * 4096 * 2048 - 2048**2)
    assert attention_flops(plan_model, 4096, selected_keys=2048) == projections(4096, indexer=False) + attention
    assert attention_flops(plan_model, 4096) == projections(4096, indexer=False) + 2 * H * (NOPE + ROPE + V_DIM) * 4096**2


def test_parts_of_the_indexer_that_are_not_counted_are_listed(plan_model: PlanModel) -> None:
    plan = plan_model(MODEL | {"latent_attention": LATENT | {"indexer": INDEXER}}, sequence_length=16)
    assert any("indexer" in line for line in plan.not_counted)


def test_flops_of_the_indexer_equal_those_of_transformers(plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from torch.utils.flop_counter import FlopCounterMode
    from transformers.models.deepseek_v32.configuration_deepseek_v32 import DeepseekV32Config
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer

    heads, width, q_rank, hidden, rope, n = 4, 16, 24, 32, 8, 40
    config = DeepseekV32Config(
        hidden_size=hidden, q_lora_rank=q_rank, index_n_heads=heads, index_head_dim=width, index_topk=8, qk_rope_head_dim=rope
    )
    with torch.device("meta"):
        module = DeepseekV32Indexer(config, 0)
        x, queries, mask = torch.zeros(1, n, hidden), torch.zeros(1, n, q_rank), torch.zeros(1, n, n)
        tables = torch.zeros(1, n, rope), torch.zeros(1, n, rope)
        with FlopCounterMode(display=False) as counter:
            module(x, queries, tables, mask, None)

    sizes = {"d_model": hidden, "n_heads": 2, "vocab_size": 64, "context_length": n}
    latent = {"q_rank": q_rank, "kv_rank": 12, "nope_dim": 8, "rope_dim": rope, "v_dim": 8}

    def ours(**more: object) -> int:
        plan = plan_model(MODEL | sizes | {"latent_attention": latent | more}, implementation="transformers", sequence_length=n)
        return next(count.forward_per_step for count in plan.flops.by_convention if count.convention == "hardware")

    indexer = ours(indexer={"n_heads": heads, "head_dim": width, "top_k": 8}) - ours()
    assert indexer == counter.get_total_flops()
