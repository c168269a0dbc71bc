"""The classes of Hugging Face transformers that say the same model as a spec: an independent statement of it.

The class that a spec names, or the first of ``FAMILIES`` whose every switch is the spec's, builds the model; if none does, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.spec.records import (
    Activation,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Model,
    ModelType,
    Norm,
    Positions,
    ScoresDtype,
)
from planner.verify import CannotMeasureError
from planner.verify.modules import attention_of, feed_forward_of

ACTIVATIONS: dict[Activation, str] = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "gelu_new": "gelu_new",
    "relu": "relu",
    "relu_squared": "relu2",
    "silu": "silu",
}

LAYERNORM, RMSNORM = Norm(), Norm("rmsnorm", weight=True, bias=False)
LEARNED, ROTARY = Positions(), Positions("rope")
ALL_BIASES = {"q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True}
NO_BIASES = dict.fromkeys(ALL_BIASES, False)


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers: its config, what all its models have in common, and its names for parameters."""

    config: str
    model: str
    common: Callable[[Model], Model]  # the model with the switches that the class fixes
    keys: Callable[[Model, float], dict[str, Any]]  # its config's keys, given the dropout
    names: tuple[tuple[str, str], ...] = ()  # parts of its parameters' names, and ours for them


def layer_of(model: Model) -> Layer:
    """Return the one layer that a uniform model repeats."""
    return model.runs[0].layers[0]


def fixed(model: Model, layer: Callable[[Layer], Layer], **switches: Any) -> Model:  # noqa: ANN401 - values of the record's own fields
    """Return the model with its switches set, in all its layers too: what is not named is left out."""
    left_out: dict[str, Any] = {
        "embedding_norm": False,
        "embedding_scale": False,
        "final_norm": True,
        "head_bias": False,
        "logit_softcap": None,
        "embedding_dim": None,
        "per_layer_embedding": None,
        "extra": (),
    }
    runs = tuple(replace(run, layers=tuple(layer(one) for one in run.layers)) for run in model.runs)
    return replace(model, runs=runs, **(left_out | switches))


def attention(layer: Layer, **switches: Any) -> Attention:  # noqa: ANN401 - values of the record's own fields
    """Return attention of the layer's sizes with some switches set."""
    one = attention_of(layer)
    return replace(Attention(one.n_heads, one.n_kv_heads, one.head_dim), **switches)


def feed_forward(layer: Layer, *, gated: bool, bias: bool) -> FeedForward:
    """Return the layer's feed-forward with its form set; where there is no gate, its bias is nothing."""
    one = feed_forward_of(layer)
    return FeedForward(one.d_ff, gated, one.activation, bias if gated else one.gate_bias, bias, bias)


def sizes(model: Model) -> dict[str, Any]:
    """Return the keys that most configs share."""
    layer = layer_of(model)
    return of_model(model) | {
        "num_attention_heads": attention_of(layer).n_heads,
        "num_key_value_heads": attention_of(layer).n_kv_heads,
        "head_dim": attention_of(layer).head_dim,
        "intermediate_size": feed_forward_of(layer).d_ff,
        "hidden_act": ACTIVATIONS[feed_forward_of(layer).activation],
    }


