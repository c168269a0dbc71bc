"""LitGPT's configurations of a model."""

from __future__ import annotations

from planner.importer.engine import Reading, row
from planner.importer.format import Format, by_row, has_all
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel

# Keys that nanoGPT does not have.
_ONLY = ("mlp_class_name", "norm_class_name", "n_query_groups", "padded_vocab_size", "rotary_percentage", "parallel_residual")
_NAMES = {"context": "block_size", "d_model": "n_embd", "n_layers": "n_layer", "n_heads": "n_head"}


def _placement(c: Reading) -> str:
    switches = [c.of(flag(name, True)) for name in ("norm_1", "norm_2")] + [
        c.of(flag(f"post_{name}_norm")) for name in ("attention", "mlp")
    ]
    placements = {(True, True, False, False): "before", (True, True, True, True): "before_and_after", (False, False, True, True): "after"}
    if tuple(switches) not in placements:
        raise c.refusal("norms before or after only one of attention and feed-forward are not supported")
    return placements[tuple(switches)]


def _positions(c: Reading) -> str | SpecModel:
    share = c.value("rotary_percentage")
    part = 0.25 if share is None else 0 if alike(share, 0) or alike(share, 0.0) else fraction(c, "rotary_percentage", share)
    return rotated(c["head_dim"], int(c["head_dim"] * part))


_CLASSES = {"GptNeoxMLP": "plain", "LLaMAMLP": "gated", "GemmaMLP": "gated", "LLaMAMoE": "gated"}
_CLASS = "mlp_class_name"
_GELU = code(lambda c: "gelu_tanh" if c.value("gelu_approximate") == "tanh" else "gelu", "gelu_approximate")
_SILU = choice(_CLASS, {name: name.startswith("LLaMA") for name in _CLASSES}, False)
_SPARSE = choice(_CLASS, {name: name == "LLaMAMoE" for name in _CLASSES}, False)

_PARALLEL = when(flag("shared_attention_norm"), "parallel_one_norm", "parallel_two_norms")
_PADDED = apply(lambda rows, multiple: -(-rows // multiple) * multiple, size("vocab_size", 50254), size("padding_multiple", 512))
_WIDTH = when(apply("gated".__eq__, same("feed_forward.type")), size("intermediate_size"), size("intermediate_size", same("d_model", 4)))

LITGPT = row(
    sizes(4096, **_NAMES), {"vocab_size": size("padded_vocab_size", _PADDED), "n_kv_heads": size("n_query_groups", same("n_heads"))},
    {"head_dim": size("head_size", apply(lambda d, n: d // n or 1, same("d_model"), same("n_heads"))), "d_ff": _WIDTH},
    {"attention.bias": when(flag("bias", True), True, bias(flag("attn_bias"))), "attention.qkv": "fused"},
    qk_norm("norm_qk", choice("norm_qk_type", {"default": "head_dim", "olmo2": "full_width"}, "head_dim")),
    feed_forward(choice(_CLASS, _CLASSES, "plain"), when(_SILU, "silu", _GELU), flag("bias", True)),
    {"norm.type": choice("norm_class_name", {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}, "layernorm")},
    {"norm.placement": code(_placement, "norm_1", "norm_2", "post_attention_norm", "post_mlp_norm")},
    {"norm.unit_offset": when(flag("add_unit_offset rmsnorm_unit_offset"), True)},
    {"block": when(flag("parallel_residual", True), _PARALLEL, "sequential")},
    {"positions": code(_positions, "rotary_percentage"), "embedding_scale": flag("scale_embeddings")},
    {"head.tied": False, "head.bias": when(flag("lm_head_bias"), True)},
    where(_SPARSE, {"experts.count": size("n_expert"), "experts.top_k": size("n_expert_per_token")}),
    where(_SPARSE, {"experts.d_ff": size("moe_intermediate_size", same("d_ff")), "experts.shared": shared_count("n_shared_expert")}),
    where(_SPARSE, {"_sparse": after(count("first_k_dense_replace"))}), only={"latent_attention": ()},
    ignored={
        NAMES: "hf_config name", RUNS: "norm_eps", SCALES: "attention_scores_scalar routed_scaling_factor",
        ROUTES: "n_expert_groups n_topk_groups n_topk_scores_per_group norm_topk_prob",
        ROTATES: "rope_adjustments rope_base rope_condense_ratio rope_indices rope_interleave rope_local_base_freq rope_n_elem",
        "not read here": (
            "attention_logit_softcapping final_logit_softcapping sliding_window_indices sliding_window_offset sliding_window_size"
        ),
    },
    notes=("LitGPT does not tie the LM head to the token embedding",),
)  # fmt: skip

FORMAT = Format(
    "LitGPT",
    "model_config.yaml of a checkpoint",
    "Lightning AI's litgpt 0.5: litgpt/config.py",
    lambda given: has_all("n_layer", "n_head", "n_embd")(given) and any(has_all(key)(given) for key in _ONLY),
    by_row("LitGPT", LITGPT),
    {"litgpt": LITGPT},
)
