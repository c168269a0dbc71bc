"""Layouts of other programs: their degrees become those of a spec on a given cluster."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
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
    laid = layout_of("torchtitan", config, 32, "H100-80GB-SXM", 64)
    found = {key: value for key, (value, _) in laid.settings.items()}
    # torchtitan 0.2: two stages per device by default, and weights that are gathered once per step in a pipeline
    assert found["virtual_stages"] == 2
    assert (found["schedule"], found["context_kind"], found["reshard_after_forward"]) == ("interleaved", "allgather", "never")
    zero = layout_of("GPT-NeoX", {"model_parallel_size": 2, "zero_optimization": {"stage": 1}}, 32, "A100-80GB-SXM", 8)
    assert {key: value for key, (value, _) in zero.settings.items()} == {
        "tensor_parallel": 2,
        "data_parallel": "zero1",
        "engine": "deepspeed",
    }
    with pytest.raises(UnsupportedConfigError, match="is not a positive integer"):
        layout_of("Megatron-LM", {"tensor_model_parallel_size": "two"}, 32, "A100-80GB-SXM", 8)


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
    laid = layout_of(program, config, 126, "H100-80GB-SXM", 16)
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
    ours = {"cluster", "imbalance", "shard_group", "gradient_as_bucket_view", "engine"}  # without a setting of other programs
    assert sorted({*keys, *ours} - {"training.global_batch_size"}) == sorted(one.name for one in fields(Layout))
