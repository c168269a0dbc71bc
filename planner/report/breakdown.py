"""The sections of a model's breakdown, which the Markdown report prints as tables and the terminal as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.capacity.figures import COMPONENTS, ByteSum, Plan
from planner.capacity.formats import formats
from planner.report import accuracy as measured
from planner.report import settings, units
from planner.spec.records import Spec
from planner.trace.classes import modeled_class


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table, or only notes. The text is not escaped yet."""

    title: str
    headings: tuple[str, ...] = ()
    align: str = ""  # l or r for each column
    rows: tuple[tuple[str, ...], ...] = ()
    total: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parameters(plan: Plan) -> Section:
    """Show parameters by component."""
    figures = plan.parameters
    by_component = [(component, figures.by_component[component]) for component in COMPONENTS if figures.by_component.get(component)]
    notes = []
    if plan.model.tied_head and plan.model.head_type == "language":
        notes.append("Tied embeddings: the LM head shares the token embedding and is counted once.")
    if figures.padding_params:
        notes.append(
            f"{units.exact(figures.padding_params)} are padding: the vocabulary of {units.exact(plan.model.vocab_size)} is padded to "
            f"{units.exact(plan.model.padded_vocab_size)}."
        )
    if figures.active != figures.total:
        notes.append(f"{units.exact(figures.active)} are active per token.")
    if plan.fine_tuned:
        notes.append(f"{units.exact(figures.trained)} train ({units.share(figures.trained, figures.total)}); all others are frozen.")
    if figures.correction_biases:
        notes.append(f"Checkpoints also store {units.exact(figures.correction_biases)} router correction biases (buffers, not parameters).")
    return Section(
        "Parameters",
        ("component", "parameters", "share"),
        "lrr",
        tuple((component, units.exact(params), units.share(params, figures.total)) for component, params in by_component),
        ("total", units.exact(figures.total), units.count(figures.total)),
        tuple(notes),
    )


def model_states(plan: Plan) -> Section:
    """Show weights, master weights, gradients, optimizer state and EMA, with their bytes per parameter."""
    memory = plan.memory
    rows = ((state.part, _each(state), *_exact_and_rounded(state.total_bytes), state.what) for state in memory.states)
    return Section(
        "Model states",
        ("part", "bytes per parameter", "bytes", "", "what"),
        "lrrrl",
        tuple(rows),
        ("total", byte_sum(memory.states), *_exact_and_rounded(memory.model_states_bytes), ""),
    )


def byte_sum(states: Sequence[ByteSum]) -> str:
    """Format bytes per parameter as a sum, ``2 + 4 + 4 + 8 = 18``; without the result if a part varies by tensor."""
    each = [state.bytes_per_param for state in states if state.total_bytes]
    terms = " + ".join("varies" if one is None else str(one) for one in each)
    known = [one for one in each if one is not None]
    if not known:
        return "varies" if each else ""
    return f"{terms} = {sum(known)}" if len(known) == len(each) > 1 else terms


def _each(state: ByteSum) -> str:
    if state.bytes_per_param is None:
        return "varies"
    return str(state.bytes_per_param) if state.total_bytes else "0"


def _exact_and_rounded(size: int) -> tuple[str, str]:
    return units.exact(size), units.memory(size)


def activations(plan: Plan) -> Section:
    """Show the bytes saved for backward, by component."""
    memory = plan.memory
    return Section(
        f"Activations saved for backward (B = {plan.training.batch_size}, n = {plan.training.sequence_length})",
        ("component", "bytes", "", "share"),
        "lrrr",
        tuple(
            (component, *_exact_and_rounded(saved), units.share(saved, memory.activations_bytes))
            for component, saved in memory.activations_by_component.items()
            if saved
        ),
        ("total", *_exact_and_rounded(memory.activations_bytes), ""),
        (f"Kernels of {kernels(plan)}, precision {plan.training.precision}, recomputation {plan.training.recompute}.",),
    )


