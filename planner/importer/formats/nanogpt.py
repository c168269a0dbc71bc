"""nanoGPT's settings."""

from __future__ import annotations

from planner.importer.engine import Reading, row
from planner.importer.format import Format, by_row, has_all
from planner.importer.keys import *
from planner.importer.parts import *

_NAMES = {"context": "block_size", "d_model": "n_embd", "n_layers": "n_layer", "n_heads": "n_head"}


def _nanogpt_bias(c: Reading) -> bool:
    if c.value("bias") is None:
        raise c.refusal("`bias` is missing; the default is false in train.py and true in GPTConfig")
    return bool(c.of(flag("bias", True)))


NANOGPT = row(
    sizes(1024, **_NAMES), feed_forward("plain", "gelu", flag("bias", True)),
    {"vocab_size": size("vocab_size meta_vocab_size", 50304), "attention.bias": code(_nanogpt_bias, "bias"), "attention.qkv": "fused"},
    {"norm.type": "layernorm", "norm.bias": flag("bias", True), "positions": "learned", "head.tied": True},
    {"training.batch_size": size("batch_size", None), "training.dropout": code(lambda c: c.value("dropout"), "dropout")},
    lists_unknown=True,
)  # fmt: skip

FORMAT = Format(
    "nanoGPT",
    "Python files with its settings",
    "Karpathy's nanoGPT of 2023: model.py (GPTConfig), train.py",
    has_all("n_layer", "n_head", "n_embd"),
    by_row("nanoGPT", NANOGPT),
    {"nanogpt": NANOGPT},
)
