"""A Hugging Face ``config.json`` of a dense decoder, said in the spec language.

What a key means and what its absence means differs from family to family, so each ``model_type`` has a function of its own here, read off
the class that the type names (transformers 5.24, or the code published with the weights where transformers has no class).

Nothing is guessed. A type without a function, a size that is missing, a value that the spec language cannot say and a key that nobody here
has read are all refused by name: a key that is not understood may be the one that adds a matrix to every layer.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
SpecModel = dict[str, Any]


class UnsupportedConfigError(ValueError):
    """A ``config.json`` that the spec language cannot say, or that cannot be read with certainty."""


def from_huggingface(config: Config) -> SpecModel:
    """Return the ``model`` mapping of a spec for a parsed ``config.json``.

    What no spec can hold and no count depends on (dropout, initialisation, token ids, windows, scalings) is left out.
    Raises UnsupportedConfigError, which names the ``model_type``, the key and the reason.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedConfigError("config.json has no `model_type`, so the meaning of its other keys is not known")
    if model_type not in _FAMILIES:
        raise UnsupportedConfigError(f"model_type {_show(model_type)} is not supported; supported are {', '.join(SUPPORTED)}")
    reader = _Reader(config, model_type)
    model = _FAMILIES[model_type](reader)
    reader.refuse_unread()
    return model


# Keys that change neither what a model stores nor which operators it runs. A window masks scores that are computed all the same.
_NEUTRAL = frozenset({
    "_attn_implementation", "_commit_hash", "_from_model_config", "_name_or_path", "_sliding_window_pattern", "architectures",
    "attention_softmax_in_fp32", "auto_map", "chunk_size_feed_forward", "dtype", "id2label", "init_std", "initializer_range", "is_decoder",
    "label2id", "max_window_layers", "num_labels", "original_max_position_embeddings", "output_attentions", "output_hidden_states",
    "pretraining_tp", "problem_type", "quantization_config", "return_dict", "rope_local_base_freq", "rope_parameters", "rope_scaling",
    "rope_theta", "scale_attention_softmax_in_fp32", "sliding_window", "sliding_window_pattern", "sliding_window_size",
    "task_specific_params", "tokenizer_class", "torch_dtype", "transformers_version", "use_bfloat16", "use_cache", "use_flash_attn",
    "use_sliding_window",
})  # fmt: skip
_NEUTRAL_ENDINGS = ("_token_id", "_token_ids", "_eps", "_epsilon", "_pdrop", "dropout", "_dropout_prob", "layerdrop")
_NEUTRAL_BEGINNINGS = ("summary_",)

# Keys of any family that would change what is stored or run; absent or false, they say nothing.
_REFUSED_ANYWHERE = ("add_cross_attention", "is_encoder_decoder", "pruned_heads", "use_bidirectional_attention")

# What a layer may be called in ``layer_types``: the same weights, another mask.
_LAYER_TYPES = ("full_attention", "sliding_attention")

# ACT2FN of transformers. "gelu_new", "gelu_fast" and "gelu_pytorch_tanh" are the same function, computed by different operators.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
}


def _show(value: object) -> str:
    """Return a value as a message shows it: one short line, whatever the file holds."""
    return reprlib.repr(value)


