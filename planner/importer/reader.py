"""Reading one configuration by key: kinds are checked, and what was read is remembered."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
SpecModel = dict[str, Any]


class UnsupportedConfigError(ValueError):
    """A configuration that the spec language cannot say, or that cannot be read with certainty."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The ``model`` mapping of a spec, and what a reader of it should know."""

    model: SpecModel
    model_type: str  # as the configuration calls itself
    read: tuple[str, ...] = ()  # keys of the configuration that the model was made of
    not_understood: tuple[str, ...] = ()  # keys that nobody here has read, and that do not sound like a part of the model
    notes: tuple[str, ...] = ()  # what the spec says otherwise than the configuration, or not at all
    further: SpecModel = field(default_factory=dict)  # what the configuration says of training

    @property
    def training(self) -> SpecModel:
        """The ``training`` that was read, and what the model needs: no fused attention caps its scores."""
        eager = {"implementation": "pytorch-eager"} if self.model.get("attention", {}).get("logit_softcap") else {}
        return self.further | eager


# Keys that change neither what a model stores nor which operators it runs.
_NEUTRAL = frozenset({
    "_attn_implementation", "_commit_hash", "_from_model_config", "_name_or_path", "_sliding_window_pattern", "architectures",
    "attention_softmax_in_fp32", "attn_implementation", "auto_map", "chunk_size_feed_forward", "dtype", "ep_size", "id2label", "init_std",
    "initializer_range", "is_decoder", "label2id", "max_window_layers", "num_labels", "num_logits_to_keep",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states", "output_router_logits", "pretraining_tp",
    "problem_type", "quantization_config", "return_dict", "rope_interleave", "rope_local_base_freq", "rope_parameters", "rope_ratio",
    "rope_scaling", "rope_theta", "rope_type", "router_aux_loss_coef", "router_jitter_noise", "scale_attention_softmax_in_fp32",
    "sliding_window", "sliding_window_pattern", "sliding_window_size", "task_specific_params", "tokenizer_class", "torch_dtype",
    "transformers_version", "use_bfloat16", "use_cache", "use_flash_attn", "use_grouped_mm", "use_mrope", "use_sliding_window",
})  # fmt: skip
# How text is generated, which older files of transformers keep beside the model.
_GENERATION = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "cross_attention_hidden_size", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "remove_invalid_values",
    "repetition_penalty", "return_dict_in_generate", "suppress_tokens", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "top_k",
    "top_p", "torchscript", "typical_p",
})  # fmt: skip
_NEUTRAL_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_eps", "_epsilon", "_pdrop", "dropout", "_dropout_prob", "layerdrop")
_NEUTRAL_BEGINNINGS = ("summary_",)

# Keys of any family that would change what is stored or run; absent or false, they say nothing.
_REFUSED_ANYWHERE = ("add_cross_attention", "is_encoder_decoder", "pruned_heads")

# A key that nobody has read is only listed, unless its name has one of these words in it: then it may add a matrix to every layer.
_COUNTED_WORDS = (
    "adapter", "attn", "attention", "bias", "block", "channel", "conv", "depth", "dim", "embed", "expert", "ffn", "gate", "group", "head",
    "hidden", "index", "inner", "intermediate", "latent", "layer", "lora", "mamba", "mlp", "moe", "mtp", "nextn", "norm", "num_", "n_",
    "per_tok", "proj", "rank", "rope", "rotary", "shared", "share", "size", "ssm", "state", "tie", "top", "vocab", "width",
)  # fmt: skip

# ACT2FN of transformers. "gelu_new" and "gelu_fast" are the tanh approximation written out operator by operator.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
}

MAX_LAYERS = 10_000

# Names of kinds of layers that transformers has changed since.
_OLDER_LAYER_TYPES = {"attention": "full_attention", "linear": "linear_attention", "mamba": "linear_attention"}


def show(value: object) -> str:
    """Return a value as a message shows it: one short line, whatever the file holds."""
    return reprlib.repr(value)


