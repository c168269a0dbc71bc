"""The reference pages of docs/ are up to date and list every key and column."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.report.columns import COLUMNS
from tools.docs import outdated

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_the_pages_are_up_to_date() -> None:
    assert [path.relative_to(ROOT).as_posix() for path in outdated()] == [], "run `make docs` and look at what changed"


def keys(schema: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name == "properties":
            yield from value
        if name != "definitions" or isinstance(value, dict):
            yield from keys(value)
    for value in schema if isinstance(schema, list) else ():
        yield from keys(value)


def test_the_spec_reference_lists_every_key_of_the_schema() -> None:
    schema = json.loads((ROOT / "planner" / "spec" / "schema" / "spec.schema.json").read_text(encoding="utf-8"))
    named = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "spec.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(keys(schema)) <= named


def test_the_column_reference_lists_every_column_in_order() -> None:
    named = re.findall(r"^\| `(\w+)` \|", (DOCS / "columns.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert named[: len(COLUMNS)] == [column.name for column in COLUMNS]
