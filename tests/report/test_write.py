from __future__ import annotations

import contextlib
import os
import signal
import stat
from pathlib import Path

import pytest

from planner.report.write import outdated, write

OLD = {"a.csv": b"old a\n", "b.md": b"old b\n"}
NEW = {"a.csv": b"new a\n", "b.md": b"new b\n", "c.json": b"new c\n"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_files_are_written_into_a_new_directory_without_leftovers(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "reports"
    write(directory, NEW)
    assert contents(directory) == NEW


def test_files_are_replaced_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes(b"mine")
    write(tmp_path, OLD)
    write(tmp_path, NEW)
    assert contents(tmp_path) == {**NEW, "mine.txt": b"mine"}


def test_an_up_to_date_file_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path, NEW)
    os.utime(tmp_path / "a.csv", ns=(1, 1))
    write(tmp_path, NEW)
    assert (tmp_path / "a.csv").stat().st_mtime_ns == 1


def test_new_files_follow_the_umask_and_replaced_ones_keep_their_mode(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "a.csv").chmod(0o640)
    before = os.umask(0o027)
    try:
        write(tmp_path, NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o640  # 0666 less the umask


@pytest.mark.parametrize("failure", [OSError("disk on fire"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_if_one_file_cannot_be_replaced_all_stay_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, at: int
) -> None:
    write(tmp_path, OLD)
    replace = Path.replace
    done: list[Path] = []

    def fail_at(path: Path, target: Path) -> Path:
        if path.parent.name == "new" and len(done) == at:
            raise failure
        done.append(target)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_at)
    with pytest.raises(type(failure)):
        write(tmp_path, NEW)
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("undoing", [False, True])
def test_after_a_kill_the_next_run_restores_the_old_files_and_removes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, undoing: bool
) -> None:
    """Kill the process before its n-th rename, or make the last rename fail and kill it before its n-th restored file."""
    write(tmp_path, OLD)
    replace = Path.replace
    done: list[Path] = []

    def step(path: Path, target: Path) -> Path:
        if undoing and path.name == "c.json":
            raise OSError("disk on fire")
        if path.parent.name == ("old" if undoing else "new"):
            if len(done) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            done.append(path)
        return replace(path, target)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Path, "replace", step)
        with contextlib.suppress(OSError):
            write(tmp_path, NEW)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    write(tmp_path, {"d.txt": b"another"})
    finished = at == len(NEW) and not undoing
    assert contents(tmp_path) == {**(NEW if finished else OLD), "d.txt": b"another"}


def test_links_in_place_of_left_over_folders_are_not_followed(tmp_path: Path) -> None:
    reports, mine = tmp_path / "reports", tmp_path / "mine"
    for folder in (reports, mine / "old", reports / ".planner-undo-a"):
        folder.mkdir(parents=True)
    (mine / "old" / "a.csv").write_bytes(b"mine")
    (reports / ".planner-undo-a" / "old").symlink_to(mine / "old")
    for name in (".planner-undo-b", ".planner-new-b"):
        (reports / name).symlink_to(mine)
    write(reports, OLD)
    assert (mine / "old" / "a.csv").read_bytes() == b"mine"
    assert (reports / "a.csv").read_bytes() == OLD["a.csv"]


def test_a_directory_created_for_a_failed_report_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "reports", NEW)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(("depth", "written"), [(1500, True), (2500, False)])  # Linux allows 4,096 bytes per path
def test_a_path_of_many_folders_is_written_or_leaves_none(
    depth: int, written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("/".join("a" * depth))
    if written:
        write(path, NEW)
        assert all((path / name).read_bytes() == content for name, content in NEW.items())
        for name in NEW:
            (path / name).unlink()
        os.removedirs(path)  # pytest could not: its calls would nest too deep
    else:
        with pytest.raises(OSError, match="too long"):
            write(path, NEW)
        assert not list(tmp_path.iterdir())


def test_a_directory_in_place_of_a_file_is_an_error_and_nothing_changes(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "c.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path, NEW)
    assert (tmp_path / "a.csv").read_bytes() == OLD["a.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.md", "c.json"]


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "reports").write_bytes(b"")
    with pytest.raises(FileExistsError):
        write(tmp_path / "reports", NEW)
    assert (tmp_path / "reports").read_bytes() == b""


def test_outdated_lists_each_missing_and_outdated_file(tmp_path: Path) -> None:
    assert outdated(tmp_path / "nowhere", OLD) == {tmp_path / "nowhere" / name: "missing" for name in OLD}
    write(tmp_path, OLD)
    assert outdated(tmp_path, OLD) == {}
    assert outdated(tmp_path, {**NEW, "b.md": OLD["b.md"]}) == {tmp_path / "a.csv": "out of date", tmp_path / "c.json": "missing"}
