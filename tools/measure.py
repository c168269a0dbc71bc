"""Measure training steps of every class of transformers that the importer reads: `make measure`.

Writes ``tests/data/class_steps.jsonl``. Its first line has the versions and the shape of the steps; each other line a small config.json of
a class and its steps by setting: ``sdpa`` or ``eager`` attention, the precision, and ``full`` where each block is recomputed. A step has
the values of ``FIGURES``, or the reason why transformers does not run it. Classes without sdpa run eager attention, their default, instead.
Steps that the file has with the same config are not measured again. ``--all`` measures all of them, names of types measure these,
``--compare`` measures nothing. Then ``planner/report/measured.csv`` is written: the differences between plans and these steps.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner import capacity  # noqa: E402
from planner.importer.formats.huggingface import read_huggingface  # noqa: E402
from planner.importer.reader import UnsupportedConfigError  # noqa: E402
from planner.importer.write import spec_text  # noqa: E402
from planner.report.accuracy import ATTENTION, COLUMNS, PRECISIONS, TABLE, has_windows  # noqa: E402
from planner.spec import load_text  # noqa: E402
from planner.spec.problems import SpecError  # noqa: E402
from planner.spec.records import LatentAttention, Model, Spec, Training  # noqa: E402
from planner.trace.unsupported import UnsupportedError  # noqa: E402

if TYPE_CHECKING:
    import torch
    from torch import nn

Config = dict[str, Any]
Steps = dict[str, list[int] | str]

TRUTH = ROOT / "tests" / "data" / "class_steps.jsonl"
TWINS = ROOT / "tests" / "data" / "twins.jsonl"
COMPOSITES = TWINS.parent / "composites.jsonl"
FIGURES = ("params", "saved", "start", "after_forward", "after_backward", "flops_forward", "flops_backward", "peak")
# The columns of the table of differences, each the largest difference of these figures.
GROUPS = {"params": FIGURES[:1], "saved": FIGURES[1:2], "allocated": FIGURES[2:5], "flops": FIGURES[5:7], "peak": FIGURES[7:]}
SHAPE = {"batch_size": 2, "sequence_length": 33}  # odd, so that what kernels pad shows
WINDOW = 16  # shorter than the sequence
# Widths that kernels require to be multiples of 8, as those of published models are.
WIDTH = re.compile(r"q_lora_rank|kv_lora_rank|(.*_)?head_dim|.*intermediate_size(_mlp)?|(expert_)?ffn_hidden_size|n_inner")
NOT_MEASURED = {  # why steps of a type are not measured
    "rembert": "its heads are of sequences, and the labels of these steps are of tokens",
    "mllama_text_model": "its layers with cross-attention do not run on text alone",
    "ernie4_5_vl_moe_text": "its experts for images do not run on text alone",
}
LONGEST = 120  # characters of a reason
BATCH = 10  # steps between two writes of the file
EMPTY = Model(1, 1, 1, 1, 0, ())


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each setting by its name in the file."""
    for recompute, precision, (attention, implementation) in product(("none", "full"), PRECISIONS, ATTENTION.items()):
        name = f"{attention} {precision}" + (" full" if recompute == "full" else "")
        yield name, SHAPE | {"implementation": implementation, "precision": precision, "recompute": recompute}


SETTINGS = dict(settings())


@cache
def configs() -> tuple[Config, ...]:
    """Return the small configs to measure."""
    return tuple(_configs())


def _configs() -> Iterator[Config]:
    """Yield the first small config of each type of the tests, and one with a short window of each type with a window in its layers.

    Types that transformers only builds inside a composite model have a config of one.
    """
    known = set[str]()
    for config in map(json.loads, (line for file in (TWINS, COMPOSITES) for line in file.read_text(encoding="utf-8").splitlines())):
        kind = type_of(config)
        if kind is None or kind in known or "patch_size" in config:  # of images
            continue
        known.add(kind)
        part = text_part(config)
        part |= {key: rounded(value) for key, value in part.items() if WIDTH.fullmatch(key)}
        yield config
        if part is not config:
            continue
        windowed = config | {"sliding_window": WINDOW}
        model, n = spec_of(config).model, SHAPE["sequence_length"]
        if has_windows(model, math.inf) and not has_windows(model, n) and has_windows(spec_of(windowed).model, n):
            yield windowed


