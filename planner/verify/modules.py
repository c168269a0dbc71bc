"""The model of a spec in plain ``torch.nn.Module``s, in the style of nanoGPT.

The modules depend on the records of the spec only, not on the planner's trace. Sizes in shapes: B sequences of n tokens,
H query heads and K key/value heads of width h, d the residual stream's width, V the rows of the token embedding.

Where a spec leaves a choice, the modules do the following:

- RoPE tables, the sinusoidal table and the ALiBi bias are computed in each forward pass, in the weights' dtype, once for all layers that
  share them; only the causal mask of ``pytorch-eager`` is a buffer of each layer, as in nanoGPT.
- Queries and keys are normalized, then rotated, in the layout (B, n, H, h).
- Grouped keys and values are repeated inside the fused kernel (``enable_gqa``), or as expanded copies in ``pytorch-eager``.
- The embedding norm reads the sum of token and position embeddings; dropout comes after it.
- Modules are registered in the order in which they run.
- Dropout is applied as in nanoGPT: to the embedding, to the attention probabilities, and after the last projection of attention and
  feed-forward.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it
from torch.utils.checkpoint import checkpoint

from planner.spec.records import Attention, FeedForward, Layer, Model, Training
from planner.trace.plain import beyond_plain_modules
from planner.verify.parts import ACTIVATIONS, Module, UnbuildableError, alibi_bias, make_norm, rotary_tables, rotate, sinusoids, softcap

BUILT = ("pytorch", "pytorch-eager")
SCORES_CAP, LOGITS_CAP = 50.0, 30.0  # Gemma 2's; no size depends on them
Tables = dict[tuple[str, int], tuple[Tensor, ...]]  # ("rope", rotary_dim): cosines and sines; ("alibi", n_heads): the bias
INIT_STD = 0.02  # GPT-2's; small enough that the initial loss is near ln V


def attention_of(layer: Layer) -> Attention:
    """Return the layer's attention. Raises UnbuildableError for any other token mixer."""
    if layer.attention is None or layer.mixers:
        raise UnbuildableError("these modules support attention of heads only, without another token mixer")
    return layer.attention


def feed_forward_of(layer: Layer) -> FeedForward:
    """Return the layer's feed-forward. Raises UnbuildableError for experts, and for a layer without either."""
    if layer.feed_forward is None or layer.experts is not None:
        raise UnbuildableError("these modules have one feed-forward in each layer, and no experts")
    return layer.feed_forward


def check_buildable(model: Model) -> None:
    """Raise UnbuildableError for the first part of the spec that these modules do not have."""
    for layer in (layer for run in model.runs for layer in run.layers):
        attention_of(layer), feed_forward_of(layer)
    for name in beyond_plain_modules(model):
        raise UnbuildableError(f"planner verify cannot build {name}")


