"""Experts beside a dense feed-forward, with norms of their own and a scaled router (transformers 5.24, models/gemma4)."""

from __future__ import annotations

from planner.spec.records import Experts, Layer
from planner.trace import primitives as op
from planner.trace import routing
from planner.trace.blocks import feed_forward
from planner.trace.experts import grouped
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

ROUTER = ("router.scale", "router.per_expert_scale")
NORMS = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")


def declared(t: Tape, its: Layer) -> bool:
    """Return whether the spec declares the weights of the norms and of the router, which only transformers runs."""
    shapes = [t.declared[key].shape for name in (*ROUTER, *NORMS) if (key := f"{t.path}.{name}") in t.declared]
    vectors = len(shapes) == len(ROUTER) + len(NORMS) and all(len(shape) == 1 for shape in shapes)
    return vectors and bool(its.feed_forward and its.experts) and t.training.implementation.startswith("transformers")


def block(t: Tape, its: Layer, stream: Tensor, normed: Tensor) -> Tensor:
    """Return the sum of the dense feed-forward of ``normed`` and of the experts' output for the stream [B, n, d], both normalized."""
    dense_kind, kind = its.feed_forward, its.experts
    if dense_kind is None or kind is None:
        raise TypeError("a layer without a feed-forward beside its experts")
    weights = {name: w for name in (*ROUTER, *NORMS) if (w := t.declared_weight(name))}

    def norm(x: Tensor, name: str) -> Tensor:
        with t.at(name, "norm"):
            return t.implementation.norm(t, x, its.norm, weights[name], None)

    B, n, d = stream.shape
    dense_out = feed_forward(t, dense_kind, normed)
    dense = norm(dense_out, NORMS[0])
    flat = stream.view(B * n, d)
    with t.at("mlp", "experts"):
        shares, indices = routed(t, its, kind, flat, weights)
    inner = norm(flat, NORMS[1])
    with t.at("mlp", "experts"):
        out = grouped(t, kind, inner, shares, indices)
    made = op.add(t, dense, norm(out.view(B, n, d), NORMS[2]))
    op.keep_alive(t, dense_out, inner, out)
    return made


def routed(t: Tape, its: Layer, kind: Experts, x: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the weights and indices of each token's experts: of its normalized channels times a scale, and times one per expert."""
    with t.at("gate", "router"):
        scaled = op.mul_scalar(t, op.multiply(t, t.implementation.norm(t, x, its.norm, None, None), weights["router.scale"]))
        logits = op.linear(t, scaled, t.weight("weight", (kind.count, x.shape[1]), "router: experts · d"))
        chosen, indices = routing.topk(t, op.softmax(t, op.cast(t, logits, "float32")), kind.top_k)
        shares = routing.normalize(t, chosen)
        return op.multiply(t, shares, routing.index_select(t, weights["router.per_expert_scale"], indices)), indices
