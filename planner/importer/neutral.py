"""Keys of every type that change neither the stored tensors nor the operators of a model, by reason."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.stored import KEYS

NAMES = "names the model, its files or its tasks"
STORES = "how the weights are stored and trained, which is read for `training` or listed as not counted"
RUNS = "decides how the code runs, not what it computes"
STARTS = "initial values"
SCALES = "a factor, which costs no memory"
ROTATES = "angles of rotary positions"
ROUTES = "decides which experts a token is sent to, not how many"
LOSES = "terms of the loss"
GENERATES = "how text is generated"
DERIVED = "follows from other keys"
UNREAD = "the type's class does not read it"


def own_kernels(program: str) -> str:
    """Return the note of an import from a program whose kernels are not modeled."""
    return f"{program}'s own kernels are not modeled; activations are those of PyTorch's modules"


NEUTRAL: Mapping[str, str] = {
    key: reason
    for reason, keys in {
        NAMES: (
            "_commit_hash _from_model_config _name_or_path architectures auto_map finetuning_task id2label is_decoder label2id "
            "num_labels problem_type task_specific_params tokenizer_class transformers_version"
        ),
        RUNS: (
            "_attn_implementation _attn_implementation_autoset "
            "attention_softmax_in_fp32 attn_implementation chunk_size_feed_forward ep_size js_config num_image_tokens num_logits_to_keep "
            "output_attentions output_hidden_states output_router_logits output_scores pretraining_tp return_dict "
            "return_dict_in_generate scale_attention_softmax_in_fp32 torchscript use_bfloat16 use_cache use_flash_attn use_grouped_mm"
        ),
        STORES: " ".join(KEYS),
        STARTS: "init_std initializer_range",
        ROTATES: (
            "original_max_position_embeddings rope_interleave rope_local_base_freq rope_parameters rope_ratio rope_scaling rope_theta "
            "rope_type use_mrope"
        ),
        LOSES: "router_aux_loss_coef router_jitter_noise tf_legacy_loss",
        UNREAD: (
            "_sliding_window_pattern cross_attention_hidden_size max_window_layers sliding_window sliding_window_pattern "
            "sliding_window_size tie_encoder_decoder use_sliding_window"
        ),
        GENERATES: (
            "bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
            "exponential_decay_length_penalty length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams "
            "num_return_sequences remove_invalid_values repetition_penalty suppress_tokens temperature top_k top_p typical_p"
        ),
    }.items()
    for key in keys.split()
}
NEUTRAL_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_eps", "_epsilon", "_pdrop", "dropout", "_dropout_prob", "layerdrop")
NEUTRAL_BEGINNINGS = ("summary_",)

# Keys of any type that change the model; only their absence or false is supported.
REFUSED_ANYWHERE = ("add_cross_attention", "is_encoder_decoder", "pruned_heads")

# An unknown key is only listed, unless its name contains one of these words: then it may add a matrix to every layer.
COUNTED_WORDS = (
    "adapter", "attn", "attention", "bias", "block", "channel", "conv", "depth", "dim", "embed", "expert", "ffn", "gate", "group", "head",
    "hidden", "index", "inner", "intermediate", "latent", "layer", "lora", "mamba", "mlp", "moe", "mtp", "nextn", "norm", "num_", "n_",
    "per_tok", "proj", "rank", "rope", "rotary", "shared", "share", "size", "ssm", "state", "tie", "top", "vocab", "width",
)  # fmt: skip
