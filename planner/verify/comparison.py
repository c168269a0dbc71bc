"""Values of a plan next to PyTorch's, one row per value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

from planner import capacity
from planner.capacity.activations import OUTPUT_IN_REGION
from planner.capacity.figures import FlopsCount, Plan
from planner.spec.records import Scenario, Spec
from planner.verify import CannotMeasureError, OptimizerError, from_config, huggingface, modules
from planner.verify.measured import CHECKPOINT, Check, Compared, Measured, pattern
from planner.verify.real import measure_gpu, measure_loss, measure_optimizer
from planner.verify.scaled_down import scaled_down
from planner.verify.step import measure, parameters_of_tuned
from planner.verify.tuned import tunes

# Relative tolerances. The order in which PyTorch allocates and frees inside a layer is modeled only in part.
PEAK_ALLOWED, PEAK_ALLOWED_RECOMPUTED = 0.005, 0.01
GPU_ALLOWED = 0.02  # kernels use workspaces
LOSS_ALLOWED = 0.02  # of ln V: logits of random weights are small, but not zero
SMALL_BATCH, SMALL_LENGTH = 2, 16


def compare(spec: Spec, scenario: Scenario, checks: Iterable[Check] = ("parameters",), config: Path | None = None) -> Iterator[Compared]:
    """Yield the rows of each check, parameters first. The check ``config`` reads the given config.json.

    Parameters, saved tensors, FLOPs and the step are measured at full size: on a fake GPU or, if the training's device is the CPU, on real
    tensors. Optimizer and loss are measured on a scaled-down copy on the CPU. Raises ``CannotMeasureError``.
    """
    wanted = set(checks)
    if scenario.training.count_prediction:
        raise CannotMeasureError("prediction layers cannot be built in PyTorch here; remove training.count_prediction to compare the rest")
    if tunes(scenario.training) and (others := wanted & OF_ALL_WEIGHTS):
        raise CannotMeasureError(f"{', '.join(sorted(others))}: compared only where all weights train; remove training.train and adapters")
    # No storage in PyTorch corresponds to a reserve or to an allocator's rounding.
    scenario = replace(scenario, training=replace(scenario.training, reserve_bytes=0, round_allocations=False))
    plan = capacity.plan(spec, scenario)
    if "parameters" in wanted:
        # Only the classes of transformers have experts and mixers other than attention.
        built = huggingface if plan.training.implementation.startswith("transformers") else modules
        theirs = parameters_of_tuned(plan.model, plan.training) if plan.training.adapters else built.parameters(plan.model)
        yield from compare_parameters(plan, "parameters", theirs)
    if "transformers" in wanted:
        yield from compare_parameters(plan, "transformers", huggingface.parameters(plan.model))
    if "config" in wanted and config:
        name, theirs = from_config.parameters(config, whole=spec.model.vision is not None)
        yield _rows(plan, "transformers", "params")(f"total, {name}", plan.parameters.total, theirs)
    layout = scenario.training.layout
    if "layout" in wanted:
        yield from compare_layout(plan)
        wanted -= {"layout"}
    if layout and layout.cluster.devices > 1 and wanted - {"parameters", "transformers", "config"}:
        raise CannotMeasureError("steps on several devices are measured by --layout; remove cluster and layout to measure one device")
    if "device" in wanted:
        yield from compare_gpu(spec, scenario)
    yield from _compare_steps(plan, wanted, lambda: _small(spec, scenario))


def _compare_steps(plan: Plan, wanted: set[Check], small: Callable[[], Plan]) -> Iterator[Compared]:
    """Yield the rows of a step, and of a step of the scaled-down copy. If the optimizer cannot run here, the rows without it come first."""
    missing: list[OptimizerError] = []
    if wanted & STEPS.keys():
        measured, missing = _measured(plan, wanted)
        for check, rows in STEPS.items():
            yield from rows(plan, measured) if check in wanted and not (missing and check == "step") else ()
    for check, rows_of in SCALED_DOWN.items():
        try:
            yield from rows_of(small()) if check in wanted else ()
        except OptimizerError as error:
            missing.append(error)
    if missing:
        raise OptimizerError(str(missing[0]), tuple(check for check in NEED_OPTIMIZER if check in wanted))


def _measured(plan: Plan, wanted: set[Check]) -> tuple[Measured, list[OptimizerError]]:
    """Measure a step. Its optimizer is replaced if no check needs it, and if it cannot run here, which the error reports."""
    other = replace(plan.training, optimizer="adamw")
    if "step" not in wanted:
        return measure(plan.model, other), []
    try:
        return measure(plan.model, plan.training), []
    except OptimizerError as error:
        return measure(plan.model, other), [error]


def _small(spec: Spec, scenario: Scenario) -> Plan:
    """Plan a scaled-down copy. The implementation changes no initial loss, and of the optimizers only Adafactor: PyTorch's is compared."""
    training = replace(
        scenario.training,
        batch_size=SMALL_BATCH,
        sequence_length=SMALL_LENGTH,
        gradient_accumulation=1,
        tokens=None,
        implementation="pytorch-eager",  # runs every model
        attention_kernel="auto",
        recompute="none",
        padding=False,
        liger=None,
    )
    return capacity.plan(replace(spec, model=scaled_down(spec.model)), replace(scenario, training=training))


