"""The classes of Hugging Face transformers that are modeled."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Model, ModelType
from planner.trace.model_class import ModelClass

AS_LLAMA: tuple[ModelType, ...] = (
    "arcee", "axk1", "bitnet", "deepseek_v3", "deepseek_v32", "diffllama", "exaone", "exaone_moe", "gemma", "glm4_moe_lite",
    "granite", "hyperclovax", "internlm3", "iquestcoder", "jais2", "llama", "mistral", "mixtral", "qwen2", "sarvam_mla", "smollm3",
    "solar_open", "youtu",
)  # fmt: skip
AS_GEMMA2: tuple[ModelType, ...] = ("cwm", "gemma2", "ministral", "vaultgemma")
AS_QWEN3: tuple[ModelType, ...] = ("dots1", "mellum", "olmoe", "qwen3", "qwen3_moe")

BERT = ModelClass(
    residual_dropout=True,
    position_ids=False,
    softmax_in_float32=False,
    unshifted_loss=True,
    stored_position_ids=True,
    embeds_apart="kept",
    keeps_ends="both",
)

CLIP = ModelClass(position_ids=False, stored_position_ids=True, embeds_apart="kept", looks_up_patches=True)

BART = ModelClass(
    residual_dropout=True,
    position_ids=False,
    softmax_in_float32=False,
    unshifted_loss=True,
    encodes_per_sequence=True,
    always_scales=True,
    scale_buffer=False,
    logits_bias=True,
    keeps_ends="output",
    rebinds_input=True,
)

WHISPER = replace(
    BART,
    encodes_per_sequence=False,
    positions_per_sequence=True,
    always_scales=False,
    logits_bias=False,
    keeps_ends="none",
    copies_heads=True,
)
T5 = ModelClass(
    residual_dropout=True,
    position_ids=False,
    softmax_in_float32=False,
    unshifted_loss=True,
    divides_input=True,
    casts_hidden=True,
)

CLASSES: dict[ModelType, ModelClass] = {
    **dict.fromkeys(AS_LLAMA, ModelClass()),
    **dict.fromkeys(AS_GEMMA2, ModelClass(both_masks=True)),
    **dict.fromkeys(AS_QWEN3, ModelClass(normalizes_each=True)),
    "afmoe": ModelClass(
        both_masks=True,
        scales_in_float32=True,
        router="compute",
        normalization="apart",
        correction_in_float32=True,
        shared_first=True,
        gates_first=True,
    ),
    "apertus": ModelClass(xielu=True),
    "apertus1p5_text": ModelClass(xielu=True),
    "aria_text": ModelClass(scores_chosen="autocast"),
    **dict.fromkeys(("bert", "distilbert"), BERT),
    "eurobert": ModelClass(),
    "rembert": replace(BERT, fused_attention=False, stored_token_types=False),
    "xlm-roberta-xl": replace(BERT, positions_per_sequence=True, keeps_ends="none", rebinds_input=True),
    "electra": replace(BERT, embeds_apart="freed"),
    **dict.fromkeys(("camembert", "roberta", "xlm-roberta"), replace(BERT, positions_per_sequence=True)),
    **dict.fromkeys(("bart", "mbart", "plbart"), BART),
    **dict.fromkeys(("blenderbot", "marian", "pegasus"), replace(BART, encodes_per_sequence=False)),
    "m2m_100": replace(BART, logits_bias=False, more_sinusoids=2),
    "beam": ModelClass(
        scales_in_float32=True,
        tables_in_float32=True,
        normalizes_each=True,
        query_scale="shared",
        gates_in_float32=True,
        scales_residual=True,
        softcaps_in_float32=True,
    ),
    "bloom": ModelClass(
        residual_dropout=True, position_ids=False, fused_attention=False, gelu_backward_in_parts=True, alibi="row_per_sequence"
    ),
    "cohere": ModelClass(layer_norm="by_parts", rotates_in_float32=True),
    "cohere2": ModelClass(both_masks=True, layer_norm="by_parts", rotates_in_float32=True),
    "cohere2_moe": ModelClass(
        both_masks=True, layer_norm="by_parts", rotates_in_float32=True, router="compute", scores_chosen="chosen_in_float32"
    ),
    "doge": ModelClass(residual_dropout=True, explicit_mask=True, normalizes_each=True, dynamic_mask=True),
    "ernie4_5": ModelClass(tables_in_float32=True, tables_per_layer=True, rotates_in_float32=True, swaps_before_cast=True),
    "ernie4_5_moe": ModelClass(
        tables_in_float32=True,
        tables_per_layer=True,
        rotates_in_float32=True,
        swaps_before_cast=True,
        router="float32",
        router_without_autocast=True,
        gathers_scores=True,
        normalization="clamped",
        scores_like_input=True,
        shared_first=True,
    ),
    "cpmant": ModelClass(
        residual_dropout=True,
        position_ids=False,
        fused_attention=False,
        softmax_in_float32=False,
        fills_probabilities=True,
        prompts=True,
        divides_input=True,
        unshifted_loss=True,
    ),
    "ctrl": ModelClass(residual_dropout=True, position_ids=False, softmax_in_float32=False, scale_buffer=False),
    "deepseek_v2": ModelClass(router="float32", complex_tables=True),
    "falcon": ModelClass(explicit_mask=True, grouped_heads=False, indexed_kv=True, softmax_in_float32=False, alibi="square_per_sequence"),
    "flint": ModelClass(
        both_masks=True,
        fused_attention=False,
        softmax_in_float32=False,
        scores_in_float32=True,
        scores_without_autocast=True,
        appends_sinks=True,
        sinks_in_float32=True,
        scales_in_float32=True,
        router_without_autocast=True,
        normalizes_each=True,
    ),
    "flex_olmo": ModelClass(scales_in_float32=True, tables_in_float32=True, normalizes_each=True),
    "exaone4": ModelClass(normalizes_transposed=True),
    "gemma3_text": ModelClass(both_masks=True, tables_per_window=True, normalizes_transposed=True),
    "gemma3n_text": ModelClass(
        both_masks=True,
        scales_in_float32=True,
        casts_norm_weight=True,
        root_by_power=True,
        tables_per_window=True,
        normalizes_values=True,
        replaces_ids=True,
        stores_keys="reused",
    ),
    "gemma4_text": ModelClass(
        both_masks=True,
        scales_in_float32=True,
        casts_norm_weight=True,
        root_by_power=True,
        tables_per_window=True,
        tables_of_whole_heads=True,
        normalizes_values=True,
        stores_keys="all",
        layer_scalar=True,
    ),
    "glm": ModelClass(joins_rotated=True, tables_per_layer=True, fused_gate_up=True),
    "glm4": ModelClass(joins_rotated=True, tables_per_layer=True, fused_gate_up=True),
    "glm4_moe": ModelClass(joins_rotated=True),
    "glm_moe_dsa": ModelClass(passes_selection=True),
    "gpt2": ModelClass(residual_dropout=True, position_ids=False, learned_ids=True, softmax_in_float32=False, keeps_ends="output"),
    "gpt_bigcode": ModelClass(residual_dropout=True, position_ids=False, mask_buffer="model"),
    "gpt_neo": ModelClass(residual_dropout=True, position_ids=False, fused_attention=False, scores_in_float32=True, mask_buffer="layer"),
    "gpt_neox": ModelClass(residual_dropout=True, joins_rotated=True),
    "gpt_oss": ModelClass(
        both_masks=True,
        fused_attention=False,
        appends_sinks=True,
        keeps_scores=True,
        subtracts_largest=True,
        softmax_in_float32=False,
        scales_in_float32=True,
        half_tables=True,
        scores_chosen="compute",
        clamps_gate=True,
    ),
    "biogpt": ModelClass(residual_dropout=True, softmax_in_float32=False, scale_buffer=False),
    "codegen": ModelClass(residual_dropout=True, scores_in_float32=True, stored_tables=True, tables_in_float32=True),
    "gpt_neox_japanese": ModelClass(residual_dropout=True, fused_attention=False, softmax_in_float32=False, keeps_parts=True),
    "xglm": ModelClass(
        residual_dropout=True,
        position_ids=False,
        fused_attention=False,
        softmax_in_float32=False,
        floors_scores=True,
        scale_buffer=False,
        more_sinusoids=2,
    ),
    "lara_mini": ModelClass(
        scales_in_float32=True,
        casts_norm_weight=True,
        normalizes_each=True,
        own_tables=True,
        router="cast",
        scores_like_input=True,
        delta_projections="joined",
    ),
    "lfm3": ModelClass(tables_in_float32=True, tables_per_window=True, tables_of_whole_heads=True, normalizes_each=True),
    "granite_swa": ModelClass(both_masks=True, fused_attention=False, scales_by_sinks=True, unused_frequencies=True),
    "granitemoe_swa": ModelClass(
        both_masks=True, fused_attention=False, scales_by_sinks=True, unused_frequencies=True, scores_chosen="float32", fused_gate_up=True
    ),
    "hy_v3": ModelClass(normalization="apart"),
    "laguna": ModelClass(
        joins_rotated=True,
        tables_per_window=True,
        router="compute",
        normalization="apart",
        scores_like_input=True,
        scales="output",
        shared_first=True,
        softplus_gate=True,
    ),
    "kolibri1": ModelClass(both_masks=True, router="cast", scores_chosen="gathered"),
    "mimo_v2_flash": ModelClass(
        fused_attention=False, appends_sinks=True, subtracts_largest=True, softmax_in_float32=False, tables_per_window=True
    ),
    "openai-gpt": ModelClass(
        residual_dropout=True,
        position_ids=False,
        softmax_in_float32=False,
        fused_attention=False,
        mask_buffer="layer",
        multiplies_mask=True,
        stored_position_ids=True,
    ),
    "gptj": ModelClass(residual_dropout=True, scores_in_float32=True, stored_tables=True),
    "granitemoe": ModelClass(scores_chosen="float32"),
    "granitemoeshared": ModelClass(scores_chosen="float32", fused_gate_up=True),
    "helium": ModelClass(scales_in_float32=True, casts_norm_weight=True, tables_per_layer=True),
    "hunyuan_v1_dense": ModelClass(normalizes_rotated=True),
    "hunyuan_v1_moe": ModelClass(router="float32", shared_first=True, normalizes_rotated=True),
    "jamba": ModelClass(scores_like_input=True),
    "lfm2": ModelClass(normalizes_each=True),
    "modernbert": ModelClass(
        position_ids=False,
        both_masks=True,
        tables_per_window=True,
        own_tables=True,
        rotates_in_float32=True,
        fused_gate_up=True,
        embeds_apart="freed",
    ),
    "nomic_bert": ModelClass(
        residual_dropout=True, softmax_in_float32=False, unshifted_loss=True, unused_ids=True, embeds_apart="kept", keeps_ends="both"
    ),
    "nanochat": ModelClass(normalizes_rotated=True),
    "llama4_text": ModelClass(
        keeps_ends="output",
        softmax_in_float32=False,
        complex_tables=True,
        query_scale="unrotated",
        runs_all_experts=True,
    ),
    "minimax_m2": ModelClass(joins_rotated=True, normalizes_each=True, router="compute"),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text"), ModelClass(tables_per_sequence=True, position_ids=False)),
    **dict.fromkeys(
        ("qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), ModelClass(tables_per_sequence=True, normalizes_each=True)
    ),
    **dict.fromkeys(
        ("glm4v_text", "glm_ocr_text"), ModelClass(tables_per_sequence=True, position_ids=False, joins_rotated=True, fused_gate_up=True)
    ),
    "molmo2_text": ModelClass(joins_new_rows=True, unused_frequencies=True),
    "glm4v_moe_text": ModelClass(tables_per_sequence=True, joins_rotated=True),
    "phi4_multimodal": ModelClass(joins_rotated=True, fused_gate_up=True),
    "mistral4": ModelClass(query_scale="rotated", router="uncast", gathers_scores=True, scales="weights"),
    "lfm2_moe": ModelClass(router="uncast", normalization="apart", correction_in_float32=True, normalizes_each=True),
    "minicpm3": ModelClass(scale_dtype="int64", scales_head_input=True),
    "ministral3": ModelClass(query_scale="rotated"),
    "mpt": ModelClass(residual_dropout=True, position_ids=False, fused_attention=False, boolean_mask=True, alibi="row_of_context"),
    "nemotron": ModelClass(layer_norm="weight_plus_one", joins_rotated=True),
    "olmo": ModelClass(layer_norm="input_in_float32", tables_in_float32=True),
    "olmo2": ModelClass(scales_in_float32=True, tables_in_float32=True, normalizes_each=True),
    "olmo3": ModelClass(both_masks=True, scales_in_float32=True, tables_in_float32=True, tables_per_window=True, normalizes_each=True),
    "opt": ModelClass(residual_dropout=True, positions_per_sequence=True),
    "persimmon": ModelClass(residual_dropout=True, joins_rotated=True, keeps_parts=True),
    "phi": ModelClass(residual_dropout=True, joins_rotated=True, keeps_parts=True),
    "phimoe": ModelClass(router="uncast", sparse_mixer=True),
    "phi3": ModelClass(joins_rotated=True, fused_gate_up=True),
    "qwen2_moe": ModelClass(both_masks=True, shared_first=True),
    "sarvam_moe": ModelClass(joins_rotated=True),
    "seed_oss": ModelClass(residual_dropout=True),
    "stablelm": ModelClass(residual_dropout=True, joins_rotated=True, keeps_ends="both", keeps_parts=True),
    "starcoder2": ModelClass(residual_dropout=True),
    "falcon_h1": ModelClass(scales_mixers=True),
    "falcon_mamba": ModelClass(position_ids=False, residual_in_float32=True, normalizes_selected=True),
    "mamba": ModelClass(position_ids=False, residual_in_float32=True),
    "mamba2": ModelClass(position_ids=False, residual_in_float32=True),
    "granitemoehybrid": ModelClass(position_ids=False, scores_chosen="float32", fused_gate_up=True),
    "nemotron_h": ModelClass(scales_in_float32=True, casts_norm_weight=True),
    "olmo_hybrid": ModelClass(
        scales_in_float32=True, tables_in_float32=True, own_tables=True, normalizes_each=True, delta_projections="separate"
    ),
    **dict.fromkeys(
        ("qwen3_5_text", "qwen3_5_moe_text"),
        ModelClass(gate_in_queries=True, normalizes_each=True, delta_projections="joined", tables_per_sequence=True, shared_first=True),
    ),
    "qwen3_next": ModelClass(gate_in_queries=True, normalizes_each=True, shared_first=True),
    "recurrent_gemma": ModelClass(scale_dtype="bfloat16", masks_mixers=True, tables_in_attention=True, keeps_ends="input"),
    **dict.fromkeys(("t5", "umt5"), replace(T5, scales_head_input=True)),
    "mt5": T5,
    "vit": ModelClass(residual_dropout=True, position_ids=False, embeds_apart="kept"),
    "whisper": WHISPER,
    "xlstm": ModelClass(position_ids=False, softcaps_in_float32=True),
    "rwkv": ModelClass(position_ids=False, norm_in_first_layer=True),
}


def modeled_class(model: Model) -> ModelType:
    """Return the class whose modules run under the implementations of transformers.

    That is the spec's ``model.model_type``, if its differences from Llama are known. Else, without a causal mask, vit for images and bert
    for text; gpt2 for learned positions and a fused QKV projection, gpt_neox for LayerNorm with one that is fused per head, starcoder2 for
    other LayerNorm, and llama for RMSNorm.
    """
    if model.model_type in CLASSES:
        return model.model_type
    if model.encoder:
        return "whisper" if model.encoder.frames else "t5" if model.positions.type == "bucketed" else "bart"
    if not model.causal:
        return "vit" if model.patches else "bert"
    first = model.runs[0].layers[0].attention
    if model.positions.type == "learned" and first is not None and first.qkv == "fused":
        return "gpt2"
    if model.norm.type == "layernorm":
        return "gpt_neox" if first is not None and first.qkv == "fused_per_head" else "starcoder2"
    return "llama"


def class_of(model: Model) -> ModelClass:
    """Return the differences of the model's class.

    A class that caps scores has no fused attention, which refuses that. T5 scales what a tied head reads.
    """
    its = CLASSES[modeled_class(model)]
    if model.encoder and not model.tied_head:
        its = replace(its, scales_head_input=False)
    kinds = (layer.attention for run in model.runs for layer in run.layers)
    capped = any(kind and kind.logit_softcap is not None for kind in kinds)
    return replace(its, fused_attention=False) if capped else its


def of_encoder(its: ModelClass) -> ModelClass:
    """Return the differences of the encoder of a class."""
    return replace(its, positions_per_sequence=its.encodes_per_sequence)


def of_tower(its: ModelClass) -> ModelClass:
    """Return the differences of a class's tower, CLIP's."""
    return CLIP if its in CLASSES.values() else its


def first_alike(model: Model) -> ModelType:
    """Return the first class with the same modules as the model's."""
    its = CLASSES[modeled_class(model)]
    return next(name for name, other in CLASSES.items() if other == its)
