"""torchtitan's TOML files, whose sizes are those of a flavor in its source.

Read from pytorch/torchtitan 0.2.2, the last version with TOML files: config/job_config.py, models/{llama3,qwen3,deepseek_v3}/__init__.py,
model/args.py and model/model.py of each, models/moe/moe.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.importer.engine import Reading, Row, read, row
from planner.importer.format import Format, Given
from planner.importer.formats.deepseek import DEEPSEEK
from planner.importer.formats.params import HAS_EXPERTS, LLAMA, MISTRAL
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show
from planner.importer.training import *

_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}
_FP8 = ("model.converters", "training.enable_fp8_linear", "float8.enable_float8_linear")
_FLOAT8 = ("float8", "quantize.linear.float8")
_STORED, _COMPUTED = choice("training.dtype", _DTYPES, "fp32"), choice("training.mixed_precision_param", _DTYPES, "bf16")


def _precision(c: Reading) -> str:
    for name in _FP8:
        if (given := c.value(name)) and not c["training.float8"]:
            c.notes.append(f"`{name}: {show(given)}` is not modeled; matrix products are planned in the precision of the spec")
    return "bf16" if c.of(_STORED) == "bf16" else "bf16-autocast" if c.of(_COMPUTED) == "bf16" else "fp32"


_DIGITS = 9  # of a number


def _float8(c: Reading) -> bool | None:
    """Return whether torchao's float8 is the only change of the linears, in the modules and precision that are modeled."""
    converters = c.value("model.converters") or []
    others = isinstance(converters, list) and any(one not in _FLOAT8 for one in converters)
    on = any(c.value(name) for name in _FP8) and not others
    fits = c.row.settings.get("training.implementation") == "torchtitan" and c.of(_COMPUTED) == "bf16"
    return (on and fits) or None


_MODE, _OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"


def _recompute(c: Reading) -> str | None:
    """Return the recomputation: of layers, of the operators that are not saved, or of none. The mode is always there."""
    mode, option = c.value(_MODE), str(c.value(_OPTION) or 2)
    if mode == "full" or (mode == "selective" and _frequency(option)):
        return "full"
    if mode == "selective" and option == "op" and c.row.settings.get("training.implementation") == "torchtitan":
        return "selective"
    if mode == "selective":
        c.notes.append(f"`{_MODE}: 'selective'` with `selective_ac_option: {show(option)}` is not modeled; {RECOMPUTES_NOTHING}")
    elif mode != "none":
        c.notes.append(f"`{_MODE}: {show(mode)}` is not modeled; {RECOMPUTES_NOTHING}")
    return None


def _frequency(option: str) -> int:
    """Return n of every n-th layer, or 0 for another option."""
    return max(int(option), 1) if option.isdecimal() and len(option) <= _DIGITS else 0


def _every(c: Reading) -> int | None:
    """Return n if only every n-th layer is recomputed."""
    frequency = _frequency(str(c.value(_OPTION) or 2)) if c.value(_MODE) == "selective" else 0
    return frequency if frequency > 1 else None


_TRAINING = row(
    {"context_length": size("training.seq_len", 2048), "training.sequence_length": same("context_length")},
    training_tokens("training.steps", "training.global_batch_size"),
    {"training.batch_size": size("training.local_batch_size training.batch_size", 8)},
    {"training.precision": code(_precision, *_FP8, _STORED, _COMPUTED)},
    {"training.float8": code(_float8, *_FP8, _COMPUTED), "training.device": when(same("training.float8"), "h100", None)},
    {"training.recompute": code(_recompute, _MODE, _OPTION), "training.recompute_every": code(_every, _MODE, _OPTION)},
    optimizer("optimizer.name"),
    {"training.optimizer_kernel": choice("optimizer.implementation", {"fused": None, "foreach": "foreach", "for-loop": "for-loop"}, None)},
    only={
        "model.norm_type": ("rmsnorm", "fused_rmsnorm", "compiled_rmsnorm"), "training.enable_cpu_offload": False,
        "optimizer.early_step_in_backward": False,
    },
    ignored={
        NAMES: "model.name model.flavor model.hf_assets_path model.tokenizer_path model.print_after_conversion",
        RUNS: (
            "training.mixed_precision_reduce training.gc_freq training.gc_debug training.compile training.deterministic training.seed "
            + " ".join(f"activation_checkpoint.{one}" for one in (
                "per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "memory_budget", "preserve_rng_state",
                "determinism_check", "debug", "visualize_memory_budget_pareto"))
            + " compile debug comm experimental quantize float8 mx"
        ),
        DEVICES: (
            "parallelism fault_tolerance training.data_parallel_degree training.data_parallel_replicate_degree "
            "training.data_parallel_shard_degree training.tensor_parallel_degree training.enable_async_tensor_parallel"
        ),
        UPDATES: (
            "optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 optimizer.weight_decay lr_scheduler training.max_norm "
            "training.warmup_steps"
        ),
        NOT_COUNTED: (
            "job profiling metrics checkpoint validation memory_estimation training.dataset training.dataset_path "
            "training.dataloader.num_workers training.dataloader.persistent_workers training.dataloader.pin_memory "
            "training.dataloader.prefetch_factor"
        ),
    },
    notes=("the sizes are those of the flavor in torchtitan 0.2.2",),
)  # fmt: skip

_OTHER_MODULES = row(notes=(own_kernels("torchtitan"),))
_BUFFER = {"experts.correction_bias": "buffer"}  # with which the router balances the experts


def _without_notes(of: Row) -> Row:
    """Return the row of another program, whose notes are about its own files."""
    return replace(of, notes=())


