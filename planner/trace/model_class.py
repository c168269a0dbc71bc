"""How the modules of a class of Hugging Face transformers differ from Llama's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.spec.precision import Dtype

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
    learned_ids: bool = False  # every layer gets the ids that the lookup of learned positions reads
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
    looks_up_patches: bool = False  # positions of patches are looked up; otherwise their table is added
    stored_token_types: bool = True  # and another one has token types; otherwise these are made for each sequence
    unused_ids: bool = False  # buffers have position ids and token types that the model does not read
    # A module of its own embeds tokens, and its variables end with it; a variable of the model keeps the sum of embeddings alive, or not.
    embeds_apart: Literal["no", "freed", "kept"] = "no"
    encodes_per_sequence: bool = False  # those of the encoder
    always_scales: bool = False  # the embedding is multiplied by a constant, even if that is one
    rebinds_input: bool = False  # the variable that has the input of a feed-forward gets its hidden layer
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
