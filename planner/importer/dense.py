"""Dense decoders with Llama's key names."""

from __future__ import annotations

from planner.importer.parts import (
    FULL,
    SLIDING,
    by_layer,
    gated,
    head_of,
    latent_of,
    llama_like,
    merged,
    norm_of,
    plain,
    qkv_bias,
    rope,
    sizes,
    softcap_of,
    window_of,
    windows,
    with_layers,
)
from planner.importer.reader import Reader, SpecModel

MULTIPLIERS = ("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier")


def layer_kinds(c: Reader, n_layers: int, default: list[str], *further: str) -> list[str]:
    """Return ``layer_types``, or the class's own where the key is absent."""
    kinds: list[str] = c.each("layer_types", n_layers, (FULL, SLIDING, *further), default)
    return kinds


def every(period: int, n_layers: int, *, first: bool = False) -> list[str]:
    """Return sliding layers with a full one at the end, or with ``first`` at the beginning, of every ``period``."""
    return [FULL if (layer if first else layer + 1) % period == 0 else SLIDING for layer in range(n_layers)]


def _windowed_like_mistral(c: Reader, model: SpecModel, default: int | None) -> SpecModel:
    """Return the model with the one window of all its layers."""
    window = window_of(c, default)
    if "layer_types" in c.config:  # the class reads them no longer
        layer_kinds(c, model["n_layers"], [])
    return with_layers(model, windows([SLIDING] * model["n_layers"], window))


def _windowed_like_qwen(c: Reader, model: SpecModel) -> SpecModel:
    """Return the model with windows from layer ``max_window_layers`` on, where they are switched on at all."""
    on = c.flag("use_sliding_window", default=False)
    window = window_of(c, 4096) if on else None
    first = c.count("max_window_layers", default=28)
    default = [SLIDING if window and layer >= first else FULL for layer in range(model["n_layers"])]
    return with_layers(model, windows(layer_kinds(c, model["n_layers"], default), window))


def llama(c: Reader) -> SpecModel:
    """Read Llama."""
    if "layer_types" in c.config:
        layer_kinds(c, c.layers("num_hidden_layers"), [])
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    return llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False)}, feed_forward=mlp)


def arcee(c: Reader) -> SpecModel:
    """Read Arcee's AFM: a plain feed-forward of squared ReLU."""
    mlp = plain(c, default="relu2", bias=c.flag("mlp_bias", default=False))
    return llama_like(c, context=4096, attention={"bias": c.flag("attention_bias", default=False)}, feed_forward=mlp)


def apertus(c: Reader) -> SpecModel:
    """Read Apertus: a plain feed-forward whose activation, xIELU, learns two scalars in each layer."""
    c.require("hidden_act", "xielu")
    c.require("qk_norm", True)
    c.require("post_norm", False)
    c.require("mlp_bias", False)
    c.note("xIELU is counted as ReLU squared, with its two learned scalars in each layer as declared tensors")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    model = llama_like(c, context=65536, attention=attention, feed_forward={"type": "plain", "activation": "relu_squared", "bias": False})
    scalars = [{"name": f"mlp.act_fn.{name}", "shape": [1], "component": "feed_forward"} for name in ("alpha_p", "alpha_n")]
    return with_layers(model, [{"extra": scalars}] * model["n_layers"])


def mistral(c: Reader) -> SpecModel:
    """Read Mistral."""
    return _windowed_like_mistral(c, llama_like(c, context=131072, kv_heads_required=True), 4096)


def ministral(c: Reader) -> SpecModel:
    """Read Ministral: layers with windows among those without."""
    model = llama_like(c, context=131072, kv_heads_required=True)
    window = window_of(c, 4096)
    kinds = layer_kinds(c, model["n_layers"], [SLIDING if window else FULL] * model["n_layers"])
    return with_layers(model, windows(kinds, window))


def ministral3(c: Reader) -> SpecModel:
    """Read Ministral 3."""
    return _windowed_like_mistral(c, llama_like(c, context=262144, head_dim=128, kv_heads_required=True), None)


