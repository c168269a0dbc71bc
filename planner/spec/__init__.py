"""What the user wrote: YAML text to checked, frozen records, with the file, line and column of every value.

>>> from planner import spec
>>> spec.load("specs/gpt2-small.yaml").model.d_model
768
"""

from __future__ import annotations

from planner.spec.language import schema
from planner.spec.loading import load, load_text, read
from planner.spec.problems import Problem, SpecError, render
from planner.spec.records import Place, Scenario, Spec

__all__ = ["Place", "Problem", "Scenario", "Spec", "SpecError", "load", "load_text", "read", "render", "schema"]
