"""Devices that share sequences: those whose plans are made stand for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.capacity.context_parallel import unlike_devices
from planner.capacity.parameters import parameters
from planner.capacity.plan import memory
from planner.capacity.shares import share
from planner.explore import fit
from planner.spec.records import Training
from planner.trace.decoder import trace

SPEC = """\
name: a
extends: catalog/llama-3-8b
model: {{vocab_size: 64, d_model: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2, d_ff: 192, head_dim: 16, context_length: 4096}}
training: {{batch_size: 2, sequence_length: {length}, precision: bf16, loss: cross_entropy_float32, recompute: {recompute}}}
cluster: {{device: {{memory: 80GiB}}, devices: {devices}}}
layout: {{context_parallel: {devices}, context_kind: {kind}}}
"""


def spec_of(tmp_path: Path, devices: int, kind: str, *, length: int = 64, recompute: str = "none") -> planner.Spec:
    path = tmp_path / "a.yaml"
    text = SPEC.format(devices=devices, kind=kind, length=length, recompute=recompute)
    path.write_text(text.replace("precision", "device: a100, precision"), encoding="utf-8")
    return planner.load(path)


@pytest.mark.parametrize("kind", ["ring", "all_gather"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_device_has_a_larger_peak_than_the_planned_ones(tmp_path: Path, devices: int, recompute: str, kind: str) -> None:
    spec = spec_of(tmp_path, devices, kind, length=16 * devices, recompute=recompute)
    training = spec.scenarios[0].training

    def peak(number: int) -> int:
        forward = trace(spec.model, training, context_rank=number)
        held = share(forward, parameters(forward).weights, training, number)
        made = memory(forward, held, training).peak_bytes
        assert isinstance(made, int)
        return made

    peaks = [peak(number) for number in range(devices)]
    planned = planner.plan(spec)
    assert planned.fleet is not None
    assert planned.memory.peak_bytes == max(peaks)
    assert [one.peak_bytes for one in planned.fleet.ranks] == [peaks[number] for number in unlike_devices(training)]


def test_devices_that_exchange_heads_are_alike(tmp_path: Path) -> None:
    training = spec_of(tmp_path, 2, "ulysses").scenarios[0].training
    assert unlike_devices(training) == unlike_devices(Training(1, 8)) == ()
    assert unlike_devices(replace(training, implementation="megatron-core")) == ()


def test_the_longest_sequences_are_equal_parts(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 4, "ring")
    limit = planner.plan(spec_of(tmp_path, 4, "ring", length=400)).memory.peak_bytes + 1
    (found,) = fit.fits(spec, "base", limit, ("sequence_length",))
    assert (found.largest, found.step) == (400, 8)
