"""What each training precision means: the dtype of every tensor that stands for a weight, and of the matrix products.

The trace, the model states, the training step, the checks of a spec and ``verify`` all read it here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from planner.spec.records import BaseDtype, Ema, GradientDtype, Precision, Training

Dtype: TypeAlias = Literal["float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]

BYTES: dict[Dtype, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
SHORT_NAMES: dict[Dtype, str] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""The names of dtypes in reports."""
GRADIENTS: dict[GradientDtype, Dtype] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
DTYPES: dict[BaseDtype, Dtype] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
AVERAGES: dict[Ema, Dtype | None] = {"none": None, "fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The dtypes of a training step.

    ``weights`` are what the forward pass reads. ``autocast`` is the dtype to which autocast lowers matrix products, None without autocast.
    ``master`` is the dtype of the copy that the optimizer updates in place of the weights. ``gradients`` are the choices that the precision
    leaves, the default first.
    """

    weights: Dtype
    autocast: Dtype | None = None
    master: Dtype | None = None
    gradients: tuple[GradientDtype, ...] = ("fp32",)

    @property
    def compute(self) -> Dtype:
        """The dtype in which matrix products run."""
        return self.autocast or self.weights

    @property
    def moments(self) -> Dtype:
        """The dtype of the optimizer's state: that of what it updates."""
        return self.master or self.weights


RECIPES: dict[Precision, Recipe] = {
    "fp32": Recipe("float32"),
    "bf16-autocast": Recipe("float32", autocast="bfloat16"),
    "fp16-autocast": Recipe("float32", autocast="float16"),
    "bf16-master": Recipe("bfloat16", master="float32", gradients=("fp32", "bf16")),
    "fp16-master": Recipe("float16", master="float32", gradients=("fp16", "fp32")),
    "bf16": Recipe("bfloat16", gradients=("bf16",)),
}


def recipe_of(training: Training) -> Recipe:
    """Return the dtypes of a training step whose frozen weights may have a dtype of their own."""
    recipe, base = RECIPES[training.precision], training.base
    if base is None:
        return recipe
    dtype: Dtype = "float32" if base.prepare else DTYPES[base.dtype] if base.dtype else recipe.weights
    return replace(recipe, weights=dtype)


def separate_gradients(training: Training) -> bool:
    """Return whether gradients are added up in memory of their own, in another dtype than that of the weights that autograd sees."""
    recipe = RECIPES[training.precision]
    return recipe.master is not None and GRADIENTS[training.gradient_dtype] != recipe.weights
