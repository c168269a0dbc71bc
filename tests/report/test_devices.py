"""Several devices in reports: the verdict, the memory and traffic of the device with the largest peak, and columns that only they add."""

from __future__ import annotations

import csv as csv_reader
import io
import json
from dataclasses import fields, replace

import pytest

from planner.capacity.figures import Fleet, PhasePeak, Plan, RankPeak, Traffic, Work
from planner.report import csv, datapackage, devices, overview
from planner.report import json as as_json
from planner.report.columns import COLUMNS, ON_DEVICES
from planner.spec.records import Cluster, Layout

# 1 MiB of memory less 1 KiB of reserve and the plan's peak of 20,076 bytes: 1,048,576 - 1,024 - 20,076 = 1,027,476 are free.
LAYOUT = Layout(Cluster("tiny-1MiB", 2**20, 16, per_node=8, reserve_bytes=2**10), tensor_parallel=4, data_parallel="fsdp")
TRAFFIC = (Traffic("all-gather", 3_000, 16), Traffic("all-gather", 500, 4))
WORK = Work(*[1] * len(fields(Work)))
RANKS = tuple(RankPeak(f"stage {one} of 2", 600 - 100 * one, peak, (), (), WORK, (), 1) for one, peak in enumerate((20_076, 9_000)))


@pytest.fixture
def divided(plan: Plan) -> Plan:
    return replace(plan, fleet=Fleet(LAYOUT, "stage 0 of 2", 600, (("gathered weights", 700),), TRAFFIC, 20_076, RANKS, 48))


def test_the_verdict_is_the_memory_that_is_free_or_missing(divided: Plan) -> None:
    fleet = divided.fleet
    assert fleet is not None
    assert fleet.free_bytes == 1_027_476
    assert devices.verdict(fleet) == "yes, 1,003 KiB free"
    small = replace(LAYOUT, cluster=replace(LAYOUT.cluster, memory_bytes=20_000))
    assert devices.verdict(replace(fleet, layout=small)) == "no, 1.074 KiB over"  # 20,076 + 1,024 - 20,000 = 1,100


def test_the_table_of_a_run_has_a_line_for_each_plan_with_a_cluster(plan: Plan, divided: Plan) -> None:
    line = "tiny on 16 × tiny-1MiB (1.000 MiB, 1.000 KiB reserved) fits: yes, 1,003 KiB free"
    assert line in overview.text([plan, divided]).splitlines()
    assert "fits" not in overview.text([plan])


def test_sections_list_parts_devices_and_links(plan: Plan, divided: Plan) -> None:
    memory, ranks, traffic = (make(divided) for make in devices.SECTIONS)
    assert ("gathered weights", "700", "700 B") in memory.rows
    assert any("48 bytes" in note for note in memory.notes)  # in host memory
    assert [row[:2] for row in ranks.rows] == [("stage 0 of 2", "600"), ("stage 1 of 2", "500")]
    assert [row[-1] for row in traffic.rows] == ["between nodes", "inside nodes"]  # groups of 16 and of 4 devices, 8 per node
    assert not any(make(plan).rows for make in devices.SECTIONS)


def test_only_files_with_such_a_plan_have_the_columns(plan: Plan, divided: Plan) -> None:
    header, alone, several = csv_reader.reader(io.StringIO(csv.capacity([plan, divided])))
    names = [column.name for column in ON_DEVICES]
    assert header == [*(column.name for column in COLUMNS), *names]
    assert alone[len(COLUMNS) :] == [""] * len(names)
    assert dict(zip(header, several, strict=True))["free_bytes"] == "1027476"
    assert dict(zip(header, several, strict=True))["communicated_bytes"] == "3500"
    assert csv.capacity([plan]).splitlines()[0].split(",") == [column.name for column in COLUMNS]
    fields = json.loads(datapackage.datapackage([divided]))["resources"][0]["schema"]["fields"]
    assert [field["name"] for field in fields] == header


def test_json_has_the_fleet_of_a_plan_that_has_one(plan: Plan, divided: Plan) -> None:
    alone, several = json.loads(as_json.report([plan, divided]))
    assert "fleet" not in alone
    assert several["fleet"]["layout"]["tensor_parallel"] == 4
    assert several["figures"]["params_per_device"] == 600


def test_ranks_are_listed_by_peak_with_their_parts(divided: Plan) -> None:
    fleet = divided.fleet
    assert fleet is not None
    phases = (PhasePeak("forward", "add", 5 << 20), PhasePeak("loss", "", 0), PhasePeak("backward", "add", 8 << 20))
    ranks = tuple(
        RankPeak(name, 10, peak, (("weights", 1 << 20), ("saved", 3 << 20)), phases, WORK, (), 1)
        for name, peak in (("low", 9_000), ("full", 20_076))
    )
    section = devices.every_rank(replace(divided, fleet=replace(fleet, ranks=ranks)))
    assert section.headings == ("device", "parameters", "weights", "saved", "forward peak", "loss peak", "backward peak", "peak bytes")
    assert section.rows[0] == ("full", "10", "1.000 MiB", "3.000 MiB", "5.000 MiB", "", "8.000 MiB", "20,076")
    assert [row[0] for row in section.rows] == ["full", "low"]
