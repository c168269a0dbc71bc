"""OLMo's configurations: the trainer's YAML, and the config.json of its first checkpoints (model_type ``hf_olmo``).

Read from allenai/OLMo of September 2025: olmo/config.py (ModelConfig, TrainConfig), olmo/model.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, one_of
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported, show
from planner.importer.training import *

_ONLY = ("activation_type", "block_type", "include_bias", "layer_norm_type", "mlp_ratio", "residual_dropout", "weight_tying")
_ACTIVATIONS = {"swiglu": "silu", "gelu": "gelu", "relu": "relu"}
_SWIGLU = choice("activation_type", {"swiglu": True, "gelu": False, "relu": False}, True)
_BIAS = flag("include_bias", True)
_WHOLE = size("mlp_hidden_size", apply(lambda ratio, d_model: ratio * d_model, size("mlp_ratio", 4), same("d_model")))
_RMS = choice("layer_norm_type", {"default": "layernorm", "low_precision": "layernorm", "rms": "rmsnorm"}, "layernorm")
_AFFINE = flag("layer_norm_with_affine", True)
_NORM_BIAS = when(code(lambda c: c.value("bias_for_layer_norm") is None, "bias_for_layer_norm"), _BIAS, flag("bias_for_layer_norm"))
_STEPS = training_tokens("max_duration", "global_train_batch_size")["training.tokens"]
_ROPE, _ALIBI, _QK = flag("rope"), flag("alibi"), flag("attention_layer_norm")


def _norm_bias(c: Reading) -> bool | None:
    if not c.of(_AFFINE):
        return None
    biased = bool(c.of(_NORM_BIAS))
    if biased and c["norm.type"] == "rmsnorm":
        raise c.refusal("RMS norms with a bias (`bias_for_layer_norm`, or else `include_bias`) are not supported")
    return biased if c["norm.type"] == "layernorm" else None


def _qk_norm(c: Reading) -> str:
    if not c.of(_QK):
        return "none"
    if c.of(flag("attention_layer_norm_with_affine", True)) != c.of(_AFFINE):
        raise c.refusal("`attention_layer_norm_with_affine` that differs from `layer_norm_with_affine` is not supported")
    return "full_width"


def _kv_heads(c: Reading) -> int:
    given = c.of(size("n_kv_heads", None))
    if c.value("multi_query_attention") is None:
        return int(given or c["n_heads"])
    by_switch = 1 if c.of(flag("multi_query_attention")) else c["n_heads"]
    if given not in (None, by_switch):
        raise c.refusal("`n_kv_heads` and `multi_query_attention` disagree")
    return int(by_switch)


def _tokens(c: Reading) -> int | None:
    """Return the training tokens of a duration in tokens, such as 2e12T, or in steps."""
    given = c.value("max_duration")
    if not isinstance(given, str):
        steps: int | None = c.of(_STEPS)
        return steps
    if re.fullmatch(r"\d{1,15}(\.\d{1,15})?(e\+?\d{1,2})? ?T", given, re.ASCII) and (tokens := int(Fraction(given[:-1].strip()))):
        return tokens
    c.notes.append(f"`max_duration: {show(given)}` is not planned; give the number of steps or tokens, e.g. 2e12T")
    return None


OLMO = row(
    {"context_length": size("max_sequence_length", 1024), "d_model": size("d_model", 768), "n_layers": layers("n_layers", 12)},
    {"n_heads": size("n_heads", 12), "vocab_size": size("embedding_size", 50304, null=size("vocab_size")), "head_dim": divided()},
    {"n_kv_heads": code(_kv_heads, size("n_kv_heads", None), flag("multi_query_attention"))},
    {"d_ff": when(_SWIGLU, half(_WHOLE), _WHOLE)},
    feed_forward(when(_SWIGLU, "gated", "plain"), choice("activation_type", _ACTIVATIONS, "silu"), _BIAS),
    {"attention.bias": _BIAS, "attention.qkv": "fused", "norm.type": _RMS, "norm.weight": when(_AFFINE, None, False)},
    {"norm.bias": code(_norm_bias, _AFFINE, _NORM_BIAS), "norm.placement": when(flag("norm_after"), "after", "before")},
    {"attention.qk_norm": code(_qk_norm, _QK, _AFFINE, flag("attention_layer_norm_with_affine", True))},
    {"positions": when(_ROPE, "rope", when(_ALIBI, "alibi", "learned")), "embedding_norm": flag("embedding_layer_norm")},
    {"head.tied": flag("weight_tying", True), "head.bias": when(flag("weight_tying", True), None, when(_BIAS, True))},
    {"training.batch_size": size("device_train_microbatch_size", None), "training.sequence_length": same("context_length")},
    {"training.gradient_accumulation": size("device_train_grad_accum", None), "training.tokens": code(_tokens, "max_duration", _STEPS)},
    {"training.precision": noted(
        "precision", {"amp_bf16": "bf16-autocast", "amp_fp16": "fp16-autocast", "fp32": "fp32"}, "the precision is bf16-autocast", "fp32")},
    optimizer("optimizer.name"), recompute("activation_checkpointing", ["whole_layer"]),
    dropout("residual_dropout attention_dropout embedding_dropout"),
    only={"block_type": ("sequential", "llama")},
    ignored={
        NAMES: "run_name model_type", STARTS: "init_fn init_cutoff_factor emb_init_std scale_emb_init init_device",
        RUNS: (
            "flash_attention block_group_size rope_full_precision attention_softmax_in_fp32 compile fused_loss gen1_gc_interval "
            "python_profiling torch_profiling time_limit use_cache dry_run seed"
        ),
        ROTATES: "alibi_bias_max", SCALES: "clip_qkv scale_logits", LOSES: "softmax_auxiliary_loss auxiliary_loss_multiplier",
        DEVICES: "fsdp ddp single distributed_strategy",
        UPDATES: (
            "scheduler max_grad_norm max_grad_norm_ratio optimizer.learning_rate optimizer.weight_decay optimizer.betas optimizer.eps "
            "optimizer.decay_norm_and_bias optimizer.decay_embeddings optimizer.metrics_log_interval optimizer.selective_updates "
            "optimizer.no_decay_norm_and_bias optimizer.record_update_metrics"
        ),
        DERIVED: "device_train_batch_size", "ends the training before its schedule": "stop_at stop_after",
        NOT_COUNTED: (
            "data tokenizer evaluators wandb save_folder remote_save_folder save_overwrite save_interval save_interval_unsharded "
            "save_interval_ephemeral save_num_checkpoints_to_keep save_num_unsharded_checkpoints_to_keep load_path try_load_latest_save "
            "sharded_checkpointer load_path_sharded_checkpointer force_save_unsharded no_pre_train_checkpoint restore_dataloader "
            "reset_optimizer_state reset_trainer_state new_style_checkpoints eval_interval eval_on_load eval_subset_num_batches "
            "device_eval_batch_size speed_monitor console_log_interval early_stopping_factor save_data_indices epoch "
            "module_outputs_save_steps extra_steps_after_cancel canceled_check_interval fast_forward_batches hf_datasets_cache_dir"
        ),
    },
    notes=(own_kernels("OLMo"),),
)  # fmt: skip


def _read(given: Given) -> Imported:
    return read(OLMO, opened(given.config, "model") if "model" in given.config else given.config, "OLMo")


def _recognizes(given: Given) -> bool:
    model = given.config.get("model", given.config)
    named = given.config.get("model_type") in (None, "hf_olmo")
    return named and isinstance(model, Mapping) and "d_model" in model and any(key in model for key in _ONLY) and "block" not in model


FORMAT = Format(
    "OLMo",
    "configs/*.yaml of the trainer, and the config.json of its first checkpoints",
    "allenai/OLMo of September 2025: olmo/config.py, olmo/model.py",
    _recognizes,
    _read,
    {"olmo-trainer": OLMO},
    f"in the section `model`, or at the top, `d_model` and {one_of(_ONLY)}",
)
