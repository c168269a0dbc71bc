"""Temporary memory of the optimizer's update, in later steps and in the first one, which allocates the state.

An update runs through the weights in their order. Its local variables keep the tensors of the previous weight until they are assigned
again. Sources: torch/optim (PyTorch 2.13: adam.py, _adafactor.py, _muon.py), lion_pytorch/lion_pytorch.py (0.2.5) and
transformers/optimization.py (5.24). The kernels of bitsandbytes (backends/cuda/ops.py, 0.50) and of fused Adam allocate nothing, and
neither does SGD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from planner.capacity.figures import Weight
from planner.capacity.optimizers import (
    BITSANDBYTES,
    MATRIX,
    TORCHAO,
    ElementBytes,
    muon_updates,
    of_transformers,
    preconditioned,
    shared_bytes,
)
from planner.capacity.states import tensors_of
from planner.spec.precision import RECIPES, separate_gradients
from planner.spec.records import Optimizer, OptimizerKernel, Training
from planner.trace.dominance import highest
from planner.trace.sizes import Size, exceeds_one, minimum, product

Stacks = Sequence[tuple[int, int, Size]]  # see Trace.stacks
ADAMS: tuple[Optimizer, ...] = ("adamw", "adam")


@dataclass(slots=True)
class Loop:
    """Bytes of the variables of a running update, and of the state that it has created; a sample is a pair of both sums."""

    variables: dict[str, Size] = field(default_factory=dict)
    created: Size = 0
    samples: list[tuple[Size, Size]] = field(default_factory=list)

    def sample(self, temporary: Size = 0) -> None:
        """Record the bytes of the variables plus temporary ones."""
        self.samples.append((sum(self.variables.values()) + temporary, self.created))

    def assign(self, name: str, size: Size, temporary: Size = 0) -> None:
        """Compute a variable's next value, with temporary bytes; then its previous one is freed."""
        self.sample(temporary + size)
        self.variables[name] = size

    def peak(self, state: Size) -> tuple[Size, Size]:
        """Return the peak of a later step, and of a first step relative to the whole state of these bytes, which exists at the end."""
        return highest([0, *(size for size, _ in self.samples)]), highest([0, *(size + made - state for size, made in self.samples)])


Update = Callable[[Loop, Weight[Size], Training], None]


def update_temporaries(stacks: Stacks, weights: tuple[Weight[Size], ...], training: Training, state: Size) -> tuple[Size, Size]:
    """Return the temporary bytes of the update: of a later step, and of the first one besides ``state``, all that it creates."""
    run = of_weight(training)
    if run is None or training.optimizer_in_backward:
        return 0, 0
    if in_lists(training):
        every = sum(weight.params * ElementBytes.of(weight, training).moment for weight in weights)
        return every, every
    later, first = _peaks(stacks, weights, training, state, run)
    if training.optimizer == "soap":  # its first step updates nothing
        first = _peaks(stacks, weights, training, state, _soap_creates)[1]
    return later, first


def _peaks(stacks: Stacks, weights: tuple[Weight[Size], ...], training: Training, state: Size, run: Update) -> tuple[Size, Size]:
    """Return the temporary bytes of updates of all weights in turn."""
    creates = creates_in_turn(training)
    loop = Loop(created=shared_bytes(weights, training) if creates else _created_first(weights, training, state))
    for first, end, count in _sections(stacks, len(weights)):
        before, created = loop.variables.copy(), loop.created
        _run(loop, run, weights[first:end], training, creates=creates)
        if count == 1:
            continue
        another = exceeds_one(count)  # the last copy follows another one, if there is any
        names = before.keys() | loop.variables.keys()
        loop.variables = {name: another * loop.variables.get(name, 0) + (1 - another) * before.get(name, 0) for name in names}
        loop.created = created + (loop.created - created) * (count - 1)
        _run(loop, run, weights[first:end], training, creates=creates)
    return loop.peak(state)


def alone(weight: Weight[Size], training: Training) -> Size:
    """Return the temporary bytes of the update of one weight by an optimizer of its own."""
    loop, run = Loop(), of_weight(training)
    if run:
        run(loop, weight, training)
    return loop.peak(0)[0]


def _run(loop: Loop, run: Update, weights: Sequence[Weight[Size]], training: Training, *, creates: bool) -> None:
    """Update the weights one after the other."""
    for weight in weights:
        if not weight.trains:
            continue
        if creates:
            loop.created = loop.created + _state(weight, training)
        run(loop, weight, training)


def _created_first(weights: tuple[Weight[Size], ...], training: Training, state: Size) -> Size:
    """Return the bytes of state that exist before the first weight is updated: Muon runs before AdamW has created its own."""
    if training.optimizer != "muon":
        return state
    return sum(_state(weight, training) * weight.copies for weight in weights if muon_updates(weight, training))


