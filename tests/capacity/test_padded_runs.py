"""Padded batches: memory of real runs on an L40S, which reserve some percent more than is allocated.

huggingface/peft, method_comparison/MetaMathQA: Llama-3.2-3B in bfloat16, B = 4, samples of at most 768 tokens padded to the longest.
"""

from __future__ import annotations

from typing import Any

import pytest

import planner


def adapters(**settings: object) -> dict[str, Any]:
    return {"train": "adapters", "adapters": settings}


@pytest.mark.parametrize(
    ("tuned", "reserved"),  # max_memory_reserved
    [
        (adapters(rank=32, targets=["q", "v"]), 22_292_725_760),
        (adapters(rank=64, targets=["q", "v"]), 22_552_772_608),
        (adapters(rank=10, targets=["gate", "up", "down"]), 24_698_159_104),
        (adapters(rank=32, targets=["q", "v"], type="dora"), 24_532_484_096),
        ({"train": "norm"}, 21_181_235_200),
        ({}, 38_868_615_168),
    ],
)
def test_real_runs(tuned: dict[str, Any], reserved: int) -> None:
    training = {"implementation": "transformers", "precision": "bf16", "batch_size": 4, "sequence_length": 768, "padding": True} | tuned
    spec = planner.load({"name": "padded", "extends": "catalog/llama-3.2-3b", "training": training})
    assert -0.07 < planner.plan(spec).memory.peak_bytes / reserved - 1 < 0.001


def test_a_mask_rules_out_flash_attention() -> None:
    training = {"implementation": "transformers", "precision": "bf16", "batch_size": 4, "sequence_length": 768}
    found = {
        padding: planner.plan(
            planner.load({"name": "padded", "extends": "catalog/llama-3.2-3b", "training": training | {"padding": padding}})
        )
        for padding in (False, True)
    }
    # 28 layers save keys and values of 24 heads instead of 8, and a mask of 4 · 768², in bfloat16.
    repeated = 28 * 2 * 2 * 4 * 768 * (24 - 8) * 128
    # Flash attention saves logsumexp [B, 24, n] and 3 integers of RNG state, memory-efficient attention rows of 32 and 2 integers.
    assert found[True].memory.activations_bytes - found[False].memory.activations_bytes == repeated + 28 * (2 * 4 * 768 * 768 - 8)
