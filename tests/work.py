"""Work measured in function calls, whose number does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_most(calls: int) -> Iterator[None]:
    """Fail as soon as the block has made more calls of functions, including those written in C."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        if event in ("call", "c_call"):
            made += 1
            assert made <= calls, f"more than {calls:,} calls"

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
