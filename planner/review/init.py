"""``planner init``: the files of a new project; existing files are kept."""

from __future__ import annotations

import json
import re
from datetime import date
from difflib import get_close_matches
from pathlib import Path

from planner.capacity import plans
from planner.importer.files import first_problem, import_file, locate
from planner.importer.reader import UnsupportedConfigError
from planner.importer.write import spec_text
from planner.report import write as on_disk
from planner.report.planned import Planned
from planner.review import without_base
from planner.review.policy import POLICY, SIZE_LABEL
from planner.spec import catalogue, load
from planner.spec.language import schema
from planner.spec.problems import SpecError, render

ORIGINS = ("gpt2", "llama", "lora", "qlora", "full")
_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


class InitError(Exception):
    """Why nothing was written, and the fix."""


def files(name: str, origin: str, ci: str | None, action: str) -> dict[str, str]:
    """Return the files by their path: a spec, the policy, hooks, schemas for editors, and with ``ci`` the workflow. Raises InitError."""
    if not _NAME.fullmatch(name):
        raise InitError(f"invalid name {name!r}: use letters, digits, dots, hyphens and underscores")
    made = {
        spec_file(name): _spec(name, origin),
        POLICY: _template("planner"),
        ".pre-commit-config.yaml": _template("pre-commit"),
        ".planner/spec.schema.json": _json(schema()),
        ".planner/policy.schema.json": _json(schema("policy")),
    }
    if ci == "github":
        made[".github/workflows/model-capacity.yml"] = _template("workflow").replace("ACTION", action)
    return made


def spec_file(name: str) -> str:
    """Return the path of a model's spec."""
    return f"specs/{name}.yaml"


def _spec(name: str, origin: str) -> str:
    """Return the text of a spec. Raises InitError."""
    if origin in ORIGINS:
        return _template(origin).replace("name: NAME", f"name: {json.dumps(name)}")
    if not Path(origin).exists():
        if not catalogue.file_of(origin):
            near = get_close_matches(origin, ORIGINS, cutoff=0.75) or catalogue.meant(origin)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InitError(
                f"{origin}: no such file or catalog model; --from accepts {', '.join(ORIGINS)}, a catalog model or a config.json{hint}"
            )
        return _EXTENDING.format(name=json.dumps(name), model=origin.removeprefix(catalogue.PREFIX)) + _TRAINING
    try:
        imported, _ = import_file(locate(origin))
        text = spec_text(imported, name, schema="../.planner/spec.schema.json")
        text += "" if imported.training else _TRAINING
        wrong = first_problem(text)
    except UnsupportedConfigError as error:
        raise InitError(f"{origin}: {error}") from None
    except SpecError as error:
        raise InitError(render(error.problems)) from None
    if wrong:
        raise InitError(f"{origin}: {wrong}")
    return text


_EXTENDING = """\
# yaml-language-server: $schema=../.planner/spec.schema.json
name: {name}
extends: catalog/{model}
"""
_TRAINING = """\
training:
  batch_size: 1  # B, sequences per device and forward pass
  precision: bf16-master
  optimizer: adamw
"""


def _template(name: str) -> str:
    return (_TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def existing(folder: Path, made: dict[str, str]) -> list[str]:
    """Return the files that already exist with other contents."""
    found = on_disk.outdated(folder, {name: text.encode() for name, text in made.items()})
    return [name for name in made if found.get(folder / name) == "out of date"]


def write(folder: Path, made: dict[str, str]) -> None:
    """Write the files, all of a folder or none. Raises OSError."""
    folders: dict[Path, dict[str, bytes]] = {}
    for name, text in made.items():
        path = folder / name
        folders.setdefault(path.parent, {})[path.name] = text.encode()
    for where, contents in folders.items():
        on_disk.write(where, contents)


def size_labels(folder: Path, name: str) -> list[str]:
    """Return what differs between the size in the name of a new model, if it has one, and its parameters."""
    spec = load(folder / spec_file(name))
    found = without_base.findings([Planned(spec, plans(spec))], folder, date.min)
    return [finding.message for finding in found if finding.rule == SIZE_LABEL]
