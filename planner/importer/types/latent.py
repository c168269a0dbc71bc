"""Models with latent attention, most of them with experts: DeepSeek-V2 and its successors."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

from planner.importer.engine import Reading, Row, Settings
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import show
from planner.importer.types.dense import MINICPM_SCALES

BY_SIGMOID = {"scoring_func": ("sigmoid",)}
BY_SOFTMAX = {"scoring_func": ("softmax",)}
EVERY_LAYER = {"moe_layer_freq": 1}  # the class does not read it, the published code does
INDEXED = {"_unused": each("layer_types", ("indexed_attention",), None)}


def indexer(n_heads: int) -> Settings:
    """Return the lightning indexer; the number is the class's default."""
    return {"n_heads": size("index_n_heads", n_heads), "head_dim": size("index_head_dim", 128), "top_k": size("index_topk", 2048)}


def indexed_layers() -> Source:
    """Return the indexers of ``full`` layers, whose keys later layers reuse: by a pattern of F and S, or every n-th layer."""
    period, offset = size("index_topk_freq", 1), count("index_skip_topk_offset", 2)
    meaning = {"F": True, "full": True, "S": False, "shared": False}

    def full(c: Reading) -> list[bool]:
        pattern, n = c.value("index_topk_pattern"), c["n_layers"]
        if pattern is None:
            every, first = c.of(period), c.of(offset)
            return [max(layer - first + 1, 0) % every == 0 for layer in range(n)]
        given = [meaning.get(str(one)) for one in pattern] if isinstance(pattern, (str, list)) else []
        if len(given) < n or None in given[:n]:
            raise c.refusal(f"`index_topk_pattern: {show(pattern)}` must have an F or an S for each of {n} layers")
        return [bool(one) for one in given[:n]]

    own = each("indexer_types", {"full": True, "shared": False}, code(full, "index_topk_pattern", period, offset))
    full_layer = indexer(32)
    return marked(own, {"latent_attention": {"selected_keys": full_layer["top_k"]}}, {"latent_attention": {"indexer": full_layer}})


_QUERY_WIDTH = apply(add, same("latent_attention.nope_dim"), same("latent_attention.rope_dim"))

ROWS: Mapping[str, Row] = {
    # DeepSeek-V3 with a norm after the experts
    "axk1": latent_decoder(
        32768, 1536, deepseek(1), {"experts.output_norm": True},
    ),
    "deepseek_v2": latent_decoder(
        2048, 1536, deepseek(0, scoring="softmax", correction_bias=None, normalize=False, share=2), MLP_BIAS,
        shared_biases(flag("mlp_bias")), only=BY_SOFTMAX | EVERY_LAYER,
    ),
    "deepseek_v3": (v3 := latent_decoder(4096, 1536, deepseek(3), prediction(), only=BY_SIGMOID | EVERY_LAYER)),
    # an indexer in every layer
    "deepseek_v32": latent_decoder(
        163840, 1536, INDEXED, deepseek(3), prediction("num_nextn_predict_layers"), {"latent_attention.indexer": indexer(64)},
        only=BY_SIGMOID,
    ),
    "glm4_moe_lite": latent_decoder(202752, 768, deepseek(mlp_kinds(after(1))), prediction("num_nextn_predict_layers"), nope=192, v=256),
    # an indexer in every layer, or, from GLM-5.2 on, in those of type `full`
    "glm_moe_dsa": latent_decoder(
        202752, 2048, INDEXED, deepseek(3), prediction("num_nextn_predict_layers"), {"layers.indexers": indexed_layers()}, nope=192, v=256,
        only=BY_SIGMOID, ignored={RUNS: "index_share_for_mtp_iteration indexer_rope_interleave"},
    ),
    "kimi_k2": v3,
    # each of its layers is two here, the first with experts next to its feed-forward; 256 experts are the identity
    "longcat_flash": latent_decoder(
        131072, 1536, {"n_layers": code(lambda c: 2 * c.of(layers("num_layers")), layers("num_layers"))},
        {"d_ff": size("ffn_hidden_size intermediate_size"), "_sparse": per_layer(lambda layer, _: layer % 2 == 0)},
        experts(
            number="n_routed_experts num_local_experts", top_k="moe_topk num_experts_per_tok",
            d_ff="expert_ffn_hidden_size moe_intermediate_size", normalize=False, **COMPUTE, correction_bias="buffer",
            empty=nonzero(count("zero_expert_num", 256)), beside_feed_forward=True,
        ),
        only={"zero_expert_type": "identity", "router_bias": False, "qk_head_dim": _QUERY_WIDTH},
        ignored={
            SCALES: "routed_scaling_factor mla_scale_q_lora mla_scale_kv_lora",
            UNREAD: "num_hidden_layers attention_method n_group topk_group norm_topk_prob",
        },
        notes=("each layer of the configuration is two layers here: two attentions and two feed-forwards, with experts next to the first",),
    ),
    "minicpm3": latent_decoder(
        32768, 768, MINICPM_SCALES, MLP_BIAS, tie=True, kv_rank=256, nope=64, rope_dim=32,
        v=code(lambda c: max(c["d_model"] // c["n_heads"], 1)),
    ),
    # latent attention of small ranks
    "mistral4": latent_decoder(
        1048576, 1024, deepseek(0, scoring="softmax", correction_bias=None), {"_unused": window(None)}, kv_rank=256, nope=64,
        only=EVERY_LAYER,
    ),
    "sarvam_mla": latent_decoder(4096, None, deepseek(1), prediction(), only=EVERY_LAYER, ignored={UNREAD: "q_head_dim"}),
    "youtu": latent_decoder(131072, 1536, tie=True, ignored={STARTS: "embedding_initializer_range"}),
}  # fmt: skip
