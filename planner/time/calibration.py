"""Coefficients refitted to measured steps of one's own, with the shipped ones as what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.time.fit import Array

SEPARATES = 2  # runs needed to fit each term; with fewer, one factor scales all terms
RIDGE = 0.0001


def refit(terms: Array, seconds: Array, expected: Array) -> Array:
    """Return coefficients of terms [runs, terms]: first all are scaled, then each is fitted, pulled to what is expected."""
    import numpy as np

    from planner.time.fit import fit

    scale = float(np.median(seconds / (terms @ expected)))
    if len(seconds) < SEPARATES:
        return expected * scale
    return fit(terms * scale, seconds, np.ones(len(seconds)), expected, RIDGE) * scale
