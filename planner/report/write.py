"""Report files on disk: written whole or not at all, all of them or none; or compared with what is there."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def outdated(directory: Path, files: Mapping[str, bytes]) -> dict[Path, str]:
    """Return the files that are not on disk as given, each with what is wrong: ``missing`` or ``out of date``. Raise ``OSError``."""
    changed = (directory / name for name, content in files.items() if not _holds(directory / name, content))
    return {path: "out of date" if path.exists() else "missing" for path in changed}


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, by name, into the directory, which is made if need be. Raise ``OSError``.

    New contents are written beside the files that they replace, then take their places one after the other. A failure or an interrupt
    before the last one has puts the old contents back, so nobody is left with half a report. A file that has its content already is not
    touched; a link is replaced, not followed. Of two runs at once, one waits for the other, so that their files never mix.
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
    """Keep other runs from writing into the directory; the lock goes with the process, however it ends."""
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
