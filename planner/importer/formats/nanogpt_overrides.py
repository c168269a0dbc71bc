"""nanoGPT's files of overrides (config/train_gpt2.py): what such a file leaves out is set in train.py.

Read from Karpathy's nanoGPT of November 2025: train.py, model.py (GPT.from_pretrained).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.importer.engine import read
from planner.importer.format import Format, Given, one_of
from planner.importer.formats.nanogpt import NANOGPT
from planner.importer.reader import Imported, UnsupportedConfigError, show

_ONLY = ("always_save_checkpoint", "eval_interval", "eval_iters", "init_from", "lr_decay_iters", "wandb_log")
_ASSIGNED = re.compile(r"^(\w+) *=(?!=)", re.MULTILINE)
_DEFAULTS: Mapping[str, Any] = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "bias": False, "batch_size": 12,
    "gradient_accumulation_steps": 40, "max_iters": 600_000,
}  # fmt: skip
_PRETRAINED = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024), "gpt2-large": (36, 20, 1280), "gpt2-xl": (48, 25, 1600)}


def _read(given: Given) -> Imported:
    if computed := [name for name in _ASSIGNED.findall(given.text) if name in _DEFAULTS and name not in given.config]:
        raise UnsupportedConfigError(f"nanoGPT config: `{computed[0]}` is computed, which is not supported; write its value")
    config = {**_DEFAULTS, **given.config}
    start = config.pop("init_from", "scratch")
    if start in _PRETRAINED:
        sizes = dict(zip(("n_layer", "n_head", "n_embd"), _PRETRAINED[start], strict=True))
        config |= {**sizes, "bias": True, "vocab_size": 50257}
    elif start != "scratch":
        others = ", ".join(_PRETRAINED)
        raise UnsupportedConfigError(
            f"nanoGPT config: `init_from: {show(start)}` takes the sizes of a checkpoint; known: scratch, {others}"
        )
    return read(NANOGPT, config, "nanoGPT")


FORMAT = Format(
    "nanoGPT",
    "files that override settings of train.py (config/*.py), whose other settings are train.py's",
    "Karpathy's nanoGPT of November 2025: train.py, model.py",
    lambda given: any(key in given.config for key in _ONLY) and bool(_ASSIGNED.search(given.text)),
    _read,
    marks=f"assignments, {one_of(_ONLY)}",
)
