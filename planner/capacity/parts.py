"""What is allocated during a step, by part: the walk of the passes with a tag symbol on the bytes of each part.

Each product of a size then has at most one tag, so its terms by tag are the parts, and their sum is the size that the plain walk finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from planner.capacity.activations import EARLY_GRADIENTS, saved_for_backward
from planner.capacity.figures import Phase
from planner.capacity.peak import trace_memory
from planner.capacity.shares import Share
from planner.capacity.step import Step
from planner.capacity.timeline import MemorySample, MemoryTimeline
from planner.spec.records import Model, Training
from planner.trace.decoder import trace
from planner.trace.nodes import Node, Repeat, visit
from planner.trace.sizes import Expression, Factor, Monomial, Size, symbol, terms_of, total
from planner.trace.tensor import Storage, Tensor

Parts: TypeAlias = Mapping[str, Size]
STATES = ("weights", "master weights", "EMA weights", "optimizer", "gradients")
ACTIVATIONS = ("attention", "feed-forward", "other mixers", "norms", "logits and loss", "residual stream and others")
PASSING = ("gradients in flight", "casts of weights", "kernels and update", "inputs and buffers")
PARTS = (*STATES, *ACTIVATIONS, *PASSING)
_MOST = 500  # samples: those of a stretch of many unlike layers take seconds, and megabytes of a page
_REST, _STREAM, _CASTS, _IN_FLIGHT = "kernels and update", "residual stream and others", "casts of weights", "gradients in flight"
_BY_COMPONENT = {
    "attention": "attention", "feed_forward": "feed-forward", "experts": "feed-forward", "shared_experts": "feed-forward",
    "router": "feed-forward", "ssm": "other mixers", "norm": "norms", "logits": "logits and loss", "loss": "logits and loss",
    "head": "logits and loss", EARLY_GRADIENTS: _IN_FLIGHT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples of a copy of equal layers, followed by those of the last copy: ``first``, their number, the copies, and what each leaves."""

    first: int
    samples: int
    count: Size
    left: Parts


@dataclass(frozen=True, slots=True)
class Samples:
    """What each operator's sample has, by part, beside what is allocated throughout, and what remains after the passes."""

    samples: Sequence[tuple[Phase, str, Parts]]
    stretches: Sequence[Stretch]
    after: Parts


@dataclass(slots=True)
class TaggedTimeline(MemoryTimeline):
    """A timeline of tagged sizes, which also records stretches of equal layers. ``doubled``: samples that only bound the peak."""

    stretches: list[tuple[int, int, Size, Size]] = field(default_factory=list)
    doubled: set[int] = field(default_factory=set)

    def gradient(self, tensor: Tensor) -> Size:
        """Return the bytes of a tensor's gradient."""
        return self.size(tensor.bytes) * _tag("gradients" if tensor.leaf else _IN_FLIGHT)

    def add_other_copies(self, left: Size, first_sample: int, count: Size) -> None:
        """Extend one traced copy of equal layers to all."""
        samples = len(self.samples) - first_sample
        MemoryTimeline.add_other_copies(self, left, first_sample, count)
        self.doubled -= set(range(len(self.samples) - samples, len(self.samples)))
        self.stretches.append((first_sample, samples, count, left))

    def add_samples(self, samples: Sequence[MemorySample], size: Size) -> None:
        """Record samples once more."""
        self.doubled |= set(range(len(self.samples), len(self.samples) + len(samples)))
        MemoryTimeline.add_samples(self, samples, size)


def has_parts(training: Training) -> bool:
    """Return whether sizes can be split by tag: not if the allocator rounds them, and not on several devices."""
    return not (training.round_allocations or training.layout or training.offload_activations or training.optimizer_in_backward)


def tag(nodes: Sequence[Node]) -> None:
    """Tag the bytes of all storages that the nodes use; those that pass between equal layers are one part."""
    keepers = {entry.storage: entry.component for entry in saved_for_backward(nodes).entries}
    between = {
        tensor.storage for node in _repeats(nodes) for tensor in (node.carry.first, node.carry.inside, node.carry.made, node.carry.last)
    }
    for storage in dict.fromkeys(_storages(nodes)):
        storage.bytes = storage.bytes * _tag(_part(storage, keepers, between))


def _part(storage: Storage, keepers: Mapping[Storage, str], between: set[Storage]) -> str:
    if storage in between:
        return _STREAM
    if storage.until_forward_ends:
        return _CASTS
    if storage.leaf:
        return "weights"
    return _BY_COMPONENT.get(keepers.get(storage, storage.component), _STREAM)


def _repeats(nodes: Iterable[Node]) -> Iterator[Repeat]:
    yield from (node for node, _ in visit(nodes) if isinstance(node, Repeat))


def _storages(nodes: Sequence[Node]) -> Iterator[Storage]:
    for node, _ in visit(nodes):
        tensors = [*node.inputs, *node.outputs, *node.saved_tensors]
        if isinstance(node, Repeat):
            tensors += [node.carry.first, node.carry.inside, node.carry.made, node.carry.last]
        yield from (storage for tensor in tensors for storage, _ in tensor.parts)


def samples_of(timeline: TaggedTimeline) -> Samples:
    """Return the samples of a tagged walk by part."""
    numbers = [number for number in range(len(timeline.samples)) if number not in timeline.doubled]
    places = {number: place for place, number in enumerate(numbers)}
    samples = [timeline.samples[number] for number in numbers]
    split = [_split(size) for size in timeline.sizes(samples)]
    stretches = [Stretch(places[first], count, copies, _split(left)) for first, count, copies, left in timeline.stretches]
    made = [(sample.phase, sample.operator, parts) for sample, parts in zip(samples, split, strict=True)]
    return Samples(made, stretches, _split(timeline.after_backward))


def walked(model: Model, training: Training, *, preallocated: bool) -> Samples | None:
    """Return the samples of a training step by part; None if they are too many to draw."""
    nodes = trace(model, training).nodes
    tag(nodes)
    timeline = TaggedTimeline()
    trace_memory(nodes, preallocated=preallocated, record=timeline)
    return samples_of(timeline) if len(timeline.samples) <= _MOST else None


def throughout(held: Share, a_step: Step) -> Parts:
    """Return what is allocated throughout a later step, by part."""
    states = held.states
    optimizer = states.optimizer - states.paged + states.step_counters
    own = {
        "weights": states.weights, "master weights": states.master_weights, "EMA weights": states.average, "optimizer": optimizer,
        "gradients": held.held,
    }  # fmt: skip
    rest = a_step.throughout_later - total(own.values())
    return {name: size for name, size in (*own.items(), ("inputs and buffers", rest)) if size != 0}


def _tag(part: str) -> Size:
    return symbol(f"@{part}")


def _split(size: Size) -> dict[str, Size]:
    """Return the parts of a tagged size."""
    found: dict[str, dict[Monomial, int]] = {}
    for monomial, multiple in terms_of(size).items():
        tags = [factor for factor, _ in monomial if _is_tag(factor)]
        part = str(tags[0])[1:] if tags else _REST
        terms = found.setdefault(part, {})
        rest = tuple((factor, power) for factor, power in monomial if not _is_tag(factor))
        terms[rest] = terms.get(rest, 0) + multiple
    kept = {part: {monomial: multiple for monomial, multiple in terms.items() if multiple} for part, terms in found.items()}
    return {part: Expression(terms) if terms.keys() - {()} else terms[()] for part, terms in kept.items() if terms}


def _is_tag(factor: Factor) -> bool:
    return isinstance(factor, str) and factor.startswith("@")
