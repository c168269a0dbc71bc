"""``params.json`` of released weights: Meta's Llama, and Mistral's models.

Read from meta-llama/llama-models of July 2025 (models/llama3/args.py, model.py) and mistralai/mistral-inference of February 2026 (args.py,
transformer.py, moe.py).
"""

from __future__ import annotations

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, has_all
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported
from planner.importer.training import leaves, vocabulary

_MULTIPLIER = number("ffn_dim_multiplier")


def _width(c: Reading) -> int:
    """Return two thirds of four times the width, multiplied and padded."""
    multiplier, multiple = c.of(_MULTIPLIER), c.of(size("multiple_of", 256))
    width = int(2 * 4 * c["d_model"] / 3)
    return int(-(-(width if multiplier is None else int(multiplier * width)) // multiple) * multiple)


_GATED = row(
    {"vocab_size": vocabulary("vocab_size", "the program", "… (32000 for Llama 1 and 2)")},
    {"d_model": size("dim"), "n_layers": layers("n_layers"), "n_heads": size("n_heads")},
    {"n_kv_heads": size("n_kv_heads", same("n_heads")), "attention.bias": False, "attention.qkv": "separate"},
    feed_forward("gated", "silu", False), {"norm.type": "rmsnorm", "positions": "rope"},
    ignored={
        RUNS: "norm_eps max_batch_size quantization quantization_args model_parallel_size model_type",
        ROTATES: "rope_theta use_scaled_rope rope_scaling_factor yarn",
    },
)  # fmt: skip

LLAMA = row(
    _GATED, {"context_length": size("max_seq_len", 2048), "head_dim": divided(), "head.tied": False},
    {"d_ff": code(_width, "multiple_of", _MULTIPLIER)}, only={"vision_chunk_size": -1, "vision_num_cross_attention_layers": -1},
    ignored={UNREAD: "vision_max_num_chunks"}, notes=("Meta's code does not tie the LM head to the token embedding", own_kernels("Meta")),
)  # fmt: skip

HAS_EXPERTS = code(lambda c: c.value("moe.num_experts") is not None, "moe.num_experts")
MISTRAL = row(
    _GATED, {"context_length": size("max_seq_len max_position_embeddings", 128_000), "head_dim": size("head_dim")},
    {"d_ff": size("hidden_dim"), "attention.window": size("sliding_window _sliding_window", None), "head.tied": flag("tied_embeddings")},
    where(HAS_EXPERTS, {
        "experts.count": size("moe.num_experts"), "experts.top_k": size("moe.num_experts_per_tok"), "experts.d_ff": same("d_ff"),
        "_sparse": per_layer(lambda layer, n: layer < n),
    }),
    ignored={SCALES: "llama_4_scaling", UNREAD: "use_biases use_cache ffn_dim_multiplier multiple_of"},
    notes=(own_kernels("Mistral"),),
)  # fmt: skip


def _read(given: Given) -> Imported:
    config = {key: leaves(value) for key, value in given.config.items()}
    return read(MISTRAL, config, "Mistral's params.json") if "hidden_dim" in config else read(LLAMA, config, "Meta's params.json")


FORMAT = Format(
    "Meta and Mistral",
    "params.json of released weights",
    "meta-llama/llama-models of July 2025: models/llama3/args.py; mistralai/mistral-inference of February 2026: args.py",
    lambda given: has_all("dim", "n_layers", "n_heads")(given) and "dim" in given.config and "inter_dim" not in given.config,
    _read,
    {"meta-params": LLAMA, "mistral-params": MISTRAL},
    "`dim`, `n_layers` and `n_heads`; with `hidden_dim` it is Mistral's",
)
