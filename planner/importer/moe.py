"""Mixtures of experts."""

from __future__ import annotations

from planner.importer.dense import MULTIPLIERS, every, granite_windows, hunyuan_switches, layer_kinds, olmo2
from planner.importer.parts import (
    FULL,
    SLIDING,
    by_layer,
    dense_or_experts,
    experts_of,
    gated,
    head_of,
    latent_of,
    llama_like,
    merged,
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
from planner.importer.reader import Reader, SpecModel

ROUTED = ("n_routed_experts", "num_local_experts")
# How tokens are sent to experts: the same matrices, other scores.
ROUTING = ("n_group", "topk_group", "routed_scaling_factor", "topk_method", "seq_aux", "aux_loss_alpha", "scoring_func", "moe_router_dtype")

CHUNKED = "chunked_attention"


def with_experts(model: SpecModel, experts: SpecModel, sparse: list[bool], *layers: list[SpecModel], d_ff: int | None = None) -> SpecModel:
    """Return the model with experts in the layers that are sparse; ``d_ff`` is the width of the others where it is not the model's."""
    if not any(sparse):
        return with_layers(model, by_layer(dense_or_experts([True] * len(sparse)), *layers))
    return with_layers({**model, "experts": experts}, by_layer(dense_or_experts(sparse, d_ff), *layers))


def kinds_of_mlp(c: Reader, n_layers: int, default: list[bool]) -> list[bool]:
    """Return whether each layer has experts: ``mlp_layer_types``, or what other keys say."""
    default_names = ["sparse" if sparse else "dense" for sparse in default]
    return [kind == "sparse" for kind in c.each("mlp_layer_types", n_layers, ("dense", "sparse"), default_names)]


def first_dense(c: Reader, n_layers: int, default: int) -> list[bool]:
    """Return whether each layer has experts, from ``first_k_dense_replace`` and ``moe_layer_freq``."""
    first = c.count("first_k_dense_replace", default=default)
    period = c.value("moe_layer_freq")
    if isinstance(period, list):
        return [bool(flag) for flag in c.each("moe_layer_freq", n_layers, (0, 1))]
    period = c.size("moe_layer_freq", default=1)
    return [layer >= first and layer % period == 0 for layer in range(n_layers)]


def mixtral(c: Reader) -> SpecModel:
    """Read Mixtral: experts as wide as ``intermediate_size`` in every layer."""
    model = llama_like(c, context=131072, kv_heads_required=True, d_ff=False)
    experts = experts_of(c, d_ff=("intermediate_size",))
    return with_layers({**model, "experts": experts}, windows([SLIDING] * model["n_layers"], window_of(c, None)))


def phimoe(c: Reader) -> SpecModel:
    """Read Phi-3.5-MoE."""
    model = llama_like(
        c,
        context=131072,
        kv_heads_required=True,
        attention={"bias": c.flag("attention_bias", default=False)},
        norm=norm_of("layernorm"),
        head_bias=c.flag("lm_head_bias", default=False),
        d_ff=False,
    )
    c.ignore("input_jitter_noise")
    experts = experts_of(c, d_ff=("intermediate_size",))
    return with_layers({**model, "experts": experts}, windows([SLIDING] * model["n_layers"], window_of(c, None)))


def qwen2_moe(c: Reader) -> SpecModel:
    """Read Qwen 1.5 and 2 with experts: a shared one with a gate."""
    bias = qkv_bias(qkv=c.flag("qkv_bias", default=True))
    model = llama_like(c, context=32768, kv_heads_required=True, attention={"bias": bias})
    shared = shared_of(c.count("shared_expert_intermediate_size", default=5632), gate=True)
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=False), scores_dtype="compute", shared=shared)
    n = model["n_layers"]
    on, last = c.flag("use_sliding_window", default=False), c.count("max_window_layers", default=28)
    kinds = layer_kinds(c, n, [SLIDING if on and layer % 2 == 0 and layer < last else FULL for layer in range(n)])
    return with_experts(model, experts, sparse_steps(c, n), windows(kinds, window_of(c, 4096) if on else None))


def sparse_steps(c: Reader, n_layers: int) -> list[bool]:
    """Return whether each layer has experts, from ``decoder_sparse_step`` and ``mlp_only_layers``."""
    step = c.size("decoder_sparse_step", default=1)
    dense = c.value("mlp_only_layers") or []
    if not isinstance(dense, list) or any(not isinstance(layer, int) for layer in dense):
        raise c.refusal("`mlp_only_layers` must be a list of layer numbers")
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(n_layers)]