class SelfAttention(Module):
    """Causal attention, (B, n, d) to (B, n, d)."""

    mask: Tensor  # pytorch-eager only: ones on and below the diagonal, (1, 1, context_length, context_length)

    def __init__(self, model: Model, layer: Layer, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        record = attention_of(layer)
        self.record = record
        self.rope = layer.positions.type == "rope"
        self.rotary_dim = layer.positions.rotary_dim
        self.alibi = layer.positions.type == "alibi"
        if training.implementation not in BUILT:
            raise UnbuildableError(f"implementation {training.implementation} cannot be built in PyTorch here; use {' or '.join(BUILT)}")
        self.eager = training.implementation == "pytorch-eager"
        self.softcap = record.logit_softcap
        if self.softcap and not self.eager:
            raise UnbuildableError("attention.logit_softcap is not supported by fused attention; use implementation: pytorch-eager")
        self.recompute_core = training.recompute == "selective"
        self.dropout = float(training.dropout)
        widths = [record.n_heads * record.head_dim, record.n_kv_heads * record.head_dim, record.n_kv_heads * record.head_dim]

        def linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype)

        if record.qkv == "separate":
            self.q_proj = linear(model.d_model, widths[0], record.q_bias)
            self.k_proj = linear(model.d_model, widths[1], record.k_bias)
            self.v_proj = linear(model.d_model, widths[2], record.v_bias)
        else:
            if not record.q_bias == record.k_bias == record.v_bias:
                raise UnbuildableError(f"a {record.qkv} qkv projection has one bias: q, k and v bias must be equal")
            self.qkv_proj = linear(model.d_model, sum(widths), record.q_bias)
        if record.qk_norm != "none":
            full = record.qk_norm == "full_width"
            norm = replace(layer.norm, weight=True, bias=False)
            self.q_norm = make_norm(widths[0] if full else record.head_dim, norm, device, dtype)
            self.k_norm = make_norm(widths[1] if full else record.head_dim, norm, device, dtype)
        self.o_proj = linear(widths[0], model.d_model, record.o_bias)
        if self.eager:
            square = torch.ones(model.context_length, model.context_length, device=device, dtype=dtype)
            self.register_buffer("mask", torch.tril(square).view(1, 1, model.context_length, model.context_length))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, n, H, h), keys and values (B, n, K, h)."""
        B, n, _ = x.shape
        H, K, h = self.record.n_heads, self.record.n_kv_heads, self.record.head_dim
        if self.record.qkv == "fused_per_head":
            groups = self.qkv_proj(x).view(B, n, K, H // K + 2, h)
            q, k, v = groups.split([H // K, 1, 1], dim=3)
            q, k, v = q.reshape(B, n, H, h), k.squeeze(3), v.squeeze(3)
        elif self.record.qkv == "fused":
            q, k, v = self.qkv_proj(x).split([H * h, K * h, K * h], dim=2)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.record.qk_norm == "full_width":
            q, k = self.q_norm(q.reshape(B, n, H * h)), self.k_norm(k.reshape(B, n, K * h))
        q, k, v = q.view(B, n, H, h), k.view(B, n, K, h), v.view(B, n, K, h)
        if self.record.qk_norm == "head_dim":
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def core(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Attend: q (B, H, n, h), k and v (B, K, n, h) to (B, H, n, h)."""
        dropout = self.dropout if self.training else 0.0
        groups = self.record.n_heads // self.record.n_kv_heads
        n = q.shape[2]
        if not self.eager:
            if bias is None:
                return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=groups > 1)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, enable_gqa=groups > 1)
        if groups > 1:
            k, v = (x[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2) for x in (k, v))
        scores = softcap((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.record.head_dim)), SCORES_CAP if self.softcap else None)
        if bias is not None:
            scores = scores + bias
        scores = scores.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf"))
        probabilities = F.dropout(F.softmax(scores, dim=-1), dropout)
        return probabilities @ v

    def forward(self, x: Tensor, tables: Tables) -> Tensor:
        """Return what the layer adds to x (B, n, d), of the same shape."""
        B, n, _ = x.shape
        q, k, v = self.project(x)
        bias = None
        if self.rope:
            cos, sin = tables["rope", self.rotary_dim]
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.alibi:
            (bias,) = tables["alibi", self.record.n_heads]
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if self.recompute_core:
            y = checkpoint(self.core, q, k, v, bias, use_reentrant=False, preserve_rng_state=False)
        else:
            y = self.core(q, k, v, bias)
        y = y.transpose(1, 2).contiguous().view(B, n, -1)
        return F.dropout(self.o_proj(y), self.dropout, self.training)


