"""DeepSeek's own configurations for inference: inference/configs/config_671B.json.

Read from deepseek-ai/DeepSeek-V3 of August 2025: inference/model.py (ModelArgs, MLA, Gate, MoE), which leaves out multi-token prediction.
"""

from __future__ import annotations

from operator import eq

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, has_all
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported

_BIASED_WIDTH = 7168  # the gate has a bias only in models of this width


def _gate(d_model: int) -> str:
    return "buffer" if d_model == _BIASED_WIDTH else "none"


def _stored(c: Reading) -> None:
    if (dtype := c.value("dtype")) not in (None, "bf16"):
        c.notes.append(f"the released weights are in {dtype}; the plan is of training, in the precision of the spec")


_SOFTMAX = {"softmax": "softmax", "sigmoid": "sigmoid"}

DEEPSEEK = row(
    {"vocab_size": size("vocab_size", 102400), "context_length": size("max_seq_len", 16384), "d_model": size("dim", 2048)},
    {"n_layers": layers("n_layers", 27), "n_heads": size("n_heads", 16), "d_ff": size("inter_dim", 10944)},
    {"mixer": "latent_attention", "latent_attention.q_rank": nonzero(count("q_lora_rank"))},
    {"latent_attention.kv_rank": size("kv_lora_rank", 512), "latent_attention.nope_dim": size("qk_nope_head_dim", 128)},
    {"latent_attention.rope_dim": size("qk_rope_head_dim", 64), "latent_attention.v_dim": size("v_head_dim", 128)},
    feed_forward("gated", "silu", False), {"norm.type": "rmsnorm", "positions": "rope", "head.tied": False},
    {"training.precision": code(_stored, "dtype")},
    {"experts.count": size("n_routed_experts", 64), "experts.top_k": size("n_activated_experts", 6)},
    {"experts.d_ff": size("moe_inter_dim", 1408), "experts.shared": shared_count("n_shared_experts", 2)},
    {"experts.scoring": choice("score_func", _SOFTMAX, "softmax"), "experts.correction_bias": apply(_gate, same("d_model"))},
    {"experts.normalize": apply(eq, "sigmoid", same("experts.scoring")), "_sparse": after(count("n_dense_layers", 1))},
    ignored={
        RUNS: "max_batch_size scale_fmt", ROUTES: "n_expert_groups n_limited_groups", SCALES: "route_scale mscale",
        ROTATES: "original_seq_len rope_theta rope_factor beta_fast beta_slow",
    },
    notes=(own_kernels("DeepSeek"),),
)  # fmt: skip


def _read(given: Given) -> Imported:
    return read(DEEPSEEK, given.config, "DeepSeek's inference")


FORMAT = Format(
    "DeepSeek",
    "inference/configs/*.json",
    "deepseek-ai/DeepSeek-V3 of August 2025: inference/model.py",
    lambda given: "dim" in given.config and has_all("inter_dim", "n_heads")(given),
    _read,
    {"deepseek-inference": DEEPSEEK},
    "`dim`, `inter_dim` and `n_heads`",
)
