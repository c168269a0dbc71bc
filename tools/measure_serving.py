"""Measure prompts and decoded tokens of every class of transformers that the importer reads: writes tests/data/serving_steps.jsonl.

Its first line has the versions, the shape of the requests and the names of the figures; each other line a small config.json of a class as
in ``tools/measure.py`` and its figures by setting, or the reason why transformers does not run it: ``sdpa`` or ``eager`` attention, with a
dynamic or a ``static`` cache. Names of types measure these alone; ``--compare`` measures nothing. Then
planner/report/measured_serving.csv is written: the differences between results and these figures.
"""

from __future__ import annotations

import csv
import json
import logging
import sys
import warnings
from dataclasses import astuple, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.capacity.served import Served  # noqa: E402
from planner.capacity.serving import serve  # noqa: E402
from planner.report.serving_accuracy import COLUMNS, GROUPS, TABLE  # noqa: E402
from planner.spec.records import Cache, Serving, Spec, Training  # noqa: E402
from planner.trace.unsupported import UnsupportedError  # noqa: E402
from tools.measure import EMPTY, configs, make, percent, refusal, spec_of, supports_sdpa, text_part, type_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

TRUTH = ROOT / "tests" / "data" / "serving_steps.jsonl"
REQUESTS = Serving(batch_size=2, prompt=33, output=3)  # odd, so that what kernels pad shows
SETTINGS = {
    "sdpa": REQUESTS,
    "eager": replace(REQUESTS, attention="eager"),
    "sdpa static": replace(REQUESTS, cache=Cache("static", room=40)),
}
LONGEST = 120  # characters of a reason


def module(config: dict[str, Any], attention: str) -> nn.Module:
    """Return the module of a config's class in bfloat16."""
    from planner.verify.generation import DEVICE

    eager = Training(1, 1, precision="bf16", implementation="transformers-eager")
    return make(config, EMPTY, eager if attention == "eager" else replace(eager, implementation="transformers"), DEVICE)[0]


def measure(config: dict[str, Any], setting: str) -> list[int] | str:
    """Return the figures of a config in a setting, or why there are none."""
    from planner.verify import generation
    from planner.verify.parts import UnbuildableError

    its = SETTINGS[setting]
    try:
        return list(astuple(generation.measure(partial(module, config, its.attention), its)))
    except UnbuildableError as error:
        return " ".join(str(error).split())[:LONGEST]


def differences(lines: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of differences: the largest of each class and setting in percent, or why there is none."""
    found: dict[tuple[str, ...], dict[str, float] | str] = {}
    for line in lines[1:]:
        for setting, its in line["figures"].items():
            key: tuple[str, ...] = (type_of(line["config"]) or "", SETTINGS[setting].attention, SETTINGS[setting].cache.type)
            off = its if isinstance(its, str) else compared(line["config"], setting, its)
            before = found.get(key)
            if isinstance(before, dict) and isinstance(off, dict):
                off = {group: max(before[group], off[group], key=abs) for group in GROUPS}
            found[key] = off
    for key, off in found.items():
        yield (*key, *[""] * len(GROUPS), off) if isinstance(off, str) else (*key, *(percent(off[group]) for group in GROUPS), "")


def compared(config: dict[str, Any], setting: str, right: list[int]) -> dict[str, float] | str:
    """Return the largest difference of each group of figures in percent, or why the planner refuses the model."""
    try:
        made = served(json.dumps(config), setting)
    except UnsupportedError as error:
        return f"planner: {refusal(error)}"
    passes = made.prefill, made.first, made.last
    flops = [one.flops for one in passes]
    peaks = [made.prefill.peak_bytes, max(made.first.peak_bytes, made.last.peak_bytes)]
    ours = [made.weights_bytes + made.buffers_bytes + made.inputs_bytes, made.cache_bytes, made.cache_after_bytes, *peaks, *flops]
    off = [(mine - its) / its * 100 for mine, its in zip(ours, right, strict=True)]
    parts = {"weights": off[:1], "cache": off[1:3], "peak": off[3:5], "flops": off[5:]}
    return {group: max(parts[group], key=abs) for group in GROUPS}


@cache
def served(config: str, setting: str) -> Served:
    """Return the plan of a class, given as JSON, in a setting."""
    made = serve(_spec(config), SETTINGS[setting], Training(1, 1, device="a100"))
    assert isinstance(made, Served)  # noqa: S101 - passes of transformers
    return made


@cache
def _spec(config: str) -> Spec:
    return spec_of(json.loads(config))


def write_differences(lines: list[dict[str, Any]]) -> None:
    """Write the table of differences."""
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([COLUMNS, *differences(lines)])


def main(only: list[str]) -> None:
    """Measure all classes, or those of the types, and write both files."""
    if "--compare" in only:
        write_differences([json.loads(line) for line in TRUTH.read_text().splitlines()])
        return
    import torch
    import transformers

    from planner.verify.generation import Generation

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call] # untyped in transformers
    logging.disable()  # of fake tensors, about what this reports as the reason
    warnings.simplefilter("ignore")  # transformers' own
    known = {json.dumps(row["config"]): row["figures"] for row in map(json.loads, TRUTH.read_text().splitlines()[1:])} if only else {}
    head = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    head |= {name: getattr(REQUESTS, name) for name in ("batch_size", "prompt", "output")}
    lines: list[dict[str, Any]] = [head | {"figures": [one.name for one in fields(Generation)]}]
    for config in configs():
        if text_part(config) is not config or "vision_config" in config:
            continue
        text = json.dumps(config)
        settings = [name for name, its in SETTINGS.items() if its.attention == "eager" or supports_sdpa(config)]
        measured = not only or type_of(config) in only
        lines.append({"config": config, "figures": {one: measure(config, one) for one in settings} if measured else known[text]})
        sys.stderr.write(f"{config['model_type']}\n")
    TRUTH.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8", newline="\n")
    write_differences(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
