"""Attention: what its heads project, see and store."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, of_layer, record

QkNorm = Literal["none", "head_dim", "per_head", "full_width", "unweighted"]
QkvProjection = Literal["fused", "fused_per_head", "separate"]
OutputGate = Literal["none", "element", "head"]


# A table, in which a key takes a line or two.
# fmt: off

@record
class Attention:
    """Multi-head attention; n_kv_heads < n_heads is grouped-query, 1 is multi-query."""

    n_heads: int = of_layer()
    n_kv_heads: int = of_layer()
    head_dim: int = of_layer()
    bias: ClassVar[bool] = group("Projections with a bias: true or false for all, or per projection (q, k, v, o).", form="boolean",
        default=True, aliases="attention_bias qkv_bias add_qkv_bias")
    q_bias: bool = key("Bias of the query projection.", path="bias.q", default=True)
    k_bias: bool = key("Bias of the key projection.", path="bias.k", default=True)
    v_bias: bool = key("Bias of the value projection.", path="bias.v", default=True)
    o_bias: bool = key("Bias of the output projection.", path="bias.o", default=True)
    qk_norm: QkNorm = key("Norm of queries and keys: over the channels of each head, with one weight of head_dim for all heads (head_dim) "
        "or one per head (per_head); over all heads at once (full_width); or over a head's channels after rotation, without a weight, in "
        "layers that rotate (unweighted).", default="none", aliases="use_qk_norm qk_layernorm norm_qk",
        values={"head_dim": "true yes on head", "full_width": "full all", "none": "false no off"})
    qkv: QkvProjection = key("Layout of the query, key and value projections: one matrix [q; k; v] (fused), one matrix with q, k and v of "
        "each head in turn, as in GPT-NeoX (fused_per_head), or three matrices (separate).", default="fused",
        values={"fused": "true yes packed", "separate": "false no split", "fused_per_head": "interleaved per_head"})
    v_head_dim: int | None = key("Width of one value head.", "channels", default=None, quiet=True, derived="head_dim", example=128,
        aliases="v_channels value_head_dim")
    window: int | None = key("Sliding-window size, including the current token.", "tokens", default=None, quiet=True, none="no window",
        example=4096, aliases="sliding_window window_size attention_window sliding_window_size attention_chunk_size local_window")
    chunked: bool = key("The window is a fixed chunk of the sequence; queries see no keys of other chunks, as in Llama 4.", default=False,
        quiet=True)
    logit_softcap: Fraction | None = key("Soft-cap the attention scores: cap * tanh(scores / cap), as in Gemma 2.", default=None,
        quiet=True, none="no cap", above=0, example=50.0, aliases="attn_logit_softcapping attn_logit_softcap attention_softcap")
    output_gate: OutputGate = key("Sigmoid gate, projected from the layer's input, on the heads before the output projection: per channel "
        "(element) or per head (head).", default="none", quiet=True, aliases="attn_output_gate attention_gate use_output_gate")
    sinks: bool = key("Attention sinks: one learned score per head in the softmax, as in gpt-oss.", default=False, quiet=True,
        aliases="attention_sinks use_sinks add_swa_attention_sink_bias")
    output_norm: bool = key("Norm over all heads before the output projection, as in BitNet.", default=False, quiet=True)
    keys_as_values: bool = key("No value projection: the keys are the values.", default=False, quiet=True, aliases="attention_k_eq_v")
    shared_kv: bool = key("No key and value projections: those of an earlier layer are reused.", default=False, quiet=True,
        aliases="num_kv_shared_layers kv_sharing")
    differential: bool = key("Differential attention: two softmaxes subtracted, with four learned vectors of head_dim (Ye et al. 2024, "
        "arXiv:2410.05258).", default=False, quiet=True)
    kv_replicas: int = 1  # tensor-parallel devices with the same KV heads


@record
class Indexer:
    """Lightning indexer: selects the keys for sparse attention, as in DeepSeek-V3.2."""

    n_heads: int = key("Number of heads.", "heads", example=64, aliases="index_n_heads")
    head_dim: int = key("Width of one head.", "channels", example=128, aliases="index_head_dim")
    top_k: int = key("Keys selected per query.", "tokens", example=2048, aliases="index_topk")


@record
class LatentAttention:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys and values come from one compressed vector per token."""

    n_heads: int = of_layer()
    kv_rank: int = key("Width of the compressed keys and values.", "channels", example=512, aliases="kv_lora_rank")
    nope_dim: int = key("Channels of a query or key head without rotation.", "channels", example=128,
        aliases="qk_nope_head_dim qk_head_dim")
    rope_dim: int = key("Rotated channels of a query or key head, an even number; all heads share that part of the key.", "channels",
        example=64, aliases="qk_rope_head_dim qk_pos_emb_head_dim")
    v_dim: int = key("Width of one value head.", "channels", example=128)
    q_rank: int | None = key("Width of the compressed queries.", "channels", default=None, none="no compression of queries", example=1536,
        aliases="q_lora_rank")
    bias: bool = key("Bias of the compressing projections and the output projection.", default=False)
    selected_keys: int | None = key("Keys per query where an earlier layer's indexer selected them, as in GLM-5.2.", "tokens",
        default=None, none="all keys, or those that the layer's own indexer selects", quiet=True, example=2048)
    indexer: Indexer | None = group(form="none", default=None, kind=Indexer)
