"""The terms of a step time: each is work over a full rate of the device or a link. All functions accept numbers and arrays alike.

An element of an array of layouts becomes exactly what the number of one layout becomes.

A step takes ``turns`` times as long as a microbatch: as often as there are microbatches, and the bubble of the pipeline. Traffic of
gradients and weights of the whole step is exposed only as far as computation does not hide it. Collectives move, per device, their whole
tensor times (n - 1) / n, an all-reduce twice that. Devices of a node that belong to the same group share its links to other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TypeAlias

from planner.capacity.figures import Group, RankPeak, Work
from planner.spec.records import Layout
from planner.time.rates import Rates

from typing import Any  # isort: skip

Value: TypeAlias = Any
Seconds: TypeAlias = dict[str, Value]

TERMS = {
    "linear": "matrix products of layers and of the head",
    "experts": "matrix products of routed experts",
    "attention": "products of pairs of tokens",
    "moved": "memory traffic of operators without a matrix product",
    "experts_moved": "memory traffic of those of routed experts",
    "weights": "reads of weights, and writes of their gradients",
    "experts_weights": "those of routed experts",
    "launches": "launches of operators, 10 microseconds each",
    "tensor": "traffic of tensor parallelism",
    "context": "traffic of context parallelism",
    "expert_exchange": "exchange of tokens between experts",
    "stages": "traffic between stages of a pipeline",
    "data": "traffic of gradients and weights that computation does not hide",
    "data_exposed": "traffic of gradients and weights in programs that hide none",
    "shards": "gathering of shared weights that computation does not hide",
    "optimizer": "memory traffic of the optimizer",
}
LAUNCH = 1e-5  # seconds
COMPUTE = ("linear", "experts", "attention")
PER_MICROBATCH = tuple(TERMS)[:12]
TIMES = {"all-reduce": 2}  # how often a collective moves its tensor; all others once


@dataclass(frozen=True, slots=True)
class Setting:
    """What terms depend on besides work: microbatches, ``turns``, degrees, devices per node, how weights are shared, and kernels."""

    microbatches: Value
    turns: Value
    tensor: Value
    context: Value
    experts: Value
    sharing: Value  # devices that average gradients
    per_node: Value
    gathers: Value  # whether devices share weights
    overlaps: Value = True  # whether the program hides traffic of gradients behind computation
    kernel: Value = 1.0  # time of attention as a multiple of that of the best kernel
    top_k: int = 1  # experts of a token
    hides_exchange: bool = False  # behind computation of another microbatch


def turns(layout: Layout, microbatches: Value, stages: Value, virtual: Value) -> Value:
    """Return the time of a step as a multiple of that of a microbatch.

    Bubbles of 1F1B and GPipe, divided by the stages per device in interleaved schedules (Narayanan et al. 2021, arXiv:2104.04473, section
    2.2); a third of that in zero bubble, and none in ZBV, if the parts of a pass take equally long (Qi et al. 2024, arXiv:2401.10241, table
    2; arXiv:2405.15362); two thirds of half the stages in DualPipeV (DeepSeek-V3, arXiv:2412.19437, table 2).
    """
    share = {"zero_bubble": 1 / 3, "zbv": 0.0, "dualpipev": 1 / 3}.get(layout.schedule, 1.0)
    return microbatches + (stages - 1) / (1 if layout.schedule in ("zbv", "dualpipev") else virtual) * share


def terms(work: Work[Any], traffic: Mapping[tuple[Group, str], Value], updated: Value, of: Setting, full: Rates) -> Seconds:
    """Return the seconds of each term of a step at full rates. ``traffic``: bytes of a step by group and collective."""
    t: Seconds = dict.fromkeys(TERMS, 0.0)
    t["linear"] = (work.linear_flops + work.head_flops) / full.products
    t["experts"] = work.expert_flops / full.products
    if full.low:
        t["linear"], t["experts"] = t["linear"] + work.low_flops / full.low, t["experts"] + work.low_expert_flops / full.low
    t["attention"] = work.attention_flops * of.kernel / full.products
    for name in ("moved", "weights"):
        t[name], t[f"experts_{name}"] = (getattr(work, f"{kind}{name.rstrip('s')}_bytes") / full.memory for kind in ("", "expert_"))
    t["launches"] = work.operators * LAUNCH
    compute = total(t[name] for name in COMPUTE)
    _inside(t, traffic, of, full)
    for name in PER_MICROBATCH:
        t[name] = t[name] * of.turns
    _of_step(t, traffic, of, full, compute)
    t["optimizer"] = 2 * updated / full.memory
    return t


def _inside(t: Seconds, traffic: Mapping[tuple[Group, str], Value], of: Setting, full: Rates) -> None:
    """Add the traffic inside the passes of a microbatch. A token leaves the node once per other node that has experts of it.

    On average, uniformly chosen experts of a token are in nodes · (1 - (1 - 1 / nodes)^top_k) nodes.
    """
    compute = total(t[name] for name in COMPUTE)
    spans = {"tensor": ("tensor", of.tensor, of.tensor), "context": ("context", of.context, of.tensor * of.context)}
    for (group, collective), size in traffic.items():
        moved = TIMES.get(collective, 1) * size / of.microbatches
        if group in spans:
            name, members, span = spans[group]
            t[name] = t[name] + moved * (members - 1) / members / _link(span, of, full)
        elif group == "experts":
            outside = maximum(1 - of.per_node / of.experts, 0)
            inside, nodes = (of.experts - 1) / of.experts - outside, maximum(of.experts / of.per_node, 1)
            once = nodes * (1 - power(1 - 1 / nodes, of.top_k)) / of.top_k
            t["expert_exchange"] = t["expert_exchange"] + moved * (inside / full.near + outside * once / full.far)
        elif group == "stages":
            t["stages"] = t["stages"] + moved / full.far
    if of.hides_exchange:
        t["expert_exchange"] = maximum(0.1 * t["expert_exchange"], t["expert_exchange"] - compute)


def _of_step(t: Seconds, traffic: Mapping[tuple[Group, str], Value], of: Setting, full: Rates, compute: Value) -> None:
    """Add the traffic of gradients and weights: of the last microbatch's backward pass, or with shared weights of all of them."""
    sent = total(TIMES.get(collective, 1) * size for (group, collective), size in traffic.items() if group.startswith("data"))
    members = minimum(maximum(of.per_node // of.tensor, 1), of.sharing)
    link = where(of.sharing > members, full.far * members, full.near)
    sync = sent * (of.sharing - 1) / of.sharing / link
    t["shards"] = where(of.gathers, maximum(0.15 * sync, sync - 0.8 * compute * of.microbatches), 0.0)
    hidden = maximum(0.1 * sync, sync - compute / 3)
    t["data"] = where(of.gathers, 0.0, where(of.overlaps, hidden, 0.0))
    t["data_exposed"] = where(of.gathers, 0.0, where(of.overlaps, 0.0, sync))


def _link(span: Value, of: Setting, full: Rates) -> Value:
    return where(span > of.per_node, full.far, full.near)


def by_group(rank: RankPeak[Any]) -> dict[tuple[Group, str], Value]:
    """Return the bytes that a device communicates in a step, by group and collective."""
    found: dict[tuple[Group, str], Value] = {}
    for one in rank.traffic:
        found[one.group, one.collective] = found.get((one.group, one.collective), 0) + one.bytes
    return found


def where(condition: Value, then: Value, otherwise: Value) -> Value:
    """Choose between values, or elements of arrays."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    import numpy as np

    return np.where(condition, then, otherwise)


def maximum(one: Value, other: Value) -> Value:
    """Return the larger value, or elements."""
    return where(one > other, one, other)


def minimum(one: Value, other: Value) -> Value:
    """Return the smaller value, or elements."""
    return where(one < other, one, other)


def total(values: Iterable[Value]) -> Value:
    """Return the sum of values, or of arrays: added one after the other, which ``sum`` does not do with numbers in Python 3.12."""
    return reduce(add, values, 0.0)


def power(base: Value, exponent: int) -> Value:
    """Return a power of a value, or of elements. Powers of NumPy may be rounded differently than those of Python."""
    if isinstance(base, float):
        return base**exponent
    import numpy as np

    values, places = np.unique(base, return_inverse=True)
    return np.array([one**exponent for one in values.tolist()])[places]


def largest(values: Sequence[Value]) -> Value:
    """Return the place of the largest value, or of each of the largest elements: the first one of several."""
    if isinstance(values[0], float):
        return max(range(len(values)), key=values.__getitem__)
    import numpy as np

    return np.argmax(values, axis=0)


def chosen(place: Value, values: Sequence[Value]) -> Value:
    """Return the value at a place, or the elements at their places."""
    if isinstance(place, int):
        return values[place]
    import numpy as np

    return np.choose(place, values)
