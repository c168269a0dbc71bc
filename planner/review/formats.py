"""The formats of a review by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.review import ci_formats
from planner.review.json import json
from planner.review.markdown import markdown
from planner.review.review import Review
from planner.review.text import text

FORMATS: Mapping[str, Callable[[Review], str]] = {
    "text": text,
    "md": markdown,
    "json": json,
    "github": ci_formats.github,
    "sarif": ci_formats.sarif,
    "junit": ci_formats.junit,
}
