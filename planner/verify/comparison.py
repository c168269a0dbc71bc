"""The planner's figures beside PyTorch's, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from planner import capacity
from planner.capacity.figures import FlopsCount, Plan
from planner.spec.records import Scenario, Spec, Training
from planner.verify import (
    CannotMeasureError,
    configured_parameters,
    measure,
    measure_gpu,
    measure_loss,
    measure_optimizer,
    parameters,
    transformers_parameters,
    twin,
)
from planner.verify.measured import CHECKPOINT, Check, Compared, Measured, pattern

# How far a peak may be from the measured one: the order in which an engine frees and allocates inside a layer is not all modeled.
PEAK_ALLOWED, PEAK_ALLOWED_RECOMPUTED = 0.005, 0.01
GPU_ALLOWED = 0.02  # kernels take workspaces of their own
LOSS_ALLOWED = 0.02  # of ln V: random weights say a little, not nothing
TWIN_BATCH, TWIN_LENGTH = 2, 16


def compare(spec: Spec, scenario: Scenario, checks: Iterable[Check] = ("parameters",), config: Path | None = None) -> Iterator[Compared]:
    """Yield the rows of each check, parameters first. The check config reads the config.json given.

    Parameters, kept tensors, FLOPs and the step are those of the model at full size: on a made-up GPU or, where the training's device is
    the CPU, with its kernels on real tensors. Optimizer and loss are those of a small twin on the CPU. Raises ``ModuleNotFoundError``
    without torch, and ``CannotMeasureError``.
    """
    wanted = set(checks)
    if scenario.training.count_prediction:
        raise CannotMeasureError("no modules here build prediction layers; leave out training.count_prediction to compare the model itself")
    # What no storage holds is none of PyTorch's tensors: a reserve, and what an allocator rounds up.
    scenario = replace(scenario, training=replace(scenario.training, reserve_bytes=0, round_allocations=False))
    plan = capacity.plan(spec, scenario)
    if "parameters" in wanted:
        # Experts and other mixers are built by transformers' classes only.
        independent = transformers_parameters if plan.training.implementation.startswith("transformers") else parameters
        yield from compare_parameters(plan, "parameters", independent(plan.model))
    if "transformers" in wanted:
        yield from compare_parameters(plan, "transformers", transformers_parameters(plan.model))
    if "config" in wanted and config:
        name, theirs = configured_parameters(config)
        yield _rows(plan, "transformers", "params")(f"total, {name}", plan.parameters.total, theirs)
    if wanted & STEPS.keys():
        measured = measure(plan.model, _measurable(plan.training, step="step" in wanted))
        for check, rows in STEPS.items():
            yield from rows(plan, measured) if check in wanted else ()
    for check, rows_of in TWINS.items():
        yield from rows_of(_small(spec, scenario)) if check in wanted else ()
    if "device" in wanted:
        yield from compare_gpu(spec, scenario)


def _measurable(training: Training, *, step: bool) -> Training:
    """Leave out what has no part in what is measured and cannot run on fake tensors."""
    return training if step or training.device == "cpu" else replace(training, optimizer="adamw")


def _small(spec: Spec, scenario: Scenario) -> Plan:
    """Plan the spec's twin; neither its optimizer nor its first loss depends on whose kernels run."""
    training = replace(
        scenario.training,
        batch_size=TWIN_BATCH,
        sequence_length=TWIN_LENGTH,
        gradient_accumulation=1,
        tokens=None,
        implementation="pytorch-eager",  # takes every model
        attention_kernel="auto",
        recompute="none",
    )
    return capacity.plan(replace(spec, model=twin(spec.model)), replace(scenario, training=training))


def _rows(plan: Plan, check: Check, unit: str) -> Callable[..., Compared]:
    def row(figure: str, ours: float | str | None, pytorch: float | str | None, allowed: float = 0.0) -> Compared:
        return Compared(plan.name, plan.scenario, check, figure, unit, ours, pytorch, allowed)

    return row


def compare_parameters(plan: Plan, check: Check, theirs: dict[str, tuple[int, ...]]) -> Iterator[Compared]:
    """Yield the total, then every tensor that only one of the two has, or has in another shape or number."""
    row = _rows(plan, check, "params")
    counts = Counter((pattern(name), shape) for name, shape in theirs.items())
    ours: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for weight in plan.parameters.weights:
        ours[pattern(weight.name), weight.shape] += weight.copies
    yield row("total", plan.parameters.total, sum(size(shape) for shape in theirs.values()))
    row = _rows(plan, check, "tensors")
    yield row("tensors", sum(ours.values()), len(theirs))
    for name, shape in sorted(ours.keys() | counts.keys()):
        if ours[name, shape] != counts[name, shape]:
            yield row(f"{name} {shape_text(shape)}", ours[name, shape], counts[name, shape])


