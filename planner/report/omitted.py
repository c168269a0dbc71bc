"""What the metrics omit, in the few lines of outputs without a breakdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNPADDED = "Batches are assumed to contain no padding."


def lines(models: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return a line per part that models omit, given the omitted parts of each model by its name."""
    names: dict[str, dict[str, None]] = {}
    for name, omits in models:
        for part in omits:
            names.setdefault(part, {})[name] = None
    return tuple(f"Not counted in {', '.join(of)}: {part}." for part, of in names.items())
