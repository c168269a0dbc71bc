"""Paths: files, folders, globs, standard input; every file is read once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner import spec
from planner.cli import main
from planner.spec.find import find
from tests.work import at_most

Write = Callable[..., Path]
ROOT = Path(__file__).parent.parent.parent


def heads(*paths: str) -> list[str]:
    return [problem.render() for problem in find(paths)[1]]


@pytest.fixture
def tree(write: Write) -> None:
    for file in ("b.yaml", "a.yml", "sub/c.yaml", "sub/deep/d.yaml", "sub/notes.txt", ".hidden/e.yaml", "sub/.git/f.yaml", "upper.YAML"):
        write("name: x\n", file)


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["b.yaml"], ["b.yaml"]),
        (["b.yaml", "a.yml"], ["b.yaml", "a.yml"]),
        (["sub/notes.txt"], ["sub/notes.txt"]),
        (["sub"], ["sub/c.yaml", "sub/deep/d.yaml"]),
        (["sub/"], ["sub/c.yaml", "sub/deep/d.yaml"]),
        (["."], ["./a.yml", "./b.yaml", "./sub/c.yaml", "./sub/deep/d.yaml"]),
        (["*.yaml"], ["b.yaml"]),
        (["*.y*ml"], ["a.yml", "b.yaml"]),
        (["**/*.yaml"], ["b.yaml", "sub/c.yaml", "sub/deep/d.yaml"]),
        (["sub/**/*.yaml"], ["sub/c.yaml", "sub/deep/d.yaml"]),
        (["./**/d*"], ["./sub/deep/d.yaml"]),
        (["**/**/deep/**/*.yaml"], ["sub/deep/d.yaml"]),
        (["sub/**"], ["sub/c.yaml", "sub/deep/d.yaml", "sub/notes.txt"]),
        (["s*b"], ["sub/c.yaml", "sub/deep/d.yaml"]),
        (["b.yaml", "./b.yaml", ".", "sub/../b.yaml"], ["b.yaml", "./a.yml", "./sub/c.yaml", "./sub/deep/d.yaml"]),
        (["-", "b.yaml", "-"], ["<stdin>", "b.yaml"]),
        (["missing.yaml"], ["missing.yaml"]),  # rendered when it is read
        ([], []),
    ],
)
def test_files_found_by_paths(paths: list[str], files: list[str]) -> None:
    assert find(paths) == (tuple(files), ())


def test_a_path_object_works_like_text(write: Write) -> None:
    write("name: x\n")
    assert find([Path("x.yaml")])[0] == ("x.yaml",)


def test_a_file_with_a_name_like_a_glob(write: Write) -> None:
    write("name: x\n", "x[1].yaml")
    assert find(["x[1].yaml"])[0] == ("x[1].yaml",)


def test_links_are_followed_to_files_and_not_to_folders(write: Write, folder: Path) -> None:
    write("name: x\n")
    (folder / "loop").symlink_to(folder)
    (folder / "same.yaml").symlink_to("x.yaml")
    (folder / "broken.yaml").symlink_to("nowhere")
    assert find(["."])[0] == ("./same.yaml",)  # x.yaml under the first of its names


def test_two_stars_do_not_follow_links_to_folders(write: Write, folder: Path) -> None:
    """Two links from a folder to itself make 2^40 paths, as many as the system follows."""
    write("name: x\n", "sub/x.yaml")
    for name in ("one", "two"):
        (folder / "sub" / name).symlink_to(folder / "sub")
    with at_most(10_000):
        assert find(["**/*.yaml"])[0] == ("sub/x.yaml",)
        assert find([f"{folder}/**/x.yaml"])[0] == (f"{folder}/sub/x.yaml",)


@pytest.mark.parametrize("command", ["run", "validate", "show", "import"])
def test_a_pipe_is_an_error_and_is_not_opened(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opening a pipe that nobody writes to would block."""
    os.mkfifo(folder / "pipe.yaml")
    assert main([command, "pipe.yaml"]) == 2
    assert "pipe.yaml: error[unreadable]: is not a regular file; write - for standard input" in capsys.readouterr().err


def test_standard_input_may_have_a_path(folder: Path) -> None:
    text = b"name: x\nmodel: {vocab_size: 9, context_length: 4, d_model: 8, n_layers: 1, n_heads: 2}\n"
    command = [sys.executable, "-m", "planner", "validate", "/dev/stdin"]
    assert subprocess.run(command, input=text, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode == 0


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_may_be_planned_more_than_once(name: str, folder: Path) -> None:
    text = "name: x\nmodel: {vocab_size: 9, context_length: 4, d_model: 8, n_layers: 1, n_heads: 2}\n"
    command = [sys.executable, "-m", "planner", "sweep", name, "--set", "model.n_layers=1..3"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, input=text, cwd=folder, env=env, capture_output=True, text=True, check=False, encoding="utf-8")
    assert (run.returncode, run.stdout.splitlines()[0]) == (0, "x: peak_bytes at 3 points")


def test_only_files_are_read_from_a_folder(write: Write, folder: Path) -> None:
    write("name: x\n", "sub/x.yaml")
    os.mkfifo(folder / "sub" / "pipe.yaml")
    (folder / "sub" / "folder.yaml").mkdir()
    assert find(["sub"])[0] == ("sub/x.yaml",)


def test_paths_that_match_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert heads("empty", "*.yaml") == [
        "empty: error[no-specs]: contains no files ending in .yaml or .yml",
        "*.yaml: error[no-specs]: no files match",
    ]
    (folder / "empty" / "config.json").write_text("{}", encoding="utf-8")
    assert heads("empty") == ["empty: error[no-specs]: contains no files ending in .yaml or .yml; name the file itself: empty/config.json"]


@pytest.fixture
def deep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a file in folders so deep that the system allows no path to it in one call, nor pytest to remove them."""
    monkeypatch.chdir(tmp_path)
    depth = 1200
    for _ in range(depth):
        Path("a").mkdir()
        os.chdir("a")
    Path("b.yaml").touch()
    monkeypatch.chdir(tmp_path)
    yield f"{'a/' * depth}b.yaml"
    for _ in range(depth):
        os.chdir("a")
    Path("b.yaml").unlink()
    for _ in range(depth):
        os.chdir("..")
        Path("a").rmdir()


def test_a_thousand_folders_inside_each_other(deep_file: str) -> None:
    assert find(["a"]) == ((deep_file,), ())
    assert find(["**/b.yaml"]) == ((deep_file,), ())


def test_standard_input(minimal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    typed(minimal)
    (loaded,), problems = spec.read(["-"])
    assert (loaded.name, loaded.path, problems) == ("small", "<stdin>", ())
    typed(minimal)
    assert spec.load("-").model.d_model == 48
    typed(minimal + "  foo: 1\n")
    assert spec.render(spec.read(["-"])[1]).startswith("<stdin>:8:3: error[unknown-key]: unknown key 'foo' in model")


def test_standard_input_extends_from_the_working_directory(write: Write, minimal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(minimal, "base.yaml")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: top\nextends: base.yaml\n")))
    assert spec.load("-").model.d_model == 48
