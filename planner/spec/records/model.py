"""The model: layers made of parts, runs of layers, and what stands around them."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, record
from planner.spec.records.attention import Attention, LatentAttention
from planner.spec.records.mixers import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    Mlstm,
    RgLru,
    Rwkv,
    ShortConvolution,
)
from planner.spec.records.parts import Experts, Extra, FeedForward, Norm, NormPlacement, Positions

ModelType = Literal["gpt2", "gpt_neox", "llama", "qwen2", "qwen3", "gemma2", "mixtral", "qwen3_moe", "deepseek_v3"]
BlockType = Literal["sequential", "parallel_one_norm", "parallel_two_norms"]


# A table, in which a key takes a line or two.
# fmt: off

@record
class Layer:
    """One decoder layer: mixers side by side on one input, then a feed-forward or experts, and the norms around them."""

    n_heads: ClassVar[int] = key("Query heads of the attention (unit: heads).", title="n_heads", example=12,
        aliases="num_attention_heads n_head num_heads nhead attention_heads")
    n_kv_heads: ClassVar[int] = key("Key and value heads (unit: heads): n_heads is multi-head, 1 multi-query, between them grouped-query "
        "attention. Default: n_heads.", title="n_kv_heads", derived="n_heads", example=12,
        aliases="num_key_value_heads num_kv_heads n_query_groups num_query_groups n_head_kv n_kv_head kv_heads")
    head_dim: ClassVar[int] = key("Width of one head (unit: channels). Default: d_model / n_heads, which must divide.", title="head_dim",
        derived="d_model / n_heads, which must divide", example=64, aliases="head_size d_head d_kv kv_channels attention_head_dim")
    d_ff: ClassVar[int] = key("Width of the feed-forward's hidden layer (unit: channels). Default: 4 * d_model; required where the "
        "feed-forward is gated.", title="d_ff", derived="4 * d_model; required where the feed-forward is gated", example=3072,
        aliases="intermediate_size ffn_hidden_size n_inner ffn_dim ff_dim dim_feedforward dff hidden_dim mlp_dim mlp_hidden_size")
    mixer: ClassVar[str] = key("What carries information from token to token: one name, or a list of names side by side on the same input, "
        "e.g. [attention, mamba2]; none: the layer has only its feed-forward. Each but attention has its settings under its own name. No "
        "unit.", title="Mixer", default="attention", aliases="layer_types layer_type layers_block_type block_types mixers token_mixer",
        values={"attention": "full_attention sliding_attention self_attention softmax_attention full sliding_window mha gqa mqa",
        "latent_attention": "mla multi_head_latent_attention", "mamba": "mamba1 ssm s6", "mamba2": "ssd mamba_2",
        "gated_delta_net": "linear_attention gdn deltanet gated_deltanet", "kimi_delta_attention": "kda",
        "lightning_attention": "lightning", "rg_lru": "recurrent rglru griffin", "rwkv": "rwkv4", "short_convolution": "conv short_conv",
        "mlstm": "xlstm", "none": "mlp moe feed_forward ffn"})
    attention: Attention | None = group("Switches of the attention (no unit).", title="Attention", kind=Attention)
    latent_attention: ClassVar[object] = group("Multi-head latent attention of DeepSeek-V2 (sizes are counts): keys and values come from "
        "one compressed vector a token. n_heads is the layer's. Needs kv_rank, nope_dim, rope_dim and v_dim.", title="Latent attention",
        kind=LatentAttention, form="none", aliases="mla multi_head_latent_attention")
    mamba: ClassVar[object] = group("Mamba-1 (sizes are counts). Needs d_inner.", title="Mamba", kind=Mamba, form="none")
    mamba2: ClassVar[object] = group("Mamba-2 (sizes are counts). Needs d_inner, d_state, n_heads and n_groups.", title="Mamba-2",
        kind=Mamba2, form="none")
    gated_delta_net: ClassVar[object] = group("Gated DeltaNet as in Qwen3-Next (sizes are counts). Needs n_key_heads, n_value_heads, "
        "key_dim and value_dim.", title="Gated DeltaNet", kind=GatedDeltaNet, form="none")
    kimi_delta_attention: ClassVar[object] = group("Kimi Delta Attention (sizes are counts). Needs n_heads and head_dim.",
        title="Kimi Delta Attention", kind=KimiDeltaAttention, form="none")
    lightning_attention: ClassVar[object] = group("Lightning attention with an output gate, as in MiniMax-01 (sizes are counts). Needs "
        "n_heads and head_dim.", title="Lightning attention", kind=LightningAttention, form="none")
    rg_lru: ClassVar[object] = group("The recurrent block of Griffin (sizes are counts). Needs width and n_blocks.", title="RG-LRU",
        kind=RgLru, form="none", aliases="recurrent rglru griffin")
    rwkv: ClassVar[object] = group("The time mixing of RWKV-4 (sizes are counts); its channel mixing is feed_forward.type: rwkv. Needs "
        "width.", title="RWKV time mixing", kind=Rwkv, form="none")
    short_convolution: ClassVar[object] = group("The gated short convolution of LFM2 (sizes are counts).", title="Short convolution",
        kind=ShortConvolution, form="none", aliases="short_conv lfm2_conv")
    mlstm: ClassVar[object] = group("The mLSTM of xLSTM-7B (sizes are counts). Needs n_heads, qk_dim and v_dim.", title="mLSTM", kind=Mlstm,
        form="none")
    feed_forward: FeedForward | None = group("Switches of the feed-forward (no unit). none: the layer has no feed-forward.",
        title="Feed-forward", kind=FeedForward, form="none", aliases="mlp ffn ff feedforward")
    mixers: tuple[Mixer, ...] = ()  # beside the attention, or in its place
    experts: Experts | None = group("A mixture of experts in the place of the feed-forward, or beside it (sizes are counts). none: a dense "
        "layer. Needs count, top_k and d_ff.", title="Experts", kind=Experts, form="none", default=None,
        aliases="moe mixture_of_experts moe_config ffn_config")
    norm: Norm = group("What the normalisations are and where they stand (no unit). At the model it also holds for the final norm and the "
        "embedding norm.", title="Norm", kind=Norm, default=Norm())
    norm_placement: NormPlacement = "before"
    block: BlockType = key("Attention, then feed-forward (sequential); or both from the same input, behind one shared norm or two norms "
        "(parallel). A name, no unit.", title="Block", default="sequential", aliases="parallel_residual use_parallel_residual "
        "parallel_attn",
        values={"parallel_one_norm": "parallel parallel_shared_norm", "parallel_two_norms": "parallel_residual", "sequential": "serial"})
    positions: Positions = group("How the model learns where a token stands: a name, or a mapping with type (no unit).", title="Positions",
        kind=Positions, form="type", default=Positions(), aliases="position_embedding_type pos_emb positional_encoding position")
    extra: tuple[Extra, ...] = ()


@record
class Run:
    """The same layers, one after the other, ``count`` times over."""

    count: int = key("How many such layers stand one after the other, or how often the group is repeated (unit: layers or groups).",
        title="Count", usual=1)
    layers: tuple[Layer, ...] = key("The layers of a group that is repeated count times; each has its own settings on top of the run's (no "
        "unit).", title="Group", derived="the layer of the run")


@record
class PerLayerEmbedding:
    """A second token table with a vector of ``dim`` for each layer, and what mixes it in (Gemma 3n)."""

    vocab_size: int = key("Rows of the second table (unit: tokens).", title="Per-layer vocabulary", example=262144,
        aliases="vocab_size_per_layer_input")
    dim: int = key("Width of the vector of one layer (unit: channels).", title="Per-layer width", example=256,
        aliases="hidden_size_per_layer_input")


@record
class MultiTokenPrediction:
    """Further layers that predict tokens after the next (DeepSeek-V3): never in the model's total, a line of their own."""

    count: int = key("How many such layers (unit: layers).", title="Prediction layers", usual=1,
        aliases="num_nextn_predict_layers mtp_num_layers num_mtp_layers mtp_depth")
    copies_embedding: bool = key("The checkpoint holds the token table and the head once more for each (true or false, no unit).",
        title="Copies of the embedding", default=True)