def qwen3_moe(c: Reader) -> SpecModel:
    """Read Qwen 3 with experts."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    # The class divides the width by the heads where head_dim is absent.
    model = llama_like(c, context=32768, kv_heads_required=True, attention=attention)
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=False), scores_dtype="compute")
    n = model["n_layers"]
    window = window_of(c, 4096) if c.flag("use_sliding_window", default=False) else None
    return with_experts(model, experts, sparse_steps(c, n), windows([SLIDING] * n, window))


def mellum(c: Reader) -> SpecModel:
    """Read Mellum 2: Qwen 3 with experts, windows by layer."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention)
    model = with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers")
    c.ignore("mtp_layer_types", "mtp_mlp_layer_types")
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=True), scores_dtype="compute")
    n = model["n_layers"]
    kinds = layer_kinds(c, n, [FULL] * n)
    return with_experts(model, experts, kinds_of_mlp(c, n, [True] * n), windows(kinds, window_of(c, 1024)))


def olmoe(c: Reader) -> SpecModel:
    """Read OLMoE."""
    c.ignore("clip_qkv")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "full_width"}
    model = llama_like(c, context=4096, attention=attention, d_ff=False)
    normalize = c.flag("norm_topk_prob", default=False)
    return {**model, "experts": experts_of(c, d_ff=("intermediate_size",), normalize=normalize, scores_dtype="compute")}


def flex_olmo(c: Reader) -> SpecModel:
    """Read FlexOlmo: OLMo 2 with experts."""
    model = olmo2(c)
    del model["d_ff"]
    normalize = c.flag("norm_topk_prob", default=False)
    return {**model, "experts": experts_of(c, d_ff=("intermediate_size",), normalize=normalize, scores_dtype="compute")}


def granitemoe(c: Reader) -> SpecModel:
    """Read Granite with experts."""
    c.ignore(*MULTIPLIERS, "activation_function")
    model = llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False)}, d_ff=False)
    return {**model, "experts": experts_of(c, d_ff=("intermediate_size",), scores_dtype="compute")}


def granitemoeshared(c: Reader) -> SpecModel:
    """Read Granite with experts and a shared one."""
    model = granitemoe(c)
    shared = shared_of(c.count("shared_intermediate_size"))
    return merged(model, {"experts": {"shared": shared}}) if shared else model


def granitemoe_swa(c: Reader) -> SpecModel:
    """Read Granite with experts, windows and sinks."""
    model = merged(granitemoeshared(c), {"attention": {"sinks": True}})
    return with_layers(model, granite_windows(c, model["n_layers"]))


def dbrx(c: Reader) -> SpecModel:
    """Read DBRX."""
    attention, ffn = c.section("attn_config"), c.section("ffn_config")
    attention.ignore("clip_qkv", "rope_theta", "model_type")
    ffn.ignore("moe_loss_weight", "moe_jitter_eps", "uniform_expert_assignment", "model_type", "hidden_size")
    act = ffn.value("ffn_act_fn") or {"name": "silu"}
    if not isinstance(act, dict) or act.get("name") != "silu":
        raise c.refusal(f"`ffn_act_fn: {act!r}` cannot be said in a spec; {{'name': 'silu'}} can")
    normal = ffn.value("moe_normalize_expert_weights")
    experts = experts_of(
        ffn,
        count=("moe_num_experts",),
        top_k=("moe_top_k",),
        d_ff=("ffn_hidden_size",),
        scores_dtype="compute",
        normalize=normal is not None or "moe_normalize_expert_weights" not in ffn.config,
    )
    model: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_seq_len", default=2048),
        "d_model": c.size("d_model"),
        "n_layers": c.layers("n_layers"),
        "n_heads": c.size("n_heads"),
        "n_kv_heads": attention.size("kv_n_heads"),
        "attention": {"bias": False, "qkv": "fused"},
        "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
        "experts": experts,
        "norm": norm_of("layernorm", bias=False),
        "positions": "rope",
        "head": head_of(c, tied=False),
    }
    attention.refuse_unread()
    ffn.refuse_unread()
    c.require("num_key_value_heads", model["n_kv_heads"])
    return model


def gpt_oss(c: Reader) -> SpecModel:
    """Read gpt-oss: biases everywhere, sinks, a window in every second layer."""
    c.ignore("experts_per_token", "initial_context_length", "swiglu_limit", "swiglu_alpha")
    c.require("hidden_act", "silu")
    attention = {"bias": c.flag("attention_bias", default=True), "sinks": True}
    model = llama_like(c, context=131072, head_dim=64, kv_heads_required=True, attention=attention, d_ff=False)
    experts = experts_of(c, d_ff=("intermediate_size",), bias=True, router_bias=True, scores_dtype="compute")
    c.note("the experts' clamped SwiGLU is counted as SwiGLU")
    kinds = layer_kinds(c, model["n_layers"], [SLIDING if layer % 2 == 0 else FULL for layer in range(model["n_layers"])])
    return with_layers({**model, "experts": experts}, windows(kinds, window_of(c, 128)))


