"""The accuracy of plans for each class of transformers, for docs/trust.md."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from planner.report.accuracy import GROUPS, TABLE
from tools.measure import TRUTH
from tools.tables import table

ABOUT = """\
`make measure` trains a small model of each class for two steps of {batch_size} sequences of {sequence_length} tokens, with PyTorch {torch}
and transformers {transformers} on fake tensors of a simulated A100, in up to 12 settings: sdpa or eager attention; bf16, bf16 autocast or
fp32; with and without recomputation of each block. Classes with windows are measured with a window of 16 tokens as well. Classes without
sdpa run eager attention in its place. Language models that transformers only builds inside a composite model of images or sound are
measured as the decoder and the LM head of a small composite, on text alone. Every plan with `implementation: transformers` reports the
row of its class and setting, and names settings that no row has, such as dropout or another optimizer."""
COLUMNS = {"saved": "saved bytes", "allocated": "allocated bytes", "flops": "FLOPs", "peak": "peak"}
HEADINGS = ("class", "attention", "steps", "equal", *(f"{one}, largest difference" for one in COLUMNS.values()))

Row = Mapping[str, str]


def rows() -> list[Row]:
    """Return the rows of the table of differences."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def class_accuracy() -> Iterator[str]:
    """Yield the section on classes: the share of equal steps, a row per class and attention, and the steps that were not measured."""
    with TRUTH.open(encoding="utf-8") as file:
        head = json.loads(file.readline())
    measured, without = [row for row in rows() if not row["reason"]], [row for row in rows() if row["reason"]]
    yield from ("", "## Classes of transformers", "", *ABOUT.format(**head).splitlines(), "")
    yield f"{len(measured)} steps of {len({row['model_type'] for row in measured})} classes are measured:"
    yield f"{share(measured, ('saved', 'flops'))} are equal in saved bytes and FLOPs, {share(measured, GROUPS[:-1])} in allocated bytes"
    yield f"as well, and {share(measured, GROUPS)} in every figure. *Equal* below is in all figures but the peak."
    yield "A negative difference is a plan that is too low."
    yield ""
    yield from table(HEADINGS, map(cells, grouped(measured)), "llrrrrrr")
    yield from ("", "Steps that were not measured, because transformers does not run them or because the planner refuses the setting:", "")
    yield from table(("class", "attention", "steps", "reason"), map(refused, grouped(without)), "llrl")


def grouped(chosen: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each class and attention."""
    for _, members in groupby(sorted(chosen, key=key), key):
        yield list(members)


def key(row: Row) -> tuple[str, str, str]:
    """Return what a line of the page shares, with windows apart."""
    return row["model_type"], row["window"], row["attention"]


def share(chosen: Sequence[Row], groups: Sequence[str]) -> str:
    """Return the number and the share of rows that are equal in these figures."""
    equal = sum(all(row[group] == "0" for group in groups) for row in chosen)
    return f"{equal} ({100 * equal // max(len(chosen), 1)} %)"


def name(row: Row) -> str:
    """Return the class, and whether its windows are short."""
    return f"`{row['model_type']}`" + (", window < n" if row["window"] else "")


def cells(members: Sequence[Row]) -> tuple[str, ...]:
    """Return the cells of a class and attention."""
    equal = sum(all(row[group] == "0" for group in GROUPS[:-1]) for row in members)
    worst = (max((row[group] for row in members), key=lambda off: abs(float(off))) for group in COLUMNS)
    differences = ("0" if off == "0" else f"{off} %".replace("-", "−") for off in worst)
    return name(members[0]), members[0]["attention"], str(len(members)), str(equal), *differences


def refused(members: Sequence[Row]) -> tuple[str, ...]:
    """Return the cells of the steps of a class and attention without a measurement."""
    return name(members[0]), members[0]["attention"], str(len(members)), "; ".join(dict.fromkeys(row["reason"] for row in members))
