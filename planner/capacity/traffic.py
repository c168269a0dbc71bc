"""The bytes that one device communicates in a step by collectives inside its forward and backward pass, read off the trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from planner.capacity.figures import Group, Traffic
from planner.capacity.optimizers import ElementBytes
from planner.spec.records import Layout, Training
from planner.trace.nodes import Checkpoint, Node, Operation, Repeat
from planner.trace.sizes import Size


def traffic(nodes: Iterable[Node], training: Training) -> tuple[Traffic[Size], ...]:
    """Return the collectives of all microbatches; recomputed regions run those of their forward pass again."""
    layout = training.layout
    spans = _spans(layout) if layout else {}
    each, once = _sent(nodes, ("forward", "backward")), _sent(nodes, ("step",))
    passes, of = training.gradient_accumulation, ElementBytes.by_recipe(training)
    adds = passes > 1 or training.by_megatron  # passes add up in the dtype of reduction
    wider = of.gradient // of.weight if of.master and adds else 1
    total = {name: each.get(name, 0) * passes + once.get(name, 0) * wider for name in (*each, *once)}
    return tuple(Traffic(name, size, spans.get(group, 1), group) for (name, group), size in total.items())


def _spans(layout: Layout) -> Mapping[str, int]:
    """Return the devices from the first to the last one of each kind of group: tensor, then context, then data parallelism, then stages."""
    return {
        "tensor": layout.tensor_parallel,
        "context": layout.tensor_parallel * layout.context_parallel,
        "experts": layout.expert_tensor_degree * layout.expert_parallel,
        "stages": 2 * layout.cluster.devices // layout.pipeline_parallel,
        "ends": layout.cluster.devices,  # the first and the last stage
    }


def _sent(nodes: Iterable[Node], when: tuple[str, ...]) -> Mapping[tuple[str, Group], Size]:
    """Return the bytes of the collectives of some passes, by collective and group of devices."""
    found: dict[tuple[str, Group], Size] = defaultdict(int)
    for node in nodes:
        match node:
            case Operation():
                for sent in node.sends:
                    key = sent.collective, sent.group
                    found[key] = found[key] + (sent.bytes if sent.when in when else 0)
            case Repeat():
                for name, size in _sent(node.body, when).items():
                    found[name] = found[name] + size * node.count
            case Checkpoint():
                again = [_sent(node.recomputed, ("forward",))] if "forward" in when else []
                for name, size in (item for sent in (_sent(node.body, when), *again) for item in sent.items()):
                    found[name] = found[name] + size
    return found