def rounded(width: Any) -> Any:  # noqa: ANN401 - a value of a config
    """Return a width, or each of a list, as a multiple of 8; none is None."""
    if isinstance(width, list):
        return [rounded(one) for one in width]
    return -(-width // 8) * 8 if isinstance(width, int) else width


def type_of(config: Config) -> str | None:
    """Return the type of the language model that a config describes; None if the planner refuses it."""
    if text_part(config) is config and "vision_config" not in config:
        return str(config["model_type"])
    try:
        return spec_of(config).model.model_type
    except UnsupportedConfigError:
        return None


def text_part(config: Config) -> Config:
    """Return the text part of a config, or the config itself."""
    part: Config = config.get("text_config", config)
    return part


def spec_of(config: Config, training: Mapping[str, Any] | None = None) -> Spec:
    """Return the spec of a config, with these training settings."""
    text = spec_text(read_huggingface(config), config["model_type"], comments=False)
    return load_text(text, [f"training.{key}={json.dumps(value)}" for key, value in (training or {}).items()])


def make(config: Config, _: Model, training: Training, device: torch.device) -> tuple[nn.Module, Callable[[str], str]]:
    """Return the module of the class of a config, without dropout, and names for its modules."""
    from planner.verify import from_config, huggingface
    from planner.verify.step import dtype_of_weights

    its, build = from_config.read(copied(config))
    for part in (its, its.get_text_config()):
        for key, value in vars(part).items():
            if "drop" in key and isinstance(value, float):
                setattr(part, key, 0.0)
    return huggingface.module_of(its, build, training, device, dtype_of_weights(training)), str


def measure(config: Config, name: str) -> Steps:
    """Measure the steps of a config in a setting; those of a class without sdpa are the same as with eager attention."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call] # untyped in transformers
    logging.disable()  # of fake tensors, about what this reports as the reason
    warnings.simplefilter("ignore")  # transformers' own
    if supports_sdpa(config):
        return {name: step(config, SETTINGS[name])}
    eager = name.replace("sdpa", "eager")
    return {} if name == eager else dict.fromkeys((name, eager), step(config, SETTINGS[eager]))


def supports_sdpa(config: Config) -> bool:
    """Whether a config's class implements attention by sdpa."""
    from planner.verify import from_config

    return from_config.supports_sdpa(from_config.read(copied(config))[0])


def is_slow(one: tuple[Config, str]) -> bool:
    """Whether the config of a step has recurrent token mixers, some of which transformers runs token by token."""
    return _has_mixers(json.dumps(one[0]))


@cache
def _has_mixers(config: str) -> bool:
    layers = [layer for run in spec_of(json.loads(config)).model.runs for layer in run.layers]
    return any(not isinstance(mixer, LatentAttention) for layer in layers for mixer in layer.mixers)


def copied(config: Config) -> Config:
    """Return a copy for transformers, which changes what it reads."""
    copy: Config = json.loads(json.dumps(config))
    return copy


def step(config: Config, training: Mapping[str, Any]) -> list[int] | str:
    """Measure a step of a config, or return the reason why transformers does not run it."""
    from planner.verify.step import measure

    if (kind := type_of(config)) in NOT_MEASURED:
        return NOT_MEASURED[kind]
    # The model only matters to optimizers other than AdamW; a model that the planner refuses is measured too.
    kept = Training(**training, gradient_dtype="bf16" if training["precision"] == "bf16" else "fp32")
    try:
        its = measure(EMPTY, kept, partial(make, config))
    except Exception as error:  # noqa: BLE001 - whatever a class of transformers raises
        return " ".join(str(error).split())[:LONGEST]
    live = (its.start_bytes, its.after_forward_bytes, its.after_backward_bytes)
    return [its.params, its.saved_bytes, *live, its.flops_forward, its.flops_backward, its.peak_bytes]


def planned(config: Config, training: Mapping[str, Any]) -> list[int]:
    """Return the planner's values of a step. Raises an error for a model that it refuses."""
    spec = spec_of(config, training)
    ours = capacity.plan(spec, spec.scenarios[0])
    memory, hardware = ours.memory, next(count for count in ours.flops.by_convention if count.convention == "hardware")
    live = (memory.live.start, memory.live.after_forward, memory.live.after_backward)
    passes = (hardware.forward_per_step, hardware.train_per_step - hardware.forward_per_step)
    return [ours.parameters.total, memory.activations_bytes, *live, *passes, memory.peak_bytes]


def measured() -> dict[str, Steps]:
    """Return the steps in the file, by config."""
    rows = [json.loads(line) for line in TRUTH.read_text(encoding="utf-8").splitlines()[1:]] if TRUTH.exists() else []
    return {json.dumps(row["config"]): row["steps"] for row in rows}


def write(steps: Mapping[str, Steps]) -> None:
    """Write the file of measurements, in the order of the configs of the tests."""
    import torch
    import transformers

    head = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, **SHAPE, "figures": FIGURES}
    rows = [
        {"config": json.loads(config), "steps": {name: steps[config][name] for name in SETTINGS if name in steps[config]}}
        for config in map(json.dumps, configs())
        if config in steps
    ]
    TRUTH.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)), encoding="utf-8", newline="\n")


