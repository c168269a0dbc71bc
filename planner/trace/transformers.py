"""The modules of Hugging Face transformers 5: the implementations ``transformers`` (fused attention) and ``transformers-eager``.

Read from transformers 5.24: models/llama/modeling_llama.py (qwen2 and qwen3 share its parts), models/gpt_neox/modeling_gpt_neox.py,
models/gpt2/modeling_gpt2.py, models/gemma2/modeling_gemma2.py, integrations/sdpa_attention.py, loss/loss_utils.py, activations.py.
A norm is a sequence of operators there, eager attention keeps scores and probabilities in two dtypes, and the loss reads float32 logits.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.spec.precision import BYTES
from planner.spec.records import Activation, Norm
from planner.trace import primitives as op
from planner.trace.pytorch import PyTorch, correction_biases
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


class Transformers(PyTorch):
    """Hugging Face transformers 5 with scaled_dot_product_attention."""

    def drop(self, t: Tape, x: Tensor) -> Tensor:
        """Apply dropout to the embedding and the residual branches; models with RMSNorm have it on the attention's probabilities only."""
        return x if self.model.norm.type == "rmsnorm" else super().drop(t, x)

    def norm(self, t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Normalise [.., d]: nn.LayerNorm in one kernel, RMSNorm operator by operator in float32."""
        if kind.type == "layernorm":
            return op.layer_norm(t, x, weight, bias)
        wide = op.cast(t, x, "float32")
        normed = op.multiply(t, wide, op.rsqrt(t, op.mean(t, op.square(t, wide))))
        if weight is None:
            return op.cast(t, normed, x.dtype)
        if kind.unit_offset:
            return op.cast(t, op.multiply(t, normed, op.shift(t, op.cast(t, weight, "float32"))), x.dtype)
        return op.multiply(t, weight, op.cast(t, normed, x.dtype))

    def activation(self, t: Tape, name: Activation, x: Tensor) -> Tensor:
        """Apply the feed-forward's function; ``gelu_new`` is written out: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
        if name != "gelu_new":
            return super().activation(t, name, x)
        bent = op.tanh(t, op.scale(t, op.add(t, x, op.scale(t, op.square(t, x)))))
        return op.multiply(t, op.scale(t, x), op.shift(t, bent))

    def parallel(
        self,
        t: Tape,
        x: Tensor,
        first: Callable[[Tensor], Tensor],
        second: Callable[[Tensor], Tensor] | None,
        mix: Callable[[Tensor], Tensor],
        feed: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return feed(second(x)) + mix(first(x)) + x, or with one norm for both, in GPT-NeoX's order."""
        y = first(x)
        mixed = mix(y)
        fed = feed(second(x) if second else y)
        made = op.add(t, op.add(t, fed, mixed), x)
        op.hold(t, mixed, fed)
        return made

    def position_ids(self, t: Tape, n: Size) -> Tensor | None:
        """Return the positions [1, n] that are handed to every layer, but not where they were looked up in a table."""
        if self.model.positions.type == "learned":
            return None
        places = t.tensor((1, n), "int64", needs_grad=False)
        t.record("arange", [], [places], by=self.position_ids)
        return places

    def rotate(self, t: Tape, x: Tensor, tables: tuple[Tensor, Tensor], *, interleaved: bool = False) -> Tensor:
        """Rotate x [B, heads, n, h]. Joining the rotated part to the rest, as GPT-NeoX always does, makes a tensor that lies by head."""
        made = super().rotate(t, x, tables)
        whole = tables[0].shape[-1] == x.shape[-1]
        if whole and interleaved:
            made = op.cat(t, made)
        made.by_head = interleaved or not whole
        return made

    def attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, softcap: bool = False) -> Tensor:
        """Attend in one kernel -> [B, H, n, h]."""
        return super().attention(t, q, self.cached(t, k), self.cached(t, v), bias, softcap=softcap)

    def cached(self, t: Tape, x: Tensor) -> Tensor:
        """Return keys or values as the cache gives them back: joined to an empty tensor, which copies them by head."""
        if not self.kv_cache:
            return x
        copy = op.contiguous(t, x, 1)
        copy.by_head = True
        copy.parts[0][0].until_forward_ends = True  # the model returns the cache
        return copy

    def buffers(self) -> Size:
        """Return the inverse frequencies of the rotary embedding and their copy, in float32, and the scale of the embedding."""
        layers = [layer for run in self.model.runs for layer in run.layers]
        dims = dict.fromkeys(layer.positions.rotary_dim for layer in layers if layer.positions.type == "rope")
        scale = BYTES[self.precision.weights] if self.model.embedding_scale else 0
        biases = correction_biases(self.model)
        return sum(2 * BYTES["float32"] * (dim // 2) for dim in dims) + scale + BYTES["float32"] * biases

    def own_loss(self, t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
        """Return ForCausalLMLoss: cross entropy in float32, with the labels moved on by one."""
        B, n, V = logits.shape
        wide = op.cast(t, logits.view(B * n, V), "float32")
        with t.at("", "inputs"):
            padded = t.tensor((B, n + 1), "int64", needs_grad=False)
            t.record("pad", [targets], [padded], by=self.own_loss)
            ahead = op.contiguous(t, padded.view(B, n), exceeds_one(B))  # without the first, which is a copy unless B is 1
        loss = op.nll_loss(t, op.log_softmax(t, wide), ahead)
        op.hold(t, wide, logits, padded)
        return loss


class TransformersEager(Transformers):
    """The same with attention by products, an additive mask and a softmax in float32."""

    def mask(self, t: Tape, B: Size, n: Size) -> Tensor | None:
        """Return the additive causal mask [B, 1, n, n], made once in the embedding's dtype."""
        made = t.tensor((B, 1, n, n), self.precision.weights, needs_grad=False)
        t.record("causal mask", [], [made], by=self.mask)
        return made

    def attention(self, t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, softcap: bool = False) -> Tensor:
        """Attend by products -> [B, H, n, h]; scores and probabilities stay in memory."""
        k, v = self.cached(t, k), self.cached(t, v)
        H, gpt2 = q.shape[1], self.is_gpt2
        dtype = v.dtype if gpt2 else q.dtype
        k, v = self.spread(t, k, H), self.spread(t, v, H)
        scores = op.scale(t, op.matmul_by_head(t, q, k, transposed=True))
        scores = self.capped(t, scores) if softcap else scores
        scores = op.add(t, scores, bias) if bias else scores
        probabilities = op.softmax(t, scores if gpt2 else op.cast(t, scores, "float32"))
        probabilities = op.cast(t, probabilities, dtype)
        probabilities = op.dropout(t, probabilities) if self.dropout else probabilities
        made = op.matmul_by_head(t, probabilities, v)
        joined = op.heads_joined(t, made).view(*made.shape)  # inside the function, where keys and values of all heads are at hand
        op.hold(t, k, v)
        self.returned.append(probabilities)
        return joined

    def layer(self, t: Tape, body: Callable[..., Tensor], x: Tensor, *tables: Tensor) -> Tensor:
        """Run a layer, whose function names until its end what attention returns beside its output: the probabilities."""

        def whole(x: Tensor) -> Tensor:
            self.returned: list[Tensor] = []
            made = body(x)
            op.hold(t, *self.returned)
            return made

        return super().layer(t, whole, x, *tables)

    @property
    def is_gpt2(self) -> bool:
        """Whether the attention is GPT-2's own, which takes the softmax in whatever dtype autocast chooses."""
        first = self.model.runs[0].layers[0].attention
        return self.model.positions.type == "learned" and first is not None and first.qkv == "fused"
