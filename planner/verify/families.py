"""Classes of Hugging Face transformers that build the same model as a spec: an independent implementation.

The class that a spec names builds the model, or else the first of ``FAMILIES`` that matches all of its switches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.spec.records import Activation, Experts, FeedForward, Layer, Model, ModelType, Norm, Positions, ScoresDtype
from planner.spec.records.attention import Attention, LatentAttention, QkvProjection
from planner.verify import CannotMeasureError
from planner.verify.modules import attention_of, feed_forward_of

ACTIVATIONS: dict[Activation, str] = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "gelu_new": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu_squared": "relu2",
    "silu": "silu",
}

LAYERNORM, RMSNORM = Norm(), Norm("rmsnorm", weight=True, bias=False)
ALL_BIASES = {"q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True}
NO_BIASES = dict.fromkeys(ALL_BIASES, False)


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers: its config, the switches of all its models, and its names for parameters."""

    config: str
    model: str
    common: Callable[[Model], Model]  # sets the switches that the class fixes
    keys: Callable[[Model, float], dict[str, Any]]  # keys of its config, given the dropout
    names: tuple[tuple[str, str], ...] = ()  # parts of its names, and ours


def layer_of(model: Model) -> Layer:
    """Return the one layer that a uniform model repeats."""
    return model.runs[0].layers[0]


def layers_of(model: Model) -> list[Layer]:
    """Return every layer, first to last."""
    return [layer for run in model.runs for _ in range(run.count) for layer in run.layers]


def rotary(rotary_dim: int) -> Positions:
    """Return rotary positions on this many channels of each head."""
    return Positions("rope", rotary_dim=rotary_dim)


def fixed(
    model: Model,
    layer: Callable[[Layer], Layer],
    positions: Positions,
    norm: Norm,
    **switches: Any,  # noqa: ANN401 - values of the record's own fields
) -> Model:
    """Return the model with the switches of a class: other switches are off, and ``layer`` sets those of each layer."""
    off: dict[str, Any] = {
        "final_norm": True,
        **dict.fromkeys(("embedding_norm", "embedding_scale", "head_bias", "head_transform"), False),
        "extra": (),
    }
    off |= {"causal": True, "segments": 0, "head_type": "language"}
    off |= dict.fromkeys(("logit_softcap", "embedding_dim", "per_layer_embedding"))

    def whole(one: Layer) -> Layer:
        return replace(layer(one), positions=positions, norm=norm)

    runs = tuple(replace(run, layers=tuple(map(whole, run.layers))) for run in model.runs)
    return replace(model, runs=runs, positions=positions, norm=norm, **(off | switches))


def attention(layer: Layer, **switches: Any) -> Attention:  # noqa: ANN401 - values of the record's own fields
    """Return attention with the layer's sizes and these switches."""
    one = attention_of(layer)
    return replace(Attention(one.n_heads, one.n_kv_heads, one.head_dim), **switches)


def feed_forward(layer: Layer, *, gated: bool, bias: bool) -> FeedForward:
    """Return a feed-forward with the layer's sizes and these switches; without a gate, the gate's bias has no meaning."""
    one = feed_forward_of(layer)
    return FeedForward(one.d_ff, gated, one.activation, bias if gated else one.gate_bias, bias, bias)


def model_keys(model: Model) -> dict[str, Any]:
    """Return the keys of the model's own sizes."""
    return {
        "vocab_size": model.padded_vocab_size,
        "max_position_embeddings": model.context_length,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "tie_word_embeddings": model.tied_head,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }


def attention_keys(layer: Layer) -> dict[str, Any]:
    """Return the keys of the attention's sizes."""
    one = attention_of(layer)
    return {"num_attention_heads": one.n_heads, "num_key_value_heads": one.n_kv_heads, "head_dim": one.head_dim}


def dense_keys(model: Model) -> dict[str, Any]:
    """Return the keys that the configs of most dense models share."""
    layer = layer_of(model)
    mlp = feed_forward_of(layer)
    return model_keys(model) | attention_keys(layer) | {"intermediate_size": mlp.d_ff, "hidden_act": ACTIVATIONS[mlp.activation]}


