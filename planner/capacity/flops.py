"""FLOPs under named conventions, a multiply-add being 2; only matrix products count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planner.capacity.peak import recomputed
from planner.capacity.records import COMPONENTS, Component, Flops, FlopsCount, Parameters
from planner.spec.records import FlopsConvention, LatentAttention, Layer, Model, Training
from planner.trace.sizes import Size
from planner.trace.tape import Checkpoint, Node, Operation, Repeat

DESCRIPTIONS: dict[FlopsConvention, str] = {
    "matmul": "all matrix products, the full attention square (of a window of W keys 2·n·W - W² pairs); training is three forward passes",
    "matmul-causal": "all matrix products, half the attention square (of a window of W n·W - W²/2 pairs); training is three forward passes",
    "6nd": "2·N forward and 6·N training per token, N: active parameters, embeddings included (Hoffmann et al. 2022, arXiv:2203.15556)",
    "6nd-kaplan": "the same, N: active parameters without token and position tables and the head (Kaplan et al. 2020, arXiv:2001.08361)",
    "palm": "6·N + 12·L·H·Q·T training per token, N as in 6nd (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)",
    "hardware": "all matrix products that run: recomputation included, fused attention's backward at 2.5 times its forward",
}

TABLES: tuple[Component, ...] = ("embedding", "position", "head")
"""Components that Kaplan et al. 2020 (section 2.1, table 1) leave out of N.

Their head is the token table. A head of its own is left out, too, as in the non-embedding parameters of Pythia (Biderman et al. 2023).
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of one pass over B·n tokens."""

    forward: Size
    backward: Size


def flops(nodes: Sequence[Node], parameters: Parameters[Size], model: Model, training: Training) -> Flops[Size]:
    """Return the FLOPs under every convention.

    N is the number of parameters that a token uses: of routed experts ``top_k``. The papers' models are dense, so that theirs is all of
    them. GPT-3's table D.1, Chinchilla and PaLM (whose 2.56e24 is that of all 540.35 B) count the tables; Kaplan et al. leave them out.
    """
    tokens = training.batch_size * training.sequence_length
    attention = sum(run.count * queries(layer) for run in model.runs for layer in run.layers) * training.sequence_length
    N = parameters.active
    kaplan = N - sum(weight.active_each * weight.copies for weight in parameters.weights if weight.component in TABLES)
    runs, full, causal = (forward(nodes, count) for count in (_runs, _full, _causal))
    passes = {
        "matmul": Counted(full, 2 * full),
        "matmul-causal": Counted(causal, 2 * causal),
        "6nd": Counted(2 * N * tokens, 4 * N * tokens),
        "6nd-kaplan": Counted(2 * kaplan * tokens, 4 * kaplan * tokens),
        "palm": Counted((2 * N + 4 * attention) * tokens, (4 * N + 8 * attention) * tokens),
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


def _count(convention: FlopsConvention, counted: Counted, tokens: Size, training: Training) -> FlopsCount[Size]:
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