class _Reader:
    """Reads one config by key, checks kinds, and remembers what was read. A key that is null counts as absent."""

    def __init__(self, config: Config, model_type: str) -> None:
        self.config = config
        self.model_type = model_type
        self._read = {"model_type"}
        for key in _REFUSED_ANYWHERE:
            self._read.add(key)
            if config.get(key):
                raise self.refusal(f"`{key}: {_show(config[key])}` cannot be said in a spec")
        layer_types = self.value("layer_types") or []
        if not isinstance(layer_types, list) or any(layer_type not in _LAYER_TYPES for layer_type in layer_types):
            raise self.refusal(f"`layer_types` holds other layers than {' and '.join(_LAYER_TYPES)}")

    def refusal(self, reason: str) -> UnsupportedConfigError:
        """Make the error; the caller raises it."""
        return UnsupportedConfigError(f"{self.model_type} config: {reason}")

    def value(self, *names: str) -> Any:  # noqa: ANN401  # JSON
        """Return the value under any of a key's names, None where all are absent; refuse two names that disagree."""
        self._read.update(names)
        found = {name: self.config[name] for name in names if self.config.get(name) is not None}
        if len({repr(value) for value in found.values()}) > 1:
            raise self.refusal(f"{' and '.join(f'`{name}: {_show(value)}`' for name, value in found.items())} disagree")
        return next(iter(found.values()), None)

    def size(self, *names: str, default: int | None = None) -> int:
        """Return a positive integer; without a default it must be there."""
        value = self.value(*names)
        if value is None:
            if default is None:
                raise self.refusal(f"`{names[0]}` is missing")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refusal(f"`{names[0]}: {_show(value)}` is not a positive integer")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """Return true or false."""
        value = self.value(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(f"`{names[0]}: {_show(value)}` is neither true nor false")
        return value

    def fraction(self, name: str, value: Any) -> float:  # noqa: ANN401  # JSON
        """Return a number above 0 and at most 1."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise self.refusal(f"`{name}: {_show(value)}` is not a number above 0 and at most 1")
        return value

    def activation(self, *names: str, default: str) -> str:
        """Return the spec language's name of the activation."""
        value = self.value(*names)
        name = default if value is None else value
        if not isinstance(name, str) or name not in _ACTIVATIONS:
            raise self.refusal(f"`{names[0]}: {_show(name)}` cannot be said in a spec; {', '.join(_ACTIVATIONS)} can")
        return _ACTIVATIONS[name]

    def require(self, name: str, *allowed: object) -> None:
        """Refuse any value but the allowed ones; absent is allowed."""
        value = self.value(name)
        if value is not None and value not in allowed:
            raise self.refusal(f"`{name}: {_show(value)}` cannot be said in a spec; {' or '.join(map(repr, allowed))} can")

    def ignore(self, *names: str) -> None:
        """Note keys that this family has and that change nothing here."""
        self._read.update(names)

    def refuse_unread(self) -> None:
        """Refuse what is left: a key with a value that nothing above understood."""
        for key, value in self.config.items():
            if key in self._read or key in _NEUTRAL or key.endswith(_NEUTRAL_ENDINGS) or key.startswith(_NEUTRAL_BEGINNINGS):
                continue
            if value is not None:
                raise self.refusal(f"`{key}: {_show(value)}` is not known here and may change what the model stores")


# --- what families share -------------------------------------------------------------------------------------------------------------


def _sizes(c: _Reader, *, context: int) -> SpecModel:
    """Read the sizes under the names of most families; ``context`` is the class's max_position_embeddings."""
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=context),
        "d_model": c.size("hidden_size"),
        "n_layers": c.size("num_hidden_layers"),
        "n_heads": c.size("num_attention_heads"),
    }


