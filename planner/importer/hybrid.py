"""State-space models, linear attention, gated recurrences and short convolutions, alone and among attention."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from planner.importer.dense import MULTIPLIERS, layer_kinds
from planner.importer.moe import (
    ROUTING,
    deepseek_like,
    first_dense,
    kinds_of_mlp,
    latent_model,
    sparse_steps,
    with_experts,
    with_prediction,
)
from planner.importer.parts import (
    CONV,
    FULL,
    LINEAR,
    SLIDING,
    by_layer,
    experts_of,
    gated,
    head_of,
    llama_like,
    norm_of,
    qkv_bias,
    rope,
    shared_of,
    sizes,
    softcap_of,
    window_of,
    windows,
    with_layers,
)
from planner.importer.reader import Reader, SpecModel, show

# How mamba's kernels run and how they start: no count depends on them.
KERNELS = (
    "chunk_size", "fused_add_norm", "mamba_chunk_size", "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "rescale_prenorm_residual",
    "residual_in_fp32", "rms_norm", "time_step_floor", "time_step_init_scheme", "time_step_limit", "time_step_max", "time_step_min",
    "time_step_scale", "use_associative_scan", "use_mamba_kernels", "use_mambapy", "use_mem_eff_path", "mamba_dt_min", "mamba_dt_max",
    "mamba_dt_limit", "mamba_dt_init_floor", "mamba_norm_before_gate",
)  # fmt: skip


XLSTM_KERNELS = (
    "add_embedding_dropout", "add_forward_backend_padding", "add_post_blocks_norm", "autocast_kernel_dtype", "cell_norm_eps", "chunk_size",
    "chunkwise_kernel", "eps", "force_bos_token_insert", "gate_soft_cap", "head_dim", "igate_bias_init_range", "inference_state_dtype",
    "max_inference_chunksize", "mlstm_round_up_to_multiple_of", "mode", "norm_reduction_force_float32", "num_chunks", "qk_norm",
    "return_last_states", "sequence_kernel", "step_kernel",
)  # fmt: skip


def only(mixer: str, model: SpecModel) -> SpecModel:
    """Return the model with one mixer in every layer and no feed-forward."""
    return {**model, "mixer": mixer, "feed_forward": "none"}


def _scan_sizes(c: Reader, *layers: str) -> SpecModel:
    """Read the sizes of a model that has no attention; the context, which such a model does not have, is what it was trained at."""
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", "context_length", "max_seq_len", default=2048),
        "d_model": c.size("hidden_size"),
        "n_layers": c.layers(*(layers or ("num_hidden_layers",))),
    }


def expanded(c: Reader, d_model: int, *names: str, default: int = 2) -> int:
    """Return the inner width: the width times a factor that may be a fraction."""
    factor = c.value(*names)
    if factor is None:
        return default * d_model
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor <= 2**16:
        raise c.refusal(f"`{names[0]}: {show(factor)}` is not a positive number")
    return int(factor * d_model)


def dt_rank(c: Reader, name: str, d_model: int) -> int:
    """Return the rank of dt; ``auto`` is a sixteenth of the width, rounded up."""
    value = c.value(name)
    return -(-d_model // 16) if value in (None, "auto") else c.positive(name, value)


def _mamba1(c: Reader, default_expand: int) -> SpecModel:
    c.ignore(
        *KERNELS, "d_inner", "d_model", "n_layer", "ssm_cfg", "pad_vocab_size_multiple", "dt_rank", "intermediate_size", "mixer_rms_eps"
    )
    c.ignore("use_falcon_mambapy")
    c.require("hidden_act", "silu")
    model = _scan_sizes(c)
    mamba = {
        # the classes take the inner width from `expand`, whatever else the file says, but for Falcon-Mamba's
        "d_inner": expanded(c, model["d_model"], "expand", default=default_expand),
        "d_state": c.size("state_size", default=16),
        "d_conv": c.size("conv_kernel", default=4),
        "dt_rank": dt_rank(c, "time_step_rank", model["d_model"]),
        "conv_bias": c.flag("use_conv_bias", default=True),
        "bias": c.flag("use_bias", default=False),
    }
    return only("mamba", {**model, "mamba": mamba, "norm": norm_of("rmsnorm"), "positions": "none", "head": head_of(c, tied=True)})


def mamba(c: Reader) -> SpecModel:
    """Read Mamba."""
    return _mamba1(c, 2)


def falcon_mamba(c: Reader) -> SpecModel:
    """Read Falcon-Mamba: Mamba with norms that have no weights, and an ``intermediate_size`` that its class goes by."""
    model = _mamba1(c, 2)
    c.note("the norms of dt, B and C, which have no weights, are not counted")
    if c.value("intermediate_size") is not None:
        model["mamba"]["d_inner"] = c.size("intermediate_size")
    return model


def mamba2(c: Reader) -> SpecModel:
    """Read Mamba-2."""
    c.ignore(*KERNELS, "time_step_rank", "norm_before_gate", "rms_norm")
    c.require("hidden_act", "silu")
    model = _scan_sizes(c)
    inner = expanded(c, model["d_model"], "expand")
    heads = c.size("num_heads", default=128)
    c.require("head_dim", inner // heads)
    kind = {
        "d_inner": inner,
        "d_state": c.size("state_size", default=128),
        "n_heads": heads,
        "n_groups": c.size("n_groups", default=8),
        "d_conv": c.size("conv_kernel", default=4),
        "conv_bias": c.flag("use_conv_bias", default=True),
        "bias": c.flag("use_bias", default=False),
    }
    return only("mamba2", {**model, "mamba2": kind, "norm": norm_of("rmsnorm"), "positions": "none", "head": head_of(c, tied=False)})


def _mamba2_of(c: Reader, d_model: int, *, d_inner: int | None = None) -> SpecModel:
    """Return a Mamba-2 mixer under the key names of Bamba, Falcon-H1 and Granite 4."""
    c.ignore(*KERNELS)
    inner = d_inner or expanded(c, d_model, "mamba_expand")
    heads = c.size("mamba_n_heads", default=128)
    width = c.value("mamba_d_head")
    if width not in (None, "auto") and width * heads != inner:
        raise c.refusal(f"`mamba_d_head: {show(width)}` times {heads} heads is not the inner width of {inner}")
    return {
        "d_inner": inner,
        "d_state": c.size("mamba_d_state", default=256),
        "n_heads": heads,
        "n_groups": c.size("mamba_n_groups", default=1),
        "d_conv": c.size("mamba_d_conv", default=4),
        "conv_bias": c.flag("mamba_conv_bias", default=True),
        "bias": c.flag("mamba_proj_bias", default=False),
    }


def mixers(kinds: list[str], linear: str, *, full: SpecModel | None = None) -> list[SpecModel]:
    """Return the mixer of each layer of a model whose base says attention."""
    return [{"mixer": linear} if kind in (LINEAR, CONV) else full or {} for kind in kinds]


def bamba(c: Reader) -> SpecModel:
    """Read Bamba: attention in the layers of ``attn_layer_indices``."""
    c.ignore("z_loss_coefficient", "attn_rotary_emb")
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=262144, kv_heads_required=True, attention=attention, feed_forward=mlp, rotary_fraction=0.5)
    n = model["n_layers"]
    indices = c.value("attn_layer_indices") or []
    if not isinstance(indices, list) or any(not isinstance(index, int) for index in indices):
        raise c.refusal("`attn_layer_indices` must be a list of layer numbers")
    kinds = [FULL if layer in indices else LINEAR for layer in range(n)]
    return with_layers({**model, "mamba2": _mamba2_of(c, model["d_model"])}, mixers(kinds, "mamba2"))


def falcon_h1(c: Reader) -> SpecModel:
    """Read Falcon-H1: attention and Mamba-2 side by side in every layer."""
    c.ignore("attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier", "key_multiplier", "lm_head_multiplier")
    c.ignore("mlp_multipliers", "ssm_in_multiplier", "ssm_multipliers", "ssm_out_multiplier", "attn_layer_indices", "mlp_expansion_factor")
    c.ignore("mamba_use_mlp", "mamba_expand")
    bias = c.flag("projectors_bias", default=False)
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=8192, kv_heads_required=True, attention=attention, feed_forward=mlp)
    given = None if c.value("mamba_d_ssm") is None and "mamba_d_ssm" in c.config else c.size("mamba_d_ssm", default=1024)
    kind = _mamba2_of(c, model["d_model"], d_inner=given)
    if kind["bias"] != bias:
        raise c.refusal("`projectors_bias` and `mamba_proj_bias` differ, which cannot be said in a spec")
    kind["gated_norm"] = c.flag("mamba_rms_norm", default=False)
    return {**model, "mixer": ["attention", "mamba2"], "mamba2": kind}


def granitemoehybrid(c: Reader) -> SpecModel:
    """Read Granite 4: without experts, the shared feed-forward is the feed-forward."""
    c.ignore(*MULTIPLIERS, "init_method", "normalization_function")
    c.require("normalization_function", "rmsnorm")
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=2048, attention=attention, d_ff=False)
    n = model["n_layers"]
    nope = c.value("position_embedding_type") != "rope"
    c.require("position_embedding_type", "rope", "nope")
    model["positions"] = "none" if nope else model["positions"]
    shared = c.size("shared_intermediate_size", default=1024)
    if c.count("num_local_experts", default=8):
        model["experts"] = experts_of(c, d_ff=("intermediate_size",), scores_dtype="compute", shared=shared_of(shared))
    else:
        c.ignore("intermediate_size", "num_experts_per_tok")
        model |= {"d_ff": shared, "feed_forward": gated(c)}
    kinds = c.each("layer_types", n, (FULL, LINEAR), c.value("layers_block_type") or [LINEAR] * n)
    if LINEAR in kinds:
        model["mamba2"] = _mamba2_of(c, model["d_model"])
    c.ignore(*(key for key in c.config if key.startswith("mamba_")))
    return with_layers(model, mixers(kinds, "mamba2"))


def jamba(c: Reader) -> SpecModel:
    """Read Jamba: attention in one of every 8 layers, experts in every second, no positions."""
    c.ignore(*KERNELS, "calc_logits_for_entire_prompt")
    c.require("layers_block_type")
    c.require("mamba_inner_layernorms", True)
    model = llama_like(c, context=262144, kv_heads_required=True)
    n = model["n_layers"]
    kind = {
        "d_inner": c.size("mamba_expand", default=2) * model["d_model"],
        "d_state": c.size("mamba_d_state", default=16),
        "d_conv": c.size("mamba_d_conv", default=4),
        "dt_rank": dt_rank(c, "mamba_dt_rank", model["d_model"]),
        "conv_bias": c.flag("mamba_conv_bias", default=True),
        "bias": c.flag("mamba_proj_bias", default=False),
        "norms": True,
    }
    model |= {"positions": "none", "mamba": kind}
    period, offset = c.size("attn_layer_period", default=8), c.count("attn_layer_offset", default=4)
    kinds = [FULL if layer % period == offset else LINEAR for layer in range(n)]
    period, offset = c.size("expert_layer_period", default=2), c.count("expert_layer_offset", default=1)
    count = c.size("num_experts", "num_local_experts")
    if count == 1:
        c.ignore("num_experts_per_tok")
        return with_layers(model, mixers(kinds, "mamba"))
    experts = experts_of(c, d_ff=("intermediate_size",), normalize=False, scores_dtype="compute")
    return with_experts(model, experts, [layer % period == offset for layer in range(n)], mixers(kinds, "mamba"))


# One letter a layer, as in Megatron-LM.
_PATTERN = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}


def nemotron_h(c: Reader) -> SpecModel:
    """Read Nemotron-H and Nemotron 3: one of Mamba-2, attention, feed-forward or experts in each layer, under one norm."""
    c.ignore(*KERNELS, *ROUTING, "expand", "time_step_rank", "mamba_d_state", "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    c.ignore("moe_shared_expert_overlap", "partial_rotary_factor", "mamba_expand", "initializer_range", "n_shared_experts")
    c.require("mamba_hidden_act", "silu")
    model: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=4096),
        "d_model": c.size("hidden_size"),
        "n_heads": c.size("num_attention_heads"),
        "n_kv_heads": c.size("num_key_value_heads", default=8),
        "head_dim": c.size("head_dim", "attention_head_dim", default=128),
        "attention": {"bias": c.flag("attention_bias", default=False), "qkv": "separate"},
    }
    kinds = _nemotron_layers(c)
    n = len(kinds)
    c.require("num_hidden_layers", n)
    activation = c.activation("mlp_hidden_act", default="relu2")
    bias = c.flag("mlp_bias", default=False)
    heads, width = c.size("mamba_num_heads", default=128), c.size("mamba_head_dim", default=64)
    proj_bias = c.flag("use_bias", default=False)
    c.require("mamba_proj_bias", proj_bias)
    model |= {
        "n_layers": n,
        "mamba2": {
            "d_inner": heads * width,
            "d_state": c.size("ssm_state_size", default=128),
            "n_heads": heads,
            "n_groups": c.size("n_groups", "mamba_n_groups", default=8),
            "d_conv": c.size("conv_kernel", "mamba_d_conv", default=4),
            "conv_bias": c.flag("use_conv_bias", "mamba_conv_bias", default=True),
            "bias": proj_bias,
        },
        "norm": norm_of("rmsnorm"),
        "positions": "none",
        "head": head_of(c, tied=False),
    }
    if "mlp" in kinds:
        model |= {"d_ff": c.size("intermediate_size"), "feed_forward": {"type": "plain", "activation": activation, "bias": bias}}
    c.ignore("intermediate_size")
    if "moe" in kinds:
        model["experts"] = experts_of(
            c,
            count=("n_routed_experts", "num_local_experts"),
            normalize=c.flag("norm_topk_prob", default=True),
            type="plain",
            activation=activation,
            scoring="sigmoid",
            correction_bias="buffer",
            latent_dim=c.count("moe_latent_size") or None,
            shared=shared_of(c.count("moe_shared_expert_intermediate_size", default=7688)),
        )
        if bias:
            raise c.refusal("`mlp_bias: True` with experts cannot be said in a spec")
    model = with_prediction(c, model, "num_nextn_predict_layers")
    no_mlp: SpecModel = {"feed_forward": "none"} if "feed_forward" in model else {}
    no_mlp |= {"experts": "none"} if "experts" in model else {}
    model.setdefault("feed_forward", "none")
    own: dict[str, SpecModel] = {
        LINEAR: {"mixer": "mamba2", **no_mlp},
        FULL: {"mixer": "attention", **no_mlp},
        "mlp": {"mixer": "none"} | ({"experts": "none"} if "experts" in model else {}),
        "moe": {"mixer": "none"},
    }
    return with_layers(model, [own[kind] for kind in kinds])


def _nemotron_layers(c: Reader) -> list[str]:
    """Return the kind of each layer, from a list or from a string such as ``M-M*ME``."""
    given = c.value("layers_block_type", "layer_types")
    pattern = c.value("hybrid_override_pattern")
    if given is None and isinstance(pattern, str) and pattern and set(pattern) <= set(_PATTERN):
        return [_PATTERN[letter] for letter in pattern]
    if given is None:
        raise c.refusal(
            f"`hybrid_override_pattern: {show(pattern)}` is not a string of {' '.join(_PATTERN)}, and there is no `layers_block_type`"
        )
    name = "layers_block_type" if c.config.get("layers_block_type") is not None else "layer_types"
    return c.each(name, len(given) if isinstance(given, list) and given else 1, _PATTERN.values())


def _delta_net(c: Reader) -> SpecModel:
    return {
        "n_key_heads": c.size("linear_num_key_heads", default=16),
        "n_value_heads": c.size("linear_num_value_heads", default=32),
        "key_dim": c.size("linear_key_head_dim", default=128),
        "value_dim": c.size("linear_value_head_dim", default=128),
        "d_conv": c.size("linear_conv_kernel_dim", default=4),
    }


def _qwen_hybrid(c: Reader, *, d_ff: bool) -> tuple[SpecModel, list[SpecModel]]:
    """Return Qwen3-Next's model and its layers' mixers: gated DeltaNet, and gated attention in the last of every four."""
    c.ignore(*KERNELS)
    c.require("attn_output_gate", True)
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "output_gate": "element"}
    model = llama_like(
        c,
        context=32768,
        head_dim=256,
        kv_heads_required=True,
        attention=attention,
        norm=norm_of("rmsnorm", unit_offset=True),
        rotary_fraction=0.25,
        d_ff=d_ff,
    )
    model["gated_delta_net"] = _delta_net(c)
    n = model["n_layers"]
    period = c.size("full_attention_interval", default=4)
    kinds = c.each("layer_types", n, (FULL, LINEAR), [FULL if (layer + 1) % period == 0 else LINEAR for layer in range(n)])
    return model, mixers(kinds, "gated_delta_net")


def qwen3_next(c: Reader) -> SpecModel:
    """Read Qwen3-Next."""
    model, layers = _qwen_hybrid(c, d_ff=True)
    shared = shared_of(c.count("shared_expert_intermediate_size", default=512), gate=True)
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=True), scores_dtype="compute", shared=shared)
    sparse = sparse_steps(c, model["n_layers"])
    if all(sparse):
        del model["d_ff"], model["feed_forward"]
    return with_experts(model, experts, sparse, layers)


def qwen3_5(c: Reader) -> SpecModel:
    """Read Qwen 3.5's dense text models."""
    c.ignore("mtp_use_dedicated_embeddings", "mlp_only_layers")
    model, layers = _qwen_hybrid(c, d_ff=True)
    return with_layers(with_prediction(c, model, "mtp_num_hidden_layers", copies=False), layers)


