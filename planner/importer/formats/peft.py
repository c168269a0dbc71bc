"""Adapters that peft has saved: adapter_config.json.

Read from peft 0.21.2: config.py, tuners/lora/config.py.
"""

from __future__ import annotations

from planner.importer.engine import Reading
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import show

_TABLES = {"embed_tokens": "embedding", "wte": "embedding", "embed_in": "embedding", "lm_head": "head", "embed_out": "head"}
_UNSTATED = "the file does not state data types: weights are planned in bf16, as most checkpoints store them"


def _targets(c: Reading) -> list[str] | str:
    """Return the linears with adapters, by their names in transformers."""
    given = c.value("target_modules")
    if given == "all-linear":
        return "all-linear"
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise c.refusal(f"`target_modules: {show(given)}` is not a list of names; patterns are not read")
    names = list(dict.fromkeys(one.rpartition(".")[2] for one in given))
    if tables := [one for one in names if one in _TABLES]:
        raise c.refusal(f"`target_modules` has {show(tables[0])}: adapters of the embedding and of the LM head are not planned yet")
    return names


def _layers(c: Reading) -> list[str] | None:
    given = c.value("layers_to_transform")
    numbers = [given] if isinstance(given, int) and not isinstance(given, bool) else given
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
        raise c.refusal(f"`layers_to_transform: {show(given)}` is neither a layer number nor a list of them")
    return [str(one) for one in numbers]


def _copies(c: Reading) -> list[str] | None:
    given = c.value("modules_to_save")
    if not given:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) and one in _TABLES for one in given):
        raise c.refusal(f"`modules_to_save: {show(given)}` has other modules than {', '.join(_TABLES)}")
    return list(dict.fromkeys(_TABLES[one] for one in given))


def _type(c: Reading) -> str:
    dora, stabilized = is_on(c.value("use_dora")), is_on(c.value("use_rslora"))
    return "dora" if dora else "rslora" if stabilized else "lora"


def _dropout(c: Reading) -> float | None:
    given = c.value("lora_dropout")
    if given is None or alike(given, 0) or alike(given, 0.0):
        return None
    return fraction(c, "lora_dropout", given)


def _unstated(c: Reading) -> str:
    c.notes.append(_UNSTATED)
    return "bf16"


def _problem(c: Reading) -> str:
    kind = c.at("peft_type")
    if kind != "LORA":
        return f"`peft_type: {show(kind)}` is not planned yet; LORA is"
    bias = c.at("bias")
    return f"`bias: {show(bias)}`: training of biases beside adapters is not planned yet" if bias not in (None, "none") else ""


PEFT = program(
    "peft",
    "base_model_name_or_path",
    {"training.implementation": "transformers", "training.precision": code(_unstated), "training.train": "adapters"},
    {
        "training.adapters": {
            "rank": size("r", 8),
            "type": code(_type, "use_dora", "use_rslora"),
            "targets": code(_targets, "target_modules"),
            "layers": code(_layers, "layers_to_transform"),
            "dropout": code(_dropout, "lora_dropout"),
        },
        "training.also_train": code(_copies, "modules_to_save"),
    },
    refused={
        "other forms of LoRA are not planned yet": (
            "rank_pattern exclude_modules lora_bias target_parameters trainable_token_indices layer_replication use_qalora use_bdlora "
            "arrow_config kasa_config velora_config monteclora_config alora_invocation_tokens megatron_config"
        ),
    },
    omitted={},
    ignored={
        "initial values, factors, and how adapters are stored": (
            "peft_type bias lora_alpha alpha_pattern fan_in_fan_out init_lora_weights layers_pattern loftq_config eva_config corda_config "
            "lora_ga_config qalora_group_size runtime_config megatron_core task_type auto_mapping peft_version revision inference_mode "
            "ensure_weight_tying"
        ),
    },
    problem=_problem,
)

FORMAT = format_of(
    PEFT,
    "adapter_config.json of LoRA, rsLoRA and DoRA",
    "peft 0.21.2: config.py, tuners/lora/config.py",
    lambda given: "peft_type" in given.config and isinstance(given.config.get("base_model_name_or_path"), str),
    "`peft_type` and `base_model_name_or_path`",
)
