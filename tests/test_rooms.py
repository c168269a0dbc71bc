"""The house: data walks one way, a room imports only from rooms to its left, and heavy packages wait until they are needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "planner"

# Each room and the rooms to its left; the door in front and the command join them all.
ROOMS = {
    "spec": (),
    "devices": (),
    "importer": ("spec",),
    "trace": ("spec",),
    "capacity": ("spec", "trace"),
    "report": ("spec", "devices", "trace", "capacity"),
    "review": ("spec", "importer", "trace", "capacity", "report"),
    "explore": ("spec", "importer", "trace", "capacity", "report"),
    "verify": ("spec", "trace", "capacity", "report"),
}
# The ways back: a plan offers itself as a data frame, whose columns are the report's, and to a notebook.
OFFERS = {("figures.py", f"planner.report.{name}") for name in ("frame.to_frame", "notebook.html", "notebook.markdown")}
DOORS = ("__init__", "__main__", "cli")
HEAVY = ("jsonschema", "numpy", "pandas", "torch", "transformers", "xlsxwriter")
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import_time(tree: ast.Module) -> ast.Module:
    """Drop what only runs when it is called, and what only a type checker reads."""

    class Drop(ast.NodeTransformer):
        def visit_FunctionDef(self, _: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.If | None:
            return None if ast.unparse(node.test) == "TYPE_CHECKING" else node

    dropped: ast.Module = Drop().visit(tree)
    return dropped


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_file_has_a_room() -> None:
    assert {room(path) for path in FILES} <= {*ROOMS, *DOORS}


@pytest.mark.parametrize("path", [path for path in FILES if room(path) in ROOMS], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_to_its_left(path: Path) -> None:
    here = room(path)
    for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        package, *rest = name.split(".")
        if package == "planner":
            assert rest[0] in (here, *ROOMS[here]) or (path.name, name) in OFFERS, f"{here} imports {name}"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) != "verify"], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_torch_stays_in_verify(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name for name in imports(tree) if name.split(".")[0] in ("torch", "transformers")}


def test_heavy_packages_wait_until_a_function_needs_them() -> None:
    needs: dict[str, set[str]] = {}
    for path in FILES:
        module = ".".join(("planner", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        needs[module] = set(imports(at_import_time(ast.parse(path.read_text(encoding="utf-8")))))
    heavy = {module for module, names in needs.items() if any(name.split(".")[0] in HEAVY for name in names)}
    # A module may be heavy itself if whoever uses it imports it inside a function.
    for module, names in needs.items():
        if not module.startswith("planner.verify"):
            assert not {name for name in names for other in heavy if name == other or name.startswith(f"{other}.")}, module
