"""Model states: bytes of weights, master weights, gradients, optimizer state and EMA weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.capacity.figures import EVERYTHING, ByteSum, Weight
from planner.capacity.optimizers import STEP_COUNTER, ElementBytes, counts_steps, described, paged_bytes, shared_bytes, state_tensors
from planner.spec.precision import AVERAGES, BYTES, RECIPES, SHORT_NAMES
from planner.spec.records import Training
from planner.trace.sizes import Size, product, total


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of the model states, part by part."""

    lines: tuple[ByteSum[Size], ...]
    weights: Size
    master_weights: Size
    gradients: Size
    optimizer: Size
    paged: Size  # of the optimizer's: in unified memory, outside PyTorch's allocator
    average: Size
    step_counters: Size

    @property
    def total(self) -> Size:
        """Bytes of all parts, without step counters."""
        return sum(line.total_bytes for line in self.lines)


def states(weights: tuple[Weight[Size], ...], training: Training) -> States:
    """Return the bytes of the model states."""
    plain, alike = ElementBytes.by_recipe(training), dict[ElementBytes, list[Size]]()
    for weight in weights:
        alike.setdefault(ElementBytes.of(weight, training), []).append(weight.params)
    params = [(each, total(sizes)) for each, sizes in alike.items()]
    packed = total(weight.copies * _saved_by_packing(weight, training) for weight in weights if weight.packing)
    recipe, average = RECIPES[training.precision], AVERAGES[training.ema]
    sums = [total(size * getattr(each, part) for each, size in params) for part in ("weight", "master", "gradient", "average")]
    sums[0] = sums[0] - packed
    paged = total(weight.copies * paged_bytes(weight, training) for weight in weights)
    allocated = total(weight.copies * total(state_tensors(weight, training)) for weight in weights)
    optimizer = allocated + paged + shared_bytes(weights, training)
    gradients = ByteSum("gradients", training.gradient_dtype, plain.gradient, sums[2])
    if training.optimizer_in_backward:
        gradients = ByteSum("gradients", f"{training.gradient_dtype}, freed in the backward pass: only in the peak", 0, 0)
    routed = any(weight.component == "experts" for weight in weights)
    lines = [
        ByteSum("weights", SHORT_NAMES[recipe.weights], plain.weight, sums[0]),
        *([ByteSum("master weights", SHORT_NAMES[recipe.master], plain.master, sums[1])] if recipe.master else []),
        gradients,
        ByteSum("optimizer", *described(training, recipe.moments, routed=routed), optimizer),
        *([ByteSum("average of weights", SHORT_NAMES[average], plain.average, sums[3])] if average else []),
    ]
    if training.train != EVERYTHING:
        lines = [replace(line, bytes_per_param=None, what=_what(line, weights, training)) for line in lines]
    counters = STEP_COUNTER * sum(weight.copies for weight in weights if counts_steps(weight, training))
    return States(tuple(lines), sums[0], sums[1], gradients.total_bytes, optimizer, paged, sums[3], counters)


def _what(line: ByteSum[Size], weights: tuple[Weight[Size], ...], training: Training) -> str:
    """Describe a part of the states beside frozen weights: data types in the order of the model."""
    trained = [weight for weight in weights if weight.trains]
    if line.part == "weights":
        return ", ".join(dict.fromkeys(weight.packing.name if weight.packing else SHORT_NAMES[weight.dtype] for weight in weights))
    if line.part == "gradients" and not training.optimizer_in_backward:
        wide = {ElementBytes.of(weight, training).gradient for weight in trained} == {BYTES["float32"]}
        return f"{'fp32' if wide else ', '.join(dict.fromkeys(SHORT_NAMES[weight.dtype] for weight in trained))}, of what trains"
    if line.part == "optimizer" and len(kinds := {weight.dtype for weight in trained}) == 1:
        routed = any(weight.component == "experts" for weight in trained)
        return f"{described(training, RECIPES[training.precision].master or kinds.pop(), routed=routed)[0]}, of what trains"
    return f"{line.what}, of what trains" if line.part != "average of weights" else line.what


def _saved_by_packing(weight: Weight[Size], training: Training) -> Size:
    """Return by how many bytes a packed weight is smaller than in its dtype."""
    elements = product(weight.shape)
    return elements * ElementBytes.of(weight, training).weight - (weight.packing.bytes(elements) if weight.packing else 0)


def tensors_of(weight: Weight[Size], training: Training, *, with_gradients: bool) -> tuple[list[Size], list[Size]]:
    """Return the bytes of each tensor of one copy of a weight: weight, master, EMA weight and gradient; and optimizer state."""
    each = ElementBytes.of(weight, training)
    kin = [each.weight, each.master, each.average, each.gradient if with_gradients else 0]
    counters = [STEP_COUNTER] if counts_steps(weight, training) else []
    stored = weight.packing.tensors(product(weight.shape)) if weight.packing else [product(weight.shape) * size for size in kin if size]
    return stored, [*state_tensors(weight, training), *counters]