class MLP(Module):
    """Feed-forward, (B, n, d) to (B, n, d)."""

    def __init__(self, d_model: int, record: FeedForward, dropout: float, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[record.activation]
        self.dropout = dropout
        self.gate_proj = nn.Linear(d_model, record.d_ff, bias=record.gate_bias, device=device, dtype=dtype) if record.gated else None
        self.up_proj = nn.Linear(d_model, record.d_ff, bias=record.up_bias, device=device, dtype=dtype)
        self.down_proj = nn.Linear(record.d_ff, d_model, bias=record.down_bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer adds to x (B, n, d), of the same shape."""
        hidden = self.activation(self.up_proj(x)) if self.gate_proj is None else self.activation(self.gate_proj(x)) * self.up_proj(x)
        return F.dropout(self.down_proj(hidden), self.dropout, self.training)


# The norms before attention, after it, before the feed-forward and after it, by placement.
PLACEMENTS: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "before_and_after": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
}


class Block(Module):
    """A decoder layer, (B, n, d) to (B, n, d)."""

    def __init__(self, model: Model, layer: Layer, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.kind = layer.block
        if self.kind != "sequential" and layer.norm_placement != "before":
            raise UnbuildableError(f"a {self.kind} block requires norm.placement: before, not {layer.norm_placement}")
        self.norms = before_attention, after_attention, before_mlp, after_mlp = PLACEMENTS[layer.norm_placement]

        def add_norms(*names: str | None) -> None:
            for name in names:
                if name:
                    self.add_module(name, make_norm(model.d_model, layer.norm, device, dtype))

        add_norms(before_attention, before_mlp if self.kind == "parallel_two_norms" else None)
        self.self_attn = SelfAttention(model, layer, training, device, dtype)
        add_norms(after_attention, before_mlp if self.kind == "sequential" else None)
        self.mlp = MLP(model.d_model, feed_forward_of(layer), float(training.dropout), device, dtype)
        add_norms(after_mlp)

    def normed(self, name: str | None, x: Tensor) -> Tensor:
        """Apply the norm of this name, or none."""
        if name is None:
            return x
        result: Tensor = self.get_submodule(name)(x)
        return result

    def forward(self, x: Tensor, tables: Tables) -> Tensor:
        """Return x (B, n, d) after this layer."""
        before_attention, after_attention, before_mlp, after_mlp = self.norms
        if self.kind != "sequential":
            first = self.normed(before_attention, x)
            second = first if self.kind == "parallel_one_norm" else self.normed(before_mlp, x)
            return x + self.self_attn(first, tables) + self.mlp(second)
        x = x + self.normed(after_attention, self.self_attn(self.normed(before_attention, x), tables))
        return x + self.normed(after_mlp, self.mlp(self.normed(before_mlp, x)))


class Decoder(Module):
    """Token ids (B, n) to the last hidden states (B, n, d)."""

    def __init__(self, model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        check_buildable(model)
        self.record, self.dtype = model, dtype
        self.dropout = float(training.dropout)
        self.recompute_every = training.recompute_every if training.recompute == "full" else 0
        self.embed_tokens = nn.Embedding(model.padded_vocab_size, model.d_model, device=device, dtype=dtype)
        self.offset = model.positions.offset
        learned = model.positions.type == "learned"
        rows = model.context_length + self.offset
        self.embed_positions = nn.Embedding(rows, model.d_model, device=device, dtype=dtype) if learned else None
        self.embed_norm = make_norm(model.d_model, model.norm, device, dtype) if model.embedding_norm else None
        layers = [layer for run in model.runs for _ in range(run.count) for layer in run.layers]
        self.layers = nn.ModuleList(Block(model, layer, training, device, dtype) for layer in layers)
        self.norm = make_norm(model.d_model, model.norm, device, dtype) if model.final_norm else None
        self.tables = dict.fromkeys(
            ("rope", layer.positions.rotary_dim) if layer.positions.type == "rope" else ("alibi", attention_of(layer).n_heads)
            for layer in layers
            if layer.positions.type in ("rope", "alibi")
        )

    def make_tables(self, n: int, device: torch.device) -> Tables:
        """Return the tables that layers share: RoPE tables by rotary dimension and ALiBi biases by number of heads."""
        return {
            (kind, size): rotary_tables(n, size, device, self.dtype) if kind == "rope" else (alibi_bias(n, size, device, self.dtype),)
            for kind, size in self.tables
        }

    def forward(self, ids: Tensor) -> Tensor:
        """Return the last hidden states (B, n, d) of token ids (B, n)."""
        n = ids.shape[1]
        x = self.embed_tokens(ids)
        if self.record.embedding_scale:
            x = x * self.record.d_model**0.5
        if self.embed_positions is not None:
            positions = torch.arange(self.offset, self.offset + n, dtype=torch.long, device=ids.device)
            x = x + self.embed_positions(positions)
        elif self.record.positions.type == "sinusoidal":
            x = x + sinusoids(n, self.record.d_model, ids.device, self.dtype)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        x = F.dropout(x, self.dropout, self.training)
        tables = self.make_tables(n, ids.device)
        for number, block in enumerate(self.layers, 1):
            again = self.recompute_every and number % self.recompute_every == 0
            x = checkpoint(block, x, tables, use_reentrant=False, preserve_rng_state=False) if again else block(x, tables)
        return x if self.norm is None else self.norm(x)


class CausalLM(Module):
    """The whole model, token ids (B, n) to logits (B, n, V). Raises ``UnbuildableError``."""

    def __init__(self, model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = Decoder(model, training, device, dtype)
        self.lm_head = nn.Linear(model.d_model, model.padded_vocab_size, bias=model.head_bias, device=device, dtype=dtype)
        self.softcap = model.logit_softcap
        if model.tied_head:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (B, n, V) of token ids (B, n)."""
        return self.head(self.model(ids))

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits (B, n, V) of the last hidden states (B, n, d)."""
        return softcap(self.lm_head(hidden), LOGITS_CAP if self.softcap else None)

    def loss(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy of the targets (B, n), a scalar, and the logits."""
        hidden = self.model(ids)  # allocated until the loss is computed, as in nanoGPT's single forward function
        logits = self.head(hidden)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)), logits

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize as GPT-2 does: matrices and embeddings normal with a small deviation, biases zero, norms unchanged."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(std=INIT_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()


def parameters(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name, a tied one once."""
    training = Training(batch_size=1, sequence_length=1)
    module = CausalLM(without_masks(model), training, torch.device("meta"), torch.float32)
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def without_masks(model: Model) -> Model:
    """Return the model without windows and soft-capping, which store no weights."""

    def plain(layer: Layer) -> Layer:
        return replace(layer, attention=replace(attention_of(layer), window=None, chunked=False, logit_softcap=None))

    return replace(model, runs=tuple(replace(run, layers=tuple(map(plain, run.layers))) for run in model.runs))
