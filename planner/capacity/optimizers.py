"""Optimizers: the tensors of their state per weight, and their step counters.

- torch.optim 2.13: Adam, AdamW, SGD, Adafactor, Muon. lion-pytorch 0.2.5: Lion.
- transformers 5.24 (optimization.py): Adafactor, under its implementations. Always float32, with the root mean square of every weight.
- bitsandbytes 0.50 (optim/optimizer.py, optim/ademamix.py): states of 8 and of 32 bits, whatever the dtype of the weights is. AdEMAMix
  stores its two first moments in one tensor.
- pytorch_optimizer 4.1 (optimizer/soap.py): SOAP, with a statistic and a basis for each dimension of at most 10,000 of a matrix.
- torchao 0.18 (optim/adam.py, optim/subclass_8bit.py, subclass_4bit.py, subclass_fp8.py): AdamW with states of 8 and 4 bits.

Step counters, four bytes per tensor, are a separate figure (``step_counters_bytes``): fused optimizers store them on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from planner.capacity.figures import Number, Weight
from planner.spec.precision import AVERAGES, BYTES, GRADIENTS, RECIPES, SHORT_NAMES, Dtype
from planner.spec.records import Ema, GradientDtype, Optimizer, Precision, Training
from planner.trace.sizes import Size, ceil_div, maximum, minimum, product

STEP_COUNTER = 4  # bytes
MOMENTS: dict[Optimizer, int] = {"adamw": 2, "adam": 2, "sgd": 0, "sgd-momentum": 1, "lion": 1, "soap": 2}
MATRIX = 2  # dimensions
LARGEST_PRECONDITIONED = 10_000  # SOAP: max_precondition_dim

SMALLEST_QUANTIZED = 4096  # elements: min_8bit_size of bitsandbytes; the same in torchao
SCALE = 4  # bytes
BLOCK = 256  # bitsandbytes: elements that share a scale
QUANTIZATION_MAP = 256 * 4  # bitsandbytes: bytes of a map that all quantized tensors share
SMALLEST_PAGED = 100_000  # bitsandbytes: elements (get_state_buffer)


class Blockwise(NamedTuple):
    """An optimizer of bitsandbytes: the moments in each of its tensors, and their bits."""

    tensors: tuple[int, ...]
    bits: int


class Subclass(NamedTuple):
    """An optimizer of torchao: the bits of a moment, the elements that share a scale, and the bytes of the map of each tensor."""

    bits: int
    block: int
    map: int


BITSANDBYTES: dict[Optimizer, Blockwise] = {
    "adamw-8bit": Blockwise((1, 1), 8),
    "adamw-32bit": Blockwise((1, 1), 32),
    "lion-8bit": Blockwise((1,), 8),
    "lion-32bit": Blockwise((1,), 32),
    "ademamix-8bit": Blockwise((2, 1), 8),
    "ademamix": Blockwise((2, 1), 32),
}
TORCHAO: dict[Optimizer, Subclass] = {
    "adamw-8bit-torchao": Subclass(8, 256, 256 * 4),
    "adamw-4bit": Subclass(4, 128, 16 * 4),
    "adamw-fp8": Subclass(8, 256, 0),
}


@dataclass(frozen=True, slots=True)
class ElementBytes:
    """Bytes per element of each tensor of a weight. ``moment``: of the weight and of the gradient that the optimizer reads, too."""

    weight: int
    master: int
    gradient: int
    moment: int
    average: int

    @classmethod
    def of(cls, weight: Weight[Number], training: Training) -> ElementBytes:
        """Return those of a weight. One whose module requires float32 has no master copy; its gradient and moments are float32 too.

        The same holds for weights of another dtype than the precision's; frozen ones have none of these.
        """
        its = cls.by_recipe(training, always_float32=weight.always_float32)
        own = BYTES[weight.dtype]
        if training.base and not weight.always_float32:
            its = replace(its, weight=own, master=0, gradient=own, moment=own)
        return its if weight.trains else replace(its, master=0, gradient=0, moment=0)

    @classmethod
    def by_recipe(cls, training: Training, *, always_float32: bool = False) -> ElementBytes:
        """Return those of a training's weights."""
        if always_float32:
            return _element_bytes("fp32", "fp32", training.ema)
        return _element_bytes(training.precision, training.gradient_dtype, training.ema)


@cache
def _element_bytes(precision: Precision, gradient_dtype: GradientDtype, ema: Ema) -> ElementBytes:
    recipe = RECIPES[precision]
    tensors: tuple[Dtype | None, ...] = (recipe.weights, recipe.master, GRADIENTS[gradient_dtype], recipe.moments, AVERAGES[ema])
    return ElementBytes(*(BYTES[dtype] if dtype else 0 for dtype in tensors))


