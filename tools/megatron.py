"""Planned peaks of Megatron-Core's layouts beside those of published runs, for docs/trust.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from tests.capacity.megatron_runs import RUNS, large, peaks
from tools.tables import table

ABOUT = """\
`implementation: megatron-core` with a layout is modeled from source and not measured here. Runs on GPUs recorded these peaks of allocated
memory: [SimuMax v1.2]({large}) on 8 B200, all ranks; and [Megatron-LM's functional tests]({small}), the last rank.
`tests/data/megatron_runs.jsonl` has every run with its settings and link."""
DEGREES = {"tensor_parallel": "tensor", "pipeline_parallel": "pipeline", "context_parallel": "context", "expert_parallel": "expert"}


def runs() -> Iterator[str]:
    """Yield the section of the page."""
    found = [(run, peaks(number)) for number, run in enumerate(RUNS)]
    yield from ("", "## Layouts of Megatron-Core", "")
    links = {size: next(run["link"] for run in RUNS if large(run) == (size == "large")) for size in ("large", "small")}
    yield from ABOUT.format(large=links["large"], small=links["small"].partition("/test_cases")[0]).splitlines()
    yield ""
    of_large = {}
    for run, both in found:
        if large(run):
            name = run["run"].partition("/")[2].partition("_mbc")[0]  # runs with more microbatches recorded the same
            of_large[name] = (name, layout(run), *("; ".join(f"{mib / 1024:.2f}" for mib in column) for column in zip(*both, strict=True)))
    headings = "run on 8 B200", "layout", "planned, GiB per stage", "recorded"
    yield from table(headings, of_large.values(), "llrr")
    yield ""
    groups: dict[str, list[float]] = {}
    for run, both in found:
        name = "8 B200" if large(run) else f"Megatron-LM's tests on {run['run'].rpartition('_')[2].upper()}"
        groups.setdefault(name, []).extend(100 * abs(planned / recorded - 1) for planned, recorded in both)
    yield from table(("runs", "peaks", "median difference", "largest"), map(summary, groups.items()), "lrrr")


def layout(run: Mapping[str, Any]) -> str:
    """Return the degrees of a run above 1."""
    degrees: Iterable[str] = (f"{short} {run['layout'][key]}" for key, short in DEGREES.items() if key in run["layout"])
    return ", ".join(degrees)


def summary(group: tuple[str, list[float]]) -> tuple[str, ...]:
    """Return a line for a group of differences in percent."""
    name, differences = group
    return name, str(len(differences)), f"{median(differences):.2f} %", f"{max(differences):.2f} %"
