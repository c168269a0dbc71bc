"""The search for the best layout equals plans of every layout, one by one."""

from __future__ import annotations

import csv
import io
import json
from itertools import product
from pathlib import Path

import pytest
import yaml

import planner
from planner import devices
from planner.capacity.figures import Plan
from planner.cli import main
from planner.explore import best_layouts
from planner.explore.found import RECOMPUTE, SHARING, Found
from planner.spec import SpecError
from planner.spec.edits import changed
from planner.time.estimate import estimate
from planner.trace.unsupported import UnsupportedError

MODEL = {
    "vocab_size": 1024,
    "context_length": 256,
    "d_model": 256,
    "n_layers": 4,
    "n_heads": 4,
    "norm": {"type": "rmsnorm"},
    "attention": {"bias": False},
    "head": {"tied": False},
}
TRAINING = {"batch_size": 1, "sequence_length": 256, "global_batch_size": 8, "precision": "bf16-master", "device": "h100"}
LOSS = {"pytorch": {"loss": "cross_entropy_float32"}, "megatron-core": {}}
USED = {"pytorch": 35 * 2**20, "megatron-core": 130 * 2**20}  # memory of a device, of which not all layouts leave some
DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "virtual_stages")


def spec_of(implementation: str) -> planner.Spec:
    device = devices.find("H100-80GB-SXM")
    assert device
    written = {
        "name": "small",
        "model": MODEL,
        "training": {
            **TRAINING,
            "implementation": implementation,
            "gradient_dtype": "fp32",
            "optimizer_kernel": "fused",
            **LOSS[implementation],
        },
        "cluster": {"device": "H100-80GB-SXM", "devices": 4, "reserve": f"{device.memory_bytes - USED[implementation]}bytes"},
        "layout": {"data_parallel": "zero1" if implementation == "megatron-core" else "fsdp"},
    }
    return planner.load(written)


def one_by_one(spec: planner.Spec) -> list[tuple[Plan, tuple[int | str, ...]]]:
    """Plan every layout through the spec's own keys, and return those that fit, each with the least recomputation."""
    found: list[tuple[Plan, tuple[int | str, ...]]] = []
    by_megatron = spec.scenarios[0].training.by_megatron
    for tensor, stages, context, virtual, batch in product((1, 2, 4), (1, 2, 4), (1, 2, 4), (1, 2, 4), (1, 2, 4, 8)):
        if tensor * stages * context not in (1, 2, 4) or (virtual > 1 and stages == 1):
            continue
        settings: dict[str, int | str] = {
            **{f"layout.{name}": size for name, size in zip(DEGREES, (tensor, stages, context, virtual), strict=True)},
            "layout.sequence_parallel": str(tensor > 1).lower(),
            "layout.loss_parallel": str(tensor > 1 and not by_megatron).lower(),
            "layout.schedule": "interleaved" if virtual > 1 else "1f1b",
            "training.batch_size": batch,
        }
        kinds = ("zero1",) if by_megatron else ("ddp", "zero1", "fsdp")
        for shares in kinds if tensor * stages < 4 else ("ddp",):
            settings["layout.data_parallel"] = shares
            of_fsdp = {"layout.reshard_after_forward": "never"} if shares == "fsdp" and stages > 1 else {}
            for recompute in ("none", "selective", "full"):
                overrides = [f"{key}={value}" for key, value in (settings | of_fsdp).items()]
                try:
                    made = planner.plan(changed(spec, overrides=overrides), recompute=recompute)
                except (SpecError, UnsupportedError):
                    continue
                assert made.fleet
                if made.fleet.free_bytes >= 0:
                    found.append((made, (tensor, stages, context, virtual, shares, batch, recompute)))
                    break
    return found


def searched(spec: planner.Spec, fixed: dict[str, int | str] | None = None) -> best_layouts.Search:
    scenario = spec.scenarios[0]
    assert scenario.training.layout
    return best_layouts.search(spec, scenario, [scenario.training.layout.cluster], 8, lambda *_: None, fixed)


def simplicity(one: Found) -> tuple[int, ...]:
    """Return what orders layouts whose times are equal."""
    layout, training = one.layout, one.training
    degrees = layout.tensor_parallel, layout.context_parallel, layout.expert_parallel, layout.virtual_stages, training.batch_size
    return one.devices, layout.pipeline_parallel, RECOMPUTE.index(training.recompute), SHARING.index(layout.data_parallel), *degrees


def key(one: Found) -> tuple[int | str, ...]:
    return (*(getattr(one.layout, name) for name in DEGREES), one.layout.data_parallel, one.training.batch_size, one.training.recompute)