def size(shape: Iterable[int]) -> int:
    """Return the elements of a shape."""
    elements = 1
    for length in shape:
        elements *= length
    return elements


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as text: [768, 3072]."""
    return f"[{', '.join(map(str, shape))}]"


def compare_kept(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield the sum, then the sums of each module and dtype where they differ."""
    row = _rows(plan, "kept", "bytes")
    yield row("saved for backward", plan.memory.activations_bytes, measured.saved_bytes)
    ours: Counter[tuple[str, str]] = Counter()
    for kept in plan.memory.kept:
        ours[pattern(kept.path), kind(kept.dtype)] += kept.bytes_each * kept.copies
    theirs: Counter[tuple[str, str]] = Counter()
    for saved in measured.kept:
        # The model calls the checkpoint of a whole layer, so that PyTorch saves under "model" what we say the layer keeps.
        whole_layer = saved.path == "model" and saved.function == CHECKPOINT
        theirs["model.layers.N" if whole_layer else pattern(saved.path), kind(saved.dtype)] += saved.bytes
    for path, dtype in sorted(ours.keys() | theirs.keys()):
        if ours[path, dtype] != theirs[path, dtype]:
            yield row(f"{path}, {dtype}", ours[path, dtype], theirs[path, dtype])


def kind(dtype: str) -> str:
    """Return the dtype of what has a gradient, and one word for ids, masks and random states."""
    return dtype if "float" in dtype else "integers"


def compare_flops(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield forward and backward FLOPs of one micro-batch, what PyTorch's counter leaves out added."""
    row = _rows(plan, "flops", "FLOPs")
    hardware: FlopsCount = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    left_out = Counter[str]()
    for phase, _, flops in measured.flops_left_out:
        left_out[phase] += flops
    backward = hardware.train_per_step // plan.training.gradient_accumulation - hardware.forward_per_step
    yield row("forward", hardware.forward_per_step, measured.flops_forward + left_out["forward"])
    yield row("backward", backward, measured.flops_backward + left_out["backward"])


def compare_step(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield live bytes between the phases of a step, and its peak, whole and by phase; PyTorch's forward phase is our forward and loss."""
    row = _rows(plan, "step", "bytes")
    memory = plan.memory
    allowed = PEAK_ALLOWED if plan.training.recompute == "none" else PEAK_ALLOWED_RECOMPUTED
    ours = {phase.phase: phase.peak_bytes for phase in memory.phases}
    by_phase = {"forward": max(ours["forward"], ours["loss"]), "backward": ours["backward"], "optimizer": ours["optimizer"]}
    yield row("allocated before forward", memory.live.start, measured.start_bytes)
    yield row("allocated after forward", memory.live.after_forward, measured.after_forward_bytes)
    yield row("allocated after backward", memory.live.after_backward, measured.after_backward_bytes)
    yield row("peak", memory.peak_bytes, measured.peak.bytes, allowed)
    for phase in measured.phases:
        yield row(f"peak, {phase.phase}", by_phase[phase.phase], phase.bytes, allowed)
    yield row("peak, first step", memory.first_step_peak_bytes, measured.first_peak.bytes, allowed)


def compare_gpu(spec: Spec, scenario: Scenario) -> Iterator[Compared]:
    """Yield the peak of a real step on the GPU in this machine, whose allocator rounds up."""
    plan = capacity.plan(spec, replace(scenario, training=replace(scenario.training, round_allocations=True)))
    row = _rows(plan, "device", "bytes")
    yield row("peak on the GPU", plan.memory.peak_bytes, measure_gpu(plan.model, plan.training), GPU_ALLOWED)


def compare_optimizer(plan: Plan) -> Iterator[Compared]:
    """Yield what the optimizer of a small twin holds."""
    row = _rows(plan, "optimizer", "bytes")
    measured = measure_optimizer(plan.model, plan.training)
    yield row("optimizer state (scaled-down copy)", plan.memory.optimizer_bytes, measured.state_bytes)
    yield row("master weights (scaled-down copy)", plan.memory.master_weights_bytes, measured.master_bytes)
    yield row("gradients (scaled-down copy)", plan.memory.gradients_bytes, measured.gradient_bytes)


def compare_loss(plan: Plan) -> Iterator[Compared]:
    """Yield the logits' shape and the first loss of a small twin."""
    measured = measure_loss(plan.model, plan.training)
    logits = (plan.training.batch_size, plan.training.sequence_length, plan.model.padded_vocab_size)
    yield _rows(plan, "loss", "shape")("logits (scaled-down copy)", shape_text(logits), shape_text(measured.logits_shape))
    yield _rows(plan, "loss", "nats")("initial loss (scaled-down copy)", plan.initial_loss, measured.loss, LOSS_ALLOWED)


STEPS: dict[Check, Callable[[Plan, Measured], Iterator[Compared]]] = {"kept": compare_kept, "flops": compare_flops, "step": compare_step}
TWINS: dict[Check, Callable[[Plan], Iterator[Compared]]] = {"optimizer": compare_optimizer, "loss": compare_loss}
