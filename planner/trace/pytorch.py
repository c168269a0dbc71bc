"""Plain PyTorch modules as in nanoGPT: the implementations ``pytorch`` (fused attention) and ``pytorch-eager`` (attention by products)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.spec.records import Activation, Model, Norm, Training
from planner.trace import primitives as op
from planner.trace.kernels import fused_attention
from planner.trace.refusal import NotModelledError
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Precision, Saved, Tape
from planner.trace.tensor import BYTES, Dtype, Tensor

AUTOCAST: dict[str, Dtype] = {"bf16-autocast": "bfloat16", "fp16-autocast": "float16"}


class PyTorch:
    """Plain modules as in nanoGPT (github.com/karpathy/nanoGPT, model.py)."""

    not_counted: tuple[str, ...] = ("the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator",)

    def __init__(self, model: Model, training: Training) -> None:
        self.model = model
        self.dropout = training.dropout > 0
        self.recompute = training.recompute
        self.loss_kind = training.loss
        self.keep_logits = training.keep_logits
        self.kv_cache = training.kv_cache
        self.precision = self.dtypes(training.precision)

    def dtypes(self, precision: str) -> Precision:
        """Return the dtypes that a training precision means here."""
        if precision in AUTOCAST:
            return Precision("float32", AUTOCAST[precision])
        return Precision("float32" if precision == "fp32" else "bfloat16")

    def norm(self, t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Normalise [.., d] in one kernel."""
        return op.layer_norm(t, x, weight, bias) if kind.type == "layernorm" else op.rms_norm(t, x, weight)

    def activation(self, t: Tape, name: Activation, x: Tensor) -> Tensor:
        """Apply the feed-forward's function."""
        if name == "relu":
            return op.relu(t, x)
        if name == "relu_squared":
            return op.square(t, op.relu(t, x))
        return op.pointwise(t, name, x)

    def gated(self, t: Tape, name: Activation, gate: Tensor, up: Tensor) -> Tensor:
        """Return activation(gate) · up."""
        return op.multiply(t, self.activation(t, name, gate), up)

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

    def rotate(self, t: Tape, x: Tensor, tables: tuple[Tensor, Tensor], *, interleaved: bool) -> Tensor:
        """Return x · cos + rotate_half(x) · sin over the first of x [B, heads, n, h], the rest as it is.

        The derivative needs the tables, never x. ``interleaved``: heads came out of one projection as [q, k, v] each.
        """
        del interleaved
        cos, sin = tables
        turned = x.view(*x.shape[:-1], cos.shape[-1])
        made = op.add(t, op.multiply(t, turned, cos), op.multiply(t, op.rotate_half(t, turned), sin))
        return made if turned.shape == x.shape else op.cat(t, made, x)

    def drop(self, t: Tape, x: Tensor) -> Tensor:
        """Apply dropout where the training has it."""
        return op.dropout(t, x) if self.dropout else x

    def layer(self, t: Tape, body: Callable[[Tensor], Tensor], x: Tensor, shared: Sequence[Tensor]) -> Tensor:
        """Run a layer; full recomputation keeps only its inputs: x, and what all layers share."""
        return t.checkpoint(lambda x, *_: body(x), x, *shared) if self.recompute == "full" else body(x)

    def core(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, softcap: bool) -> Tensor:
        """Attend causally with q [B, H, n, h] to k, v [B, K, n, h] -> [B, n, H·h]; selective recomputation keeps only q, k and v."""
        if self.recompute == "selective":
            shared = (bias,) if bias else ()
            return t.checkpoint(lambda q, k, v, *_: self.attention(t, q, k, v, bias, softcap=softcap), q, k, v, *shared)
        return self.attention(t, q, k, v, bias, softcap=softcap)

    def attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, softcap: bool) -> Tensor:
        """Attend in one kernel; the CPU's has no dropout, so that products take its place there."""
        if softcap:
            raise NotModelledError("fused attention cannot cap the scores: implementation: pytorch-eager or transformers-eager")
        if t.device == "cpu" and self.dropout:
            return self.plain_attention(t, q, k, v, bias, softcap=softcap)
        B, H, n, _ = q.shape
        made = fused_attention(t, q, k, v, bias)
        return made.view(B, n, H * made.shape[-1])  # the kernels write [B, n, H, h]: a view

    def plain_attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, softcap: bool) -> Tensor:
        """Attend by a product, a mask, a softmax, dropout and a product."""
        B, H, n, h = q.shape
        apart = op.heads_apart(B, n, H)
        q, k, v = (op.lowered(t, x) for x in (q, self.spread(t, k, H), self.spread(t, v, H)))
        keys = op.contiguous(t, k, apart).view(B, H, h, n)
        scores = op.scale(t, op.matmul(t, op.contiguous(t, q, apart), keys, pairs=True))
        if softcap:
            scores = self.capped(t, scores)
        if bias:
            scores = op.add(t, scores, bias)
        attention = self.drop(t, op.softmax(t, self.masked(t, scores)))
        made = op.matmul(t, attention, op.contiguous(t, v, apart), pairs=True)
        return op.contiguous(t, made, apart).view(B, n, H * h)

    def capped(self, t: Tape, x: Tensor) -> Tensor:
        """Return cap · tanh(x / cap)."""
        return op.scale(t, op.tanh(t, op.scale(t, x)))

    def spread(self, t: Tape, x: Tensor, heads: Size) -> Tensor:
        """Return keys or values [B, K, n, h] copied to all heads."""
        if x.shape[1] == heads:
            return x
        made = t.tensor((x.shape[0], heads, *x.shape[2:]), x.dtype)
        made.by_head = True
        t.record("repeat_interleave", [x], [made], by=self.spread)
        return made

    def masked(self, t: Tape, scores: Tensor) -> Tensor:
        """Put -inf where a query would see a later key; the boolean mask is made for each layer and kept."""
        n = scores.shape[-1]
        mask = t.tensor((1, 1, n, n), "bool", needs_grad=False)
        t.record("equals zero", [], [mask], by=self.masked)
        made = t.tensor(scores.shape, scores.dtype)
        t.record("masked_fill", [scores, mask], [made], [Saved(mask, "causal mask")], by=self.masked)
        return made

    def buffers(self) -> Size:
        """Return the bytes of tensors that belong to the model beside its parameters."""
        return 0

    def position_ids(self, t: Tape, n: Size) -> Tensor | None:
        """Return positions that are handed to every layer, if they are."""
        del t, n
        return None

    def mask(self, t: Tape, B: Size, n: Size) -> Tensor | None:
        """Return what layers of one window add to their scores, if there is such a tensor."""
        del t, B, n
        return None

    def loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of logits [B, n, V]."""
        kinds = {"default": self.own_loss, "cross_entropy": self.cross_entropy, "cross_entropy_shifted": self.shifted_loss}
        loss = kinds[self.loss_kind](t, logits, targets)
        op.hold_throughout(loss)
        if self.keep_logits:
            op.hold_throughout(logits)
        return loss

    def own_loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss that the implementation's users take."""
        return self.cross_entropy(t, logits, targets)

    def cross_entropy(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return F.cross_entropy.

        Under autocast on CUDA the log-softmax stays in 16 bits (the operator passes its dtype) and the sum is made in float32, of a copy.
        """
        wide = op.cast(t, logits, "float32") if t.precision.autocast and t.device == "cpu" else logits
        loss = op.nll_loss(t, op.raised(t, op.log_softmax(t, wide)), targets)
        op.hold(t, logits)
        return loss

    def shifted_loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return F.cross_entropy of logits[:, :-1] with targets[:, 1:], both copied into rows unless B is 1."""
        B, n, V = logits.shape
        rows = op.contiguous(t, logits.view(B, n - 1, V), exceeds_one(B))
        with t.at("", "inputs"):
            ahead = op.contiguous(t, targets.view(B, n - 1), exceeds_one(B))
        loss = self.cross_entropy(t, rows, ahead)
        op.hold(t, logits)
        return loss


class PyTorchEager(PyTorch):
    """The same with attention by products, scores and probabilities in memory."""

    attention = PyTorch.plain_attention

    def buffers(self) -> Size:
        """Return nanoGPT's causal mask: context_length² elements in the weights' dtype for each layer."""
        return self.model.context_length * self.model.context_length * BYTES[self.precision.weights] * self.model.n_layers