@pytest.mark.parametrize("implementation", ["pytorch", "megatron-core"])
def test_the_search_finds_what_plans_of_every_layout_find(implementation: str) -> None:
    spec = spec_of(implementation)
    made, expected = searched(spec), one_by_one(spec)
    assert made.too_large
    assert {key(one) for one in made.found} == {name for _, name in expected}
    for plan, name in expected:
        (one,) = (one for one in made.found if key(one) == name)
        of_plan = estimate(plan)
        assert one.peak_bytes == plan.memory.peak_bytes
        assert one.time.mfu == pytest.approx(of_plan.mfu)
        assert (one.time.seconds, one.time.shares) == (of_plan.seconds, of_plan.shares)
    fastest = min(estimate(plan).seconds for plan, _ in expected)
    assert made.found.ranked()[0].time.seconds <= fastest * 1.02  # ties are as in the list's note
    assert made.found.ranked("memory")[0].peak_bytes == min(plan.memory.peak_bytes for plan, _ in expected)
    found = list(made.found)
    assert not any(two.peak_bytes <= one.peak_bytes and two.time.seconds < one.time.seconds for one in made.found.front() for two in found)


def test_equal_layouts_are_in_an_order_of_simplicity_and_fixed_settings_stay() -> None:
    spec = spec_of("pytorch")
    made = searched(spec, {"tensor_parallel": 2})
    assert {one.layout.tensor_parallel for one in made.found} == {2}
    ranked = made.found.ranked()
    assert list(ranked) == list(made.found.ranked())
    first = [one for one in ranked if one.time.seconds <= min(one.time.seconds for one in ranked) * 1.02]
    assert list(ranked[: len(first)]) == sorted(first, key=simplicity)


def test_the_command_writes_what_it_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = tmp_path / "layout.yaml"
    options = ("--fix", "pipeline_parallel=1", "--fix", "tensor_parallel=1", "--explain", "1", "--write", str(layout))
    command = ("layouts", "specs/fleet/gpt2-2-a100.yaml", "--global-batch", "4", *options)
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "The spec's own layout" in printed
    assert "count as equal" in printed
    assert "matrix products of layers" in printed
    main([*command, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    main([*command, "--format", "json"])
    assert [{name: str(value) for name, value in row.items()} for row in json.loads(capsys.readouterr().out)] == rows
    written, sections = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in (Path("specs/fleet/gpt2-2-a100.yaml"), layout))
    again = planner.plan({**written, **sections, "training": {**written["training"], **sections["training"]}, "scenarios": []})
    assert again.fleet
    assert again.memory.peak_bytes == int(rows[0]["peak_bytes"])
    assert round(estimate(again).seconds * 1e6) == int(rows[0]["step_us"])


def test_settings_with_which_more_layouts_are_modeled_are_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--fix", "tensor_parallel=2", "--fix", "pipeline_parallel=1", "--fix", "batch_size=1", "--fix", "recompute=full")
    settings = ("--set", "training.implementation=megatron-core", "--set", "training.loss=default")
    assert main(["layouts", "specs/fleet/llama-3-8b-8-h100.yaml", *options]) == 0
    assert f"More layouts are modeled with {' '.join(settings)}\n" in capsys.readouterr().out
    assert main(["layouts", "specs/fleet/llama-3-8b-8-h100.yaml", *options, *settings]) == 0
    assert "and 0 are not modeled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "8xH100-80GB-SXN"], "did you mean H100-80GB-SXM"),
        (["--devices", "12xH100-80GB-SXM"], "no multiple of the 8 devices of a node"),
        (["--fix", "zero=1"], "cannot fix 'zero'"),
        (["--fix", "tensor_parallel=0"], "must be a whole number above 0"),
        (["--devices", "8xV100-32GB-SXM"], "no rate of bf16 products; known TFLOP/s: fp16 125"),
        (["--global-batch", "0"], "give --global-batch"),
        (["--global-batch", "1000000000000"], "must be from 1 to 1,000,000, not 1,000,000,000,000"),
        (["--devices", "1xH100-80GB-SXM,1xA100-80GB-SXM", "--sort", "cost"], "clusters of one device"),
    ],
)
def test_bad_options_are_refused(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "specs/fleet/llama-3-8b-8-h100.yaml", *options]) == 2
    assert message in capsys.readouterr().err


def test_no_layout_that_fits_is_a_finding() -> None:
    arguments = ["layouts", "llama-3.1-405b", "--devices", "1xH100-80GB-SXM", "--global-batch", "1", "--set", "training.sequence_length=64"]
    assert main(arguments) == 1
