"""Bring the console blocks of README.md up to date: `make readme`. With --check, only say whether they are.

A block is a command and some of the lines that it prints; … stands for lines left out. Each line shown is replaced by the next line printed
that starts with the same words.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=^```console\n)\$ (.*?)(?=^```$)", flags=re.MULTILINE | re.DOTALL)


def command_and_lines(block: str) -> tuple[str, list[str]]:
    """Split a block behind its command, or behind the here-document that the command reads."""
    first, *rest = block.splitlines()
    here = re.search(r"<<'(\w+)'", first)
    split = rest.index(here[1]) + 1 if here else 0
    return "\n".join([first, *rest[:split]]), rest[split:]


def printed_by(command: str, folder: str) -> list[str]:
    """Run the command in the folder: what a success prints, or what a failure complains of."""
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    script = f'planner() {{ "$PYTHON" -m planner "$@"; }}\n{command}'
    run = subprocess.run(["bash", "-c", script], capture_output=True, encoding="utf-8", cwd=folder, env=environment, check=False)
    return (run.stderr if run.returncode else run.stdout).splitlines()


def beginning(line: str) -> str:
    """Return a line's first words, up to the first gap."""
    return re.split(r"\s{2,}| = ", line.strip("│├└─ "))[0]


def refreshed(shown: list[str], printed: list[str]) -> Iterator[str]:
    """Replace each line shown by the next one printed that begins alike."""
    for line in shown:
        if line == "…":
            yield line
            continue
        while printed and beginning(printed[0]) != beginning(line):
            printed = printed[1:]
        if not printed:
            sys.exit(f"README.md shows a line that is not printed any more, or no longer in this place: {line}")
        yield printed[0]
        printed = printed[1:]


def main() -> int:
    """Rewrite README.md, or check it."""
    old = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "specs", Path(folder) / "specs")

        def refresh(match: re.Match[str]) -> str:
            command, shown = command_and_lines(match[1])
            return "\n".join([f"$ {command}", *refreshed(shown, printed_by(command, folder))]) + "\n"

        new = BLOCK.sub(refresh, old)
    if "--check" in sys.argv[1:]:
        return int(new != old)
    README.write_text(new, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
