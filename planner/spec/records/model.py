"""The model: layers made of parts, groups of layers, embeddings and head."""

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
from planner.spec.records.model_types import ModelType
from planner.spec.records.parts import Activation, Experts, Extra, FeedForward, Norm, NormPlacement, Positions

BlockType = Literal["sequential", "parallel_one_norm", "parallel_two_norms"]
HeadType = Literal["language", "classes", "none"]
PoolerType = Literal["none", "tanh", "gelu", "relu"]
Projected = Literal["tokens", "embedded"]


# A table, in which a key takes a line or two.
# fmt: off

@record
class Layer:
    """One layer: mixers side by side on one input, then a feed-forward or experts, and the norms around them."""

    n_heads: ClassVar[int] = key("Number of query heads.", "heads", example=12, aliases="num_attention_heads n_head num_heads nhead "
        "attention_heads")
    n_kv_heads: ClassVar[int] = key("Number of key and value heads: as many as n_heads is multi-head, 1 multi-query, between them "
        "grouped-query attention.", "heads", derived="n_heads", example=12, aliases="num_key_value_heads num_kv_heads n_query_groups "
        "num_query_groups n_head_kv n_kv_head kv_heads")
    head_dim: ClassVar[int] = key("Width of one head.", "channels", derived="d_model / n_heads, which must divide", example=64,
        aliases="head_size d_head d_kv kv_channels attention_head_dim")
    d_ff: ClassVar[int] = key("Hidden width of the feed-forward.", "channels", derived="4 * d_model; required where the feed-forward is "
        "gated", example=3072, aliases="intermediate_size ffn_hidden_size n_inner ffn_dim ff_dim dim_feedforward dff hidden_dim mlp_dim "
        "mlp_hidden_size")
    mixer: ClassVar[str] = key("Token mixer of the layer, or a list of mixers in parallel on the same input, e.g. [attention, mamba2]; "
        "none: only a feed-forward. Every mixer except attention has its settings under its own name.", default="attention", quiet=True,
        aliases="layer_types layer_type layers_block_type block_types mixers token_mixer",
        values={"attention": "full_attention sliding_attention self_attention softmax_attention full sliding_window mha gqa mqa",
        "latent_attention": "mla multi_head_latent_attention", "mamba": "mamba1 ssm s6", "mamba2": "ssd mamba_2",
        "gated_delta_net": "linear_attention gdn deltanet gated_deltanet", "kimi_delta_attention": "kda",
        "lightning_attention": "lightning", "rg_lru": "recurrent rglru griffin", "rwkv": "rwkv4", "short_convolution": "conv short_conv",
        "mlstm": "xlstm", "none": "mlp moe feed_forward ffn"})
    attention: Attention | None = group("Attention options.", kind=Attention)
    latent_attention: ClassVar[object] = group(kind=LatentAttention, form="none", aliases="mla multi_head_latent_attention")
    mamba: ClassVar[object] = group(kind=Mamba, form="none")
    mamba2: ClassVar[object] = group(kind=Mamba2, form="none")
    gated_delta_net: ClassVar[object] = group(kind=GatedDeltaNet, form="none")
    kimi_delta_attention: ClassVar[object] = group(kind=KimiDeltaAttention, form="none")
    lightning_attention: ClassVar[object] = group(kind=LightningAttention, form="none")
    rg_lru: ClassVar[object] = group(kind=RgLru, form="none", aliases="recurrent rglru griffin")
    rwkv: ClassVar[object] = group(kind=Rwkv, form="none")
    short_convolution: ClassVar[object] = group(kind=ShortConvolution, form="none", aliases="short_conv lfm2_conv")
    mlstm: ClassVar[object] = group(kind=Mlstm, form="none")
    feed_forward: FeedForward | None = group("Feed-forward options. none: no feed-forward in the layer.", kind=FeedForward, form="none",
        aliases="mlp ffn ff feedforward")
    mixers: tuple[Mixer, ...] = ()  # beside the attention, or in its place
    experts: Experts | None = group("Mixture of experts in place of the feed-forward, or beside it. none: a dense layer.", kind=Experts,
        form="none", default=None, aliases="moe mixture_of_experts moe_config ffn_config")
    norm: Norm = group("Type and placement of the norms; under model also those of the final norm and the embedding norm.", kind=Norm,
        default=Norm())
    norm_placement: NormPlacement = key("Before each sublayer (before); on its output, before the residual is added (after); both "
        "(before_and_after); or after the residual is added (after_residual).", path="norm.placement", default="before",
        values={"before": "pre pre_norm", "after": "post post_norm", "before_and_after": "both sandwich",
        "after_residual": "post_ln residual"})
    mixer_norm: bool = key("Norm before the token mixer; the first layer of ModernBERT has none.", default=True, quiet=True,
        only="norm.placement: before; block: sequential")
    block: BlockType = key("Mixer, then feed-forward (sequential); or both on the same input, after one shared norm (parallel_one_norm) or "
        "a norm each (parallel_two_norms).", default="sequential", aliases="parallel_residual use_parallel_residual parallel_attn",
        values={"parallel_one_norm": "parallel parallel_shared_norm", "parallel_two_norms": "parallel_residual", "sequential": "serial"})
    positions: Positions = group("Position encoding: its type, or a mapping with type.", kind=Positions, form="type", default=Positions(),
        aliases="position_embedding_type pos_emb positional_encoding position")
    extra: tuple[Extra, ...] = ()