def differences(steps: Mapping[str, Steps]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of differences: the largest of each group in percent of what was measured, or why there is none."""
    for text, by_setting in steps.items():
        config = json.loads(text)
        window = window_of(config)
        for name, its in by_setting.items():
            training = SETTINGS[name]
            attention = name.partition(" ")[0]
            key = (type_of(config) or "", attention, training["precision"], training["recompute"], window)
            if isinstance(its, str):
                yield (*key, *[""] * len(GROUPS), f"transformers: {its}")
                continue
            try:
                ours = planned(config, training)
            except (SpecError, UnsupportedError, UnsupportedConfigError) as error:
                yield (*key, *[""] * len(GROUPS), f"planner: {refusal(error)}")
                continue
            off = {figure: (mine - right) / right * 100 for figure, mine, right in zip(FIGURES, ours, its, strict=True)}
            yield (*key, *(percent(max((off[figure] for figure in group), key=abs)) for group in GROUPS.values()), "")


def percent(off: float) -> str:
    """Return a difference in percent with two significant digits, 0 only if there is none."""
    return f"{off:+.2g}" if off else "0"


def refusal(error: Exception) -> str:
    """Return the message of an error without its location."""
    return " ".join(str(error).partition("]: ")[2].split("\n")[0].split())[:LONGEST]


def window_of(config: Config) -> str:
    """Return whether a window of the config's layers is shorter than the steps, as a letter of the table."""
    return "w" if has_windows(spec_of(config).model, SHAPE["sequence_length"]) else ""


def table(steps: Mapping[str, Steps]) -> str:
    """Return the text of the table of differences."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *differences(steps)])
    return out.getvalue()


def main(arguments: Iterable[str]) -> int:
    """Measure the steps that are asked for, and write both tables. An interrupted run continues where it ended."""
    wanted, done = set(arguments), measured()
    names = {name for name in wanted if not name.startswith("--")}
    steps = [
        (config, name)
        for name, config in product(SETTINGS, configs())
        if "--all" in wanted or type_of(config) in names or (not names and name not in done.get(json.dumps(config), {}))
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        ordered = [] if "--compare" in wanted else sorted(steps, key=is_slow)
        running = {pool.submit(measure, *one): json.dumps(one[0]) for one in ordered}
        for number, future in enumerate(as_completed(running), 1):
            done.setdefault(running[future], {}).update(future.result())
            if number % BATCH == 0 or number == len(running):
                write(done)
                print(f"{number} of {len(running)} steps", file=sys.stderr)
    TABLE.write_text(table(done), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
