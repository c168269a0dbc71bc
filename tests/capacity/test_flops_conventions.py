"""Conventions of FLOPs against published figures: which parameters N counts, and what recomputation adds."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner import spec as specs_room
from planner.capacity.records import FlopsCount

SPECS = Path(__file__).parent.parent.parent / "specs"


def counts(name: str, *overrides: str) -> dict[str, FlopsCount]:
    (spec,), problems = specs_room.read([str(SPECS / f"{name}.yaml")], overrides)
    assert not problems
    return {count.convention: count for count in planner.plan(spec).flops.by_convention}


@pytest.mark.parametrize(
    ("name", "active"),  # in billions
    [
        # "671B total parameters with 37B activated for each token": DeepSeek-AI 2024, arXiv:2412.19437.
        ("catalog/deepseek_v3/deepseek-v3", pytest.approx(37, abs=0.6)),
        # 5.13 B, which leave the token table out (OpenAI 2025, arXiv:2508.10925, table 1), and its 201,088 · 2,880 = 0.58 B.
        ("catalog/gpt_oss/gpt-oss-120b", pytest.approx(5.13 + 0.58, abs=0.01)),
        # "only uses 12.9B parameters per token": https://mistral.ai/news/mixtral-of-experts, Mistral AI 2023
        ("catalog/mixtral/mixtral-8x7b-v0.1", pytest.approx(12.9, abs=0.05)),
    ],
)
def test_n_is_the_parameters_that_a_token_uses(name: str, active: object) -> None:
    found = counts(name)
    assert found["6nd"].train_per_token / 6e9 == active
    assert found["6nd"].forward_per_token / 2e9 == active


def test_palm_counts_active_parameters_and_the_attention_of_all_layers() -> None:
    # Mixtral has 32 layers of 32 heads of 128: 12·L·H·Q·T.
    found = counts("catalog/mixtral/mixtral-8x7b-v0.1", "training.sequence_length=4096")
    assert found["palm"].train_per_token - found["6nd"].train_per_token == 12 * 32 * 32 * 128 * 4096


def test_deepseek_v3_took_three_point_three_e24() -> None:
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
def test_kaplan_leaves_tables_and_head_out(name: str, non_embedding: int) -> None:
    found = counts(name)["6nd-kaplan"]
    assert (found.forward_per_token, found.train_per_token) == (2 * non_embedding, 6 * non_embedding)


def test_kaplan_leaves_position_tables_out_too() -> None:
    # GPT-2 small: 12 layers of 12·d² + 13·d and a norm of 2·d, d = 768. The paper rounds this to 12·n_layers·d².
    non_embedding = 12 * (12 * 768**2 + 13 * 768) + 2 * 768
    assert counts("gpt2-small")["6nd-kaplan"].train_per_token == 6 * non_embedding