def _gpt_sizes(c: _Reader, *, context: int) -> SpecModel:
    """Read the sizes under OpenAI's names; the feed-forward is 4 times as wide where ``n_inner`` is absent."""
    sizes: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("n_positions", "max_position_embeddings", default=context),
        "d_model": c.size("n_embd", "hidden_size"),
        "n_layers": c.size("n_layer", "num_hidden_layers"),
        "n_heads": c.size("n_head", "num_attention_heads"),
    }
    c.ignore("n_ctx", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn")
    return {**sizes, "d_ff": c.size("n_inner", default=4 * sizes["d_model"])}


def _head_dim(c: _Reader, model: SpecModel, *, default: int | None = None) -> int:
    """Return head_dim: as given; the class's own number where the key is absent; d_model / n_heads where it is null or has no number."""
    if default is not None and "head_dim" not in c.config:
        return default
    quotient, rest = divmod(model["d_model"], model["n_heads"])
    head_dim = c.size("head_dim", default=quotient)
    if c.value("head_dim") is None and rest:
        raise c.refusal(f"{model['n_heads']} heads do not divide a width of {model['d_model']}, and `head_dim` is missing")
    return head_dim


def _rope(c: _Reader, head_dim: int, *, fraction: float = 1.0, name: str = "partial_rotary_factor") -> str | SpecModel:
    """Return rotary positions; the fraction of head_dim that is rotated stands under ``name`` or inside ``rope_parameters``."""
    outside, parameters = c.value(name), c.value("rope_parameters")
    inside = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    given = inside if outside is None else outside
    rotary_dim = int(head_dim * (fraction if given is None else c.fraction(name, given)))
    return "rope" if rotary_dim == head_dim else {"type": "rope", "rotary_dim": rotary_dim}


def _head(c: _Reader, *, tied: bool, bias: bool = False) -> SpecModel:
    """Return the head; ``tied`` is what the class takes where ``tie_word_embeddings`` is absent."""
    head: SpecModel = {"tied": c.flag("tie_word_embeddings", default=tied)}
    return {**head, "bias": True} if bias else head


def _norm(kind: str, **settings: str | bool) -> SpecModel:
    return {"type": kind, **settings}


def _llama_like(
    c: _Reader,
    *,
    context: int,
    tied: bool = False,
    head_dim: int | None = None,
    kv_heads_required: bool = False,
    attention_bias: bool | Mapping[str, bool] = False,
    qk_norm: str = "none",
    qkv: str = "separate",
    gated: bool = True,
    activation: str | None = None,
    feed_forward_bias: bool = False,
    norm: SpecModel | None = None,
    block: str = "sequential",
    rotary_fraction: float = 1.0,
    head_bias: bool = False,
) -> SpecModel:
    """Return a decoder with Llama's key names. ``kv_heads_required``: the class's own number of key heads fits one model only."""
    model = _sizes(c, context=context)
    known = "num_key_value_heads" in c.config or not kv_heads_required
    n_kv_heads = c.size("num_key_value_heads", default=model["n_heads"] if known else None)
    width = _head_dim(c, model, default=head_dim)
    return {
        **model,
        "n_kv_heads": n_kv_heads,
        "head_dim": width,
        "d_ff": c.size("intermediate_size"),
        "attention": {"bias": attention_bias, "qk_norm": qk_norm, "qkv": qkv},
        "feed_forward": {
            "type": "gated" if gated else "plain",
            "activation": activation or c.activation("hidden_act", default="silu"),
            "bias": feed_forward_bias,
        },
        "norm": norm or _norm("rmsnorm"),
        "block": block,
        "positions": _rope(c, width, fraction=rotary_fraction),
        "head": _head(c, tied=tied, bias=head_bias),
    }


def _qkv_bias(*, qkv: bool, o: bool = False) -> Mapping[str, bool]:
    return {"q": qkv, "k": qkv, "v": qkv, "o": o}


def _bias_all(c: _Reader, key: str = "attention_bias", *, default: bool = False) -> bool:
    """Return one switch for the biases of q, k, v and o."""
    return c.flag(key, default=default)


def _runs(settings: list[SpecModel]) -> list[SpecModel]:
    """Return the shortest ``layers`` list: one repeated group of layers and what is left over."""
    period = next(p for p in range(1, len(settings) + 1) if all(a == b for a, b in zip(settings, settings[p:], strict=False)))
    repeats, rest = divmod(len(settings), period)
    runs: list[SpecModel] = [{"count": repeats, "layers": settings[:period]}]
    return runs + [{"count": 1, **layer} for layer in settings[:rest]]


# --- one function per model_type -----------------------------------------------------------------------------------------------------


def _gpt2(c: _Reader) -> SpecModel:
    c.ignore("n_special", "predict_special_tokens")
    return {
        **_gpt_sizes(c, context=1024),
        "attention": {"bias": True, "qkv": "fused"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="gelu_new"), "bias": True},
        "norm": _norm("layernorm"),
        "positions": "learned",
        "head": _head(c, tied=True),
    }


def _gpt_bigcode(c: _Reader) -> SpecModel:
    multi_query = c.flag("multi_query", default=True)
    c.require("num_key_value_heads", 1 if multi_query else c.size("n_head"))
    c.ignore(
        "attention_softmax_in_fp32", "max_sequence_length", "max_batch_size", "inference_runner", "pad_key_length", "pre_allocate_kv_cache"
    )
    c.ignore("validate_runner_input")
    sizes = _gpt_sizes(c, context=1024)
    return {
        **sizes,
        "n_kv_heads": 1 if multi_query else sizes["n_heads"],
        "attention": {"bias": True, "qkv": "fused" if multi_query else "fused_per_head"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="gelu_pytorch_tanh"), "bias": True},
        "norm": _norm("layernorm"),
        "positions": "learned",
        "head": _head(c, tied=True),
    }


