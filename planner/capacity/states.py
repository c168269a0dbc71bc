"""Model states: bytes of weights, master weights, gradients, optimizer state and EMA weights.

Optimizers are torch.optim 2.13's (Adam, AdamW, SGD, Adafactor, Muon), lion-pytorch's Lion and bitsandbytes' AdamW8bit. Step counters, four
bytes per tensor, are a separate figure (``step_counters_bytes``): fused optimizers store them on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from planner.capacity.figures import ByteSum, Number, Weight
from planner.spec.precision import AVERAGES, BYTES, GRADIENTS, RECIPES, SHORT_NAMES, Dtype
from planner.spec.records import Optimizer, Training
from planner.trace.sizes import Size, ceil_div, maximum, minimum, product

STEP_COUNTER = 4  # bytes
BLOCK = 256  # bitsandbytes: elements that share one float32 scale
QUANTIZATION_MAPS = 2 * 256 * 4  # bitsandbytes: bytes of the two maps that all quantized tensors share
SMALLEST_QUANTIZED = 4096  # bitsandbytes' min_8bit_size: smaller tensors keep float32 moments
MOMENTS: dict[Optimizer, int] = {"adamw": 2, "adam": 2, "sgd": 0, "sgd-momentum": 1, "lion": 1}
MATRIX = 2  # dimensions


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of the model states, part by part."""

    lines: tuple[ByteSum[Size], ...]
    weights: Size
    master_weights: Size
    gradients: Size
    optimizer: Size
    average: Size
    step_counters: Size

    @property
    def total(self) -> Size:
        """Bytes of all parts, without step counters."""
        return sum(line.total_bytes for line in self.lines)


def states(weights: tuple[Weight[Size], ...], training: Training) -> States:
    """Return the bytes of the model states.

    A weight whose module requires float32 has no master copy, and its gradient and moments are float32 too.
    """
    plain = _Bytes.of(training, always_float32=False)
    wide = _Bytes.of(training, always_float32=True)

    def total(part: Callable[[_Bytes], int]) -> Size:
        return sum(weight.params * part(wide if weight.always_float32 else plain) for weight in weights)

    recipe, average = RECIPES[training.precision], AVERAGES[training.ema]
    sums = [total(attrgetter(part)) for part in ("weight", "master", "gradient", "average")]
    optimizer = sum(weight.copies * _state(training, weight, (wide if weight.always_float32 else plain).moment) for weight in weights)
    if training.optimizer == "adamw-8bit":
        optimizer = optimizer + QUANTIZATION_MAPS * maximum(*(_quantized(product(weight.shape)) for weight in weights))
    routed = any(weight.component == "experts" for weight in weights)
    lines = [
        ByteSum("weights", SHORT_NAMES[recipe.weights], plain.weight, sums[0]),
        *([ByteSum("master weights", SHORT_NAMES[recipe.master], plain.master, sums[1])] if recipe.master else []),
        ByteSum("gradients", training.gradient_dtype, plain.gradient, sums[2]),
        ByteSum("optimizer", *_described(training, recipe.moments, routed=routed), optimizer),
        *([ByteSum("average of weights", SHORT_NAMES[average], plain.average, sums[3])] if average else []),
    ]
    counters = STEP_COUNTER * sum(weight.copies for weight in weights if counts_steps(weight, training))
    return States(tuple(lines), sums[0], sums[1], sums[2], optimizer, sums[3], counters)


def counts_steps(weight: Weight[Size], training: Training) -> bool:
    """Return whether the optimizer stores a weight's step counter on the device: Adam's fused kernels do, others use the host."""
    optimizer, on_host = training.optimizer, training.device == "cpu"
    by_adam = optimizer in {"adamw", "adam"} or (optimizer == "muon" and not muon_updates(weight, training))
    return on_host if optimizer == "adafactor" else by_adam and (on_host or training.optimizer_kernel == "fused")