_ROWS: Mapping[str, Row] = {
    "llama3": row(_without_notes(LLAMA), {"training.implementation": "torchtitan"}, _TRAINING),
    "qwen3": row(
        *(_without_notes(MISTRAL), where(HAS_EXPERTS, {"experts.d_ff": size("moe_inter_dim", 768), **_BUFFER}), HEAD_NORM),
        *(_TRAINING, _OTHER_MODULES),
    ),
    "deepseek_v3": row(_without_notes(DEEPSEEK), _BUFFER, _TRAINING, _OTHER_MODULES),
}


def _llama(dim: int, n_layers: int, n_heads: int, **more: float) -> Config:
    return {"vocab_size": 128256, "dim": dim, "n_layers": n_layers, "n_heads": n_heads, **more}


def _qwen(dim: int, n_layers: int, n_heads: int, hidden_dim: int, n_kv_heads: int = 8, **more: object) -> Config:
    sizes = {"vocab_size": 151936, "dim": dim, "n_layers": n_layers, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": 128}
    return {**sizes, "hidden_dim": hidden_dim, **more}


def _deepseek(dim: int, n_layers: int, n_heads: int, widths: tuple[int, int], experts: tuple[int, int, int], **more: object) -> Config:
    sizes = {"dim": dim, "n_layers": n_layers, "n_heads": n_heads, "inter_dim": widths[0], "moe_inter_dim": widths[1]}
    return {**sizes, "n_routed_experts": experts[0], "n_shared_experts": experts[1], "n_activated_experts": experts[2], **more}


_SMALL = {"vocab_size": 2048}
_128_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8}
FLAVORS: Mapping[str, Mapping[str, Config]] = {
    "llama3": {
        "debugmodel": _llama(256, 6, 16, **_SMALL),
        "8B": _llama(4096, 32, 32, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=1024),
        "70B": _llama(8192, 80, 64, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=4096),
        "405B": _llama(16384, 126, 128, n_kv_heads=8, ffn_dim_multiplier=1.2, multiple_of=4096),
    },
    "qwen3": {
        "debugmodel": _qwen(256, 8, 16, 3072, tied_embeddings=True, **_SMALL),
        "0.6B": _qwen(1024, 28, 16, 3072, tied_embeddings=True), "1.7B": _qwen(2048, 28, 16, 6144, tied_embeddings=True),
        "4B": _qwen(2560, 36, 32, 9728, tied_embeddings=True), "8B": _qwen(4096, 36, 32, 12288), "14B": _qwen(5120, 40, 40, 17408),
        "32B": _qwen(5120, 64, 64, 25600),
        "debugmodel_moe": _qwen(256, 8, 16, 3072, moe={"num_experts": 64, "num_experts_per_tok": 8}, moe_inter_dim=768, **_SMALL),
        "30B-A3B": _qwen(2048, 48, 32, 6144, 4, moe=_128_EXPERTS, moe_inter_dim=768),
        "235B-A22B": _qwen(4096, 94, 64, 12288, 4, moe=_128_EXPERTS, moe_inter_dim=1536),
    },
    "deepseek_v3": {
        "debugmodel": _deepseek(256, 6, 16, (1024, 256), (8, 2, 3), **_SMALL),
        "16B": _deepseek(2048, 27, 16, (10944, 1408), (64, 2, 6)),
        "236B": _deepseek(5120, 60, 128, (12288, 1536), (160, 2, 6), q_lora_rank=1536),
        "671B": _deepseek(7168, 61, 128, (18432, 2048), (256, 1, 8), q_lora_rank=1536, vocab_size=129280, score_func="sigmoid",
            n_dense_layers=3),
    },
}  # fmt: skip
_MASKS = ("_flex_attn", "_varlen_attn", "_flex", "_varlen")  # the same sizes with other kernels


def _read(given: Given) -> Imported:
    model = given.config["model"]
    name, flavor = str(model.get("name")), str(model.get("flavor", "debugmodel"))
    if name not in FLAVORS:
        raise UnsupportedConfigError(f"torchtitan config: `model.name: {show(name)}` is not supported; supported: {', '.join(FLAVORS)}")
    base = next((flavor.removesuffix(mask) for mask in _MASKS if flavor.endswith(mask)), flavor)
    if base not in FLAVORS[name]:
        raise UnsupportedConfigError(f"torchtitan config: {name} has no flavor {show(flavor)}; it has {', '.join(FLAVORS[name])}")
    sizes = {key: leaves(value) for key, value in FLAVORS[name][base].items()}
    sections = {key: leaves(value) for key, value in given.config.items()}
    checkpoint = sections.get("activation_checkpoint") or {}
    if not isinstance(checkpoint, dict):
        raise UnsupportedConfigError(f"torchtitan config: `activation_checkpoint: {show(checkpoint)}` is not a section")
    sections["activation_checkpoint"] = {"mode": "selective", **checkpoint}  # its default
    imported = read(_ROWS[name], {**sizes, **sections}, f"torchtitan's {name} {flavor}")
    mask = () if base == flavor else (f"the attention kernel of flavor {flavor} is not modeled; it is planned as {base}",)
    return replace(imported, notes=(*imported.notes, *mask))


def _recognizes(given: Given) -> bool:
    model = given.config.get("model")
    return isinstance(model, Mapping) and "flavor" in model and "name" in model


FORMAT = Format(
    "torchtitan",
    "a trainer's TOML, with the sizes of its flavor",
    "pytorch/torchtitan 0.2.2: config/job_config.py, models/*/__init__.py (flavors of llama3, qwen3 and deepseek_v3)",
    _recognizes,
    _read,
    {f"torchtitan-{name}": one for name, one in _ROWS.items()},
    "`name` and `flavor` in the section `model`",
)
