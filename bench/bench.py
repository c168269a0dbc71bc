"""Compare the planner's running time with a lower bound measured in the same run: `make bench`.

Every limit of time is a ratio of two CPU times, each the best of several alternating rounds, so that a slow or busy machine affects both.
The pages have limits of size; how long a browser takes to open them is printed without one.
Exit code 1: a limit is exceeded.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
GPT2, LLAMA = ROOT / "specs" / "gpt2-small.yaml", ROOT / "specs" / "llama-3-8b.yaml"
PUBLISHED = ROOT / "tests" / "data" / "published.jsonl"
SUMS = 100  # products and sums over the grid that its metrics are compared with
SPECS = 1000
REVIEWED = 500  # specs of a repository
LAYOUTS, SINGLE = 100_000, 100  # layouts as arrays, and of them one by one
CLUSTERS, SEQUENCES = 300, 5040  # of a search: the first multiples of 8 devices, and sequences of a step
SEARCHED = """
import resource, sys, time
import planner
from dataclasses import replace
from planner.explore.best_layouts import search
spec = planner.load({"name": "llama", "extends": "catalog/llama-3-70b", "training": {"implementation": "megatron-core",
    "precision": "bf16-master"}, "cluster": {"device": "H100-80GB-SXM", "devices": 8}, "layout": {"data_parallel": "zero1"}})
scenario = spec.scenarios[0]
clusters = [replace(scenario.training.layout.cluster, devices=8 * count) for count in range(1, int(sys.argv[1]) + 1)]
start = time.perf_counter()
made = search(spec, scenario, clusters, int(sys.argv[2]), lambda *_: None)
used = [resource.getrusage(whose).ru_maxrss >> 10 for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(f"{made.possible:,} layouts, {made.possible / (time.perf_counter() - start):,.0f} a second; {used[0]:,} MiB, each worker {used[1]:,}")
"""
USABLE = """
    const done = arguments[0], drawn = () => requestAnimationFrame(() => setTimeout(done, 0, performance.now()));
    const ask = () => document.querySelector('.live[hidden]') ? setTimeout(ask, 5) : drawn();
    ask();
"""  # calls back with the milliseconds until a live page has its figures
SIDE = 1000  # points of the grid, each way
COLUMNS = 10  # of sweep.csv


class Line(NamedTuple):
    """One comparison: a measured time and its lower bound, in seconds, and the maximum ratio."""

    what: str
    measured: float
    against: str
    unavoidable: float
    limit: float

    @property
    def ratio(self) -> float:
        """The measured time in multiples of the lower bound."""
        return self.measured / self.unavoidable


def processor_seconds() -> float:
    """Return the CPU time of this process and its finished children."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def best(*things: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the CPU time of each call in seconds, the best of several alternating rounds."""
    seconds: list[list[float]] = [[] for _ in things]
    for _ in range(rounds):
        for thing, times in zip(things, seconds, strict=True):
            start = processor_seconds()
            thing()
            times.append(processor_seconds() - start)
    return [min(times) for times in seconds]


def python(*arguments: str) -> Callable[[], object]:
    """Return a call that runs this interpreter in a new process."""
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)


def read_and_validated(texts: Sequence[str]) -> Callable[[], object]:
    """Return a call that reads specs with PyYAML and validates them with jsonschema, nothing else."""
    import jsonschema
    import yaml

    from planner.spec.language import schema

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    validator = jsonschema.Draft7Validator(schema())
    return lambda: [list(validator.iter_errors(yaml.load(text, loader))) for text in texts]  # noqa: S506 - a safe loader, in C or Python


def one_validation(_: str) -> Line:
    """Compare validating one spec with importing its dependencies."""
    validation, bare = best(python("-m", "planner", "validate", str(GPT2)), python("-c", "import yaml, jsonschema"))
    return Line("planner validate, one spec", validation, "import yaml, jsonschema", bare, 1.5)


def one_run(folder: str) -> Line:
    """Compare a run on one spec with importing all dependencies."""
    run, bare = best(python("-m", "planner", "run", str(GPT2), "--output", folder), python("-c", "import yaml, jsonschema, pandas"))
    return Line("planner run, one spec", run, "import all dependencies", bare, 1.3)


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
    return Line("planning 1,000 layers", deep, "planning 1 layer", shallow, 1.5)


