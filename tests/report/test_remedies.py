"""Remedies: each is planned again from a spec with its settings, and the alternatives around it are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import planner
from planner import devices
from planner import spec as spec_package
from planner.capacity import vary
from planner.report.columns import CLAIMABLE
from planner.report.remedies import MOST, Remedy, describe, find_remedies
from planner.spec.records import Spec

ROOT = Path(__file__).parent.parent.parent
GIB = 2**30
SMALL = """\
name: small
model: {vocab_size: 50257, context_length: 256, d_model: 64, n_layers: 12, n_heads: 4}
training: {batch_size: 12, sequence_length: 256, precision: bf16-master%s}
"""


def load(tmp_path: Path, more: str = "") -> Spec:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL % (f", {more}" if more else ""), encoding="utf-8")
    return planner.load(path)


def value(spec: Spec, settings: Mapping[str, object], figure: str = "peak_bytes") -> int | None:
    """Return a metric of the spec's file with settings given as ``--set`` gives them; None if they are refused."""
    sections = {"n_layers": "model"}
    whole = {key if "." in key else f"{sections.get(key, 'training')}.{key}": setting for key, setting in settings.items()}
    overrides = [f"{key}={vary.written(setting)}" for key, setting in whole.items()]
    read, problems = spec_package.read([spec.path], overrides)
    return None if problems else CLAIMABLE[figure].value(planner.plan(read[0]))


def found(spec: Spec, limit: int, figure: str = "peak_bytes", *, sizes: bool = True) -> tuple[Remedy, ...]:
    return find_remedies(spec, "base", figure, Fraction(limit), sizes=sizes)