def qwen(c: Reader) -> SpecModel:
    """Read the first Qwen by the code published with it: ``intermediate_size`` counts both halves of the gated width."""
    no_bias = c.flag("no_bias", default=True)
    twice_d_ff = c.size("intermediate_size")
    read = sizes(c, context=8192)
    head_dim = c.size("kv_channels", default=128)
    c.ignore("seq_length", "rotary_emb_base", "use_dynamic_ntk", "use_logn_attn", "bf16", "fp16", "fp32", "onnx_safe")
    c.ignore("softmax_in_fp32", "scale_attn_weights", "use_cache_quantization", "use_cache_kernel", "tokenizer_type")
    return {
        **read,
        "head_dim": head_dim,
        "d_ff": twice_d_ff // 2,
        "attention": {"bias": qkv_bias(qkv=True, o=not no_bias), "qkv": "fused"},
        "feed_forward": {"type": "gated", "activation": "silu", "bias": not no_bias},
        "norm": norm_of("rmsnorm"),
        "positions": rope(c, head_dim, name="rotary_pct"),
        "head": head_of(c, tied=False),
    }


def qwen2(c: Reader) -> SpecModel:
    """Read Qwen 2 and 2.5."""
    return _windowed_like_qwen(c, llama_like(c, context=32768, kv_heads_required=True, attention={"bias": qkv_bias(qkv=True)}))


def qwen3(c: Reader) -> SpecModel:
    """Read Qwen 3."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    return _windowed_like_qwen(c, llama_like(c, context=32768, head_dim=128, kv_heads_required=True, attention=attention))


def gemma_activation(c: Reader) -> str:
    """Return gelu_tanh for the "gelu" of the first releases too, as the class does."""
    older = c.activation("hidden_act", default="gelu_pytorch_tanh")
    return c.activation("hidden_activation", default="gelu_pytorch_tanh" if older in ("gelu", "gelu_tanh") else c.config["hidden_act"])


def _gemma_like(
    c: Reader, *, context: int = 8192, placement: str = "before", qk_norm: str = "none", softcap: float | None = None
) -> SpecModel:
    c.ignore("query_pre_attn_scalar", "cache_implementation")
    c.require("use_bidirectional_attention", False)
    model = llama_like(
        c,
        context=context,
        tied=True,
        head_dim=256,
        kv_heads_required=True,
        attention={"bias": c.flag("attention_bias", default=False), "qk_norm": qk_norm},
        feed_forward=gated(c, activation=gemma_activation(c)),
        norm=norm_of("rmsnorm", placement=placement, unit_offset=True),
        softcap=softcap,
    )
    return model | {"embedding_scale": True}


def gemma(c: Reader) -> SpecModel:
    """Read the first Gemma."""
    return _gemma_like(c)


def _gemma2_like(c: Reader, placement: str) -> SpecModel:
    model = _gemma_like(c, placement=placement, softcap=softcap_of(c, "final_logit_softcapping", 30.0))
    if scores := softcap_of(c, "attn_logit_softcapping", 50.0):
        model = merged(model, {"attention": {"logit_softcap": scores}})
    return with_layers(model, windows(layer_kinds(c, model["n_layers"], every(2, model["n_layers"])), window_of(c, 4096)))


def gemma2(c: Reader) -> SpecModel:
    """Read Gemma 2: norms on both sides, soft caps, a window in every second layer."""
    return _gemma2_like(c, "before_and_after")


def vaultgemma(c: Reader) -> SpecModel:
    """Read VaultGemma: Gemma 2 without its norms after."""
    return _gemma2_like(c, "before")


def gemma3(c: Reader) -> SpecModel:
    """Read Gemma 3's text model."""
    softcap = softcap_of(c, "final_logit_softcapping")
    model = _gemma_like(c, context=131072, placement="before_and_after", qk_norm="head_dim", softcap=softcap)
    c.require("attn_logit_softcapping")
    period = c.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return with_layers(model, windows(layer_kinds(c, model["n_layers"], every(period, model["n_layers"])), window_of(c, 4096)))


def phi(c: Reader) -> SpecModel:
    """Read Phi 1 to 2."""
    c.require("qk_layernorm", False)
    return llama_like(
        c,
        context=2048,
        attention={"bias": True},
        feed_forward=plain(c, default="gelu_new", bias=True),
        norm=norm_of("layernorm"),
        block="parallel_one_norm",
        rotary_fraction=0.5,
        head_bias=True,
    )


def phi3(c: Reader) -> SpecModel:
    """Read Phi 3 and 4."""
    c.require("attention_bias", False)
    c.require("mlp_bias", False)
    c.require("lm_head_bias", False)
    c.ignore("full_attn_mod", "interpolate_factor")
    return _windowed_like_mistral(c, llama_like(c, context=4096, attention={"qkv": "fused"}), None)


