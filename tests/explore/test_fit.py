from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner import spec as spec_package
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
    assert {one.setting for one in found} == set(fit.SETTINGS)
    for one in found:
        section = "model" if one.setting in ("n_layers", "d_model") else "training"
        if one.largest is not None:
            assert peak(path, "base", f"{section}.{one.setting}={one.largest}") == one.peak_bytes
            assert one.peak_bytes is not None
            assert one.peak_bytes <= memory
        beyond = (one.largest or 0) + one.step
        _, problems = spec_package.read([path], [f"{section}.{one.setting}={beyond}"])
        assert problems or peak(path, "base", f"{section}.{one.setting}={beyond}") > memory


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
