"""Text parts of models that also see or hear, where they differ from a text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.engine import Reading, Row, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel, show
from planner.importer.types.dense import QWEN2, one_window
from planner.importer.types.moe import GLM4_MOE, QWEN3_MOE

_WITHOUT_HEAD_DIM = {"head_dim": divided()}
_GLM4V = decoder(
    32768, GATED, BOTH_SIDES, _WITHOUT_HEAD_DIM, {"attention.bias": bias(True)}, own_kv_heads=2, only={"head_dim": same("head_dim")}
)

# Mllama: a list of layers that attend to images and are skipped without one.
_CROSS = layer_numbers("cross_attention_layers", [3, 8, 13, 18, 23, 28, 33, 38])
_LAYERS = layers("num_hidden_layers")


def _cross_count(c: Reading) -> int:
    return len({layer for layer in c.of(_CROSS) if 0 <= layer < c.of(_LAYERS)})


def _self_count(c: Reading) -> int:
    return positive(c, "num_hidden_layers", int(c.of(_LAYERS)) - _cross_count(c))


def _mllama_tensors(c: Reading) -> list[SpecModel]:
    """Return eight rows of the token embedding that the head lacks, and the tensors of all layers that attend to images."""
    n = _cross_count(c)
    c.notes.append(f"the {n} layers that attend to images are counted as declared tensors; without an image they do not run")
    shapes: dict[str, tuple[list[Any], str]] = {
        "cross_attn.q_proj": (["n_heads*head_dim", "d_model"], "attention"),
        "cross_attn.k_proj": (["n_kv_heads*head_dim", "d_model"], "attention"),
        "cross_attn.v_proj": (["n_kv_heads*head_dim", "d_model"], "attention"),
        "cross_attn.o_proj": (["d_model", "n_heads*head_dim"], "attention"),
        "cross_attn.q_norm": (["head_dim"], "norm"),
        "cross_attn.k_norm": (["head_dim"], "norm"),
        "cross_attn_attn_gate": ([1], "other"),
        "cross_attn_mlp_gate": ([1], "other"),
        "cross_mlp.gate_proj": (["d_ff", "d_model"], "feed_forward"),
        "cross_mlp.up_proj": (["d_ff", "d_model"], "feed_forward"),
        "cross_mlp.down_proj": (["d_model", "d_ff"], "feed_forward"),
        "cross_input_layernorm": (["d_model"], "norm"),
        "cross_post_attention_layernorm": (["d_model"], "norm"),
    }
    cross = [tensor(name, [n, *shape], component) for name, (shape, component) in shapes.items()] if n else []
    return [tensor("embed_tokens.image_rows", [8, "d_model"], "embedding"), *cross]


def _new_rows(c: Reading) -> list[SpecModel] | None:
    """Return the rows of the token embedding for image tokens, which the head lacks."""
    number = c.of(_ADDITIONAL)
    return [tensor("wte.new_embedding", [number, "d_model"], "embedding")] if number else None


_ADDITIONAL = count("additional_vocab_size", 128)


# ERNIE: experts of text and of images, of two widths, behind routers of their own.
def _pair(c: Reading) -> list[int]:
    value = c.value("moe_intermediate_size")
    value = [1536, 512] if value is None else value
    if not isinstance(value, list) or len(value) != 2:
        raise c.refusal("`moe_intermediate_size` must list the widths of the experts of text and of images")
    return [positive(c, "moe_intermediate_size", width) for width in value]


_WIDTHS = code(_pair, "moe_intermediate_size")


def _image_experts(c: Reading) -> list[SpecModel]:
    number, width = c["experts.count"], c.of(_WIDTHS)[1]
    own = [
        tensor("mlp.vision_moe.experts.gate_up_proj", [number, 2 * width, "d_model"], "experts"),
        tensor("mlp.vision_moe.experts.down_proj", [number, "d_model", width], "experts"),
        tensor("mlp.vision_moe.gate.weight", [number, "d_model"], "router"),
        tensor("mlp.vision_moe.gate.moe_statics", [number], "router"),
    ]
    c.notes.append("the experts of images are counted as declared tensors, which no text token uses")
    return [{"extra": own} if sparse else {} for sparse in c["_sparse"]]


# Step 3.5: layers with a window have another number of heads; a gate for each head.
_SLIDING_HEADS = size("num_sliding_attention_heads attention_other_setting.num_attention_heads", same("n_heads"))


def _step_sparse(c: Reading) -> list[bool]:
    given = c.value("moe_layers_enum")
    listed = given.split(",") if isinstance(given, str) else given
    if listed is None:
        return [layer >= 3 for layer in range(c["n_layers"])]
    if not isinstance(listed, list) or not all(str(one).strip().isdecimal() for one in listed):
        raise c.refusal("`moe_layers_enum` must list layer numbers")
    return [layer in {int(one) for one in listed} for layer in range(c["n_layers"])]


def _step_positions(c: Reading) -> list[SpecModel]:
    shares, n = c.value("partial_rotary_factors"), c["n_layers"]
    if shares is None:
        return [{}] * n
    if not isinstance(shares, list) or len(shares) < n:
        raise c.refusal(f"`partial_rotary_factors` must be a list with a number for each of {n} layers")
    made = (rotated(c["head_dim"], int(c["head_dim"] * fraction(c, "partial_rotary_factors", share))) for share in shares[:n])
    return [{} if positions == "rope" else {"positions": positions} for positions in made]


# DeciLM, by its published code: each layer states its attention and feed-forward, either of which may be missing or one matrix.
def _ffn_width(c: Reading, block: Any) -> int:
    given = block.get("intermediate_size")
    width = given if given is not None else int(2 * _number_in(c, block, "ffn_mult") * c["d_model"] / 3)
    return positive(c, "intermediate_size", width if given is not None else -(-width // 256) * 256)


def _number_in(c: Reading, block: Any, key: str) -> float:
    value = block.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 2**20:
        raise c.refusal(f"`block_configs` has `{key}: {show(value)}`, which is not a positive number")
    return value


def _parts(c: Reading, block: Any, key: str) -> Mapping[str, Any]:
    part = block.get(key) if isinstance(block, Mapping) else None
    if not isinstance(part, Mapping) or any(part.get(name) for name in ("sparsify", "num_sink_tokens", "window_length", "moe", "mamba")):
        raise c.refusal(f"`block_configs` has a layer whose `{key}` is {show(part)}")
    return part


def _block(c: Reading, block: Any) -> SpecModel:
    attention, ffn = _parts(c, block, "attention"), _parts(c, block, "ffn")
    made: SpecModel = {"mixer": "none"} if attention.get("no_op") or attention.get("replace_with_linear") else {}
    if not made:
        heads, group = c["n_heads"], _number_in(c, attention, "n_heads_in_group")
        if heads % group:
            raise c.refusal(f"`block_configs` has `n_heads_in_group: {show(group)}`, which does not divide {heads} heads")
        made = {"n_kv_heads": int(heads // group)}
    made |= {"feed_forward": "none"} if ffn.get("no_op") or ffn.get("replace_with_linear") else {"d_ff": _ffn_width(c, ffn)}
    linear = [name for name, part in (("self_attn", attention), ("mlp", ffn)) if part.get("replace_with_linear")]
    components = {"self_attn": "attention", "mlp": "feed_forward"}
    extra = [tensor(f"{name}.linear_attn", ["d_model", "d_model"], components[name], uses=1) for name in linear]
    extra += [tensor(f"{name}.layernorm", ["d_model"], "norm") for name in linear]
    return made | ({"extra": extra} if extra else {})


def _blocks(c: Reading) -> list[SpecModel]:
    blocks, n = c.value("block_configs"), c["n_layers"]
    if not isinstance(blocks, list) or len(blocks) != n:
        raise c.refusal(f"`block_configs` must be a list with an entry for each of {n} layers")
    return [_block(c, block) for block in blocks]


ROWS: Mapping[str, Row] = {
    # experts of images beside those of text in each sparse layer
    "ernie4_5_vl_moe_text": decoder(
        131072, GATED,
        experts(
            number="moe_num_experts num_experts", top_k="moe_k num_experts_per_tok", **COMPUTE, correction_bias="parameter",
            shared=shared_count("moe_num_shared_experts", 2),
        ),
        {"experts.d_ff": apply(lambda widths: widths[0], _WIDTHS)},
        {"attention.bias": flag("use_bias"), "feed_forward.bias": flag("use_bias")},
        shared_biases(flag("use_bias")), {"_sparse": mlp_kinds(after(1)), "layers.image_experts": code(_image_experts, _WIDTHS)},
        own_kv_heads=4, tie=True, ignored={ROUTES: "moe_norm_min"},
    ),
    "glm4v_text": _GLM4V,
    # GLM-4.5 with biases unless they are switched off
    "glm4v_moe_text": row(GLM4_MOE, {"attention.bias": bias(flag("attention_bias", True))}),
    "glm_ocr_text": row(
        _GLM4V, {"context_length": size("max_position_embeddings", 131072), "attention.bias": False, "head_dim": head_dim()},
    ),
    # Qwen 2, whose weights include layers of multi-token prediction
    "mimo": row(QWEN2, prediction("num_nextn_predict_layers", copies=False), {"attention.bias": bias(flag("attention_bias", True))}),
    "mllama_text_model": decoder(
        131072, GATED, _WITHOUT_HEAD_DIM,
        {"n_layers": code(_self_count, _CROSS, _LAYERS), "extra": code(_mllama_tensors, _CROSS, _LAYERS)}, own_kv_heads=8,
        only={"head_dim": same("head_dim")},
    ),
    # by its published code: OLMo's names; `intermediate_size` counts both halves of the gated width
    "molmo": decoder(
        4096, qk_norm("attention_layer_norm", "full_width"), feed_forward("gated", "silu", False),
        {
            "d_ff": half(size("intermediate_size")), "attention.qkv": "fused", "attention.bias": bias(flag("qkv_bias")),
            "norm.placement": when(flag("norm_after"), "after", "before"), "extra": code(_new_rows, _ADDITIONAL),
        },
        own_kv_heads=True, only={"layer_norm_type": "rms", "embedding_size": same("vocab_size"), "weight_tying": False},
        ignored={SCALES: "clip_qkv", RUNS: "use_position_ids"},
    ),
    "molmo2_text": decoder(
        36864, GATED, {"attention.bias": bias(flag("attention_bias qkv_bias"))},
        {
            "attention.qk_norm": choice("qk_norm_type", {"qwen3": "head_dim", "olmo": "full_width"}, "head_dim"),
            "norm.placement": when(flag("norm_after"), "after", "before"), "extra": code(_new_rows, _ADDITIONAL),
        },
        width=128, own_kv_heads=8, only={"tie_word_embeddings": False}, ignored={ROTATES: "rope_scaling_layers"},
    ),
    "phi4_multimodal": decoder(
        131072, GATED, one_window(None), _WITHOUT_HEAD_DIM, {"attention.qkv": "fused"}, own_kv_heads=8,
        only={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False, "head_dim": same("head_dim")},
        ignored={ROTATES: "interpolate_factor", UNREAD: "full_attn_mod"},
    ),
    "nemotron-nas": decoder(
        2048, BIAS, MLP_BIAS, feed_forward("gated", activation("hidden_act", "silu"), flag("mlp_bias")), _WITHOUT_HEAD_DIM,
        {"layers.blocks": code(_blocks, "block_configs")},
        only={"head_dim": same("head_dim"), "intermediate_size": (), "num_key_value_heads": ()},
    ),
    "qwen2_5_omni_text": row(QWEN2, tied(True)),
    "qwen3_omni_moe_text": row(QWEN3_MOE, {"experts.normalize": normalized(True)}),
    "step3p5": decoder(
        128000, GATED, HEAD_NORM, MLP_BIAS, windowed(kinds(FULL), window(None)),
        experts(
            number="n_routed_experts moe_num_experts num_local_experts", top_k="num_experts_per_tok moe_top_k", **SIGMOID,
            shared=shared(size("share_expert_dim share_expert_dims", 1280)),
        ),
        {
            "n_kv_heads": size("num_key_value_heads num_attention_groups", 8), "attention.bias": flag("attention_bias"),
            "attention.output_gate": "head", "_sparse": mlp_kinds(code(_step_sparse, "moe_layers_enum")),
            "layers.heads": apply(
                lambda kinds, heads, most: [{"n_heads": heads} if kind == SLIDING and heads != most else {} for kind in kinds],
                same("_kinds"), _SLIDING_HEADS, same("n_heads"),
            ),
            "layers.positions": code(_step_positions, "partial_rotary_factors"),
        },
        shared_biases(flag("mlp_bias")), width=128,
        only={
            "use_head_wise_attn_gate": True, "use_qk_norm": True, "use_moe": True, "use_moe_router_bias": True,
            "attention_other_setting.attention_type": SLIDING, "attention_other_setting.head_dim": same("head_dim"),
            "attention_other_setting.num_attention_groups": same("n_kv_heads"),
            "moe_router_activation": "sigmoid", "moe_every_n_layer": 1, "norm_expert_weight": True,
        },
        ignored={
            SCALES: "swiglu_limits swiglu_limits_shared query_pre_attn_scalar moe_router_scaling_factor",
            RUNS: "need_fp32_gate", DERIVED: "per_layer_config", UNREAD: "mtp_layer_types mtp_mlp_layer_types",
        },
        notes=("layers of multi-token prediction are not counted",),
    ),
}  # fmt: skip
