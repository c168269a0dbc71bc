"""The parts that layers are made of: attention, feed-forward, norms, and the ways of putting them together.

Shapes: x is [B, n, d_model]. Weights are named as in transformers' Llama, so that a reader finds them in a checkpoint.
"""

from __future__ import annotations

from planner.spec.records import Attention, FeedForward, Layer, Norm
from planner.trace import primitives as op
from planner.trace.implementations import Implementation
from planner.trace.positions import Places
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def norm(t: Tape, implementation: Implementation, kind: Norm, x: Tensor, name: str) -> Tensor:
    """Normalise the last dimension of x; stores a weight and a bias of its size, or neither."""
    size = x.shape[-1]
    with t.at(name, "norm"):
        weight = t.weight("weight", (size,), "scale of a norm") if kind.weight else None
        bias = t.weight("bias", (size,), "shift of a norm") if kind.bias else None
        made = implementation.norm(t, x, kind, weight, bias)
        op.hold(t, x)
        return made


def linear(t: Tape, x: Tensor, outputs: Size, name: str, *, bias: bool) -> Tensor:
    """Project the last dimension of x to ``outputs``; stores outputs·inputs weights, and outputs more with a bias."""
    with t.at(name):
        w = t.weight("weight", (outputs, x.shape[-1]), "linear: out · in")
        b = t.weight("bias", (outputs,), "bias: out") if bias else None
        return op.linear(t, x, w, b)


def attention(t: Tape, implementation: Implementation, layer: Layer, x: Tensor, places: Places) -> Tensor:
    """Multi-head attention over [B, n, d_model]; n_kv_heads keys and values serve n_heads queries."""
    kind = layer.attention
    B, n, d_model = x.shape
    H, K, h = kind.n_heads, kind.n_kv_heads, kind.head_dim
    with t.at("self_attn", "attention"):
        q, k, v = projections(t, kind, x)
        qk_norm = Norm(layer.norm.type, weight=True, bias=False)
        if kind.qk_norm == "full_width":
            joined = exceeds_one(K) if kind.qkv == "fused_per_head" else None
            q, k = op.contiguous(t, q, joined).view(B, n, H * h), op.contiguous(t, k, joined).view(B, n, K * h)
            q, k = norm(t, implementation, qk_norm, q, "q_norm"), norm(t, implementation, qk_norm, k, "k_norm")
        q, k, v = q.view(B, H, n, h), k.view(B, K, n, h), v.view(B, K, n, h)
        if kind.qk_norm == "head_dim":
            before = q, k
            q, k = norm(t, implementation, qk_norm, q, "q_norm"), norm(t, implementation, qk_norm, k, "k_norm")
            op.hold(t, *before)
        if layer.positions.type == "rope":
            before = q, k
            q, k = places.rotate(t, q, layer.positions.rotary_dim), places.rotate(t, k, layer.positions.rotary_dim)
            op.hold(t, *before)
        t.show("queries by head", q)
        t.show("keys by head", k)
        t.show("values by head", v)
        t.show("scores", Tensor((B, H, n, n), q.dtype, ()))
        bias = places.slopes(H) if layer.positions.type == "alibi" else None
        mixed = implementation.core(t, q, k, v, bias)
        out = linear(t, t.show("heads joined", mixed), d_model, "o_proj", bias=kind.o_bias)
        out = implementation.drop(t, out)
        op.hold(t, x, q, k, v, mixed)
        return out


def projections(t: Tape, kind: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, n, H·h], keys and values [B, n, K·h]: of one projection each, or views of a common one.

    A common projection that goes by key heads has each one's queries, key and value in a row, out of which queries are copied.
    """
    B, n, _ = x.shape
    H, K, h = kind.n_heads, kind.n_kv_heads, kind.head_dim
    if kind.qkv == "separate":
        q = linear(t, x, H * h, "q_proj", bias=kind.q_bias)
        k = linear(t, x, K * h, "k_proj", bias=kind.k_bias)
        return q, k, linear(t, x, K * h, "v_proj", bias=kind.v_bias)
    qkv = linear(t, x, (H + 2 * K) * h, "qkv_proj", bias=kind.q_bias)
    q, k, v = op.split(t, qkv, (B, n, H * h), (B, n, K * h), (B, n, K * h))
    if kind.qkv == "fused_per_head":
        q.interleaved = k.interleaved = v.interleaved = True
        q = op.contiguous(t, q, exceeds_one(K)) if H != K else q
    return q, k, v


def feed_forward(t: Tape, implementation: Implementation, kind: FeedForward, x: Tensor) -> Tensor:
    """Plain: down(activation(up(x))). Gated: down(activation(gate(x)) · up(x))."""
    with t.at("mlp", "feed_forward"):
        if kind.gated:
            gate = linear(t, x, kind.d_ff, "gate_proj", bias=kind.gate_bias)
            hidden = implementation.gated(t, kind.activation, gate, lambda: linear(t, x, kind.d_ff, "up_proj", bias=kind.up_bias))
        else:
            hidden = implementation.activation(t, kind.activation, linear(t, x, kind.d_ff, "up_proj", bias=kind.up_bias))
        out = linear(t, t.show("hidden", hidden), x.shape[-1], "down_proj", bias=kind.down_bias)
        out = implementation.drop(t, out)
        op.hold(t, x, hidden)
        return out


def decoder_layer(t: Tape, implementation: Implementation, layer: Layer, places: Places, x: Tensor) -> Tensor:
    """One layer: a mixer and a feed-forward, each with its norms, added to the residual stream."""

    def normed(y: Tensor, name: str) -> Tensor:
        return norm(t, implementation, layer.norm, y, name)

    def mixer(y: Tensor) -> Tensor:
        return attention(t, implementation, layer, y, places)

    def mlp(y: Tensor) -> Tensor:
        return feed_forward(t, implementation, layer.feed_forward, y)

    entered = x
    if layer.block != "sequential":
        y = normed(x, "input_layernorm")
        z = y if layer.block == "parallel_one_norm" else normed(x, "post_attention_layernorm")
        x = op.add(t, op.add(t, x, mixer(y)), mlp(z))
        op.hold(t, y, z)
    elif layer.norm_placement == "before":
        x = op.add(t, x, mixer(normed(x, "input_layernorm")))
        x = op.add(t, x, mlp(normed(x, "post_attention_layernorm")))
    elif layer.norm_placement == "after":
        x = op.add(t, x, normed(mixer(x), "post_attention_layernorm"))
        x = op.add(t, x, normed(mlp(x), "post_feedforward_layernorm"))
    else:
        x = op.add(t, x, normed(mixer(normed(x, "input_layernorm")), "post_attention_layernorm"))
        x = op.add(t, x, normed(mlp(normed(x, "pre_feedforward_layernorm")), "post_feedforward_layernorm"))
    op.hold(t, entered)
    return x
