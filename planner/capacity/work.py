"""The work of a device for one microbatch, read off its trace: FLOPs by operator and type, and the bytes that other operators move.

It is counted for both passes and for what the backward pass recomputes. Fused attention computes only the pairs that its mask allows.
Operators without a matrix product read their inputs and write their outputs; backward they read the gradients of their outputs and what
they saved, and write the gradients of their inputs. A product reads its weight in each pass, and backward writes the weight's gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Literal

from planner.capacity.figures import Work
from planner.trace.nodes import Checkpoint, Node, Operation, Repeat
from planner.trace.sizes import Size
from planner.trace.tensor import Tensor

When = Literal["forward", "backward", "recomputed"]
_FLOAT8 = "float8"


def work(nodes: Iterable[Node]) -> Work[Size]:
    """Return the work of a microbatch."""
    found = _sum(nodes)
    again: dict[str, Size] = defaultdict(int)
    for (kind, when), amount in found.items():
        again[kind] = again[kind] + amount
        if when == "recomputed" and kind.endswith("_flops"):
            again["recomputed_flops"] = again["recomputed_flops"] + amount
    return Work(**{field.name: again.get(field.name, 0) for field in fields(Work)})


def _sum(nodes: Iterable[Node], *, again: bool = False) -> Mapping[tuple[str, When], Size]:
    """Sum work by kind and pass; ``again``: of a forward pass that is repeated."""
    found: dict[tuple[str, When], Size] = defaultdict(int)
    for node in nodes:
        match node:
            case Operation():
                parts: Iterable[tuple[tuple[str, When], Size]] = (((kind, when), amount) for kind, when, amount in _of(node))
                if again:
                    parts = (((kind, "recomputed"), amount) for (kind, when), amount in parts if when == "forward")
            case Repeat():
                parts = ((key, amount * node.count) for key, amount in _sum(node.body, again=again).items())
            case Checkpoint():
                parts = [*_sum(node.body, again=again).items(), *(() if again else _sum(node.recomputed, again=True).items())]
            case _:
                parts = ()
        for key, amount in parts:
            found[key] = found[key] + amount
    return found


def _of(node: Operation) -> Iterator[tuple[str, When, Size]]:
    """Yield the work of an operator: its kind, the pass and the amount."""
    made = [tensor for tensor in node.outputs if not _is_view(tensor, node.inputs)]
    if not made and node.flops.forward == 0:
        return
    of_experts = "expert_" if node.component == "experts" else ""
    yield "operators", "forward", 1
    yield "operators", "backward", 1 + (node.flops.forward != 0)
    if node.flops.forward == 0:
        read = [tensor for tensor in node.inputs if not tensor.leaf]
        yield f"{of_experts}moved_bytes", "forward", _bytes(read or made) + _bytes(made)
        if not node.passes_gradient:
            saved = [tensor for tensor in node.saved_tensors if not tensor.leaf]
            yield f"{of_experts}moved_bytes", "backward", _bytes(made[:1]) + _bytes(saved) + _bytes([one for one in read if one.needs_grad])
        return
    forward, backward = node.flops.forward, node.flops.backward
    if node.name.endswith("attention"):  # fused
        forward, backward = node.flops.causal, backward * node.flops.causal // forward
    kind = _kind(node)
    yield kind, "forward", forward
    yield kind, "backward", backward
    weights = _bytes([tensor for tensor in node.inputs if tensor.leaf])
    yield f"{of_experts}weight_bytes", "forward", weights
    yield f"{of_experts}weight_bytes", "backward", 2 * weights
    if made[1:] and kind != "attention_flops":  # a norm in the same kernel
        yield f"{of_experts}moved_bytes", "forward", node.inputs[0].bytes + _bytes(made[1:])
        yield f"{of_experts}moved_bytes", "backward", 2 * node.inputs[0].bytes + _bytes(made[1:])


def _kind(node: Operation) -> str:
    """Return the kind of a product: of pairs of tokens, of routed experts, in float8, or any other."""
    if node.flops.full != node.flops.causal:
        return "attention_flops"
    if node.component == "head":
        return "head_flops"
    low = _FLOAT8 in node.name
    return ("low_expert_flops" if low else "expert_flops") if node.component == "experts" else "low_flops" if low else "linear_flops"


def _is_view(tensor: Tensor, inputs: Iterable[Tensor]) -> bool:
    storages = {storage for one in inputs for storage, _ in one.parts}
    return all(storage in storages for storage, _ in tensor.parts)


def _bytes(tensors: Iterable[Tensor]) -> Size:
    return sum((tensor.bytes for tensor in tensors), 0)