def _rows(plan: Plan, check: Check, unit: str) -> Callable[..., Compared]:
    def row(figure: str, ours: float | str | None, pytorch: float | str | None, allowed: float = 0.0) -> Compared:
        return Compared(plan.name, plan.scenario, check, figure, unit, ours, pytorch, allowed)

    return row


def compare_parameters(plan: Plan, check: Check, theirs: dict[str, tuple[int, ...]]) -> Iterator[Compared]:
    """Yield the totals, then every tensor whose name, shape or number differs."""
    counts = Counter((pattern(name), shape) for name, shape in theirs.items())
    ours: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for weight in plan.parameters.weights:
        ours[pattern(weight.name), weight.shape] += weight.copies
    yield _rows(plan, check, "params")("total", plan.parameters.total, sum(map(prod, theirs.values())))
    row = _rows(plan, check, "tensors")
    yield row("tensors", sum(ours.values()), len(theirs))
    for name, shape in sorted(ours.keys() | counts.keys()):
        if ours[name, shape] != counts[name, shape]:
            yield row(f"{name} {list(shape)}", ours[name, shape], counts[name, shape])


def compare_saved(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield the total, then the sums by module and dtype that differ."""
    row = _rows(plan, "kept", "bytes")
    yield row("saved for backward", plan.memory.activations_bytes, measured.saved_bytes)
    ours: Counter[tuple[str, str]] = Counter()
    for kept in plan.memory.kept:
        path = "model.layers.N" if kept.what == OUTPUT_IN_REGION else pattern(kept.path)
        ours[path, kind(kept.dtype)] += kept.bytes_each * kept.copies
    theirs: Counter[tuple[str, str]] = Counter()
    for saved in measured.kept:
        # The model itself calls the checkpoint of a whole layer, so PyTorch saves under "model" what the plan lists under the layer and,
        # as outputs of operators, under its modules.
        whole_layer = saved.path == "model" and saved.function == CHECKPOINT
        theirs["model.layers.N" if whole_layer else pattern(saved.path), kind(saved.dtype)] += saved.bytes
    for path, dtype in sorted(ours.keys() | theirs.keys()):
        if ours[path, dtype] != theirs[path, dtype]:
            yield row(f"{path}, {dtype}", ours[path, dtype], theirs[path, dtype])


def kind(dtype: str) -> str:
    """Return a floating-point dtype, and one word for ids, masks and RNG states."""
    return dtype if "float" in dtype else "integers"


def compare_flops(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield the FLOPs of the forward and the backward pass of one micro-batch."""
    row = _rows(plan, "flops", "FLOPs")
    hardware: FlopsCount = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    backward = hardware.train_per_step // plan.training.gradient_accumulation - hardware.forward_per_step
    yield row("forward", hardware.forward_per_step, measured.flops_forward)
    yield row("backward", backward, measured.flops_backward)


def compare_step(plan: Plan, measured: Measured) -> Iterator[Compared]:
    """Yield the bytes allocated between the phases of a step, and the peaks. The loss belongs to PyTorch's forward phase."""
    row = _rows(plan, "step", "bytes")
    memory = plan.memory
    allowed = PEAK_ALLOWED if plan.training.recompute == "none" else PEAK_ALLOWED_RECOMPUTED
    ours = {phase.phase: phase.peak_bytes for phase in memory.phases}
    by_phase = {"forward": max(ours["forward"], ours["loss"]), "backward": ours["backward"], "optimizer": ours["optimizer"]}
    yield row("allocated before forward", memory.live.start, measured.start_bytes)
    yield row("allocated after forward", memory.live.after_forward, measured.after_forward_bytes)
    yield row("allocated after backward", memory.live.after_backward, measured.after_backward_bytes)
    yield row("peak", memory.peak_bytes, measured.peak_bytes, allowed)
    for phase in measured.phases:
        yield row(f"peak, {phase.phase}", by_phase[phase.phase], phase.bytes, allowed)
    yield row("peak, first step", memory.first_step_peak_bytes, measured.first_peak_bytes, allowed)


def compare_layout(plan: Plan) -> Iterator[Compared]:
    """Yield the values of devices of a layout, on a scaled-down copy."""
    layout = plan.training.layout
    if layout is None or layout.cluster.devices == 1:
        raise CannotMeasureError("--layout requires a cluster of several devices")
    from planner.verify.layout import compare as compare_devices

    for figure, unit, ours, theirs, allowed in compare_devices(plan.model, plan.training, layout):
        yield _rows(plan, "layout", unit)(figure, ours, theirs, allowed)


def compare_gpu(spec: Spec, scenario: Scenario) -> Iterator[Compared]:
    """Yield the peak of a real step on the GPU of this machine, whose allocator rounds up."""
    plan = capacity.plan(spec, replace(scenario, training=replace(scenario.training, round_allocations=True)))
    peak = measure_gpu(plan.model, plan.training)
    yield _rows(plan, "device", "bytes")("peak on the GPU", plan.memory.peak_bytes, peak, GPU_ALLOWED)


def compare_optimizer(plan: Plan) -> Iterator[Compared]:
    """Yield the bytes that the optimizer of a scaled-down copy uses."""
    row = _rows(plan, "optimizer", "bytes")
    measured = measure_optimizer(plan.model, plan.training)
    yield row("optimizer state (scaled-down copy)", plan.memory.optimizer_bytes, measured.state_bytes)
    yield row("master weights (scaled-down copy)", plan.memory.master_weights_bytes, measured.master_bytes)
    yield row("gradients (scaled-down copy)", plan.memory.gradients_bytes, measured.gradient_bytes)


def compare_loss(plan: Plan) -> Iterator[Compared]:
    """Yield the logits' shape and the initial loss of a scaled-down copy."""
    measured = measure_loss(plan.model, plan.training)
    logits = [plan.training.batch_size, plan.training.sequence_length, plan.model.padded_vocab_size]
    yield _rows(plan, "loss", "shape")("logits (scaled-down copy)", str(logits), str(list(measured.logits_shape)))
    yield _rows(plan, "loss", "nats")("initial loss (scaled-down copy)", plan.initial_loss, measured.loss, LOSS_ALLOWED)


OF_ALL_WEIGHTS: set[Check] = {"transformers", "config", "optimizer", "loss", "device"}
NEED_OPTIMIZER: tuple[Check, ...] = ("step", "optimizer")
STEPS: dict[Check, Callable[[Plan, Measured], Iterator[Compared]]] = {"kept": compare_saved, "flops": compare_flops, "step": compare_step}
SCALED_DOWN: dict[Check, Callable[[Plan], Iterator[Compared]]] = {"optimizer": compare_optimizer, "loss": compare_loss}
