"""FLOPs under named conventions. 1 multiply-add (MAC) is 2 FLOPs; only matrix products count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.capacity.figures import COMPONENTS, EVERYTHING, Component, Flops, FlopsCount, Parameters
from planner.spec.records import FlopsConvention, LatentAttention, Layer, Model, Training
from planner.trace import sizes
from planner.trace.nodes import Checkpoint, Node, Operation, Repeat, operations, visit
from planner.trace.sizes import Size

_PASSES = "training is 3 forward passes"
_FROZEN = "training is the forward pass and the products that gradients need"
DESCRIPTIONS: dict[FlopsConvention, str] = {
    "matmul": f"model FLOPs: all matrix products, full n × n attention (window W: 2·n·W - W² pairs); {_PASSES}",
    "matmul-causal": f"all matrix products, causal half of n × n attention (window W: n·W - W²/2 pairs); {_PASSES}",
    "6nd": "2·N forward and 6·N training per token; N: active parameters, embeddings included (Hoffmann et al. 2022, arXiv:2203.15556)",
    "6nd-kaplan": "as 6nd; N: active parameters without embeddings and LM head (Kaplan et al. 2020, arXiv:2001.08361)",
    "palm": "6·N + 12·L·H·Q·T training per token; N as in 6nd (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)",
    "hardware": "hardware FLOPs: all executed matrix products, recomputation included; fused attention's backward is 2.5 times its forward",
}

TABLES: tuple[Component, ...] = ("embedding", "position", "head")
"""Components that Kaplan et al. 2020 (section 2.1, table 1) omit from N.

Their LM head is tied. An untied one is omitted too, as in the non-embedding parameters of Pythia (Biderman et al. 2023).
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of one pass over B·n tokens."""

    forward: Size
    backward: Size


def flops(nodes: Sequence[Node], parameters: Parameters[Size], model: Model, training: Training) -> Flops[Size]:
    """Return the FLOPs under every convention.

    N is the number of active parameters; the papers' models are dense, so theirs is all parameters. GPT-3's table D.1, Chinchilla and PaLM
    (whose 2.56e24 is for all 540.35 B) include embeddings; Kaplan et al. omit them.

    The weights of an encoder and of a tower read tokens of their own; FLOPs per token are per token of the decoder.
    """
    tokens = training.batch_size * training.sequence_length
    layers = [(run.count, layer) for run in model.runs for layer in run.layers]
    if model.prediction and training.count_prediction:
        layers.append((model.prediction.count, model.runs[-1].layers[-1]))
    width = sum(count * queries(layer) for count, layer in layers)
    read, (more, of_tables) = width * training.sequence_length * tokens, _of_others(parameters, model, training)
    if model.encoder and training.encoder_length is not None:
        m, of_encoder = training.encoder_length, queries(model.runs[0].layers[0]) * model.encoder.n_layers
        read = read + width * m * tokens + of_encoder * training.batch_size * m * m
    if kind := model.vision:
        read = read + kind.d_model * kind.n_layers * training.batch_size * training.images * kind.patches.length**2
    N = parameters.active * tokens + more
    kaplan = N - sum(weight.active_each * weight.copies for weight in parameters.weights if weight.component in TABLES) * tokens - of_tables
    thrice = training.train == EVERYTHING and model.vision is None
    full, causal = (_passes(nodes, count, thrice=thrice) for count in _OF_MODEL)
    passes = {
        "matmul": full,
        "matmul-causal": causal,
        "6nd": Counted(2 * N, 4 * N),
        "6nd-kaplan": Counted(2 * kaplan, 4 * kaplan),
        "palm": Counted(2 * N + 4 * read, 4 * N + 8 * read),
        "hardware": Counted(total(nodes, "forward"), total(nodes, "backward") + recomputed(nodes)),
    }
    counts = {convention: _count(convention, passes[convention], tokens, training, thrice=thrice) for convention in DESCRIPTIONS}
    return Flops(counts[training.flops_convention], tuple(counts.values()), by_component(nodes))


def read_apart(model: Model, training: Training) -> Mapping[str, Size]:
    """Return the tokens that weights of other stacks read, by the beginnings of their names."""
    m, kind, images = training.encoder_length, model.vision, training.batch_size * training.images
    of_encoder = {} if m is None else {"model.encoder.": training.batch_size * m}
    of_tower = {"model.vision.": images * kind.patches.length, "model.projector.": images * kind.features} if kind else {}
    return {**of_encoder, **of_tower}


def _of_others(parameters: Parameters[Size], model: Model, training: Training) -> tuple[Size, Size]:
    """Return how many products of weights and tokens other stacks have beyond the decoder's tokens: of all weights, and of tables."""
    tokens, products, of_tables = training.batch_size * training.sequence_length, list[Size](), list[Size]()
    for start, read in read_apart(model, training).items():
        for weight in parameters.weights:
            if weight.name.startswith(start):
                products.append(weight.active_each * weight.copies * (read - tokens))
                of_tables += products[-1:] if weight.component in TABLES else []
    return sizes.total(products), sizes.total(of_tables)


