"""Plain PyTorch modules as in nanoGPT: the implementations ``pytorch`` (fused attention) and ``pytorch-eager`` (attention by products)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from planner.spec.records import Activation, Model, Norm, Training
from planner.trace import primitives as op
from planner.trace.kernels import fused_attention
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Precision, Saved, Tape
from planner.trace.tensor import BYTES, Dtype, Tensor

AUTOCAST: dict[str, Dtype] = {"bf16-autocast": "bfloat16", "fp16-autocast": "float16"}


class PyTorch:
    """Plain modules as in nanoGPT (github.com/karpathy/nanoGPT, model.py)."""

    not_counted: tuple[str, ...] = ("the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator",)

    def __init__(self, training: Training) -> None:
        self.dropout = training.dropout > 0
        self.recompute = training.recompute
        self.precision = self.dtypes(training.precision)

    def dtypes(self, precision: str) -> Precision:
        """Return the dtypes that a training precision means here."""
        if precision in AUTOCAST:
            return Precision("float32", AUTOCAST[precision])
        return Precision("float32" if precision == "fp32" else "bfloat16")

    def norm(self, t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Normalise [.., d] in one kernel; the CPU has none for the root mean square."""
        if kind.type == "layernorm":
            return op.layer_norm(t, x, weight, bias)
        return op.rms_norm(t, x, weight) if t.device == "cuda" else self.plain_rms_norm(t, x, weight)

    def plain_rms_norm(self, t: Tape, x: Tensor, weight: Tensor | None) -> Tensor:
        """Divide by the root of the mean square in float32, operator by operator (rms_norm_composite, layer_norm.cpp)."""
        wide = op.cast(t, x, "float32")
        normed = op.multiply(t, wide, op.rsqrt(t, op.mean(t, op.square(t, wide))))
        if weight:
            normed = op.multiply(t, normed, weight)
        op.hold(t, wide)
        return op.cast(t, normed, x.dtype)

    def activation(self, t: Tape, name: Activation, x: Tensor) -> Tensor:
        """Apply the feed-forward's function."""
        if name == "relu":
            return op.relu(t, x)
        if name == "relu_squared":
            made = op.square(t, op.relu(t, x))
            op.hold(t, x)
            return made
        return op.pointwise(t, name, x)

    def gated(self, t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
        """Return activation(gate) · up, the activation before up is projected."""
        activated = self.activation(t, name, gate)
        return op.multiply(t, activated, up())

    def positions(self, t: Tape, n: Size) -> Tensor:
        """Return the positions 0 … n - 1, which the look-up of learned positions keeps."""
        places = t.tensor((n,), "int64", needs_grad=False)
        t.record("arange", [], [places], by=self.positions)
        return places

    def rotary_tables(self, t: Tape, n: Size, rotary_dim: Size) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [n, rotary_dim], made once a forward pass in the weights' dtype."""
        cos, sin = (t.tensor((n, rotary_dim), t.precision.weights, needs_grad=False) for _ in range(2))
        t.record("rotary tables", [], [cos, sin], by=self.rotary_tables)
        return cos, sin

    def alibi_bias(self, t: Tape, n: Size, H: Size) -> Tensor:
        """Return ALiBi's bias with the causal mask in it [1, H, n, n], made once a forward pass in the weights' dtype."""
        bias = t.tensor((1, H, n, n), t.precision.weights, needs_grad=False)
        t.record("alibi bias", [], [bias], by=self.alibi_bias)
        return bias

    def drop(self, t: Tape, x: Tensor) -> Tensor:
        """Apply dropout where the training has it."""
        return op.dropout(t, x) if self.dropout else x

    def layer(self, t: Tape, body: Callable[..., Tensor], x: Tensor, *tables: Tensor) -> Tensor:
        """Run a layer; full recomputation keeps only its input and the tables that layers share."""
        return t.checkpoint(lambda x, *_: body(x), x, *tables) if self.recompute == "full" else body(x)

    def core(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Attend causally with q [B, H, n, h] to k, v [B, K, n, h] -> [B, n, H·h]; selective recomputation keeps only q, k, v and bias."""
        inputs = (q, k, v, bias) if bias else (q, k, v)
        made = t.checkpoint(partial(self.attention, t), *inputs) if self.recompute == "selective" else self.attention(t, *inputs)
        return op.heads_joined(t, made)

    def attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Attend in one operator -> [B, H, n, h]."""
        return fused_attention(t, q, k, v, bias, dropout=self.dropout)

    def plain_attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Attend by a product, a mask, a softmax, dropout and a product -> [B, H, n, h]."""
        H = q.shape[1]
        k, v = self.spread(t, k, H), self.spread(t, v, H)
        scores = op.scale(t, op.matmul_by_head(t, q, op.transposed(k)))
        if bias:
            scores = op.add(t, scores, bias)
        scores = self.masked(t, scores)
        probabilities = self.drop(t, op.softmax(t, scores))
        made = op.matmul_by_head(t, probabilities, v)
        op.hold(t, k, v, scores, probabilities)
        return made

    def spread(self, t: Tape, x: Tensor, heads: Size) -> Tensor:
        """Return keys or values [B, K, n, h] copied to all heads; one head is seen as all of them, without a copy."""
        B, K, n, h = x.shape
        if heads == K:
            return x
        made = op.expanded(t, x, (B, heads, n, h), exceeds_one(K))
        made.by_head = True
        return made

    def masked(self, t: Tape, scores: Tensor) -> Tensor:
        """Put -inf where a query would see a later key; the boolean mask is made for each layer and kept."""
        n = scores.shape[-1]
        mask = t.tensor((1, 1, n, n), "bool", needs_grad=False)
        t.record("equals zero", [], [mask], by=self.masked)
        made = op.like(t, scores)
        t.record("masked_fill", [scores, mask], [made], [Saved(mask, "causal mask")], by=self.masked)
        return made

    def buffers(self, model: Model) -> Size:
        """Return the bytes of tensors that belong to the model beside its parameters."""
        del model
        return 0

    def loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return F.cross_entropy of logits [rows, V].

        Under autocast on CUDA the log-softmax stays in 16 bits (the operator passes its dtype) and the sum is made in float32, of a copy.
        """
        wide = op.cast(t, logits, "float32") if t.precision.autocast and t.device == "cpu" else logits
        loss = op.nll_loss(t, op.raised(t, op.log_softmax(t, wide)), targets)
        op.hold(t, logits, wide)
        op.hold_throughout(loss)
        return loss


class PyTorchEager(PyTorch):
    """The same with attention by products, scores and probabilities in memory."""

    attention = PyTorch.plain_attention

    def buffers(self, model: Model) -> Size:
        """Return nanoGPT's causal mask: context_length² elements in the weights' dtype for each layer."""
        return model.context_length * model.context_length * BYTES[self.precision.weights] * model.n_layers