def full_heads(model: Model, qkv: QkvProjection) -> Callable[[Layer], Layer]:
    """Return the layers of GPT-2 and GPT-NeoX: as many KV heads as heads, which fill d_model, a plain feed-forward, all biases."""
    heads = attention_of(layer_of(model)).n_heads

    def layer(one: Layer) -> Layer:
        sizes = {"n_kv_heads": heads, "head_dim": model.d_model // heads}
        return Layer(attention(one, qkv=qkv, **sizes, **ALL_BIASES), feed_forward(one, gated=False, bias=True))

    return layer


def gpt2_common(model: Model) -> Model:
    """Set what GPT2LMHeadModel fixes: learned positions and LayerNorm."""
    return fixed(model, full_heads(model, "fused"), Positions(), LAYERNORM)


def gpt2_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of GPT2Config."""
    mlp = feed_forward_of(layer_of(model))
    return model_keys(model) | {
        "num_attention_heads": attention_of(layer_of(model)).n_heads,
        "n_inner": mlp.d_ff,
        "activation_function": ACTIVATIONS[mlp.activation],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout),
    }


def llama_like(qk_norm: bool = False, qkv_bias: bool | None = None) -> Callable[[Model], Model]:
    """Set what Llama and the classes derived from it fix: RoPE, RMSNorm before each block, a gated feed-forward, separate projections."""

    def layer(one: Layer) -> Layer:
        out = attention_of(one).o_bias if qkv_bias is None else False
        qkv = out if qkv_bias is None else qkv_bias  # Llama's attention_bias is for all four projections, its mlp_bias for all three
        biases = {"q_bias": qkv, "k_bias": qkv, "v_bias": qkv, "o_bias": out}
        mlp = feed_forward_of(one).down_bias and qkv_bias is None and not qk_norm
        head = attention(one, qkv="separate", qk_norm="head_dim" if qk_norm else "none", **biases)
        return Layer(head, feed_forward(one, gated=True, bias=mlp))

    return lambda model: fixed(model, layer, rotary(attention_of(layer_of(model)).head_dim), RMSNORM)


def llama_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of LlamaConfig and of the configs derived from it."""
    layer = layer_of(model)
    biases = {"attention_bias": attention_of(layer).o_bias, "mlp_bias": feed_forward_of(layer).down_bias}
    return dense_keys(model) | biases | {"attention_dropout": dropout}


def mistral_common(model: Model) -> Model:
    """Set what MistralForCausalLM fixes: Llama's modules without biases, and one window for all layers."""
    made, window = llama_like(qkv_bias=False)(model), attention_of(layer_of(model)).window

    def masked(one: Layer) -> Layer:
        return replace(one, attention=replace(attention_of(one), window=window))

    return replace(made, runs=tuple(replace(run, layers=tuple(map(masked, run.layers))) for run in made.runs))


def mistral_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of MistralConfig."""
    return dense_keys(model) | {"sliding_window": attention_of(layer_of(model)).window, "attention_dropout": dropout}


def neox_common(model: Model) -> Model:
    """Set what GPTNeoXForCausalLM fixes: RoPE on a part of each head, LayerNorm, two norms in a block, parallel or sequential."""
    first = layer_of(model)
    block = first.block if first.block == "parallel_two_norms" else "sequential"
    heads = full_heads(model, "fused_per_head")
    return fixed(model, lambda one: replace(heads(one), block=block), rotary(first.positions.rotary_dim), LAYERNORM)


def neox_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of GPTNeoXConfig."""
    layer = layer_of(model)
    share = layer.positions.rotary_dim / attention_of(layer).head_dim
    keys = dense_keys(model)
    del keys["num_key_value_heads"], keys["head_dim"]
    return keys | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share},
        "use_parallel_residual": layer.block == "parallel_two_norms",
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
    }