def afmoe(c: Reader) -> SpecModel:
    """Read Arcee's Trinity: output gates, norms on both sides, full attention without positions among windows."""
    c.ignore("load_balance_coeff", "num_expert_groups", "num_limited_groups", "n_group", "topk_group", "route_scale")
    c.require("score_func", "sigmoid")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "output_gate": "element"}
    norm = norm_of("rmsnorm", placement="before_and_after")
    model = llama_like(c, context=16384, head_dim=128, attention=attention, norm=norm)
    model["embedding_scale"] = c.flag("mup_enabled", default=False)
    width = c.size("moe_intermediate_size")
    shared = shared_of(c.count("num_shared_experts", default=2) * width)
    normalize = c.flag("route_norm", default=True)
    experts = experts_of(c, normalize=normalize, scoring="sigmoid", correction_bias="parameter", shared=shared)
    n = model["n_layers"]
    kinds = layer_kinds(c, n, every(c.size("global_attn_every_n_layers", default=4), n))
    dense = c.count("num_dense_layers", default=1)
    sparse = [layer >= dense for layer in range(n)]
    return with_experts(model, experts, sparse, windows(kinds, window_of(c, 1024), full={"positions": "none"}))


def beam(c: Reader) -> SpecModel:
    """Read Beam: output gates with a bias for each head, norms on both sides."""
    c.ignore(*ROUTING)
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "output_gate": "element"}
    norm = norm_of("rmsnorm", placement="before_and_after")
    softcap = softcap_of(c, "final_logit_softcapping", 30.0)
    model = llama_like(c, context=8192, head_dim=128, kv_heads_required=True, attention=attention, norm=norm, softcap=softcap)
    normalize = c.flag("norm_topk_prob", default=True)
    experts = experts_of(c, normalize=normalize, scoring="sigmoid", correction_bias="buffer")
    n = model["n_layers"]
    default = every(6, n)
    default[-1] = FULL
    window = windows(layer_kinds(c, n, default), window_of(c, 512), full={"positions": "none"})
    gate = [{"extra": [{"name": "self_attn.gate_bias", "shape": ["n_heads"], "component": "attention"}]}] * n
    return with_experts(model, experts, kinds_of_mlp(c, n, [layer >= min(3, n) for layer in range(n)]), window, gate)


def deepseek_like(
    c: Reader,
    model: SpecModel,
    *,
    dense: int,
    scoring: str = "sigmoid",
    correction_bias: str | None = "buffer",
    normalize: bool = True,
    shared: int = 1,
    layers: list[SpecModel] | None = None,
    sparse: list[bool] | None = None,
) -> SpecModel:
    """Return a model with DeepSeek's experts: the first layers dense, ``n_shared_experts`` as one feed-forward."""
    c.ignore(*ROUTING)
    n = model["n_layers"]
    width = c.size("moe_intermediate_size")
    experts = experts_of(
        c,
        count=("n_routed_experts", "num_local_experts", "num_experts"),
        top_k=("num_experts_per_tok", "num_experts_per_token"),
        normalize=c.flag("norm_topk_prob", "moe_renormalize", default=normalize),
        scoring=scoring,
        correction_bias=correction_bias,
        shared=shared_of(c.count("n_shared_experts", "num_shared_experts", default=shared) * width),
    )
    sparse = sparse if sparse is not None else kinds_of_mlp(c, n, first_dense(c, n, dense))
    return with_experts(model, experts, sparse, *([layers] if layers else []))


def with_prediction(c: Reader, model: SpecModel, *names: str, default: int = 0, copies: bool = True) -> SpecModel:
    """Return the model with its multi-token-prediction layers."""
    count = c.count(*names, default=default)
    return {**model, "prediction": {"count": count, "copies_embedding": copies}} if count else model


def latent_model(
    c: Reader,
    *,
    context: int,
    tied: bool = False,
    q_rank: int | None,
    kv_rank: int = 512,
    nope: int = 128,
    rope_dim: int = 64,
    v: int = 128,
) -> SpecModel:
    """Return a model with latent attention; the numbers are the class's own."""
    model = sizes(c, context=context)
    bias = c.flag("attention_bias", default=False)
    return {
        **model,
        "mixer": "latent_attention",
        "latent_attention": latent_of(c, q_rank=q_rank, kv_rank=kv_rank, nope=nope, rope_dim=rope_dim, v=v, bias=bias),
        "d_ff": c.size("intermediate_size"),
        "feed_forward": gated(c, bias=c.flag("mlp_bias", default=False)),
        "norm": norm_of("rmsnorm"),
        "positions": "rope",
        "head": head_of(c, tied=tied),
    }


def deepseek(c: Reader) -> SpecModel:
    """Read DeepSeekMoE 16B by the code published with it."""
    c.ignore(*ROUTING)
    c.require("scoring_func", "softmax")
    model = llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False)})
    return deepseek_like(c, model, dense=0, scoring="softmax", correction_bias=None, normalize=False, shared=0)


