"""The fit of coefficients finds those that runs were made with, and a calibration moves to measured steps."""

from __future__ import annotations

import numpy as np

from planner.time.calibration import refit
from planner.time.fit import device_factors, fit, prior
from planner.time.terms import TERMS

DRAW = np.random.default_rng(0)
WORK = DRAW.uniform(0.1, 1, (200, len(TERMS)))
TRUE = DRAW.uniform(1.1, 2, len(TERMS))


def test_coefficients_of_exact_runs_are_found() -> None:
    found = fit(WORK, WORK @ TRUE, np.ones(len(WORK)), prior(), ridge=1e-9)
    assert np.allclose(found, TRUE, rtol=0.01)


def test_outliers_do_not_pull() -> None:
    seconds = WORK @ TRUE
    seconds[:10] *= 5
    found = fit(WORK, seconds, np.ones(len(WORK)), prior(), ridge=1e-9)
    assert np.allclose(WORK @ found, WORK @ TRUE, rtol=0.1)


def test_a_device_that_two_sources_find_slow_is_slow() -> None:
    devices = ["fast"] * 100 + ["slow"] * 100
    sources = ["a", "b"] * 100
    seconds = WORK @ prior()
    seconds[100:] *= 1.5
    _, factors = device_factors(WORK, seconds, np.ones(200), devices, sources)
    assert factors["slow"] / factors["fast"] > 1.2


def test_one_step_scales_all_terms_and_more_tell_them_apart() -> None:
    expected = prior()
    one = refit(WORK[:1], WORK[:1] @ expected * 2, expected)
    assert np.allclose(one, 2 * expected)
    several = refit(WORK[:40], WORK[:40] @ TRUE, expected)
    off = [float(np.abs(WORK @ found / (WORK @ TRUE) - 1).mean()) for found in (expected, several)]
    assert off[1] < off[0] / 2