def gemma2_common(model: Model) -> Model:
    """Set what Gemma2ForCausalLM fixes: norms before and after each block, capped scores and logits, scaled embeddings."""
    first = layer_of(model)
    cap = attention_of(first).logit_softcap

    def layer(one: Layer) -> Layer:
        head = attention(one, qkv="separate", logit_softcap=cap, window=attention_of(one).window, **NO_BIASES)
        return Layer(head, feed_forward(one, gated=True, bias=False), norm_placement="before_and_after")

    norm = replace(RMSNORM, unit_offset=first.norm.unit_offset)
    positions = rotary(attention_of(first).head_dim)
    return fixed(model, layer, positions, norm, logit_softcap=model.logit_softcap, embedding_scale=True)


def gemma2_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of Gemma2Config."""
    windows = [attention_of(layer).window for layer in layers_of(model)]
    keys = dense_keys(model)
    keys["hidden_activation"] = keys.pop("hidden_act")
    return keys | {
        "query_pre_attn_scalar": keys["head_dim"],
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "sliding_window": max((window for window in windows if window), default=model.context_length),
        "attention_dropout": dropout,
    }


def experts_of(layer: Layer) -> Experts:
    """Return the layer's experts. Raises ``CannotMeasureError`` if it has none."""
    if layer.experts is None:
        raise CannotMeasureError("a layer without experts")
    return layer.experts


def with_experts(norm: Literal["none", "head_dim"], scores: ScoresDtype, *, always_normalizes: bool) -> Callable[[Model], Model]:
    """Set what MixtralForCausalLM and Qwen3MoeForCausalLM fix: Llama's layers with experts in place of the feed-forward."""

    def layer(one: Layer) -> Layer:
        its = experts_of(one)
        normalize = always_normalizes or its.normalize
        experts = Experts(its.count, its.top_k, its.d_ff, activation=its.activation, normalize=normalize, scores_dtype=scores)
        return Layer(attention(one, qkv="separate", qk_norm=norm, **NO_BIASES), None, experts=experts)

    return lambda model: fixed(model, layer, rotary(attention_of(layer_of(model)).head_dim), RMSNORM)


def experts_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of MixtralConfig and Qwen3MoeConfig; each ignores those of the other."""
    layer = layer_of(model)
    experts = experts_of(layer)
    sizes = model_keys(model) | attention_keys(layer)
    return sizes | {
        "hidden_act": ACTIVATIONS[experts.activation],
        "intermediate_size": experts.d_ff,
        "moe_intermediate_size": experts.d_ff,
        "num_local_experts": experts.count,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": experts.normalize,
        "sliding_window": None,
        "attention_dropout": dropout,
    }


def latent_of(layer: Layer) -> LatentAttention:
    """Return the layer's latent attention. Raises ``CannotMeasureError`` for any other token mixer."""
    if layer.attention is None and len(layer.mixers) == 1 and isinstance(layer.mixers[0], LatentAttention):
        return layer.mixers[0]
    raise CannotMeasureError("a layer without latent attention")


def deepseek_common(model: Model) -> Model:
    """Set what DeepseekV3ForCausalLM fixes: latent attention; dense layers, then layers with sigmoid-scored and shared experts."""

    def layer(one: Layer) -> Layer:
        mixers = (replace(latent_of(one), bias=False, indexer=None),)
        if one.experts is None:
            return Layer(None, feed_forward(one, gated=True, bias=False), mixers)
        its = one.experts
        experts = Experts(its.count, its.top_k, its.d_ff, scoring="sigmoid", correction_bias="buffer", shared_d_ff=its.shared_d_ff)
        return Layer(None, None, mixers, experts)

    return fixed(model, layer, rotary(latent_of(layer_of(model)).rope_dim), RMSNORM)