@dataclass
class Reader:
    """Reads one configuration by key. A key that is null counts as absent."""

    config: Config
    model_type: str
    keys: dict[str, None] = field(default_factory=dict)  # that were read and have a value, in the order of reading
    known: set[str] = field(default_factory=lambda: {"model_type"})
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse what no decoder may have."""
        for key in _REFUSED_ANYWHERE:
            self.known.add(key)
            if self.config.get(key):
                raise self.refusal(f"`{key}: {show(self.config[key])}` cannot be said in a spec")

    def refusal(self, reason: str) -> UnsupportedConfigError:
        """Make the error; the caller raises it."""
        return UnsupportedConfigError(f"{self.model_type} config: {reason}")

    def value(self, *names: str) -> Any:  # noqa: ANN401  # JSON
        """Return the value under any of a key's names, None where all are absent; refuse two names that disagree."""
        self.known.update(names)
        found = {name: self.config[name] for name in names if self.config.get(name) is not None}
        if len({repr(value) for value in found.values()}) > 1:
            raise self.refusal(f"{' and '.join(f'`{name}: {show(value)}`' for name, value in found.items())} disagree")
        self.keys.update(dict.fromkeys(found))
        return next(iter(found.values()), None)

    def size(self, *names: str, default: int | None = None) -> int:
        """Return a positive integer; without a default it must be there."""
        value = self.value(*names)
        if value is None:
            if default is None:
                raise self.refusal(f"`{names[0]}` is missing")
            return default
        return self.positive(names[0], value)

    def layers(self, *names: str) -> int:
        """Return how many layers there are: a list is made of them."""
        number = self.size(*names)
        if number > MAX_LAYERS:
            raise self.refusal(f"`{names[0]}: {show(number)}` is more layers than any model has")
        return number

    def count(self, *names: str, default: int = 0) -> int:
        """Return an integer that may be 0."""
        value = self.value(*names)
        if value is None:
            return default
        return 0 if value == 0 and not isinstance(value, bool) else self.positive(names[0], value)

    def positive(self, name: str, value: Any) -> int:  # noqa: ANN401  # JSON
        """Return the value if it is a positive integer."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refusal(f"`{name}: {show(value)}` is not a positive integer")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """Return true or false."""
        value = self.value(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(f"`{names[0]}: {show(value)}` is neither true nor false")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 2**53:
            raise self.refusal(f"`{name}: {show(value)}` is not a positive number")
        return value

    def fraction(self, name: str, value: Any) -> float:  # noqa: ANN401  # JSON
        """Return a number above 0 and at most 1."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise self.refusal(f"`{name}: {show(value)}` is not a number above 0 and at most 1")
        return value

    def activation(self, *names: str, default: str) -> str:
        """Return the spec language's name of the activation."""
        value = self.value(*names)
        name = default if value is None else value
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise self.refusal(f"`{names[0]}: {show(name)}` cannot be said in a spec; {', '.join(ACTIVATIONS)} can")
        return ACTIVATIONS[name]

    def each(self, name: str, n_layers: int, kinds: Iterable[object], default: list[Any] | None = None) -> list[Any]:
        """Return a list with an entry of known kind for each layer, under the name of a kind that transformers now has."""
        value = self.value(name)
        if value is None:
            if default is None:
                raise self.refusal(f"`{name}` is missing")
            value = default
        if not isinstance(value, list) or len(value) < n_layers:
            raise self.refusal(f"`{name}` must be a list with an entry for each of {n_layers} layers")
        kinds = list(kinds)
        entries = [_OLDER_LAYER_TYPES.get(entry, entry) if isinstance(entry, str) else entry for entry in value[:n_layers]]
        for entry in entries:
            if not any(entry == kind and type(entry) is type(kind) for kind in kinds):
                raise self.refusal(f"`{name}` holds other entries than {', '.join(map(str, kinds))}: {show(entry)}")
        return entries

    def sizes(self, name: str, n_layers: int, default: int) -> list[int]:
        """Return a positive integer for each layer, given for each or once for all."""
        value = self.value(name)
        if not isinstance(value, list):
            return [self.size(name, default=default)] * n_layers
        if len(value) != n_layers:
            raise self.refusal(f"`{name}` must be a list with an entry for each of {n_layers} layers")
        return [self.positive(name, entry) for entry in value]

    def section(self, name: str) -> Reader:
        """Return a reader of a mapping inside; what it has not read is refused by its own ``refuse_unread``."""
        value = self.value(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.refusal(f"`{name}: {show(value)}` is not a mapping")
        return Reader(value or {}, f"{self.model_type} {name}")

    def require(self, name: str, *allowed: object) -> None:
        """Refuse any value but the allowed ones; absent is allowed."""
        value = self.value(name)
        if value is not None and not any(value == one and type(value) is type(one) for one in allowed):
            can = f"; {' or '.join(map(repr, allowed))} can" if allowed else ""
            raise self.refusal(f"`{name}: {show(value)}` cannot be said in a spec{can}")

    def ignore(self, *names: str) -> None:
        """Note keys that this family has and that change nothing here."""
        self.known.update(names)

    def note(self, text: str) -> None:
        """Note what the spec says otherwise than the configuration, or not at all."""
        self.notes.append(text)

    def refuse_unread(self) -> tuple[str, ...]:
        """Refuse a key that nothing above understood and that may be a part of the model; return the others."""
        listed = []
        for key, value in self.config.items():
            if not isinstance(key, str) or key in self.known or key in _NEUTRAL or key in _GENERATION:
                continue
            if not value or key.endswith(_NEUTRAL_ENDINGS) or key.startswith(_NEUTRAL_BEGINNINGS):
                continue
            if any(word in key.lower() for word in _COUNTED_WORDS):
                raise self.refusal(f"`{show(key)[1:-1]}: {show(value)}` is not known here and may change what the model stores")
            listed.append(show(key)[1:-1])
        return tuple(listed)
