"""planner verify: its output, and that only equality passes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import capacity, cli, load
from planner.capacity.figures import Plan
from planner.spec.records import Scenario, Spec

pytest.importorskip("torch", reason="the extra torch is not installed")

SPEC = """\
name: tiny
model: {vocab_size: 61, context_length: 16, d_model: 32, n_layers: 2, n_heads: 4}
training: {batch_size: 2}
scenarios:
  - {name: plain, precision: fp32}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_parameters_are_always_compared(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tiny)]) == 0
    out = capsys.readouterr().out
    assert "tiny   parameters  total, params" in out
    assert out.endswith("2 values compared with PyTorch for 1 model: 2 equal, 0 different.\n")


def tuned(folder: Path, training: str) -> str:
    path = folder / "tuned.yaml"
    path.write_text(SPEC.partition("training:")[0] + f"training: {training}\n", encoding="utf-8")
    return str(path)


def test_adapters_without_peft_are_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert cli.main(["verify", tuned(tmp_path, "{train: adapters, adapters: {rank: 4}}")]) == 2
    assert "peft cannot be imported" in capsys.readouterr().err


def test_all_checks_of_frozen_weights_are_those_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", tuned(tmp_path, "{train: [feed_forward], batch_size: 2}"), "--all", "--format", "json"]) == 0
    assert {row["check"] for row in json.loads(capsys.readouterr().out)} == {"parameters", "kept", "flops", "step"}


def test_padding_is_no_part_of_the_scaled_down_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    padded = tuned(tmp_path, "{implementation: transformers-eager, padding: true}")
    assert cli.main(["verify", padded, "--optimizer", "--loss", "--format", "json"]) == 0
    assert {row["check"] for row in json.loads(capsys.readouterr().out)} == {"parameters", "optimizer", "loss"}


def test_kernels_of_liger_are_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    path = tmp_path / "liger.yaml"
    llama = "extends: catalog/tinyllama-1.1b-chat-v1.0\nmodel: {n_layers: 2, vocab_size: 512}\n"
    path.write_text(f"name: liger\n{llama}training: {{implementation: transformers, liger: true, batch_size: 1}}\n", encoding="utf-8")
    assert cli.main(["verify", str(path), "--kept", "--flops"]) == 2
    shown = capsys.readouterr()
    assert "base, kept, flops cannot be measured: the kernels of liger-kernel run on GPUs alone" in shown.err
    assert "2 values compared" in shown.out  # parameters


def test_everything_agrees_in_every_scenario(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tiny), "--all", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["check"] for row in rows} == {"parameters", "kept", "flops", "step", "optimizer", "loss"}
    assert {row["scenario"] for row in rows if row["check"] == "kept"} == {"base", "plain"}
    assert all(row["difference"] == 0 for row in rows if row["check"] in ("parameters", "kept", "flops", "optimizer"))


