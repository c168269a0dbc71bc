"""What the files of other trainers say and a spec cannot express is refused by name; a file is recognized by its own keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from planner.importer.convert import is_config
from planner.importer.formats import FORMATS, PROGRAMS
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import read_config
from planner.spec.nodes import Source
from tests.trainer_configs import DEEPSEEK, LEVANTER, LLAMA3, LLAMA_IN_NEOX, MISTRAL, NANOTRON, NEOX, OLMO, OLMO2, Config, olmo_core


def read(config: Mapping[str, Any], file: str = "config.json") -> Imported:
    return read_config(json.dumps(config), file)


def without(config: Config, key: str) -> Config:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without(NEOX, "vocab_size"), "GPT-NeoX reads it from the tokenizer: give it with planner import --set vocab_size="),
        (NEOX | {"attention-config": [[["local", "global"], "all"]]}, "`attention_config` contains 'local'; supported: global, flash"),
        (NEOX | {"pos-emb": "rpe"}, "`pos_emb: 'rpe'` is not supported"),
        (NEOX | {"norm": "scalenorm"}, "`norm: 'scalenorm'` is not supported"),
        (NEOX | {"use_qk_layernorm": True}, "`use_qk_layernorm: True` is not supported"),
        (NEOX | {"moe_num_experts": 8}, "`moe_num_experts: 8` is not supported"),
        (NEOX | {"soft_prompt_tuning": {"enabled": True}}, "`soft_prompt_tuning: {'enabled': True}` is not supported"),
        (NEOX | {"num_layers": 3}, "a key occurs twice, with a hyphen and with an underscore"),
        (LLAMA_IN_NEOX | {"intermediate_size": 14336, "mlp_multiple_of": 1}, "gives matrices that do not fit: 9558 columns"),
        ({"model": OLMO2 | {"d_model": 768, "bias_for_layer_norm": True}}, "RMS norms with a bias"),
        ({"model": OLMO | {"d_model": 768, "block_type": "mamba"}}, "`block_type: 'mamba'` is not supported"),
        (
            {"model": OLMO | {"d_model": 768, "precision": "fp32"}, "precision": "amp_bf16"},
            "`precision: 'amp_bf16'` and `model.precision: 'fp32'` disagree",
        ),
        (olmo_core(64, 2, 64, {"n_heads": 2, "name": "normalized"}), "`block.attention.name: 'normalized'` is not supported"),
        (olmo_core(64, 2, 64, {"n_heads": 2}, name="peri_norm2"), "`block.name: 'peri_norm2'` is not supported"),
        (LEVANTER | {"model": {"type": "gemma"}}, "`model.type: 'gemma'` is not supported; supported: llama"),
        (LEVANTER | {"model": {"type": "llama"}, "use_hf_model_config": True}, "`use_hf_model_config: True` is not supported"),
        (LEVANTER | {"model": {"type": "llama"}}, "levanter reads it from the tokenizer"),
        (LLAMA3 | {"vocab_size": -1}, "`vocab_size: -1` is not a size"),
        (LLAMA3 | {"vision_num_cross_attention_layers": 8}, "`vision_num_cross_attention_layers: 8` is not supported"),
        (LLAMA3 | {"moe_args": {"num_experts": 16}}, "unsupported key `moe_args"),
        (DEEPSEEK | {"q_lora_rank": "wide"}, "`q_lora_rank: 'wide'` is not a positive integer"),
        ({"model": {"name": "flux", "flavor": "dev"}}, "`model.name: 'flux'` is not supported; supported: llama3"),
        ({"model": {"name": "llama3", "flavor": "9B"}}, "llama3 has no flavor '9B'; it has debugmodel, 8B, 70B, 405B"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_read_is_refused_by_name(config: Config, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read(config)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_computed_size_of_nanogpt_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="`n_layer` is computed"):
        read_config("eval_iters = 1\nn_layer = int('3')\n", "x.py")


def test_a_toml_file_of_another_program_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="unrecognized TOML: only torchtitan's is read"):
        read_config("[project]\nname = 'x'\n", "pyproject.toml")
    with pytest.raises(UnsupportedConfigError, match="invalid TOML"):
        read_config("x = [", "x.toml")


def test_an_unrecognized_file_is_told_the_programs_whose_files_are_read() -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read({"layers": 3})
    assert all(name in str(refused.value) for name in PROGRAMS)
    assert {one.name for one in FORMATS} == set(PROGRAMS)


def test_a_file_is_recognized_by_what_only_its_program_has() -> None:
    """Levanter's fine-tuning names a model of the Hub beside its own sizes; files of data have keys of one name in several sections."""
    tuned = {**LEVANTER, "model": {"type": "llama"}, "vocab_size": 32000, "model_name_or_path": "meta-llama/Llama-2-7b-hf"}
    assert read(tuned).model_type == "levanter's llama"
    with pytest.raises(UnsupportedConfigError, match="unrecognized configuration"):
        read({"configs": {"c4": {}}, "train_weights": {"c4": 1.0}})


def test_a_config_json_whose_model_is_a_section_is_no_spec() -> None:
    config = json.dumps(olmo_core(64, 2, 64, {"n_heads": 2}))
    assert is_config(Source("config.json", config))
    assert not is_config(Source("spec.json", json.dumps({"name": "x", "model": {"n_layers": 2}})))
    assert not is_config(Source("spec.json", json.dumps({"model": {"n_layers": 2}})))
    # a file that cannot be parsed is judged by the keys in its text
    assert is_config(Source("megatron.yaml", "MODEL_ARGS:\n  --num-layers: 2\n  --num-layers: 3\n"))
    assert not is_config(Source("spec.yaml", "name: x\nmodle: {n_layers: 2\n"))
    assert not is_config(Source("spec.yaml", ""))


EXAMPLES: tuple[Config, ...] = (
    NEOX, LLAMA_IN_NEOX, {"model": OLMO2, "optimizer": {"name": "adamw"}}, olmo_core(64, 2, 64, {"n_heads": 2}), NANOTRON,
    LEVANTER | {"model": {"type": "mixtral"}, "vocab_size": 97}, LLAMA3, DEEPSEEK,
    MISTRAL | {"moe": {"num_experts": 8, "num_experts_per_tok": 2}},
    {"model": {"name": "llama3", "flavor": "8B", "converters": []}, "training": {"seq_len": 8, "dtype": "float32"},
     "activation_checkpoint": {"mode": "full"}},
)  # fmt: skip


HOSTILE: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**30, 10**400, "", "wide", [], ["a"], [1], {}, {"a": 1}, {"name": 1})


def changed(config: Config, value: object) -> list[Config]:
    """Return the configurations with one value replaced, at any depth."""
    made = [{**config, key: value} for key in config]
    for key, inner in config.items():
        made += [{**config, key: one} for one in (changed(inner, value) if isinstance(inner, dict) else ())]
    return made


def refusal(config: Config) -> str:
    """Return the reason why a configuration is refused, or nothing if it is read."""
    try:
        assert read(config).model["d_model"] > 0
    except UnsupportedConfigError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_any_value_is_read_or_refused_in_one_line(value: object) -> None:
    reasons = [refusal(one) for example in EXAMPLES for one in changed(example, value)]
    assert all("\n" not in reason and len(reason) < 600 for reason in reasons)
