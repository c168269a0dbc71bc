"""The architecture: a package imports only from packages above it, and slow dependencies are imported on first use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "planner"

# Each package and the packages above it; the Python API and the command import all of them.
ABOVE = {
    "devices": (),
    "spec": ("devices",),
    "importer": ("spec",),
    "trace": ("spec",),
    "capacity": ("spec", "devices", "trace"),
    "time": ("spec", "devices", "trace", "capacity"),
    "report": ("spec", "devices", "trace", "capacity", "time"),
    "review": ("spec", "importer", "trace", "capacity", "report"),
    "explore": ("spec", "importer", "devices", "trace", "capacity", "time", "report"),
    "verify": ("spec", "trace", "capacity", "report"),
}
# Exceptions: a plan can convert itself to a data frame and to a notebook's output.
EXCEPTIONS = {("figures.py", f"planner.report.{name}") for name in ("frame.to_frame", "notebook.html", "notebook.markdown")}
TOP = ("__init__", "__main__", "api", "cli")
SLOW = ("jsonschema", "numpy", "pandas", "torch", "transformers", "xlsxwriter")
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import_time(tree: ast.Module) -> ast.Module:
    """Drop functions and blocks for the type checker."""

    class Drop(ast.NodeTransformer):
        def visit_FunctionDef(self, _: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.If | None:
            return None if ast.unparse(node.test) == "TYPE_CHECKING" else node

    dropped: ast.Module = Drop().visit(tree)
    return dropped


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_file_is_in_a_listed_package() -> None:
    assert {package_of(path) for path in FILES} <= {*ABOVE, *TOP}


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) in ABOVE], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_from_packages_above_it(path: Path) -> None:
    here = package_of(path)
    for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        package, *rest = name.split(".")
        if package == "planner":
            assert rest[0] in (here, *ABOVE[here]) or (path.name, name) in EXCEPTIONS, f"{here} imports {name}"


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) != "verify"], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_verify_imports_torch(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name for name in imports(tree) if name.split(".")[0] in ("torch", "transformers")}


def test_slow_dependencies_are_imported_inside_functions() -> None:
    needs: dict[str, set[str]] = {}
    for path in FILES:
        module = ".".join(("planner", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        needs[module] = set(imports(at_import_time(ast.parse(path.read_text(encoding="utf-8")))))
    heavy = {module for module, names in needs.items() if any(name.split(".")[0] in SLOW for name in names)}
    # A module may import them at its top if all its users import it inside a function, or are such a module.
    for module, names in needs.items():
        if not module.startswith("planner.verify") and module not in heavy:
            assert not {name for name in names for other in heavy if name == other or name.startswith(f"{other}.")}, module