def deepseek_v2(c: Reader) -> SpecModel:
    """Read DeepSeek-V2."""
    c.require("scoring_func", "softmax")
    model = latent_model(c, context=2048, q_rank=1536)
    return deepseek_like(c, model, dense=0, scoring="softmax", correction_bias=None, normalize=False, shared=2)


def deepseek_v3(c: Reader) -> SpecModel:
    """Read DeepSeek-V3 and Kimi-K2."""
    c.require("scoring_func", "sigmoid")
    model = latent_model(c, context=4096, q_rank=1536)
    return deepseek_like(c, with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers"), dense=3)


def deepseek_v32(c: Reader) -> SpecModel:
    """Read DeepSeek-V3.2: an indexer in every layer."""
    c.require("scoring_func", "sigmoid")
    c.require("mlp_bias", False)
    model = latent_model(c, context=163840, q_rank=1536)
    model = merged(model, {"latent_attention": {"indexer": indexer_of(c, n_heads=64)}})
    c.each("layer_types", model["n_layers"], ("indexed_attention",), ["indexed_attention"] * model["n_layers"])
    return deepseek_like(c, with_prediction(c, model, "num_nextn_predict_layers"), dense=3)


def indexer_of(c: Reader, *, n_heads: int) -> SpecModel:
    """Return the indexer."""
    return {
        "n_heads": c.size("index_n_heads", default=n_heads),
        "head_dim": c.size("index_head_dim", default=128),
        "top_k": c.size("index_topk", default=2048),
    }


def glm_moe_dsa(c: Reader) -> SpecModel:
    """Read GLM-5: an indexer in every layer, or, from 5.2 on, in those of type ``full``, which the next ones share."""
    c.require("scoring_func", "sigmoid")
    c.require("mlp_bias", False)
    c.ignore("index_share_for_mtp_iteration", "indexer_rope_interleave")
    model = latent_model(c, context=202752, q_rank=2048, nope=192, v=256)
    n = model["n_layers"]
    indexer = {"latent_attention": {"indexer": indexer_of(c, n_heads=32)}}
    shared = {"latent_attention": {"selected_keys": indexer["latent_attention"]["indexer"]["top_k"]}}
    full = [shared if kind == "shared" else indexer for kind in c.each("indexer_types", n, ("full", "shared"), _indexer_types(c, n))]
    c.each("layer_types", n, ("indexed_attention",), ["indexed_attention"] * n)
    model = with_prediction(c, model, "num_nextn_predict_layers")
    return deepseek_like(c, model, dense=3, layers=full)


def _indexer_types(c: Reader, n_layers: int) -> list[str]:
    pattern = c.value("index_topk_pattern")
    if isinstance(pattern, str):
        return [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    if pattern is not None:
        return list(pattern) if isinstance(pattern, list) else []
    period = c.size("index_topk_freq", default=1)
    offset = c.count("index_skip_topk_offset", default=2)
    return ["full" if max(layer - offset + 1, 0) % period == 0 else "shared" for layer in range(n_layers)]


def axk1(c: Reader) -> SpecModel:
    """Read A.X K1: DeepSeek-V3 with a norm after the experts."""
    model = latent_model(c, context=32768, q_rank=1536)
    n = model["n_layers"]
    sparse = kinds_of_mlp(c, n, first_dense(c, n, 1))
    norm = {"extra": [{"name": "mlp.post_mlp_layernorm", "shape": ["d_model"], "component": "norm"}]}
    return deepseek_like(c, model, dense=1, sparse=sparse, layers=[norm if one else {} for one in sparse])


def mistral4(c: Reader) -> SpecModel:
    """Read Mistral Small 4: latent attention of small ranks."""
    c.require("mlp_bias", False)
    window_of(c, None)
    model = latent_model(c, context=1048576, q_rank=1024, kv_rank=256, nope=64)
    return deepseek_like(c, model, dense=0, scoring="softmax", correction_bias=None)


def glm4_moe_lite(c: Reader) -> SpecModel:
    """Read GLM-4.7-Flash."""
    model = latent_model(c, context=202752, q_rank=768, nope=192, v=256)
    n = model["n_layers"]
    model = with_prediction(c, model, "num_nextn_predict_layers")
    return deepseek_like(c, model, dense=1, sparse=kinds_of_mlp(c, n, [layer > 0 for layer in range(n)]))


def sarvam_mla(c: Reader) -> SpecModel:
    """Read Sarvam's model with latent attention."""
    c.ignore("q_head_dim")
    model = latent_model(c, context=4096, q_rank=None)
    return deepseek_like(c, with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers"), dense=1)


def glm4_moe(c: Reader, *, biased: bool = False) -> SpecModel:
    """Read GLM-4.5."""
    bias = qkv_bias(qkv=c.flag("attention_bias", default=biased))
    qk_norm = "head_dim" if c.flag("use_qk_norm", default=False) else "none"
    model = llama_like(c, context=131072, kv_heads_required=True, attention={"bias": bias, "qk_norm": qk_norm}, rotary_fraction=0.5)
    return deepseek_like(c, with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers"), dense=1)


def glm4v_moe(c: Reader) -> SpecModel:
    """Read the text model of GLM-4.5V: GLM-4.5 with biases unless they are switched off."""
    return glm4_moe(c, biased=True)


def sarvam_moe(c: Reader) -> SpecModel:
    """Read Sarvam 30B: GLM-4.5's block with all of a head rotated."""
    bias = qkv_bias(qkv=c.flag("attention_bias", "use_qkv_bias", default=False))
    qk_norm = "head_dim" if c.flag("use_qk_norm", default=True) else "none"
    model = llama_like(c, context=131072, head_dim=64, kv_heads_required=True, attention={"bias": bias, "qk_norm": qk_norm})
    return deepseek_like(c, with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers"), dense=1)


def solar_open(c: Reader) -> SpecModel:
    """Read Solar Open: experts in every layer."""
    c.ignore("intermediate_size", "first_k_dense_replace", "use_qk_norm")
    c.require("first_k_dense_replace", 0)
    c.require("use_qk_norm", False)
    attention = {"bias": qkv_bias(qkv=c.flag("attention_bias", default=False))}
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention, d_ff=False)
    return deepseek_like(c, model, dense=0, sparse=[True] * model["n_layers"])


def dots1(c: Reader) -> SpecModel:
    """Read dots.llm1."""
    c.require("scoring_func", "sigmoid", "noaux_tc")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    model = llama_like(c, context=2048, kv_heads_required=True, attention=attention)
    n = model["n_layers"]
    on = c.flag("use_sliding_window", default=True)
    window = window_of(c, 4096) if on else None
    first = c.count("max_window_layers", default=62)
    kinds = layer_kinds(c, n, [SLIDING if window and layer >= first else FULL for layer in range(n)])
    return deepseek_like(c, model, dense=0, normalize=False, shared=0, layers=windows(kinds, window))


def exaone_moe(c: Reader) -> SpecModel:
    """Read K-EXAONE: norms before, full attention without positions among windows."""
    from planner.importer.dense import exaone_layers

    model = llama_like(c, context=2048, kv_heads_required=True, attention={"qk_norm": "head_dim"})
    model = with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers")
    return deepseek_like(c, model, dense=1, layers=exaone_layers(c, model["n_layers"]))


def hy_v3(c: Reader) -> SpecModel:
    """Read Hy3."""
    c.ignore("enable_attention_fp32_softmax", "enable_lm_head_fp32", "enable_moe_fp32_combine", "router_scaling_factor")
    c.require("qk_norm", True)
    c.require("mlp_bias", False)
    c.require("moe_router_use_sigmoid", True)
    c.require("moe_router_enable_expert_bias", True)
    width = c.size("moe_intermediate_size", "expert_hidden_dim")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"}
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention)
    model = with_prediction(c, model, "num_nextn_predict_layers", "num_mtp_layers")
    shared = shared_of(c.count("num_shared_experts", default=1) * width)
    normalize = c.flag("route_norm", default=True)
    experts = experts_of(
        c,
        d_ff=("moe_intermediate_size", "expert_hidden_dim"),
        normalize=normalize,
        scoring="sigmoid",
        correction_bias="buffer",
        shared=shared,
    )
    return with_experts(model, experts, kinds_of_mlp(c, model["n_layers"], first_dense(c, model["n_layers"], 1)))


def hunyuan_v1_moe(c: Reader) -> SpecModel:
    """Read Hunyuan-A13B: experts and a shared one in every layer; the class reads a list's first entry."""
    hunyuan_switches(c)
    c.require("use_mixed_mlp_moe", True)
    c.ignore("moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor", "norm_topk_prob")
    c.ignore("num_shared_expert", "moe_intermediate_size", "group_limited_greedy", "routed_scaling_factor", "n_group", "topk_group")
    model = llama_like(c, context=2048, attention={"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim"})
    c.require("attention_head_dim", model["head_dim"])
    for key in ("num_shared_expert", "moe_intermediate_size", "moe_topk"):
        value = c.value(key)
        if isinstance(value, list) and any(one != value[0] for one in value):
            raise c.refusal(f"`{key}` differs from layer to layer")
    first = {key: value[0] for key in ("moe_topk",) if isinstance(value := c.config.get(key), list) and value}
    c.require("moe_layer_num_skipped", 0)
    top_k = first.get("moe_topk") if first else c.size("moe_topk", "num_experts_per_tok")
    count = c.size("num_experts")
    shared = c.config.get("num_shared_expert") or 1
    shared = shared[0] if isinstance(shared, list) else shared
    if shared != 1:
        raise c.refusal(f"`num_shared_expert: {shared}` cannot be said as its class reads it; 1 can")
    experts = {"count": count, "top_k": c.positive("moe_topk", top_k), "d_ff": model.pop("d_ff"), "scores_dtype": "compute"}
    return {**model, "experts": experts | {"shared": {"d_ff": experts["d_ff"]}}}


def ernie4_5_moe(c: Reader) -> SpecModel:
    """Read ERNIE 4.5 with experts: those of layers ``moe_layer_start_index`` to ``moe_layer_end_index``."""
    bias = c.flag("use_bias", default=False)
    if c.count("num_nextn_predict_layers"):
        c.note("its multi-token-prediction layers are not counted")
    c.ignore("moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free", "fuse_rms_norm", "compression_ratio", "freq_allocation")
    model = llama_like(
        c,
        context=131072,
        tied=True,
        head_dim=None,
        kv_heads_required=True,
        attention={"bias": bias},
        feed_forward=gated(c, bias=bias),
    )
    width = c.size("moe_intermediate_size")
    experts = experts_of(
        c,
        count=("moe_num_experts",),
        top_k=("moe_k",),
        scores_dtype="compute",
        correction_bias="parameter",
        shared=shared_of(c.count("moe_num_shared_experts", default=2) * width),
    )
    n = model["n_layers"]
    start, step = c.count("moe_layer_start_index", default=1), c.size("moe_layer_interval", default=1)
    end = c.value("moe_layer_end_index")
    end = n - 1 if end in (None, -1) else c.count("moe_layer_end_index")
    sparse = [(layer + 1) % step == 0 and start <= layer <= end for layer in range(n)]
    return with_experts(model, experts, sparse)


def minimax_m2(c: Reader) -> SpecModel:
    """Read MiniMax-M2: norms over all heads' queries and keys."""
    c.ignore("attn_type_list", "mtp_transformer_layers", "num_mtp_modules", "use_mtp", "use_routing_bias", "shared_intermediate_size")
    c.require("shared_intermediate_size", 0)
    c.require("scoring_func", "sigmoid")
    c.require("use_qk_norm", True)
    c.require("qk_norm_type", "per_layer")
    attention = {"qk_norm": "full_width"}
    model = llama_like(c, context=196608, head_dim=128, kv_heads_required=True, attention=attention, d_ff=False)
    rotary_dim = c.value("rotary_dim")
    if rotary_dim is not None and c.size("rotary_dim") != model["head_dim"]:
        model["positions"] = {"type": "rope", "rotary_dim": rotary_dim}
    return {**model, "experts": experts_of(c, d_ff=("intermediate_size",), scoring="sigmoid", correction_bias="buffer")}


def laguna(c: Reader) -> SpecModel:
    """Read Laguna: heads that differ from layer to layer, and a gate for each head or each of their channels."""
    c.ignore("moe_routed_scaling_factor", "moe_router_logit_softcapping")
    c.require("moe_apply_router_weight_on_input", False)
    gating = c.value("gating")
    gates = {None: "head", True: "head", "per-head": "head", "per-element": "element", False: "none"}
    if not isinstance(gating, (bool, str, type(None))) or gating not in gates:
        raise c.refusal(f"`gating: {gating!r}` cannot be said in a spec")
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "output_gate": gates[gating]}
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention)
    n = model["n_layers"]
    kinds = layer_kinds(c, n, [FULL] * n)
    heads = c.sizes("num_attention_heads_per_layer", n, model["n_heads"])
    half = rope(c, model["head_dim"], fraction=0.5, kind=FULL)
    model["positions"] = half if FULL in kinds else rope(c, model["head_dim"], kind=SLIDING)
    given = c.value("rope_parameters")
    rotated = rope(c, model["head_dim"], kind=SLIDING) if isinstance(given, dict) and SLIDING in given else "rope"
    positions: list[SpecModel] = [{"positions": rotated} if kind == SLIDING and rotated != half else {} for kind in kinds]
    own: list[SpecModel] = [{} if count == model["n_heads"] else {"n_heads": count} for count in heads]
    shared = shared_of(c.count("shared_expert_intermediate_size", default=512))
    experts = experts_of(c, scoring="sigmoid", correction_bias="parameter", shared=shared)
    sparse = kinds_of_mlp(c, n, [layer > 0 for layer in range(n)])
    return with_experts(model, experts, sparse, windows(kinds, window_of(c, 512)), positions, own)


def llama4(c: Reader) -> SpecModel:
    """Read Llama 4's text model: experts in every n-th layer beside a shared one, dense layers of another width."""
    c.ignore("attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor", "use_qk_norm")
    c.note("norms of queries and keys have no weights and are left out")
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention=attention, d_ff=False)
    n = model["n_layers"]
    width = c.size("intermediate_size")
    dense = c.size("intermediate_size_mlp", default=16384)
    experts = experts_of(
        c,
        count=("num_local_experts",),
        d_ff=("intermediate_size",),
        normalize=False,
        scoring="sigmoid",
        scores_dtype="compute",
        shared=shared_of(width),
    )
    step = c.size("interleave_moe_layer_step", default=1)
    given = c.value("moe_layers")
    if given is not None and (not isinstance(given, list) or any(not isinstance(layer, int) for layer in given)):
        raise c.refusal("`moe_layers` must be a list of layer numbers")
    sparse = [layer in given if given is not None else (layer + 1) % step == 0 for layer in range(n)]
    interval = c.size("no_rope_layer_interval", default=4)
    rotated = [int((layer + 1) % interval != 0) for layer in range(n)]
    if c.value("no_rope_layers"):
        rotated = c.each("no_rope_layers", n, (0, 1))
    kinds = c.each("layer_types", n, (CHUNKED, FULL), [CHUNKED if one else FULL for one in rotated])
    chunk = {"attention": {"window": c.size("attention_chunk_size", default=8192), "chunked": True}}
    positions: list[SpecModel] = [{} if one else {"positions": "none"} for one in rotated]
    chunks: list[SpecModel] = [chunk if kind == CHUNKED else {} for kind in kinds]
    if not all(sparse):
        model |= {"d_ff": dense, "feed_forward": gated(c)}
    return with_experts(model, experts, sparse, positions, chunks)


