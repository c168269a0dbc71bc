"""OLMo-core's configurations: the config.json of its checkpoints, or the same as YAML.

Read from allenai/OLMo-core of June 2026: nn/transformer/config.py and block.py, nn/attention, nn/feed_forward.py, nn/layer_norm.py,
nn/lm_head.py, nn/moe, train/train_module/transformer/config.py. Earlier versions name a block's ``sequence_mixer`` ``attention``.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import eq
from typing import Any

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Config, Imported, SpecModel
from planner.importer.training import *

_ATTENTION, _NORM, _FF, _MOE = "block.attention", "block.layer_norm", "block.feed_forward", "block.feed_forward_moe"
_RMS = ("rms", "qwen_rms", "cute_rms", "fused_rms")
_PLACEMENTS = {
    "default": "before", "reordered_norm": "after", "peri_norm": "before_and_after", "moe": "before", "moe_reordered_norm": "after",
}  # fmt: skip
_NORM_TYPES = {"default": "layernorm", **dict.fromkeys(_RMS, "rmsnorm")}


def _norm(of: str) -> tuple[Source, ...]:
    """Return the type of a norm, and whether it has a weight and a bias."""
    affine = flag(f"{of}.elementwise_affine", True)
    return choice(f"{of}.name", _NORM_TYPES, "layernorm"), affine, when(affine, flag(f"{of}.bias", True), False)


_BLOCK, _FINAL, _QK = _norm(_NORM), _norm("lm_head.layer_norm"), _norm(f"{_ATTENTION}.qk_norm")
_HAS_QK = code(lambda c: c.has(f"{_ATTENTION}.qk_norm.name"), f"{_ATTENTION}.qk_norm.name")


def _norm_bias(c: Reading) -> bool | None:
    norms = [tuple(map(c.of, norm)) for norm in (_BLOCK, _FINAL, *([_QK] if c.of(_HAS_QK) else []))]
    if len(set(norms)) > 1:
        raise c.refusal("norms of several kinds are not supported")
    kind, affine, biased = norms[0]
    if kind == "rmsnorm" and biased:
        raise c.refusal(f"RMS norms with a bias (`{_NORM}.bias`, whose default is true) are not supported")
    return bool(biased) if kind == "layernorm" and affine else None


def _window(c: Reading) -> list[SpecModel]:
    """Return the windows of the layers: a pattern that is repeated, after a first layer and before a last layer without."""
    pattern, n = c.value(f"{_ATTENTION}.sliding_window.pattern"), c["n_layers"]
    if pattern is None:
        return [{}] * n
    if not isinstance(pattern, list) or not pattern or any(width != -1 and positive(c, "pattern", width) < 1 for width in pattern):
        raise c.refusal(f"`{_ATTENTION}.sliding_window.pattern` must be a list of sizes, or -1 for none")
    first, last = (c.of(flag(f"{_ATTENTION}.sliding_window.force_full_attention_on_{end}_layer", True)) for end in ("first", "last"))
    widths = [pattern[(layer - first) % len(pattern)] for layer in range(n)]
    widths = [-1 if (first and layer == 0) or (last and layer == n - 1) else width for layer, width in enumerate(widths)]
    full: SpecModel = NO_POSITIONS if c.of(flag(f"{_ATTENTION}.rope.no_global_rope")) else {}
    return [full if width == -1 else {"attention": {"window": width}} for width in widths]


_PATTERN = code(
    _window,
    f"{_ATTENTION}.sliding_window.pattern",
    *(flag(f"{_ATTENTION}.sliding_window.force_full_attention_on_{end}_layer", True) for end in ("first", "last")),
    flag(f"{_ATTENTION}.rope.no_global_rope"),
)
_FLOOR = apply(lambda d_model, n_heads: d_model // n_heads or 1, same("d_model"), same("n_heads"))
_ROTATED = apply(
    lambda width, share: rotated(width, int(width * share)),
    same("head_dim"),
    key(f"{_ATTENTION}.rope.partial_rotary_factor", fraction, 1.0),
)
_SPARSE = code(lambda c: c.value(f"{_MOE}.num_experts") is not None, f"{_MOE}.num_experts")
_GATE = choice(f"{_ATTENTION}.gate.granularity", {"headwise": "head", "elementwise": "element"}, None)
_ACTIVATION = choice(f"{_FF}.activation", {"silu": "silu", "gelu_tanh": "gelu_tanh"}, "silu")

OLMO_CORE = row(
    {"vocab_size": size("vocab_size"), "context_length": size("max_sequence_length sequence_length"), "d_model": size("d_model")},
    {"n_layers": layers("n_layers"), "n_heads": size(f"{_ATTENTION}.n_heads", 16)},
    {"n_kv_heads": size(f"{_ATTENTION}.n_kv_heads", same("n_heads")), "head_dim": size(f"{_ATTENTION}.head_dim", _FLOOR)},
    {"d_ff": when(_SPARSE, size(f"{_MOE}.hidden_size", 256), size(f"{_FF}.hidden_size"))},
    {"attention.bias": flag(f"{_ATTENTION}.bias", True), "attention.qkv": "separate", "attention.output_gate": _GATE},
    {"attention.qk_norm": when(_HAS_QK, when(flag(f"{_ATTENTION}.use_head_qk_norm"), "head_dim", "full_width"), "none")},
    feed_forward("gated", _ACTIVATION, flag(f"{_FF}.bias", True)),
    {"norm.type": _BLOCK[0], "norm.weight": when(_BLOCK[1], None, False), "norm.bias": code(_norm_bias, *_BLOCK, *_FINAL, *_QK, _HAS_QK)},
    {"norm.placement": choice("block.name", _PLACEMENTS, "before"), "layers.windows": _PATTERN},
    {"positions": when(code(lambda c: c.has(f"{_ATTENTION}.rope.name"), f"{_ATTENTION}.rope.name"), _ROTATED, "none")},
    {"embedding_norm": code(lambda c: c.has("embedding_norm.name"), "embedding_norm.name"), "head.tied": flag("tie_word_embeddings")},
    {"head.bias": when(flag("lm_head.bias", True), True), "embedding_scale": when(number("embed_scale"), True)},
    where(_SPARSE, {
        "experts.count": size(f"{_MOE}.num_experts", 1), "experts.top_k": size(f"{_MOE}.router.top_k", 1),
        "experts.d_ff": size(f"{_MOE}.hidden_size", 256),
        "experts.scoring": choice(f"{_MOE}.router.gating_function", {"softmax": "softmax", "sigmoid": "sigmoid"}, "softmax"),
        "experts.normalize": when(number(f"{_MOE}.router.normalize_expert_weights"), True, False),
        "experts.correction_bias": when(number(f"{_MOE}.router.bias_gamma"), "buffer", "none"),
        "experts.shared": shared(size(f"{_MOE}.shared_mlp.hidden_size", None)), "_sparse": per_layer(lambda layer, n: layer < n),
        **shared_biases(flag(f"{_MOE}.shared_mlp.bias", True)),
        "experts.capacity_factor": when(choice(f"{_MOE}.name", {"default": True, "dropless": False}, True),
            number(f"{_MOE}.capacity_factor", 1.2), None),
    }),
    {"training.sequence_length": same("context_length")},
    {"training.batch_size": exactly_divided(size("rank_microbatch_size", None), same("context_length"))},
    {"training.precision": when(apply(eq, "bfloat16", code(lambda c: c.value("param_dtype", "autocast_precision"),
        "param_dtype", "autocast_precision")), "bf16-autocast", "fp32")},
    optimizer("optim", skipstepadamw="adamw", skipsteplion="lion"), recompute("ac_config.mode", ["full"]),
    dropout(f"block.dropout {_ATTENTION}.dropout"),
    only={
        "name": ("default", "moe"), f"{_ATTENTION}.name": ("default", "fused"), f"{_FF}.name": "default", "lm_head.name": "default",
        "dtype": "float32", "block_pattern": (), "block_overrides": (), "freeze_params": (), f"{_ATTENTION}.type": "attention",
        f"{_MOE}.shared_mlp.name": "default", f"{_MOE}.shared_mlp.activation": "silu", f"{_MOE}.router.name": "default",
        "float8_config.enabled": False,
    },
    ignored={
        NAMES: "run_name",
        STARTS: "init_method init_seed embedding_init_std",
        RUNS: (
            f"{_ATTENTION}.use_flash {_ATTENTION}.backend {_ATTENTION}.dtype {_ATTENTION}.gate.full_precision {_FF}.dtype {_NORM}.dtype "
            f"{_NORM}.eps {_ATTENTION}.qk_norm.eps lm_head.layer_norm.eps {_MOE}.shared_mlp.dtype "
            f"{_NORM}.full_precision lm_head.dtype lm_head.loss_implementation lm_head.layer_norm.dtype lm_head.layer_norm.full_precision "
            f"{_ATTENTION}.qk_norm.dtype {_ATTENTION}.qk_norm.full_precision {_MOE}.dtype {_MOE}.router.dtype "
            f"{_MOE}.router.uniform_expert_assignment compile float8_config"
        ),
        ROTATES: " ".join(f"{_ATTENTION}.rope.{one}" for one in ("theta", "full_precision", "scaling")),
        SCALES: f"{_ATTENTION}.clip_qkv block.attention_residual_alpha block.feed_forward_residual_alpha",
        LOSES: f"{_MOE}.lb_loss_weight {_MOE}.lb_loss_granularity {_MOE}.z_loss_weight {_MOE}.scale_loss_by_num_layers "
            f"{_MOE}.router.jitter_eps",
        NOT_COUNTED: "launch dataset data_loader train_module trainer model_config experiment_config",
    },
    notes=(own_kernels("OLMo-core"),),
)  # fmt: skip


def _read(given: Given) -> Imported:
    """Read the model, and the settings of training that change its memory."""
    model: dict[str, Any] = dict(given.config.get("model", given.config))
    block = dict(model["block"])
    if "sequence_mixer" in block:
        block["attention"] = block.pop("sequence_mixer")
    sections = [part for name in ("trainer", "train_module") if isinstance(part := given.config.get(name), Mapping)]
    training: dict[str, Any] = {key: value for part in sections for key, value in part.items() if key in _TRAINING}
    data = given.config.get("dataset")
    length = {"sequence_length": data["sequence_length"]} if isinstance(data, Mapping) and data.get("sequence_length") else {}
    optim = training.pop("optim", None) or given.config.get("optim")
    if isinstance(optim, Mapping):  # olmo_core.optim.adamw.AdamWConfig
        training["optim"] = str(optim.get("_CLASS_", "adamw")).rpartition(".")[2].removesuffix("Config")
    sharding = training.pop("dp_config", None)
    training |= {"param_dtype": sharding.get("param_dtype")} if isinstance(sharding, Mapping) else {}
    whole = {key: leaves(value) for key, value in {**model, "block": block, **length, **training}.items()}
    return read(OLMO_CORE, _given(whole), "OLMo-core")


def _given(values: Config) -> dict[str, Any]:
    """Return the values that are given: null means the default, and the Python classes of parts follow from their places."""
    named = {key: value for key, value in values.items() if value is not None and key.rpartition(".")[2] != "_CLASS_"}
    return {key: _given(value) if isinstance(value, Mapping) else value for key, value in named.items()}


_TRAINING = ("rank_microbatch_size", "max_sequence_length", "optim", "dp_config", "ac_config", "autocast_precision", "float8_config")


def _recognizes(given: Given) -> bool:
    model: Config = given.config.get("model", given.config)
    return isinstance(model, Mapping) and isinstance(model.get("block"), Mapping) and isinstance(model.get("lm_head"), Mapping)


FORMAT = Format(
    "OLMo-core",
    "config.json of a checkpoint",
    "allenai/OLMo-core of June 2026: nn/transformer/config.py, train/train_module/transformer/config.py",
    _recognizes,
    _read,
    {"olmo-core": OLMO_CORE},
    "in the section `model`, or at the top, the sections `block` and `lm_head`",
)