def _state(weight: Weight[Size], training: Training) -> Size:
    return sum(tensors_of(weight, training, with_gradients=False)[1])


def of_weight(training: Training) -> Update | None:
    """Return how the optimizer updates a weight; None if that allocates nothing."""
    adafactor = _transformers_adafactor if of_transformers(training) else _adafactor
    by_name: dict[Optimizer, Update] = {"muon": _muon, "lion": _lion, "adafactor": adafactor, "soap": _soap}
    by_kernel: dict[OptimizerKernel, Update] = {"foreach": _adam_in_lists, "for-loop": _adam}
    found = by_kernel.get(training.optimizer_kernel) if training.optimizer in ADAMS else by_name.get(training.optimizer)
    return _with_a_copy_of_the_gradient(found) if copies_gradients(training) else found


def in_lists(training: Training) -> bool:
    """Return whether the optimizer updates all weights at once."""
    return training.optimizer in ADAMS and training.optimizer_kernel == "foreach" and not copies_gradients(training)


def copies_gradients(training: Training) -> bool:
    """Return whether the program casts 16-bit gradients to float32 for an optimizer that requires the dtype of the master weights.

    It does so for one weight after the other, since it would need all copies at once otherwise. Fused kernels read other dtypes.
    """
    if training.layout and training.layout.engine == "deepspeed":  # which copies all at once
        return False
    fused = training.optimizer in ADAMS and training.optimizer_kernel == "fused" and training.device != "cpu"
    return RECIPES[training.precision].master is not None and not separate_gradients(training) and not fused


def not_modeled(training: Training) -> tuple[str, ...]:
    """Return the temporary memory of updates that the peak omits."""
    lines = []
    if training.optimizer in TORCHAO:
        lines.append(f"temporary memory of the update of {training.optimizer}, which torch.compile builds")
    if training.optimizer in BITSANDBYTES and training.device == "cpu":
        lines.append(f"temporary memory of the update of {training.optimizer} on a CPU")
    if training.optimizer == "soap":
        lines.append("copies and workspaces of cuSOLVER in the bases of soap, which the peak includes and every tenth step computes again")
    if RECIPES[training.precision].master and not separate_gradients(training) and not copies_gradients(training):
        lines.append("float32 copies of the gradients that an unfused update makes")
    return tuple(lines)


def _with_a_copy_of_the_gradient(run: Update | None) -> Update:
    """Return the update of one weight by a call of its own, whose variables are freed at the end, from a float32 copy of the gradient."""

    def alone(loop: Loop, weight: Weight[Size], training: Training) -> None:
        loop.variables = {"gradient copy": product(weight.shape) * ElementBytes.of(weight, training).moment}
        loop.sample()
        if run:
            run(loop, weight, training)
        loop.variables = {}

    return alone


def creates_in_turn(training: Training) -> bool:
    """Return whether a first step creates a weight's state just before the weight's update, and not all state first."""
    in_turn = training.optimizer in ("lion", "soap") or (training.optimizer == "adafactor" and of_transformers(training))
    return in_turn or copies_gradients(training)


def _sections(stacks: Stacks, count: int) -> list[tuple[int, int, Size]]:
    """Return stacks of equal layers and the weights between them, each with its first index, the index after its last, and its copies."""
    sections: list[tuple[int, int, Size]] = []
    place = 0
    for first, end, copies in stacks:
        sections += [(place, first, 1), (first, end, copies)]
        place = end
    return [*sections, (place, count, 1)]