def _gpt_neo(c: _Reader) -> SpecModel:
    c.ignore("attention_types", "attention_layers", "window_size")
    sizes: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=2048),
        "d_model": c.size("hidden_size"),
        "n_layers": c.size("num_layers"),
        "n_heads": c.size("num_heads"),
    }
    return {
        **sizes,
        "d_ff": c.size("intermediate_size", default=4 * sizes["d_model"]),
        "attention": {"bias": _qkv_bias(qkv=False, o=True), "qkv": "separate"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="gelu_new"), "bias": True},
        "norm": _norm("layernorm"),
        "positions": "learned",
        "head": _head(c, tied=True),
    }


def _gptj_like(c: _Reader, *, qkv: str) -> SpecModel:
    """Return attention without biases beside a feed-forward with biases, under one norm, and a head with a bias."""
    rotary_dim = c.size("rotary_dim", default=64)
    all_rotated = "rotary_dim" in c.config and c.value("rotary_dim") is None
    positions: str | SpecModel = "rope" if all_rotated else {"type": "rope", "rotary_dim": rotary_dim}
    return {
        **_gpt_sizes(c, context=2048),
        "attention": {"bias": False, "qkv": qkv},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="gelu_new"), "bias": True},
        "norm": _norm("layernorm"),
        "block": "parallel_one_norm",
        "positions": positions,
        "head": _head(c, tied=False, bias=True),
    }


def _gptj(c: _Reader) -> SpecModel:
    c.ignore("rotary", "scale_attn_weights")
    return _gptj_like(c, qkv="separate")


def _codegen(c: _Reader) -> SpecModel:
    return _gptj_like(c, qkv="fused")


def _gpt_neox(c: _Reader) -> SpecModel:
    c.ignore("rotary_emb_base")
    sizes = _sizes(c, context=2048)
    return {
        **sizes,
        "d_ff": c.size("intermediate_size"),
        "attention": {"bias": _bias_all(c, default=True), "qkv": "fused_per_head"},
        "feed_forward": {"type": "plain", "activation": c.activation("hidden_act", default="gelu"), "bias": True},
        "norm": _norm("layernorm"),
        "block": "parallel_two_norms" if c.flag("use_parallel_residual", default=True) else "sequential",
        "positions": _rope(c, _head_dim(c, sizes), fraction=0.25, name="rotary_pct"),
        "head": _head(c, tied=False),
    }


def _opt(c: _Reader) -> SpecModel:
    sizes = _sizes(c, context=2048)
    if not c.flag("do_layer_norm_before", default=True):
        raise c.refusal("`do_layer_norm_before: false` normalises the sum with the residual, which cannot be said in a spec")
    c.require("word_embed_proj_dim", sizes["d_model"])
    bias = c.flag("enable_bias", default=True)
    affine = c.flag("layer_norm_elementwise_affine", default=True)
    c.ignore("prefix")
    return {
        **sizes,
        "d_ff": c.size("ffn_dim"),
        "attention": {"bias": bias, "qkv": "separate"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="relu"), "bias": bias},
        "norm": _norm("layernorm") if affine else _norm("layernorm", weight=False),
        "positions": {"type": "learned", "offset": 2},
        "final_norm": not c.flag("_remove_final_layer_norm", default=False),
        "head": _head(c, tied=True),
    }


def _bloom(c: _Reader) -> SpecModel:
    c.require("apply_residual_connection_post_layernorm", False)
    c.ignore("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add")
    c.ignore("skip_bias_add_qkv", "slow_but_exact")
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("seq_length", default=2048),  # the class has none: ALiBi goes on for ever; all were trained at 2,048
        "d_model": c.size("hidden_size", "n_embed"),
        "n_layers": c.size("n_layer", "num_hidden_layers"),
        "n_heads": c.size("n_head", "num_attention_heads"),
        "attention": {"bias": True, "qkv": "fused_per_head"},
        "feed_forward": {"type": "plain", "activation": "gelu_tanh", "bias": True},
        "norm": _norm("layernorm"),
        "positions": "alibi",
        "embedding_norm": True,
        "head": _head(c, tied=True),
    }


