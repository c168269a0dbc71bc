"""What the planner costs, side by side with what it cannot avoid, in one run: `make bench`.

Every figure is the best of several rounds, and the things compared take turns, so that a busy machine slows both. Exit code 1: a limit is
exceeded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
GPT2, LLAMA = ROOT / "specs" / "gpt2-small.yaml", ROOT / "specs" / "llama-3-8b.yaml"
PUBLISHED = ROOT / "tests" / "data" / "published.jsonl"
BARE_IMPORTS = "import yaml, jsonschema, pandas"
SPECS = 1000
REVIEWED = 500  # specs of a repository
SIDE = 1000  # points of the grid, each way


class Line(NamedTuple):
    """One comparison: what was measured, against what, and the most that the ratio (or the seconds) may be."""

    what: str
    measured: str
    against: str
    value: float
    limit: float
    unit: str


def best(*things: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the seconds of each thing, the best of some rounds in turns."""
    seconds: list[list[float]] = [[] for _ in things]
    for _ in range(rounds):
        for thing, times in zip(things, seconds, strict=True):
            start = time.perf_counter()
            thing()
            times.append(time.perf_counter() - start)
    return [min(times) for times in seconds]


def python(*arguments: str) -> Callable[[], object]:
    """Return a call that runs this interpreter in a process of its own."""
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)


def one_run(folder: str) -> Line:
    """Compare a run on one spec with importing the packages that it needs."""
    run, bare = best(python("-m", "planner", "run", str(GPT2), "--output", folder), python("-c", BARE_IMPORTS))
    return Line("planner run, one spec", f"{run * 1e3:.0f} ms", f"bare imports {bare * 1e3:.0f} ms", run / bare, 1.3, "×")


def deep_model(folder: str) -> Line:
    """Compare planning 1,000 layers with planning 1."""
    import planner

    specs = []
    for layers in (1000, 1):
        path = Path(folder) / f"{layers}.yaml"
        path.write_text(
            GPT2.read_text(encoding="utf-8").split("expect:")[0].replace("n_layers: 12", f"n_layers: {layers}"), encoding="utf-8"
        )
        specs.append(planner.load(path))
    deep, shallow = best(*(lambda spec=spec: planner.plan(spec) for spec in specs))
    return Line("planning 1,000 layers", f"{deep * 1e3:.1f} ms", f"1 layer {shallow * 1e3:.1f} ms", deep / shallow, 1.3, "×")


def many_specs(folder: str) -> Line:
    """Time a run over many specs, per spec, without what one spec costs."""
    many = Path(folder) / "many"
    many.mkdir()
    text = GPT2.read_text(encoding="utf-8")
    for number in range(SPECS):
        (many / f"{number}.yaml").write_text(text.replace("name: gpt2-small", f"name: gpt2-{number}"), encoding="utf-8")
    all_of_them, one = best(*(python("-m", "planner", "run", str(specs), "--output", folder) for specs in (many, GPT2)), rounds=3)
    each = 1e3 * (all_of_them - one) / (SPECS - 1)
    return Line(f"planner run, {SPECS:,} specs", f"{all_of_them:.2f} s", "each", each, 3, " ms")


def grid() -> Line:
    """Time the figures of one model at a million batch sizes and sequence lengths."""
    import numpy as np

    import planner
    from planner import capacity

    spec = planner.load(LLAMA)
    B, n = np.meshgrid(np.arange(1, SIDE + 1), np.arange(1, SIDE + 1) * 128)
    (seconds,) = best(lambda: capacity.grid(spec, spec.scenarios[0], batch_size=B, sequence_length=n), rounds=3)
    return Line(f"a grid of {B.size:,} points", f"{seconds:.2f} s", "in one call", seconds, 1, " s")


def published_configs(folder: str) -> Line:
    """Time importing the published configurations and planning what they say, in this process."""
    import planner
    from planner import spec
    from planner.importer.families import REFUSED
    from planner.importer.huggingface import read_huggingface
    from planner.importer.write import spec_text

    rows = [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").splitlines()]
    configs = [row["hf_config"] for row in rows if row["hf_config"]["model_type"] not in REFUSED]
    specs = Path(folder) / "imported"
    specs.mkdir()

    def imported_and_planned() -> None:
        for number, config in enumerate(configs):
            (specs / f"{number}.yaml").write_text(spec_text(read_huggingface(config), f"model-{number}"), encoding="utf-8")
        for read in spec.read([specs])[0]:
            planner.plan(read)

    (seconds,) = best(imported_and_planned, rounds=3)
    return Line(f"{len(configs)} configs", f"{seconds:.2f} s", "imported and planned", seconds, 2, " s")


def diff(folder: str) -> Line:
    """Compare reviewing a repository of which a few specs changed with planning these, beside reading the base."""
    from planner import spec

    repo = Path(folder) / "repo"
    (repo / "specs").mkdir(parents=True)
    text = LLAMA.read_text(encoding="utf-8").partition("expect:")[0]
    for number in range(REVIEWED):
        (repo / "specs" / f"{number}.yaml").write_text(text.replace("name: llama-3-8b", f"name: model-{number}"), encoding="utf-8")
    for command in ("init --quiet --initial-branch main", "add --all", "-c user.name=a -c user.email=a commit --quiet --message a"):
        subprocess.run(["git", *command.split()], check=True, cwd=repo)
    changed = [repo / "specs" / f"{number}.yaml" for number in (3, 100, 400)]
    for path in changed:
        path.write_text(path.read_text(encoding="utf-8").replace("n_layers: 32", "n_layers: 36"), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def planner(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [sys.executable, "-m", "planner", *arguments], check=True, capture_output=True, cwd=repo, env=environment
        )

    review, run, reading = best(planner("diff"), planner("run", *map(str, changed)), lambda: spec.read([repo / "specs"]), rounds=5)
    against = f"run on 3 {run * 1e3:.0f} ms"
    return Line(f"planner diff, 3 of {REVIEWED}", f"{review * 1e3:.0f} ms", against, (review - reading) / run, 2.5, "×")


def main() -> int:
    """Measure, print a table, and say whether a limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [one_run(folder), deep_model(folder), many_specs(folder), grid(), published_configs(folder), diff(folder)]
    for line in lines:
        limit = f"at most {line.limit:g}{line.unit}"
        verdict = "ok" if line.value <= line.limit else "TOO SLOW"
        print(f"{line.what:<26} {line.measured:>9}   {line.against:<22} {line.value:7.2f}{line.unit:<3}  {limit:<14} {verdict}")
    return int(any(line.value > line.limit for line in lines))


if __name__ == "__main__":
    sys.exit(main())
