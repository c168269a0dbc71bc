"""How a report names a spec file: the same bytes on every machine."""

from __future__ import annotations

import os
from pathlib import Path


def shown(path: str) -> str:
    r"""Name the file relative to the current directory with forward slashes; of a file outside it the name alone.

    Links are not followed. Bytes of a file name that are no UTF-8 are written ``\xff``.
    """
    relative = os.path.relpath(path)
    inside = relative != os.pardir and not relative.startswith(os.pardir + os.sep)
    text = Path(relative).as_posix() if inside else Path(path).name
    return os.fsencode(text).decode("utf-8", "backslashreplace")
