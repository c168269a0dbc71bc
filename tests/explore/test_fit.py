from __future__ import annotations

import json
from pathlib import Path

import pytest

import planner
from planner import spec as spec_package
from planner.cli import main
from planner.explore import fit
from planner.report import quantity

ROOT = Path(__file__).parent.parent.parent
GIB = 2**30


def peak(path: Path, scenario: str, override: str) -> int:
    (spec,), problems = spec_package.read([path], [override])
    assert not problems
    return planner.plan(spec, scenario).memory.peak_bytes


@pytest.mark.parametrize(("name", "memory"), [("gpt2-small", 80 * GIB), ("gpt2-xl", 40 * GIB), ("llama-3-8b", 160 * 10**9)])
def test_the_maximum_fits_and_the_next_value_does_not(name: str, memory: int) -> None:
    path = ROOT / "specs" / f"{name}.yaml"
    found = fit.fits(planner.load(path), "base", memory, fit.SETTINGS)
    assert {one.setting for one in found} == set(fit.SETTINGS) - {"adapters.rank"}
    for one in found:
        section = "model" if one.setting in ("n_layers", "d_model") else "training"
        if one.largest is not None:
            assert peak(path, "base", f"{section}.{one.setting}={one.largest}") == one.peak_bytes
            assert one.peak_bytes is not None
            assert one.peak_bytes <= memory
        beyond = (one.largest or 0) + one.step
        _, problems = spec_package.read([path], [f"{section}.{one.setting}={beyond}"])
        assert problems or peak(path, "base", f"{section}.{one.setting}={beyond}") > memory


def test_adapters_without_a_rank_have_no_largest_one(tmp_path: Path) -> None:
    path = tmp_path / "scaled.yaml"
    path.write_text(
        "name: scaled\nextends: catalog/gpt2\ntraining: {implementation: transformers, train: adapters, adapters: {type: ia3}}\n",
        encoding="utf-8",
    )
    assert "adapters.rank" not in {one.setting for one in fit.fits(planner.load(path), "base", 8 * GIB, fit.SETTINGS)}


@pytest.mark.parametrize("scenario", ["base", "long"])
def test_the_largest_rank_of_adapters(tmp_path: Path, scenario: str) -> None:
    path = tmp_path / "adapters.yaml"
    path.write_text(
        "name: adapters\nextends: catalog/gpt2\n"
        "training: {implementation: transformers, train: adapters, adapters: {rank: 8}}\n"
        "scenarios: [{name: long, batch_size: 4, adapters: {rank: 4}}]\n",
        encoding="utf-8",
    )
    (found,) = fit.fits(planner.load(path), scenario, 8 * GIB, ["adapters.rank"])
    text = path.read_text(encoding="utf-8")
    peaks = []
    for rank in (found.largest or 0, (found.largest or 0) + 1):
        path.write_text(text.replace(f"rank: {found.now}", f"rank: {rank}"), encoding="utf-8")
        peaks.append(planner.plan(planner.load(path), scenario).memory.peak_bytes)
    assert peaks[0] == found.peak_bytes
    assert peaks[0] <= 8 * GIB < peaks[1]


def test_the_limiting_part_is_reported() -> None:
    spec = planner.load(ROOT / "specs/gpt2-small.yaml")
    (batch, length) = fit.fits(spec, "base", 80 * GIB, ("batch_size", "sequence_length"))
    assert "mostly activations" in batch.limited_by
    assert "over) in backward" in batch.limited_by
    assert (length.largest, "the learned position embedding" in length.limited_by) == (1024, True)


def test_nothing_fits_if_the_weights_do_not() -> None:
    # 16 bytes for each of the 8,030,261,248 parameters of Llama 3 8B in training are 128 GB
    (one,) = fit.fits(planner.load(ROOT / "specs/llama-3-8b.yaml"), "base", 80 * 10**9, ("batch_size",))
    assert (one.largest, one.peak_bytes) == (None, None)
    assert "mostly model states" in one.limited_by


def test_the_maximum_equals_that_of_trying_all_values() -> None:
    path = ROOT / "specs/gpt2-small.yaml"
    memory = 5 * GIB
    (one,) = fit.fits(planner.load(path), "base", memory, ("batch_size",))
    tried = [B for B in range(1, 33) if peak(path, "base", f"training.batch_size={B}") <= memory]
    assert one.largest == max(tried)


def test_widths_keep_head_dim_a_multiple_of_8() -> None:
    (one,) = fit.fits(planner.load(ROOT / "specs/gpt2-small.yaml"), "base", 80 * GIB, ("d_model",))
    assert (one.step, (one.largest or 0) % 96) == (96, 0)  # 12 heads of a multiple of 8


def test_the_text_fits_a_terminal() -> None:
    spec = planner.load(ROOT / "specs/llama-3-8b.yaml")
    found = fit.fits(spec, "full-recompute", 160 * GIB, ("batch_size", "n_layers"))
    assert all(len(line) <= 80 for line in fit.text(spec, "full-recompute", quantity.parse("160GiB", "bytes"), found).splitlines())


@pytest.mark.parametrize(("data_parallel", "most"), [("fsdp", 8), ("hsdp, shard_degree: 2", 8), ("ddp", 4)])
def test_the_fewest_devices_fit_and_fewer_do_not(tmp_path: Path, data_parallel: str, most: int) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: {vocab_size: 1024, context_length: 64, d_model: 128, n_layers: 8, n_heads: 8}\n"
        "training: {batch_size: 1, sequence_length: 64, precision: fp32, device: h100}\n"
        f"cluster: {{device: {{memory: 80GiB}}, devices: 4}}\nlayout: {{data_parallel: {data_parallel}}}\n",
        encoding="utf-8",
    )
    memory = peak(path, "base", f"cluster.devices={most}")
    least = {"fsdp": most, "ddp": 1}.get(data_parallel, 2)  # copies do not become smaller
    assert fit.fewest(planner.load(path), "base", memory) == fit.Fewest(4, least, peak(path, "base", f"cluster.devices={least}"))
    none = fit.fewest(planner.load(path), "base", 1)
    assert none == fit.Fewest(4, None, None)