def longcat_flash(c: Reader) -> SpecModel:
    """Read LongCat-Flash: each of its layers is two here, and the experts stand beside the first one's feed-forward.

    512 experts compute; the router knows 256 more that return what they are given.
    """
    c.ignore("routed_scaling_factor", "num_hidden_layers", "zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora")
    c.ignore("attention_method", "n_group", "topk_group", "norm_topk_prob")
    c.require("zero_expert_type", "identity")
    c.require("router_bias", False)
    double = c.layers("num_layers")
    model: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=131072),
        "d_model": c.size("hidden_size"),
        "n_layers": 2 * double,
        "n_heads": c.size("num_attention_heads"),
    }
    bias = c.flag("attention_bias", default=False)
    latent = latent_of(c, q_rank=1536, kv_rank=512, nope=128, rope_dim=64, v=128, bias=bias)
    experts = experts_of(
        c,
        count=ROUTED,
        top_k=("moe_topk", "num_experts_per_tok"),
        d_ff=("expert_ffn_hidden_size", "moe_intermediate_size"),
        normalize=False,
        scores_dtype="compute",
        correction_bias="buffer",
        empty=c.count("zero_expert_num", default=256) or None,
        beside_feed_forward=True,
    )
    c.note("each layer of the configuration is two layers here: two attentions and two feed-forwards, experts beside the first")
    return {
        **model,
        "mixer": "latent_attention",
        "latent_attention": latent,
        "d_ff": c.size("ffn_hidden_size", "intermediate_size"),
        "feed_forward": gated(c),
        "experts": experts,
        "norm": norm_of("rmsnorm"),
        "positions": "rope",
        "head": head_of(c, tied=False),
        "layers": [{"count": double, "layers": [{}, {"experts": "none"}]}],
    }


