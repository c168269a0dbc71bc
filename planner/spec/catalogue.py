"""The catalogue of published models: specs to plan, and to start a proposal from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.spec.source import read_source, whole_file
from planner.spec.yaml12 import parse

if TYPE_CHECKING:
    from planner.spec.problems import Problem

PREFIX = "catalog/"  # what a spec writes before a model's name under ``extends``
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # owner/name
_ADDRESS = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")
_FILES = (".json", ".yaml", ".yml", ".toml", ".py", ".sh", ".txt", ".log")  # of configurations, never the end of a model's name
_SHORTEST = 2  # characters of a name that occurs in others by chance
_LONGEST = 100  # characters of a name that others are compared with


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


@cache
def hub_names() -> dict[str, str]:
    """Return the name in the catalogue for each name on the Hugging Face Hub, in lower case, by the addresses under ``source``."""
    found = {}
    for name, path in paths().items():
        head, _, _ = path.read_text(encoding="utf-8").partition("\nmodel:")
        found.update(dict.fromkeys((address.lower() for address in _ADDRESS.findall(head)), name))
    return found


def file_of(name: str) -> str:
    """Return the path of a model's spec by its name, with or without the prefix; empty for an unknown name."""
    known = paths().get(name.removeprefix(PREFIX))
    return os.path.relpath(known) if known else ""


def meant(name: str) -> list[str]:
    """Return the model that has this name in the catalogue or on the Hub, or else the names that are most like it."""
    bare = name.removeprefix(PREFIX)
    if bare in paths():
        return [bare]
    return [hub_names()[bare.lower()]] if bare.lower() in hub_names() else nearest(bare.rpartition("/")[2])


def missing(path: str) -> Problem | None:
    """Return the problem of a missing file that has no ending of a file, so that a model's name may be meant; None for any other."""
    if path.endswith(_FILES):
        return None
    names = meant(path)
    if HUB_NAME.fullmatch(path) and not path.startswith(PREFIX) and not Path(path.partition("/")[0]).is_dir():
        known = "the catalog has" if path.lower() in hub_names() else "similar models in the catalog:"
        hint = f"{known} {', '.join(names)}" if names else "import its config.json"
        return whole_file(path, "not-found", "no such file, and nothing is downloaded", hint)
    if file_of(path):
        return whole_file(path, "not-found", "no such file", f"the catalog has a model of this name: planner show {path}")
    if re.fullmatch(rf"({PREFIX})?[\w.-]+", path):
        hint = f"did you mean {' or '.join(names)}?" if names else "run planner list to see the names of the catalog"
        return whole_file(path, "not-found", "no such file or catalog model", hint)
    return None


def nearest(name: str) -> list[str]:
    """Return the names that are most like this one."""
    import difflib

    lowered = name[:_LONGEST].lower().removeprefix("meta-").removesuffix("-hf")
    within = [known for known in paths() if len(lowered) > _SHORTEST and lowered in known]
    parts = sorted((known for known in paths() if known in lowered), key=len, reverse=True)[:1]
    return (within or parts or difflib.get_close_matches(lowered, paths(), 3, 0.5))[:3]


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
