"""Use one thread: faster than two on matrices this small, and the machine may be shared."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed").set_num_threads(1)