def kernels(plan: Plan) -> str:
    """Return the implementation, for transformers with its model class."""
    name = plan.training.implementation
    return f"{name} (modules of {modeled_class(plan.model)})" if name.startswith("transformers") else name


def peak(plan: Plan) -> Section:
    """Show the peak memory of each phase of a training step, and of the first step, which allocates the optimizer state last."""
    memory = plan.memory
    start, forward, backward = (units.memory(size) for size in (memory.live.start, memory.live.after_forward, memory.live.after_backward))
    beside = {
        "optimizer step counters": memory.step_counters_bytes,
        "model buffers": memory.buffers_bytes,
        "reserve": plan.training.reserve_bytes,
    }
    which = ", in the last pass" if plan.training.gradient_accumulation > 1 else ""
    notes = (
        f"Allocated{which}: {start} before forward, {forward} after it, {backward} after backward.",
        *([] if plan.fleet else [f"First step: {units.memory(memory.first_step_peak_bytes)} (optimizer state is allocated last)."]),
        *(f"Includes {units.exact(size)} bytes of {what}." for what, size in beside.items() if size),
        *([f"Saved tensors on the host: {units.memory(memory.host_bytes)}."] if memory.host_bytes else []),
    )
    return Section(
        "Peak memory of a training step",
        ("phase", "bytes", "", "at"),
        "lrrl",
        tuple((phase.phase, *_exact_and_rounded(phase.peak_bytes), phase.operator) for phase in memory.phases),
        ("largest", *_exact_and_rounded(memory.peak_bytes), ""),
        notes,
    )


def flops(plan: Plan) -> Section:
    """Show FLOPs by convention."""
    counts = plan.flops.by_convention
    chosen = plan.flops.chosen.convention
    return Section(
        "FLOPs (1 multiply-add = 2 FLOPs)",
        ("convention", "forward/token", "train/token", "train/step", "total"),
        "lrrrr",
        tuple(
            (
                f"{count.convention} (chosen)" if count.convention == chosen else count.convention,
                units.exact(count.forward_per_token),
                units.exact(count.train_per_token),
                units.flops(count.train_per_step),
                "" if count.train_total is None else units.flops(count.train_total),
            )
            for count in counts
        ),
    )


def prediction(plan: Plan) -> Section:
    """Show what multi-token prediction layers add to each metric, and whether the totals include it."""
    title, more = "Prediction layers", plan.prediction
    if more is None:
        return Section(title)
    rows = (
        ("parameters", units.exact(more.params), ""),
        ("parameters that a token uses", units.exact(more.active_params), ""),
        ("parameters in a checkpoint", units.exact(more.stored_params), ""),
        ("model states", *_exact_and_rounded(more.model_states_bytes)),
        ("activations", *_exact_and_rounded(more.activations_bytes)),
        ("peak", *_exact_and_rounded(more.peak_bytes)),
        ("forward FLOPs/token", units.exact(more.forward_flops_per_token), ""),
        ("train FLOPs/token", units.exact(more.train_flops_per_token), ""),
    )
    totals = "Included in" if more.counted else "Not included in"
    return Section(title, ("figure", "added", ""), "lrl", rows, notes=(f"{totals} the totals: training.count_prediction.",))


def conventions(plan: Plan) -> Section:
    """Describe what each FLOPs convention counts."""
    return Section("FLOPs conventions", notes=tuple(f"{count.convention}: {count.description}" for count in plan.flops.by_convention))


def expectations(plan: Plan) -> Section:
    """Show values to check a first run against: the initial loss, training tokens and tokens per parameter."""
    values = plan.model.classes if plan.model.head_type == "classes" else plan.model.vocab_size
    rows = [("initial loss", units.loss(plan.initial_loss), f"ln V for V = {units.exact(values)}, in nats")]
    if plan.train_tokens is not None:
        rows.append(("training tokens", units.count(plan.train_tokens), units.exact(plan.train_tokens)))
        rows.append(("tokens per parameter", units.ratio(plan.train_tokens, plan.parameters.total), ""))
    return Section("Sanity checks", ("", "", ""), "lrl", tuple(rows))