_Count: TypeAlias = Literal["full", "causal"]
_OF_MODEL: tuple[_Count, ...] = ("full", "causal")


def _passes(nodes: Sequence[Node], count: _Count, *, thrice: bool) -> Counted:
    """Return the model's FLOPs: ``thrice`` those of a forward pass, or backward once per factor that needs a gradient."""
    forward = total(nodes, count)
    if thrice:
        return Counted(forward, 2 * forward)
    runs_backward = ((node, copies) for node, copies in operations(nodes) if node.flops.backward != 0)
    products = (copies * getattr(node.flops, count) * sum(one.needs_grad for one in node.inputs[:2]) for node, copies in runs_backward)
    return Counted(forward, sizes.total(products))


def queries(layer: Layer) -> Size:
    """Return the width of all query heads of a layer, H·Q in PaLM's formula."""
    width = layer.attention.n_heads * layer.attention.head_dim if layer.attention else 0
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            width = width + mixer.n_heads * (mixer.nope_dim + mixer.rope_dim)
    return width


def total(nodes: Iterable[Node], count: Literal["forward", "full", "causal", "backward"]) -> Size:
    """Sum a count of FLOPs over the operators of a pass."""
    return sizes.total(
        getattr(node.flops, count) if isinstance(node, Operation) else _times(node) * total(node.body, count) for node in nodes
    )


def _times(node: Node) -> Size:
    """Return how often the forward pass runs the operators inside a node."""
    return node.count if isinstance(node, Repeat) else 1


def recomputed(nodes: Iterable[Node]) -> Size:
    """Sum the FLOPs that the backward pass recomputes."""
    return sum(copies * total(node.recomputed, "forward") for node, copies in visit(nodes) if isinstance(node, Checkpoint))


def by_component(nodes: Iterable[Node]) -> dict[Component, Size]:
    """Sum the model's FLOPs of a forward pass by component: all matrix products, full n × n attention."""
    found: dict[str, list[Size]] = {component: [] for component in COMPONENTS}
    for node in nodes:
        if not isinstance(node, Operation):
            for component, size in by_component(node.body).items():
                found[component].append(_times(node) * size)
        elif node.flops.why:
            found[node.component].append(node.flops.full)
    return {component: sizes.total(found[component]) for component in COMPONENTS}


def _count(convention: FlopsConvention, counted: Counted, tokens: Size, training: Training, *, thrice: bool) -> FlopsCount[Size]:
    a_pass = counted.forward + counted.backward
    forward_per_token, per_step = counted.forward // tokens, a_pass * training.gradient_accumulation
    in_total = None if training.tokens is None else a_pass * training.tokens // tokens
    description = DESCRIPTIONS[convention]
    description = description if thrice else description.replace(_PASSES, _FROZEN)
    return FlopsCount(convention, description, forward_per_token, a_pass // tokens, counted.forward, per_step, in_total)
