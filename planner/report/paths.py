"""File names in reports: the same bytes on every machine."""

from __future__ import annotations

import os
from pathlib import Path


def display_path(path: str) -> str:
    """Return the path relative to the current directory; for a file outside it, only its name. Links are not followed."""
    relative = os.path.relpath(path)
    inside = relative != os.pardir and not relative.startswith(os.pardir + os.sep)
    return posix(Path(relative if inside else Path(path).name))


def posix(path: Path) -> str:
    r"""Return the path with forward slashes; bytes that are not UTF-8 become ``\xff``."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