def state_tensors(weight: Weight[Size], training: Training) -> list[Size]:
    """Return the bytes of each tensor that PyTorch allocates as the optimizer's state of one copy of a weight; some can be 0."""
    if not weight.trains:
        return []
    elements, optimizer, moment = product(weight.shape), training.optimizer, ElementBytes.of(weight, training).moment
    if optimizer == "adafactor":
        return _adafactor(weight.shape, training, moment)
    if optimizer == "muon":
        return [elements * moment] * (1 if muon_updates(weight, training) else 2)
    if optimizer in BITSANDBYTES:
        buffers = [size * (1 - _is_paged(elements, training)) for size in _buffers(elements, optimizer)]
        own = [_is_quantized(elements) * _maps(training)] if training.optimizer_in_backward else []  # of an optimizer per weight
        return [*buffers, *_scales(elements, optimizer), *own]
    if optimizer in TORCHAO:
        return _subclasses(elements, _torchao(training), moment)
    squares = [side * side * moment for side in preconditioned(weight)] if optimizer == "soap" else []
    return [*[elements * moment] * (MOMENTS[optimizer] + training.amsgrad), *squares, *squares]


def paged_bytes(weight: Weight[Size], training: Training) -> Size:
    """Return the bytes of a paged optimizer's state of one copy of a weight in unified memory, which PyTorch does not allocate."""
    if not (training.paged and weight.trains):
        return 0
    elements = product(weight.shape)
    return _is_paged(elements, training) * sum(_buffers(elements, training.optimizer))


def shared_bytes(weights: tuple[Weight[Size], ...], training: Training) -> Size:
    """Return the bytes of the maps that all quantized tensors of bitsandbytes share."""
    if training.optimizer_in_backward:
        return 0
    return _maps(training) * maximum(*(_is_quantized(product(weight.shape)) for weight in weights))


def _maps(training: Training) -> int:
    """Return the bytes of the maps of an optimizer of bitsandbytes: one of signed values, and one of second moments."""
    kind = BITSANDBYTES.get(training.optimizer)
    return QUANTIZATION_MAP * len(kind.tensors) if kind and kind.bits == 8 else 0  # noqa: PLR2004 - bits


def counts_steps(weight: Weight[Size], training: Training) -> bool:
    """Return whether the optimizer stores a weight's step counter on the device: Adam's fused kernels do, others use the host.

    The FusedAdam of Transformer Engine, which Megatron-Core runs, counts the steps of all weights in a number.
    """
    if training.implementation == "megatron-core":
        return False
    optimizer, on_host = training.optimizer, training.device == "cpu"
    by_adam = optimizer in {"adamw", "adam"} or (optimizer == "muon" and not muon_updates(weight, training))
    if optimizer in TORCHAO or (optimizer == "adafactor" and not of_transformers(training)):
        return weight.trains and on_host
    return weight.trains and by_adam and (on_host or training.optimizer_kernel == "fused")


def of_transformers(training: Training) -> bool:
    """Return whether the Trainer of transformers creates the optimizer: it has an Adafactor of its own."""
    return training.implementation.startswith("transformers")


def muon_updates(weight: Weight[Number], training: Training) -> bool:
    """Return whether Muon updates a weight: a matrix in a layer by which the model multiplies.

    These are projections of token mixers, feed-forwards, shared experts and routers. AdamW updates weights outside the layers (embeddings,
    LM head, ``project_in``, …), norms, biases, decays and convolutions. It also updates stacks of matrices, which torch.optim.Muon (PyTorch
    2.13) rejects, except routed experts with ``muon_experts: each``.

    Sources: torch.optim.Muon and github.com/KellerJordan/Muon ("hidden weights"; embeddings, heads, gains and biases by AdamW); Liu et al.
    2025 (Moonlight, arXiv:2502.16982) and Kimi K2 (arXiv:2507.20534), whose experts are separate matrices.
    """
    if not (weight.multiplied and weight.name.startswith(("model.layers.", "model.encoder.layers."))):
        return False
    return len(weight.shape) == MATRIX or (weight.component == "experts" and training.muon_experts == "each")


