"""The catalogue of published models: specs to plan, and to start a proposal from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.spec.source import read_source
from planner.spec.yaml12 import parse

PREFIX = "catalog/"  # what a spec writes before a model's name under ``extends``


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue."""

    name: str  # NAME in ``extends: catalog/NAME``
    title: str  # as its spec calls it
    family: str
    path: Path
    params_total: int
    params_active: int
    omits: tuple[str, ...]  # parts of the published model that are not counted


@cache
def folder() -> Path:
    """Return where the catalogue lies: in the package once that is built, beside it in the repository."""
    package = Path(__file__).parent.parent
    shipped = package / "catalog"
    return shipped if shipped.is_dir() else package.parent / "specs" / "catalog"


@cache
def paths() -> dict[str, Path]:
    """Return the spec of each model by its name, sorted."""
    return {path.stem: path for path in sorted(folder().glob("*/*.yaml"), key=lambda path: path.stem)}


def nearest(name: str) -> list[str]:
    """Return the names that are most like this one."""
    import difflib

    lowered = name.lower()
    within = [known for known in paths() if lowered in known]
    return (within or difflib.get_close_matches(lowered, paths(), 3, 0.5))[:3]


def entries(pattern: str = "") -> list[Entry]:
    """Return the models whose name, title or family has the pattern in it; upper and lower case are one."""
    found = []
    for name, path in paths().items():
        tree, _ = parse(read_source(os.fspath(path)))
        spec = tree.items()
        title = str(spec["name"].value)
        family = path.parent.name
        if not any(pattern.lower() in text.lower() for text in (name, title, family)):
            continue
        expect = spec["expect"].items()
        total, active = (int(str(expect[figure].value)) for figure in ("params_total", "params_active"))
        omits = tuple(str(part.value) for part in spec["omits"].elements()) if "omits" in spec else ()
        found.append(Entry(name, title, family, path, total, active, omits))
    return found
