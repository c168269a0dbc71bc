"""How far a plan's implementation, class and setting were measured: one line per plan.

``measured.csv`` has the differences between plans and measured steps of a small model of each class of transformers, written by
``tools/measure.py``: the largest of each group of figures in percent of what PyTorch measured, or the reason why a step was not measured.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from planner.capacity.figures import EVERYTHING
from planner.spec.precision import RECIPES
from planner.spec.records import Implementation, Model, Precision, Training
from planner.trace.classes import modeled_class
from planner.trace.plain import beyond_plain_modules

TABLE = Path(__file__).parent / "measured.csv"
GROUPS = ("params", "saved", "allocated", "flops", "peak")
COLUMNS = ("model_type", "attention", "precision", "recompute", "window", *GROUPS, "reason")
ATTENTION: dict[str, Implementation] = {"sdpa": "transformers", "eager": "transformers-eager"}
PRECISIONS: tuple[Precision, ...] = ("bf16", "bf16-autocast", "fp32")
# Settings that measured steps vary or do not depend on.
VARIED = {
    "batch_size", "sequence_length", "encoder_length", "precision", "recompute", "implementation", "tokens", "flops_convention",
    "reserve_bytes", "liger", "layout",
}  # fmt: skip
# tests/capacity/test_tuned_steps.py
TUNED_CLASSES = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")
TUNED = {"train", "adapters", "also_train", "base", "input_gradients", "reentrant"}
WITH_PEFT = "steps with frozen weights, adapters of peft 0.21 and packed weights of bitsandbytes 0.50 were measured for this class: equal"
# tests/capacity/test_liger_steps.py, for all classes that liger-kernel supports; peaks of other steps are at most 1.2 % too low.
LIGER_RAN = ", the Python of liger-kernel without its Triton kernels"
WITH_LIGER = "parameters, saved and allocated bytes, and FLOPs of PyTorch's operators equal, and the peak in 95 % of such steps"
LABELS = {"params": "parameters", "saved": "saved bytes", "allocated": "allocated bytes", "flops": "FLOPs", "peak": "peak"}

OF_CONVOLUTIONS = "torch.utils.flop_counter ignores the groups of a convolution's backward pass, so it counts more than hardware FLOPs"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What is known of a plan's differences from PyTorch. ``equal``: whether all figures but the peak are measured and equal."""

    text: str
    equal: bool


# docs/devices.md lists the ranks, which tests/capacity/test_fleet_steps.py compares with plans.
ON_DEVICES = (
    "on several devices, ranks of plain GPT-2 (also with shared experts) and Llama models were measured: PyTorch's own DDP, ZeRO-1, FSDP2, "
    "DTensor and pipelining code on a fake process group; other models, and runs on real devices, were not"
)
ON_DEVICES_OF_MEGATRON = (
    "on several devices, parameters equal those that Megatron-Core builds, and peaks were compared with 123 published runs: at most 0.3 % "
    "from those of large models on 8 B200, 1.3 % in the median from those of Megatron-LM's tests (docs/devices.md)"
)

ON_DEVICES_OF_PAPER = "on several devices, the saved bytes of layers equal the formulas of Korthikanti et al. 2022; peaks were not compared"
ON_DEVICES_OF_DEEPSPEED = (
    "on several devices, states equal those of DeepSpeed 0.19, run on a CPU in a fake process group for small models, and peaks are bounds"
)


def accuracy(model: Model, training: Training) -> Accuracy:
    """Return what was measured of the training's implementation, the model's class, the setting and layouts."""
    known = _on_one_device(model, training)
    several = training.layout is not None and training.layout.cluster.devices > 1
    of_megatron = {"megatron": ON_DEVICES_OF_PAPER, "megatron-core": ON_DEVICES_OF_MEGATRON}
    on_devices = of_megatron.get(training.implementation, ON_DEVICES)
    if training.layout and training.layout.engine == "deepspeed":
        on_devices = ON_DEVICES_OF_DEEPSPEED
    return Accuracy(f"{known.text}; {on_devices}", equal=False) if several else known


def _on_one_device(model: Model, training: Training) -> Accuracy:
    if training.float8:
        return Accuracy("not measured: linears in float8 are modeled from the sources of torchao and Transformer Engine", equal=False)
    if training.implementation.startswith("transformers"):
        unmeasured = {"recompute_every": training.recompute_every > 1, "offload_activations": training.offload_activations}
        names = ", ".join(name for name, on in unmeasured.items() if on)
        return Accuracy(f"not measured with {names}", equal=False) if names else _of_class(model, training)
    if training.implementation == "megatron-core":
        runs = "peaks of GPT runs that Megatron-LM's tests record on A100 and H100 are equal"
        return Accuracy(f"not measured for this model: implementation megatron-core is modeled from its source; {runs}", equal=False)
    if not training.implementation.startswith("pytorch"):
        return Accuracy(f"not measured: implementation {training.implementation} is modeled from its source", equal=False)
    if missing := beyond_plain_modules(model):
        return Accuracy(f"not measured: no plain PyTorch modules exist for {', '.join(missing)}", equal=False)
    return Accuracy(
        "models of these plain PyTorch modules were measured: parameters, saved and allocated bytes, and FLOPs equal", equal=True
    )


