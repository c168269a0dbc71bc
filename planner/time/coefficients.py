"""The coefficients of terms, as calibrated on published runs or on measured steps of one's own. The data is in ``coefficients.yaml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.time.terms import TERMS

CALIBRATED = "calibrated"  # the band of calibrations to measured steps
SHIPPED = Path(__file__).parent / "coefficients.yaml"


class CalibrationError(Exception):
    """A calibration file that cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What each term takes as a multiple of its time at full rates, device factors, and bands of measured over predicted time by class."""

    data: str  # what they were fitted to
    terms: Mapping[str, float]
    devices: Mapping[str, float]
    bands: Mapping[str, tuple[float, float]]

    def band(self, kind: str) -> tuple[float, float]:
        """Return the 10 and 90 % quantiles of measured over predicted time of a class of runs."""
        return self.bands.get(kind) or self.bands[CALIBRATED]


@cache
def coefficients(path: Path = SHIPPED) -> Coefficients:
    """Read coefficients. Raises CalibrationError for a file without them."""
    import yaml

    try:
        read: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        bands = {name: (float(low), float(high)) for name, (low, high) in read["bands"].items()}
        devices = {name: float(value) for name, value in read["devices"].items()}
        return Coefficients(str(read["data"]), {name: float(read["coefficients"][name]) for name in TERMS}, devices, bands)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"{path.as_posix()} is not a calibration file of planner calibrate: {error!r}") from None


def text(known: Coefficients, head: str) -> str:
    """Return the file of coefficients; ``head`` is its first comment."""
    lines = [
        f"# {head}",
        f"data: {json.dumps(known.data, ensure_ascii=False)}",
        "# What a term takes as a multiple of its time at the full rate.",
        "coefficients:",
        *(f"  {name}: {value:.4f} # {TERMS[name]}" for name, value in known.terms.items()),
        "# How much longer a step takes on a device, as far as published runs show.",
        "devices:",
        *(f"  {name}: {value:.4f}" for name, value in sorted(known.devices.items())),
        "# Measured over predicted seconds of runs that the fit did not see: the 10 and 90 % quantiles by class.",
        "bands:",
        *(f"  {name}: [{low:.4f}, {high:.4f}]" for name, (low, high) in known.bands.items()),
    ]
    return "\n".join(lines) + "\n"
