"""Fixtures shared by tests of several packages."""

from __future__ import annotations

import gc
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import planner
from planner.capacity.figures import Plan
from tests.untried import pytest_configure  # noqa: F401 - a hook of pytest

PlanModel = Callable[..., Plan]

# No deadline. Function-scoped fixtures are fine: each example writes its own file into the folder.
settings.register_profile("planner", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.load_profile("planner")

# A shell starts background jobs with these signals ignored, and processes inherit that: tests that send them need the defaults.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Exempt all that is imported from garbage collection, of which measurements of memory need many."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def plan_model(tmp_path: Path) -> PlanModel:
    """Plan a model given as the mapping under ``model`` of a spec; keyword arguments are the keys of ``training``."""

    def plan(model: Mapping[str, Any], **training: object) -> Plan:
        path = tmp_path / "model.yaml"
        path.write_text(json.dumps({"name": "model", "model": model, "training": training}), encoding="utf-8")  # JSON is YAML
        return planner.plan(planner.load(path))

    return plan
