"""``planner init``: the files of a first proposal, written only where nothing stands yet."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from planner.review.side import POLICY
from planner.spec.importer import UnsupportedConfigError, from_huggingface
from planner.spec.language import schema
from planner.spec.source import LIMIT

ORIGINS = ("gpt2", "llama")
_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


class InitError(Exception):
    """Why nothing was written, and what to do about it."""


def files(name: str, origin: str, ci: str | None, action: str) -> dict[str, str]:
    """Return the files by their path: a spec, the policy, hooks, schemas for editors, and with ``ci`` the workflow. Raises InitError."""
    if not _NAME.fullmatch(name):
        raise InitError(f"{name!r} is no name for a file: take letters, digits, dots, hyphens and underscores")
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
    if origin in ORIGINS:
        return _template(origin).replace("name: NAME", f"name: {_scalar(name)}")
    lines = [
        "# yaml-language-server: $schema=../.planner/spec.schema.json",
        f"name: {_scalar(name)}",
        "description: What this proposal is, and what it changes",
        "model:  # as the config.json says it",
        *(f"  {key}: {_scalar(value)}" for key, value in _model(Path(origin)).items()),
        "training:",
        "  batch_size: 1                     # B, sequences per device and forward pass",
        "  precision: bf16-master",
        "  optimizer: adamw",
    ]
    return "\n".join(lines) + "\n"


def _model(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            read = json.loads(stream.read(LIMIT))
        if not isinstance(read, dict):
            raise InitError(f"{path}: is no config.json: it is not a JSON object")
        return from_huggingface(read)
    except OSError as error:
        hint = f"; --from takes {', '.join(ORIGINS)} or a config.json" if isinstance(error, FileNotFoundError) else ""
        raise InitError(f"{path}: {error.strerror}{hint}") from None
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, UnsupportedConfigError) else "is no JSON"
        raise InitError(f"{path}: {said}") from None


def _scalar(value: object) -> str:
    """Write a value as YAML on one line: JSON, which YAML is a superset of, with plain words unquoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_scalar(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", value) and value not in ("true", "false", "null")
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def _template(name: str) -> str:
    return (_TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def standing(folder: Path, made: dict[str, str]) -> list[str]:
    """Return the files that stand there already and are not as they would be written."""
    return [name for name, text in made.items() if (folder / name).exists() and not _holds(folder / name, text)]


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def write(folder: Path, made: dict[str, str]) -> None:
    """Write the files, folder by folder, each folder's whole or not at all. Raises OSError."""
    from planner.report.write import write as write_all

    folders: dict[Path, dict[str, bytes]] = {}
    for name, text in made.items():
        path = folder / name
        folders.setdefault(path.parent, {})[path.name] = text.encode()
    for where, contents in folders.items():
        write_all(where, contents)
