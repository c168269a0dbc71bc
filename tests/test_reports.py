"""The committed reports are up to date with the committed specs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_committed_reports_are_up_to_date() -> None:
    specs = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "specs").glob("*.yaml"))
    command = [sys.executable, "-m", "planner", "run", "--check", *specs]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=ROOT, env=os.environ, check=False)
    assert run.returncode == 0, f"{run.stderr}\nrun `make run` and commit reports/"
