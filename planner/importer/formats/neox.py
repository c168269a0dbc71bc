"""GPT-NeoX's configurations: configs/*.yml, whose keys have hyphens or underscores.

Read from EleutherAI's gpt-neox of May 2026: megatron/neox_arguments/neox_args.py (names and defaults), arguments.py (derived values),
model/transformer.py, gpt2_model.py, norms.py, activations.py, and DeepSpeed's engine.py (data types of gradients). `mlp_type: llama` is
read as in the version of 2023, which had that key.
"""

from __future__ import annotations

from dataclasses import replace
from operator import eq
from typing import Any

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, one_of
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported, SpecModel, UnsupportedConfigError, show
from planner.importer.training import *

# Keys that only GPT-NeoX has; it ties weights, norms, positions and parallel blocks under names of its own.
_ONLY = ("pos_emb", "no_weight_tying", "gpt_j_residual", "gpt_j_tied", "rotary_pct", "attention_config", "mlp_type", "pipe_parallel_size")

_GATED = {"geglu": "gelu", "reglu": "relu", "swiglu": "silu"}
_PLAIN = {"gelu": "gelu", "relu": "relu", "swish": "silu", "silu": "silu"}
_LLAMA = apply(eq, "llama", choice("mlp_type", {"regular": "regular", "llama": "llama"}, "regular"))
_NAME = choice("activation", {name: name for name in (*_GATED, *_PLAIN)}, "gelu")
_IS_GATED, _ACTIVATION = when(_LLAMA, True, apply(_GATED.__contains__, _NAME)), apply({**_GATED, **_PLAIN}.get, _NAME)
_GELU = when(flag("bias_gelu_fusion"), "gelu_tanh", "gelu")
_MLP_BIAS = when(_LLAMA, False, flag("use_bias_in_mlp", True))
_CHECKPOINTS, _TOGETHER = flag("checkpoint_activations"), size("checkpoint_num_layers", 1)
_GIVEN_WIDTH = size("intermediate_size", None)


