"""Run the examples of README.md and docs/ and update the output that they show: `make readme`. With --check, only report outdated pages.

Each page runs from top to bottom in an empty folder of its own:

- A YAML block that starts with a comment `# PATH.yaml` is written to that path.
- A comment `<!-- $ COMMANDS -->` runs without being shown. $REPOSITORY is this checkout.
- A console block is a command and its output. A block with … shows a selection of lines: each is replaced by the next printed line that
  starts with the same word. A block without … shows all lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEP = re.compile(
    r"^```yaml\n# (?P<path>\S+\.ya?ml)\n(?P<text>.*?)^```$|^<!-- \$ (?P<unseen>.*?) -->$|(?<=^```console\n)\$ (?P<block>.*?)(?=^```$)",
    flags=re.MULTILINE | re.DOTALL,
)
DAY = "2026-01-01T00:00:00Z"  # fixed, so that commits have the same hashes everywhere
SETTINGS = {
    "NO_COLOR": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHON": sys.executable,
    "REPOSITORY": str(ROOT),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "you" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "you@localhost" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": DAY for role in ("AUTHOR", "COMMITTER")},
}


def pages() -> list[Path]:
    """Return the pages that show commands."""
    every = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [page for page in every if "```console" in page.read_text(encoding="utf-8")]


def run(command: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder, with stderr in stdout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["bash", "-c", f'planner() {{ "$PYTHON" -m planner "$@"; }}\n{{ {command}\n}} 2>&1'],
        stdout=subprocess.PIPE, encoding="utf-8", cwd=folder, env=inherited | SETTINGS, check=False,
    )  # fmt: skip


def command_and_lines(block: str) -> tuple[str, list[str]]:
    """Split a block after its command, or after the here-document that the command reads."""
    first, *rest = block.splitlines()
    here = re.search(r"<<'(\w+)'", first)
    split = rest.index(here[1]) + 1 if here else 0
    return "\n".join([first, *rest[:split]]), rest[split:]


def beginning(line: str) -> str:
    """Return a line's first word."""
    return next(iter(line.strip("│├└─ ").split()), "").rstrip(",:")


def refreshed(shown: list[str], printed: list[str]) -> Iterator[str]:
    """Replace each shown line by the next printed line that starts with the same word. Raises LookupError."""
    if "…" not in shown:
        yield from printed
        return
    for line in shown:
        if line == "…":
            yield line
            continue
        while printed and beginning(printed[0]) != beginning(line):
            printed = printed[1:]
        if not printed:
            raise LookupError(line)
        yield printed[0]
        printed = printed[1:]


def updated(page: Path) -> str:
    """Return the page with the current output of its commands."""

    def step(match: re.Match[str]) -> str:
        if match["path"]:
            path = Path(folder, match["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(match["text"], encoding="utf-8", newline="\n")
        elif match["unseen"]:
            if (done := run(match["unseen"], folder)).returncode:
                sys.exit(f"{page.name}: cannot run {match['unseen']}: {done.stdout}")
        else:
            command, shown = command_and_lines(match["block"])
            try:
                return "\n".join([f"$ {command}", *refreshed(shown, run(command, folder).stdout.splitlines())]) + "\n"
            except LookupError as error:
                sys.exit(f"{page.name}: `{command.splitlines()[0]}` no longer prints this line, or not in this order: {error}")
        return match[0]

    with tempfile.TemporaryDirectory() as folder:
        return STEP.sub(step, page.read_text(encoding="utf-8"))


def main() -> int:
    """Update the pages, or check them."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outdated = {
            page: text for page, text in zip(pages(), pool.map(updated, pages()), strict=True) if text != page.read_text(encoding="utf-8")
        }
    if "--check" in sys.argv[1:]:
        sys.stderr.writelines(f"{page.relative_to(ROOT).as_posix()} is out of date\n" for page in outdated)
        return int(bool(outdated))
    for page, text in outdated.items():
        page.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
