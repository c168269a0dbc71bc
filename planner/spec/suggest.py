"""What the user may have meant: names that other tools give to our keys and values, and slips of the finger."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from planner.spec.language import inlined, properties
from planner.spec.nodes import UNREADABLE
from planner.spec.yaml12 import parse_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.spec.language import Schema
    from planner.spec.nodes import Scalar

_MOST = 200  # unknown keys of one mapping that are thought about
_LONGEST = 60  # characters of a name that a slip of the finger is looked for in

# Our key, and what nanoGPT, transformers, litgpt, Megatron, Lightning and others call it.
_KEYS = {
    "model.d_model": "hidden_size n_embd embed_dim embedding_size emb_dim model_dim dim d_embed width",
    "model.n_layers": "num_hidden_layers n_layer num_layers depth n_blocks",
    "model.n_heads": "num_attention_heads n_head num_heads nhead attention_heads",
    "model.n_kv_heads": "num_key_value_heads num_kv_heads n_query_groups num_query_groups n_head_kv n_kv_head kv_heads",
    "model.head_dim": "head_size d_head d_kv kv_channels attention_head_dim",
    "model.d_ff": "intermediate_size ffn_hidden_size n_inner ffn_dim ff_dim dim_feedforward dff hidden_dim mlp_dim mlp_hidden_size",
    "model.context_length": "max_position_embeddings block_size n_positions n_ctx max_seq_len max_seq_length max_sequence_length",
    "model.vocab_size": "n_vocab vocabulary_size num_embeddings vocab",
    "model.pad_vocab_to_multiple_of": "padding_multiple padded_vocab_size make_vocab_size_divisible_by",
    "model.feed_forward.activation": "hidden_act activation_function hidden_activation act_fn",
    "model.feed_forward": "mlp ffn ff feedforward",
    "model.mixer": "layer_types layer_type layers_block_type block_types mixers token_mixer",
    "model.experts": "moe mixture_of_experts moe_config ffn_config",
    "model.experts.count": "num_experts num_local_experts n_routed_experts n_experts moe_num_experts num_moe_experts n_expert",
    "model.experts.top_k": "num_experts_per_tok num_experts_per_token moe_top_k moe_k n_expert_per_token moe_router_topk "
    "num_selected_experts router_top_k experts_per_token",
    "model.experts.d_ff": "moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size expert_dim",
    "model.experts.shared": "n_shared_experts num_shared_experts moe_num_shared_experts shared_experts shared_expert",
    "model.experts.shared.d_ff": "shared_expert_intermediate_size moe_shared_expert_intermediate_size shared_intermediate_size",
    "model.experts.normalize": "norm_topk_prob route_norm norm_expert_weight moe_renormalize",
    "model.experts.scoring": "scoring_func score_func moe_router_score_function router_scoring score_function",
    "model.experts.latent_dim": "moe_latent_size",
    "model.experts.empty": "zero_expert_num",
    "model.experts.capacity_factor": "expert_capacity_factor moe_expert_capacity_factor moe_capacity_factor expert_capacity",
    "model.experts.correction_bias": "use_routing_bias moe_router_enable_expert_bias use_expert_bias e_score_correction_bias",
    "model.layers": "first_k_dense_replace num_dense_layers moe_layer_freq decoder_sparse_step mlp_only_layers layer_pattern "
    "hybrid_override_pattern full_attention_interval attn_layer_period attn_layer_offset attn_layer_indices",
    "model.attention.window": "sliding_window window_size attention_window sliding_window_size attention_chunk_size local_window",
    "model.attention.logit_softcap": "attn_logit_softcapping attn_logit_softcap attention_softcap",
    "model.attention.output_gate": "attn_output_gate attention_gate use_output_gate",
    "model.attention.sinks": "attention_sinks use_sinks add_swa_attention_sink_bias",
    "model.attention.v_head_dim": "v_channels value_head_dim",
    "model.attention.shared_kv": "num_kv_shared_layers kv_sharing",
    "model.attention.keys_as_values": "attention_k_eq_v",
    "model.latent_attention": "mla multi_head_latent_attention",
    "model.latent_attention.kv_rank": "kv_lora_rank",
    "model.latent_attention.q_rank": "q_lora_rank",
    "model.latent_attention.nope_dim": "qk_nope_head_dim qk_head_dim",
    "model.latent_attention.rope_dim": "qk_rope_head_dim qk_pos_emb_head_dim",
    "model.latent_attention.indexer.n_heads": "index_n_heads",
    "model.latent_attention.indexer.head_dim": "index_head_dim",
    "model.latent_attention.indexer.top_k": "index_topk",
    "model.mamba.d_inner": "mamba_d_inner ssm_d_inner",
    "model.mamba.d_state": "mamba_d_state state_size ssm_state_size",
    "model.mamba.d_conv": "mamba_d_conv conv_kernel ssm_conv_kernel",
    "model.mamba.dt_rank": "mamba_dt_rank time_step_rank",
    "model.mamba2.n_heads": "mamba_n_heads mamba_num_heads",
    "model.mamba2.n_groups": "mamba_n_groups",
    "model.mamba2.d_inner": "mamba_d_ssm",
    "model.gated_delta_net.n_key_heads": "linear_num_key_heads",
    "model.gated_delta_net.n_value_heads": "linear_num_value_heads",
    "model.gated_delta_net.key_dim": "linear_key_head_dim",
    "model.gated_delta_net.value_dim": "linear_value_head_dim",
    "model.gated_delta_net.d_conv": "linear_conv_kernel_dim",
    "model.rg_lru": "recurrent rglru griffin",
    "model.rg_lru.width": "lru_width",
    "model.short_convolution": "short_conv lfm2_conv",
    "model.short_convolution.d_conv": "conv_l_cache",
    "model.head.logit_softcap": "final_logit_softcapping final_logit_softcap logits_soft_cap",
    "model.embedding_dim": "word_embed_proj_dim factorized_embedding_dim",
    "model.embedding_scale": "scale_embedding scale_embeddings",
    "model.per_layer_embedding": "per_layer_input ple",
    "model.per_layer_embedding.dim": "hidden_size_per_layer_input",
    "model.per_layer_embedding.vocab_size": "vocab_size_per_layer_input",
    "model.prediction": "mtp multi_token_prediction",
    "model.prediction.count": "num_nextn_predict_layers mtp_num_layers num_mtp_layers mtp_depth",
    "model.norm.unit_offset": "apply_layernorm_1p zero_centered_gamma add_unit_offset",
    "model.attention.bias": "attention_bias qkv_bias add_qkv_bias",
    "model.attention.qk_norm": "use_qk_norm qk_layernorm norm_qk",
    "model.norm.type": "norm_type norm_class_name normalization",
    "model.block": "parallel_residual use_parallel_residual parallel_attn",
    "model.positions": "position_embedding_type pos_emb positional_encoding position",
    "model.positions.rotary_dim": "rotary_pct partial_rotary_factor rotary_percentage",
    "model.head.tied": "tie_word_embeddings tie_embeddings weight_tying tie_weights tied_embeddings tied_head",
    "model.head.bias": "lm_head_bias head_bias",
    "model.head": "lm_head",
    "training.sequence_length": "seq_len seq_length sequence_len max_length",
    "training.batch_size": "micro_batch_size per_device_train_batch_size train_batch_size device_batch_size batch bs",
    "training.gradient_accumulation": "gradient_accumulation_steps grad_accum accumulate_grad_batches grad_accumulation",
    "training.precision": "dtype torch_dtype mixed_precision amp",
    "training.gradient_dtype": "grad_dtype gradient_precision",
    "training.tokens": "train_tokens n_tokens num_tokens max_tokens total_tokens",
    "training.steps": "max_steps num_steps total_steps max_iters train_steps train_iters num_train_steps",
    "training.optimizer": "optim optimiser",
    "training.dropout": "resid_pdrop embd_pdrop attn_pdrop hidden_dropout attention_dropout",
    "training.recompute": "gradient_checkpointing activation_checkpointing checkpointing recompute_granularity recomputation",
    "training.implementation": "attn_implementation backend attention_implementation",
    "training.attention_kernel": "sdpa_backend sdp_backend attention_backend",
    "training.kv_cache": "use_cache",
    "training.device": "gpu accelerator hardware",
    "training.optimizer_kernel": "fused foreach fused_optimizer",
    "expect": "expected expects claims",
    "expect.params_total": "params parameters n_params num_params num_parameters total_params total_parameters params_count",
    "extends": "base inherits inherit extend",
    "source": "sources url reference",
    "name": "model_name id",
}
_NO_FIGURE = (
    "rope_theta rope_scaling rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps eps initializer_range init_std learning_rate lr "
    "weight_decay warmup_steps beta1 beta2 seed bos_token_id eos_token_id pad_token_id torch_version transformers_version"
)

# The last part of a key, then what others call a value of it.
_VALUES: dict[str, dict[str, str]] = {
    "precision": {
        "bf16-autocast bf16-master": "bf16-mixed bfloat16-mixed bf16_mixed mixed amp mixed-bf16 bf16-amp amp-bf16 amp_bf16",
        "bf16": "bfloat16 bf16-true bfloat16-true torch.bfloat16",
        "fp16-autocast": "fp16 float16 fp16-mixed 16-mixed half amp-fp16 torch.float16 16 16-true fp16-true",
        "fp32": "float32 float fp32-true 32-true 32 single torch.float32 tf32",
    },
    "gradient_dtype": {"bf16": "bfloat16 torch.bfloat16", "fp32": "float32 torch.float32 float"},
    "optimizer": {
        "adamw": "adam-w adamw_torch adamw_torch_fused adamw-fused",
        "adamw-8bit": "adamw8bit adam8bit adam-8bit adamw_8bit adamw_bnb_8bit 8bit-adam",
        "sgd-momentum": "momentum sgd_momentum sgdm nesterov",
    },
    "recompute": {
        "full": "true yes on all block blocks checkpoint checkpointing activation gradient-checkpointing uniform",
        "none": "false no off",
    },
    "implementation": {
        "pytorch": "torch sdpa flash flash-attention flash_attention_2",
        "pytorch-eager": "eager math",
        "transformers": "hf huggingface hugging-face",
    },
    "mixer": {
        "attention": "full_attention sliding_attention self_attention softmax_attention full sliding_window mha gqa mqa",
        "latent_attention": "mla multi_head_latent_attention",
        "mamba": "mamba1 ssm s6",
        "mamba2": "ssd mamba_2",
        "gated_delta_net": "linear_attention gdn deltanet gated_deltanet",
        "kimi_delta_attention": "kda",
        "lightning_attention": "lightning",
        "rg_lru": "recurrent rglru griffin",
        "rwkv": "rwkv4",
        "short_convolution": "conv short_conv",
        "mlstm": "xlstm",
        "none": "mlp moe feed_forward ffn",
    },
    "scoring": {"sigmoid": "noaux_tc"},
    "device": {"a100": "cuda gpu ampere", "h100": "hopper h200 h800"},
    "activation": {
        "gelu_tanh": "gelu_fast gelu_pytorch_tanh gelu_approximate gelu-tanh",
        "relu_squared": "relu2 squared_relu relu^2 squaredrelu",
        "silu": "swish swiglu",
        "gelu": "geglu gelu_python gelu_none",
    },
    "type": {
        "gated": "swiglu geglu glu gated_mlp llama llamamlp",
        "plain": "mlp standard dense gptneoxmlp",
        "rwkv": "channel_mix",
        "layernorm": "layer_norm ln layer-norm",
        "rmsnorm": "rms rms_norm rms-norm",
        "rope": "rotary rotary_embedding",
        "learned": "absolute learnt learnable learned_absolute",
        "sinusoidal": "sin sine fixed sinusoid",
        "none": "nope null no",
    },
    "positions": {
        "rope": "rotary rotary_embedding",
        "learned": "absolute learnt learnable learned_absolute",
        "sinusoidal": "sin sine fixed sinusoid",
        "none": "nope no off false",
    },
    "qk_norm": {"head_dim": "true yes on head", "full_width": "full all", "none": "false no off"},
    "block": {"parallel_one_norm": "parallel parallel_shared_norm", "parallel_two_norms": "parallel_residual", "sequential": "serial"},
    "placement": {
        "before": "pre pre_norm",
        "after": "post post_norm",
        "before_and_after": "both sandwich",
        "after_residual": "post_ln residual",
    },
    "qkv": {"fused": "true yes packed", "separate": "false no split", "fused_per_head": "interleaved per_head"},
}
_TRUTH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_SUFFIXES = {"k": "e3", "m": "e6", "b": "e9", "t": "e12"}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMbBtT])")
_GROUPED = re.compile(r"\d{1,3}(?:[_, ']\d{3})+|\d+(?:_\d+)+")


def _spelling(name: str) -> str:
    """Return a name without what people vary: case, hyphens, underscores."""
    return re.sub(r"[-_ ]", "", name.lower())


@cache
def _foreign_keys() -> dict[str, str]:
    return {_spelling(name): ours for ours, names in _KEYS.items() for name in names.split()}


@cache
def _homes() -> dict[str, str]:
    """Return for the name of each of our keys the first dotted key that it ends, shallow ones first."""

    def walk(part: Schema, prefix: str) -> Iterator[str]:
        for key, inner in properties(part).items():
            yield prefix + key
            if key != "expect":
                yield from walk(inner, f"{prefix}{key}.")

    homes: dict[str, str] = {}
    for dotted in sorted(walk(inlined(), ""), key=lambda key: key.count(".")):
        homes.setdefault(dotted.rpartition(".")[2], dotted)
    return homes


def key_meant(key: str, allowed: Iterable[str], language: str = "spec") -> str:
    """Return the allowed key that an unknown one most likely stands for, or the dotted key that is allowed elsewhere, or ''."""
    here = list(allowed)
    if len(key) > _LONGEST:
        return ""
    if language != "spec":
        return _close(key, here, cutoff=0.6)
    foreign = _foreign_keys().get(_spelling(key), "")
    if foreign.rpartition(".")[2] in here:
        return foreign.rpartition(".")[2]
    return _homes().get(key, "") or foreign or _close(key, here, cutoff=0.6)


def keys_meant(written: Iterable[str], allowed: Iterable[str]) -> set[str]:
    """Return the keys that unknown ones among those written stand for: who wrote them knows already that they are needed."""
    here = list(allowed)
    unknown = (key for key in written if key not in here)
    return {key_meant(key, here) for key in islice(unknown, _MOST)}


def key_hint(key: str, allowed: Iterable[str], language: str = "spec") -> str:
    """Say what to write instead of an unknown key."""
    here = list(allowed)
    if key == "<<":
        return "merge keys are not part of YAML 1.2: write the keys out, or use extends"
    if language == "spec" and key in _NO_FIGURE.split():
        return "it changes no figure: leave it out"
    meant = key_meant(key, here, language)
    return f"did you mean '{meant}'?" if meant else f"allowed here: {', '.join(here)}"


def value_hint(key: str, value: Scalar, text: str, allowed: Iterable[str]) -> str:
    """Say which of the allowed values of a key is meant, or name them all."""
    here = list(allowed)
    one_of = f"one of: {', '.join(here)}"
    if len(text) > _LONGEST:
        return one_of
    for ours, names in _VALUES.get(key, {}).items():
        meant = [name for name in ours.split() if name in here]
        if meant and _spelling(text) in map(_spelling, names.split()):
            return "did you mean " + " or ".join(f"'{name}'" for name in meant) + "?"
    close = _close(text, here, cutoff=0.6) if isinstance(value, str) else ""
    return f"did you mean '{close}'? {one_of.capitalize()}" if close else one_of


def truth_meant(text: str) -> str:
    """Return true or false for a word of YAML 1.1 that means it, or ''."""
    return _TRUTH.get(text.lower(), text.lower() if text.lower() in ("true", "false") else "")


def number_meant(text: str) -> str:
    """Return how YAML writes the number that a text stands for (``1_024``, ``50,257``, ``300B``, a quoted ``768``), or ''."""
    stripped = text.strip()
    if _GROUPED.fullmatch(stripped):
        return re.sub(r"\D", "", stripped)
    if suffixed := _SUFFIXED.fullmatch(stripped):
        return suffixed[1] + _SUFFIXES[suffixed[2].lower()]
    try:
        value = parse_value(stripped) if stripped else UNREADABLE
    except ValueError:
        return ""
    return stripped if isinstance(value, int) and not isinstance(value, bool) else ""


def _close(word: str, allowed: list[str], cutoff: float) -> str:
    spelled = {_spelling(name): name for name in allowed}
    close = get_close_matches(_spelling(word), spelled, n=1, cutoff=cutoff)
    return spelled[close[0]] if close else ""