def mimo_v2(c: Reader) -> SpecModel:
    """Read MiMo-V2-Flash: twice the key heads and sinks in layers with a window, values narrower than keys."""
    c.ignore(*ROUTING, "attention_value_scale", "attention_chunk_size", "hybrid_block_size", "n_shared_experts")
    c.require("n_shared_experts", 0)
    bias = qkv_bias(qkv=c.flag("attention_bias", default=False))
    model = llama_like(c, context=131072, head_dim=192, kv_heads_required=True, attention={"bias": bias}, rotary_fraction=0.334)
    n = model["n_layers"]
    model["attention"]["v_head_dim"] = c.size("v_head_dim", default=128)
    default = [FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING for layer in range(n)]
    pattern = c.value("hybrid_layer_pattern")
    if pattern is not None:
        default = [SLIDING if one else FULL for one in c.each("hybrid_layer_pattern", n, (0, 1))]
    kinds = layer_kinds(c, n, default)
    previous = c.value("sliding_window_size")
    window = c.size("sliding_window_size") + 1 if previous is not None else window_of(c, 129)
    c.require("swa_num_attention_heads", model["n_heads"])
    c.require("swa_num_key_value_heads", 2 * model["n_kv_heads"])
    c.require("swa_head_dim", model["head_dim"])
    c.require("swa_v_head_dim", model["attention"]["v_head_dim"])
    c.require("add_swa_attention_sink_bias", True)
    c.require("add_full_attention_sink_bias", False)
    c.ignore("swa_rope_theta")
    sliding = {"n_kv_heads": 2 * model["n_kv_heads"], "attention": {"sinks": True}}
    own = [sliding if kind == SLIDING else {} for kind in kinds]
    sparse = kinds_of_mlp(c, n, first_dense_or(c, n, [layer > 0 for layer in range(n)]))
    return deepseek_like(c, model, dense=1, shared=0, layers=by_layer(windows(kinds, window), own), sparse=sparse)