def many_specs(folder: str) -> Line:
    """Compare the time per additional spec of a run with reading and validating its text."""
    many = Path(folder) / "many"
    many.mkdir()
    text = GPT2.read_text(encoding="utf-8")
    texts = [text.replace("name: gpt2-small", f"name: gpt2-{number}") for number in range(SPECS)]
    for number, each in enumerate(texts):
        (many / f"{number}.yaml").write_text(each, encoding="utf-8")
    run, one, bare = best(
        python("-m", "planner", "run", str(many), "--output", folder),
        python("-m", "planner", "run", str(GPT2), "--output", folder),
        read_and_validated(texts),
        rounds=3,
    )
    return Line(f"planner run, {SPECS:,} specs", run - one, "yaml, jsonschema on these", bare, 10)


def grid(_: str) -> Line:
    """Compare the metrics of one model at a million points with products and sums over as many integers."""
    import numpy as np

    import planner
    from planner import capacity
    from planner.explore import table

    spec = planner.load(LLAMA)
    B, n = np.meshgrid(np.arange(1, SIDE + 1), np.arange(1, SIDE + 1) * 128)
    metrics = [table.METRICS[name] for name in table.ALWAYS]

    def sums() -> None:
        total = np.zeros(B.shape, dtype=np.int64)
        for factor in range(SUMS):
            total += B * factor

    seconds, bare = best(lambda: capacity.step_formulas(spec, spec.scenarios[0]).at(B, n, *metrics), sums, rounds=3)
    return Line(f"a grid of {B.size:,} points", seconds, f"{SUMS} products, sums of numpy", bare, 7)


def layouts(_: str) -> Line:
    """Compare the peaks of 100,000 layouts as arrays with the plans of 100 of them, one by one."""
    import numpy as np

    import planner
    from planner.capacity.layout_grid import peaks
    from planner.capacity.layout_symbols import SIZES, size_of, with_sizes

    laid = {
        "tensor_parallel": 2,
        "sequence_parallel": True,
        "loss_parallel": True,
        "data_parallel": "fsdp",
        "reshard_after_forward": "never",
    }
    training = {"batch_size": 1, "precision": "bf16", "loss": "cross_entropy_float32"}
    cluster = {"device": "H100-80GB-SXM", "devices": 16}
    written = {"name": "llama", "extends": "catalog/llama-3-70b", "training": training, "cluster": cluster, "layout": laid}
    spec = planner.load(written)
    one, rng = spec.scenarios[0], np.random.default_rng(0)
    tp, pp = 2 ** rng.integers(1, 4, LAYOUTS), 2 ** rng.integers(0, 5, LAYOUTS)
    grid = {"tensor_parallel": tp, "pipeline_parallel": pp, "devices": tp * pp * rng.integers(2, 500, LAYOUTS)}
    grid |= {"batch_size": rng.integers(1, 17, LAYOUTS), "gradient_accumulation": pp * rng.integers(1, 50, LAYOUTS)}

    def singly() -> None:
        for number in range(SINGLE):
            sizes = {name: int(grid[name][number]) if name in grid else size_of(name, spec.model, one.training) for name in SIZES}
            model, training = with_sizes(spec.model, one.training, sizes)
            planner.capacity.plan(replace(spec, model=model), replace(one, training=training))

    seconds, plans = best(lambda: peaks(spec.model, one.training, grid), singly, rounds=3)
    return Line(f"peaks of {LAYOUTS:,} layouts", seconds, f"{SINGLE} plans", plans, 1)


