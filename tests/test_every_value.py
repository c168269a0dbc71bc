"""Every allowed value of a key can be planned: a value in the schema that is not modeled fails here, not at a user's.

With CHANGES=all (make sweep), each value is planned with all models, not until one is valid with it.
"""

from __future__ import annotations

import json
import os
import random
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

import planner
from planner import capacity, spec
from planner.capacity.flops import DESCRIPTIONS
from planner.spec import records
from planner.spec.language import leaves
from planner.spec.mixers import RECORDS
from planner.spec.precision import RECIPES
from planner.trace.implementations import IMPLEMENTATIONS
from planner.trace.unsupported import UnsupportedError

SIZES: dict[str, Any] = {"vocab_size": 101, "context_length": 24, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48}
ROUTED = {"experts": {"count": 6, "top_k": 2, "d_ff": 24}, "positions": "rope", "attention": {"qkv": "separate"}}
LLAMA: dict[str, Any] = {  # whose sizes are whole blocks of GGUF types
    "vocab_size": 512, "context_length": 24, "d_model": 256, "n_layers": 2, "n_heads": 4, "d_ff": 512, "positions": "rope",
    "attention": {"qkv": "separate"}, "feed_forward": {"type": "gated", "activation": "silu", "bias": False}, "norm": {"type": "rmsnorm"},
}  # fmt: skip
SERVABLE = (LLAMA, LLAMA | {"experts": {"count": 6, "top_k": 2, "d_ff": 512}})
MIXERS: dict[str, dict[str, int]] = {
    "latent_attention": {"kv_rank": 10, "nope_dim": 8, "rope_dim": 4, "v_dim": 6},
    "mamba": {"d_inner": 64},
    "mamba2": {"d_inner": 64, "d_state": 8, "n_heads": 4, "n_groups": 2},
    "gated_delta_net": {"n_key_heads": 2, "n_value_heads": 4, "key_dim": 8, "value_dim": 6},
    "kimi_delta_attention": {"n_heads": 4, "head_dim": 8},
    "lightning_attention": {"n_heads": 4, "head_dim": 8},
    "rg_lru": {"width": 32, "n_blocks": 2},
    "rwkv": {"width": 32},
    "short_convolution": {},
    "mlstm": {"n_heads": 2, "qk_dim": 16, "v_dim": 32},
}
VISION: dict[str, Any] = {"patches": {"image": 12, "size": 4}, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24}
ELSEWHERE = "training.mixer_kernels"  # a class that runs them is needed: tests/capacity/test_mixer_steps.py
BASES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (  # no model allows all values
    (SIZES, {}),
    (SIZES | ROUTED, {"optimizer": "muon"}),
    (SIZES | {"norm": {"type": "rmsnorm"}}, {"precision": "bf16-master"}),
    (SIZES, {"precision": "fp16-master"}),
    (SIZES, {"precision": "bf16-master", "implementation": "megatron-core"}),
    (SIZES, {"train": "adapters", "adapters": {"rank": 4}, "base": {"dtype": "bf16"}}),
    (SIZES, {"train": "adapters", "adapters": {"rank": 4}, "base": {"format": "nf4"}}),
    (SIZES, {"train": "adapters", "adapters": {"targets": "all-linear"}}),
    (SIZES | ROUTED, {"train": "adapters", "adapters": {"virtual_tokens": 4}, "implementation": "transformers"}),
    (SIZES | {"embedding_dim": 16}, {}),
    (SIZES | {"encoder": {"n_layers": 2}, "attention": {"qkv": "separate"}}, {}),
    (SIZES | {"vision": VISION}, {"implementation": "transformers"}),
    (SIZES | {"causal": False, "head": {"type": "classes", "classes": 3, "tied": False}}, {}),
)
CLUSTER = {"device": "H100-80GB-SXM", "devices": 8}
LAYOUTS: tuple[dict[str, Any], ...] = (  # no layout allows all values
    {"pipeline_parallel": 2},
    {"pipeline_parallel": 1, "data_parallel": "fsdp"},
    {"pipeline_parallel": 1, "shard_degree": 4},
    {"pipeline_parallel": 1, "virtual_stages": 2},
)
OTHERS = ("layout.", "serving.", ELSEWHERE)
VALUES = [(key, value) for key, part in leaves().items() for value in part.get("enum", ()) if not key.startswith(OTHERS)]
SERVED = [(key, value) for key, part in leaves().items() for value in part.get("enum", ()) if key.startswith("serving.")]
LAID = [(key, value) for key, part in leaves().items() for value in part.get("enum", ()) if key.startswith("layout.")]


def planned(path: Path, model: dict[str, Any], training: dict[str, Any], *overrides: str) -> int:
    """Return the number of plans of a spec: 0 if it is rejected."""
    path.write_text(json.dumps({"name": "x", "model": model, "training": training}), encoding="utf-8")
    specs, problems = spec.read([path], overrides)
    assert bool(specs) != bool(problems)
    try:
        return sum(len(capacity.plans(one)) for one in specs)
    except UnsupportedError:
        return 0


def laid(path: Path, key: str, value: str) -> list[str]:
    """Return the layouts with a value that are valid: "planned", or the error that refuses them."""
    written = {"name": "x", "model": SIZES | {"vocab_size": 96}, "training": {"gradient_accumulation": 4}, "cluster": CLUSTER}
    found = []
    for layout in LAYOUTS:
        path.write_text(json.dumps({**written, "layout": {**layout, key: value}}), encoding="utf-8")
        for one in spec.read([path])[0]:
            try:
                found.append("planned" if capacity.plans(one) else "")
            except UnsupportedError as error:
                found.append(str(error))
    return found


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_every_value_of_a_key_can_be_planned(tmp_path: Path, key: str, value: str) -> None:
    bases = random.Random(f"{key}={value}").sample(BASES, len(BASES))  # noqa: S311 - not for secrets
    plans = (planned(tmp_path / "x.yaml", *base, f"{key}={value}") for base in bases)
    assert sum(plans) if os.environ.get("CHANGES") == "all" else any(plans), "no base is valid with it"


@pytest.mark.parametrize(("key", "value"), LAID)
def test_every_value_of_a_layout_can_be_planned_or_is_refused_by_name(tmp_path: Path, key: str, value: str) -> None:
    answers = laid(tmp_path / "x.yaml", key.removeprefix("layout."), value)
    assert answers
    assert all(answer == "planned" or "not modeled yet" in answer for answer in answers)


@pytest.mark.parametrize("name", RECORDS)
def test_every_mixer_can_be_planned(tmp_path: Path, name: str) -> None:
    assert planned(tmp_path / "x.yaml", SIZES | {"mixer": name, name: MIXERS[name]}, {})


@pytest.mark.parametrize(
    ("table", "names"),
    [(IMPLEMENTATIONS, records.Implementation), (RECIPES, records.Precision), (DESCRIPTIONS, records.FlopsConvention)],
)
def test_a_table_has_an_entry_for_every_value_of_its_key(table: dict[str, object], names: object) -> None:
    assert set(table) == set(get_args(names))


@pytest.mark.parametrize(("key", "value"), SERVED)
def test_every_value_of_serving_can_be_served(key: str, value: str) -> None:
    found = []
    for engine, model in product(leaves()["serving.engine"]["enum"], SERVABLE):
        written = {"serving.engine": engine, "serving.prompt": 8, key: value}
        try:
            found.append(planner.serve({"name": "x", "model": model}, set=written))
        except (spec.SpecError, UnsupportedError):
            continue
    assert found, "no engine is valid with it"