def test_a_global_batch_is_shared_by_the_fewest_devices_that_divide_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: {vocab_size: 1024, context_length: 64, d_model: 128, n_layers: 8, n_heads: 8}\n"
        "training: {batch_size: 1, global_batch_size: 24, sequence_length: 64, precision: fp32, device: h100}\n"
        "cluster: {device: {memory: 80GiB}, devices: 8}\nlayout: {data_parallel: fsdp}\n",
        encoding="utf-8",
    )
    memory = peak(path, "base", "cluster.devices=6")
    found = fit.fewest(planner.load(path), "base", memory)
    counts = [count for count in (2, 3, 4, 6, 8) if peak(path, "base", f"cluster.devices={count}") <= memory]  # divisors of 24
    assert found is not None
    assert found.fewest == min(counts)


def test_the_memory_of_a_cluster_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: {vocab_size: 1024, context_length: 64, d_model: 128, n_layers: 8, n_heads: 8}\n"
        "training: {batch_size: 1, device: h100}\ncluster: {device: {memory: 80GiB}, devices: 1, reserve: 16GiB}\n",
        encoding="utf-8",
    )
    assert main(["fit", str(path), "--for", "batch_size"]) == 0
    assert "64.00 GiB, 68,719,476,736 bytes" in capsys.readouterr().out
    assert main(["fit", str(ROOT / "specs/gpt2-small.yaml")]) == 2
    assert "give --memory" in capsys.readouterr().err


@pytest.mark.parametrize(("ends", "now", "step"), [("", 8, 4), (", first_stage_layers: 1", 10, 3)])
def test_stages_of_a_pipeline_get_a_layer_each(tmp_path: Path, ends: str, now: int, step: int) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        f"name: a\nmodel: {{vocab_size: 1024, context_length: 64, d_model: 128, n_layers: {now}, n_heads: 8}}\n"
        "training: {batch_size: 1, sequence_length: 64, gradient_accumulation: 8, precision: bf16-master, gradient_dtype: fp32, "
        "device: h100, implementation: megatron-core}\n"
        f"cluster: {{device: {{memory: 80GiB}}, devices: 4}}\nlayout: {{pipeline_parallel: 4{ends}}}\n",
        encoding="utf-8",
    )
    memory = peak(path, "base", f"model.n_layers={now + 2 * step}")
    (found,) = fit.fits(planner.load(path), "base", memory, ("n_layers",))
    assert (found.step, found.largest, found.peak_bytes) == (step, now + 2 * step, memory)


def test_the_batch_divides_a_global_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: {vocab_size: 1024, context_length: 64, d_model: 128, n_layers: 2, n_heads: 8}\n"
        "training: {batch_size: 1, global_batch_size: 30, sequence_length: 64, precision: fp32, device: h100}\n"
        "cluster: {device: {memory: 80GiB}, devices: 2}\nlayout: {data_parallel: ddp}\n",
        encoding="utf-8",
    )
    spec, memory = planner.load(path), peak(path, "base", "training.batch_size=5")  # of 1, 3, 5 and 15
    (found,) = fit.fits(spec, "base", memory, ("batch_size",))
    assert (found.largest, found.peak_bytes) == (5, memory)
    (every,) = fit.fits(spec, "base", 1 << 40, ("batch_size",))
    assert (every.largest, every.limited_by) == (15, "all sequences of a device in one pass fit")


def test_the_fewest_devices_hold_whole_groups_of_experts(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nmodel: {vocab_size: 1024, context_length: 64, d_model: 128, n_layers: 4, n_heads: 8, norm: {type: rmsnorm},\n"
        "  experts: {count: 16, top_k: 2, d_ff: 64}}\n"
        "training: {batch_size: 1, global_batch_size: 120, sequence_length: 64, precision: bf16-master, gradient_dtype: fp32,\n"
        "  device: h100, implementation: megatron-core}\n"
        "cluster: {device: {memory: 80GiB}, devices: 80}\n"
        "layout: {data_parallel: zero1, pipeline_parallel: 2, expert_parallel: 8}\n",
        encoding="utf-8",
    )
    found = fit.fewest(planner.load(path), "base", 1 << 40)
    assert found is not None
    assert found.fewest == 16  # 8 devices of each stage share the experts


@pytest.mark.parametrize(("reserve_bytes", "usable"), [(0, 85_520_809_984 - (2 << 30)), (1 << 30, 85_520_809_984)])
def test_a_named_device_keeps_the_reserve_free(tmp_path: Path, capsys: pytest.CaptureFixture[str], reserve_bytes: int, usable: int) -> None:
    """An H100 of 80 GB has 81,559 MiB by its driver. A reserve that is part of the peak is not taken twice."""
    path = tmp_path / "one.yaml"
    path.write_text(f"name: one\nextends: catalog/gpt2\ntraining: {{reserve_bytes: {reserve_bytes}}}\n", encoding="utf-8")
    assert main(["fit", str(path), "--memory", "h100-80gb", "--format", "json", "--for", "batch_size"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["memory_bytes"] == usable
    (found,) = planner.fit(path, "h100-80gb", vary=["batch_size"])
    assert found.largest == made["fits"][0]["largest"]
    assert peak(path, "base", f"training.batch_size={found.largest}") <= usable
    assert peak(path, "base", f"training.batch_size={(found.largest or 0) + 1}") > usable
