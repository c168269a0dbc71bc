"""Read the text of a spec file: limited in size, UTF-8, and with a clear error otherwise."""

from __future__ import annotations

import os
import stat
import sys
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from planner.spec.nodes import Mark, Source
from planner.spec.problems import Problem, SpecError
from planner.spec.records import Place

STDIN = "<stdin>"  # the place of what is read from standard input
LIMIT = 2**20  # bytes of a spec file
_PACKAGE = Path(__file__).parent.parent


def whole_file(file: str, code: str, message: str, hint: str = "") -> Problem:
    """Return a problem of a file as a whole."""
    return Problem(Place(file, 0, 0), code, message, hint=hint)


def identity(file: str) -> str:
    """Return what all names of a file have in common."""
    return file if file == STDIN or "\0" in file else os.path.realpath(file)


def repositories(folder: str) -> list[Path]:
    """Return the real paths of the repositories around a folder, the innermost first."""
    path = Path(os.path.abspath(folder))  # noqa: PTH100 - links are followed later, ".." never through them
    return [Path(os.path.realpath(parent)) for parent in (path, *path.parents) if (parent / ".git").exists()]


def leaves_repository(file: str) -> bool:
    """Whether a path in a repository leads out of it through links, and out of the working directory, too.

    The planner's own files may be links, into the cache of an installer.
    """
    real, path = os.path.realpath(file), os.path.abspath(file)  # noqa: PTH100 - as above
    if real == path or Path(real).is_relative_to(Path.cwd().resolve()) or Path(path).is_relative_to(_PACKAGE):
        return False
    return not all(Path(real).is_relative_to(root) for root in repositories(os.path.dirname(path)))  # noqa: PTH120


def read_source(file: str) -> Source:
    """Read a spec file, or standard input for ``<stdin>``.

    Raises SpecError: the file is missing, a folder, a link out of its repository, too large or not UTF-8.
    """
    return decode(file, _read_bytes(file))


def _read_bytes(file: str) -> bytes:
    """Read at most LIMIT bytes; raises SpecError."""
    try:
        if file == STDIN:
            if sys.stdin is None:
                raise OSError("it is closed")  # noqa: TRY301 - reported like any other
            data = _input(sys.stdin)
        else:
            path = Path(file)
            if leaves_repository(file):
                raise SpecError([whole_file(file, "outside", "is a link out of the repository", "name the file itself")])
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise SpecError([whole_file(file, "folder", "is a folder, not a spec file", "name a file in it")])
            if stat.S_ISREG(status.st_mode):
                with path.open("rb") as stream:
                    data = stream.read(LIMIT + 1)
            elif sys.stdin and os.path.samestat(status, os.fstat(0)):  # /dev/stdin
                data = _input(sys.stdin)
            else:  # a pipe may block
                raise SpecError([whole_file(file, "unreadable", "is not a regular file", "write - for standard input")])
    except FileNotFoundError:
        raise SpecError([whole_file(file, "not-found", "no such file or directory")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([whole_file(file, "unreadable", f"cannot be read: {reason}")]) from None
    if len(data) > LIMIT:
        raise SpecError([whole_file(file, "too-large", f"exceeds the limit of {LIMIT // 2**20} MiB")])
    return data


@lru_cache(maxsize=1)
def _input(stream: TextIO) -> bytes:
    """Read standard input, once: a command may load its spec again with other settings."""
    return stream.buffer.read(LIMIT + 1)


def decode(file: str, data: bytes) -> Source:
    """Decode UTF-8, with or without a byte order mark; raises SpecError."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or (data[:4].count(0) > 1 and any(data[:4])):
        raise SpecError([whole_file(file, "encoding", "is UTF-16 or UTF-32", "save it as UTF-8")])
    try:
        return Source(file, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        source = Source(file, before + "\N{REPLACEMENT CHARACTER}")
        mark = Mark(source, len(source.lines) - 1, len(source.lines[-1]) - 1)
        raise SpecError([mark.problem("encoding", f"the byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")]) from None
