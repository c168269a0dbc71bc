"""Bytes of weights, master weights, gradients and optimizer state, compared with papers and with PyTorch's own optimizers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache
from math import ceil, prod
from typing import Any

import pytest

from planner.capacity.figures import Plan

PlanModel = Callable[..., Plan]
Shape = tuple[int, ...]

V, L, D, F = 250, 40, 64, 96  # vocabulary, positions, width, width of the feed-forward
SMALL: dict[str, Any] = {"vocab_size": V, "context_length": L, "d_model": D, "n_layers": 2, "n_heads": 4, "d_ff": F}
# Its tensors as in GPT-2, twice those of a layer.
TABLES: list[Shape] = [(V, D), (L, D)]
MATRICES: list[Shape] = [(3 * D, D), (D, D), (F, D), (D, F)] * 2
VECTORS: list[Shape] = [*[(D,), (D,), (3 * D,), (D,), (D,), (D,), (F,), (D,)] * 2, (D,), (D,)]
TENSORS = TABLES + MATRICES + VECTORS
PARAMS = sum(map(prod, TENSORS))


def test_parameters_of_the_small_model(plan_model: PlanModel) -> None:
    # Tables 250·64 + 40·64; a layer 3·64² + 3·64 + 64² + 64 + 2·64·96 + 96 + 64 + 4·64 = 29,344; the last norm 2·64.
    assert plan_model(SMALL).parameters.total == PARAMS == 18_560 + 2 * 29_344 + 128


# Bytes of an element of weights, master weights, gradients and moments, by precision and gradient_dtype.
#
# fp32: everything in four bytes, 16 a parameter with Adam (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1, is 4 + 4 + 8).
# Autocast: the same; weights keep their dtype, and operators cast their inputs (PyTorch's docs, torch.amp, "Autocast Op Reference").
# bf16-master: 2 + 2 + 12 in ZeRO's section 3.1 (the 12 are the fp32 copy and two moments); 18 with fp32 gradients in Megatron-LM's
#   docs/source/api-guide/dist_optimizer.md, table "bf16 param, fp32 grads".
# fp16-master: as bf16-master; Megatron-LM's gradients have two bytes by default, and four with --accumulate-allreduce-grads-in-fp32.
# bf16: torch.optim creates its state with zeros_like(parameter), so all of it has two bytes.
RECIPES: dict[tuple[str, str | None], tuple[int, int, int, int]] = {
    ("fp32", None): (4, 0, 4, 4),
    ("bf16-autocast", None): (4, 0, 4, 4),
    ("fp16-autocast", None): (4, 0, 4, 4),
    ("bf16-master", "fp32"): (2, 4, 4, 4),
    ("bf16-master", "bf16"): (2, 4, 2, 4),
    ("fp16-master", "fp16"): (2, 4, 2, 4),
    ("fp16-master", "fp32"): (2, 4, 4, 4),
    ("bf16", None): (2, 0, 2, 2),
}
RECIPE_NAMES = [" ".join(filter(None, recipe)) for recipe in RECIPES]
MOMENTS = {"adamw": 2, "adam": 2, "sgd": 0, "sgd-momentum": 1, "lion": 1}


def cells(plan: Plan) -> dict[str, int]:
    """Return the plan's integers under the columns of capacity.csv."""
    return dict(plan.to_frame().iloc[0])


def training(recipe: tuple[str, str | None], **others: object) -> dict[str, object]:
    precision, gradient_dtype = recipe
    return {"precision": precision, **({"gradient_dtype": gradient_dtype} if gradient_dtype else {}), **others}


def quantized(shapes: Iterable[Shape]) -> int:
    """Return the bytes of 8-bit AdamW's two moments (bitsandbytes, optim/optimizer.py, Optimizer2State.init_state).

    A tensor of at least 4,096 elements (min_8bit_size) has one unsigned byte per element and a float32 scale per block of 256, each twice.
    A smaller tensor has float32 state, whatever its dtype. The two maps of 256 float32 values exist once.
    """
    sizes = [prod(shape) for shape in shapes]
    large = sum(2 * size + 2 * 4 * ceil(size / 256) for size in sizes if size >= 4096)
    return large + sum(8 * size for size in sizes if size < 4096) + 2 * 256 * 4