def notes(plans: Iterable[tuple[str, Model, Training]]) -> tuple[str, ...]:
    """Return a line for each statement about models, by name, whose measurement differs or is missing."""
    names: dict[str, dict[str, None]] = {}
    for name, model, training in plans:
        known = accuracy(model, training)
        if not known.equal:
            names.setdefault(known.text, {})[name] = None
    return tuple(f"Accuracy of {', '.join(of)}: {text}." for text, of in names.items())


def has_windows(model: Model, n: float) -> bool:
    """Whether a layer's window is shorter than n tokens."""
    return any(layer.attention is not None and (layer.attention.window or n) < n for run in model.runs for layer in run.layers)


def convolves(model: Model) -> bool:
    """Whether a mixer of the model has a convolution."""
    return any(hasattr(mixer, "d_conv") for run in model.runs for layer in run.layers for mixer in layer.mixers)


def _of_class(model: Model, training: Training) -> Accuracy:
    if model.model_type is None and beyond_plain_modules(model):
        return Accuracy("not measured: model.model_type is not set", equal=False)
    kind = model.model_type or modeled_class(model)
    named = f"class {kind}" if model.model_type else f"class {kind}, which stands for a model without model.model_type,"
    attention = next(name for name, implementation in ATTENTION.items() if implementation == training.implementation)
    precision = _measured_as(training.precision)
    window = "w" if has_windows(model, training.sequence_length) else ""
    rows = [
        row for row in rows_of(kind) if (row["attention"], row["precision"], row["recompute"]) == (attention, precision, training.recompute)
    ]
    row = next((row for row in rows if row["window"] == window), rows[0] if rows else None)
    beyond = [*not_measured(training), *(["windows shorter than the sequence"] if row and window and not row["window"] else [])]
    if row is None:
        extent = "measured only in other settings" if rows_of(kind) else "not measured"
        return Accuracy(f"{named} was {extent}", equal=False)
    parts = [attention, precision, *(["recompute: full"] if row["recompute"] == "full" else []), *(["window < n"] if row["window"] else [])]
    setting = ", ".join(parts)
    if row["reason"]:
        return Accuracy(f"{named} was not measured with {setting}; {row['reason']}", equal=False)
    if training.train != EVERYTHING and kind not in TUNED_CLASSES:
        beyond = ["frozen weights", *beyond]
    counted = f"; {OF_CONVOLUTIONS}" if convolves(model) else ""
    counted += f"; {WITH_PEFT}" if training.train != EVERYTHING and kind in TUNED_CLASSES else ""
    figures, runs = (in_words(row), "") if training.liger is None else (WITH_LIGER, LIGER_RAN)
    text = f"a small model of {named} was measured on a simulated A100 ({setting}{runs}): {figures}{counted}"
    if beyond:
        return Accuracy(f"{text}; not measured with {', '.join(beyond)}", equal=False)
    return Accuracy(text, equal=is_equal(row))


def not_measured(training: Training) -> list[str]:
    """Return the names of settings that differ from those of all measured steps of classes."""
    small = Training(1, 1, gradient_dtype="bf16" if training.precision == "bf16" else "fp32")
    if training.precision in PRECISIONS:
        of_precision, varied = [], VARIED
    else:
        of_precision, varied = [f"precision {training.precision}"], VARIED | {"gradient_dtype"}
    tuned = TUNED if training.train != EVERYTHING else set()
    names = (one.name for one in fields(Training) if one.name not in varied | tuned)
    return [*of_precision, *(name for name in names if getattr(training, name) != getattr(small, name))]


def is_equal(row: Mapping[str, str]) -> bool:
    """Whether all figures of a row but the peak are equal."""
    return not row["reason"] and all(row[group] == "0" for group in GROUPS if group != "peak")


def in_words(row: Mapping[str, str], labels: Mapping[str, str] = LABELS) -> str:
    """Return the differences of a row in words. ``labels``: of its groups of figures."""
    equal = [label for group, label in labels.items() if row[group] == "0"]
    differing = [
        f"{label} {off.lstrip('+-')} % too {'low' if off.startswith('-') else 'high'}"
        for group, label in labels.items()
        if (off := row[group]) != "0"
    ]
    return ", ".join([*([f"{' and '.join(filter(None, (', '.join(equal[:-1]), equal[-1])))} equal"] if equal else []), *differing])


def _measured_as(precision: Precision) -> Precision:
    """Return the measured precision with the same kind of weights."""
    recipe = RECIPES[precision]
    return "bf16-autocast" if recipe.autocast else "fp32" if recipe.weights == "float32" else "bf16"


@cache
def rows_of(model_type: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a class."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(line for number, line in enumerate(lines) if number == 0 or line.startswith(f"{model_type},")))
