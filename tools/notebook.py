"""Run the cells of docs/tour.ipynb in this checkout and update the output that it shows: `make readme`. With --check, only report it.

Outputs are those of a notebook: what is printed, and a value in the last line, as Markdown where it has such a form.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
TOUR = ROOT / "docs" / "tour.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, which share one namespace."""
    names: dict[str, Any] = {}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cells.append({**cell, "execution_count": number, "outputs": [*outputs("".join(cell["source"]), names, number)]})
        else:
            cells.append(cell)
    return {**notebook, "cells": cells}


def outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell and return its outputs."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own notebook
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
    made: list[dict[str, Any]] = []
    if printed.getvalue():
        made.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {kind: text.splitlines(keepends=True) for kind, text in forms(value).items()}
        made.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return made


def forms(value: object) -> dict[str, str]:
    """Return the forms in which a notebook may show a value: Markdown or HTML, or else text."""
    if hasattr(value, "_repr_markdown_"):
        return {"text/markdown": value._repr_markdown_()}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_(), "text/plain": repr(value)}
    return {"text/plain": repr(value)}


def main() -> int:
    """Update the notebook, or check it."""
    os.chdir(ROOT)
    before = TOUR.read_text(encoding="utf-8")
    after = json.dumps(executed(json.loads(before)), ensure_ascii=False, indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        if before != after:
            sys.stderr.write(f"{TOUR.relative_to(ROOT).as_posix()} is out of date\n")
        return int(before != after)
    TOUR.write_text(after, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
