"""Plain PyTorch modules as in nanoGPT: the implementations ``pytorch`` (fused attention) and ``pytorch-eager`` (attention by products)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from planner.spec.precision import BYTES, RECIPES
from planner.spec.records import Activation, Model, Norm, Training
from planner.trace import primitives as op
from planner.trace.kernels import fused_attention
from planner.trace.refusal import NotModelledError
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Saved, Tape
from planner.trace.tensor import Tensor


class PyTorch:
    """Plain modules as in nanoGPT (github.com/karpathy/nanoGPT, model.py)."""

    not_counted: tuple[str, ...] = ("the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator",)
    recomputes_whole = False  # whether recomputation runs whole stretches, or stops once the last kept tensor is there

    def __init__(self, model: Model, training: Training) -> None:
        self.model = model
        self.dropout = training.dropout
        self.recompute = training.recompute
        self.loss_kind = training.loss
        # Whether the function that makes the loss has the last hidden states still at hand.
        self.loss_inside = training.loss not in {"cross_entropy", "cross_entropy_shifted"}
        self.keep_logits = training.keep_logits
        self.kv_cache = training.kv_cache
        self.precision = RECIPES[training.precision]

    def norm(self, t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Normalise [.., d] in one kernel; the CPU has none for the root mean square."""
        if kind.type == "layernorm":
            return op.layer_norm(t, x, weight, bias)
        if kind.unit_offset and weight:
            weight = op.shift(t, weight)
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
        if name == "gelu_new":
            name = "gelu_tanh"
        if name == "relu":
            return op.relu(t, x)
        if name == "relu_squared":
            positive = op.relu(t, x)
            made = op.square(t, positive)
            op.hold(t, x, positive)
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

    def position_ids(self, t: Tape, n: Size) -> Tensor | None:
        """Return positions that are handed to every layer, if they are."""
        del t, n
        return None

    def mask(self, t: Tape, B: Size, n: Size) -> Tensor | None:
        """Return what layers of one window add to their scores, if there is such a tensor."""
        del t, B, n
        return None

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

    def rotate(self, t: Tape, x: Tensor, tables: tuple[Tensor, Tensor], *, interleaved: bool = False) -> Tensor:
        """Return x · cos + rotate_half(x) · sin over the first rotary_dim channels of x [B, heads, n, h], the rest as it is.

        The derivative needs the tables, never x. ``interleaved``: a head's query, key and value came out of one projection side by side.
        """
        del interleaved
        cos, sin = tables
        *outer, h = x.shape
        rotary_dim = cos.shape[-1]
        whole = rotary_dim == h
        turned = x if whole else op.split(t, x, (*outer, rotary_dim))[0]
        half = rotary_dim // 2
        first, second = op.split(t, turned, (*outer, half), (*outer, rotary_dim - half))
        made = op.multiply(t, turned, cos)
        made = op.add(t, made, op.multiply(t, op.cat(t, op.negate(t, second), first), sin))
        return made if whole else op.cat(t, made, op.split(t, x, (*outer, h - rotary_dim))[0])

    def rotate_pairs(self, t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate each pair of neighbouring channels of x [B, heads, n, h], all of them: four products with halves of the tables."""
        *outer, h = x.shape
        cos, sin = (table.view(*table.shape[:-1], h // 2) for table in tables)
        even, odd = op.split(t, x, *[(*outer, h // 2)] * 2)
        first = op.add(t, op.multiply(t, even, cos), op.multiply(t, odd, sin))
        second = op.add(t, op.multiply(t, odd, cos), op.multiply(t, even, sin))
        return op.cat(t, first, second)

    def drop(self, t: Tape, x: Tensor) -> Tensor:
        """Apply dropout where the training has it."""
        return op.dropout(t, x) if self.dropout else x

    def layer(self, t: Tape, body: Callable[..., Tensor], x: Tensor, *tables: Tensor) -> Tensor:
        """Run a layer; full recomputation keeps only its input and the tables that layers share."""
        if self.recompute != "full":
            return body(x)
        return t.checkpoint(lambda x, *_: body(x), x, *tables, whole=self.recomputes_whole)

    def parallel(
        self,
        t: Tape,
        x: Tensor,
        first: Callable[[Tensor], Tensor],
        second: Callable[[Tensor], Tensor] | None,
        mix: Callable[[Tensor], Tensor],
        feed: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return x + mix(first(x)) + feed(second(x)), or with one norm for both."""
        y = first(x)
        z = second(x) if second else y
        made = op.add(t, op.add(t, x, mix(y)), feed(z))
        op.hold(t, y, z)
        return made

    def core(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, softcap: bool = False) -> Tensor:
        """Attend causally with q [B, H, n, h] to k, v [B, K, n, h] -> [B, n, H·h]; selective recomputation keeps only q, k, v and bias."""
        inputs = (q, k, v, bias) if bias else (q, k, v)
        attend = partial(self.attention, t, softcap=softcap)
        again = self.recompute == "selective"
        return op.heads_joined(t, t.checkpoint(attend, *inputs, whole=self.recomputes_whole) if again else attend(*inputs))

    def attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, softcap: bool = False) -> Tensor:
        """Attend in one operator -> [B, H, n, h]."""
        if softcap:
            raise NotModelledError(
                "attention in one kernel cannot cap its scores: choose implementation pytorch-eager or transformers-eager"
            )
        return fused_attention(t, q, k, v, bias, dropout=self.dropout)

    def plain_attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, softcap: bool = False) -> Tensor:
        """Attend by a product, a mask, a softmax, dropout and a product -> [B, H, n, h]."""
        H = q.shape[1]
        k, v = self.spread(t, k, H), self.spread(t, v, H)
        scores = op.scale(t, op.matmul_by_head(t, q, k, transposed=True))
        scores = self.capped(t, scores) if softcap else scores
        if bias:
            scores = op.add(t, scores, bias)
        scores = self.masked(t, scores)
        probabilities = self.drop(t, op.softmax(t, scores))
        made = op.matmul_by_head(t, probabilities, v)
        op.hold(t, k, v, scores, probabilities)
        return made

    def capped(self, t: Tape, x: Tensor) -> Tensor:
        """Return cap · tanh(x / cap)."""
        return op.scale(t, op.tanh(t, op.scale(t, x)))

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

    def buffers(self) -> Size:
        """Return the bytes of tensors that belong to the model beside its parameters."""
        return 0

    def loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of logits [B, n, V]."""
        if self.model.logit_softcap:
            logits = self.capped(t, logits)
        kinds = {
            "default": self.own_loss,
            "cross_entropy": self.cross_entropy,
            "cross_entropy_shifted": self.shifted_loss,
            "linear_cross_entropy": self.cross_entropy,  # torch's, without options, is the two one after the other
        }
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
        rows = logits.view(logits.shape[0] * logits.shape[1], logits.shape[2])
        wide = op.cast(t, rows, "float32") if t.precision.autocast and t.device == "cpu" else rows
        loss = op.nll_loss(t, op.raised(t, op.log_softmax(t, wide)), targets)
        op.hold(t, logits, wide)
        return loss

    def shifted_loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return F.cross_entropy of logits[:, :-1] with targets[:, 1:], both copied into rows unless B is 1."""
        B, n, V = logits.shape
        rows = op.contiguous(t, op.split(t, logits, (B, n - 1, V))[0], exceeds_one(B))
        with t.at("", "inputs"):
            ahead = op.contiguous(t, targets.view(B, n - 1), exceeds_one(B))
        loss = self.cross_entropy(t, rows, ahead)
        op.hold(t, logits)
        return loss


class PyTorchEager(PyTorch):
    """The same with attention by products, scores and probabilities in memory."""

    attention = PyTorch.plain_attention

    def buffers(self) -> Size:
        """Return nanoGPT's causal mask: context_length² elements in the weights' dtype for each layer with attention."""
        layers = sum(run.count for run in self.model.runs for layer in run.layers if layer.attention)
        return self.model.context_length * self.model.context_length * BYTES[self.precision.weights] * layers


def correction_biases(model: Model) -> Size:
    """Return how many corrections of scores the routers hold in buffers: stored in checkpoints, no parameters."""
    routers = ((run.count, layer.experts) for run in model.runs for layer in run.layers if layer.experts)
    return sum(count * (experts.count + experts.empty) for count, experts in routers if experts.correction_bias == "buffer")