@record
class Model:
    """A decoder-only language model."""

    vocab_size: int = key("Vocabulary size V: rows of the token table before padding (unit: tokens).", title="V", example=50257,
        aliases="n_vocab vocabulary_size num_embeddings vocab")
    pad_vocab_to_multiple_of: ClassVar[int] = key("The token table and the head get rows up to the next multiple of this (unit: rows). 1 "
        "pads nothing.", title="Vocabulary padding", default=1, example=64, aliases="padding_multiple padded_vocab_size "
        "make_vocab_size_divisible_by")
    padded_vocab_size: int  # rows of the token table and of the head
    context_length: int = key("The longest sequence the model is made for (unit: tokens). Learned positions have one row for each.",
        title="Context length", example=1024, aliases="max_position_embeddings block_size n_positions n_ctx max_seq_len max_seq_length "
        "max_sequence_length")
    d_model: int = key("Width of the residual stream (unit: channels).", title="d_model", example=768,
        aliases="hidden_size n_embd embed_dim embedding_size emb_dim model_dim dim d_embed width")
    n_layers: int = key("Number of decoder layers (unit: layers). Required unless layers is given; then it equals the sum of the runs.",
        title="n_layers", derived="the sum of the runs", example=12, aliases="num_hidden_layers n_layer num_layers depth n_blocks")
    runs: tuple[Run, ...] = key("For models whose layers differ: runs from the first layer to the last, each with a count (unit: layers) "
        "and its own settings on top of the model's.", title="Runs of layers", path="layers", derived="one run",
        example=[{"count": 2, "n_kv_heads": 1}, {"count": 10}], aliases="first_k_dense_replace num_dense_layers moe_layer_freq "
        "decoder_sparse_step mlp_only_layers layer_pattern hybrid_override_pattern full_attention_interval attn_layer_period "
        "attn_layer_offset attn_layer_indices")
    positions: Positions = Positions()
    norm: Norm = Norm()  # of the final norm and the embedding norm
    embedding_norm: bool = key("A norm on the embeddings before the first layer, as BLOOM has (true or false, no unit).",
        title="Embedding norm", default=False)
    embedding_scale: bool = key("Token vectors are multiplied by the square root of d_model, as in Gemma (true or false, no unit).",
        title="Embedding scale", default=False, quiet=True, aliases="scale_embedding scale_embeddings")
    embedding_dim: int | None = key("Width of the token table where projections without bias lead to and from d_model, as in OPT-350m "
        "(unit: channels). Default: d_model, without projections.", title="Embedding width", default=None, quiet=True,
        derived="d_model, without projections", example=512, aliases="word_embed_proj_dim factorized_embedding_dim")
    final_norm: bool = key("A norm behind the last layer (true or false, no unit).", title="Final norm", default=True)
    head: ClassVar[object] = group("The projection from the residual stream to the logits (no unit).", title="Head", aliases="lm_head")
    tied_head: bool = key("The head is the token table itself and has no matrix of its own (true or false, no unit).", title="Tied head",
        path="head.tied", default=True, aliases="tie_word_embeddings tie_embeddings weight_tying tie_weights tied_embeddings tied_head")
    head_bias: bool = key("The head adds a bias vector (true or false, no unit).", title="Head bias", path="head.bias", default=False,
        aliases="lm_head_bias head_bias")
    logit_softcap: Fraction | None = key("Logits pass through cap * tanh(logits / cap), as in Gemma 2 (a cap without unit). none: they do "
        "not.", title="Logit softcap", path="head.logit_softcap", default=None, quiet=True, none="yes", above=0, example=30.0,
        aliases="final_logit_softcapping final_logit_softcap logits_soft_cap")
    per_layer_embedding: PerLayerEmbedding | None = group("A second token table with a vector for each layer, and what mixes it in, as in "
        "Gemma 3n (sizes are counts).", title="Per-layer embedding", kind=PerLayerEmbedding, form="none", default=None,
        aliases="per_layer_input ple")
    prediction: MultiTokenPrediction | None = group("Further layers that predict tokens after the next, as in DeepSeek-V3 (sizes are "
        "counts): never in the total, a figure of their own.", title="Multi-token prediction", kind=MultiTokenPrediction, form="none",
        default=None, aliases="mtp multi_token_prediction")
    model_type: ModelType | None = key("The class of Hugging Face transformers whose modules run under implementation transformers (a "
        "name, no unit). Default: gpt2 with learned positions and one projection for queries, keys and values; else gpt_neox with "
        "LayerNorm and llama with RMSNorm.", title="Model type", default=None, quiet=True,
        derived="gpt2 with learned positions and one projection for queries, keys and values; else gpt_neox with LayerNorm and llama with "
        "RMSNorm", aliases="architectures")
    extra: tuple[Extra, ...] = key("Tensors that no other setting names, counted as declared: under model once, in a run for each of its "
        "layers (sizes are counts).", title="Extra tensors", default=(),
        example=[{"name": "lambda_q1", "shape": ["head_dim"], "component": "attention"}])
