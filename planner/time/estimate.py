"""The time of a training step of a plan with a cluster, with its range, terms and utilization.

The range is the 10 to 90 % band of measured over predicted time of the plan's class, of runs whose source the calibration did not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from planner import devices
from planner.capacity.figures import Fleet, Plan, RankPeak, Work
from planner.spec.amount import BITS_PER_SECOND, amount
from planner.spec.precision import recipe_of
from planner.spec.records import Layout, Model, Training
from planner.time.coefficients import SHIPPED, Coefficients, coefficients
from planner.time.kernels import Kernel, slowdown
from planner.time.rates import Rates, rates
from planner.time.terms import COMPUTE, TERMS, Seconds, Setting, Value, by_group, chosen, largest, maximum, terms, total, turns
from planner.trace.unsupported import UnsupportedError


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of a step with the range that holds 80 % of runs of its class, and what it is made of.

    ``shares`` are those of the terms, of the bubble and of recomputation, which is part of other terms. MFU counts the model's matrix
    products with causal attention, HFU those that run, both over the dense peak rate in 16 or 32 bits.
    """

    seconds: float
    low: float
    high: float
    shares: Mapping[str, float]
    tokens_per_second: float  # of all devices
    tokens_per_second_per_device: float
    mfu: float
    hfu: float
    kind: str
    calibrated_on: str

    @property
    def largest(self) -> str:
        """The term to attack next: the largest besides the products, without which nothing is computed."""
        products = ("linear", "experts", "attention", "recomputed")
        return max((name for name in self.shares if name not in products), key=lambda name: self.shares[name])


def kind_of(training: Training, *, experts: bool) -> str:
    """Return the class of a training, as runs are classified."""
    return f"{'experts' if experts else 'dense'}, {'8 bits or fewer' if training.float8 else '16 bits'}"


class Slowest(NamedTuple):
    """The time of the slowest of some devices, as numbers, or as arrays of layouts.

    Seconds of a step, the shares of its terms as in ``Estimate``, the FLOPs that it executes in a microbatch, and its place.
    """

    seconds: Value
    shares: Mapping[str, Value]
    executed: Value
    place: Value


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of a step of the slowest device, and its coefficients and rates."""

    time: Slowest
    slowest: RankPeak
    known: Coefficients
    full: Rates


def step_time(model: Model, training: Training, fleet: Fleet) -> StepTime:
    """Return the time of a step. Raises UnsupportedError for a device whose rates are not known."""
    layout = fleet.layout
    full, known = full_rates(training, layout), known_for(layout)
    made = slowest(fleet.ranks, setting(training, layout, top_k(model)), known, full, layout.cluster.device)
    return StepTime(made, fleet.ranks[made.place], known, full)


def slowest(ranks: Sequence[RankPeak[Any]], of: Setting, known: Coefficients, full: Rates, device: str) -> Slowest:
    """Return the time of the slowest of some devices, whose work may be of arrays."""
    each = [weighted(rank_terms(rank, of, full), known, known.devices.get(device, 1.0)) for rank in ranks]
    sums = [total(one.values()) for one in each]
    place = largest(sums)
    seconds, terms_of = chosen(place, sums), {name: chosen(place, [one[name] for one in each]) for name in TERMS}
    executed, recomputed = (chosen(place, some) for some in zip(*(_flops(rank.work) for rank in ranks), strict=True))
    shares = {name: value / seconds for name, value in terms_of.items()}
    inside = total(value for name, value in terms_of.items() if name not in OUTSIDE)
    shares["bubble"] = inside * (1 - of.microbatches / of.turns) / seconds
    shares["recomputed"] = total(shares[name] for name in COMPUTE) * recomputed / maximum(executed, 1)
    return Slowest(seconds, shares, executed, place)


def estimate(plan: Plan) -> Estimate:
    """Return the time of a step of a plan. Raises UnsupportedError for a device whose rates are not known."""
    if plan.fleet is None:
        raise UnsupportedError("a spec without a cluster has no step time")
    made, layout = step_time(plan.model, plan.training, plan.fleet), plan.fleet.layout
    causal = next(count.train_per_step for count in plan.flops.by_convention if count.convention == "matmul-causal")
    return completed(made.time, made.known, made.full, plan.model, plan.training, causal * layout.data_degree)


def completed(time: Slowest, known: Coefficients, full: Rates, model: Model, training: Training, causal: int) -> Estimate:
    """Return the range, rates and utilization of a step; ``causal``: the model's FLOPs on all devices, with causal attention."""
    layout, seconds = training.layout, time.seconds
    assert layout is not None  # noqa: S101 - a step with a time has one
    count = layout.cluster.devices
    kind = kind_of(training, experts=any(layer.experts for run in model.runs for layer in run.layers))
    low, high = known.band(kind)
    tokens = training.batch_size * training.sequence_length * training.gradient_accumulation * layout.data_degree
    executed = time.executed * training.gradient_accumulation * count
    peak = full.peak * count
    return Estimate(
        seconds,
        seconds * low,
        seconds * high,
        time.shares,
        tokens / seconds,
        tokens / seconds / count,
        causal / seconds / peak,
        executed / seconds / peak,
        kind,
        known.data,
    )