def preconditioned(weight: Weight[Size]) -> list[Size]:
    """Return the dimensions of a weight that SOAP preconditions, with 0 for larger ones; none of a vector."""
    sides = weight.shape if len(weight.shape) > 1 else ()
    return [side * minimum(LARGEST_PRECONDITIONED // side, 1) for side in sides]


def _adafactor(shape: tuple[Size, ...], training: Training, moment: int) -> list[Size]:
    """Return a factored second moment: a row and a column per matrix, all of a vector. That of transformers is float32."""
    rows, columns = product(shape[:-1]), product(shape[:-2]) * shape[-1]
    factors = [rows, columns] if len(shape) > 1 else [shape[0]]
    if not of_transformers(training):
        return [size * moment for size in factors]
    return [4 * size for size in (*factors, *([product(shape)] if training.first_moment else []), 1)]


def _buffers(elements: Size, optimizer: Optimizer) -> list[Size]:
    """Return the bytes of moments of bitsandbytes: one per element in quantized tensors, else four."""
    kind = BITSANDBYTES[optimizer]
    quantized = _is_quantized(elements) if kind.bits == 8 else 0  # noqa: PLR2004 - bits
    return [size * elements * moments for moments in kind.tensors for size in (quantized, 4 * (1 - quantized))]


def _scales(elements: Size, optimizer: Optimizer) -> list[Size]:
    """Return the bytes of the scales of quantized moments of bitsandbytes, one per block."""
    kind = BITSANDBYTES[optimizer]
    if kind.bits != 8:  # noqa: PLR2004 - bits
        return []
    return [_is_quantized(elements) * SCALE * moments * ceil_div(elements, BLOCK) for moments in kind.tensors]


def _subclasses(elements: Size, kind: Subclass, moment: int) -> list[Size]:
    """Return torchao's two moments: values, scales and map if the tensor is whole blocks, else a tensor of the weight's dtype."""
    blocks = elements // kind.block
    whole = _is_quantized(elements) * (1 - minimum(elements - blocks * kind.block, 1))
    return [whole * elements * kind.bits // 8, whole * SCALE * blocks, whole * kind.map, (1 - whole) * elements * moment] * 2


def _torchao(training: Training) -> Subclass:
    """Return torchao's optimizer. The Trainer of transformers (trainer_optimizer.py) sets blocks of 256 in all of them."""
    kind = TORCHAO[training.optimizer]
    return kind._replace(block=256) if of_transformers(training) else kind


def _is_quantized(elements: Size) -> Size:
    """Return 1 for a tensor whose moments are quantized, 0 for a smaller one."""
    return minimum(elements // SMALLEST_QUANTIZED, 1)


def _is_paged(elements: Size, training: Training) -> Size:
    """Return 1 for a tensor whose moments are paged, 0 for others. Nothing is paged on a CPU."""
    return minimum(elements // SMALLEST_PAGED, 1) if training.paged and training.device != "cpu" else 0


def described(training: Training, dtype: Dtype, *, routed: bool) -> tuple[str, int | None]:
    """Return a description of the optimizer state, and its bytes per parameter if that is one number."""
    optimizer = training.optimizer
    if optimizer == "soap":
        return f"2 moments, statistic and basis for each dimension of matrices to {LARGEST_PRECONDITIONED:,}, {SHORT_NAMES[dtype]}", None
    if optimizer in MOMENTS:
        moments = MOMENTS[optimizer] + training.amsgrad
        return f"{_moments(moments)}, {SHORT_NAMES[dtype]}" if moments else "no state", moments * BYTES[dtype]
    if optimizer in BITSANDBYTES:
        moments, bits = sum(BITSANDBYTES[optimizer].tensors), BITSANDBYTES[optimizer].bits
        small = f"8-bit with an fp32 scale per {BLOCK}; fp32 for tensors under {SMALLEST_QUANTIZED:,} elements"
        text = f"{_moments(moments)}, {small if bits == 8 else 'fp32'}{', paged' if training.paged else ''}"  # noqa: PLR2004 - bits
        return text, None if bits == 8 else 4 * moments  # noqa: PLR2004 - the same
    if optimizer in TORCHAO:
        bits, block, _ = _torchao(training)
        small = f"{SHORT_NAMES[dtype]} for tensors under {SMALLEST_QUANTIZED:,} elements or with a part of a block"
        return f"2 moments, {bits}-bit with an fp32 scale per {block}; {small}", None
    if optimizer == "adafactor":
        first = "first moment, " if training.first_moment else ""
        wide = f"{first}factored second moment and a root mean square per tensor, fp32"
        return wide if of_transformers(training) else f"factored second moment, {SHORT_NAMES[dtype]}", None
    experts = {"each": " and of each expert", "adamw": " but not of routed experts"}[training.muon_experts] if routed else ""
    return f"1 moment for matrices of layers{experts}, 2 (adamw) for the rest, {SHORT_NAMES[dtype]}", None


def _moments(count: int) -> str:
    return f"{count} moment" if count == 1 else f"{count} moments"
