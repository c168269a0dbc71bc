"""nanotron's configurations: a trainer's YAML with ``model: model_config:``, and the model_config.json of a checkpoint.

Read from huggingface/nanotron of April 2026: config/config.py, config/models_config.py, models/llama.py, models/qwen.py, nn/moe.py,
trainer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import eq

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Config, Imported, SpecModel
from planner.importer.training import *

_QWEN = flag("is_qwen2_config")
_SPARSE = apply(lambda qwen, number: qwen and number is not None, _QWEN, size("moe_config.num_experts", None))


def _sparse_layers(c: Reading) -> list[bool]:
    listed = c.of(layer_numbers("moe_config.layers", [-1]))
    return [listed == [-1] or layer in listed for layer in range(c["n_layers"])]


def _layer(layer: int, _: int, step: int | None, width: int | None) -> SpecModel:
    """Return a layer of Qwen2Config: every ``no_rope_layer``-th has neither positions nor a window."""
    return dict(NO_POSITIONS) if step and (layer + 1) % step == 0 else {"attention": {"window": width}} if width else {}


_LAYERS = per_layer(_layer, size("no_rope_layer", None), size("sliding_window_size", None))
_PLAIN_BF16 = flag("optimizer.accumulate_grad_in_fp32", True)
_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}

NANOTRON = row(
    {"vocab_size": size("vocab_size", 32000), "d_model": size("hidden_size", 4096), "d_ff": size("intermediate_size", 11008)},
    {"pad_vocab_to_multiple_of": times(size("model.make_vocab_size_divisible_by", 1), size("parallelism.tp", 1))},
    {"context_length": size("tokens.sequence_length", size("max_position_embeddings", 2048))},
    {"n_layers": layers("num_hidden_layers", 32), "n_heads": size("num_attention_heads", 32)},
    {"n_kv_heads": size("num_key_value_heads", same("n_heads")), "head_dim": divided()},
    {"attention.bias": when(_QWEN, bias(flag("attention_bias")), False), "attention.qkv": "fused"},
    feed_forward("gated", activation("hidden_act", "silu"), False), {"norm.type": "rmsnorm", "positions": "rope"},
    tied(False), {"layers.kinds": when(_QWEN, _LAYERS, None)},
    where(_SPARSE, {
        "experts.count": size("moe_config.num_experts"), "experts.top_k": size("moe_config.top_k", 2),
        "experts.d_ff": size("moe_config.moe_intermediate_size", 1408), "experts.normalize": False,
        "experts.activation": same("feed_forward.activation"),
        "experts.shared": when(
            flag("moe_config.enable_shared_expert"),
            shared(size("moe_config.shared_expert_intermediate_size", 5632), gate=True)),
        "_sparse": code(_sparse_layers, layer_numbers("moe_config.layers", [-1])),
    }),
    {"training.batch_size": size("tokens.micro_batch_size", None), "training.sequence_length": same("context_length")},
    training_tokens("tokens.train_steps", "tokens.micro_batch_size", "tokens.batch_accumulation_per_replica", "parallelism.dp"),
    {"training.gradient_accumulation": size("tokens.batch_accumulation_per_replica", None)},
    {"training.precision": when(apply(eq, "fp32", choice("model.dtype", _DTYPES, "bf16")), "fp32",
        when(_PLAIN_BF16, "bf16-master", "bf16"))},
    optimizer("optimizer.optimizer_factory.name", sgd="sgd"),
    {"training.recompute": when(flag("parallelism.recompute_layer"), "full", noted(
        "parallelism.recompute_granularity", {"full": "full", "selective": "selective", "none": None}, RECOMPUTES_NOTHING))},
    only={"is_starcoder2_config": False, "is_llamoe_config": False, "is_mamba_config": False, "_use_qkv_packed": True},
    ignored={
        NAMES: "is_llama_config is_custom", RUNS: "_fused_rms_norm _fused_rotary_emb _use_doc_masking flex_attention_mask log_attn_probs",
        STARTS: "model.init_method.std model.init_method.path model.init_method.use_mup model.init_method.scaling_method",
        ROTATES: "rope_interleaved interleaved_rotary rope_seq_len_interpolation_factor", LOSES: (
            "z_loss_enabled z_loss_coefficient moe_config.router_aux_loss_coef"),
        ROUTES: "moe_config.token_dispatcher_type",
        DEVICES: (
            "parallelism.pp parallelism.pp_engine parallelism.tp_mode parallelism.tp_linear_async_communication "
            "parallelism.expert_parallel_size parallelism.context_parallel_size parallelism.tp_recompute_allgather "
            "model.ddp_bucket_cap_mb optimizer.zero_stage ring_attn_heads_k_stride"
        ),
        UPDATES: (
            "optimizer.adam_beta1 optimizer.adam_beta2 optimizer.adam_eps optimizer.torch_adam_is_fused optimizer.clip_grad "
            "optimizer.weight_decay optimizer.weight_decay_exclude_named_params "
            + " ".join(f"optimizer.optimizer_factory.{one}" for one in ("adam_beta1", "adam_beta2", "adam_eps", "torch_adam_is_fused"))
            + " "
            + " ".join(f"optimizer.learning_rate_scheduler.{one}" for one in (
                "learning_rate", "lr_decay_starting_step", "lr_decay_steps", "lr_decay_style", "lr_warmup_steps", "lr_warmup_style",
                "min_decay_lr"))
        ),
        NOT_COUNTED: (
            "checkpoints data_stages data doremi general lighteval logging profiler tokenizer s3_upload metrics_logging "
            "tokens.limit_test_batches tokens.limit_val_batches tokens.val_check_interval"
        ),
    },
    notes=(own_kernels("nanotron"),),
)  # fmt: skip


def _model(config: Config) -> Config:
    """Return the section of the model."""
    model = config.get("model")
    inner = model.get("model_config") if isinstance(model, Mapping) else config
    return inner if isinstance(inner, Mapping) else {}


def _read(given: Given) -> Imported:
    return read(NANOTRON, opened(given.config, "model", "model_config") if "model" in given.config else given.config, "nanotron")


FORMAT = Format(
    "nanotron",
    "a trainer's YAML, and model_config.json of a checkpoint",
    "huggingface/nanotron of April 2026: config/config.py, config/models_config.py, models/llama.py, models/qwen.py",
    lambda given: any(str(key).startswith("is_") and str(key).endswith("_config") for key in _model(given.config)),
    _read,
    {"nanotron": NANOTRON},
    "in the section `model.model_config`, or at the top, a key `is_…_config`",
)
