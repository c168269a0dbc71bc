"""Random fine-tunings: plans equal peft's and bitsandbytes' modules on fake tensors, value by value.

More of them: ``TUNINGS=500 pytest tests/verify/test_random_tuning.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")

from planner.spec import SpecError
from planner.trace.unsupported import UnsupportedError
from tests.verify.test_tuned import GPT2, LLAMA, MIXTRAL, checked

SEEDS = range(int(os.environ.get("TUNINGS", "12")))
BIASES = {"bias": {"q": True, "k": True, "v": True, "o": False}, "qkv": "separate"}
NORMS = {"bias": False, "qkv": "separate", "qk_norm": "head_dim"}
WITHOUT_FEED_FORWARD = {key: value for key, value in LLAMA.items() if key != "feed_forward"}
MODELS: tuple[tuple[dict[str, Any], list[str]], ...] = (
    (LLAMA, ["q", "k", "v", "o", "gate", "up", "down"]),
    (LLAMA | {"model_type": "qwen2", "attention": BIASES}, ["q", "k", "v", "o", "gate", "up", "down"]),
    (LLAMA | {"model_type": "qwen3", "attention": NORMS, "head_dim": 32}, ["q", "k", "v", "o", "gate", "up", "down"]),
    (GPT2, ["qkv", "o", "up", "down"]),
    (
        {
            "vocab_size": 1000, "context_length": 512, "d_model": 128, "n_heads": 4, "n_layers": 3, "d_ff": 512, "model_type": "gpt_neox",
            "attention": {"qkv": "fused_per_head"}, "block": "parallel_two_norms", "positions": {"type": "rope", "rotary_dim": 8},
            "head": {"tied": False},
        },
        ["qkv", "o", "up", "down"],
    ),
    (MIXTRAL, ["q", "k", "v", "o"]),
    (
        WITHOUT_FEED_FORWARD
        | {"model_type": "qwen3_moe", "attention": NORMS, "head_dim": 32}
        | {"experts": {"count": 8, "top_k": 2, "d_ff": 96, "scores_dtype": "compute"}},
        ["q", "k", "v", "o"],
    ),
)  # fmt: skip
METHODS = ("lora", "lora", "rslora", "dora", "dora", "ia3", "prompt", "prefix")


def draws(seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield models with settings of fine-tuning."""
    of = random.Random(seed)  # noqa: S311 - not for secrets
    while True:
        model, linears = of.choice(MODELS)
        kind, full = of.choice(METHODS), of.random() < 0.5
        settings: dict[str, Any] = {"train": "adapters", "precision": of.choice(["bf16", "fp32", "bf16-autocast"])}
        settings["recompute"] = "full" if full and kind != "prefix" else "none"
        adapters: dict[str, Any] = {"type": kind}
        if kind in ("prompt", "prefix"):
            adapters["virtual_tokens"] = of.choice([4, 8])
        elif kind != "ia3":
            adapters |= {"rank": of.choice([2, 4, 8]), "dropout": of.choice([0, 0, 0.1])}
            adapters |= {"targets": of.sample(linears, of.randint(1, 3))} if of.random() < 0.5 else {}
        adapters |= {"dtype": "base"} if of.random() < 0.3 else {}
        base: dict[str, Any] = {}
        if of.random() < 0.5:
            base = {"format": of.choice(["nf4", "fp4"]), "double_quant": of.random() < 0.5, "prepare": of.random() < 0.5}
            base |= {"compute_dtype": of.choice(["bf16", "fp32"])}
        base |= {"dtype": of.choice(["bf16", "fp32"])} if base or (settings["precision"] != "fp32" and of.random() < 0.5) else {}
        settings |= {"adapters": adapters} | ({"base": base} if base else {})
        settings |= {"padding": True} if of.random() < 0.25 else {}
        settings |= {"also_train": [of.choice(["embedding", "head"])]} if of.random() < 0.2 and kind not in ("prompt", "prefix") else {}
        yield model, settings | {"sequence_length": of.choice([64, 64, 512])}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_fine_tuning_equals_its_plan(seed: int) -> None:
    for model, settings in draws(seed):
        try:
            differences = checked(model, settings, (("parameters",), ("kept", "flops", "step")))
        except (SpecError, UnsupportedError):
            continue  # the next draw
        assert differences == [], (model["model_type"], settings)
        return
