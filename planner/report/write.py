"""Report files on disk: written atomically, all or none; or compared with existing files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def outdated(directory: Path, files: Mapping[str, bytes]) -> dict[Path, str]:
    """Return the files that differ on disk, each ``missing`` or ``out of date``. Raises OSError."""
    changed = (directory / name for name, content in files.items() if not _holds(directory / name, content))
    return {path: "out of date" if path.exists() else "missing" for path in changed}


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, by name, into the directory, which is created if needed. Raises OSError.

    New files are written next to the ones they replace and then renamed, one after the other. A failure or interrupt before the last
    rename restores the old contents. An unchanged file is not touched; a link is replaced, not followed. A second run waits for the first.
    """
    made = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _alone(directory), tempfile.TemporaryDirectory(prefix=".planner-", dir=directory) as scratch:
            changed = {name: content for name, content in files.items() if not _holds(directory / name, content)}
            _replace(directory, changed, Path(scratch))
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Lock the directory against other runs; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where each file is still written whole
        yield
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _replace(directory: Path, files: Mapping[str, bytes], scratch: Path) -> None:
    with contextlib.ExitStack() as undo:
        for name, content in files.items():
            target, new, old = directory / name, scratch / name, scratch / f"{name}.old"
            new.write_bytes(content)
            if target.exists():
                shutil.copy2(target, old)
                shutil.copymode(target, new)
                undo.callback(os.replace, old, target)
            else:
                undo.callback(target.unlink, missing_ok=True)
        for name in files:
            (scratch / name).replace(directory / name)
        undo.pop_all()


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
