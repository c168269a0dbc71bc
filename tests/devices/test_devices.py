from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from planner import devices
from planner.report import quantity

CATALOGUE = yaml.safe_load((Path(devices.__file__).parent / "devices.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        # github.com/modal-labs/modal-client/pull/2797: totals that nvidia-smi prints, H100 also as 85,520,809,984 bytes
        ("h100-80gb", Fraction(85_520_809_984, 2**20)),
        ("A10-24GB", 23_028),
        ("l40s", 46_068),
        ("L4", 23_034),
        ("a100", 81_251),  # nvidia-smi 470, NVIDIA A100-SXM4-80GB: 0MiB / 81251MiB
        ("A100-40GB-SXM", 40_536),  # github.com/nanopool/phoenix-miner/issues/17, nvidia-smi 470.82.01
        ("mi300x", Fraction(206_141_652_992, 2**20)),  # rocm-smi: VRAM Total Memory (B): 206141652992
    ],
)
def test_memory_is_what_software_reports(name: str, mib: Fraction) -> None:
    device = devices.find(name)
    assert device is not None
    assert device.memory_bytes == mib * 2**20
    assert device.source


def test_no_two_devices_share_a_name() -> None:
    names = [name.lower() for entry in CATALOGUE["devices"] for name in (entry["name"], *entry["aliases"])]
    assert len(names) == len(set(names))
    assert {entry["source"] for entry in CATALOGUE["devices"]} == set(CATALOGUE["sources"])


def test_a_device_name_is_an_amount_of_memory_only() -> None:
    amount = quantity.parse("H100-80gb", "bytes", bare=False)
    assert (amount.text, int(amount.value)) == ("H100-80GB-SXM", 81_559 * 2**20)
    assert quantity.spelled_out(amount) == "H100-80GB-SXM (79.65 GiB, 85,520,809,984 bytes)"
    assert quantity.spelled_out(quantity.parse("80GB", "bytes")) == "80GB (74.51 GiB, 80,000,000,000 bytes)"
    with pytest.raises(ValueError, match="did you mean H100-80GB-SXM"):
        quantity.parse("h100-81gb", "bytes")
    with pytest.raises(ValueError, match="use a number and a unit"):
        quantity.parse("h100", "parameters")


def test_device_classes_of_specs_are_in_the_device_catalog() -> None:
    assert [devices.find(name) is not None for name in ("a100", "h100", "cpu")] == [True, True, False]
