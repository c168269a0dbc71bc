"""The formats of a review by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.review import gates
from planner.review.json import json
from planner.review.markdown import markdown
from planner.review.records import Review
from planner.review.text import text

FORMATS: Mapping[str, Callable[[Review], str]] = {
    "text": text,
    "md": markdown,
    "json": json,
    "github": gates.github,
    "sarif": gates.sarif,
    "junit": gates.junit,
}
