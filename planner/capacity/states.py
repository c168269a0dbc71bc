"""Model states: bytes of weights, master weights, gradients and optimizer state, and how they are put together.

Optimizers are PyTorch's own (torch.optim 2.13: Adam, AdamW, SGD, Adafactor, Muon), lion-pytorch's Lion and bitsandbytes' AdamW8bit.
Step counters, four bytes a tensor, are a line of their own (``step_counters_bytes``): fused optimizers keep them on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.capacity.records import ByteSum, Weight
from planner.spec.records import Optimizer, Training
from planner.trace.sizes import Size, divide_up, minimum, product

WEIGHT_BYTES = {"fp32": 4, "bf16-autocast": 4, "fp16-autocast": 4, "bf16-master": 2, "bf16": 2}
MASTER_BYTES = 4
EMA_BYTES = {"none": 0, "bf16": 2, "fp32": 4}
BLOCK = 256  # bitsandbytes: elements that share one float32 scale
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
    has_master = training.precision == "bf16-master"
    weight_bytes = WEIGHT_BYTES[training.precision]
    gradient_bytes = 4 if training.gradient_dtype == "fp32" else 2
    moment_bytes = MASTER_BYTES if has_master else weight_bytes
    elements, wide = (sum(weight.params for weight in weights if weight.always_float32 is always) for always in (False, True))
    optimizer = sum(
        weight.copies * _state(training.optimizer, weight, MASTER_BYTES if weight.always_float32 else moment_bytes) for weight in weights
    )
    in_memory, master = elements * weight_bytes + wide * MASTER_BYTES, elements * MASTER_BYTES if has_master else 0
    gradients = elements * gradient_bytes + wide * MASTER_BYTES
    average_bytes = EMA_BYTES[training.ema]
    average = (elements + wide) * average_bytes
    lines = [
        ByteSum("weights", NAMES[weight_bytes], weight_bytes, in_memory),
        *([ByteSum("master weights", "fp32", MASTER_BYTES, master)] if has_master else []),
        ByteSum("gradients", NAMES[gradient_bytes], gradient_bytes, gradients),
        ByteSum("optimizer", *_described(training.optimizer, moment_bytes), optimizer),
        *([ByteSum("average of weights", NAMES[average_bytes], average_bytes, average)] if average_bytes else []),
    ]
    on_device = training.optimizer_kernel == "fused" or training.device == "cpu"
    counters = 4 * sum(weight.copies for weight in weights) if training.optimizer in {"adamw", "adam"} and on_device else 0
    return States(
        tuple(lines),
        in_memory,
        master,
        gradients,
        optimizer,
        average,
        counters,
    )


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
    quantized = minimum(elements // SMALLEST_QUANTIZED, 1)  # 1 or 0
    return quantized * 2 * (elements + 4 * divide_up(elements, BLOCK)) + (1 - quantized) * 8 * elements


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