def _falcon(c: _Reader) -> SpecModel:
    c.require("apply_residual_connection_post_layernorm", False)
    sizes = _sizes(c, context=2048)
    new = c.flag("new_decoder_architecture", default=False)
    multi_query = c.flag("multi_query", default=True)
    parallel = c.flag("parallel_attn", default=True)
    norms = c.size("num_ln_in_parallel_attn", default=2 if new else 1)
    n_kv_heads = c.size("num_kv_heads", default=sizes["n_heads"])
    if not new:
        n_kv_heads = 1 if multi_query else sizes["n_heads"]  # as the class does, whatever num_kv_heads says
    bias = c.flag("bias", default=False)
    return {
        **sizes,
        "n_kv_heads": n_kv_heads,
        "d_ff": c.size("ffn_hidden_size", default=4 * sizes["d_model"]),
        "attention": {"bias": bias, "qkv": "fused" if new or multi_query else "fused_per_head"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation", default="gelu"), "bias": bias},
        "norm": _norm("layernorm"),
        "block": ("parallel_two_norms" if norms == 2 else "parallel_one_norm") if parallel else "sequential",  # noqa: PLR2004
        "positions": "alibi" if c.flag("alibi", default=False) else "rope",
        "head": _head(c, tied=True),
    }


def _mpt(c: _Reader) -> SpecModel:
    attention = c.value("attn_config")
    attention = _Reader(attention if isinstance(attention, Mapping) else {}, "mpt attn_config")
    attention.require("attn_type", "multihead_attention")
    attention.require("qk_ln", False)
    attention.require("prefix_lm", False)
    attention.require("alibi", True)
    attention.ignore("attn_impl", "attn_uses_sequence_id", "alibi_bias_max", "clip_qkv", "softmax_scale", "model_type")
    attention.refuse_unread()
    c.require("no_bias", True)
    c.require("norm_type", "low_precision_layernorm")
    c.ignore("learned_pos_emb", "init_device", "init_config", "logit_scale", "embedding_fraction", "verbose", "tokenizer_name")
    d_model = c.size("d_model", "hidden_size")
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_seq_len", default=2048),
        "d_model": d_model,
        "n_layers": c.size("n_layers", "num_hidden_layers"),
        "n_heads": c.size("n_heads", "num_attention_heads"),
        "d_ff": c.size("expansion_ratio", default=4) * d_model,
        "attention": {"bias": False, "qkv": "fused"},
        "feed_forward": {"type": "plain", "activation": "gelu", "bias": False},
        "norm": _norm("layernorm", bias=False),
        "positions": "alibi",
        "head": _head(c, tied=True),
    }


def _xglm(c: _Reader) -> SpecModel:
    c.ignore("scale_embedding")
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=2048),
        "d_model": c.size("d_model", "hidden_size"),
        "n_layers": c.size("num_layers", "num_hidden_layers"),
        "n_heads": c.size("attention_heads", "num_attention_heads"),
        "d_ff": c.size("ffn_dim"),
        "attention": {"bias": True, "qkv": "separate"},
        "feed_forward": {"type": "plain", "activation": c.activation("activation_function", default="gelu"), "bias": True},
        "norm": _norm("layernorm"),
        "positions": "sinusoidal",
        "head": _head(c, tied=True),
    }


def _ctrl(c: _Reader) -> SpecModel:
    sizes = _gpt_sizes(c, context=256)
    c.ignore("from_tf", "torchscript")
    return {
        **sizes,
        "d_ff": c.size("dff"),
        "attention": {"bias": True, "qkv": "separate"},
        "feed_forward": {"type": "plain", "activation": "relu", "bias": True},
        "norm": _norm("layernorm"),
        "positions": "sinusoidal",
        "head": _head(c, tied=True, bias=True),
    }


def _llama(c: _Reader) -> SpecModel:
    return _llama_like(c, context=2048, attention_bias=_bias_all(c), feed_forward_bias=c.flag("mlp_bias", default=False))


