"""nanoGPT's settings."""

from __future__ import annotations

from planner.importer.engine import Reading, row
from planner.importer.format import Format, by_row, has_all
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import show

_NAMES = {"context": "block_size", "d_model": "n_embd", "n_layers": "n_layer", "n_heads": "n_head"}
_VOCABULARIES = {"openwebtext": 50304, "shakespeare": 50304, "shakespeare_char": 65}  # of the data sets that it prepares
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16-autocast", "float16": "fp16-autocast"}


def _nanogpt_bias(c: Reading) -> bool:
    if c.value("bias") is None:
        raise c.refusal("`bias` is missing; the default is false in train.py and true in GPTConfig")
    return bool(c.of(flag("bias", True)))


def _vocabulary(c: Reading) -> int:
    data = c.value("dataset")
    if data not in (None, *_VOCABULARIES):
        raise c.refusal(f"`vocab_size` is missing; nanoGPT reads it from the meta.pkl of {show(data)}, or takes 50304 without this file")
    return _VOCABULARIES.get(data, 50304)


_TRAINS = code(lambda c: c.at("max_iters") is not None)  # settings of train.py, whose defaults apply; else only those of a model


def _accumulation(c: Reading) -> int | None:
    steps: int | None = c.of(size("gradient_accumulation_steps", when(_TRAINS, 40)))
    if steps and steps > 1:
        c.notes.append("gradient accumulation is that of one GPU: nanoGPT divides gradient_accumulation_steps by their number")
    return steps


NANOGPT = row(
    sizes(1024, **_NAMES), feed_forward("plain", "gelu", flag("bias", True)),
    {"vocab_size": size("vocab_size meta_vocab_size", code(_vocabulary, "dataset")), "attention.bias": code(_nanogpt_bias, "bias")},
    {"attention.qkv": "fused", "norm.type": "layernorm", "norm.bias": flag("bias", True), "positions": "learned", "head.tied": True},
    {"training.batch_size": size("batch_size", when(_TRAINS, 12)), "training.sequence_length": size("block_size", None)},
    {"training.gradient_accumulation": code(_accumulation, "gradient_accumulation_steps"), "training.steps": size("max_iters", None)},
    {"training.precision": choice("dtype", _PRECISIONS, None), "training.dropout": code(lambda c: c.value("dropout"), "dropout")},
    only={"init_from": "scratch"},
    ignored={
        NAMES: "out_dir always_save_checkpoint wandb_log wandb_project wandb_run_name",
        RUNS: "eval_interval log_interval eval_iters eval_only backend device compile",
        "settings of the optimizer, which cost no memory": (
            "learning_rate weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr"
        ),
    },
)  # fmt: skip

FORMAT = Format(
    "nanoGPT",
    "Python files with its settings",
    "Karpathy's nanoGPT of 2023: model.py (GPTConfig), train.py",
    has_all("n_layer", "n_head", "n_embd"),
    by_row("nanoGPT", NANOGPT),
    {"nanogpt": NANOGPT},
    "`n_layer`, `n_head` and `n_embd`",
)