def state_bytes(optimizer: str, moment: int) -> int:
    """Return the bytes of an optimizer's state, by its definition."""
    if optimizer == "adafactor":  # Shazeer and Stern 2018 (arXiv:1804.04235): a row and a column of a matrix, all of a vector
        return moment * sum(sum(shape) if len(shape) == 2 else shape[0] for shape in TENSORS)
    if optimizer == "adamw-8bit":
        return quantized(TENSORS)
    if optimizer == "muon":  # Jordan et al. 2024: one momentum for the layers' matrices; AdamW updates tables and vectors
        return moment * (sum(map(prod, MATRICES)) + 2 * sum(map(prod, TABLES + VECTORS)))
    return moment * MOMENTS[optimizer] * PARAMS


OPTIMIZERS = [*MOMENTS, "adafactor", "adamw-8bit", "muon"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("recipe", RECIPES, ids=RECIPE_NAMES)
def test_every_byte_of_every_recipe(plan_model: PlanModel, recipe: tuple[str, str | None], optimizer: str) -> None:
    weight, master, gradient, moment = RECIPES[recipe]
    row = cells(plan_model(SMALL, **training(recipe, optimizer=optimizer)))
    state = state_bytes(optimizer, moment)
    assert row["weights_bytes"] == weight * PARAMS
    assert row["master_weights_bytes"] == master * PARAMS
    assert row["gradients_bytes"] == gradient * PARAMS
    assert row["optimizer_bytes"] == state
    assert row["model_states_bytes"] == (weight + master + gradient) * PARAMS + state


@pytest.mark.parametrize(("ema", "each"), [("none", 0), ("fp32", 4), ("bf16", 2)])
@pytest.mark.parametrize("recipe", RECIPES, ids=RECIPE_NAMES)
def test_bytes_of_ema_weights(plan_model: PlanModel, recipe: tuple[str, str | None], ema: str, each: int) -> None:
    row = cells(plan_model(SMALL, **training(recipe, optimizer="adamw", ema=ema)))
    assert row["average_bytes"] == each * PARAMS
    assert row["model_states_bytes"] == (sum(RECIPES[recipe]) + RECIPES[recipe][3] + each) * PARAMS  # two moments


NEEDS = {"lion": "lion_pytorch", "adamw-8bit": "bitsandbytes"}


def made(optimizer: str, parameters: list[Any]) -> Any:  # noqa: ANN401 - an optimizer of any package
    """Return a real optimizer of these parameters."""
    if optimizer in NEEDS:
        package = pytest.importorskip(NEEDS[optimizer], reason=f"{NEEDS[optimizer]} is not installed")
        return package.Lion(parameters) if optimizer == "lion" else package.optim.AdamW8bit(parameters)
    names = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "sgd-momentum": "SGD", "adafactor": "Adafactor", "muon": "Muon"}
    momentum = {"momentum": 0.9} if optimizer == "sgd-momentum" else {}
    return getattr(importlib.import_module("torch").optim, names[optimizer])(parameters, lr=0.1, **momentum)


@cache
def held(optimizer: str, dtype: str) -> int:
    """Return the bytes of a real optimizer's state after a step, without its step counters."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    parts = [("muon", MATRICES), ("adamw", TABLES + VECTORS)] if optimizer == "muon" else [(optimizer, TENSORS)]
    storages: dict[int, int] = {}
    for name, shapes in parts:
        parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=getattr(torch, dtype))) for shape in shapes]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        each = made(name, parameters)
        each.step()
        states = [item for state in each.state.values() for item in state.items()]
        storages |= {x.data_ptr(): x.numel() * x.element_size() for what, x in states if what != "step" and torch.is_tensor(x)}
    return sum(storages.values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("recipe", RECIPES, ids=RECIPE_NAMES)
def test_optimizer_bytes_equal_those_of_a_real_optimizer(plan_model: PlanModel, recipe: tuple[str, str | None], optimizer: str) -> None:
    _, _, _, moment = RECIPES[recipe]  # of master weights, if there are any
    row = cells(plan_model(SMALL, **training(recipe, optimizer=optimizer)))
    assert row["optimizer_bytes"] == held(optimizer, {4: "float32", 2: "bfloat16"}[moment])


def test_ema_bytes_equal_those_of_a_real_average(plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in TENSORS])
    average = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    theirs = sum(tensor.numel() * tensor.element_size() for tensor in average.parameters())
    assert cells(plan_model(SMALL, precision="fp32", ema="fp32"))["average_bytes"] == theirs


@pytest.mark.parametrize("recipe", [("fp32", None), ("bf16-autocast", None), ("bf16", None)], ids=["fp32", "bf16-autocast", "bf16"])
def test_weights_and_gradients_have_the_dtypes_of_a_real_step(plan_model: PlanModel, recipe: tuple[str, str | None]) -> None:
    """Train a product as torch.amp's docs do: weights and gradients keep the module's dtype, with or without autocast."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    module = torch.nn.Linear(D, F, dtype=torch.bfloat16 if recipe[0] == "bf16" else torch.float32)
    x = torch.ones(3, D, dtype=module.weight.dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=recipe[0] == "bf16-autocast"):
        module(x).sum().backward()
    row = cells(plan_model(SMALL, **training(recipe)))
    assert row["weights_bytes"] == PARAMS * module.weight.element_size()
    assert row["gradients_bytes"] == PARAMS * module.weight.grad.element_size()


