"""Model states: bytes of weights, master weights, gradients and optimizer state, and how they are put together.

Optimizers are PyTorch's own (torch.optim 2.13: Adam, AdamW, SGD, Adafactor, Muon), lion-pytorch's Lion and bitsandbytes' AdamW8bit.
Step counters, four bytes a tensor, are a line of their own (``step_counters_bytes``): fused optimizers keep them on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from planner.capacity.records import ByteSum, Weight
from planner.spec.records import Optimizer, Training
from planner.trace.sizes import Size, divide_up, maximum, minimum, product

WEIGHT_BYTES = {"fp32": 4, "bf16-autocast": 4, "fp16-autocast": 4, "bf16-master": 2, "bf16": 2}
STEP_COUNTER = 4  # bytes
EMA_BYTES = {"none": 0, "bf16": 2, "fp32": 4}
BLOCK = 256  # bitsandbytes: elements that share one float32 scale
QUANTIZATION_MAPS = 2 * 256 * 4  # bitsandbytes: bytes of the two maps that all quantized tensors share
SMALLEST_QUANTIZED = 4096  # bitsandbytes' min_8bit_size: smaller tensors keep float32 moments
MOMENTS: dict[Optimizer, int] = {"adamw": 2, "adam": 2, "sgd": 0, "sgd-momentum": 1, "lion": 1}
MATRIX = 2  # dimensions
NAMES = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of the model states, part by part."""

    lines: tuple[ByteSum, ...]
    weights: Size
    master_weights: Size
    gradients: Size
    optimizer: Size
    average: Size
    step_counters: Size

    @property
    def total(self) -> Size:
        """Bytes of all parts, the step counters apart."""
        return sum(line.total_bytes for line in self.lines)


def states(weights: tuple[Weight, ...], training: Training) -> States:
    """Return the bytes of what a training step keeps beside activations.

    A weight that its module holds in float32 whatever the model's dtype has no master copy, and its gradient and moments are float32 too.
    """
    plain = _Bytes.of(training, always_float32=False)
    wide = _Bytes.of(training, always_float32=True)

    def total(part: Callable[[_Bytes], int]) -> Size:
        return sum(weight.params * part(wide if weight.always_float32 else plain) for weight in weights)

    sums = [total(attrgetter(part)) for part in ("weight", "master", "gradient", "average")]
    optimizer = sum(
        weight.copies * _state(training.optimizer, weight, (wide if weight.always_float32 else plain).moment) for weight in weights
    )
    if training.optimizer == "adamw-8bit":
        optimizer = optimizer + QUANTIZATION_MAPS * maximum(*(_quantized(product(weight.shape)) for weight in weights))
    lines = [
        ByteSum("weights", NAMES[plain.weight], plain.weight, sums[0]),
        *([ByteSum("master weights", NAMES[plain.master], plain.master, sums[1])] if plain.master else []),
        ByteSum("gradients", NAMES[plain.gradient], plain.gradient, sums[2]),
        ByteSum("optimizer", *_described(training.optimizer, plain.moment), optimizer),
        *([ByteSum("average of weights", NAMES[plain.average], plain.average, sums[3])] if plain.average else []),
    ]
    counters = STEP_COUNTER * sum(weight.copies for weight in weights if counts_steps(weight, training))
    return States(tuple(lines), sums[0], sums[1], sums[2], optimizer, sums[3], counters)


def counts_steps(weight: Weight, training: Training) -> bool:
    """Return whether the optimizer holds a step counter for a weight on the device: Adam's fused kernels do, the others on the host."""
    by_adam = training.optimizer in {"adamw", "adam"} or (training.optimizer == "muon" and not muon_takes(weight))
    return by_adam and (training.optimizer_kernel == "fused" or training.device == "cpu")


def tensors_of(weight: Weight, training: Training, *, with_gradients: bool) -> tuple[list[Size], list[Size]]:
    """Return the bytes of each tensor that stands for one copy of a weight: of itself and its kin, and of the optimizer."""
    each = _Bytes.of(training, always_float32=weight.always_float32)
    elements = product(weight.shape)
    kin = [each.weight, each.master, each.average, each.gradient if with_gradients else 0]
    count = MOMENTS.get(training.optimizer, 1)
    state = _state(training.optimizer, weight, each.moment)
    counters = [STEP_COUNTER] if counts_steps(weight, training) else []
    return [elements * size for size in kin if size], [*(state // count for _ in range(count)), *counters]


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes of one element of each tensor that stands for a weight."""

    weight: int
    master: int
    gradient: int
    moment: int
    average: int

    @classmethod
    def of(cls, training: Training, *, always_float32: bool) -> _Bytes:
        average = EMA_BYTES[training.ema]
        if always_float32:
            return cls(4, 0, 4, 4, average)
        weight, has_master = WEIGHT_BYTES[training.precision], training.precision == "bf16-master"
        return cls(weight, 4 if has_master else 0, 4 if training.gradient_dtype == "fp32" else 2, 4 if has_master else weight, average)


def _state(optimizer: Optimizer, weight: Weight, moment_bytes: int) -> Size:
    """Return the bytes of optimizer state of one copy of a weight."""
    elements = product(weight.shape)
    if optimizer == "adafactor":
        return _adafactor(weight.shape) * moment_bytes
    if optimizer == "adamw-8bit":
        return _adamw_8bit(elements)
    if optimizer == "muon":
        return elements * moment_bytes * (1 if muon_takes(weight) else 2)
    return elements * moment_bytes * MOMENTS[optimizer]


def muon_takes(weight: Weight) -> bool:
    """Return whether Muon updates a weight: the matrices of the layers; AdamW has the tables, the head, the norms and the biases."""
    return len(weight.shape) == MATRIX and weight.component in ("attention", "feed_forward", "other")


def _adafactor(shape: tuple[Size, ...]) -> Size:
    """Return the elements of a factored second moment: a row and a column of a matrix, all of a vector (torch.optim.Adafactor)."""
    if len(shape) == 1:
        return shape[0]
    return product(shape[:-1]) + product(shape[:-2]) * shape[-1]


def _adamw_8bit(elements: Size) -> Size:
    """Return the bytes of two moments of one byte an element and a float32 scale a block; small tensors keep two float32 moments."""
    quantized = _quantized(elements)
    return quantized * 2 * (elements + 4 * divide_up(elements, BLOCK)) + (1 - quantized) * 8 * elements


def _quantized(elements: Size) -> Size:
    """Return 1 for a tensor whose moments take one byte an element, 0 for a smaller one."""
    return minimum(elements // SMALLEST_QUANTIZED, 1)


def _described(optimizer: Optimizer, moment_bytes: int) -> tuple[str, int | None]:
    """Return the optimizer's state in words, and its bytes for a parameter where that is one number."""
    if optimizer in MOMENTS:
        moments = MOMENTS[optimizer]
        noun = "moment" if moments == 1 else "moments"
        return f"{moments} {noun}, {NAMES[moment_bytes]}" if moments else "no state", moments * moment_bytes
    words = {
        "adafactor": f"factored second moment, {NAMES[moment_bytes]}",
        "adamw-8bit": f"2 moments, 8 bits and a fp32 scale for {BLOCK}; fp32 for tensors under {SMALLEST_QUANTIZED:,} elements",
        "muon": f"1 moment for matrices of layers, 2 (adamw) for the rest, {NAMES[moment_bytes]}",
    }
    return words[optimizer], None
