"""Configuration files: location, import, names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.importer.laid import Laid
from planner.importer.layouts import layout_of
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import program_of, read_config
from planner.importer.write import spec_text
from planner.spec.catalogue import HUB_NAME, missing
from planner.spec.nodes import Source
from planner.spec.problems import SpecError
from planner.spec.source import STDIN, read_source, whole_file

# transformers', LitGPT's, nanotron's, then Meta's and Mistral's
_IN_FOLDERS = ("config.json", "model_config.yaml", "lit_config.json", "model_config.json", "params.json")


def locate(path: str) -> str:
    """Return the path itself, standard input for ``-``, or the configuration in a folder. Raises SpecError."""
    if not Path(path).is_dir():
        if path != "-" and not os.path.lexists(path) and (problem := missing(path)):
            raise SpecError([problem])
        return STDIN if path == "-" else path
    for name in _IN_FOLDERS:
        if (Path(path) / name).is_file():
            return os.path.join(path, name)  # noqa: PTH118 - preserves the user's path
    raise SpecError([whole_file(path, "no-config", f"has none of {', '.join(_IN_FOLDERS)}")])


def import_file(file: str, assignments: Iterable[str] = ()) -> tuple[Imported, str]:
    """Return the model of a configuration file with keys set by assignments, and its address if the file names one.

    Raises SpecError if the file cannot be read, UnsupportedConfigError if its configuration is not supported.
    """
    text = read_source(file).text
    return read_config(text, file, assignments), hub_source(text)


def import_layout(file: str, assignments: Iterable[str], imported: Imported, cluster: str) -> Laid:
    """Return the layout of a configuration file on a cluster such as ``64xH100-80GB-SXM``. Raises UnsupportedConfigError."""
    found = re.fullmatch(r"(\d{1,7})\s*[x×]\s*(.+)", cluster)
    if not found or not int(found[1]):
        raise UnsupportedConfigError(f"invalid value {cluster!r} for --cluster; expected a number and a device, e.g. 64xH100-80GB-SXM")
    program, config = program_of(read_source(file).text, file, assignments)
    model = imported.model or _of_catalog(imported.extends)
    laid = Laid(found[2], int(found[1]), model.get("d_model", 0), file)
    return layout_of(program, config, model.get("n_layers", 0), laid)


def _of_catalog(name: str) -> Mapping[str, Any]:
    """Return the model of a catalog's spec, nothing without a name."""
    if not name:
        return {}
    from planner.spec.loading import load_text

    model = load_text(f"name: {name}\nextends: catalog/{name}\n").model
    return {"d_model": model.d_model, "n_layers": model.n_layers}


def spec_source(source: Source, tell: Callable[[str], None]) -> Source:
    """Return the text of the spec that a configuration describes, and ``tell`` remarks. Raises SpecError if it is not supported."""
    try:
        imported = read_config(source.text, source.file)
    except UnsupportedConfigError as error:
        raise SpecError([whole_file(source.file, "import", str(error))]) from None
    text = spec_text(imported, name_of(source.file))
    if wrong := first_problem(text):
        raise SpecError([whole_file(source.file, "import", wrong)])
    for remark in imported.remarks:
        tell(f"{source.file}: {remark}")
    return Source(source.file, text)


def first_problem(text: str) -> str:
    """Return the first error in an imported spec: the configuration describes an impossible model."""
    from planner.spec.checks import check
    from planner.spec.extend import extended
    from planner.spec.settings import Document
    from planner.spec.validate import validate
    from planner.spec.yaml12 import parse

    tree, problems = parse(Source("imported", text))
    if not problems:
        tree, problems = validate(extended(tree, "imported", lambda file: parse(read_source(file))[0]))
        problems = (*problems, *check(Document(tree)))
    return f"the configuration describes an invalid model: {problems[0].message}" if problems else ""


def name_of(file: str, output: str | None = None) -> str:
    """Return a name for the spec: from its own file, else from the configuration or, for a ``config.json``, its folder."""
    if output:
        return Path(output).stem
    if file == STDIN:
        return "imported"
    path = Path(file)
    if path.name in _IN_FOLDERS:
        return Path(os.path.realpath(file)).parent.name or path.stem
    return path.stem


def hub_source(text: str) -> str:
    """Return the address of the model on the Hugging Face Hub, if the configuration names one."""
    found = re.search(r'"_name_or_path"\s*:\s*"([^"]*)"', text)
    return f"https://huggingface.co/{found[1]}" if found and HUB_NAME.fullmatch(found[1]) else ""
