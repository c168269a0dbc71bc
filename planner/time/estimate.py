"""The time of a training step of a plan with a cluster, with its range, terms and utilization.

The range is the 10 to 90 % band of measured over predicted time of the plan's class, of runs whose source the calibration did not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from planner import devices
from planner.capacity.figures import Fleet, Plan, RankPeak, Work
from planner.spec.amount import BITS_PER_SECOND, amount
from planner.spec.precision import recipe_of
from planner.spec.records import Layout, Model, Training
from planner.time.coefficients import SHIPPED, Coefficients, coefficients
from planner.time.kernels import Kernel, slowdown
from planner.time.rates import Rates, rates
from planner.time.terms import COMPUTE, TERMS, Seconds, Setting, by_group, terms, turns
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


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step of the slowest device, the shares of its terms as in ``Estimate``, and its coefficients and rates."""

    layout: Layout
    seconds: float
    shares: Mapping[str, float]
    slowest: RankPeak
    known: Coefficients
    full: Rates


def step_time(model: Model, training: Training, fleet: Fleet) -> StepTime:
    """Return the time of a step. Raises UnsupportedError for a device whose rates are not known."""
    layout = fleet.layout
    full, known = full_rates(training, layout), known_for(layout)
    of = setting(training, layout, top_k(model))
    factor = known.devices.get(layout.cluster.device, 1.0)
    each = [(rank, weighted(rank_terms(rank, of, full), known, factor)) for rank in fleet.ranks]
    rank, slowest = max(each, key=lambda one: sum(one[1].values()))
    seconds, executed = sum(slowest.values()), sum(_flops(rank.work))
    shares = {name: value / seconds for name, value in slowest.items()}
    inside = sum(value for name, value in slowest.items() if name not in OUTSIDE)
    shares["bubble"] = inside * (1 - of.microbatches / of.turns) / seconds
    products = sum(shares[name] for name in COMPUTE)
    shares["recomputed"] = products * rank.work.recomputed_flops / executed if executed else 0.0
    return StepTime(layout, seconds, shares, rank, known, full)


def estimate(plan: Plan) -> Estimate:
    """Return the time of a step of a plan. Raises UnsupportedError for a device whose rates are not known."""
    if plan.fleet is None:
        raise UnsupportedError("a spec without a cluster has no step time")
    time = step_time(plan.model, plan.training, plan.fleet)
    causal = next(count.train_per_step for count in plan.flops.by_convention if count.convention == "matmul-causal")
    return completed(time, plan.model, plan.training, causal * plan.fleet.layout.data_degree)


def completed(made: StepTime, model: Model, training: Training, causal: int) -> Estimate:
    """Return the range, rates and utilization of a step; ``causal``: the model's FLOPs on all devices, with causal attention."""
    layout, seconds = made.layout, made.seconds
    count = layout.cluster.devices
    kind = kind_of(training, experts=any(layer.experts for run in model.runs for layer in run.layers))
    low, high = made.known.band(kind)
    tokens = training.batch_size * training.sequence_length * training.gradient_accumulation * layout.data_degree
    executed = sum(_flops(made.slowest.work)) * training.gradient_accumulation * count
    peak = made.full.peak * count
    return Estimate(
        seconds,
        seconds * low,
        seconds * high,
        made.shares,
        tokens / seconds,
        tokens / seconds / count,
        causal / seconds / peak,
        executed / seconds / peak,
        kind,
        made.known.data,
    )


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


def _flops(work: Work[Any]) -> tuple[int, ...]:
    kinds = ("linear", "low", "expert", "low_expert", "head", "attention")
    return tuple(cast("int", getattr(work, f"{kind}_flops")) for kind in kinds)
