"""What docs/ says of the code is what the code says, and the tutorial's commands print what it shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.report.columns import COLUMNS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_the_pages_are_up_to_date() -> None:
    run = subprocess.run([sys.executable, ROOT / "tools" / "docs.py", "--check"], capture_output=True, encoding="utf-8", check=False)
    assert run.returncode == 0, f"{run.stderr}\nrun `make docs` and look at what changed"


def keys(schema: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name == "properties":
            yield from value
        if name != "definitions" or isinstance(value, dict):
            yield from keys(value)
    for value in schema if isinstance(schema, list) else ():
        yield from keys(value)


def test_the_spec_reference_names_every_key_of_the_schema() -> None:
    schema = json.loads((ROOT / "planner" / "spec" / "schema" / "spec.schema.json").read_text(encoding="utf-8"))
    told = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "spec.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(keys(schema)) <= told


def test_the_column_reference_names_every_column_in_order() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "columns.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert told[: len(COLUMNS)] == [column.name for column in COLUMNS]


def test_every_link_between_pages_leads_to_a_file() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