def first_dense_or(c: Reader, n_layers: int, default: list[bool]) -> list[bool]:
    """Return ``moe_layer_freq`` where it is given, else the class's own."""
    return first_dense(c, n_layers, 0) if c.value("moe_layer_freq") is not None else default


def aria(c: Reader) -> SpecModel:
    """Read Aria's text model: experts as wide as ``intermediate_size`` in every layer, beside shared ones."""
    bias = c.flag("attention_bias", default=False)
    c.require("mlp_bias", False)
    c.ignore("moe_z_loss_coeff", "moe_aux_loss_coeff")
    model = llama_like(c, context=2048, attention={"bias": bias}, d_ff=False)
    shared = shared_of(c.count("moe_num_shared_experts", default=2) * c.size("intermediate_size"))
    experts = experts_of(
        c, count=("moe_num_experts",), top_k=("moe_topk",), d_ff=("intermediate_size",), scores_dtype="compute", shared=shared
    )
    return {**model, "experts": experts}


def cohere2_moe(c: Reader) -> SpecModel:
    """Read Command with experts: attention and experts side by side under one norm, windows with rotary positions."""
    c.ignore("logit_scale", "cache_implementation", "shared_expert_combination_strategy", "rope_theta", "rope_scaling")
    rms = "rms_norm_eps" in c.config and c.value("rms_norm_eps") is not None
    norm = norm_of("rmsnorm") if rms else norm_of("layernorm", bias=False)
    attention = {"bias": c.flag("attention_bias", default=False)}
    model = llama_like(c, context=8192, tied=True, head_dim=128, attention=attention, norm=norm, block="parallel_one_norm", d_ff=False)
    n = model["n_layers"]
    width = c.size("intermediate_size")
    scoring = c.value("expert_selection_fn") or "softmax"
    c.require("expert_selection_fn", "softmax", "sigmoid")
    experts = experts_of(
        c,
        d_ff=("intermediate_size",),
        scoring=scoring,
        normalize=c.flag("norm_topk_prob", default=True) and scoring == "sigmoid",
        shared=shared_of(c.count("num_shared_experts") * width),
    )
    dense = c.count("first_k_dense_replace")
    sparse = kinds_of_mlp(c, n, [layer >= dense for layer in range(n)])
    if not all(sparse):
        model |= {"d_ff": c.size("prefix_dense_intermediate_size", default=width), "feed_forward": gated(c)}
    c.ignore("prefix_dense_intermediate_size")
    first = c.size("prefix_dense_sliding_window_pattern", default=1)
    rest = c.size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    kinds = layer_kinds(c, n, [*every(first, dense), *every(rest, n - dense)])
    return with_experts(model, experts, sparse, windows(kinds, window_of(c, 4096), full={"positions": "none"}))