@record
class Run:
    """The same layers, one after the other, ``count`` times over."""

    count: int = key("Number of consecutive layers, or repetitions of the group.", "layers or groups", usual=1)
    layers: tuple[Layer, ...] = key("Layers of a group that is repeated count times, each with its own overrides of the group's settings.",
        derived="one layer")


@record
class PerLayerEmbedding:
    """Second token embedding with a vector per layer, and the projections that mix it in, as in Gemma 3n."""

    vocab_size: int = key("Rows of the second embedding.", "tokens", example=262144, aliases="vocab_size_per_layer_input")
    dim: int = key("Width per layer.", "channels", example=256, aliases="hidden_size_per_layer_input")


@record
class MultiTokenPrediction:
    """Multi-token prediction (MTP) layers, as in DeepSeek-V3: never in the total, a column of their own."""

    count: int = key("Number of prediction layers.", "layers", usual=1, aliases="num_nextn_predict_layers mtp_num_layers num_mtp_layers "
        "mtp_depth")
    copies_embedding: bool = key("Each prediction layer stores its own token embedding and head.", default=True)


@record
class Patches:
    """Images in place of tokens: each patch is a token, as in ViT."""

    image: int = key("Side of an image.", "pixels", example=224, aliases="image_size img_size")
    size: int = key("Side of a patch, which divides that of the image.", "pixels", example=16, aliases="patch_size")
    channels: int = key("Channels of a pixel.", "channels", default=3, aliases="num_channels in_chans")
    tokens: int = key("Learned tokens before the patches; the first one is that of the class.", "tokens", default=1, least=0)
    bias: bool = key("Bias of the matrix of patches.", default=True)

    @property
    def length(self) -> int:
        """Tokens of an image."""
        return self.tokens + (self.image // self.size) ** 2


@record
class Frames:
    """Audio in place of tokens: two convolutions of three frames, the second of which halves them, as in Whisper."""

    bins: int = key("Frequencies of a frame.", "bins", example=80, aliases="num_mel_bins n_mels")
    length: int = key("Frames of a sequence, an even number.", "frames", default=3000)


@record
class Encoder:
    """Stack of the model's layers without a causal mask, whose output each layer of the model reads by cross-attention, as in T5."""

    n_layers: int = key("Number of layers of the encoder.", "layers", example=12, aliases="encoder_layers num_encoder_layers")
    frames: Frames | None = group(kind=Frames, form="none", default=None, aliases="audio")


@record
class Vision:
    """Stack of layers without a causal mask over patches of images, whose states replace tokens of the model, as in LLaVA."""

    patched: ClassVar[object] = group("Patches of an image, which are the tokens of the tower.", path="patches")
    image: int = key("Side of an image.", "pixels", path="patches.image", example=336)
    size: int = key("Side of a patch, which divides that of the image.", "pixels", path="patches.size", example=14)
    d_model: int = key("Width of the tower.", "channels", example=1024)
    n_layers: int = key("Number of layers.", "layers", example=24)
    n_heads: int = key("Number of heads.", "heads", example=16)
    d_ff: int = key("Hidden width of the feed-forward.", "channels", example=4096)
    read_layers: int | None = key("Layers whose output is read; the others run in vain.", "layers", default=None, derived="n_layers",
        example=23)
    activation: Activation = key("Activation function of the feed-forward.", default="gelu")
    channels: int = key("Channels of a pixel.", "channels", path="patches.channels", default=3)
    tokens: int = key("Learned tokens before the patches; the first one is that of the class.", "tokens", path="patches.tokens", default=1,
        least=0)
    bias: bool = key("Bias of the matrix of patches.", path="patches.bias", default=True)
    embedding_norm: bool = key("Norm of the embedded patches before the first layer, as in CLIP.", default=False)
    final_norm: bool = key("Norm of the first token after the last layer, which the model does not read.", default=False)
    reads_tokens: bool = key("The states of the learned tokens before the patches replace tokens, too.", default=False)
    projector: ClassVar[object] = group("Two matrices with an activation between them, from the width of the tower to d_model.")
    projector_activation: Activation = key("Activation function.", path="projector.activation", default="gelu")
    projector_bias: bool = key("The matrices have biases.", path="projector.bias", default=True)

    @property
    def patches(self) -> Patches:
        """Patches of an image."""
        return Patches(self.image, self.size, self.channels, self.tokens, self.bias)

    @property
    def features(self) -> int:
        """Tokens of the model that an image replaces."""
        return self.patches.length - (0 if self.reads_tokens else self.patches.tokens)


@record
class Model:
    """A language model: one stack of layers, a decoder unless ``causal`` is false."""

    vocab_size: int = key("Vocabulary size V: rows of the token embedding before padding.", "tokens", example=50257,
        derived="required, unless patches replace tokens",
        aliases="n_vocab vocabulary_size num_embeddings vocab")
    pad_vocab_to_multiple_of: ClassVar[int] = key("The token embedding and the head are padded to a multiple of this many rows.", "rows",
        default=1, example=64, aliases="padding_multiple padded_vocab_size make_vocab_size_divisible_by")
    padded_vocab_size: int  # rows of the token table and of the head
    context_length: int = key("Maximum sequence length; learned positions have one row per token of it.", "tokens", example=1024,
        derived="the tokens of an image; required without patches",
        aliases="max_position_embeddings block_size n_positions n_ctx max_seq_len max_seq_length max_sequence_length")
    d_model: int = key("Width of the residual stream.", "channels", example=768, aliases="hidden_size n_embd embed_dim embedding_size "
        "emb_dim model_dim dim d_embed width")
    n_layers: int = key("Number of layers.", "layers", derived="the sum over layers, without which it is required", example=12,
        aliases="num_hidden_layers n_layer num_layers depth n_blocks")
    runs: tuple[Run, ...] = key("Non-uniform models: groups of layers from first to last, each with a count and its own overrides of the "
        "model's settings.", "layers", path="layers", derived="n_layers equal layers",
        example=[{"count": 2, "n_kv_heads": 1}, {"count": 10}], aliases="first_k_dense_replace num_dense_layers moe_layer_freq "
        "decoder_sparse_step mlp_only_layers layer_pattern hybrid_override_pattern full_attention_interval attn_layer_period "
        "attn_layer_offset attn_layer_indices")
    positions: Positions = Positions()
    norm: Norm = Norm()  # of the final norm and the embedding norm
    causal: bool = key("Each token attends to itself and earlier tokens. false: to all tokens, as in BERT; a window then has as many "
        "later tokens as earlier ones.", default=True, quiet=True, aliases="is_causal bidirectional is_decoder")
    patches: Patches | None = group(kind=Patches, form="none", default=None, aliases="image patch_embedding")
    vision: Vision | None = group(kind=Vision, form="none", default=None, aliases="vision_tower vision_config vision_model")
    encoder: Encoder | None = group(kind=Encoder, form="none", default=None, aliases="encoder_decoder is_encoder_decoder")
    embedding_norm: bool = key("Norm of the embeddings before the first layer, as in BLOOM.", default=False)
    embedding_scale: bool = key("Multiply token embeddings by the square root of d_model, as in Gemma.", default=False, quiet=True,
        aliases="scale_embedding scale_embeddings")
    segments: int = key("Rows of the token-type embedding, which is added to that of tokens, as in BERT.", "rows", default=0, least=0,
        quiet=True, example=2, aliases="type_vocab_size token_type_embeddings segment_embeddings")
    embedding_dim: int | None = key("Width of the token embedding if projections without bias lead to and from d_model, as in OPT-350m.",
        "channels", default=None, quiet=True, derived="d_model, without projections", example=512,
        aliases="word_embed_proj_dim factorized_embedding_dim")
    projected: Projected = key("Input of the projection from embedding_dim to d_model: token embeddings, without a bias (tokens); or the "
        "sum of all embeddings after its norm, with a bias, as in ELECTRA (embedded).", path="embedding_projection", default="tokens",
        quiet=True)
    final_norm: bool = key("Norm after the last layer.", default=True)
    head: ClassVar[object] = group("Projection from the residual stream to the logits.", aliases="lm_head")
    head_type: HeadType = key("language: logits of the vocabulary for each token. classes: logits of head.classes for each sequence, from "
        "its first token. none: the last hidden states are the output.", path="head.type", default="language", quiet=True,
        values={"language": "masked causal lm", "classes": "classification sequence_classification", "none": "encoder backbone"})
    classes: int = key("Number of classes.", "classes", path="head.classes", default=2, quiet=True, only="head.type: classes",
        aliases="num_labels num_classes n_classes")
    pooler: PoolerType = key("Square matrix with a bias and this activation on the first token, before the classes or as an output beside "
        "the hidden states, as in BERT.", path="head.pooler", default="none", quiet=True, only="head.type: classes or none",
        aliases="add_pooling_layer pooling")
    head_transform: bool = key("Square matrix, activation of the feed-forward and norm before the logits, as in BERT.",
        path="head.transform", default=False, quiet=True, only="head.type: language")
    transform_bias: bool = key("Bias of that matrix.", path="head.transform_bias", default=True, quiet=True,
        only="head.transform: true")
    tied_head: bool = key("Tie the LM head to the token embedding: one matrix, counted once.", path="head.tied", default=True,
        aliases="tie_word_embeddings tie_embeddings weight_tying tie_weights tied_embeddings tied_head")
    head_bias: bool = key("Bias of the head.", path="head.bias", default=False, aliases="lm_head_bias head_bias")
    logit_softcap: Fraction | None = key("Soft-cap the logits: cap * tanh(logits / cap), as in Gemma 2.", path="head.logit_softcap",
        default=None, quiet=True, none="no cap", above=0, example=30.0, aliases="final_logit_softcapping final_logit_softcap "
        "logits_soft_cap")
    per_layer_embedding: PerLayerEmbedding | None = group(kind=PerLayerEmbedding, form="none", default=None, aliases="per_layer_input ple")
    prediction: MultiTokenPrediction | None = group(kind=MultiTokenPrediction, form="none", default=None,
        aliases="mtp multi_token_prediction")
    model_type: ModelType | None = key("Class of Hugging Face transformers whose modules run under implementation transformers.",
        default=None, quiet=True, derived="gpt2 with learned positions and one projection for queries, keys and values; gpt_neox "
        "with layernorm and a projection that is fused per head; else starcoder2 with layernorm and llama with rmsnorm",
        aliases="architectures")
    extra: tuple[Extra, ...] = key("Further tensors, counted as declared: once under model, per layer in a group of layers.", default=(),
        example=[{"name": "lambda_q1", "shape": ["head_dim"], "component": "attention"}])
    vocab_multiple: int = 1  # pad_vocab_to_multiple_of
