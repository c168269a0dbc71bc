"""Adapters that peft has saved: adapter_config.json.

Read from peft 0.21.2: config.py, tuners/lora/config.py, tuners/ia3/config.py.
"""

from __future__ import annotations

from planner.importer.adapters import UNSTATED, dropout, kind, layers_with, saved, targets
from planner.importer.engine import Reading
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import show

_VIRTUAL = {"PROMPT_TUNING": "prompt", "PREFIX_TUNING": "prefix"}
_TYPES = ("LORA", "IA3", *_VIRTUAL)


def _unstated(c: Reading) -> str:
    c.notes.append(UNSTATED)
    return "bf16"


def of_type(*kinds: str) -> Source:
    """Return whether the file is of one of these types of adapters."""
    return code(lambda c: c.value("peft_type") in kinds, "peft_type")


def _problem(c: Reading) -> str:
    kind = c.at("peft_type")
    if kind not in _TYPES:
        return f"`peft_type: {show(kind)}` is not planned yet; {', '.join(_TYPES)} are"
    if c.at("prefix_projection"):
        return "`prefix_projection: true`: a prefix that two linears compute is not planned yet"
    bias = c.at("bias")
    return f"`bias: {show(bias)}`: training of biases beside adapters is not planned yet" if bias not in (None, "none") else ""


PEFT = program(
    "peft",
    "base_model_name_or_path",
    {"training.implementation": "transformers", "training.precision": code(_unstated), "training.train": "adapters"},
    {
        "training.adapters": when(
            of_type(*_VIRTUAL),
            {"type": code(lambda c: _VIRTUAL[c.value("peft_type")], "peft_type"), "virtual_tokens": size("num_virtual_tokens")},
            when(
                of_type("IA3"),
                {
                    "type": "ia3",
                    "targets": targets("target_modules"),
                    "feedforward": targets("feedforward_modules", lambda _: ["down_proj"]),
                },
                {
                    "rank": size("r", 8),
                    "type": kind("use_dora", "use_rslora"),
                    "targets": targets("target_modules", ranks="rank_pattern"),
                    "layers": layers_with("layers_to_transform"),
                    "dropout": dropout("lora_dropout"),
                },
            ),
        ),
        "training.also_train": saved("modules_to_save"),
    },
    refused={
        "other forms of LoRA are not planned yet": (
            "exclude_modules lora_bias target_parameters trainable_token_indices layer_replication use_qalora use_bdlora "
            "arrow_config kasa_config velora_config monteclora_config alora_invocation_tokens megatron_config"
        ),
    },
    omitted={},
    ignored={
        "initial values, factors, and how adapters are stored": (
            "bias lora_alpha alpha_pattern fan_in_fan_out init_lora_weights init_ia3_weights layers_pattern loftq_config "
            "eva_config corda_config lora_ga_config qalora_group_size runtime_config megatron_core task_type auto_mapping "
            "token_dim encoder_hidden_size prefix_projection init_weights num_transformer_submodules num_attention_heads num_layers "
            "prompt_tuning_init prompt_tuning_init_text tokenizer_name_or_path tokenizer_kwargs peft_version revision inference_mode "
            "ensure_weight_tying"
        ),
    },
    problem=_problem,
)

FORMAT = format_of(
    PEFT,
    "adapter_config.json of LoRA, rsLoRA, DoRA, IA3, prompt and prefix tuning",
    "peft 0.21.2: config.py, tuners/lora/config.py, tuners/ia3/config.py",
    lambda given: "peft_type" in given.config and isinstance(given.config.get("base_model_name_or_path"), str),
    "`peft_type` and `base_model_name_or_path`",
)