def limits(spec: Spec) -> list[int]:
    now = value(spec, {}) or 0
    return [now * share // 16 for share in range(16)]


@pytest.mark.parametrize("share", [0.99, 0.8, 0.5, 0.3, 0.2, 0.1])
@pytest.mark.parametrize("more", ["", "recompute: full", "keep_logits: true, optimizer_kernel: for-loop", "optimizer: muon, dropout: 0.1"])
def test_each_remedy_is_within_the_limit_and_its_value_is_exact(tmp_path: Path, share: float, more: str) -> None:
    spec = load(tmp_path, more)
    now = value(spec, {})
    assert now is not None
    limit = int(now * share)
    remedies = found(spec, limit)
    assert len(remedies) <= MOST
    for one in remedies:
        if one.device:
            assert (one.value, one.settings) == (now, {})
            assert (device := devices.find(one.device))
            assert device.memory_bytes >= now
        else:
            assert value(spec, one.settings) == one.value <= limit


def test_no_remedy_is_offered_within_the_limit(tmp_path: Path) -> None:
    spec = load(tmp_path)
    assert found(spec, value(spec, {}) or 0) == ()


def test_a_batch_is_split_into_as_few_passes_as_fit(tmp_path: Path) -> None:
    spec = load(tmp_path)
    splits = {passes: {"batch_size": 12 // passes, "gradient_accumulation": passes} for passes in (2, 3, 4, 6, 12)}
    peaks = {passes: value(spec, settings) or 0 for passes, settings in splits.items()}
    assert sorted(peaks.values(), reverse=True) == list(peaks.values())
    for passes, peak in peaks.items():
        (remedy,) = (one for one in found(spec, peak) if one.settings.keys() == {"batch_size", "gradient_accumulation"})
        assert (remedy.settings, remedy.value) == (splits[passes], peak)


def test_without_a_single_remedy_the_needed_ones_are_combined(tmp_path: Path) -> None:
    spec = load(tmp_path)
    limit = (
        value(spec, {"batch_size": 1, "gradient_accumulation": 12, "recompute": "full", "loss": "linear_cross_entropy_chunked"}) or 0
    ) - 1
    settings = found(spec, limit)[0].settings
    assert len(settings) > 1
    assert (value(spec, settings) or 0) <= limit
    groups = [{"batch_size", "gradient_accumulation"}, *({key} for key in settings if key not in ("batch_size", "gradient_accumulation"))]
    for group in groups:  # none of them can be left out
        without = {key: setting for key, setting in settings.items() if key not in group}
        assert without == settings or (value(spec, without) or limit + 1) > limit


def test_a_waste_is_named_first(tmp_path: Path) -> None:
    spec = load(tmp_path, "keep_logits: true, implementation: transformers-eager, loss: cross_entropy")
    limit = (value(spec, {}) or 0) - 1
    assert [dict(one.settings) for one in found(spec, limit)][:2] == [{"keep_logits": False}, {"implementation": "transformers"}]


def test_a_refused_combination_is_not_offered(tmp_path: Path) -> None:
    spec = load(tmp_path, "optimizer_kernel: foreach")
    assert value(spec, {"optimizer": "adamw-8bit"}) is None  # optimizer_kernel requires adamw or adam
    offered = {key for limit in limits(spec) for one in found(spec, limit) for key in one.settings.items()}
    assert ("recompute", "full") in offered
    assert ("optimizer", "adamw-8bit") not in offered


def test_the_architecture_is_kept_except_for_a_limit_on_parameters(tmp_path: Path) -> None:
    spec = load(tmp_path)
    total = value(spec, {}, "params_total") or 0
    layer = 12 * 64**2 + 13 * 64  # parameters of a layer
    assert [(dict(one.settings), one.value) for one in found(spec, total - layer, "params_total")] == [({"n_layers": 11}, total - layer)]
    assert [dict(one.settings) for one in found(spec, total - 3 * layer, "params_total")] == [{"n_layers": 9}]
    assert found(spec, total - 3 * layer - 1, "params_total") == ()  # 8 of 12 layers would be another model
    assert all("n_layers" not in one.settings for limit in limits(spec) for one in found(spec, limit))


def test_the_sequence_is_shortened_to_a_quarter_at_most(tmp_path: Path) -> None:
    spec = load(tmp_path, "steps: 10")
    # 6 N plus attention per token, so halving the tokens of a step halves 10 steps or less
    now = value(spec, {}, "train_flops") or 0
    batch, length = found(spec, now // 2, "train_flops")
    assert (dict(batch.settings), set(length.settings)) == ({"batch_size": 6}, {"sequence_length"})
    assert 128 <= length.settings["sequence_length"] <= 256  # type: ignore[operator]  # an integer
    assert [set(one.settings) for one in found(spec, now // 5, "train_flops")] == [{"batch_size"}]


def test_the_smallest_device_that_is_large_enough() -> None:
    spec = planner.load(ROOT / "specs/llama-3-8b.yaml")
    # 16 bytes for each of 8.03 B parameters and bf16 copies of the weights: no more than 8 bits per moment helps with 80 GB
    (remedy,) = (one for one in found(spec, 80 * 10**9, sizes=False) if one.device)
    by_memory = sorted((device.memory_bytes, device.name) for device in map(devices.find, NAMES) if device)
    assert remedy.device == next(name for memory, name in by_memory if memory >= remedy.value)
    assert describe(remedy).startswith(f"device: {remedy.device} (")


NAMES = ("A100-80GB-SXM", "H100-80GB-SXM", "H200-141GB-SXM", "B200-180GB-SXM", "GB200-186GB", "MI300X-192GB", "B300-288GB-SXM")


def test_the_number_of_plans_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, planned, calls = load(tmp_path), vary.planned, []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return planned(*arguments)  # type: ignore[arg-type]  # passed through

    counting: Callable[..., object] = counted
    monkeypatch.setattr(vary, "planned", counting)
    for limit in limits(spec):
        calls.clear()
        found(spec, limit)
        assert len(calls) <= 80


def test_a_remedy_is_one_line(tmp_path: Path) -> None:
    remedy = Remedy("peak_bytes", 3 * GIB, {"batch_size": 1024, "gradient_accumulation": 8})
    assert describe(remedy) == "batch_size: 1,024, gradient_accumulation: 8 → 3.000 GiB"
    assert describe(Remedy("peak_bytes", GIB, {"use_cache": False})) == "use_cache: false → 1.000 GiB"
    assert all("\n" not in describe(one) for one in found(load(tmp_path), 10**8))


ON_DEVICES = """\
name: on-devices
model: {vocab_size: 1024, context_length: 256, d_model: 128, n_layers: 8, n_heads: 8, head: {tied: false}}
training: {batch_size: 4, sequence_length: 256, precision: fp32, optimizer_kernel: fused, device: h100}
cluster: {device: {memory: 80GiB}, devices: 4}
layout: {data_parallel: ddp}
"""


def on_devices(tmp_path: Path, data_parallel: str) -> Spec:
    path = tmp_path / "on-devices.yaml"
    path.write_text(ON_DEVICES.replace("ddp", data_parallel), encoding="utf-8")
    return planner.load(path)


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5, 0.3])
@pytest.mark.parametrize("data_parallel", ["ddp", "zero1", "fsdp"])
def test_each_layout_is_within_the_limit_and_its_value_is_exact(tmp_path: Path, data_parallel: str, share: float) -> None:
    spec = on_devices(tmp_path, data_parallel)
    limit = int((value(spec, {}) or 0) * share)
    for one in found(spec, limit):
        assert value(spec, one.settings) == one.value
        assert one.value <= limit or "cluster.device" in one.settings


def test_weights_are_shared_if_copies_do_not_fit(tmp_path: Path) -> None:
    spec = on_devices(tmp_path, "ddp")
    shared = value(spec, {"layout.data_parallel": "fsdp"})
    assert shared is not None
    assert {"layout.data_parallel": "fsdp"} in [one.settings for one in found(spec, shared)]
    assert {"layout.data_parallel": "fsdp"} not in [one.settings for one in found(spec, shared - 1)]


def test_more_devices_are_the_fewest_with_which_weights_in_parts_fit(tmp_path: Path) -> None:
    spec = on_devices(tmp_path, "fsdp")
    peaks = {count: value(spec, {"cluster.devices": count}) or 0 for count in (4, 5, 6, 7, 8, 16, 24)}
    assert sorted(peaks.values(), reverse=True) == list(peaks.values())
    for count in (5, 7, 16, 24):
        more = [one for one in found(spec, peaks[count]) if "cluster.devices" in one.settings]
        assert [(one.settings, one.value) for one in more] == [({"cluster.devices": count}, peaks[count])]
    assert not [one for one in found(on_devices(tmp_path, "ddp"), 1) if "cluster.devices" in one.settings]


def test_fewer_devices_are_a_remedy_for_padding(tmp_path: Path) -> None:
    # Of 2^20 devices each has a row of a weight, so a weight of 128 rows of 512 bytes is gathered as 2^20 rows.
    path = tmp_path / "many.yaml"
    path.write_text(ON_DEVICES.replace("ddp", "fsdp").replace("devices: 4", f"devices: {2**20}"), encoding="utf-8")
    spec = planner.load(path)
    (few,) = (one for one in found(spec, GIB) if "cluster.devices" in one.settings)
    assert few.settings == {"cluster.devices": 2}
    assert few.value == value(spec, few.settings)