def of_model(model: Model) -> dict[str, Any]:
    """Return the keys that say what is once in the model."""
    return {
        "vocab_size": model.padded_vocab_size,
        "max_position_embeddings": model.context_length,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "tie_word_embeddings": model.tied_head,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def gpt2_common(model: Model) -> Model:
    """Set what GPT2LMHeadModel fixes: learned positions, LayerNorm, a plain feed-forward, all biases, as many kv heads as heads."""
    heads = attention_of(layer_of(model)).n_heads

    def layer(one: Layer) -> Layer:
        head = attention(one, qkv="fused", n_kv_heads=heads, head_dim=model.d_model // heads, qk_norm="none", **ALL_BIASES)
        return Layer(head, feed_forward(one, gated=False, bias=True))

    return fixed(model, layer, positions=LEARNED, norm=LAYERNORM)


def gpt2_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of GPT2Config."""
    layer = layer_of(model)
    return {
        "vocab_size": model.padded_vocab_size,
        "n_positions": model.context_length,
        "n_embd": model.d_model,
        "n_layer": model.n_layers,
        "n_head": attention_of(layer).n_heads,
        "n_inner": feed_forward_of(layer).d_ff,
        "activation_function": ACTIVATIONS[feed_forward_of(layer).activation],
        "tie_word_embeddings": model.tied_head,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def llama_like(qk_norm: bool = False, qkv_bias: bool | None = None) -> Callable[[Model], Model]:
    """Set what the classes grown from Llama fix: rotary positions, RMSNorm before, gated feed-forward, separate projections."""

    def common(model: Model) -> Model:
        rotary = replace(ROTARY, rotary_dim=attention_of(layer_of(model)).head_dim)

        def layer(one: Layer) -> Layer:
            own = attention_of(one).o_bias  # Llama's attention_bias is for all four projections, its mlp_bias for all three
            bias = own if qkv_bias is None else qkv_bias
            out = own if qkv_bias is None else False
            switches = {"q_bias": bias, "k_bias": bias, "v_bias": bias, "o_bias": out}
            norm = "head_dim" if qk_norm else "none"
            head = attention(one, qkv="separate", qk_norm=norm, **switches)
            mlp = feed_forward_of(one).down_bias and qkv_bias is None and not qk_norm
            return Layer(head, feed_forward(one, gated=True, bias=mlp), positions=rotary, norm=RMSNORM)

        rotary = replace(ROTARY, rotary_dim=attention_of(layer_of(model)).head_dim)
        return fixed(model, layer, positions=rotary, norm=RMSNORM)

    return common


def llama_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of LlamaConfig and its like."""
    layer = layer_of(model)
    return sizes(model) | {
        "attention_bias": attention_of(layer).o_bias,
        "mlp_bias": feed_forward_of(layer).down_bias,
        "attention_dropout": dropout,
    }


def neox_common(model: Model) -> Model:
    """Set what GPTNeoXForCausalLM fixes: rotary positions on a part of each head, LayerNorm, two norms and parallel or not, all biases."""
    first = layer_of(model)
    heads = attention_of(first).n_heads
    block = first.block if first.block == "parallel_two_norms" else "sequential"
    rotary = replace(ROTARY, rotary_dim=first.positions.rotary_dim)

    def layer(one: Layer) -> Layer:
        head = attention(one, qkv="fused_per_head", n_kv_heads=heads, head_dim=model.d_model // heads, qk_norm="none", **ALL_BIASES)
        return Layer(head, feed_forward(one, gated=False, bias=True), positions=rotary, norm=LAYERNORM, block=block)

    return fixed(model, layer, positions=rotary, norm=LAYERNORM)


def neox_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of GPTNeoXConfig."""
    layer = layer_of(model)
    share = layer.positions.rotary_dim / attention_of(layer).head_dim
    keys = sizes(model)
    del keys["num_key_value_heads"], keys["head_dim"]
    return keys | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share},
        "use_parallel_residual": layer.block == "parallel_two_norms",
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
    }


def gemma2_common(model: Model) -> Model:
    """Set what Gemma2ForCausalLM fixes: norms before and after with an offset of one, soft caps on scores and logits."""
    norm = replace(RMSNORM, unit_offset=layer_of(model).norm.unit_offset)
    cap = attention_of(layer_of(model)).logit_softcap
    rotary = replace(ROTARY, rotary_dim=attention_of(layer_of(model)).head_dim)

    def layer(one: Layer) -> Layer:
        window = attention_of(one).window
        head = attention(one, qkv="separate", qk_norm="none", logit_softcap=cap, window=window, **NO_BIASES)
        return Layer(head, feed_forward(one, gated=True, bias=False), positions=rotary, norm=norm, norm_placement="before_and_after")

    return fixed(model, layer, positions=rotary, norm=norm, logit_softcap=model.logit_softcap, embedding_scale=True)


def gemma2_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of Gemma2Config."""
    windows = [attention_of(layer).window for run in model.runs for _ in range(run.count) for layer in run.layers]
    keys = sizes(model)
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
    """Set what MixtralForCausalLM and Qwen3MoeForCausalLM fix: Llama's layers, with experts for the feed-forward."""

    def common(model: Model) -> Model:
        rotary = replace(ROTARY, rotary_dim=attention_of(layer_of(model)).head_dim)

        def layer(one: Layer) -> Layer:
            chosen = experts_of(one)
            normalize = always_normalizes or chosen.normalize
            experts = Experts(
                chosen.count, chosen.top_k, chosen.d_ff, activation=chosen.activation, normalize=normalize, scores_dtype=scores
            )
            head = attention(one, qkv="separate", qk_norm=norm, **NO_BIASES)
            return Layer(head, None, experts=experts, positions=rotary, norm=RMSNORM)

        return fixed(model, layer, positions=rotary, norm=RMSNORM)

    return common


def experts_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of MixtralConfig and Qwen3MoeConfig, each of which passes over the other's."""
    layer = layer_of(model)
    experts = experts_of(layer)
    return of_model(model) | {
        "num_attention_heads": attention_of(layer).n_heads,
        "num_key_value_heads": attention_of(layer).n_kv_heads,
        "head_dim": attention_of(layer).head_dim,
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
    """Return the layer's latent attention. Raises ``CannotMeasureError`` if it mixes tokens in another way."""
    if layer.attention is None and len(layer.mixers) == 1 and isinstance(layer.mixers[0], LatentAttention):
        return layer.mixers[0]
    raise CannotMeasureError("a layer without latent attention")


def deepseek_common(model: Model) -> Model:
    """Set what DeepseekV3ForCausalLM fixes: latent attention; dense layers, then experts scored by sigmoids, a shared one beside them."""
    rotary = replace(ROTARY, rotary_dim=latent_of(layer_of(model)).rope_dim)

    def layer(one: Layer) -> Layer:
        mixers = (replace(latent_of(one), bias=False, indexer=None),)
        if one.experts is None:
            return Layer(None, feed_forward(one, gated=True, bias=False), mixers, positions=rotary, norm=RMSNORM)
        experts = Experts(
            one.experts.count,
            one.experts.top_k,
            one.experts.d_ff,
            scoring="sigmoid",
            correction_bias="buffer",
            shared_d_ff=one.experts.shared_d_ff,
        )
        return Layer(None, None, mixers, experts, positions=rotary, norm=RMSNORM)

    return fixed(model, layer, positions=rotary, norm=RMSNORM)


def deepseek_keys(model: Model, dropout: float) -> dict[str, Any]:
    """Return the keys of DeepseekV3Config."""
    layers = [layer for run in model.runs for _ in range(run.count) for layer in run.layers]
    dense = [layer for layer in layers if layer.experts is None]
    latent, experts = latent_of(layers[0]), experts_of(layers[-1])
    if layers[: len(dense)] != dense or not dense or (experts.shared_d_ff or 0) % experts.d_ff:
        raise CannotMeasureError("DeepseekV3ForCausalLM has dense layers, then experts, and shared experts as wide as several routed ones")
    return of_model(model) | {
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
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.wpe.", "model.embed_positions."),
    ("transformer.ln_f.", "model.norm."),
    ("transformer.h.", "model.layers."),
    (".ln_1.", ".input_layernorm."),
    (".ln_2.", ".post_attention_layernorm."),
    (".attn.c_attn.", ".self_attn.qkv_proj."),
    (".attn.c_proj.", ".self_attn.o_proj."),
    (".attn.", ".self_attn."),
    ("transformer.", "model."),
    (".mlp.c_fc.", ".mlp.up_proj."),
    (".mlp.c_proj.", ".mlp.down_proj."),
)
NEOX_NAMES = (
    ("gpt_neox.embed_in.", "model.embed_tokens."),
    ("gpt_neox.final_layer_norm.", "model.norm."),
    ("gpt_neox.layers.", "model.layers."),
    (".attention.query_key_value.", ".self_attn.qkv_proj."),
    (".attention.dense.", ".self_attn.o_proj."),
    (".attention.", ".self_attn."),
    (".mlp.dense_h_to_4h.", ".mlp.up_proj."),
    (".mlp.dense_4h_to_h.", ".mlp.down_proj."),
    ("embed_out.", "lm_head."),
    ("gpt_neox.", "model."),
)

# A function is a module of its own there, and a part of the module that calls it here.
ACTIVATION_NAMES = ((".act_fn.", "."), (".act.", "."))

FAMILIES: dict[ModelType, Family] = {
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", gpt2_common, gpt2_keys, GPT2_NAMES),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", llama_like(), llama_keys),
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
    """Return the class that says the model: the one that the spec names, or the first. Raises ``CannotMeasureError`` if none does."""
    families = [FAMILIES[model.model_type]] if model.model_type else [*FAMILIES.values()]
    for family in families:
        if is_said_by(family, model):
            return family
    classes = ", ".join(family.model for family in families)
    raise CannotMeasureError(f"no equivalent transformers class is known for this spec; tried {classes}")


def is_said_by(family: Family, model: Model) -> bool:
    """Say whether every switch of the model is as the class has it, in all layers alike but for what its config says layer by layer."""
    layers = [layer for run in model.runs for layer in run.layers]
    # A window masks scores that are computed all the same, and layers with experts are told apart by the config.
    alike = {replace(one, attention=one.attention and replace(one.attention, window=None)) for one in layers if one.experts is None}
    with suppress(CannotMeasureError):
        return len(alike) <= 1 and family.common(model) == model
    return False