def _mistral(c: _Reader) -> SpecModel:
    return _llama_like(c, context=131072, kv_heads_required=True)


def _ministral3(c: _Reader) -> SpecModel:
    return _llama_like(c, context=262144, head_dim=128, kv_heads_required=True)


def _qwen(c: _Reader) -> SpecModel:
    """Read the first Qwen by the code published with it: ``intermediate_size`` counts both halves of the gated width."""
    no_bias = c.flag("no_bias", default=True)
    twice_d_ff = c.size("intermediate_size")
    sizes = _sizes(c, context=8192)
    head_dim = c.size("kv_channels", default=128)
    c.ignore("seq_length", "rotary_emb_base", "use_dynamic_ntk", "use_logn_attn", "bf16", "fp16", "fp32", "onnx_safe")
    c.ignore("softmax_in_fp32", "scale_attn_weights", "use_cache_quantization", "use_cache_kernel", "tokenizer_type")
    return {
        **sizes,
        "head_dim": head_dim,
        "d_ff": twice_d_ff // 2,
        "attention": {"bias": _qkv_bias(qkv=True, o=not no_bias), "qkv": "fused"},
        "feed_forward": {"type": "gated", "activation": "silu", "bias": not no_bias},
        "norm": _norm("rmsnorm"),
        "positions": _rope(c, head_dim, name="rotary_pct"),
        "head": _head(c, tied=False),
    }


def _qwen2(c: _Reader) -> SpecModel:
    return _llama_like(c, context=32768, kv_heads_required=True, attention_bias=_qkv_bias(qkv=True))


def _qwen3(c: _Reader) -> SpecModel:
    return _llama_like(c, context=32768, head_dim=128, kv_heads_required=True, attention_bias=_bias_all(c), qk_norm="head_dim")


def _gemma_activation(c: _Reader) -> str:
    """Return gelu_tanh for the "gelu" of the first releases too, as the class does."""
    older = c.activation("hidden_act", default="gelu_pytorch_tanh")
    return c.activation("hidden_activation", default="gelu_pytorch_tanh" if older in ("gelu", "gelu_tanh") else c.config["hidden_act"])