def olmo(c: Reader) -> SpecModel:
    """Read OLMo 1: norms without weights."""
    c.ignore("clip_qkv")
    attention = {"bias": c.flag("attention_bias", default=False)}
    return llama_like(c, context=2048, attention=attention, norm=norm_of("layernorm", weight=False))


def olmo2(c: Reader) -> SpecModel:
    """Read OLMo 2: norms after."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "full_width"}
    return llama_like(c, context=2048, attention=attention, norm=norm_of("rmsnorm", placement="after"))


def olmo3(c: Reader) -> SpecModel:
    """Read OLMo 3: OLMo 2 with windows."""
    model = olmo2(c)
    return with_layers(model, windows(layer_kinds(c, model["n_layers"], every(4, model["n_layers"])), window_of(c, 4096)))


def stablelm(c: Reader) -> SpecModel:
    """Read StableLM; ``qk_layernorm`` gives each head weights of its own."""
    c.ignore("rotary_scaling_factor")
    per_head = c.flag("qk_layernorm", default=False)
    parallel = c.flag("use_parallel_residual", default=False)
    bias = qkv_bias(qkv=c.flag("use_qkv_bias", default=False))
    return llama_like(
        c,
        context=4096,
        kv_heads_required=True,
        attention={"bias": bias, "qk_norm": "per_head" if per_head else "none"},
        norm=norm_of("layernorm"),
        block="parallel_one_norm" if parallel else "sequential",
        rotary_fraction=0.25,
    )


def starcoder2(c: Reader) -> SpecModel:
    """Read StarCoder 2."""
    c.require("mlp_type", "default")
    c.require("norm_type", "layer_norm")
    c.ignore("activation_function", "attention_softmax_in_fp32", "scale_attn_weights", "use_position_embedding_type")
    bias = c.flag("use_bias", default=True)
    model = llama_like(
        c,
        context=4096,
        tied=True,
        kv_heads_required=True,
        attention={"bias": bias},
        feed_forward=plain(c, default="gelu_pytorch_tanh", bias=bias),
        norm=norm_of("layernorm"),
    )
    return _windowed_like_mistral(c, model, None)


def cohere(c: Reader) -> SpecModel:
    """Read Command R; ``use_qk_norm`` gives each head weights of its own."""
    c.ignore("logit_scale", "model_max_length")
    per_head = c.flag("use_qk_norm", default=False)
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "per_head" if per_head else "none"}
    return llama_like(c, context=8192, tied=True, attention=attention, norm=norm_of("layernorm", bias=False), block="parallel_one_norm")


def cohere2(c: Reader) -> SpecModel:
    """Read Command R7B: windows with rotary positions, and full attention without."""
    model = cohere(c)
    c.ignore("cache_implementation", "use_parallel_block", "use_parallel_embedding", "use_gated_activation", "position_embedding_type")
    c.ignore("layer_switch", "order_of_interleaved_layers", "rotary_pct", "use_embedding_sharing")
    period = c.size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    kinds = layer_kinds(c, model["n_layers"], every(period, model["n_layers"]))
    return with_layers(model, windows(kinds, window_of(c, 4096), full={"positions": "none"}))


def granite(c: Reader) -> SpecModel:
    """Read Granite."""
    c.ignore(*MULTIPLIERS)
    return llama(c)


def granite_swa(c: Reader) -> SpecModel:
    """Read Granite with windows and sinks; a layer whose ``layer_rope_theta`` is 0 has no positions."""
    c.ignore(*MULTIPLIERS)
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False), "sinks": True}
    model = llama_like(c, context=8192, tied=True, attention=attention, feed_forward=mlp)
    return with_layers(model, granite_windows(c, model["n_layers"]))


def granite_windows(c: Reader, n_layers: int) -> list[SpecModel]:
    """Return windows and positions of each layer."""
    kinds = layer_kinds(c, n_layers, every(4, n_layers, first=True))
    thetas = c.value("layer_rope_theta") or [1.0] * n_layers
    if not isinstance(thetas, list) or len(thetas) < n_layers or any(not isinstance(theta, (int, float)) for theta in thetas):
        raise c.refusal(f"`layer_rope_theta` must be a list with a number for each of {n_layers} layers")
    positions: list[SpecModel] = [{} if theta else {"positions": "none"} for theta in thetas[:n_layers]]
    return by_layer(windows(kinds, window_of(c, 128)), positions)


def hyperclovax(c: Reader) -> SpecModel:
    """Read HyperCLOVA X."""
    c.ignore(*MULTIPLIERS)
    placement = "before_and_after" if c.flag("use_post_norm", default=True) else "before"
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    return llama_like(c, context=2048, attention=attention, feed_forward=mlp, norm=norm_of("rmsnorm", placement=placement))


def nemotron(c: Reader) -> SpecModel:
    """Read Nemotron 3 to 4."""
    model = llama_like(
        c,
        context=4096,
        attention={"bias": c.flag("attention_bias", default=False)},
        feed_forward=plain(c, default="relu2", bias=c.flag("mlp_bias", default=False)),
        norm=norm_of("layernorm"),
        rotary_fraction=0.5,
    )
    c.require("kv_channels", model["head_dim"])
    return model


def jais2(c: Reader) -> SpecModel:
    """Read Jais 2."""
    mlp = plain(c, default="relu2", bias=c.flag("mlp_bias", default=True))
    attention = {"bias": c.flag("attention_bias", default=True)}
    return llama_like(c, context=8192, attention=attention, feed_forward=mlp, norm=norm_of("layernorm"))


def smollm3(c: Reader) -> SpecModel:
    """Leave every fourth layer without rotary positions, or those that ``no_rope_layers`` marks with a 0."""
    interval = c.size("no_rope_layer_interval", default=4)
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=32768, tied=True, kv_heads_required=True, attention=attention, feed_forward=mlp)
    n = model["n_layers"]
    rotated = c.each("no_rope_layers", n, (0, 1), [int((layer + 1) % interval != 0) for layer in range(n)])
    window = window_of(c, None) if c.flag("use_sliding_window", default=False) else None
    kinds = layer_kinds(c, n, [SLIDING if window and not flag else FULL for flag in rotated])
    return with_layers(model, by_layer(windows(kinds, window), [{} if flag else {"positions": "none"} for flag in rotated]))


def cwm(c: Reader) -> SpecModel:
    """Read the Code World Model."""
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, feed_forward=mlp)
    kinds = layer_kinds(c, model["n_layers"], every(4, model["n_layers"], first=True))
    return with_layers(model, windows(kinds, window_of(c, 8192)))


def hunyuan(c: Reader) -> SpecModel:
    """Read Hunyuan's dense models."""
    hunyuan_switches(c)
    model = llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"})
    c.require("attention_head_dim", model["head_dim"])
    return model