def kolibri1(c: Reader) -> SpecModel:
    """Read Kolibri: norms on both sides, experts and a shared one in every layer."""
    attention = {"qk_norm": "head_dim"}
    norm = norm_of("rmsnorm", placement="before_and_after")
    model = llama_like(c, context=262144, head_dim=128, kv_heads_required=True, attention=attention, norm=norm, d_ff=False)
    experts = experts_of(
        c,
        normalize=c.flag("norm_topk_prob", default=False),
        scoring="sigmoid",
        correction_bias="buffer",
        shared=shared_of(c.count("shared_expert_intermediate_size", default=512)),
    )
    n = model["n_layers"]
    return with_layers({**model, "experts": experts}, windows(layer_kinds(c, n, every(5, n)), window_of(c, 513)))


def flint(c: Reader) -> SpecModel:
    """Read Flint: sinks, the first two layers dense, full attention in every fourth layer and at both ends."""
    attention = {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "sinks": True}
    model = llama_like(c, context=262144, head_dim=128, kv_heads_required=True, attention=attention)
    n = model["n_layers"]
    shared = shared_of(c.count("shared_expert_intermediate_size", default=1024))
    experts = experts_of(c, normalize=c.flag("norm_topk_prob", default=True), scoring="sigmoid", shared=shared)
    step = c.size("decoder_sparse_step", default=1)
    dense = c.value("mlp_only_layers")
    dense = [0, 1] if dense is None else dense
    if not isinstance(dense, list) or any(not isinstance(layer, int) for layer in dense):
        raise c.refusal("`mlp_only_layers` must be a list of layer numbers")
    sparse = [layer not in dense and (layer + 1) % step == 0 for layer in range(n)]
    default = [FULL if layer in (0, 1, n - 1) or layer % 4 == 1 else SLIDING for layer in range(n)]
    return with_experts(model, experts, sparse, windows(layer_kinds(c, n, default), window_of(c, 513)))