def tensors_of(weight: Weight[Size], training: Training, *, with_gradients: bool) -> tuple[list[Size], list[Size]]:
    """Return the bytes of each tensor of one copy of a weight: weight, master, EMA weight and gradient; and optimizer state."""
    each = _Bytes.of(training, always_float32=weight.always_float32)
    elements = product(weight.shape)
    kin = [each.weight, each.master, each.average, each.gradient if with_gradients else 0]
    count = MOMENTS.get(training.optimizer, 1)
    state = _state(training, weight, each.moment)
    counters = [STEP_COUNTER] if counts_steps(weight, training) else []
    return [elements * size for size in kin if size], [*(state // count for _ in range(count)), *counters]


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes per element of each tensor of a weight."""

    weight: int
    master: int
    gradient: int
    moment: int
    average: int

    @classmethod
    def of(cls, training: Training, *, always_float32: bool) -> _Bytes:
        recipe = RECIPES["fp32" if always_float32 else training.precision]
        gradient = GRADIENTS["fp32" if always_float32 else training.gradient_dtype]
        tensors: tuple[Dtype | None, ...] = (recipe.weights, recipe.master, gradient, recipe.moments, AVERAGES[training.ema])
        return cls(*(BYTES[dtype] if dtype else 0 for dtype in tensors))


def _state(training: Training, weight: Weight[Size], moment_bytes: int) -> Size:
    """Return the optimizer state bytes of one copy of a weight."""
    elements, optimizer = product(weight.shape), training.optimizer
    if optimizer == "adafactor":
        return _adafactor(weight.shape) * moment_bytes
    if optimizer == "adamw-8bit":
        return _adamw_8bit(elements)
    if optimizer == "muon":
        return elements * moment_bytes * (1 if muon_updates(weight, training) else 2)
    return elements * moment_bytes * MOMENTS[optimizer]


def muon_updates(weight: Weight[Number], training: Training) -> bool:
    """Return whether Muon updates a weight: a matrix in a layer by which the model multiplies.

    These are projections of token mixers, feed-forwards, shared experts and routers. AdamW updates weights outside the layers (embeddings,
    LM head, ``project_in``, …), norms, biases, decays and convolutions. It also updates stacks of matrices, which torch.optim.Muon (PyTorch
    2.13) rejects, except routed experts with ``muon_experts: each``.

    Sources: torch.optim.Muon and github.com/KellerJordan/Muon ("hidden weights"; embeddings, heads, gains and biases by AdamW); Liu et al.
    2025 (Moonlight, arXiv:2502.16982) and Kimi K2 (arXiv:2507.20534), whose experts are separate matrices.
    """
    if not (weight.multiplied and weight.name.startswith("model.layers.")):
        return False
    return len(weight.shape) == MATRIX or (weight.component == "experts" and training.muon_experts == "each")


def _adafactor(shape: tuple[Size, ...]) -> Size:
    """Return the elements of a factored second moment: a row and a column per matrix, all of a vector (torch.optim.Adafactor)."""
    if len(shape) == 1:
        return shape[0]
    return product(shape[:-1]) + product(shape[:-2]) * shape[-1]


def _adamw_8bit(elements: Size) -> Size:
    """Return the bytes of two moments: one byte per element and a float32 scale per block, or float32 for small tensors."""
    quantized = _quantized(elements)
    return quantized * 2 * (elements + 4 * ceil_div(elements, BLOCK)) + (1 - quantized) * 8 * elements


def _quantized(elements: Size) -> Size:
    """Return 1 for a tensor whose moments are quantized, 0 for a smaller one."""
    return minimum(elements // SMALLEST_QUANTIZED, 1)


def _described(training: Training, dtype: Dtype, *, routed: bool) -> tuple[str, int | None]:
    """Return a description of the optimizer state, and its bytes per parameter if that is one number."""
    optimizer = training.optimizer
    if optimizer in MOMENTS:
        moments = MOMENTS[optimizer]
        noun = "moment" if moments == 1 else "moments"
        return f"{moments} {noun}, {SHORT_NAMES[dtype]}" if moments else "no state", moments * BYTES[dtype]
    experts = {"each": " and of each expert", "adamw": " but not of routed experts"}[training.muon_experts] if routed else ""
    words = {
        "adafactor": f"factored second moment, {SHORT_NAMES[dtype]}",
        "adamw-8bit": f"2 moments, 8-bit with an fp32 scale per {BLOCK}; fp32 for tensors under {SMALLEST_QUANTIZED:,} elements",
        "muon": f"1 moment for matrices of layers{experts}, 2 (adamw) for the rest, {SHORT_NAMES[dtype]}",
    }
    return words[optimizer], None