def hunyuan_switches(c: Reader) -> None:
    """Refuse what the class of either Hunyuan does not do."""
    c.require("use_qk_norm", True)
    c.require("use_rotary_pos_emb", True)
    c.require("norm_type", "rms")
    c.require("mlp_bias", False)
    c.require("use_cla", False)
    c.require("add_classification_head", False)
    c.ignore("cla_share_factor", "class_num", "dense_list", "org_vocab_size", "pool_type")
    c.ignore("im_end_id", "im_newline_id", "im_start_id", "mask_init_id", "pad_id", "text_end_id", "text_start_id")


def exaone(c: Reader) -> SpecModel:
    """Read EXAONE 3 by the code published with it, in its names or in Llama's."""
    activation = c.activation("activation_function", "hidden_act", default="silu")
    mlp = gated(c, activation=activation, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    return llama_like(c, context=4096, kv_heads_required=True, attention=attention, feed_forward=mlp)


def exaone4(c: Reader) -> SpecModel:
    """Read EXAONE 4: norms after, and full attention without positions among windows."""
    norm = norm_of("rmsnorm", placement="after")
    model = llama_like(c, context=2048, kv_heads_required=True, attention={"qk_norm": "head_dim"}, norm=norm)
    return with_layers(model, exaone_layers(c, model["n_layers"]))


def exaone_layers(c: Reader, n_layers: int) -> list[SpecModel]:
    """Return windows of EXAONE 4's layers; ``LLLG`` or 4: the last of every four is full. Without a window all are full and rotated."""
    window = window_of(c, 4096)
    pattern = c.value("sliding_window_pattern")
    period = len(pattern) if isinstance(pattern, str) and pattern else c.count("sliding_window_pattern", default=4)
    kinds = layer_kinds(c, n_layers, every(period, n_layers) if window and period else [FULL] * n_layers)
    return windows(kinds, window, full={"positions": "none"}) if window else [{}] * n_layers


def iquestcoder(c: Reader) -> SpecModel:
    """Read IQuest-Coder."""
    c.require("clip_qkv")
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    attention = {"bias": c.flag("attention_bias", default=False)}
    return llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention, feed_forward=mlp)


