"""Bring the example of docs/review.md up to date: `make readme`. With --check, only say whether it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "review.md"
FILES = re.compile(r"(?<=^```yaml\n)# (\S+)\n(.*?)(?=^```$)", flags=re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"(?<=^```text\n)(.*?)(?=^```$)", flags=re.MULTILINE | re.DOTALL)
CHANGES = {"n_layers: 16": "n_layers: 24", "batch_size: 4": "batch_size: 6"}  # as the page says
DAY = "2026-01-01T00:00:00Z"  # of the commit, so that its name is the same everywhere


def printed(page: str) -> str:
    """Return what planner diff prints of the page's files after the page's changes."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, text in FILES.findall(page)[:2]:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        who = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "a"), ("EMAIL", "a"), ("DATE", DAY))
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | nobody | who

        def run(*command: str) -> str:
            return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False).stdout

        run("git", "init", "--quiet", "--initial-branch", "main")
        run("git", "add", "--all")
        run("git", "commit", "--quiet", "--message", "a proposal")
        spec = folder / "specs" / "my-model.yaml"
        text = spec.read_text(encoding="utf-8")
        for old, new in CHANGES.items():
            text = text.replace(old, new)
        spec.write_text(text, encoding="utf-8")
        return run(sys.executable, "-m", "planner", "diff")


def main() -> int:
    """Rewrite the page, or check it."""
    old = PAGE.read_text(encoding="utf-8")
    example = printed(old)
    new = SHOWN.sub(lambda _: example, old)
    if "--check" in sys.argv[1:]:
        return int(new != old or not example)
    PAGE.write_text(new, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
