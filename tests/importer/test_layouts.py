"""Layouts of other programs: their degrees become those of a spec on a given cluster."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.importer.laid import Laid
from planner.importer.layouts import TABLE, layout_of
from planner.importer.reader import UnsupportedConfigError
from planner.spec.records import Layout

# The run of 175 B parameters in Table 3 of Korthikanti et al. 2022, with --num-layers-per-virtual-pipeline-stage: 96 / 8 / 4 = 3 stages.
MEGATRON = """\
torchrun pretrain_gpt.py --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 \
--micro-batch-size 1 --global-batch-size 64 --vocab-size 51200 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 \
--num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --bf16 --optimizer-cpu-offload
"""
TORCHTITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
global_batch_size = 256
[activation_checkpoint]
mode = "full"
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
enable_async_tensor_parallel = true
"""


def imported(tmp_path: Path, name: str, text: str, cluster: str) -> Layout:
    given, made = tmp_path / name, tmp_path / "made.yaml"
    given.write_text(text, encoding="utf-8")
    assert main(["import", str(given), "--cluster", cluster, "-o", str(made)]) == 0
    layout = planner.load(made).scenarios[0].training.layout
    assert layout is not None
    return layout


def test_arguments_of_megatron(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = imported(tmp_path, "train.sh", MEGATRON, "64xA100-80GB-SXM")
    assert (layout.cluster.devices, layout.cluster.device) == (64, "A100-80GB-SXM")
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.virtual_stages) == (8, 8, 3)
    assert (layout.sequence_parallel, layout.schedule, layout.data_degree) == (True, "interleaved", 1)
    said = capsys.readouterr().err
    assert "`optimizer_cpu_offload: True` has no key in a layout and is not planned" in said
    assert "on one device" not in said


def test_a_configuration_of_torchtitan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = imported(tmp_path, "train.toml", TORCHTITAN, "16xH100-80GB-SXM")
    training = planner.load(tmp_path / "made.yaml").scenarios[0].training
    assert (layout.data_parallel, layout.shard_degree, layout.shard_group) == ("hsdp", 8, "titan")  # 16 devices / 2 replicas
    assert (training.precision, training.gradient_dtype) == ("bf16-master", "fp32")  # mixed precision of FSDP2, reduced in float32
    assert training.gradient_accumulation == 8  # 256 sequences / (2 · 16)
    assert "enable_async_tensor_parallel" in capsys.readouterr().err


def test_stages_and_kinds_of_context_parallelism() -> None:
    config = {"parallelism": {"pipeline_parallel_degree": 4, "pipeline_parallel_schedule": "Interleaved1F1B", "context_parallel_degree": 2}}
    laid = layout_of("torchtitan", config, 32, Laid("H100-80GB-SXM", 64))
    found = {key: value for key, (value, _) in laid.settings.items()}
    # torchtitan 0.2: two stages per device by default, and weights that are gathered once per step in a pipeline
    assert found["virtual_stages"] == 2
    assert (found["schedule"], found["context_kind"], found["reshard_after_forward"]) == ("interleaved", "all_gather", "never")
    zero = layout_of("GPT-NeoX", {"model_parallel_size": 2, "zero_optimization": {"stage": 1}}, 32, Laid("A100-80GB-SXM", 8))
    assert {key: value for key, (value, _) in zero.settings.items()} == {
        "tensor_parallel": 2,
        "data_parallel": "zero1",
        "engine": "deepspeed",
    }
    with pytest.raises(UnsupportedConfigError, match="is not a positive integer"):
        layout_of("Megatron-LM", {"tensor_model_parallel_size": "two"}, 32, Laid("A100-80GB-SXM", 8))


