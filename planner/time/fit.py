"""Coefficients of terms, fitted to measured step times: those of least absolute relative error, pulled towards others (a prior)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from planner.time.terms import COMPUTE, TERMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PRIOR = {"linear": 1.2, "experts": 1.6, "attention": 1.3, "launches": 0.5, "stages": 0.5, "data": 0.7, "expert_exchange": 0.8}
"""What is expected of coefficients before any run is known; others are 1."""
OUTLIER = 0.08  # relative error from which on a run's pull no longer grows
ROUNDS, SWEEPS = 15, 50


def prior() -> Array:
    """Return the coefficients that are expected before any run is known."""
    return np.array([PRIOR.get(name, 1.0) for name in TERMS])


def least() -> Array:
    """Return the least values of coefficients: no product is faster than the best that was measured."""
    return np.array([1.0 if name in COMPUTE else 0.0 for name in TERMS])


def fit(terms: Array, seconds: Array, weight: Array, expected: Array, ridge: float = 0.0005) -> Array:
    """Return coefficients of terms [runs, terms]. ``ridge``: how strongly each is pulled to what is expected, for each unit of weight."""
    found, relative, lowest = expected.copy(), terms / seconds[:, None], least()
    pull = ridge * weight.sum() * 10 / np.maximum(expected, 0.1) ** 2
    for _ in range(ROUNDS):
        each = weight / np.maximum(OUTLIER, np.abs(relative @ found - 1))
        square, line = relative.T @ (each[:, None] * relative), relative.T @ each
        for _ in range(SWEEPS):
            for one in range(len(found)):
                rest = line[one] - square[one] @ found + square[one, one] * found[one]
                found[one] = max(lowest[one], (rest + pull[one] * expected[one]) / (square[one, one] + pull[one]))
    return found


def device_factors(
    terms: Array, seconds: Array, weight: Array, devices: Sequence[str], sources: Sequence[str], enough: int = 4
) -> tuple[Array, dict[str, float]]:
    """Return coefficients, and how much longer a step takes on each device: the median of each source with enough runs, pulled to 1.

    A device counts one imagined source without a deviation more than it has.
    """
    names, origins = np.array(devices), np.array(sources)
    factor, found = np.ones(len(seconds)), prior()
    by_device: dict[str, float] = {}
    for _ in range(2):
        found = fit(terms * factor[:, None], seconds, weight, prior())
        off = np.log(seconds / (terms @ found))
        for name in sorted(set(devices)):
            of = (names == name) & (weight > 0)
            medians = [np.median(off[some]) for origin in sorted(set(origins[of])) if (some := of & (origins == origin)).sum() >= enough]
            by_device[name] = float(np.exp(sum(medians) / (len(medians) + 1)))
        factor = np.array([by_device[name] for name in devices])
    return found, by_device


def source_weights(sources: Sequence[str]) -> Array:
    """Return a weight of each run, with which that of a source grows with the root of its runs."""
    names, place, count = np.unique(np.array(sources), return_inverse=True, return_counts=True)
    del names
    return (1 / np.sqrt(count))[place]
