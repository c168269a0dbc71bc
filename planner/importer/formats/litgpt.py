"""LitGPT's configurations: of a model, and of its pretraining.

Read from litgpt 0.5.13, litgpt/config.py (Config), litgpt/model.py, litgpt/pretrain.py; keys that begin with ``_`` are those of lit-gpt in
2023.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, one_of
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported, SpecModel, UnsupportedConfigError, show
from planner.importer.training import NOT_COUNTED, UPDATES

_MODEL = "model_config"  # the section with the model in a file of pretraining
# Keys that nanoGPT does not have.
_ONLY = (
    "mlp_class_name", "norm_class_name", "_mlp_class", "_norm_class", "n_query_groups", "padded_vocab_size", "padding_multiple",
    "rotary_percentage", "parallel_residual", "hf_config",
)  # fmt: skip
_SIZES = {"n_layer", "n_head", "n_embd"}
_NAMES = {"context": "block_size", "d_model": "n_embd", "n_layers": "n_layer", "n_heads": "n_head"}


def _named(c: Reading, part: str) -> bool:
    name = c.at("name") or c.at("hf_config.name")
    return isinstance(name, str) and part in name


def _placement(c: Reading) -> str:
    switches = [c.of(flag(name, True)) for name in ("norm_1", "norm_2")] + [
        c.of(flag(f"post_{name}_norm")) for name in ("attention", "mlp")
    ]
    placements = {(True, True, False, False): "before", (True, True, True, True): "before_and_after", (False, False, True, True): "after"}
    if tuple(switches) not in placements:
        raise c.refusal("norms before or after only one of attention and feed-forward are not supported")
    return placements[tuple(switches)]


def _qk_norm(c: Reading) -> str:
    kind = c.of(choice("norm_qk_type", {"default": "head_dim", "olmo2": "full_width"}, "head_dim"))
    normed = c.of(flag("norm_qk"))
    if normed and c["norm.type"] == "layernorm":
        raise c.refusal("`norm_qk` with LayerNorm gives queries and keys biases, which is not supported")
    return str(kind) if normed else "none"


def _block(c: Reading) -> str:
    parallel, shared = c.of(flag("parallel_residual", True)), c.of(flag("shared_attention_norm"))
    if shared and not parallel:
        raise c.refusal("`shared_attention_norm` without `parallel_residual` is not supported")
    return "parallel_one_norm" if shared else "parallel_two_norms" if parallel else "sequential"


def _positions(c: Reading) -> str | SpecModel:
    share = c.value("rotary_percentage")
    part = 0.25 if share is None else 0 if alike(share, 0) or alike(share, 0.0) else fraction(c, "rotary_percentage", share)
    return rotated(c["head_dim"], int(c["head_dim"] * part))


def _accumulation(c: Reading) -> int | None:
    """Return the passes per step on each of the devices, or on one if their number is not given."""
    if not c.of(_PRETRAINS):
        return None
    whole, devices = c.of(size("train.global_batch_size", 512)), c.value("devices")
    if not isinstance(devices, int):
        c.notes.append("gradient accumulation is that of one GPU: LitGPT divides global_batch_size by their number")
    ranks = c.of(size("devices", 1)) * c.of(size("num_nodes", 1)) if isinstance(devices, int) else 1
    return int(max(whole // ranks // c["training.batch_size"], 1))


def _optimizer(c: Reading) -> str | None:
    given = c.at("optimizer")
    name = given.get("class_path") if isinstance(given, Mapping) else given
    found = _OPTIMIZERS.get(str(name).rpartition(".")[2])
    if name is not None and not found:
        raise c.unsupported("optimizer", name, _OPTIMIZERS)
    return found


_OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd"}
_PRECISIONS = {"bf16-true": "bf16", "bf16-mixed": "bf16-autocast", "16-mixed": "fp16-autocast", "32-true": "fp32"}
_PRETRAINS = code(lambda c: c.at("train") is not None)
_CLASS, _CLASSES = "mlp_class_name _mlp_class", {"GptNeoxMLP": "plain", "LLaMAMLP": "gated", "GemmaMLP": "gated", "LLaMAMoE": "gated"}
_SILU = choice(_CLASS, {name: name.startswith("LLaMA") for name in _CLASSES}, False)
_SPARSE = choice(_CLASS, {name: name == "LLaMAMoE" for name in _CLASSES}, False)
_NEEDS_WIDTH = choice(_CLASS, {name: name == "LLaMAMLP" for name in _CLASSES}, False)
_GELU = choice("gelu_approximate", {"none": "gelu", "tanh": "gelu_tanh"}, "gelu")
_NORM = choice("norm_class_name _norm_class", {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}, "layernorm")
_GROUPED = apply(bool, count("n_expert_groups"))
_PADDED = apply(lambda rows, multiple: -(-rows // multiple) * multiple, size("vocab_size", 50254), size("padding_multiple", 512))
_WIDTH = when(_NEEDS_WIDTH, size("intermediate_size"), size("intermediate_size", same("d_model", 4)))
# Which layers have windows: a list, in earlier versions a word or a step.
_STEP = size("sliding_window_layer_stride", choice("sliding_window_layer_placing", {"all": 1, 1: 1, "interleaved": 2, 2: 2}, 1))
_KINDS = each("sliding_window_indices", {0: FULL, 1: SLIDING}, every(_STEP, SLIDING, FULL, first=True))

LITGPT = row(
    sizes(4096, **_NAMES), {"vocab_size": size("padded_vocab_size", _PADDED), "n_kv_heads": size("n_query_groups", same("n_heads"))},
    {"head_dim": size("head_size", divided("head_size")), "d_ff": _WIDTH},
    {"attention.bias": when(flag("bias", True), True, bias(flag("attn_bias"))), "attention.qkv": "fused"},
    {"attention.qk_norm": code(_qk_norm, "norm_qk", "norm_qk_type"), "attention.logit_softcap": softcap("attention_logit_softcapping")},
    feed_forward(choice(_CLASS, _CLASSES, "plain"), when(_SILU, "silu", _GELU), flag("bias", True)),
    windowed(_KINDS, window(None, "sliding_window_size")),
    # LitGPT chooses the norm of OLMo and of Gemma by the model's name
    {"norm.type": _NORM, "norm.weight": code(lambda c: False if c["norm.type"] == "layernorm" and _named(c, "OLMo") else None)},
    {"norm.unit_offset": code(lambda c: True if c["norm.type"] == "rmsnorm" and _named(c, "Gemma") else None)},
    {"norm.placement": code(_placement, "norm_1", "norm_2", "post_attention_norm", "post_mlp_norm")},
    {"block": code(_block, "parallel_residual", "shared_attention_norm"), "positions": code(_positions, "rotary_percentage")},
    {"embedding_scale": flag("scale_embeddings"), "head.tied": flag("train.tie_embeddings"), "head.bias": when(flag("lm_head_bias"), True)},
    {"head.logit_softcap": softcap("final_logit_softcapping")},
    where(_SPARSE, {
        "experts.count": size("n_expert"), "experts.top_k": size("n_expert_per_token"),
        "experts.d_ff": size("moe_intermediate_size", same("d_ff")), "experts.shared": shared_count("n_shared_expert"),
        "experts.bias": flag("bias", True), "experts.normalize": when(_GROUPED, normalized(False), True),
        "experts.scoring": when(_GROUPED, "sigmoid", "softmax"), "experts.correction_bias": when(_GROUPED, "buffer", "none"),
        "_sparse": after(count("first_k_dense_replace")), **shared_biases(flag("bias", True)),
    }),
    {"training.batch_size": size("train.micro_batch_size", when(_PRETRAINS, 4))},
    {"training.sequence_length": size("train.max_seq_length", None)},
    {"training.gradient_accumulation": code(_accumulation, "train.global_batch_size", "devices", "num_nodes")},
    {"training.tokens": size("train.max_tokens", when(_PRETRAINS, 3 * 10**12))},
    {"training.precision": choice("precision", _PRECISIONS, None), "training.optimizer": code(_optimizer, "optimizer")},
    only={"latent_attention": ()},
    ignored={
        NOT_COUNTED: (
            "model_name out_dir initial_checkpoint_dir resume data eval log tokenizer_dir logger_name seed train.save_interval "
            "train.log_interval train.epochs train.max_steps train.max_time"
        ),
        UPDATES: "train.max_norm train.min_lr train.lr_warmup_steps train.lr_warmup_fraction",
        "names the model; with OLMo or Gemma in it, the norm": "name hf_config", NAMES: "org", RUNS: "norm_eps",
        SCALES: "attention_scores_scalar routed_scaling_factor", ROUTES: "n_topk_groups n_topk_scores_per_group",
        ROTATES: (
            "condense_ratio rope_adjustments rope_base rope_condense_ratio rope_indices rope_interleave rope_local_base_freq rope_n_elem"
        ),
    },
    notes=("LitGPT ties the LM head to the token embedding only with train.tie_embeddings",),
)  # fmt: skip


def _keys(given: Given) -> Mapping[str, object]:
    """Return the model's keys, which are a section in a file of pretraining."""
    section = given.config.get(_MODEL)
    return section if isinstance(section, Mapping) else given.config


def _recognizes(given: Given) -> bool:
    keys = _keys(given)
    return (_MODEL in given.config and "train" in given.config) or (keys.keys() >= _SIZES and any(key in keys for key in _ONLY))


def _read(given: Given) -> Imported:
    keys = _keys(given)
    if _MODEL in given.config and keys is given.config:
        name = show(given.config.get("model_name"))
        raise UnsupportedConfigError(f"`{_MODEL}` is missing; LitGPT has the sizes of {name} in a table: import its model_config.yaml")
    return read(LITGPT, {key: value for key, value in given.config.items() if key != _MODEL} | dict(keys), "LitGPT")


FORMAT = Format(
    "LitGPT",
    "model_config.yaml of a checkpoint, lit_config.json, and files of pretraining with a model_config",
    "Lightning AI's litgpt 0.5.13: litgpt/config.py, litgpt/model.py, litgpt/pretrain.py",
    _recognizes,
    _read,
    {"litgpt": LITGPT},
    f"`n_layer`, `n_head`, `n_embd` and {one_of(_ONLY)}",
)