def _gemma_like(c: _Reader, *, context: int = 8192, placement: str = "before", qk_norm: str = "none") -> SpecModel:
    c.ignore("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "cache_implementation")
    return _llama_like(
        c,
        context=context,
        tied=True,
        head_dim=256,
        kv_heads_required=True,
        attention_bias=_bias_all(c),
        qk_norm=qk_norm,
        activation=_gemma_activation(c),
        norm=_norm("rmsnorm", placement=placement),
    )


def _gemma2(c: _Reader) -> SpecModel:
    return _gemma_like(c, placement="before_and_after")


def _gemma3(c: _Reader) -> SpecModel:
    return _gemma_like(c, context=131072, placement="before_and_after", qk_norm="head_dim")


def _phi(c: _Reader) -> SpecModel:
    c.require("qk_layernorm", False)
    return _llama_like(
        c,
        context=2048,
        attention_bias=True,
        gated=False,
        activation=c.activation("hidden_act", default="gelu_new"),
        feed_forward_bias=True,
        norm=_norm("layernorm"),
        block="parallel_one_norm",
        rotary_fraction=0.5,
        head_bias=True,
    )


def _phi3(c: _Reader) -> SpecModel:
    c.require("attention_bias", False)
    c.require("mlp_bias", False)
    c.require("lm_head_bias", False)
    c.ignore("full_attn_mod", "interpolate_factor")
    return _llama_like(c, context=4096, qkv="fused")


def _olmo(c: _Reader) -> SpecModel:
    c.ignore("clip_qkv")
    return _llama_like(c, context=2048, attention_bias=_bias_all(c), norm=_norm("layernorm", weight=False))


def _olmo2(c: _Reader) -> SpecModel:
    norm = _norm("rmsnorm", placement="after")
    return _llama_like(c, context=2048, attention_bias=_bias_all(c), qk_norm="full_width", norm=norm)


def _stablelm(c: _Reader) -> SpecModel:
    c.require("qk_layernorm", False)
    c.ignore("rotary_scaling_factor")
    parallel = c.flag("use_parallel_residual", default=False)
    return _llama_like(
        c,
        context=4096,
        kv_heads_required=True,
        attention_bias=_qkv_bias(qkv=c.flag("use_qkv_bias", default=False)),
        norm=_norm("layernorm"),
        block="parallel_one_norm" if parallel else "sequential",
        rotary_fraction=0.25,
    )


def _starcoder2(c: _Reader) -> SpecModel:
    c.require("mlp_type", "default")
    c.require("norm_type", "layer_norm")
    c.ignore("activation_function", "attention_softmax_in_fp32", "scale_attn_weights", "use_position_embedding_type")
    bias = c.flag("use_bias", default=True)
    return _llama_like(
        c,
        context=4096,
        tied=True,
        kv_heads_required=True,
        attention_bias=bias,
        gated=False,
        activation=c.activation("hidden_act", default="gelu_pytorch_tanh"),
        feed_forward_bias=bias,
        norm=_norm("layernorm"),
    )


def _cohere(c: _Reader) -> SpecModel:
    if c.flag("use_qk_norm", default=False):
        raise c.refusal("`use_qk_norm: true` normalises each head with weights of its own, which cannot be said in a spec")
    c.ignore("logit_scale", "model_max_length")
    norm = _norm("layernorm", bias=False)
    return _llama_like(c, context=8192, tied=True, attention_bias=_bias_all(c), norm=norm, block="parallel_one_norm")


def _granite(c: _Reader) -> SpecModel:
    c.ignore("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier")
    return _llama(c)


def _hyperclovax(c: _Reader) -> SpecModel:
    c.ignore("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier")
    placement = "before_and_after" if c.flag("use_post_norm", default=True) else "before"
    norm = _norm("rmsnorm", placement=placement)
    return _llama_like(c, context=2048, attention_bias=_bias_all(c), feed_forward_bias=c.flag("mlp_bias", default=False), norm=norm)


def _nemotron(c: _Reader) -> SpecModel:
    model = _llama_like(
        c,
        context=4096,
        attention_bias=_bias_all(c),
        gated=False,
        activation=c.activation("hidden_act", default="relu2"),
        feed_forward_bias=c.flag("mlp_bias", default=False),
        norm=_norm("layernorm"),
        rotary_fraction=0.5,
    )
    c.require("kv_channels", model["head_dim"])
    return model


def _jais2(c: _Reader) -> SpecModel:
    return _llama_like(
        c,
        context=8192,
        attention_bias=_bias_all(c, default=True),
        gated=False,
        activation=c.activation("hidden_act", default="relu2"),
        feed_forward_bias=c.flag("mlp_bias", default=True),
        norm=_norm("layernorm"),
    )


def _smollm3(c: _Reader) -> SpecModel:
    """Leave every fourth layer without rotary positions, or those that ``no_rope_layers`` marks with a 0."""
    interval = c.size("no_rope_layer_interval", default=4)
    mlp_bias = c.flag("mlp_bias", default=False)
    model = _llama_like(c, context=32768, tied=True, kv_heads_required=True, attention_bias=_bias_all(c), feed_forward_bias=mlp_bias)
    rotated = c.value("no_rope_layers")
    if rotated is None:
        rotated = [int((layer + 1) % interval != 0) for layer in range(model["n_layers"])]
    if not isinstance(rotated, list) or len(rotated) < model["n_layers"] or any(flag not in (0, 1) for flag in rotated):
        raise c.refusal("`no_rope_layers` must hold a 0 or a 1 for each layer")
    layers: list[SpecModel] = [{} if flag else {"positions": "none"} for flag in rotated[: model["n_layers"]]]
    return {**model, "layers": _runs(layers)} if any(layers) else model


def _cwm(c: _Reader) -> SpecModel:
    mlp_bias = c.flag("mlp_bias", default=False)
    return _llama_like(c, context=131072, head_dim=128, kv_heads_required=True, feed_forward_bias=mlp_bias)


def _hunyuan(c: _Reader) -> SpecModel:
    c.require("use_qk_norm", True)
    c.require("use_rotary_pos_emb", True)
    c.require("norm_type", "rms")
    c.require("mlp_bias", False)
    c.require("use_cla", False)
    c.require("add_classification_head", False)
    c.ignore("cla_share_factor", "class_num", "dense_list", "org_vocab_size", "pool_type")
    c.ignore("im_end_id", "im_newline_id", "im_start_id", "mask_init_id", "pad_id", "text_end_id", "text_start_id")
    model = _llama_like(c, context=2048, attention_bias=_bias_all(c), qk_norm="head_dim")
    c.require("attention_head_dim", model["head_dim"])
    return model


def _exaone(c: _Reader) -> SpecModel:
    mlp_bias = c.flag("mlp_bias", default=False)
    return _llama_like(c, context=4096, kv_heads_required=True, attention_bias=_bias_all(c), feed_forward_bias=mlp_bias)


def _iquestcoder(c: _Reader) -> SpecModel:
    c.require("clip_qkv")
    mlp_bias = c.flag("mlp_bias", default=False)
    bias = _bias_all(c)
    return _llama_like(c, context=131072, head_dim=128, kv_heads_required=True, attention_bias=bias, feed_forward_bias=mlp_bias)


def _internlm(c: _Reader) -> SpecModel:
    """Read by the code published with it: one switch for q, k, v and o, on where it is absent; none in the feed-forward."""
    return _llama_like(c, context=2048, attention_bias=_bias_all(c, "bias", default=True), qkv="separate")


def _internlm2(c: _Reader) -> SpecModel:
    """Read by the code published with it: as InternLM, with one matrix for q, k and v."""
    c.ignore("attn_implementation")
    return _llama_like(c, context=2048, attention_bias=_bias_all(c, "bias", default=True), qkv="fused")


def _internlm3(c: _Reader) -> SpecModel:
    qkv = c.flag("qkv_bias", "attention_bias", default=False)
    bias = c.flag("bias", "mlp_bias", default=False)
    both = _qkv_bias(qkv=qkv, o=bias)
    return _llama_like(c, context=32768, head_dim=128, kv_heads_required=True, attention_bias=both, feed_forward_bias=bias)


def _baichuan(c: _Reader) -> SpecModel:
    """Read by the code published with it: rotary with ``max_position_embeddings`` (7B), ALiBi with ``model_max_length`` alone (13B)."""
    rotary, alibi = c.value("max_position_embeddings"), c.value("model_max_length")
    if rotary is None and alibi is None:
        raise c.refusal("`max_position_embeddings` (rotary positions, as in 7B) or `model_max_length` (ALiBi, as in 13B) is missing")
    model = _llama_like(c, context=c.size("model_max_length", default=4096), qkv="fused")
    return model if rotary is not None else {**model, "positions": "alibi"}


def _minicpm(c: _Reader) -> SpecModel:
    c.require("num_experts", 0)
    c.ignore("dim_model_base", "scale_depth", "scale_emb")
    return _llama_like(c, context=2048, tied=True, attention_bias=_bias_all(c))


def _orion(c: _Reader) -> SpecModel:
    c.ignore("max_sequence_length")
    return _llama_like(c, context=4096, norm=_norm("layernorm"))


_FAMILIES: Mapping[str, Callable[[_Reader], SpecModel]] = {
    "baichuan": _baichuan,
    "bloom": _bloom,
    "codegen": _codegen,
    "cohere": _cohere,
    "ctrl": _ctrl,
    "cwm": _cwm,
    "exaone": _exaone,
    "falcon": _falcon,
    "gemma": _gemma_like,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "granite": _granite,
    "hunyuan_v1_dense": _hunyuan,
    "hyperclovax": _hyperclovax,
    "internlm": _internlm,
    "internlm2": _internlm2,
    "internlm3": _internlm3,
    "iquestcoder": _iquestcoder,
    "jais2": _jais2,
    "llama": _llama,
    "minicpm": _minicpm,
    "ministral3": _ministral3,
    "mistral": _mistral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "opt": _opt,
    "orion": _orion,
    "phi": _phi,
    "phi3": _phi3,
    "qwen": _qwen,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "vaultgemma": _gemma_like,
    "xglm": _xglm,
}

SUPPORTED = tuple(_FAMILIES)
"""The values of ``model_type`` that can be read, sorted."""
