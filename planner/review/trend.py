"""The trend of a changed model: its main metrics in the last reports that were committed, up to this change."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import groupby

from planner.report.csv import safe
from planner.review import git
from planner.review.git import GitError, Repository
from planner.review.headline import FIRST
from planner.review.review import Review, ReviewedModel, ReviewedScenario, Trend

REPORT = "reports/capacity.csv"  # from the repository's root
_COMMITS, _VERSIONS = 200, 5  # of the base that are searched, and versions of the report that are read
_LIMIT = 2**22  # bytes of a version
_DIGITS = 40  # of a metric

_Saved = Mapping[tuple[str, str], Mapping[str, str]]  # rows of a report by model and scenario


def trends(repo: Repository, base: str, review: Review) -> tuple[Trend, ...]:
    """Return the trends of the rows that changed: values as saved, each with the formulas of its time, then before and after.

    A metric that had one value before is in the review already, so it has no trend. Git runs at most three times.
    """
    rows = [(model, row) for model in review.changed for row in model.rows if row.changes]
    try:
        saved = [_rows(content) for content in git.versions(repo, base, REPORT, _COMMITS, _VERSIONS, _LIMIT)] if rows else []
    except GitError:
        return ()  # a clone without these files
    found: dict[tuple[str, str, tuple[int, ...]], Trend] = {}
    for one in (one for model, row in rows for one in _trends(model, row, saved)):
        found.setdefault((one.model, one.figure, one.values), one)  # scenarios share their parameters
    return tuple(found.values())


def _rows(content: bytes) -> _Saved:
    try:
        return {(row["model"], row["scenario"]): row for row in csv.DictReader(io.StringIO(content.decode(), newline=""))}
    except (UnicodeDecodeError, csv.Error, KeyError):
        return {}  # no report of ours


def _trends(model: ReviewedModel, row: ReviewedScenario, saved: list[_Saved]) -> Iterator[Trend]:
    key = safe(model.renamed_from or model.name), safe(row.scenario)
    for change in row.changes:
        if change.figure in FIRST and change.before is not None and change.after is not None:
            texts = [one.get(key, {}).get(change.figure) or "" for one in saved]
            before = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= _DIGITS]
            values = tuple(value for value, _ in groupby([*before, change.before, change.after]))
            if len(values) > 2:  # noqa: PLR2004 - more than before and after
                yield Trend(model.name, row.scenario, change.figure, values)
