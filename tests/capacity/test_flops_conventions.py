"""Conventions of FLOPs against published figures: which parameters N counts, and what recomputation adds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import planner
from planner import spec as specs_room
from planner.capacity.figures import FlopsCount, Plan

SPECS = Path(__file__).parent.parent.parent / "specs"
PlanModel = Callable[..., Plan]


def counts(name: str, *overrides: str) -> dict[str, FlopsCount]:
    (spec,), problems = specs_room.read([str(SPECS / f"{name}.yaml")], overrides)
    assert not problems
    return {count.convention: count for count in planner.plan(spec).flops.by_convention}


@pytest.mark.parametrize(
    ("name", "active"),  # in billions
    [
        # "671B total parameters with 37B activated for each token": DeepSeek-AI 2024, arXiv:2412.19437.
        ("catalog/deepseek_v3/deepseek-v3", pytest.approx(37, abs=0.6)),
        # 5.13 B, without the token embedding (OpenAI 2025, arXiv:2508.10925, table 1), and its 201,088 · 2,880 = 0.58 B.
        ("catalog/gpt_oss/gpt-oss-120b", pytest.approx(5.13 + 0.58, abs=0.01)),
        # "only uses 12.9B parameters per token": https://mistral.ai/news/mixtral-of-experts, Mistral AI 2023
        ("catalog/mixtral/mixtral-8x7b-v0.1", pytest.approx(12.9, abs=0.05)),
    ],
)
def test_n_counts_active_parameters(name: str, active: object) -> None:
    found = counts(name)
    assert found["6nd"].train_per_token / 6e9 == active
    assert found["6nd"].forward_per_token / 2e9 == active


def test_palm_counts_active_parameters_and_the_attention_of_all_layers() -> None:
    # Mixtral has 32 layers of 32 heads of 128: 12·L·H·Q·T.
    found = counts("catalog/mixtral/mixtral-8x7b-v0.1", "training.sequence_length=4096")
    assert found["palm"].train_per_token - found["6nd"].train_per_token == 12 * 32 * 32 * 128 * 4096


def test_total_training_flops_of_deepseek_v3() -> None:
    # 6 · 37 B · 14.8 T = 3.3e24
    total = counts("catalog/deepseek_v3/deepseek-v3", "training.tokens=14.8e12")["6nd"].train_total
    assert total == pytest.approx(3.3e24, rel=0.02)


@pytest.mark.parametrize(
    ("name", "non_embedding"),
    # "Non-Embedding Params" of the suite, whose heads are not tied: Biderman et al. 2023, arXiv:2304.01373, table 1
    [
        ("pythia-6.9b", 6_444_163_072),
        ("catalog/gpt_neox/pythia-70m", 18_915_328),
        ("catalog/gpt_neox/pythia-410m", 302_311_424),
        ("catalog/gpt_neox/pythia-1b", 805_736_448),
        ("catalog/gpt_neox/pythia-1.4b", 1_208_602_624),
        ("catalog/gpt_neox/pythia-2.8b", 2_517_652_480),
        ("catalog/gpt_neox/pythia-12b", 11_327_027_200),
    ],
)
def test_kaplan_excludes_embeddings_and_lm_head(name: str, non_embedding: int) -> None:
    found = counts(name)["6nd-kaplan"]
    assert (found.forward_per_token, found.train_per_token) == (2 * non_embedding, 6 * non_embedding)


def test_kaplan_excludes_position_embeddings() -> None:
    # GPT-2 small: 12 layers of 12·d² + 13·d and a norm of 2·d, d = 768. The paper rounds this to 12·n_layers·d².
    non_embedding = 12 * (12 * 768**2 + 13 * 768) + 2 * 768
    assert counts("gpt2-small")["6nd-kaplan"].train_per_token == 6 * non_embedding


def test_bloom_runs_at_150_tflops_with_whole_layers_recomputed() -> None:
    # 384 GPUs, 2,048 sequences, 104.5 s an iteration: 150.05 TFLOP/s each (github.com/bigscience-workshop/bigscience, tr11-176B-ml,
    # chronicles-prequel), which is Megatron's 96·B·L·s·h²·(1 + s/6h + V/16hL): each layer forward twice, the head once.
    hardware = counts("bloom-176b", "training.recompute=full")["hardware"].train_per_token
    assert hardware * 2048 * 2048 / 384 / 104.5 / 1e12 == pytest.approx(150.05, abs=0.005)


KORTHIKANTI = [  # d_model, layers, heads, sequences, GPUs, seconds, MFU, HFU with selective recomputation: arXiv:2205.05198, tables 3 and 5
    (6144, 48, 64, 4, 8, 1.10, 41.5, 43.7),
    (12288, 96, 96, 64, 64, 13.75, 51.4, 52.8),
    (20480, 105, 128, 280, 280, 37.83, 56.0, 57.0),
    (25600, 128, 160, 512, 512, 71.49, 56.3, 57.0),
]


@pytest.mark.parametrize(("d", "layers", "heads", "sequences", "gpus", "seconds", "mfu", "hfu"), KORTHIKANTI)
@pytest.mark.parametrize(("recompute", "of_a_layer", "of_attention"), [("none", 3, 3), ("selective", 3, 4), ("full", 4, 4)])
def test_megatron_recomputes_whole_checkpointed_regions(  # noqa: PLR0917 - the columns of the paper's tables
    plan_model: PlanModel, d: int, layers: int, heads: int, sequences: int, gpus: int, seconds: float, mfu: float, hfu: float,
    recompute: str, of_a_layer: int, of_attention: int,
) -> None:  # fmt: skip
    """Forward, a layer has 24·s·h² FLOPs in weights and 4·s²·h in attention, the head 2·s·h·V; backward twice that (appendix A)."""
    n, V = 2048, 51200
    sizes = {"vocab_size": V, "context_length": n, "d_model": d, "n_layers": layers, "n_heads": heads}
    plan = plan_model(sizes, batch_size=1, sequence_length=n, precision="bf16-master", implementation="megatron", recompute=recompute)
    found = {count.convention: count.train_per_step for count in plan.flops.by_convention}
    model, attention = found["matmul"], layers * 4 * n * n * d
    assert model == 72 * layers * n * d * d + 3 * attention + 6 * n * d * V
    assert found["hardware"] == of_a_layer * 24 * layers * n * d * d + of_attention * attention + 6 * n * d * V
    utilization = 100 * sequences / gpus / seconds / 312e12  # of an A100's 312 TFLOP/s
    assert model * utilization == pytest.approx(mfu, rel=0.005)  # seconds have three digits
    # The paper's hardware FLOPs, 72·B·L·s·h²·(1 + s/3h + V/12hL), charge selective recomputation for three passes of attention; one runs.
    assert (model + 3 * attention) * utilization == pytest.approx(hfu, rel=0.005)