@pytest.mark.parametrize(
    ("program", "config", "expected"),
    [
        # Megatron-Core, get_num_layers_to_build: (126 + 2) / 16 = 8 layers per stage, 7 beside the embedding and beside the loss
        ("Megatron-LM", {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}, (1, 7, 7)),
        ("Megatron-LM", {"decoder_first_pipeline_num_layers": 8, "decoder_last_pipeline_num_layers": 6}, (1, 8, 6)),
        # (126 + 2) / (16 * 4) = 2 layers per stage
        (
            "Megatron-LM",
            {
                "num_layers_per_virtual_pipeline_stage": 2,
                "account_for_embedding_in_pipeline_split": True,
                "account_for_loss_in_pipeline_split": True,
            },
            (4, 1, 1),
        ),
        # torchtitan, generate_llm_fqn_per_model_part: both count as a layer by default
        ("torchtitan", {"parallelism": {"pipeline_parallel_degree": 16}}, (1, 7, 7)),
        (
            "torchtitan",
            {
                "parallelism": {
                    "pipeline_parallel_degree": 16,
                    "pipeline_parallel_schedule": "Interleaved1F1B",
                    "pipeline_parallel_layers_per_stage": 4,
                }
            },
            (2, 3, 3),
        ),
    ],
)
def test_layers_of_the_first_and_the_last_stage(program: str, config: dict[str, Any], expected: tuple[int, ...]) -> None:
    config = config if program == "torchtitan" else {"pipeline_model_parallel_size": 16, **config}
    laid = layout_of(program, config, 126, Laid("H100-80GB-SXM", 16))
    found = {key: value for key, (value, _) in laid.settings.items()}
    assert (found.get("virtual_stages", 1), found["first_stage_layers"], found["last_stage_layers"]) == expected


@pytest.mark.parametrize(
    ("cluster", "message"),
    [("8", "invalid value '8' for --cluster"), ("8xNOTHING", "unknown device 'NOTHING'"), ("7xH100-80GB-SXM", "does not divide devices 7")],
)
def test_clusters_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: str, message: str) -> None:
    given = tmp_path / "train.sh"
    given.write_text(MEGATRON, encoding="utf-8")
    assert main(["import", str(given), "--cluster", cluster]) == 1
    assert message in capsys.readouterr().err


def test_each_key_of_a_layout_that_other_programs_have_is_in_the_table() -> None:
    keys = [one.key for one in TABLE]
    ours = {"cluster", "imbalance", "gradient_as_bucket_view", "engine"}  # without a setting of other programs
    assert sorted({*(key for key in keys if not key.startswith("training.")), *ours}) == sorted(one.name for one in fields(Layout))


CONFIG = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
# DeepSpeed's documentation of ZeRO-3 in transformers.
ZERO_3 = {
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "offload_param": {"device": "none"}, "overlap_comm": True,
        "contiguous_gradients": True, "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
        "zero_quantized_weights": True,
    },
    "gradient_accumulation_steps": "auto", "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
}  # fmt: skip
# examples/torch_native_parallelism/configs/nd.yaml of accelerate, with two replicas and recomputation.
ACCELERATE = """\
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
"""


