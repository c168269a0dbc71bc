"""Configurations with the shapes of other trainers' files; the values are facts of published models."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

# EleutherAI's tokenizer has 50,277 tokens; GPT-NeoX pads to 128 rows per tensor-parallel rank. Counts: the published weights of each model.
PYTHIA: Config = {
    "pipe-parallel-size": 1, "seq-length": 2048, "max-position-embeddings": 2048, "norm": "layernorm", "pos-emb": "rotary",
    "rotary-pct": 0.25, "no-weight-tying": True, "gpt-j-residual": True, "output-layer-parallelism": "column",
    "attention-config": [[["flash"], "all"]], "bias-gelu-fusion": True, "vocab_size": 50277,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.95]}}, "zero_optimization": {"stage": 1},
    "train-micro-batch-size-per-gpu": 8, "gradient_accumulation_steps": 2, "checkpoint-activations": True,
    "hidden-dropout": 0, "attention-dropout": 0, "fp16": {"enabled": True, "loss_scale": 0}, "train-iters": 143000,
}  # fmt: skip

NEOX = PYTHIA | {"num-layers": 2, "hidden-size": 512, "num-attention-heads": 8}

LLAMA_IN_NEOX = {
    "num_layers": 32, "hidden_size": 4096, "intermediate_size": 32768, "num_attention_heads": 32, "seq_length": 2048,
    "max_position_embeddings": 2048, "pos_emb": "rotary", "rotary_pct": 1, "no_weight_tying": True, "norm": "rmsnorm",
    "use_bias_in_mlp": False, "use_bias_in_attn_linear": False, "activation": "swiglu", "mlp_multiple_of": 256,
    "make_vocab_size_divisible_by": 1, "vocab_size": 32000,
}  # fmt: skip

OLMO: Config = {
    "alibi": False, "rope": True, "flash_attention": True, "attention_dropout": 0.0, "attention_layer_norm": False, "include_bias": False,
    "block_type": "sequential", "layer_norm_type": "default", "layer_norm_with_affine": False, "bias_for_layer_norm": False,
    "activation_type": "swiglu", "residual_dropout": 0.0, "embedding_dropout": 0.0, "max_sequence_length": 2048, "vocab_size": 50280,
    "embedding_size": 50304, "init_fn": "mitchell",
}  # fmt: skip

OLMO2 = OLMO | {
    "layer_norm_type": "rms", "layer_norm_with_affine": True, "attention_layer_norm": True, "attention_layer_norm_with_affine": True,
    "norm_after": True, "max_sequence_length": 4096, "vocab_size": 100278, "embedding_size": 100352, "weight_tying": False,
}  # fmt: skip

CORE_NORM = {"name": "rms", "eps": 1e-6, "bias": False, "_CLASS_": "olmo_core.nn.layer_norm.LayerNormConfig"}


def olmo_core(d_model: int, n_layers: int, hidden: int, attention: Config, **block: object) -> Config:
    mixer = {"name": "default", "bias": False, "rope": {"name": "default", "theta": 500_000}, "qk_norm": CORE_NORM, **attention}
    whole = {"name": "reordered_norm", "sequence_mixer": mixer, "layer_norm": CORE_NORM, **block}
    if "feed_forward_moe" not in block:
        whole["feed_forward"] = {"hidden_size": hidden, "bias": False, "name": "default"}
    head = {"name": "default", "layer_norm": CORE_NORM, "bias": False}
    model = {"d_model": d_model, "n_layers": n_layers, "vocab_size": 100352, "block": whole, "lm_head": head, "name": "default"}
    optim = {"_CLASS_": "olmo_core.optim.adamw.SkipStepAdamWConfig", "lr": 1e-4}
    training = {"rank_microbatch_size": 16384, "max_sequence_length": 8192, "optim": optim, "dp_config": {"param_dtype": "bfloat16"}}
    return {"model": {**model, "_CLASS_": "olmo_core.nn.transformer.config.TransformerConfig"}, "train_module": training}


# SmolLM-135M (published: 134,515,008), with 2 ranks: 49,152 is a multiple of 2.
NANOTRON: Config = {
    "model": {"dtype": "bfloat16", "init_method": {"std": 0.025}, "make_vocab_size_divisible_by": 1, "model_config": {
        "attention_bias": False, "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536, "is_qwen2_config": True,
        "max_position_embeddings": 8192, "moe_config": None, "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
        "tie_word_embeddings": True, "vocab_size": 49152}},
    "parallelism": {"dp": 4, "pp": 1, "tp": 2, "recompute_layer": True}, "optimizer": {
        "accumulate_grad_in_fp32": True, "optimizer_factory": {"name": "adamW", "adam_beta1": 0.9}, "zero_stage": 0},
    "tokens": {"sequence_length": 2048, "micro_batch_size": 3, "batch_accumulation_per_replica": 4, "train_steps": 100},
}  # fmt: skip

LEVANTER: Config = {"trainer": {"mp": "p=f32,c=bfloat16", "per_device_parallelism": -1, "train_batch_size": 512}, "data": {"x": 1}}

LLAMA3 = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024, "ffn_dim_multiplier": 1.3,
    "norm_eps": 1e-5, "rope_theta": 500000.0,
}  # fmt: skip

MISTRAL = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-5,
    "sliding_window": 4096, "vocab_size": 32000,
}  # fmt: skip

DEEPSEEK = {
    "vocab_size": 129280, "dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048, "n_layers": 61, "n_dense_layers": 3, "n_heads": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "n_activated_experts": 8, "n_expert_groups": 8, "n_limited_groups": 4,
    "route_scale": 2.5, "score_func": "sigmoid", "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "dtype": "fp8",
}  # fmt: skip