def internlm(c: Reader) -> SpecModel:
    """Read by the code published with it: one switch for q, k, v and o, on where it is absent; none in the feed-forward."""
    return llama_like(c, context=2048, attention={"bias": c.flag("bias", default=True)})


def internlm2(c: Reader) -> SpecModel:
    """Read by the code published with it: as InternLM, with one matrix for q, k and v."""
    return llama_like(c, context=2048, attention={"bias": c.flag("bias", default=True), "qkv": "fused"})


def internlm3(c: Reader) -> SpecModel:
    """Read InternLM 3."""
    qkv = c.flag("qkv_bias", "attention_bias", default=False)
    bias = c.flag("bias", "mlp_bias", default=False)
    attention = {"bias": qkv_bias(qkv=qkv, o=bias)}
    return llama_like(c, context=32768, head_dim=128, kv_heads_required=True, attention=attention, feed_forward=gated(c, bias=bias))


def baichuan(c: Reader) -> SpecModel:
    """Read by the code published with it: rotary with ``max_position_embeddings`` (7B), ALiBi with ``model_max_length`` alone (13B)."""
    rotary, alibi = c.value("max_position_embeddings"), c.value("model_max_length")
    if rotary is None and alibi is None:
        c.note("neither `max_position_embeddings` (7B: rotary) nor `model_max_length` (13B: ALiBi) is there: rotary positions are assumed")
    model = llama_like(c, context=c.size("model_max_length", default=4096), attention={"qkv": "fused"})
    return {**model, "positions": "alibi"} if rotary is None and alibi is not None else model


def minicpm(c: Reader) -> SpecModel:
    """Read MiniCPM 1 and 2 by the code published with them."""
    c.require("num_experts", 0)
    c.ignore("dim_model_base", "scale_depth", "scale_emb")
    return llama_like(c, context=2048, tied=True, attention={"bias": c.flag("attention_bias", default=False)})


def minicpm3(c: Reader) -> SpecModel:
    """Read MiniCPM 3: latent attention in a dense model."""
    c.ignore("dim_model_base", "scale_depth", "scale_emb")
    model = sizes(c, context=32768)
    bias = c.flag("attention_bias", default=False)
    v = c.size("v_head_dim", default=max(model["d_model"] // model["n_heads"], 1))
    return _latent_dense(c, model, latent_of(c, q_rank=768, kv_rank=256, nope=64, rope_dim=32, v=v, bias=bias))


def youtu(c: Reader) -> SpecModel:
    """Read Youtu-LLM: latent attention in a dense model."""
    c.ignore("embedding_initializer_range")
    model = sizes(c, context=131072)
    bias = c.flag("attention_bias", default=False)
    return _latent_dense(c, model, latent_of(c, q_rank=1536, kv_rank=512, nope=128, rope_dim=64, v=128, bias=bias))


def _latent_dense(c: Reader, model: SpecModel, latent: SpecModel) -> SpecModel:
    return {
        **model,
        "mixer": "latent_attention",
        "latent_attention": latent,
        "d_ff": c.size("intermediate_size"),
        "feed_forward": gated(c, bias=c.flag("mlp_bias", default=False)),
        "norm": norm_of("rmsnorm"),
        "positions": "rope",
        "head": head_of(c, tied=True),
    }


def orion(c: Reader) -> SpecModel:
    """Read Orion by the code published with it."""
    c.ignore("max_sequence_length")
    return llama_like(c, context=4096, norm=norm_of("layernorm"))


def bitnet(c: Reader) -> SpecModel:
    """Read BitNet: norms before the last matrix of attention and of the feed-forward."""
    attention = {"bias": c.flag("attention_bias", default=False), "output_norm": True}
    mlp = gated(c, activation=c.activation("hidden_act", default="relu2"), hidden_norm=True)
    return llama_like(c, context=2048, attention=attention, feed_forward=mlp)


def diffllama(c: Reader) -> SpecModel:
    """Read DiffLlama: differential attention."""
    c.ignore("lambda_std_dev")
    c.require("mlp_bias", False)
    return llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False), "differential": True})


