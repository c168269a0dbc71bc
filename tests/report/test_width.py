"""The output of show fits a terminal of 80 columns, and no number is broken or lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import planner
from planner.report import breakdown, overview, show, terminal

SPECS = sorted((Path(__file__).parent.parent.parent / "specs").glob("*.yaml"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_show_fits_80_columns_with_every_number(path: Path) -> None:
    spec = planner.load(path)
    for plan in planner.plans(spec):
        extra = (breakdown.shapes(plan), breakdown.tensors(plan), breakdown.saved(plan))
        wide, narrow = (show.tree(spec, plan, extra, width=width).splitlines() for width in (None, 80))
        too_wide = [line for line in narrow[1:] if terminal.cells_of(line) > 80 and "https://" not in line]
        assert too_wide == []
        numbers = r"\d[\d,.]*\d(?: [KMG]iB| [kMGTPEZY]?FLOP)?"
        assert set(re.findall(numbers, " ".join(wide))) <= set(re.findall(numbers, re.sub(r"\s*[│├└─ ]+", " ", " ".join(narrow))))


def test_the_table_of_run_fits_80_columns() -> None:
    plans = [plan for path in SPECS for plan in planner.plans(planner.load(path))]
    table = overview.text(plans, width=80).splitlines()
    assert max(map(terminal.cells_of, table)) <= 80
