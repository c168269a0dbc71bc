"""Bytes of a model's weights in packed formats: blocks of elements in few bits with their scales.

Read from llama.cpp (ggml-common.h; src/llama-quant.cpp: types of tensors in a file, and those of rows that blocks do not divide), AutoGPTQ
and AutoAWQ (layouts of linears), bitsandbytes 0.50.2 (int8), DeepSeek-V3 (fp8 in blocks), gpt-oss (mxfp4 of experts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import cast

from planner.capacity.figures import Plan, Weight
from planner.spec.records import Model
from planner.trace.packing import Packing
from planner.trace.primitives import LINEAR
from planner.trace.trained import in_layer
from planner.trace.unsupported import UnsupportedError

HALF = 2  # bytes of an element of weights that a format leaves in 16 bits


@dataclass(frozen=True, slots=True)
class Format:
    """Stored weights: name, and bytes."""

    name: str
    bytes: int


# Elements and bytes of a block.
GGML = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q8_0": (32, 34), "q8_1": (32, 40), "q8_k": (256, 292), "q2_k": (256, 84),
    "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq2_s": (256, 82), "iq3_xxs": (256, 98),
    "iq3_s": (256, 110), "iq4_nl": (32, 18), "iq4_xs": (256, 136), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17),
    "nvfp4": (64, 36), "q1_0": (128, 18),
}  # fmt: skip
# The type of rows that a type's blocks do not divide.
INSTEAD = {
    "q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0", "iq4_xs": "iq4_nl", "tq1_0": "q4_0", "tq2_0": "q4_0",
}  # fmt: skip
# Files whose tensors have several types: the type of most.
FILES = {
    "f16": "f16", "bf16": "bf16", "q8_0": "q8_0", "q6_k": "q6_k", "q5_k_m": "q5_k", "q5_k_s": "q5_k", "q4_k_m": "q4_k", "q4_k_s": "q4_k",
    "q3_k_s": "q3_k", "q5_0": "q5_0", "q5_1": "q5_1", "q4_0": "q4_0", "q4_1": "q4_1",
}  # fmt: skip
EVERY, FIRST_VALUES, OF_70B = 3, 4, 80  # layers: every third, the first four, and those of a model of 70 B parameters
PLAIN = ("embedding", "attention", "feed_forward", "norm", "head")  # components of models whose files are known


def formats(plan: Plan) -> list[Format]:
    """Return the bytes of the weights in every format that is known for the model."""
    weights = plan.parameters.weights
    made = [Format("16 bits", HALF * plan.parameters.total)]
    for name, packed in _of_linears():
        made.append(Format(name, sum(one.copies * (packed(one) if _is_linear(one) else HALF * prod(one.shape)) for one in weights)))
    if any(_is_expert(one) for one in weights):
        made.append(Format("mxfp4 of experts", sum(one.copies * _bytes_of_expert(one) for one in weights)))
    return [*made, *(Format(f"gguf {name}", size) for name in FILES if (size := gguf(plan, name)) is not None)]


def _of_linears() -> Iterator[tuple[str, Callable[[Weight], int]]]:
    """Yield formats that pack linears of layers, and the bytes of a weight."""
    yield Packing("nf4", nested=False).name, of_linear("nf4")
    yield Packing("nf4", nested=True).name, of_linear("nf4-double")
    yield "int8", of_linear("int8")
    for group in (128, 64, 32):
        yield f"gptq 4 bits, group {group}", of_linear("gptq", group)
    yield "awq 4 bits, group 128", of_linear("awq")
    yield "fp8 per tensor", of_linear("fp8")
    yield "fp8 in blocks of 128 · 128", of_linear("fp8-blocks")


def of_linear(kind: str, group: int = 128) -> Callable[[Weight], int]:
    """Return the bytes of a linear [out, in] in a format that packs linears of layers; ``group``: inputs that share a scale."""
    known: dict[str, Callable[[Weight], int]] = {
        "nf4": partial(_by_bitsandbytes, Packing("nf4", nested=False)),
        "nf4-double": partial(_by_bitsandbytes, Packing("nf4", nested=True)),
        "int8": lambda weight: prod(weight.shape) + 4 * weight.shape[0],
        "gptq": partial(_by_gptq, group),
        "awq": partial(grouped, group=group),
        "fp8": lambda weight: prod(weight.shape) + 4,
        "fp8-blocks": in_squares,
    }
    return known[kind]


def served(model: Model, weights: Sequence[Weight], kind: str, group: int) -> list[int]:
    """Return the bytes of all copies of each weight as an engine loads it: linears of layers packed, each expert as one of them.

    Other weights are in 16 bits, or have the types of a GGUF file. Raises UnsupportedError for models whose file is not known.
    """
    if kind in FILES:
        if not _has_known_file(model, weights):
            raise UnsupportedError(f"GGUF files in {kind} are known only of dense models with equal layers of attention")
        has_head = any(one.component == "head" for one in weights)
        return [_of_file(kind, one, has_head=has_head) for one in weights]
    if kind == "mxfp4":
        if not any(_is_expert(one) for one in weights):
            raise UnsupportedError("mxfp4 is the format of experts, and the model has none")
        return [one.copies * _bytes_of_expert(one) for one in weights]
    return [one.copies * _of_engine(one, of_linear(kind, group)) for one in weights]


def _of_engine(weight: Weight, packed: Callable[[Weight], int]) -> int:
    if _is_linear(weight):
        return packed(weight)
    if _is_expert(weight):
        return weight.shape[0] * packed(replace(weight, shape=weight.shape[1:]))
    return HALF * prod(weight.shape)


def _by_bitsandbytes(packing: Packing, weight: Weight) -> int:
    return cast("int", packing.bytes(prod(weight.shape)))


def _by_gptq(group: int, weight: Weight) -> int:
    """Return the bytes of a linear with the group of each input (g_idx), in int32."""
    return grouped(weight, group) + 4 * weight.shape[1]


def grouped(weight: Weight, group: int) -> int:
    """Return the bytes of a linear [out, in] in 4 bits, with a zero point in 4 bits and a float16 scale per group of inputs and output."""
    outputs, inputs = weight.shape
    groups = -(-inputs // group) * outputs
    return inputs * outputs // 2 + groups // 2 + HALF * groups


def in_squares(weight: Weight, side: int = 128) -> int:
    """Return the bytes of a linear in 8 bits, with a float32 scale per square."""
    return prod(weight.shape) + 4 * prod(-(-size // side) for size in weight.shape)


def _is_linear(weight: Weight) -> bool:
    return weight.formula == LINEAR and in_layer(weight.name)


def _is_expert(weight: Weight) -> bool:
    return weight.component == "experts" and weight.multiplied


def _bytes_of_expert(weight: Weight) -> int:
    """Return the bytes of a weight of which experts have 4 bits, and an exponent of one byte per 32 elements."""
    elements = prod(weight.shape)
    return elements // 2 + elements // 32 if _is_expert(weight) else HALF * elements


def of_type(kind: str, weight: Weight) -> int:
    """Return the bytes of a weight in a type of ggml, or in the one instead if its blocks do not divide the rows."""
    for one in (kind, INSTEAD.get(kind, "f16"), "f16"):
        elements, size = GGML[one]
        if weight.shape[-1] % elements == 0:
            return prod(weight.shape) // elements * size
    raise AssertionError(kind)  # f16 divides all


def gguf(plan: Plan, name: str) -> int | None:
    """Return the bytes of the tensors of a GGUF file, whose vectors are in float32; None for models whose file is not known."""
    weights = plan.parameters.weights
    return sum(served(plan.model, weights, name, 0)) if _has_known_file(plan.model, weights) else None


def _has_known_file(model: Model, weights: Iterable[Weight]) -> bool:
    """Whether the types of the tensors in a GGUF file are known."""
    every = tuple(weights)
    uniform = all("layers." not in one.name or "layers.N." in one.name for one in every)
    return uniform and model.model_type != "falcon" and all(one.component in PLAIN for one in every)


def _of_file(name: str, weight: Weight, *, has_head: bool) -> int:
    """Return the bytes of all copies of a weight in a file."""
    usual = FILES[name]
    if len(weight.shape) == 1:
        return weight.copies * 4 * prod(weight.shape)
    if weight.component == ("head" if has_head else "embedding"):
        return of_type(usual if usual in ("f16", "bf16", "q8_0") else "q6_k", weight)
    if weight.component == "embedding":
        return of_type(usual, weight)
    return sum(of_type(_type_in_layer(name, weight, layer), weight) for layer in range(weight.copies))


def _type_in_layer(name: str, weight: Weight, layer: int) -> str:
    """Return the type of a linear in a layer: mixed files have more bits in some layers, and in values of models with 80 layers."""
    usual, layers = FILES[name], weight.copies
    linear = weight.name.split(".")[-2]
    mixed, first = name in ("q4_k_m", "q5_k_m"), layers // 8
    if mixed and linear == "qkv_proj":
        return "q5_k" if usual == "q4_k" else "q6_k"
    if mixed and linear in ("v_proj", "down_proj") and (layer < first or layer >= 7 * layers // 8 or (layer - first) % EVERY == EVERY - 1):
        return "q6_k"
    if name == "q4_k_s" and layer < {"v_proj": FIRST_VALUES, "down_proj": first}.get(linear, 0):
        return "q5_k"
    return "q5_k" if linear == "v_proj" and layers == OF_70B and usual in ("q3_k", "q4_k") else usual
