"""Loading many specs: all errors of all files, unique names, slow imports only when needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import spec

Write = Callable[..., Path]


def heads(*paths: str) -> list[str]:
    _, problems = spec.read(paths)
    return [problem.render().splitlines()[0] for problem in problems]


def test_all_errors_of_all_files_are_in_order_of_file_and_line(write: Write, minimal: str) -> None:
    write(minimal.replace("n_heads: 4", "n_heads: 5") + "  foo: 1\n", "b.yaml")
    write("name: [\n", "a.yaml")
    write(minimal.replace("small", "fine"), "c.yaml")
    specs, problems = spec.read(["b.yaml", "a.yaml", "c.yaml", "missing.yaml"])
    assert [loaded.name for loaded in specs] == ["fine"]
    assert [(problem.place.file, problem.place.line, problem.code) for problem in problems] == [
        ("b.yaml", 7, "head-dim"),
        ("b.yaml", 8, "unknown-key"),
        ("a.yaml", 2, "yaml"),
        ("missing.yaml", 0, "not-found"),
    ]


def test_specs_keep_the_order_of_the_paths(write: Write, minimal: str) -> None:
    for name in "cab":
        write(minimal.replace("small", name, 1), f"{name}.yaml")
    assert [loaded.path for loaded in spec.read(["c.yaml", "."])[0]] == ["c.yaml", "./a.yaml", "./b.yaml"]


def test_a_duplicate_name_is_reported_with_both_files(write: Write, minimal: str) -> None:
    for file in ("a.yaml", "b.yaml", "c.yaml"):
        write(minimal, file)
    specs, problems = spec.read(["."])
    assert [loaded.path for loaded in specs] == ["./a.yaml"]
    assert (
        spec.render(problems)
        == """\
./b.yaml:1:7: error[duplicate-name]: duplicate spec name 'small' (also used in ./a.yaml:1); spec names must be unique
    1 | name: small
      |       ^
./c.yaml:1:7: error[duplicate-name]: duplicate spec name 'small' (also used in ./a.yaml:1); spec names must be unique
    1 | name: small
      |       ^"""
    )


def test_a_name_is_a_duplicate_even_if_the_other_spec_has_errors(write: Write, minimal: str) -> None:
    write(minimal + "  foo: 1\n", "a.yaml")
    write(minimal, "b.yaml")
    assert [head.split(" ")[1] for head in heads("a.yaml", "b.yaml")] == ["error[unknown-key]:", "error[duplicate-name]:"]


def test_no_paths_no_specs() -> None:
    assert spec.read([]) == ((), ())


def test_load_does_not_expand_globs(write: Write, minimal: str) -> None:
    write(minimal, "x[1].yaml")
    assert spec.load(Path("x[1].yaml")).path == "x[1].yaml"


def test_errors_and_their_order_do_not_depend_on_the_hash_seed(write: Write, minimal: str) -> None:
    write(minimal + "".join(f"  key{number}: 1\n" for number in range(30)) + "name: y\ntraining: {d: 1, e: 2, precision: x}\n")
    code = "from planner import spec; print(spec.render(spec.read(['x.yaml'])[1]))"
    root = Path(spec.__file__).parents[2]
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("from planner import spec", set()),
        ("from planner import spec; spec.schema()", set()),
        ("from planner import spec; spec.read(['x.yaml'])", {"yaml"}),
        ("from planner import spec; spec.read(['x.yaml'], ['name=3'])", {"yaml", "jsonschema"}),
    ],
)
def test_slow_packages_are_imported_only_when_needed(write: Write, minimal: str, code: str, loaded: set[str]) -> None:
    write(minimal)
    heavy = "{'yaml', 'jsonschema', 'pandas', 'numpy', 'torch'}"
    root = Path(spec.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sorted({heavy} & sys.modules.keys()))"],
        env={"PYTHONPATH": str(root)}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert set(done.stdout.split()) == loaded


@pytest.mark.parametrize("named", ["specs/link.yaml", "specs", "specs/*", "sub/secret.yaml", "sub"])
def test_a_link_out_of_the_repository_is_not_read(write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    write("hunter2: [\n", "outside/secret.yaml")
    write("", "repo/.git/HEAD")
    write("", "outside/.git/HEAD")  # a repository of its own is outside, too
    (folder / "repo" / "specs").mkdir()
    (folder / "repo" / "specs" / "link.yaml").symlink_to(folder / "outside" / "secret.yaml")
    (folder / "repo" / "sub").symlink_to(folder / "outside")
    monkeypatch.chdir(folder / "repo")
    _, problems = spec.read([named])
    assert {(problem.code, problem.message) for problem in problems} == {("outside", "is a link out of the repository")}
    assert "hunter2" not in spec.render(problems)


def test_links_inside_a_repository_and_the_working_directory_are_read(
    write: Write, minimal: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("", "repo/.git/HEAD")
    write(minimal, "repo/specs/x.yaml")
    write(minimal.replace("small", "other"), "beside/y.yaml")
    (folder / "repo" / "inside.yaml").symlink_to("specs/x.yaml")
    (folder / "repo" / "beside.yaml").symlink_to(folder / "beside" / "y.yaml")
    assert [one.name for one in spec.read(["repo/inside.yaml", "repo/beside.yaml"])[0]] == ["small", "other"]
    monkeypatch.chdir(folder / "repo")
    assert spec.load("inside.yaml").name == "small"
