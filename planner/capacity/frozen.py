"""FSDP2 beside frozen weights: they are gathered with the others, in their own data types; only what trains is reduced.

Read from PyTorch 2.13, torch/distributed/fsdp/_fully_shard: a group's gradients are reduced when they have passed its inputs, or after the
backward pass if no input requires a gradient (_fsdp_state.py, _root_post_backward_final_callback); weights of several data types are
gathered in one buffer of bytes (_fsdp_collectives.py, _get_all_gather_input_metadatas); trained ones have one (_init_mp_dtypes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.capacity.figures import EVERYTHING, Weight
from planner.capacity.optimizers import ElementBytes
from planner.spec.records import Training
from planner.trace.nodes import Boundary, Node, Operation, visit
from planner.trace.sizes import Size
from planner.trace.unsupported import UnsupportedError


class Passed(NamedTuple):
    """Whether gradients pass a unit's end, so that it runs backward, and its start, where those of its weights are reduced."""

    end: bool = True
    start: bool = True


def gradients_pass(nodes: Iterable[Node], training: Training) -> dict[str, Passed]:
    """Return what gradients pass, by unit, if some weights are frozen; else, they pass all."""
    found: dict[str, Passed] = {}
    if training.train == EVERYTHING:
        return found
    require = False
    for node, _ in visit(nodes):
        if isinstance(node, Boundary):
            found[node.unit] = Passed(False, require) if node.starts else Passed(require, found[node.unit].start)
        elif isinstance(node, Operation):
            require = require or any(tensor.needs_grad for tensor in node.outputs)
    return found


def of_trained(weights: Sequence[Weight[Size]], training: Training) -> ElementBytes:
    """Return the bytes of an element of the weights of a group that train. Raises UnsupportedError if these differ."""
    if training.train == EVERYTHING:
        return ElementBytes.by_recipe(training)
    kinds = {ElementBytes.of(weight, training) for weight in weights if weight.trains}
    if len(kinds) > 1:
        raise UnsupportedError("FSDP2 does not support trained weights of several data types in a group; write adapters.dtype: base")
    return kinds.pop() if kinds else ElementBytes.by_recipe(training)