def beside(tmp_path: Path, name: str, text: str) -> Layout:
    """Return the layout of a file beside a config.json, on 8 devices."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / name).write_text(text, encoding="utf-8")
    given, made = str(tmp_path / "config.json"), str(tmp_path / "made.yaml")
    assert main(["import", given, "--cluster", "8xH100-80GB-SXM", "--layout", str(tmp_path / name), "-o", made]) == 0
    layout = planner.load(made).scenarios[0].training.layout
    assert layout is not None
    return layout


def test_a_configuration_of_deepspeed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = beside(tmp_path, "ds_config.json", json.dumps(ZERO_3))
    training = planner.load(tmp_path / "made.yaml").scenarios[0].training
    assert (layout.engine, layout.data_parallel, layout.offload, layout.overlap_comm) == ("deepspeed", "fsdp", "optimizer", True)
    # transformers/integrations/deepspeed.py: hidden², 0.9 · hidden² and 10 · hidden
    assert (layout.reduce_bucket_size, layout.prefetch_bucket_size, layout.persistence_threshold) == (16777216, 15099494, 40960)
    assert (training.batch_size, training.gradient_accumulation) == (2, 4)  # 64 / (2 · 8)
    assert (training.precision, training.gradient_dtype, training.optimizer) == ("bf16-master", "bf16", "adamw")
    notes = capsys.readouterr().err
    assert "`zero_quantized_weights: True` has no key in a layout" in notes
    assert "sub_group_size" not in notes  # its default is planned


def test_a_configuration_of_accelerate(tmp_path: Path) -> None:
    layout = beside(tmp_path, "default_config.yaml", ACCELERATE)
    training = planner.load(tmp_path / "made.yaml").scenarios[0].training
    assert (layout.data_parallel, layout.shard_degree, layout.context_parallel) == (
        "hsdp",
        4,
        2,
    )  # 2 · 2 devices share a sequence's weights
    assert (layout.context_kind, layout.reshard_after_forward) == ("all_gather", "always")
    assert (training.recompute, training.precision, training.gradient_dtype) == ("full", "bf16-master", "bf16")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"fsdp_sharding_strategy": 2, "fsdp_offload_params": "true"}, ("fsdp", "never", "weights")),
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, ("fsdp", "auto", "none")),  # FSDP 1 keeps the root's weights
        ({"fsdp_sharding_strategy": "HYBRID_SHARD"}, ("hsdp", "auto", "none")),
        ({"fsdp_sharding_strategy": "NO_SHARD"}, ("ddp", "auto", "none")),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, ("fsdp", "never", "none")),
    ],
)
def test_strategies_of_fsdp(tmp_path: Path, section: dict[str, object], expected: tuple[str, str, str]) -> None:
    given = {"distributed_type": "FSDP", "num_machines": 2, "fsdp_config": section}
    layout = beside(tmp_path, "accelerate.json", json.dumps(given))
    assert (layout.data_parallel, layout.reshard_after_forward, layout.offload) == expected
    assert layout.shard_degree == (4 if expected[0] == "hsdp" else 1)  # the devices of a node


def test_arguments_of_a_trainer(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}), encoding="utf-8")
    text = "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\ndeepspeed: zero.json\nmax_length: 1024\n"
    assert imported(tmp_path, "sft.yaml", text, "8xH100-80GB-SXM").data_parallel == "zero2"
    training = planner.load(tmp_path / "made.yaml").scenarios[0].training
    assert (training.precision, training.gradient_dtype) == ("bf16-master", "bf16")
    (tmp_path / "made.yaml").unlink()
    text = "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\nfsdp: shard_grad_op auto_wrap offload\nmax_length: 1024\n"
    layout = imported(tmp_path, "sft.yaml", text, "8xH100-80GB-SXM")
    assert (layout.data_parallel, layout.reshard_after_forward, layout.offload) == ("fsdp", "never", "weights")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"zero_optimization": {"stage": [1]}}', "`zero_optimization.stage: [1]` is none of 0, 1, 2, 3"),
        ('{"zero_optimization": {"stage": 4}}', "`zero_optimization.stage: 4` is none of 0, 1, 2, 3"),
        ('{"zero_optimization": {"stage": 3, "stage3_max_live_parameters": "many"}}', "`stage3_max_live_parameters: 'many'` is not"),
        ("distributed_type: FSDP\nnum_processes: 4\n", "`num_processes: 4` contradicts --cluster 8xH100-80GB-SXM"),
        ("distributed_type: TPU\n", "expected one of DEEPSPEED, FSDP, MEGATRON_LM, MULTI_GPU"),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 9}\n", "`sharding_strategy: 9` is none of FULL_SHARD"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none.json}\n", "is not a file"),
        ("learning_rate: 1\n", "layouts are read from configurations of Megatron-LM"),
    ],
)
def test_files_that_divide_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "layout.yaml").write_text(text, encoding="utf-8")
    given = ["import", str(tmp_path / "config.json"), "--cluster", "8xH100-80GB-SXM", "--layout", str(tmp_path / "layout.yaml")]
    assert main(given) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_has_no_model_belongs_to_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ds_config.json").write_text(json.dumps(ZERO_3), encoding="utf-8")
    assert main(["import", str(tmp_path / "ds_config.json"), "--cluster", "8xH100-80GB-SXM"]) == 1
    assert "DeepSpeed's configuration has no model; give the model's, and this file with --layout" in capsys.readouterr().err
    assert main(["import", "config.json", "--layout", "ds_config.json"]) == 2
    assert "--layout requires --cluster" in capsys.readouterr().err
