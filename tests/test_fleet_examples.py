"""The examples of specs/fleet/: plans of spec files on several devices equal measured ranks of full size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import planner
from planner.capacity.figures import Plan
from planner.report import units
from planner.report.columns import COLUMNS, ON_DEVICES, TIME
from tests.capacity import fleet_steps

FLEET = Path(__file__).parent.parent / "specs" / "fleet"
SPECS = sorted(FLEET.glob("*.yaml"))
POSITION_IDS = 512  # bytes, which transformers passes to its layers and the program of the table does not


def plans(name: str) -> dict[str, Plan]:
    return {plan.scenario: plan for plan in planner.plans(FLEET / f"{name}.yaml")}


def test_llama_3_8b_on_8_devices_equals_pytorch() -> None:
    (case,) = (case for case in fleet_steps.cases() if case["kind"] == "llama3_8b")
    made = plans("llama-3-8b-8-h100")["base"]
    assert made.fleet is not None
    assert made.fleet.params == int(case["params_local"])
    assert (made.memory.master_weights_bytes, made.memory.gradients_bytes) == (int(case["param_bytes"]), int(case["grad_bytes"]))
    sent = {one.collective: one.bytes for one in made.fleet.traffic}
    assert sent == {"all-gather": int(case["all_gather_bytes"]), "reduce-scatter": int(case["reduce_scatter_bytes"])}
    assert abs(made.memory.activations_bytes - int(case["saved_bytes"])) <= POSITION_IDS
    assert abs(made.memory.peak_bytes - int(case["peak_bytes"])) <= POSITION_IDS


def test_recomputation_lets_two_sequences_fit() -> None:
    made = plans("llama-3-8b-8-h100")
    assert round(made["recompute"].memory.peak_bytes / 2**30, 2) == 41.16  # measured by the same program
    # An H100 has 81,559 MiB, of which 2 GiB are reserved.
    free = {scenario: plan.fleet.free_bytes for scenario, plan in made.items() if plan.fleet}
    assert free["base"] == 81_559 * 2**20 - 2 * 2**30 - made["base"].memory.peak_bytes
    assert free["recompute"] > free["base"] > 0 > free["two-sequences"]


def test_copies_on_two_devices_hold_everything_and_buckets() -> None:
    # GPT-2 has 124,439,808 parameters. float32: weights, gradients and two moments of 4 bytes; the buckets of DDP add 4 bytes.
    copies, shared = plans("gpt2-2-a100").values()
    assert copies.memory.model_states_bytes == 16 * 124_439_808
    assert copies.fleet is not None
    assert dict(copies.fleet.buffers) == {"gradient buckets of DDP": 4 * 124_439_808}
    assert copies.fleet.traffic[0].bytes == 4 * 124_439_808
    assert 0 < shared.memory.optimizer_bytes < copies.memory.optimizer_bytes
    # the larger part of 8 bytes per parameter: at least half, and at most half and the largest weight, 50,257 · 768
    assert 4 * 124_439_808 <= shared.memory.optimizer_bytes <= 4 * 124_439_808 + 8 * 50_257 * 768


def test_the_stages_of_deepseek_v3_have_all_of_its_parameters() -> None:
    fleet = plans("deepseek-v3-2048-h800")["base"].fleet
    assert fleet is not None
    # 671,026,404,352 in the published weights without the prediction layer. Each of 64 devices has 4 of the 256 experts of 58 layers, whose
    # three matrices are of 7168 x 2048. The vocabulary of 129,280 needs no padding.
    of_others = 58 * (256 - 4) * 3 * 7168 * 2048
    assert sum(rank.params for rank in fleet.ranks) == 671_026_404_352 - of_others


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_each_example_has_every_column_of_a_cluster(path: Path) -> None:
    for plan in planner.plans(path):
        assert all(isinstance(column.read(plan), int) for column in ON_DEVICES if column.method != TIME)
        assert list(plan.to_frame().columns) == [column.name for column in (*COLUMNS, *ON_DEVICES)]


def test_the_table_of_examples_has_the_planned_peaks() -> None:
    page = (FLEET.parent.parent / "docs" / "devices.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `([\w.-]+)` \|[^|]+\| ([\d.]+ GiB) \|", page, re.MULTILINE))
    assert shown == {name: units.memory(plans(name)["base"].memory.peak_bytes) for name in shown}
    assert {path.stem for path in SPECS} - shown.keys() == {"gpt2-1-a100", "gpt2-2-a100"}
