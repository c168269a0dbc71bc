"""The classes of Hugging Face transformers that are modeled, and the differences between their modules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.spec.precision import Dtype
from planner.spec.records import Model, ModelType

# [1, H, n, n] with the causal mask; the same for each sequence; a row per head, [B, H, 1, n] or [1, H, 1, context] in float32, besides it.
AlibiKind = Literal["square", "square_per_sequence", "row_per_sequence", "row_of_context"]
LayerNormKind = Literal["fused", "input_in_float32", "by_parts", "weight_plus_one"]

# Of Gated DeltaNet: in two matrices, ordered by key head; queries, keys and values in one; all in their own, with steps times two.
DeltaProjections = Literal["per_key_head", "joined", "separate"]


@dataclass(frozen=True, slots=True)
class ModelClass:
    """How the modules of a class differ from Llama's, apart from what a spec states."""

    residual_dropout: bool = False  # on token embeddings and sublayer outputs, besides attention probabilities
    position_ids: bool = True  # every layer gets position ids
    softmax_in_float32: bool = True  # in eager attention, for any dtype of the scores
    explicit_mask: bool = False  # fused attention gets a mask even if a flag would do
    fused_attention: bool = True  # attention may run in one operator; otherwise only by products
    grouped_heads: bool = True  # fused attention supports fewer key heads than query heads; otherwise it broadcasts one
    indexed_kv: bool = False  # keys and values are selected from a fused projection by an index, a copy, and repeated to all heads
    scores_in_float32: bool = False  # eager attention casts queries and keys to float32 before their product
    scores_without_autocast: bool = False  # and autocast does not cast them for the product
    appends_sinks: bool = False  # eager attention appends each head's sink to its scores
    keeps_scores: bool = False  # beside those with sinks
    subtracts_largest: bool = False  # eager attention subtracts each row's largest score
    sinks_in_float32: bool = False  # sinks are stored in float32 for any dtype of the model
    scales_by_sinks: bool = False  # eager attention multiplies its output by sigmoid(logsumexp of the scores - sink)
    both_masks: bool = False  # masks with and without a window are made, even if all layers read the same one
    boolean_mask: bool = False  # eager attention fills scores by a Boolean mask that layers share
    mask_buffer: Literal["none", "layer", "model"] = "none"  # who stores a Boolean causal mask of context_length² elements
    multiplies_mask: bool = False  # eager attention multiplies scores by a stored mask in the weights' dtype, and there is no other mask
    floors_scores: bool = False  # eager attention takes the maximum of its masked scores and the smallest number
    dynamic_mask: bool = False  # each layer makes its mask of its values: a factor per KV head and key, filled by the causal mask
    fills_probabilities: bool = False  # eager attention fills scores, and after the softmax probabilities, by an int32 mask
    joins_new_rows: bool = False  # rows of the token embedding that a spec declares apart are in the same table
    prompts: bool = False  # a learned prompt precedes each sequence; layers share a learned bias of scores
    unshifted_loss: bool = False  # the loss reads the logits in their dtype, and labels that are not shifted
    divides_input: bool = False  # RMSNorm multiplies its input by the float32 root, not the input's float32 copy
    scale_buffer: bool = True  # the scale of the embedding is a buffer
    passes_selection: bool = False  # a layer gets the keys that the indexer of the previous layer selected
    scale_dtype: Dtype | None = None  # the embedding is multiplied by a tensor of this dtype, cast to its own; otherwise by a constant
    scales_head_input: bool = False  # multiplies the last hidden states by a constant before the head
    more_sinusoids: int = 0  # rows of the buffer of sinusoidal positions besides those of the context
    stored_position_ids: bool = False  # a buffer has the indices of learned positions
    unused_ids: bool = False  # buffers have position ids and token types that the model does not read
    # A module of its own embeds tokens, and its variables end with it; a variable of the model keeps the sum of embeddings alive, or not.
    embeds_apart: Literal["no", "freed", "kept"] = "no"
    encodes_per_sequence: bool = False  # those of the encoder
    always_scales: bool = False  # the embedding is multiplied by a constant, even if that is one
    casts_hidden: bool = False  # the hidden layer of a feed-forward is cast to the weights' dtype
    copies_heads: bool = False  # queries are scaled, and all heads copied to be adjacent in memory, before attention
    logits_bias: bool = False  # a buffer is added to the logits
    positions_per_sequence: bool = False  # position ids and the indices of learned positions are made for each sequence
    alibi: AlibiKind = "square"
    stored_tables: bool = False  # a buffer has cosines and sines; queries and keys, not yet transposed, each repeat their own
    joins_rotated: bool = False  # concatenates rotated channels with the rest, even if the rest is empty
    layer_norm: LayerNormKind = "fused"
    scales_in_float32: bool = False  # RMSNorm multiplies by its weight before it casts back
    casts_norm_weight: bool = False  # and casts the weight to float32 first
    root_by_power: bool = False  # RMSNorm's reciprocal root is a power, which saves the mean of squares
    tables_in_float32: bool = False  # rotary cosines and sines are not cast to the weights' dtype
    tables_per_layer: bool = False  # every layer repeats its own cosines and sines from half of the shared ones
    tables_per_window: bool = False  # layers with and without a window have their own frequencies, cosines and sines
    own_tables: bool = False  # only layers that read cosines and sines get them, as with those per window
    masks_mixers: bool = False  # layers without attention get its mask, too
    tables_in_attention: bool = False  # every attention makes its own cosines and sines, in the dtype of its values
    unused_frequencies: bool = False  # the model stores frequencies once more, and computes nothing from them
    tables_of_whole_heads: bool = False  # cosines and sines of all channels of a head, also of those that are not rotated
    keeps_parts: bool = False  # the heads' parts with and without rotation stay alive until attention ends
    # Of token mixers: they stay alive until the layer ends. With norms after the residual sum, the output is that of the norm; both: the
    # output of the sublayer stays alive until its norm.
    keeps_ends: Literal["none", "input", "output", "both"] = "none"
    rotates_in_float32: bool = False  # casts queries and keys to float32 and back
    half_tables: bool = False  # rotary cosines and sines of half the channels, by which each half is multiplied
    # Its dtype; by scoring: float32 with a sigmoid, else compute; cast: stored in compute, and cast to float32 for its logits; uncast:
    # compute, and its scores are not cast to float32.
    router: Literal["by_scoring", "float32", "compute", "cast", "uncast"] = "by_scoring"
    router_without_autocast: bool = False  # it computes without autocast
    # The router's scores are of the logits of the chosen experts: in their dtype, autocast's, float32, to which all or these are cast, or
    # these are gathered.
    scores_chosen: Literal["none", "compute", "autocast", "float32", "chosen_in_float32", "gathered"] = "none"
    gathers_scores: bool = False  # by the indices of the chosen experts, which scoring by sigmoid always does
    normalization: Literal["in_place", "apart", "clamped"] = "in_place"  # weights are divided by their sums in place, apart, or clamped
    scores_like_input: bool = False  # scores in the dtype of the computation are cast to the router's input's, not its logits'
    scales: Literal["by_scoring", "weights", "output"] = "by_scoring"  # of the router or of the experts; by scoring: weights with a sigmoid
    correction_in_float32: bool = False  # the correction of the scores is stored in float32 for any dtype of the router
    sparse_mixer: bool = False  # PhiMoE's choice of two experts, one after the other
    clamps_gate: bool = False  # experts clamp gate and up: (up + 1) · gate · sigmoid(alpha · gate)
    runs_all_experts: bool = False  # on all tokens, in batched products
    gelu_backward_in_parts: bool = False  # the derivative of GELU is written out operator by operator
    swaps_before_cast: bool = False  # swaps the halves before it casts them
    normalizes_transposed: bool = False  # normalizes queries and keys after it transposes them
    normalizes_rotated: bool = False  # normalizes rotated queries and keys after rotation, without a weight if the spec has no qk_norm
    normalizes_values: bool = False  # values have a norm without a weight
    gates_first: bool = False  # the output gate is projected before queries, keys and values
    softplus_gate: bool = False  # the output gate is the softplus of its scores in float32, not their sigmoid
    normalizes_each: bool = False  # queries are normalized before keys are projected
    shared_first: bool = False  # shared experts run before the router
    complex_tables: bool = False  # one complex table instead of cosines and sines, by which pairs are multiplied in float32
    # A factor per position on the queries of layers with or without rotation, made by each layer, or by the model for all of the latter.
    query_scale: Literal["none", "rotated", "unrotated", "shared"] = "none"
    gates_in_float32: bool = False  # the activation of the gate and its product with up are float32
    scales_residual: bool = False  # constants scale both terms of a residual sum
    softcaps_in_float32: bool = False  # logits are cast to float32 before they are soft-capped
    xielu: bool = False  # the feed-forward's function is xIELU, operator by operator
    replaces_ids: bool = False  # the per-layer embedding reads ids of its own, without those beyond its rows
    # Whose last keys and values of each kind the model stores until the step ends: of models whose layers reuse keys, or of all.
    stores_keys: Literal["none", "reused", "all"] = "none"
    layer_scalar: bool = False  # each layer multiplies its output in place by a buffer of one element
    fused_gate_up: bool = False  # one projection returns gate and up
    delta_projections: DeltaProjections = "per_key_head"
    gate_in_queries: bool = False  # the projection of queries also returns the scores of their gate, head by head
    tables_per_sequence: bool = False  # rotary cosines and sines are made for each sequence
    scales_mixers: bool = False  # inputs and outputs of mixers and attention are scaled, also by a vector of constants
    norm_in_first_layer: bool = False  # the first layer normalizes the embeddings
    residual_in_float32: bool = False  # the first layer casts the residual stream to float32; norms read it in the weights' dtype
    normalizes_selected: bool = False  # Mamba normalizes dt, B and C without a weight, and stores weights of one in buffers


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
    "electra": replace(BERT, embeds_apart="freed"),
    **dict.fromkeys(("camembert", "roberta", "xlm-roberta"), replace(BERT, positions_per_sequence=True)),
    **dict.fromkeys(("bart", "mbart", "plbart"), BART),
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
    "gpt2": ModelClass(residual_dropout=True, position_ids=False, softmax_in_float32=False, keeps_ends="output"),
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
        residual_dropout=True, softmax_in_float32=False, unshifted_loss=True, unused_ids=True, embeds_apart="kept", keeps_ends="output"
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
    "t5": replace(T5, scales_head_input=True),
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
    """Return the differences of the model's class. A class that caps scores has no fused attention, which refuses that."""
    its = CLASSES[modeled_class(model)]
    kinds = (layer.attention for run in model.runs for layer in run.layers)
    capped = any(kind and kind.logit_softcap is not None for kind in kinds)
    return replace(its, fused_attention=False) if capped else its


def of_encoder(its: ModelClass) -> ModelClass:
    """Return the differences of the encoder of a class."""
    return replace(its, positions_per_sequence=its.encodes_per_sequence)


def first_alike(model: Model) -> ModelType:
    """Return the first class with the same modules as the model's."""
    its = CLASSES[modeled_class(model)]
    return next(name for name, other in CLASSES.items() if other == its)
