"""Llama 3's modules as torchtitan runs them, built from the description of its source.

Read from pytorch/torchtitan 0.2.2: models/llama3/model/model.py, models/attention.py, components/loss.py, and
distributed/activation_checkpoint.py with the defaults of config/job_config.py. Sizes in shapes as in ``planner.verify.modules``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from planner.spec.records import Attention, AttentionKernel, Layer, Model, Norm, Training
from planner.verify.modules import MLP, attention_of, check_buildable, feed_forward_of
from planner.verify.parts import ROTARY_BASE, Module, UnbuildableError, make_norm

aten = torch.ops.aten
SAVED = (  # operators whose outputs selective recomputation saves, if they run on one device
    aten.mm.default,
    aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001 - operators have no public names
    aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001 - the same
)
KERNELS: tuple[AttentionKernel, ...] = ("cudnn", "flash", "math")  # of attention, in order of preference (sdpa_kernel, set_priority)


def check(model: Model, training: Training) -> None:
    """Raise UnbuildableError unless these modules are the spec's."""
    check_buildable(model)
    plain = Norm("rmsnorm", bias=False)
    parts: dict[str, object] = {
        "training.dropout": training.dropout, "head.tied": model.tied_head, "head.bias": model.head_bias,
        "head.logit_softcap": model.logit_softcap, "embedding_scale": model.embedding_scale, "embedding_norm": model.embedding_norm,
    }  # fmt: skip
    for layer in (layer for run in model.runs for layer in run.layers):
        kind, feed = attention_of(layer), feed_forward_of(layer)
        parts |= {
            "positions": layer.positions.type != "rope" or layer.positions.rotary_dim != kind.head_dim,
            "norm": layer.norm != plain or model.norm != plain or layer.norm_placement != "before" or not model.final_norm,
            "block": layer.block != "sequential",
            "attention": kind != Attention(kind.n_heads, kind.n_kv_heads, kind.head_dim, qkv="separate", q_bias=False, k_bias=False,
                                           v_bias=False, o_bias=False),
            "feed_forward": not feed.gated or feed.activation != "silu" or feed.gate_bias or feed.up_bias or feed.down_bias,
        }  # fmt: skip
        for name, other in parts.items():
            if other:
                raise UnbuildableError(f"implementation torchtitan is built for Llama 3's modules only; {name} differs")


def rotate(q: Tensor, k: Tensor, rotations: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply pairs of channels of q (B, n, H, h) and k (B, n, K, h), as complex numbers, by ``rotations`` (context, h / 2)."""
    wide_q = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    wide_k = torch.view_as_complex(k.float().reshape(*k.shape[:-1], -1, 2))
    of_tokens = rotations[: q.shape[1]][None, :, None, :]
    turned_q = torch.view_as_real(wide_q * of_tokens).flatten(3)
    turned_k = torch.view_as_real(wide_k * of_tokens).flatten(3)
    return turned_q.type_as(q), turned_k.type_as(k)


class SelfAttention(Module):
    """Causal attention, (B, n, d) to (B, n, d)."""

    def __init__(self, d_model: int, record: Attention, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.record = record
        linear = partial(nn.Linear, bias=False, device=device, dtype=dtype)
        self.q_proj = linear(d_model, record.n_heads * record.head_dim)
        self.k_proj = linear(d_model, record.n_kv_heads * record.head_dim)
        self.v_proj = linear(d_model, record.n_kv_heads * record.head_dim)
        self.o_proj = linear(record.n_heads * record.head_dim, d_model)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Return what the layer adds to x (B, n, d), of the same shape."""
        B, n, _ = x.shape
        q, k, v = (projection(x).view(B, n, -1, self.record.head_dim) for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, k, rotations)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        grouped = self.record.n_heads > self.record.n_kv_heads
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped).transpose(1, 2).contiguous()
        y = y.view(B, n, -1)
        out: Tensor = self.o_proj(y)
        return out


class Block(Module):
    """A decoder layer, (B, n, d) to (B, n, d)."""

    def __init__(self, model: Model, layer: Layer, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.input_layernorm = make_norm(model.d_model, layer.norm, device, dtype)
        self.self_attn = SelfAttention(model.d_model, attention_of(layer), device, dtype)
        self.post_attention_layernorm = make_norm(model.d_model, layer.norm, device, dtype)
        self.mlp = MLP(model.d_model, feed_forward_of(layer), 0.0, device, dtype)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Return x (B, n, d) after this layer."""
        between = x + self.self_attn(self.input_layernorm(x), rotations)
        return between + self.mlp(self.post_attention_layernorm(between))


class Policy:
    """Selective recomputation by operator: saves the outputs of fused attention and of every other matrix product, the first one's on."""

    def __init__(self) -> None:
        self.products = Counter[bool]()  # so far, in the forward pass and when it is run again

    def __call__(self, context: SelectiveCheckpointContext, operator: object, *_: object, **__: object) -> CheckpointPolicy:
        """Decide for one operator."""
        if operator is aten.mm.default:
            self.products[context.is_recompute] += 1
            if self.products[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operator in SAVED else CheckpointPolicy.PREFER_RECOMPUTE


def selective() -> tuple[Any, Any]:
    """Return the contexts of a forward pass and of its recomputation."""
    made: tuple[Any, Any] = create_selective_checkpoint_contexts(Policy())  # type: ignore[no-untyped-call] # untyped in torch
    return made


class Decoder(Module):
    """Token ids (B, n) to the last hidden states (B, n, d)."""

    rotations: Tensor

    def __init__(self, model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.recompute, self.every = training.recompute, training.recompute_every
        self.embed_tokens = nn.Embedding(model.padded_vocab_size, model.d_model, device=device, dtype=dtype)
        layers = [layer for run in model.runs for _ in range(run.count) for layer in run.layers]
        self.layers = nn.ModuleList(Block(model, layer, device, dtype) for layer in layers)
        self.norm = make_norm(model.d_model, model.norm, device, dtype)
        width = attention_of(layers[0]).head_dim
        inverse = ROTARY_BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        angles = torch.outer(torch.arange(model.context_length, device=device, dtype=torch.float32), inverse)
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def run_layer(self, number: int, block: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the layer, checkpointed if the training recomputes it. Layers are numbered from 1."""
        if self.recompute == "none" or number % self.every:
            return block
        contexts = selective if self.recompute == "selective" else noop_context_fn

        def run(x: Tensor, rotations: Tensor) -> Tensor:
            with torch.utils.checkpoint.set_checkpoint_early_stop(enable=False):
                made: Tensor = checkpoint(block, x, rotations, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
                return made

        return run

    def forward(self, ids: Tensor) -> Tensor:
        """Return the last hidden states (B, n, d) of token ids (B, n)."""
        x = self.embed_tokens(ids)
        for number, block in enumerate(self.layers, 1):
            x = self.run_layer(number, block)(x, self.rotations)
        made: Tensor = self.norm(x)
        return made


class CausalLM(Module):
    """The whole model, token ids (B, n) to logits (B, n, V). Raises ``UnbuildableError``."""

    def __init__(self, model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        check(model, training)
        self.model = Decoder(model, training, device, dtype)
        self.lm_head = nn.Linear(model.d_model, model.padded_vocab_size, bias=False, device=device, dtype=dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (B, n, V) of token ids (B, n)."""
        x = self.model(ids)
        made: Tensor = self.lm_head(x)
        return made


def loss(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the sum of the cross entropy in float32, divided by the number of tokens, a tensor; both live until the step ends."""
    logits = module(ids)
    tokens = torch.ones((), device=ids.device)
    total = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1), reduction="sum")
    return total / tokens, logits
