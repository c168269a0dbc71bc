"""Every spec of the catalog can be planned and has the parameter count of the released model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import planner
import planner.spec
from planner.report.columns import CLAIMABLE

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.yaml"))

# Official counts of each model, from the safetensors index or the paper.
RELEASED = {
    "bloom-176b": 176_247_271_424,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-small": 124_439_808,
    "gpt2-small-no-qkv-bias": 124_412_160,
    "gpt2-small-no-qkv-bias-untied": 163_009_536,
    "gpt2-xl": 1_557_611_200,
    "gpt3-175b": 174_604_259_328,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mpt-7b": 6_649_286_656,
    "olmo-2-7b": 7_298_617_344,
    "olmo-7b": 6_888_095_744,
    "opt-175b": 174_604_468_224,
    "phi-2": 2_779_683_840,
    "pythia-6.9b": 6_857_302_016,
    "qwen2-7b": 7_615_616_512,
    "qwen3-32b": 32_762_123_264,
    "qwen3-8b": 8_190_735_360,
    "stablelm-2-1.6b": 1_644_515_328,
    "starcoderbase-7b": 7_327_263_232,
}


def test_every_spec_has_a_released_count() -> None:
    assert {path.stem for path in SPECS} == set(RELEASED)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_has_the_released_count(path: Path) -> None:
    spec = planner.load(path)
    assert spec.name == path.stem
    assert spec.sources
    assert "params_total" in {claim.figure for claim in spec.claims}
    base, *_ = plans = planner.plans(spec)
    assert [plan.scenario for plan in plans] == [scenario.name for scenario in spec.scenarios]
    assert base.parameters.total == RELEASED[spec.name]
    for claim in spec.claims:
        assert CLAIMABLE[claim.figure].read(base) == claim.value


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_first_line_of_a_spec_names_its_schema(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match
    assert (path.parent / match[1]).is_file()


def test_gpt2_takes_at_most_a_dozen_lines() -> None:
    lines = (SPECS[0].parent / "gpt2-small.yaml").read_text(encoding="utf-8").splitlines()
    model = lines[lines.index("model:") + 1 : lines.index("training:")]
    assert len(model) <= 12


CATALOG = sorted((Path(__file__).parent.parent / "specs" / "catalog").rglob("*.yaml"))


def test_the_catalog_is_up_to_date() -> None:
    root = Path(__file__).parent.parent
    check = [sys.executable, str(root / "tools" / "catalogue.py"), "--check"]
    run = subprocess.run(check, capture_output=True, encoding="utf-8", env=os.environ | {"PYTHONPATH": str(root)}, check=False)
    assert run.returncode == 0, f"{run.stdout}{run.stderr}\nrun `make catalogue` and look at what changed"


def test_every_published_model_can_be_planned() -> None:
    specs, problems = planner.spec.read(CATALOG)
    assert not problems
    assert len(specs) == 310
    for spec in specs:
        plan = planner.plan(spec)
        assert {claim.figure for claim in spec.claims} == {"params_total", "params_active"}
        assert all(CLAIMABLE[claim.figure].read(plan) == claim.value for claim in spec.claims), spec.name