def _adam(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Adam, tensor by tensor (_single_tensor_adam): a root and its quotient. Its variable ``denom`` keeps the quotient."""
    size = _bytes(weight, training)
    loop.assign("denom", size, temporary=size)


def _adam_in_lists(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Adam with a list of one tensor (_multi_tensor_adam): a root."""
    loop.sample(_bytes(weight, training))


def _lion(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Lion: a copy of the moment, and its sum with the gradient."""
    loop.sample(2 * _bytes(weight, training))


def _muon(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Muon, matrix by matrix, at the end of a Newton-Schulz iteration.

    Allocated are the update in the gradient's dtype, the matrix before and after the iteration in bf16, and two squares of its shorter
    side.
    """
    if muon_updates(weight, training):
        rows, columns = weight.shape[-2:]
        short = minimum(rows, columns)
        loop.sample(rows * columns * (ElementBytes.of(weight, training).moment + 2 * 2) + 2 * 2 * short * short)


def _adafactor(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Adafactor of PyTorch, tensor by tensor (_single_tensor_adafactor): the estimated variance becomes the update, in place."""
    shape, size, moment = weight.shape, _bytes(weight, training), ElementBytes.of(weight, training).moment
    if len(shape) == 1:
        loop.assign("grad_squared", size)
        loop.assign("update", size)
        return
    loop.assign("row_mean", product(shape[:-1]) * moment)
    loop.assign("col_mean", product(shape[:-2]) * shape[-1] * moment)
    loop.assign("update", size, temporary=product(shape[:-2]) * moment)  # the mean of the rows


def _transformers_adafactor(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Adafactor of transformers: float32 copies of a 16-bit gradient and weight; a square, then the update in its place."""
    shape, size = weight.shape, 4 * product(weight.shape)
    each = ElementBytes.of(weight, training)
    for name, element in (("grad", each.moment), ("p_data_fp32", each.master or each.weight)):
        loop.variables[name] = 0  # it names the weight's own tensor first
        loop.assign(name, size if element < 4 else 0)  # noqa: PLR2004 - bytes of float32
    loop.assign("update", size, temporary=size)
    factors = 4 * (product(shape[:-1]) + product(shape[:-2]) * shape[-1]) if len(shape) > 1 else 0
    loop.assign("update", size, temporary=factors)
    if training.first_moment:
        loop.variables["update"] = 0  # it names the first moment
    loop.sample(size)  # the negative update


def _soap(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """SOAP in a step that computes the bases again, as every tenth does (precondition_frequency): an update, then a QR of each product."""
    size, sides, moment = _bytes(weight, training), preconditioned(weight), ElementBytes.of(weight, training).moment
    loop.variables["grad_projected"] = _project(loop, sides, size)
    loop.sample(size)
    loop.assign("de_nom", size)
    loop.variables["exp_avg_projected"] = _project(loop, sides, size)
    loop.sample(size)
    loop.variables["norm_grad"] = _project(loop, sides, size, size)
    before = loop.variables.copy()
    _outer_products(loop, weight, training)
    for number, side in enumerate(sides):
        square, casts = side * side, 4 * (moment < 4)  # noqa: PLR2004 - bytes of float32
        _set(loop, "matrix_product", square * moment)
        _set(loop, "est_eig", side * moment, temporary=square * moment)
        _set(loop, "sort_idx", side * 8, temporary=side * moment)
        _set(loop, "exp_avg_sq", minimum(side, 1) * size)
        _set(loop, "power_iter", square * moment)
        loop.sample(square * (4 + 4 + casts))
        _set(loop, "_", square * 4, temporary=square * 4)
        loop.assign(f"matrices {number}", square * moment, temporary=square * casts)
    loop.variables = before


def _soap_creates(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """SOAP in the first step, which creates statistics and bases and updates nothing: eigenvectors, from 16 bits computed in float64."""
    sides, moment, before = preconditioned(weight), ElementBytes.of(weight, training).moment, loop.variables.copy()
    loop.variables["bases to come"] = -sum(side * side * moment for side in sides)
    _outer_products(loop, weight, training)
    for side in sides:
        element = 8 if moment < 4 else 4  # noqa: PLR2004 - bytes of float32
        loop.sample(3 * side * side * element if moment < element else 0)
        _set(loop, "_", side * element, temporary=2 * side * side * element)
        loop.variables["bases to come"] += side * side * moment
    loop.variables = before


def _project(loop: Loop, sides: Sequence[Size], size: Size, result: Size = 0) -> Size:
    """Multiply a tensor by each basis, whose dimension goes last; one without a basis moves there as a view, which a stack copies then."""
    strided: Size = 0
    for side in sides:
        multiplies = minimum(side, 1)
        copied = strided * size if len(sides) > MATRIX else 0
        loop.sample(multiplies * (result + copied + size))
        result = multiplies * size + (1 - multiplies) * result
        strided = (1 - multiplies) * (1 - strided)
    return result


def _outer_products(loop: Loop, weight: Weight[Size], training: Training) -> None:
    """Multiply the gradient by itself along each dimension; twice a copy of it for the middle one of a stack."""
    for number, side in enumerate(preconditioned(weight)):
        copies = 2 * minimum(side, 1) * _bytes(weight, training) if number == 1 and len(weight.shape) > MATRIX else 0
        _set(loop, "outer_product", side * side * ElementBytes.of(weight, training).moment, temporary=copies)


def _set(loop: Loop, name: str, size: Size, temporary: Size = 0) -> None:
    """Assign a variable, unless the size is 0."""
    kept = (1 - minimum(size, 1)) * loop.variables.get(name, 0)
    loop.assign(name, size, temporary)
    loop.variables[name] = size + kept


def _bytes(weight: Weight[Size], training: Training) -> Size:
    """Return the bytes of a tensor of a weight's size in the dtype of the state."""
    return product(weight.shape) * ElementBytes.of(weight, training).moment
