"""FLOPs under named conventions, a multiply-add being 2; only matrix products count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planner.capacity.peak import recomputed
from planner.capacity.records import COMPONENTS, Component, Flops, FlopsCount
from planner.spec.records import FlopsConvention, LatentAttention, Layer, Model, Training
from planner.trace.sizes import Size
from planner.trace.tape import Checkpoint, Node, Operation, Repeat

DESCRIPTIONS: dict[FlopsConvention, str] = {
    "matmul": "all matrix products, the full attention square (of a window of W keys 2·n·W - W² pairs); training is three forward passes",
    "matmul-causal": "all matrix products, half the attention square (of a window of W n·W - W²/2 pairs); training is three forward passes",
    "6nd": "2·N forward and 6·N for training a token, N being all parameters (Kaplan et al. 2020, arXiv:2001.08361)",
    "palm": "6·N + 12·L·H·Q·T for training a token, N being all parameters (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)",
    "hardware": "what PyTorch's counter sees: recomputation, and fused attention's backward at 2.5 times its forward",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of one pass over B·n tokens."""

    forward: Size
    backward: Size


def flops(nodes: Sequence[Node], params: Size, model: Model, training: Training) -> Flops:
    """Return the FLOPs under every convention."""
    tokens = training.batch_size * training.sequence_length
    attention = sum(run.count * queries(layer) for run in model.runs for layer in run.layers) * training.sequence_length
    runs, full, causal = (forward(nodes, count) for count in (_runs, _full, _causal))
    passes = {
        "matmul": Counted(full, 2 * full),
        "matmul-causal": Counted(causal, 2 * causal),
        "6nd": Counted(2 * params * tokens, 4 * params * tokens),
        "palm": Counted((2 * params + 4 * attention) * tokens, (4 * params + 8 * attention) * tokens),
        "hardware": Counted(runs, backward(nodes)),
    }
    counts = {convention: _count(convention, passes[convention], tokens, training) for convention in DESCRIPTIONS}
    return Flops(counts[training.flops_convention], tuple(counts.values()), {name: _of_component(nodes, name) for name in COMPONENTS})


def queries(layer: Layer) -> Size:
    """Return the width of all query heads of a layer, H·Q in PaLM's formula."""
    width = layer.attention.n_heads * layer.attention.head_dim if layer.attention else 0
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            width = width + mixer.n_heads * (mixer.nope_dim + mixer.rope_dim)
    return width


def forward(nodes: Iterable[Node], count: Callable[[Operation], Size]) -> Size:
    """Sum a count over the operations of a forward pass."""
    total: Size = 0
    for node in nodes:
        if isinstance(node, Operation):
            total = total + count(node)
        else:
            inner = forward(node.body, count)
            total = total + (node.count * inner if isinstance(node, Repeat) else inner)
    return total


def _of_component(nodes: Sequence[Node], name: Component) -> Size:
    return forward(nodes, lambda op: op.flops.full if op.component == name else 0)


def _runs(operation: Operation) -> Size:
    return operation.flops.forward


def _full(operation: Operation) -> Size:
    return operation.flops.full


def _causal(operation: Operation) -> Size:
    return operation.flops.causal


def backward(nodes: Iterable[Node]) -> Size:
    """Sum the backward FLOPs, and those of what is computed again."""
    total: Size = 0
    for node in nodes:
        if isinstance(node, Operation):
            total = total + node.flops.backward
        elif isinstance(node, Checkpoint):
            total = total + backward(node.body) + forward(recomputed(node), _runs)
        else:
            total = total + node.count * backward(node.body)
    return total


def _count(convention: FlopsConvention, counted: Counted, tokens: Size, training: Training) -> FlopsCount:
    a_pass = counted.forward + counted.backward
    per_token = a_pass // tokens
    return FlopsCount(
        convention,
        DESCRIPTIONS[convention],
        counted.forward // tokens,
        per_token,
        counted.forward,
        a_pass * training.gradient_accumulation,
        None if training.tokens is None else a_pass * training.tokens // tokens,
    )
