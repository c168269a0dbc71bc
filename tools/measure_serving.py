"""Measure prompts and decoded tokens of every class of transformers that the importer reads: writes tests/data/serving_steps.jsonl.

Its first line has the versions, the shape of the requests and the names of the figures; each other line a small config.json of a class as
in ``tools/measure.py`` and its figures by setting, or the reason why transformers does not run it: ``sdpa`` or ``eager`` attention, with a
dynamic or a ``static`` cache. Names of types measure these alone.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from dataclasses import astuple, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.spec.records import Cache, Serving, Training  # noqa: E402
from tools.measure import EMPTY, configs, make, supports_sdpa, text_part, type_of  # noqa: E402

if TYPE_CHECKING:
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


def main(only: list[str]) -> None:
    """Measure all classes, or those of the types."""
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


if __name__ == "__main__":
    main(sys.argv[1:])