def test_a_difference_is_a_finding(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = capacity.plan

    def wrong(spec: Spec, scenario: Scenario) -> Plan:
        plan = right(spec, scenario)
        first, *others = plan.parameters.weights
        longer = replace(first, shape=(first.shape[0] + 1, *first.shape[1:]))
        return replace(plan, parameters=replace(plan.parameters, weights=(longer, *others), total=plan.parameters.total + first.shape[1]))

    monkeypatch.setattr(capacity, "plan", wrong)
    assert cli.main(["verify", str(tiny), "--format", "md"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "| tiny | parameters | total, params | 27,968 | 27,936 | &#43;32 | DIFFERS |" in lines
    assert "| tiny | parameters | model.embed_tokens.weight &#91;62, 32&#93;, tensors | 1 | 0 | &#43;1 | DIFFERS |" in lines


def test_models_that_cannot_be_built_are_listed_and_never_pass(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tiny), "--kept", "--set", "training.implementation=megatron"]) == 2
    assert "implementation megatron" in capsys.readouterr().err


def test_prediction_layers_are_listed_and_never_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "predicts.yaml"
    sizes = "{vocab_size: 61, context_length: 16, d_model: 32, n_layers: 2, n_heads: 4, prediction: {}}"
    path.write_text(f"name: predicts\nmodel: {sizes}\ntraining: {{count_prediction: true}}\n", encoding="utf-8")
    assert cli.main(["verify", str(path)]) == 2
    assert "prediction layers" in capsys.readouterr().err
    assert cli.main(["verify", str(path), "--set", "training.count_prediction=false"]) == 0


def test_a_missing_torch_is_reported(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert cli.main(["verify", str(tiny)]) == 2
    assert "pip install torch" in capsys.readouterr().err


def test_an_old_torch_is_reported(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "2.4.1+cu121")
    assert cli.main(["verify", str(tiny)]) == 2
    assert "PyTorch 2.4.1+cu121 is too old" in capsys.readouterr().err


def test_a_scaled_down_copy_keeps_every_switch() -> None:
    from planner.verify.scaled_down import scaled_down

    for path in sorted((Path(__file__).parents[2] / "specs").glob("*.yaml")):
        model = load(path).model
        small = scaled_down(model)
        assert [run.layers[0].norm for run in small.runs] == [run.layers[0].norm for run in model.runs], path
        assert [run.layers[0].block for run in small.runs] == [run.layers[0].block for run in model.runs], path
        assert small.tied_head == model.tied_head
        assert sum(run.count * len(run.layers) for run in small.runs) == small.n_layers


@pytest.mark.parametrize(
    "setting",
    [
        "loss=linear_cross_entropy",
        "loss=linear_cross_entropy_chunked",
        "loss=cross_entropy_shifted",
        "gradient_accumulation=4",
        "ema=fp32",
        "ema=bf16",
        "optimizer=sgd",
        "optimizer=sgd-momentum",
        "optimizer=lion",
    ],
)
def test_every_metric_of_a_step_agrees(setting: str, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if setting == "optimizer=lion":
        pytest.importorskip("lion_pytorch", reason="lion-pytorch is not installed")
    assert cli.main(["verify", str(tiny), "--kept", "--flops", "--step", "--set", f"training.{setting}"]) == 0
    assert " 0 different." in capsys.readouterr().out


def test_the_class_of_transformers_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    spec = tmp_path / "gpt2.yaml"
    spec.write_text(SPEC.replace("name: tiny", "name: gpt2"), encoding="utf-8")
    assert cli.main(["verify", str(spec), "--against", "transformers"]) == 0
    assert "4 values compared with PyTorch for 1 model: 4 equal" in capsys.readouterr().out


def test_a_model_without_a_class_is_reported(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tiny), "--against", "transformers", "--set", "model.embedding_norm=true"]) == 2
    assert "no equivalent transformers class" in capsys.readouterr().err


def test_a_real_step_needs_a_gpu(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["verify", str(tiny), "--device", "cuda"]) == 2
    assert "finds no GPU" in capsys.readouterr().err


# Small odd sizes: experts with latent attention, a hybrid of attention and a gated delta rule, a state-space model.
CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek_v3": {
        "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 80, "moe_intermediate_size": 20,
        "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
        "kv_lora_rank": 12, "q_lora_rank": 20, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 7, "vocab_size": 97,
    },
    "qwen3_next": {
        "hidden_size": 48, "num_hidden_layers": 8, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 97,
        "intermediate_size": 80, "moe_intermediate_size": 20, "num_experts": 5, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 28, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 6,
    },
    "mamba2": {
        "hidden_size": 48, "num_hidden_layers": 3, "num_heads": 6, "head_dim": 16, "state_size": 11, "n_groups": 3, "vocab_size": 97,
    },
    "qwen3_vl": {  # the language model inside one of images
        "text_config": {
            "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 80,
            "head_dim": 10, "vocab_size": 97,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_any_config_is_compared_with_its_own_class(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": kind, **CONFIGS[kind]}), encoding="utf-8")
    assert cli.main(["verify", str(config)]) == 0
    assert "1 value compared with PyTorch for 1 model: 1 equal" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_config_of_another_model_is_a_difference(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "mamba2", **CONFIGS["mamba2"]}), encoding="utf-8")
    assert cli.main(["verify", str(tiny), "--config", str(config)]) == 1
    assert "total, Mamba2ForCausalLM" in capsys.readouterr().out


EXPERTS = {  # grouped queries; widths are multiples of 8, as grouped matrix products in 16 bits require
    "mixtral": {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 97,
        "intermediate_size": 40, "num_local_experts": 5, "num_experts_per_tok": 2, "max_position_embeddings": 64,
    },
    "qwen3_moe": {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "vocab_size": 97,
        "intermediate_size": 80, "moe_intermediate_size": 24, "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True,
        "max_position_embeddings": 64,
    },
    "deepseek_v3": {
        "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 80,
        "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "kv_lora_rank": 12, "q_lora_rank": 20, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10,
        "v_head_dim": 7, "vocab_size": 97, "max_position_embeddings": 64,
    },
}  # fmt: skip


@pytest.mark.parametrize(("batch", "length"), [(3, 37), (1, 8), (2, 1)])
@pytest.mark.parametrize("kind", EXPERTS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_experts_are_compared_with_their_class(
    kind: str, batch: int, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": kind, **EXPERTS[kind]}), encoding="utf-8")
    settings = ("implementation=transformers", f"batch_size={batch}", f"sequence_length={length}", "precision=bf16-autocast")
    options = [option for setting in settings for option in ("--set", f"training.{setting}")]
    assert cli.main(["verify", str(config), "--kept", "--flops", *options]) == 0, capsys.readouterr()


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_model_that_pytorch_cannot_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "mixtral", **EXPERTS["mixtral"], "intermediate_size": 36}), encoding="utf-8")
    settings = ("--set", "training.implementation=transformers", "--set", "training.precision=bf16")
    assert cli.main(["verify", str(config), "--kept", *settings]) == 2
    assert "PyTorch does not run it: " in capsys.readouterr().err
