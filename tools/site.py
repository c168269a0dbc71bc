"""Build the documentation site into build/site: README.md, docs/, and a gallery with a live page of every model. `make site`.

With ``--models N``, the gallery has only the first N models.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

import planner  # noqa: E402
from planner.report import page  # noqa: E402
from planner.report.columns import OVERVIEW  # noqa: E402
from planner.report.overview import cells  # noqa: E402
from planner.report.planned import Planned  # noqa: E402

COPIED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "specs", "reports")
HEAD = """\
---
hide: [navigation, toc]
---

# Gallery

Every example in [`specs/`](specs/index.md) and every model of the [catalog](specs/catalog/README.md). A model's page lets you change its
sizes, batch, sequence length, precision and optimizer; every figure follows. Figures are those of the spec's training step.
"""


def specs() -> list[Path]:
    """Return the specs of the gallery: examples first, then the catalog by model type."""
    folder = ROOT / "specs"
    return sorted(folder.glob("*.yaml")) + sorted((folder / "fleet").glob("*.yaml")) + sorted((folder / "catalog").rglob("*.yaml"))


def row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def gallery(models: Iterable[Path], pages: Path) -> Iterator[str]:
    """Write the pages of models and yield the gallery."""
    columns = [column for column in OVERVIEW.values() if column.tier == "summary"]
    yield HEAD + "\n" + row(["model", *(column.heading for column in columns)]) + row(["---", *("---:" for _ in columns)])
    for path in models:
        spec = planner.load(path)
        plans = planner.plans(spec)
        linked = f"models/{path.stem}.html"
        (pages / linked).write_text(page.report([Planned(spec, plans)]), encoding="utf-8", newline="\n")
        yield row([f"[{escape(spec.name)}]({linked})", *(cell.replace(" ", "&nbsp;") for cell in cells(plans[0], columns))])


def index(folder: Path) -> str:
    """Return a page that lists the files of a folder, since pages link to the folder."""
    files = sorted(file.name for file in folder.iterdir() if file.is_file() and file.name != "index.md")
    return f"# {folder.name}\n\n" + "".join(f"- [{name}]({name})\n" for name in files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy the pages, write the gallery, and run Zensical, which fails on a dead link."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, help="how many models the gallery has; all by default")
    parser.add_argument("--into", type=Path, default=ROOT / "build", help="the folder of the site")
    options = parser.parse_args(arguments)
    pages: Path = options.into / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    (pages / "models").mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, pages / name)
        else:
            shutil.copy(ROOT / name, pages / name)
    for name in ("specs", "reports"):
        (pages / name / "index.md").write_text(index(pages / name), encoding="utf-8")
    (pages / "gallery.md").write_text("".join(gallery(specs()[: options.models], pages)), encoding="utf-8")
    (pages / "docs" / "zensical.toml").rename(options.into / "zensical.toml")
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=options.into, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