SHARES = (*TERMS, "bubble", "recomputed")
"""The shares of a step, of which the last two are in the others."""
OUTSIDE = ("data", "data_exposed", "shards", "optimizer")
"""Terms of a step that its microbatches do not repeat."""


def of_plan(plan: Plan) -> Estimate | str:
    """Return the estimate, or why there is none."""
    try:
        return estimate(plan)
    except UnsupportedError as error:
        return str(error)


def full_rates(training: Training, layout: Layout) -> Rates:
    """Return the full rates of a training's devices. Raises UnsupportedError if one is not known."""
    cluster = layout.cluster
    device = devices.find(cluster.device)
    if device is None:
        raise UnsupportedError(f"the rates of a {cluster.device} are not known; write a name of the device catalog")
    bits = amount(cluster.inter_node, BITS_PER_SECOND) if cluster.inter_node else None
    return rates(device, recipe_of(training).compute, bits / 8 if bits else None, "fp8" if training.float8 else None)


def known_for(layout: Layout) -> Coefficients:
    """Return the coefficients that a spec names, or those of the published runs."""
    named = layout.cluster.calibration
    return coefficients(Path(named) if named else SHIPPED)


def setting(training: Training, layout: Layout, top_k: int) -> Setting:
    """Return what terms depend on besides work."""
    microbatches = training.gradient_accumulation
    return Setting(
        microbatches=microbatches,
        turns=turns(layout, microbatches, layout.pipeline_parallel, layout.virtual_stages),
        tensor=layout.tensor_parallel,
        context=layout.context_parallel,
        experts=layout.expert_parallel,
        sharing=layout.sharing_degree,
        per_node=layout.cluster.per_node,
        gathers=layout.data_parallel in ("fsdp", "hsdp"),
        overlaps=training.implementation != "megatron" and (layout.engine != "deepspeed" or layout.overlaps),
        kernel=slowdown(kernel_of(training), layout.cluster.device),
        top_k=top_k,
        hides_exchange=layout.schedule == "dualpipev",
    )


def kernel_of(training: Training) -> Kernel:
    """Return the kernel of fused attention: cuDNN's on Hopper, unless another one is forced, and FlashAttention 2 elsewhere."""
    best = training.device == "h100" and training.attention_kernel in ("auto", "cudnn")
    return "best" if best or training.implementation in ("megatron", "pytorch-eager", "transformers-eager") else "flash-2"


def top_k(model: Model) -> int:
    """Return the experts that a token is routed to, 1 without experts."""
    return max((layer.experts.top_k for run in model.runs for layer in run.layers if layer.experts), default=1)


def rank_terms(rank: RankPeak[Any], of: Setting, full: Rates) -> Seconds:
    """Return the terms of a device at full rates."""
    return terms(rank.work, by_group(rank), rank.updated_bytes, of, full)


def weighted(full: Seconds, known: Coefficients, factor: float) -> Seconds:
    """Return the terms times their coefficients and the device's factor."""
    return {name: full[name] * (known.terms[name] * factor) for name in TERMS}


def _flops(work: Work[Any]) -> tuple[Value, Value]:
    """Return the executed FLOPs of a microbatch, and those of them that are recomputed."""
    kinds = ("linear", "low", "expert", "low_expert", "head", "attention")
    return sum(getattr(work, f"{kind}_flops") for kind in kinds), work.recomputed_flops