def doge(c: Reader) -> SpecModel:
    """Read Doge: a mask made of the values, and learned scales on the residual stream."""
    c.require("is_moe", False)
    c.ignore("keep_window_size", "num_experts", "num_experts_per_tok", "norm_topk_prob", "dynamic_mask_ratio", "expert_retrieval_size")
    c.ignore("num_cdmoe_experts", "num_cdmoe_experts_per_head", "num_cdmoe_heads")
    bias = c.flag("hidden_bias", default=False)
    attention = {"bias": c.flag("attention_bias", default=bias), "qk_norm": "head_dim"}
    model = llama_like(c, context=2048, attention=attention, feed_forward=gated(c, bias=c.flag("mlp_bias", default=bias)))
    extra = [
        {"name": "input_residual", "shape": ["d_model"], "component": "other"},
        {"name": "post_attention_residual", "shape": ["d_model"], "component": "other"},
        {"name": "self_attn.A", "shape": ["n_kv_heads"], "component": "attention"},
        {"name": "self_attn.dt_proj", "shape": ["n_kv_heads", "n_kv_heads*head_dim"], "component": "attention", "uses": 1},
    ]
    if attention["bias"]:
        extra.append({"name": "self_attn.dt_proj_bias", "shape": ["n_kv_heads"], "component": "attention"})
    window = window_of(c, None)
    return with_layers(model, by_layer(windows([SLIDING] * model["n_layers"], window), [{"extra": extra}] * model["n_layers"]))


def persimmon(c: Reader) -> SpecModel:
    """Read Persimmon: norms with biases on each head's queries and keys, the same for all heads."""
    normed = c.flag("qk_layernorm", default=True)
    extra = [{"name": f"self_attn.{one}_layernorm.bias", "shape": ["head_dim"], "component": "norm"} for one in ("q", "k")]
    model = llama_like(
        c,
        context=16384,
        attention={"bias": True, "qkv": "fused_per_head", "qk_norm": "head_dim" if normed else "none"},
        feed_forward=plain(c, default="relu2", bias=True),
        norm=norm_of("layernorm"),
        rotary_fraction=0.5,
    )
    c.require("num_key_value_heads", model["n_heads"])
    return with_layers(model, [{"extra": extra} if normed else {}] * model["n_layers"])


def glm(c: Reader) -> SpecModel:
    """Read GLM-4 of June 2024."""
    bias = qkv_bias(qkv=c.flag("attention_bias", default=True))
    return llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention={"bias": bias}, rotary_fraction=0.5)


def glm4(c: Reader) -> SpecModel:
    """Read GLM-4 of April 2025: norms on both sides."""
    return merged(glm(c), {"norm": {"placement": "before_and_after"}})


def seed_oss(c: Reader) -> SpecModel:
    """Read Seed-OSS: one switch for the biases of q, k and v, another for the last projection's."""
    bias = qkv_bias(qkv=c.flag("attention_bias", default=True), o=c.flag("attention_out_bias", default=False))
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    return llama_like(c, context=524288, head_dim=128, attention={"bias": bias}, feed_forward=mlp)


def ernie4_5(c: Reader) -> SpecModel:
    """Read ERNIE 4.5's dense models: one switch for all biases."""
    bias = c.flag("use_bias", default=False)
    c.ignore("compression_ratio", "freq_allocation", "rope_reset_position_id", "fuse_rms_norm", "weight_share_add_bias")
    return llama_like(c, context=131072, tied=True, head_dim=128, attention={"bias": bias}, feed_forward=gated(c, bias=bias))


def helium(c: Reader) -> SpecModel:
    """Read Helium."""
    bias = qkv_bias(qkv=c.flag("attention_bias", default=False))
    mlp = gated(c, bias=c.flag("mlp_bias", default=False))
    model = llama_like(c, context=4096, head_dim=128, kv_heads_required=True, attention={"bias": bias}, feed_forward=mlp)
    if model["n_heads"] * model["head_dim"] != model["d_model"]:
        raise c.refusal("the heads together must be as wide as the model, for the last projection is square")
    return model


def nanochat(c: Reader) -> SpecModel:
    """Read nanochat: norms without weights, on queries and keys too."""
    softcap = softcap_of(c, "final_logit_softcapping", 15.0)
    mlp = plain(c, default="relu2", bias=False)
    attention = {"bias": c.flag("attention_bias", default=False)}
    norm = norm_of("rmsnorm", weight=False)
    c.note("the norms of queries and keys, which have no weights, are not counted")
    return llama_like(c, context=2048, attention=attention, feed_forward=mlp, norm=norm, softcap=softcap) | {"embedding_norm": True}


def apertus1p5(c: Reader) -> SpecModel:
    """Read Apertus 1.5's text model."""
    c.require("output_vocab_size", c.size("vocab_size"))
    return apertus(c)
