"""Report files on disk: written all or none, also if the process is killed; or compared with existing files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

Content: TypeAlias = bytes | Iterable[bytes]
"""A file's content; one in pieces may be larger than the memory, and is always written."""
_SCRATCH, _JOURNAL = ".planner-new-", ".planner-undo-"  # folders beside the files: new files; those that a killed run was replacing


def outdated(directory: Path, files: Mapping[str, bytes]) -> dict[Path, str]:
    """Return the files that differ on disk, each ``missing`` or ``out of date``. Raises OSError."""
    changed = (directory / name for name, content in files.items() if not _holds(directory / name, content))
    return {path: "out of date" if path.exists() else "missing" for path in changed}


def write(directory: Path, files: Mapping[str, Content]) -> None:
    """Write the files, by name, into the directory, which is created if needed. Raises OSError.

    New files are written next to the ones they replace and then renamed, one after the other. A failure or interrupt before the last
    rename restores the old contents; if the process is killed, the next run does. An unchanged file is not touched; a link is replaced, not
    followed. A second run waits for the first.
    """
    made = make_folder(directory)
    try:
        with _alone(directory):
            changed = {name: content for name, content in files.items() if not _holds(directory / name, content)}
            if changed:
                _replace(directory, changed)
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in reversed(made):
                folder.rmdir()
        raise


def make_folder(directory: Path) -> list[Path]:
    """Create a folder and return those that were missing. Raises OSError.

    pathlib and os create parents recursively, which ends in a RecursionError for a path of a thousand folders.
    """
    missing = [folder for folder in (*reversed(directory.parents), directory) if not folder.exists()]
    for folder in missing or [directory]:
        folder.mkdir(exist_ok=True)
    return missing


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Lock the directory against other runs, and undo what a killed one left; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where each file is still written whole
        yield
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        for journal in directory.glob(f"{_JOURNAL}*"):
            _undo(directory, journal)
        for scratch in directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(scratch, ignore_errors=True)
        yield
    finally:
        os.close(opened)


def _replace(directory: Path, files: Mapping[str, Content]) -> None:
    """Replace the files: prepare all, then rename them while a journal is there, whose last rename makes the new files final."""
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=directory))
    journal = directory / scratch.name.replace(_SCRATCH, _JOURNAL)
    try:
        for part in ("new", "old", "none"):
            (scratch / part).mkdir()
        for name, content in files.items():
            target, new = directory / name, scratch / "new" / name
            if isinstance(content, bytes):
                new.write_bytes(content)
            else:
                with new.open("wb") as file:
                    file.writelines(content)
            if target.exists():
                shutil.copy2(target, scratch / "old" / name)
                shutil.copymode(target, new)
            else:
                (scratch / "none" / name).touch()
        scratch.rename(journal)
        for name in files:
            (journal / "new" / name).replace(directory / name)
        journal.rename(scratch)
    except BaseException:
        if journal.exists():
            _undo(directory, journal)
        raise
    finally:
        with contextlib.ExitStack() as tidy:
            for _ in range(2):  # once more if a signal interrupts it
                tidy.callback(shutil.rmtree, scratch, ignore_errors=True)


def _undo(directory: Path, journal: Path) -> None:
    """Restore the files as they were before a run replaced some of them. If this is interrupted, it can be done again."""
    old, none = journal / "old", journal / "none"
    if not any(path.is_symlink() for path in (journal, old, none)):  # no run makes links
        for path in old.glob("*"):
            path.replace(directory / path.name)
        for path in none.glob("*"):
            (directory / path.name).unlink(missing_ok=True)
            path.unlink()
        journal.rename(directory / journal.name.replace(_JOURNAL, _SCRATCH))


def _holds(path: Path, content: Content) -> bool:
    return isinstance(content, bytes) and path.is_file() and path.read_bytes() == content