def deepseek_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of DeepseekV3Config."""
    layers = layers_of(model)
    dense = [layer for layer in layers if layer.experts is None]
    latent, experts = latent_of(layers[0]), experts_of(layers[-1])
    if layers[: len(dense)] != dense or not dense or (experts.shared_d_ff or 0) % experts.d_ff:
        raise CannotMeasureError(
            "DeepseekV3ForCausalLM requires dense layers before those with experts, and shared experts as wide as several routed ones"
        )
    return model_keys(model) | {
        "num_attention_heads": latent.n_heads,
        "num_key_value_heads": latent.n_heads,
        "kv_lora_rank": latent.kv_rank,
        "q_lora_rank": latent.q_rank,
        "qk_rope_head_dim": latent.rope_dim,
        "qk_nope_head_dim": latent.nope_dim,
        "v_head_dim": latent.v_dim,
        "intermediate_size": feed_forward_of(dense[0]).d_ff,
        "first_k_dense_replace": len(dense),
        "n_routed_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.d_ff,
        "n_shared_experts": (experts.shared_d_ff or 0) // experts.d_ff,
        "n_group": 1,
        "topk_group": 1,
        "attention_dropout": dropout,
    }


GPT2_NAMES = (
    ("transformer.wte.", "model.embed_tokens."), ("transformer.wpe.", "model.embed_positions."), ("transformer.ln_f.", "model.norm."),
    ("transformer.h.", "model.layers."), (".ln_1.", ".input_layernorm."), (".ln_2.", ".post_attention_layernorm."),
    (".attn.c_attn.", ".self_attn.qkv_proj."), (".attn.c_proj.", ".self_attn.o_proj."), (".attn.", ".self_attn."),
    ("transformer.", "model."), (".mlp.c_fc.", ".mlp.up_proj."), (".mlp.c_proj.", ".mlp.down_proj."),
)  # fmt: skip
NEOX_NAMES = (
    ("gpt_neox.embed_in.", "model.embed_tokens."), ("gpt_neox.final_layer_norm.", "model.norm."), ("gpt_neox.layers.", "model.layers."),
    (".attention.query_key_value.", ".self_attn.qkv_proj."), (".attention.dense.", ".self_attn.o_proj."), (".attention.", ".self_attn."),
    (".mlp.dense_h_to_4h.", ".mlp.up_proj."), (".mlp.dense_4h_to_h.", ".mlp.down_proj."), ("embed_out.", "lm_head."),
    ("gpt_neox.", "model."),
)  # fmt: skip

# An activation is a module of its own there, and belongs to the module that calls it here.
ACTIVATION_NAMES = ((".act_fn.", "."), (".act.", "."))

FAMILIES: dict[ModelType, Family] = {
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", gpt2_common, gpt2_keys, GPT2_NAMES),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", llama_like(), llama_keys),
    "mistral": Family("MistralConfig", "MistralForCausalLM", mistral_common, mistral_keys),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", llama_like(qkv_bias=True), llama_keys),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", llama_like(qk_norm=True), llama_keys),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", neox_common, neox_keys, NEOX_NAMES),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", gemma2_common, gemma2_keys),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", with_experts("none", "fp32", always_normalizes=True), experts_keys),
    "qwen3_moe": Family(
        "Qwen3MoeConfig", "Qwen3MoeForCausalLM", with_experts("head_dim", "compute", always_normalizes=False), experts_keys
    ),
    "deepseek_v3": Family("DeepseekV3Config", "DeepseekV3ForCausalLM", deepseek_common, deepseek_keys),
}


def family_of(model: Model) -> Family:
    """Return the class that the spec names, or the first that matches the model. Raises ``CannotMeasureError`` if none does."""
    if model.model_type and model.model_type not in FAMILIES:
        raise CannotMeasureError(f"the class of {model.model_type} is built from a config.json only: verify that")
    families = [FAMILIES[model.model_type]] if model.model_type else [*FAMILIES.values()]
    for family in families:
        if matches(family, model):
            return family
    classes = ", ".join(family.model for family in families)
    raise CannotMeasureError(f"no equivalent transformers class is known for this spec; tried {classes}")


def matches(family: Family, model: Model) -> bool:
    """Whether every switch of the model is the class's, and all layers are alike except where the config has a list."""
    layers = [layer for run in model.runs for layer in run.layers]
    # A window only masks scores, and the config lists which layers have experts.
    alike = {replace(one, attention=one.attention and replace(one.attention, window=None)) for one in layers if one.experts is None}
    with suppress(CannotMeasureError):
        return len(alike) <= 1 and family.common(model) == model
    return False