def qwen3_5_moe(c: Reader) -> SpecModel:
    """Read Qwen 3.5's text models with experts."""
    c.ignore("mtp_use_dedicated_embeddings", "norm_topk_prob", "decoder_sparse_step", "intermediate_size", "mlp_only_layers")
    model, layers = _qwen_hybrid(c, d_ff=False)
    shared = shared_of(c.count("shared_expert_intermediate_size", default=512), gate=True)
    experts = experts_of(c, scores_dtype="compute", shared=shared)
    return with_layers({**with_prediction(c, model, "mtp_num_hidden_layers", copies=False), "experts": experts}, layers)


def olmo_hybrid(c: Reader) -> SpecModel:
    """Read OLMo Hybrid: gated DeltaNet with norms before, and OLMo 2's attention with norms after."""
    c.ignore("linear_allow_neg_eigval", "linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "full_width"}
    model = llama_like(c, context=65536, attention=attention)
    n, heads = model["n_layers"], model["n_heads"]
    keys = c.size("linear_num_key_heads", default=heads)
    key_dim = c.size("linear_key_head_dim", default=int(Fraction(3, 4) * model["d_model"] / keys) or 1)
    kind = {
        "n_key_heads": keys,
        "n_value_heads": c.size("linear_num_value_heads", default=heads),
        "key_dim": key_dim,
        "value_dim": c.size("linear_value_head_dim", default=2 * key_dim),
        "d_conv": c.size("linear_conv_kernel_dim", default=4),
    }
    parameters = c.value("rope_parameters")
    if not isinstance(parameters, dict) or parameters.get("rope_theta") is None:
        model["positions"] = "none"
    default = [FULL if layer % 4 == 3 else LINEAR for layer in range(n)]  # noqa: PLR2004 - the last of every four
    if FULL not in default:
        default[-1] = FULL
    kinds = c.each("layer_types", n, (FULL, LINEAR), default)
    layers = mixers(kinds, "gated_delta_net", full={"norm": {"placement": "after"}})
    return with_layers({**model, "gated_delta_net": kind}, layers)


def kimi_linear(c: Reader) -> SpecModel:
    """Read Kimi Linear: Kimi Delta Attention, and latent attention without positions in every fourth layer."""
    c.ignore("rope_interleave", "mla_use_nope", "moe_router_activation_func", "use_grouped_topk", "num_expert_group", "head_dim")
    c.require("moe_router_activation_func", "sigmoid")
    c.require("mla_use_nope", True)
    c.ignore("model_max_length")
    model = latent_model(c, context=c.size("model_max_length", default=1048576), q_rank=None)
    n = model["n_layers"]
    linear = c.section("linear_attn_config")
    heads = linear.size("num_heads", default=c.size("linear_num_heads", default=32))
    width = linear.size("head_dim", default=c.size("linear_head_dim", default=128))
    conv = linear.size("short_conv_kernel_size", default=c.size("linear_conv_kernel_dim", default=4))
    default = [FULL if layer and layer % 4 == 0 else LINEAR for layer in range(n)]
    full = linear.value("full_attn_layers")
    if isinstance(full, list) and linear.value("kda_layers") is not None:
        default = [FULL if layer + 1 in full else LINEAR for layer in range(n)]  # counted from 1
    kinds = c.each("layer_types", n, (FULL, LINEAR), default)
    model |= {"positions": "none", "kimi_delta_attention": {"n_heads": heads, "head_dim": width, "d_conv": conv}}
    model = with_prediction(c, model, "num_nextn_predict_layers")
    sparse = kinds_of_mlp(c, n, first_dense(c, n, 1))
    return deepseek_like(c, model, dense=1, sparse=sparse, layers=mixers(kinds, "kimi_delta_attention"))


_MINIMAX_FACTORS = tuple(
    f"layernorm_{part}_{factor}" for part in ("full_attention", "linear_attention", "mlp") for factor in ("alpha", "beta")
)


def minimax(c: Reader) -> SpecModel:
    """Read MiniMax-Text-01 and M1: lightning attention, and attention in every eighth layer."""
    c.ignore("full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "block_size")
    c.ignore("mlp_alpha_factor", "mlp_beta_factor", "postnorm", "shared_moe_mode", *_MINIMAX_FACTORS)
    c.require("shared_intermediate_size", 0)
    model = llama_like(c, context=131072, kv_heads_required=True, d_ff=False)
    n = model["n_layers"]
    rotary_dim = c.size("rotary_dim", default=model["head_dim"])
    if rotary_dim != model["head_dim"]:
        model["positions"] = {"type": "rope", "rotary_dim": rotary_dim}
    model["lightning_attention"] = {"n_heads": model["n_heads"], "head_dim": model["head_dim"]}
    default = [FULL if (layer + 1) % 2 else LINEAR for layer in range(n)]
    older = c.value("attn_type_list")
    if older is not None:
        default = [FULL if one else LINEAR for one in c.each("attn_type_list", n, (0, 1))]
    kinds = c.each("layer_types", n, (FULL, LINEAR), default)
    return with_layers({**model, "experts": experts_of(c, d_ff=("intermediate_size",))}, mixers(kinds, "lightning_attention"))


def recurrent_gemma(c: Reader) -> SpecModel:
    """Read RecurrentGemma: ``intermediate_size`` is twice the gated width, and the last projections have biases."""
    c.ignore(
        "w_init_variance_scale",
        "conv1d_width",
        "logits_soft_cap",
        "final_w_init_variance_scale",
        "embeddings_scale_by_sqrt_dim",
        "_block_types",
    )
    read = sizes(c, context=8192)
    n = read["n_layers"]
    kinds = c.value("block_types") or ["recurrent", "recurrent", "attention"]
    if not isinstance(kinds, list) or any(kind not in ("recurrent", "attention") for kind in kinds):
        raise c.refusal("`block_types` must be a list of `recurrent` and `attention`")
    kinds = (kinds * n)[:n]
    quotient, rest = divmod(read["d_model"], read["n_heads"])
    if rest:
        raise c.refusal(f"{read['n_heads']} heads do not divide a width of {read['d_model']}")
    c.require("head_dim", quotient)
    bias = c.flag("attention_bias", default=False)
    softcap = softcap_of(c, "logits_soft_cap", 30.0)
    window = window_of(c, 2048, "attention_window_size")
    model = {
        **read,
        "n_kv_heads": c.size("num_key_value_heads", default=read["n_heads"]),
        "head_dim": quotient,
        "d_ff": c.size("intermediate_size") // 2,
        "attention": {"bias": qkv_bias(qkv=bias, o=True), "qkv": "separate", "window": window},
        "rg_lru": {
            "width": c.size("lru_width", default=read["d_model"]),
            "n_blocks": read["n_heads"],
            "d_conv": c.size("conv1d_width", default=4),
        },
        "feed_forward": {"type": "gated", "activation": c.activation("hidden_activation", default="gelu_pytorch_tanh"), "bias": True},
        "norm": norm_of("rmsnorm", unit_offset=True),
        "positions": rope(c, quotient, fraction=0.5),
        "embedding_scale": True,
        "head": head_of(c, tied=True, softcap=softcap),
    }
    return with_layers(model, [{"mixer": "rg_lru"} if kind == "recurrent" else {} for kind in kinds])


def rwkv(c: Reader) -> SpecModel:
    """Read RWKV-4: the first layer's extra norm is the embedding's."""
    c.ignore("rescale_every")
    model = _scan_sizes(c)
    width = c.size("attention_hidden_size", default=model["d_model"])
    return {
        **model,
        "mixer": "rwkv",
        "rwkv": {"width": width},
        "d_ff": c.size("intermediate_size", default=4 * model["d_model"]),
        "feed_forward": {"type": "rwkv"},
        "norm": norm_of("layernorm"),
        "embedding_norm": True,
        "positions": "none",
        "head": head_of(c, tied=False),
    }


def xlstm(c: Reader) -> SpecModel:
    """Read xLSTM-7B: mLSTM and a gated feed-forward in each layer."""
    c.ignore(*XLSTM_KERNELS)
    c.require("add_qk_norm", False)
    c.require("add_post_norm", False)
    c.require("slstm_at", [])
    c.require("use_bias", False)
    c.require("weight_mode", "single", "fused")
    c.require("add_out_norm", True)
    model = _scan_sizes(c, "num_hidden_layers", "num_blocks")
    d = model["d_model"]
    c.require("embedding_dim", d)
    multiple = c.size("ffn_round_up_to_multiple_of", default=64)
    qk, v = c.number("qk_dim_factor", 0.5), c.number("v_dim_factor", 1.0)
    heads = c.size("num_heads", default=8)
    return {
        **model,
        "mixer": "mlstm",
        "mlstm": {"n_heads": heads, "qk_dim": int(d * qk), "v_dim": int(d * v)},
        "d_ff": int((d * c.number("ffn_proj_factor", 2.667) + multiple - 1) // multiple * multiple),
        "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
        "norm": norm_of("rmsnorm"),
        "positions": "none",
        "head": head_of(c, tied=False, softcap=softcap_of(c, "output_logit_soft_cap", 30.0)),
    }


def _convolutions(c: Reader, model: SpecModel, default: int) -> SpecModel:
    conv = {"d_conv": c.size("conv_L_cache", default=default), "bias": c.flag("conv_bias", default=False)}
    return {**model, "short_convolution": conv}


def _lfm_model(c: Reader, attention: SpecModel, **settings: Any) -> SpecModel:  # noqa: ANN401  # arguments of llama_like
    c.ignore("use_pos_enc", "theta", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim", "block_mlp_init_scale")
    c.ignore("block_norm_eps", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "num_heads")
    tied = c.flag("tie_embedding", "tie_word_embeddings", default=True)
    model = llama_like(c, context=128000, kv_heads_required=True, attention={"qk_norm": "head_dim"} | attention, d_ff=False, **settings)
    return {**model, "head": {"tied": tied}}


def lfm2(c: Reader) -> SpecModel:
    """Read LFM2: short convolutions, attention where ``full_attn_idxs`` says; widths are two thirds of what is written, rounded up."""
    model = _convolutions(c, _lfm_model(c, {}), 3)
    n = model["n_layers"]
    d_ff = c.size("block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", default=True):
        multiple = c.size("block_multiple_of", default=256)
        d_ff = int(c.number("block_ffn_dim_multiplier", 1.0) * int(2 * d_ff / 3))
        d_ff = multiple * ((d_ff + multiple - 1) // multiple)
    c.ignore("block_multiple_of", "block_ffn_dim_multiplier")
    indices = c.value("full_attn_idxs")
    default = [FULL if indices is None or (isinstance(indices, list) and layer in indices) else CONV for layer in range(n)]
    kinds = layer_kinds(c, n, default, CONV)
    model |= {"d_ff": d_ff, "feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
    return with_layers(model, mixers(kinds, "short_convolution"))


def lfm2_moe(c: Reader) -> SpecModel:
    """Read LFM2 with experts."""
    c.ignore("routed_scaling_factor")
    model = _convolutions(c, _lfm_model(c, {}), 3)
    n = model["n_layers"]
    model |= {"d_ff": c.size("intermediate_size"), "feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
    corrected = "buffer" if c.flag("use_expert_bias", default=True) else None
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=True), scoring="sigmoid", correction_bias=corrected)
    dense = c.count("num_dense_layers", default=2)
    indices = c.value("full_attn_idxs")
    default = [FULL if isinstance(indices, list) and layer in indices else CONV for layer in range(n)] if indices is not None else None
    kinds = c.each("layer_types", n, (FULL, CONV), default)
    return with_experts(model, experts, [layer >= dense for layer in range(n)], mixers(kinds, "short_convolution"))


def lfm3(c: Reader) -> SpecModel:
    """Read LFM3: norms on both sides, a gate for each head, windows among the attention."""
    gate = "head" if c.flag("use_attention_gate", default=True) else "none"
    placement = "before_and_after" if c.flag("use_sandwich_norm", default=True) else "before"
    attention = {"bias": c.flag("attention_bias", default=False), "output_gate": gate}
    model = _convolutions(c, _lfm_model(c, attention, head_dim=128, norm=norm_of("rmsnorm", placement=placement)), 7)
    n = model["n_layers"]
    model |= {"d_ff": c.size("intermediate_size"), "feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
    default = [FULL if layer % 4 == 2 else SLIDING if layer % 4 == 0 and layer else CONV for layer in range(n)]  # noqa: PLR2004
    kinds = layer_kinds(c, n, default, CONV)
    model["positions"] = rope(c, model["head_dim"], fraction=0.5, kind=FULL)
    sliding = {"positions": rope(c, model["head_dim"], kind=SLIDING)}
    positions: list[SpecModel] = [sliding if kind == SLIDING and sliding["positions"] != model["positions"] else {} for kind in kinds]
    return with_layers(model, by_layer(mixers(kinds, "short_convolution"), windows(kinds, window_of(c, 256)), positions))


def lara_mini(c: Reader) -> SpecModel:
    """Read Lara Mini: gated DeltaNet, attention with windows and full attention in turns, experts in every layer."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    model = llama_like(c, context=131072, tied=True, head_dim=128, kv_heads_required=True, attention=attention, d_ff=False)
    n = model["n_layers"]
    model["gated_delta_net"] = {
        "n_key_heads": c.size("linear_num_key_heads", default=8),
        "n_value_heads": c.size("linear_num_value_heads", default=16),
        "key_dim": c.size("linear_key_head_dim", default=128),
        "value_dim": c.size("linear_value_head_dim", default=128),
        "d_conv": c.size("linear_conv_kernel_dim", default=4),
    }
    pattern = [LINEAR, SLIDING, LINEAR, FULL, SLIDING]
    kinds = layer_kinds(c, n, (pattern * n)[:n], LINEAR)
    shared = shared_of(c.count("shared_expert_intermediate_size", default=512))
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=True), scores_dtype="compute", shared=shared)
    full: list[SpecModel] = [{"positions": "none"} if kind == FULL else {} for kind in kinds]
    layers = by_layer(mixers(kinds, "gated_delta_net"), windows(kinds, window_of(c, 512)), full)
    return with_layers({**model, "experts": experts}, layers)