def _width(c: Reading) -> int:
    """Return the width of the feed-forward: a gated one has two thirds of the given width, and both are padded to a multiple."""
    given, multiple = c.of(_GIVEN_WIDTH), c.of(size("mlp_multiple_of", 256 if c.of(_LLAMA) else 1))
    if c.of(_LLAMA):
        return int(given or -(-int(8 * c["d_model"] / 3) // multiple) * multiple)
    whole: int = given or int(c["d_model"] * c.of(number("expansion_factor", 4)))
    if given and c.of(_IS_GATED):
        c.notes.append(f"a gated feed-forward has two thirds of `intermediate_size: {given}`; in earlier versions it has all of it")
    up, down = (int(whole * 2 / 3), int(whole * 2 / 3) // 2) if c.of(_IS_GATED) else (whole, whole)
    up, down = -(-up // (2 * multiple)) * 2 * multiple, -(-down // multiple) * multiple
    if up != (2 * down if c.of(_IS_GATED) else down):
        raise c.refusal(
            f"`intermediate_size: {whole}` gives matrices that do not fit: {up} columns before the activation, {down} rows after"
        )
    return int(down)


def _head_dim(c: Reading) -> int:
    if c["d_model"] % c["n_heads"]:
        raise c.refusal(f"`num_attention_heads: {c['n_heads']}` does not divide `hidden_size: {c['d_model']}`")
    return int(c["d_model"] // c["n_heads"])


def _recompute(c: Reading) -> str | None:
    if not c.of(_CHECKPOINTS):
        return None
    if (together := c.of(_TOGETHER)) > 1:
        c.notes.append(f"`checkpoint_num_layers: {together}` is not modeled; each layer is recomputed on its own")
    return "full"


def _attention(c: Reading) -> tuple[object, ...]:
    """Return the attention as given, if all its layers see all tokens."""
    given = c.value("attention_config")
    for kind in _strings([given]):
        if kind not in ("global", "flash", "all"):
            raise c.refusal(f"`attention_config` contains {show(kind)}; supported: global, flash")
    return (given,)


def _kernels(c: Reading) -> str | None:
    kinds = _strings([c.value("attention_config")])
    return None if "flash" in kinds and "global" not in kinds else "pytorch-eager"


def _strings(value: Any) -> list[str]:  # JSON
    return [word for one in value for word in _strings(one)] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _positions(c: Reading) -> str | SpecModel:
    kind, share = c.of(_KIND), c.of(key("rotary_pct", fraction, 1.0))
    return rotated(c["head_dim"], int(c["head_dim"] * share)) if kind == "rope" else str(kind)


_KIND = choice("pos_emb", {"learned": "learned", "rotary": "rope", "sinusoidal": "sinusoidal", "alibi": "alibi", "none": "none"}, "learned")
_NORMS = {
    "layernorm": "layernorm", "te_layernorm": "layernorm", "non_parametric_layernorm": "layernorm", "rmsnorm": "rmsnorm",
    "te_rmsnorm": "rmsnorm",
}  # fmt: skip
_FP16, _BF16 = flag("fp16.enabled"), flag("bf16.enabled")
_DTYPE = choice("precision", {"fp16": "fp16", "bfloat16": "bf16", "fp32": "fp32"}, when(_FP16, "fp16", when(_BF16, "bf16", "fp32")))
_SUMS = when(count("zero_optimization.stage"), "bf16", None)  # DeepSpeed sums gradients in fp32 only without ZeRO
_TIED_NORMS = flag("gpt_j_tied")


def _unused_norms(c: Reading) -> list[SpecModel]:
    """Return the second norm of each layer, which is stored even where the block shares the first."""
    if c["block"] != "parallel_one_norm":
        return []
    norm = [tensor("post_attention_layernorm.weight", ["d_model"], "norm")] if c["norm.weight"] is None else []
    return norm + ([tensor("post_attention_layernorm.bias", ["d_model"], "norm")] if norm and c["norm.type"] == "layernorm" else [])


NEOX = row(
    {"vocab_size": size("padded_vocab_size", vocabulary("vocab_size", "GPT-NeoX"))},
    {"pad_vocab_to_multiple_of": when(size("padded_vocab_size", None), None, times(
        size("make_vocab_size_divisible_by", 128), size("model_parallel_size", 1)))},
    {"context_length": size("max_position_embeddings"), "d_model": size("hidden_size"), "n_layers": layers("num_layers")},
    {"n_heads": size("num_attention_heads"), "n_kv_heads": size("num_kv_heads", same("n_heads")), "head_dim": code(_head_dim)},
    {"d_ff": code(_width, "mlp_multiple_of", _GIVEN_WIDTH, number("expansion_factor", 4), _LLAMA, _IS_GATED)},
    feed_forward(when(_IS_GATED, "gated", "plain"), when(apply(eq, "gelu", _ACTIVATION), _GELU, _ACTIVATION), _MLP_BIAS),
    {"attention.bias": flag("use_bias_in_attn_linear", True)},
    {"attention.qkv": when(apply(eq, same("n_kv_heads"), same("n_heads")), "fused_per_head", "fused")},
    {"attention.window": apply(lambda keys: keys + 1 if keys else None, size("sliding_window_width", None))},  # keys before the query
    {"norm.type": choice("norm", _NORMS, "layernorm")},
    {"norm.weight": when(choice("norm", {name: name.startswith("non_") for name in _NORMS}, False), False)},
    {"block": when(flag("gpt_j_residual"), when(_TIED_NORMS, "parallel_one_norm", "parallel_two_norms"), "sequential")},
    {"positions": code(_positions, "rotary_pct", _KIND), "head.tied": when(flag("no_weight_tying"), False, True)},
    {"layers.extra": code(_unused_norms)},
    {"training.batch_size": size("train_micro_batch_size_per_gpu", None), "training.sequence_length": size("seq_length", None)},
    {"training.gradient_accumulation": size("gradient_accumulation_steps", None)},
    {"training.precision": apply(lambda dtype: dtype if dtype == "fp32" else f"{dtype}-master", _DTYPE)},
    {"training.gradient_dtype": when(
        apply(eq, "bf16", _DTYPE), choice("data_types.grad_accum_dtype", {"fp32": "fp32", "bf16": "bf16"}, _SUMS))},
    {"training.optimizer": when(flag("use_bnb_optimizer"), "adamw-8bit", noted(
        "optimizer.type", {**OPTIMIZERS, "sgd": "sgd", "onebitadam": "adamw", "cpu_adam": "adamw"}, LIKE_ADAMW))},
    training_tokens("train_iters", "train_batch_size"), dropout("hidden_dropout attention_dropout"),
    {"training.recompute": code(_recompute, _CHECKPOINTS, _TOGETHER)},
    {"training.implementation": code(_kernels, "attention_config")},
    only={
        "attention_config": replace(code(_attention, "attention_config"), text="global or flash in every layer"),
        "use_qk_layernorm": False, "num_unique_layers": same("n_layers"),
        "soft_prompt_tuning": (), "opt_pos_emb_offset": 0,
        "moe_num_experts": 1, "te_layernorm_mlp": False, "te_mha": False, "train_impl": "normal",
        "output_layer_parallelism": "column", "fp16_lm_cross_entropy": False,
    },
    ignored={
        DEVICES: "pipe_parallel_size pipe_partition_method sequence_parallel world_size is_pipe_parallel global_num_gpus hostfile launcher",
        RUNS: (
            "scaled_upper_triang_masked_softmax_fusion scaled_masked_softmax_fusion bias_dropout_fusion rope_fusion layernorm_fusion "
            "rmsnorm_fusion use_flashattn_swiglu apply_query_key_layer_scaling attention_softmax_in_fp32 te_columnparallel te_rowparallel "
            "te_fp8_format te_fp8_wgrad te_fp8_amax_history_len te_fp8_amax_compute_algo te_fp8_margin te_fp8_mha partition_activations "
            "synchronize_each_layer contiguous_checkpointing checkpoint_in_cpu fp32_allreduce fused_kernels_build_path onnx_safe "
            "rotary_save_freqs_buffer tokenizer_type communication_data_type use_cpu_initialization deepspeed_slurm distributed_backend "
            "prescale_gradients zero_allow_untested_optimizer zero_optimization.reduce_bucket_size zero_optimization.allgather_bucket_size "
            "zero_optimization.allgather_partitions zero_optimization.overlap_comm zero_optimization.reduce_scatter "
            "zero_optimization.contiguous_gradients zero_optimization.cpu_offload fp16.auto_cast"
        ),
        STARTS: "init_method init_method_std output_layer_init_method", ROTATES: "rotary_emb_base",
        SCALES: "use_mup mup_init_scale mup_attn_temp mup_output_temp mup_embedding_mult mup_rp_embedding_mult mup_width_scale",
        UNREAD: (
            "use_bias_in_norms gmlp_attn_dim param_sharing_style sparsity_config rpe_num_buckets rpe_max_distance moe_expert_interval "
            "moe_top_k moe_router_type moe_lbl_in_fp32 moe_jitter_eps moe_token_dropping fp16.fp16 fp16.type bf16.bf16"
        ),
        UPDATES: (
            "min_lr lr_decay_style lr_decay_iters warmup gradient_clipping weight_decay clip_grad optimizer.params.lr "
            "optimizer.params.betas optimizer.params.eps optimizer.params.momentum optimizer.params.weight_decay fp16.loss_scale "
            "fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis fp16.min_loss_scale"
        ),
        DERIVED: "gas",
        NOT_COUNTED: (
            "data_path data_impl split train_data_paths train_data_weights valid_data_paths valid_data_weights test_data_paths "
            "test_data_weights train_label_data_paths valid_label_data_paths test_label_data_paths weight_by_num_documents "
            "weighted_sampler_alpha num_workers save load "
            "checkpoint_factor checkpoint_scale checkpoint_validation_with_forward_pass extra_save_iters keep_last_n_checkpoints "
            "no_save_optim no_load_optim finetune eval_batch_size eval_interval eval_iters eval_tasks log_interval log_dir log_grad_norm "
            "log_optimizer_states steps_per_print wall_clock_breakdown tensorboard_dir use_wandb wandb_group wandb_team wandb_project "
            "wandb_host vocab_file merge_file comet_experiment_name memory_profiling memory_profiling_path "
            "profile profile_step_start profile_step_stop"
        ),
    },
    notes=(own_kernels("GPT-NeoX"),),
)  # fmt: skip


def _found(given: Given) -> list[str]:
    return [key for key in given.config if str(key).replace("-", "_") in _ONLY]


def _read(given: Given) -> Imported:
    config = {str(key).replace("-", "_"): value for key, value in given.config.items()}
    if len(config) < len(given.config):
        raise UnsupportedConfigError("a key occurs twice, with a hyphen and with an underscore")
    return read(NEOX, {key: leaves(value) for key, value in config.items()}, "GPT-NeoX")


FORMAT = Format(
    "GPT-NeoX",
    "configs/*.yml",
    "EleutherAI's gpt-neox of May 2026: megatron/neox_arguments/neox_args.py, megatron/model/transformer.py",
    lambda given: bool(_found(given)),
    _read,
    {"gpt-neox": NEOX},
    one_of(_ONLY),
)
