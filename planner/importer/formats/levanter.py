"""levanter's configurations: a trainer's YAML with ``model: type:``.

Read from stanford-crfm/levanter of September 2025: models/llama.py, gpt2.py, mistral.py, mixtral.py, qwen.py, olmo.py, trainer.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.importer.engine import Reading, Row, Settings, read, row
from planner.importer.format import Format, Given
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported, UnsupportedConfigError, show
from planner.importer.training import *

_ACTIVATIONS = {"relu": "relu", "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
_DTYPES = {"f32": "fp32", "float32": "fp32", "full": "fp32", "bf16": "bf16", "bfloat16": "bf16"}
_PRECISIONS = {("fp32", "fp32"): "fp32", ("fp32", "bf16"): "bf16-autocast", ("bf16", "bf16"): "bf16"}


def _precision(c: Reading) -> str | None:
    """Return the precision of jmp's policies: ``f32``, or ``p=f32,c=bfloat16``."""
    policy = str(c.value("trainer.mp") or "f32")
    parts = {one[0]: _DTYPES.get(one.partition("=")[2], "") for one in re.split(", ?", policy) if "=" in one} or {
        kind: _DTYPES.get(policy, "") for kind in "pc"
    }
    precision = _PRECISIONS.get((parts.get("p", "fp32"), parts.get("c", "fp32")))
    if precision is None:
        c.notes.append(f"`trainer.mp: {show(policy)}` is not modeled; the precision is bf16-autocast")
    return precision


_DEVICE_BATCH = apply(lambda given: None if given == -1 else given, key("trainer.per_device_parallelism", lambda _, __, value: value, None))

_TRAINING = row(
    {"vocab_size": vocabulary("vocab_size", "levanter"), "training.sequence_length": same("context_length")},
    training_tokens("trainer.num_train_steps", "trainer.train_batch_size"),
    {"training.batch_size": _DEVICE_BATCH, "training.precision": code(_precision, "trainer.mp")},
    recompute("gradient_checkpointing", [True, "full", "recompute"], [False], default="full"),
    optimizer("optimizer.type"), only={"use_hf_model_config": False},
    ignored={
        NAMES: "type reference_checkpoint tokenizer", STARTS: "initializer_range",
        RUNS: (
            "scan_layers upcast_attn attn_backend flash_attention_block_size use_flash_attention cross_entropy_block_size "
            "scale_attn_by_inverse_layer_idx"
        ),
        ROTATES: "rope", LOSES: "lbl_coef rzl_coef",
    },
    notes=(own_kernels("levanter"),),
)  # fmt: skip


def _sizes(context: int, d_model: int, n_layers: int, n_heads: int) -> Settings:
    return {
        "context_length": size("seq_len", context), "d_model": size("hidden_dim", d_model), "n_layers": layers("num_layers", n_layers),
        "n_heads": size("num_heads", n_heads),
    }  # fmt: skip


def _llama(context: int, d_ff: int, kv_heads: int, *parts: Row | Settings, unread: str = "", **only: object) -> Row:
    """Return a model of LlamaConfig's descendants; the numbers are the class's defaults."""
    return row(
        _TRAINING, _sizes(context, 4096, 32, 32),
        {"n_kv_heads": size("num_kv_heads", kv_heads), "head_dim": size("head_dim", divided()), "d_ff": size("intermediate_dim", d_ff)},
        feed_forward("gated", choice("activation_function", _ACTIVATIONS, "silu"), False),
        {"attention.bias": False, "attention.qkv": "separate", "positions": "rope", "norm.type": "rmsnorm"},
        {"norm.weight": when(flag("use_layer_norm_weight", True), None, False)},
        {"norm.placement": when(flag("hybrid_norm"), "before_and_after", "before"), "embedding_norm": flag("input_embedding_norm")},
        tied(False), *parts, only={"use_bias": False, **only}, ignored={RUNS: "layer_norm_epsilon"} | ({UNREAD: unread} if unread else {}),
    )  # fmt: skip


_WINDOWS = "sliding_window max_window_layers"
TYPES = {
    "llama": _llama(2048, 11008, 32),
    "mistral": _llama(8192, 14336, 8, unread="sliding_window"),
    "qwen": _llama(2048, 11008, 32, {"attention.bias": bias(True)}, unread=_WINDOWS, use_sliding_window=False),
    "qwen3": _llama(2048, 11008, 32, HEAD_NORM, unread=_WINDOWS, use_sliding_window=False),
    "olmo2": _llama(
        4096, 11008, 32, {"attention.bias": flag("attention_bias"), "attention.qk_norm": "full_width", "norm.placement": "after"},
        dropout("attention_dropout"), hybrid_norm=False, head_dim=(),
    ),
    "mixtral": _llama(
        8192, 14336, 8, {"experts.count": size("n_routed_experts", 8), "experts.top_k": size("num_experts_per_tok", 2)},
        {"experts.d_ff": same("d_ff"), "experts.activation": same("feed_forward.activation")},
        {"_sparse": per_layer(lambda layer, n: layer < n)},
        {"experts.shared": when(count("n_shared_experts"), shared(same("d_ff")))}, unread="sliding_window",
    ),
    "gpt2": row(
        _TRAINING, _sizes(1024, 768, 12, 12), {"d_ff": times(size("mlp_scale", 4), same("d_model")), "head_dim": divided()},
        feed_forward("plain", choice("activation_function", _ACTIVATIONS, "gelu_tanh"), flag("use_bias", True)),
        {"attention.bias": flag("use_bias", True), "attention.qkv": "fused", "norm.type": "layernorm", "norm.bias": flag("use_bias", True)},
        {"positions": "learned", "head.tied": True}, dropout("embed_pdrop resid_pdrop attn_pdrop"), ignored={RUNS: "layer_norm_epsilon"},
    ),
}  # fmt: skip


# The keys that are read outside of the model's section; no other section describes the model.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "trainer": ("mp", "per_device_parallelism", "num_train_steps", "train_batch_size"), "optimizer": ("type",), "use_hf_model_config": (),
}  # fmt: skip


def _read(given: Given) -> Imported:
    kind = given.config["model"]["type"]
    if kind not in TYPES:
        raise UnsupportedConfigError(f"levanter config: `model.type: {show(kind)}` is not supported; supported: {', '.join(TYPES)}")
    config = opened({key: value for key, value in given.config.items() if key in ("model", "vocab_size", *_SECTIONS)}, "model")
    for name, known in _SECTIONS.items():
        section = config.get(name)
        if known:  # a file that is included is only a name
            config[name] = {key: section[key] for key in known if key in section} if isinstance(section, Mapping) else None
    return read(TYPES[kind], config, f"levanter's {kind}")


def _recognizes(given: Given) -> bool:
    model = given.config.get("model")
    return isinstance(model, Mapping) and isinstance(model.get("type"), str) and ("trainer" in given.config or "hidden_dim" in model)


FORMAT = Format(
    "levanter",
    "a trainer's YAML",
    "stanford-crfm/levanter of September 2025: models/llama.py, gpt2.py, mistral.py, mixtral.py, qwen.py, olmo.py, trainer.py",
    _recognizes,
    _read,
    {f"levanter-{kind}": one for kind, one in TYPES.items()},
    "`type` in the section `model`, with `hidden_dim` beside it or a section `trainer`",
)
