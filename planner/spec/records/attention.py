"""Attention: what its heads project, see and store."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, of_layer, record

QkNorm = Literal["none", "head_dim", "per_head", "full_width"]
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
    bias: ClassVar[bool] = group("Which projections add a bias vector: true or false for all, or each by its letter (no unit).",
        title="Attention biases", form="boolean", default=True, aliases="attention_bias qkv_bias add_qkv_bias")
    q_bias: bool = key("The query projection adds a bias (true or false, no unit).", title="Query bias", path="bias.q", default=True)
    k_bias: bool = key("The key projection adds a bias (true or false, no unit).", title="Key bias", path="bias.k", default=True)
    v_bias: bool = key("The value projection adds a bias (true or false, no unit).", title="Value bias", path="bias.v", default=True)
    o_bias: bool = key("The output projection adds a bias (true or false, no unit).", title="Output bias", path="bias.o", default=True)
    qk_norm: QkNorm = key("A norm on queries and keys (a name, no unit): over each head's channels, with one vector of head_dim for all "
        "heads (head_dim) or one for each head (per_head); or over the full width of all heads (full_width).", title="Query and key norm",
        default="none", aliases="use_qk_norm qk_layernorm norm_qk",
        values={"head_dim": "true yes on head", "full_width": "full all", "none": "false no off"})
    qkv: QkvProjection = key("One matrix [q; k; v] (fused), one matrix that holds q, k and v head by head as GPT-NeoX does "
        "(fused_per_head), or three matrices (separate). A name, no unit.", title="Query, key and value projections", default="fused",
        values={"fused": "true yes packed", "separate": "false no split", "fused_per_head": "interleaved per_head"})
    v_head_dim: int | None = key("Width of one value head (unit: channels). Default: head_dim.", title="v_head_dim", default=None,
        quiet=True, derived="head_dim", example=128, aliases="v_channels value_head_dim")
    window: int | None = key("How many keys a query sees at most, its own included (unit: tokens). none: all before it.", title="Window",
        default=None, quiet=True, none="yes", example=4096, aliases="sliding_window window_size attention_window sliding_window_size "
        "attention_chunk_size local_window")
    chunked: bool = key("The window is a chunk of the sequence: a query sees no key of another chunk, as in Llama 4 (true or false, no "
        "unit).", title="Chunked window", default=False, quiet=True)
    logit_softcap: Fraction | None = key("Scores pass through cap * tanh(scores / cap), as in Gemma 2 (a cap without unit). none: they do "
        "not.", title="Attention softcap", default=None, quiet=True, none="yes", above=0, example=50.0,
        aliases="attn_logit_softcapping attn_logit_softcap attention_softcap")
    output_gate: OutputGate = key("A sigmoid gate, projected from the layer's input, that multiplies the heads before the last projection: "
        "each channel (element) or each head (head). A name, no unit.", title="Output gate", default="none", quiet=True,
        aliases="attn_output_gate attention_gate use_output_gate")
    sinks: bool = key("Each head learns one score that takes part in its softmax, as in gpt-oss (true or false, no unit).", title="Sinks",
        default=False, quiet=True, aliases="attention_sinks use_sinks add_swa_attention_sink_bias")
    output_norm: bool = key("A norm over all heads before the last projection, as in BitNet (true or false, no unit).", title="Output norm",
        default=False, quiet=True)
    keys_as_values: bool = key("There is no value projection: the keys are the values (true or false, no unit).", title="Keys as values",
        default=False, quiet=True, aliases="attention_k_eq_v")
    shared_kv: bool = key("There are no key and value projections: an earlier layer's keys and values serve (true or false, no unit).",
        title="Shared keys and values", default=False, quiet=True, aliases="num_kv_shared_layers kv_sharing")
    differential: bool = key("Two softmaxes subtracted, with four learned vectors of head_dim (Ye et al. 2024) (true or false, no unit).",
        title="Differential attention", default=False, quiet=True)


@record
class Indexer:
    """What picks the keys that sparse attention looks at (DeepSeek-V3.2)."""

    n_heads: int = key("Heads of the indexer (unit: heads).", title="Indexer heads", example=64, aliases="index_n_heads")
    head_dim: int = key("Width of one head of the indexer (unit: channels).", title="Indexer head_dim", example=128,
        aliases="index_head_dim")
    top_k: int = key("Keys that a query looks at (unit: tokens).", title="Indexer top_k", example=2048, aliases="index_topk")


@record
class LatentAttention:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys and values from one compressed vector a token."""

    n_heads: int = of_layer()
    kv_rank: int = key("Width of the compressed keys and values (unit: channels).", title="Key and value rank", example=512,
        aliases="kv_lora_rank")
    nope_dim: int = key("Channels of a query or key head without positions (unit: channels).", title="nope_dim", example=128,
        aliases="qk_nope_head_dim qk_head_dim")
    rope_dim: int = key("Channels of a query or key head that rope rotates; all heads share that key (unit: channels, even).",
        title="rope_dim", example=64, aliases="qk_rope_head_dim qk_pos_emb_head_dim")
    v_dim: int = key("Width of one value head (unit: channels).", title="v_dim", example=128)
    q_rank: int | None = key("Width of the compressed queries (unit: channels). none: queries are projected directly.", title="Query rank",
        default=None, none="yes", example=1536, aliases="q_lora_rank")
    bias: bool = key("The compressing projections and the last one add a bias (true or false, no unit).", title="Latent attention biases",
        default=False)
    indexer: Indexer | None = group("What picks the keys that sparse attention looks at, as in DeepSeek-V3.2 (sizes are counts). Needs "
        "n_heads, head_dim and top_k.", title="Indexer", form="none", default=None, kind=Indexer)