# The sections of a plan's training, in order.
TRAINING = (model_states, activations, peak, flops, prediction, expectations)


def shapes(plan: Plan) -> Section:
    """List every tensor from token ids to logits."""
    rows = ((line.path, line.what, _shape(line.shape), line.dtype, _copies(line.copies)) for line in plan.shapes)
    return Section("Shapes, from token ids to logits", ("module", "tensor", "shape", "dtype", ""), "llrlr", tuple(rows))


def tensors(plan: Plan) -> Section:
    """List every weight, equal layers once."""
    rows = ((weight.name, _shape(weight.shape), _copies(weight.copies), units.exact(weight.params)) for weight in plan.parameters.weights)
    total = ("total", "", "", units.exact(plan.parameters.total))
    return Section("Weights (N = layer index)", ("name", "shape", "", "parameters"), "lrrr", tuple(rows), total)


def stored(plan: Plan) -> Section:
    """List the bytes of the weights in packed formats."""
    total = plan.parameters.total
    rows = ((one.name, units.exact(one.bytes), f"{8 * one.bytes / total:.4f}") for one in formats(plan))
    notes = ("without the tokenizer and other data of a file",)
    return Section("Weights in packed formats", ("format", "bytes", "bits per weight"), "lrr", tuple(rows), notes=notes)


def saved(plan: Plan) -> Section:
    """List every tensor saved for backward, with the first module that saves it, equal layers once."""
    rows = (
        (line.path, line.what, _shape(line.shape), line.dtype, _copies(line.copies), units.exact(line.bytes_each * line.copies))
        for line in plan.memory.kept
    )
    total = ("total", "", "", "", "", units.exact(plan.memory.activations_bytes))
    return Section("Tensors saved for backward", ("module", "tensor", "shape", "dtype", "", "bytes"), "llrlrr", tuple(rows), total)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _copies(copies: int) -> str:
    return f"× {copies}" if copies > 1 else ""


def waivers(spec: Spec) -> Section:
    """List the budgets that the model may exceed, why, and for how long."""
    return Section("Waivers", notes=tuple(f"{one.budget}, until {one.until}: {one.reason}" for one in spec.waivers))


def accuracy(plan: Plan) -> Section:
    """State what was measured of the plan's implementation, class and setting."""
    return Section("Accuracy", notes=(measured.accuracy(plan.model, plan.training).text,))


def not_counted(plan: Plan) -> Section:
    """List what the metrics do not include."""
    return Section("Not included", notes=plan.not_counted)


def model_settings(spec: Spec) -> Section:
    """List the settings of the model, defaults marked."""
    return _settings("Model", "model", settings.model(spec.model), spec)


def training_settings(spec: Spec, plan: Plan) -> Section:
    """List the training settings of the base scenario, defaults marked; for another scenario, its changes."""
    base = settings.training(spec.scenarios[0].training)
    if plan.scenario == spec.scenarios[0].name:
        return _settings("Training", "training", base, spec)
    changed = {key: value for key, value in settings.training(plan.training).items() if base.get(key) != value}
    rows = tuple((*item, "") for item in changed.items())
    return Section(f"Training: changes from {spec.scenarios[0].name}", ("setting", "value", ""), "lll", rows)


def layout_settings(spec: Spec, plan: Plan) -> tuple[Section, ...]:
    """List the settings of the scenario's cluster and layout, defaults marked; none without a cluster."""
    sections = settings.layout(plan.training).items()
    return tuple(_settings(section.capitalize(), section, values, spec) for section, values in sections if values)


def _settings(title: str, section: str, values: dict[str, str], spec: Spec) -> Section:
    rows = ((key, value, "default" if f"{section}.{key}" in spec.defaulted else "") for key, value in values.items())
    return Section(title, ("setting", "value", ""), "lll", tuple(rows))
