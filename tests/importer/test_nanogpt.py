"""nanoGPT's settings: the model, and the training that train.py makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from planner.capacity.figures import Plan
from planner.importer.reader import UnsupportedConfigError
from planner.importer.recognize import read_config

PlanModel = Callable[..., Plan]

# train.py of nanoGPT (2023), its values for GPT-2 small.
TRAIN = """\
import os
out_dir = 'out'
eval_interval = 2000
init_from = 'scratch'
wandb_run_name = 'gpt2'
dataset = 'openwebtext'
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
dropout = 0.0
bias = False
learning_rate = 6e-4
max_iters = 600000
beta2 = 0.95
lr_decay_iters = 600000
backend = 'nccl'
device = 'cuda'
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
compile = True
config_keys = [k for k, v in globals().items()]
"""
MODEL = "n_layer = 12\nn_head = 12\nn_embd = 768\nbias = False\n"


def test_train_py_has_its_tokens_per_iteration(plan_model: PlanModel) -> None:
    imported = read_config(TRAIN, "train.py")
    assert imported.not_understood == ()
    assert imported.training == {
        "batch_size": 12, "sequence_length": 1024, "gradient_accumulation": 40, "steps": 600_000, "dropout": 0.0,
    }  # fmt: skip
    # tokens_per_iter, as train.py prints it: 40 · 12 · 1024 = 491,520, on any number of GPUs
    assert plan_model(imported.model, **imported.training).training.tokens == 600_000 * 491_520
    assert any("gradient_accumulation_steps" in note for note in imported.notes)


# train.py's own defaults, once a file has settings of its training: 12 sequences, 5·8 passes.
def test_settings_of_training_that_are_missing_are_train_pys() -> None:
    assert read_config(MODEL, "model.py").training == {}
    training = read_config(f"{MODEL}max_iters = 10\n", "train.py").training
    assert training == {"batch_size": 12, "gradient_accumulation": 40, "steps": 10}


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("bfloat16", "bf16-autocast"), ("float16", "fp16-autocast")])
def test_dtype_is_the_data_type_of_autocast(dtype: str, precision: str) -> None:
    assert read_config(f"{MODEL}dtype = {dtype!r}\n", "train.py").training == {"precision": precision}


# data/shakespeare_char/prepare.py writes a meta.pkl with 65 characters, data/openwebtext none.
@pytest.mark.parametrize(("dataset", "rows"), [("openwebtext", 50304), ("shakespeare_char", 65)])
def test_the_vocabulary_is_that_of_the_data(dataset: str, rows: int) -> None:
    assert read_config(f"{MODEL}dataset = {dataset!r}\n", "train.py").model["vocab_size"] == rows


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dataset = 'mine'", "`vocab_size` is missing; nanoGPT reads it from the meta.pkl of 'mine', or takes 50304 without this file"),
        ("init_from = 'resume'", "`init_from: 'resume'` takes the sizes of a checkpoint"),
        ("dtype = 'float8'", "`dtype: 'float8'` is not supported"),
        ("n_kv_head = 3", "unsupported key `n_kv_head: 3`, which may change the parameter count"),
        ("use_moe_layers = True", "unsupported key `use_moe_layers: True`"),
        ("batch_size = 0", "`batch_size: 0` is not a positive integer"),
    ],
)
def test_what_may_change_a_count_and_is_not_read_is_refused(line: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_config(f"{MODEL}{line}\n", "train.py")
    assert message in str(refused.value)


def test_a_key_of_two_sections_has_one_value() -> None:
    sections = {"model": {"n_layer": 2, "n_head": 6, "n_embd": 48, "bias": True}, "training": {"n_layer": 3}}
    with pytest.raises(UnsupportedConfigError, match=r"`model\.n_layer: 2` and `training\.n_layer: 3` disagree"):
        read_config(json.dumps(sections), "x.json")
