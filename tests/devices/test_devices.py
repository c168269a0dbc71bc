from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

import planner
from planner import devices
from planner.cli import main
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
    assert device.sources["memory"]


def test_no_two_devices_share_a_name() -> None:
    names = [name.lower() for entry in CATALOGUE["devices"] for name in (entry["name"], *entry["aliases"])]
    assert len(names) == len(set(names))
    cited = {group["source"] for entry in CATALOGUE["devices"] for group in entry.values() if isinstance(group, dict)}
    assert cited == set(CATALOGUE["sources"])


def test_rates_are_dense() -> None:
    found = {one.name: one for one in devices.entries()}
    # H100: 512 multiply-adds a cycle in each of 528 tensor cores at 1,830 MHz; A100: 256 in each of 432 at 1,410 MHz
    assert found["H100-80GB-SXM"].tflops["bf16"] == pytest.approx(2 * 512 * 528 * 1.830e9 / 1e12, rel=1e-3)
    assert found["A100-80GB-SXM"].tflops["bf16"] == pytest.approx(2 * 256 * 432 * 1.410e9 / 1e12, rel=1e-3)
    for one in found.values():
        assert all(rate <= one.tflops[kind] for kind, rate in one.matmul_tflops.items())
        assert "bf16" not in one.tflops if one.name.startswith(("V100", "T4")) else True  # their tensor cores have none


@pytest.mark.parametrize(("name", "devices_per_node"), [("H100-80GB-SXM", 8), ("GB200-186GB", 72), ("GH200-96GB", 1)])
def test_nodes_are_as_large_as_in_the_catalog(name: str, devices_per_node: int) -> None:
    cluster = {"cluster.device": name, "cluster.devices": 144, "training.device": "h100"}
    spec = planner.load("specs/fleet/llama-3-8b-8-h100.yaml", set=cluster)
    layout = spec.scenarios[0].training.layout
    assert layout is not None
    assert layout.cluster.per_node == devices_per_node


def test_a_list_of_devices_has_the_source_of_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--devices", "h100", "--format", "json"]) == 0
    for one in json.loads(capsys.readouterr().out):
        groups = {"tflops": "tflops", "matmul_tflops": "matmul_tflops", "gb_per_s": "bandwidth", "link": "link", "watts": "power"}
        assert {group for figure, group in groups.items() if one[figure]} | {"memory"} == set(one["sources"])
    assert main(["list", "--devices", "h100-80gb-pcie"]) == 0
    assert "H100-80GB-PCIe" in capsys.readouterr().out
    assert main(["list", "--devices", "h1000"]) == 1
    assert "similar: H100" in capsys.readouterr().err


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