# --- as published -----------------------------------------------------------------------------------------------------------------------


def test_sixteen_bytes_per_parameter_of_zero(plan_model: PlanModel) -> None:
    # Rajbhandari et al. 2020, section 3.1: mixed-precision Adam takes 2 + 2 + 12 = 16 bytes a parameter; the weights of GPT-2's 1.5 B
    # parameters take 3 GB, training "at least 24 GB".
    model = {"vocab_size": 50257, "context_length": 1024, "d_model": 1600, "n_layers": 48, "n_heads": 25}
    row = cells(plan_model(model, precision="bf16-master", gradient_dtype="bf16", optimizer="adam"))
    assert row["params_total"] == 1_557_611_200  # of openai-community/gpt2-xl
    assert row["model_states_bytes"] == 16 * 1_557_611_200
    assert 24e9 <= row["model_states_bytes"] < 26e9
    assert round(row["weights_bytes"] / 1e9) == 3


def test_bytes_per_parameter_of_megatron(plan_model: PlanModel) -> None:
    # NVIDIA/Megatron-LM, docs/source/api-guide/dist_optimizer.md: 18 bytes for bf16 parameters with fp32 gradients, 16 for fp32 (its 20
    # for fp16 has both kinds of gradients); with bf16 gradients they are ZeRO's 16.
    def each(**recipe: object) -> float:
        return cells(plan_model(SMALL, implementation="megatron", optimizer="adam", **recipe))["model_states_bytes"] / PARAMS

    assert each(precision="bf16-master", gradient_dtype="fp32") == 18
    assert each(precision="bf16-master", gradient_dtype="bf16") == 16
    assert each(precision="fp32") == 16


def test_checkpoint_size_in_the_notebook_of_nanogpt(plan_model: PlanModel) -> None:
    # karpathy/nanoGPT, transformer_sizing.ipynb, third cell: weights and AdamW's two buffers, all fp32, are 1.49 GB.
    model = {"vocab_size": 50257, "context_length": 1024, "d_model": 768, "n_layers": 12, "n_heads": 12}
    parts = {"attention": {"bias": False}, "feed_forward": {"bias": False}, "norm": {"bias": False}}
    row = cells(plan_model(model | parts, precision="bf16-autocast", optimizer="adamw"))
    assert row["weights_bytes"] + row["optimizer_bytes"] == 12 * 124_337_664
    assert round((row["weights_bytes"] + row["optimizer_bytes"]) / 1e9, 2) == 1.49


@pytest.mark.parametrize(("recompute", "by_token", "by_pair"), [("none", 34, 5), ("selective", 34, 0), ("full", 2, 0)])
def test_saved_bytes_of_a_layer(plan_model: PlanModel, recompute: str, by_token: int, by_pair: int) -> None:
    # Korthikanti et al. 2022 (arXiv:2205.05198), equation 1 and table 2, without parallelism: s·b·h·(34 + 5·a·s/h); 34·s·b·h; 2·s·b·h.
    s, b, h, a = 32, 3, 64, 4

    def kept(n_layers: int) -> int:
        stack = {"implementation": "megatron", "precision": "bf16-master", "dropout": 0.1, "recompute": recompute}
        plan = plan_model(SMALL | {"n_layers": n_layers, "d_ff": 4 * h}, batch_size=b, sequence_length=s, **stack)
        return cells(plan)["activations_bytes"]

    assert kept(3) - kept(2) == by_token * s * b * h + by_pair * a * s * s * b
