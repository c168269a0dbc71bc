"""The documentation site: complete, and without dead links, which Zensical finds."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_menu_has_every_page() -> None:
    config = tomllib.loads((ROOT / "docs/zensical.toml").read_text(encoding="utf-8"))
    listed = set(re.findall(r"docs/\w+\.md", str(config["project"]["nav"])))
    assert listed == {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}


def test_the_site_builds_without_dead_links(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, ROOT / "tools/site.py", "--models", "2", "--into", tmp_path], capture_output=True, text=True, check=False
    )
    assert (built.returncode, "No issues found" in built.stdout + built.stderr) == (0, True), built.stderr
    gallery = (tmp_path / "site/gallery.html").read_text(encoding="utf-8")
    assert len(re.findall(r'href="models/[^"]+\.html"', gallery)) == 2
    assert "176.2" in gallery  # BLOOM has 176,247,271,424 parameters
    assert (tmp_path / "site/docs/spec.html").is_file()