def searches() -> str:
    """Return how many layouts a search in a new process evaluates a second, and its memory."""
    arguments = [sys.executable, "-c", SEARCHED, str(CLUSTERS), str(SEQUENCES)]
    return subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def published_configs(folder: str) -> Line:
    """Compare importing and planning the published configurations with reading and validating their specs."""
    import planner
    from planner import spec
    from planner.importer.formats.huggingface import read_huggingface
    from planner.importer.types import REFUSED
    from planner.importer.write import spec_text

    rows = [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").splitlines()]
    configs = [row["hf_config"] for row in rows if row["hf_config"]["model_type"] not in REFUSED]
    specs = Path(folder) / "imported"
    specs.mkdir()

    def texts() -> list[str]:
        return [spec_text(read_huggingface(config), f"model-{number}") for number, config in enumerate(configs)]

    def imported_and_planned() -> None:
        for number, text in enumerate(texts()):
            (specs / f"{number}.yaml").write_text(text, encoding="utf-8")
        for read in spec.read([specs])[0]:
            planner.plan(read)

    imported, bare = best(imported_and_planned, read_and_validated(texts()), rounds=3)
    return Line(f"{len(configs)} configs, to plans", imported, "yaml, jsonschema on specs", bare, 15)


def report_of_all(form: str, what: str, limit: float) -> Callable[[str], Line]:
    """Return a comparison of a report in a format with CSV and Markdown, for all specs of the repository."""

    def measured(folder: str) -> Line:
        def run(formats: str) -> Callable[[], object]:
            return python("-m", "planner", "run", "specs", "--format", formats, "--output", folder)

        seconds, bare = best(run(form), run("csv,md"), rounds=3)
        return Line(what, seconds, "planner run, CSV and Markdown", bare, limit)

    return measured


def sweep(folder: str) -> Line:
    """Compare writing a grid of a million points as CSV with evaluating and printing as many integers."""
    import numpy as np

    grid = [f"training.batch_size=1..{SIDE}", f"training.sequence_length=8..{8 * SIDE}..8"]
    arguments = [argument for axis in grid for argument in ("--set", axis)]

    line = ",".join(["%d"] * COLUMNS) + "\n"

    def printed() -> None:
        with (Path(folder) / "bare.csv").open("w") as file:
            for row in np.arange(SIDE * SIDE * COLUMNS).reshape(-1, SIDE, COLUMNS):
                file.writelines(line % tuple(cells) for cells in row.tolist())

    seconds, bare = best(python("-m", "planner", "sweep", str(LLAMA), *arguments, "--output", folder), printed, rounds=3)
    return Line("planner sweep, 1,000,000", seconds, "print as many integers", bare, 3)


def diff(folder: str) -> Line:
    """Compare reviewing a repository with a few changed specs, without reading it, with planning those specs."""
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
    return Line(f"planner diff, 3 of {REVIEWED}", review - reading, "planner run on these 3", run, 3)


def opening(path: Path) -> str:
    """Return how long Chromium takes until a page is loaded and its script has run: the median of 5, the first left out."""
    try:
        from selenium import webdriver
    except ImportError:
        return "not opened: selenium is not installed"
    driver = shutil.which("chromedriver")
    if not driver:
        return "not opened: needs chromium and chromium-driver"
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    took = []
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        for _ in range(6):
            browser.get("about:blank")
            browser.get(path.as_uri())
            took.append(browser.execute_async_script(USABLE))
    return f"opened in {sorted(took[1:])[2]:,.0f} ms"


def pages(folder: str) -> bool:
    """Print the size of the pages of all specs and of one, and how long they take to open; return whether both are small enough."""
    small = True
    for what, path, limit in (("all specs", "specs", 6_000_000), ("one model", str(GPT2), 150_000)):
        python("-m", "planner", "run", path, "--format", "html", "--output", folder)()
        page = Path(folder) / "capacity.html"
        size = page.stat().st_size
        small &= size < limit
        verdict = "ok" if size < limit else "TOO LARGE"
        print(f"page of {what}: {size:,} bytes, less than {limit:,} {verdict}; {opening(page)}")
    return small


def main() -> int:
    """Print a table of measurements; return 1 if a limit is exceeded, else 0."""
    slow = 0
    page, workbook = report_of_all("html", "the page of all specs", 2), report_of_all("xlsx", "the workbook of all specs", 4)
    for measure in (one_validation, one_run, deep_model, many_specs, page, workbook, grid, layouts, sweep, published_configs, diff):
        with tempfile.TemporaryDirectory() as folder:
            line = measure(folder)
        slow += line.ratio > line.limit
        times = f"{line.measured * 1e3:8,.1f} ms   {line.against:<28} {line.unavoidable * 1e3:8,.1f} ms"
        verdict = "TOO SLOW" if line.ratio > line.limit else "ok"
        print(f"{line.what:<26} {times} {line.ratio:6.2f}×  at most {line.limit:.1f}× {verdict}")
    print(f"search of layouts: {searches()}", end="")
    with tempfile.TemporaryDirectory() as folder:
        small = pages(folder)
    return int(slow > 0 or not small)


if __name__ == "__main__":
    sys.exit(main())
