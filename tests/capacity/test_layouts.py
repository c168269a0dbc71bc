"""Layouts and settings that are not modeled are refused with their name, never planned as something else."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.trace.unsupported import UnsupportedError

SPEC = """\
name: x
model: {{vocab_size: 96, context_length: 32, d_model: 32, n_layers: 4, n_heads: 4, head: {{tied: false}}}}
training: {{loss: cross_entropy, gradient_accumulation: 4, precision: fp32{training}}}
cluster: {{device: H100-80GB-SXM, devices: 8}}
layout: {{{layout}}}
"""


@pytest.mark.parametrize(
    ("layout", "training", "named"),
    [
        ("context_parallel: 2", "", "data_parallel ddp with context_parallel"),
        ("context_parallel: 2, data_parallel: fsdp", "", "precision fp32 with context_parallel"),
        ("context_parallel: 2, data_parallel: fsdp", ", implementation: pytorch-eager", "implementation pytorch-eager"),
        ("context_parallel: 2, data_parallel: zero1", "", "data_parallel zero1 with context_parallel"),
        (
            "context_parallel: 2, context_kind: ulysses, pipeline_parallel: 2, data_parallel: fsdp, reshard_after_forward: never",
            ", loss: cross_entropy_float32",
            "pipeline_parallel and context_kind ulysses with context_parallel",
        ),
        ("data_parallel: zero2", "", "layout.data_parallel zero2"),
        ("data_parallel: fsdp, offload: optimizer", "", "layout.offload optimizer with data_parallel fsdp"),
        ("data_parallel: ddp, offload: weights", "", "layout.offload weights with data_parallel ddp"),
        (
            "pipeline_parallel: 2, data_parallel: fsdp, shard_group: titan",
            ", loss: cross_entropy_float32",
            "shard_group titan and reshard_after_forward auto",
        ),
        ("data_parallel: fsdp", ", optimizer: muon", "optimizer muon"),
        ("data_parallel: ddp", ", round_allocations: true", "training.round_allocations"),
        ("data_parallel: ddp", ", implementation: megatron", "training.loss"),
        ("tensor_parallel: 2", "", "data_parallel ddp with tensor_parallel"),
        ("tensor_parallel: 2, data_parallel: fsdp", ", implementation: pytorch-eager", "implementation pytorch-eager"),
        ("tensor_parallel: 2, data_parallel: fsdp", ", dropout: 0.1", "dropout with tensor_parallel"),
        (
            "pipeline_parallel: 2, schedule: zero_bubble",
            ", loss: cross_entropy_float32, implementation: torchtitan",
            "implementation torchtitan beside schedule zero_bubble",
        ),
        ("pipeline_parallel: 2", ", loss: cross_entropy_float32, dropout: 0.1", "dropout with pipeline_parallel"),
        (
            "pipeline_parallel: 2, data_parallel: fsdp, schedule: interleaved, virtual_stages: 2",
            ", loss: cross_entropy_float32",
            "reshard_after_forward auto beside schedule interleaved",
        ),
        (
            "pipeline_parallel: 4, data_parallel: fsdp, reshard_after_forward: never, schedule: zero_bubble",
            ", loss: cross_entropy_float32",
            "schedule zero_bubble",
        ),
        ("pipeline_parallel: 4, tensor_parallel: 2, schedule: zero_bubble", ", loss: cross_entropy_float32", "tensor_parallel beside"),
        (
            "pipeline_parallel: 2, data_parallel: fsdp, schedule: zbv, virtual_stages: 2",
            ", loss: cross_entropy_float32, recompute: full",
            "recompute full beside schedule zbv",
        ),
    ],
)
def test_what_is_not_modeled_is_refused_by_name(tmp_path: Path, layout: str, training: str, named: str) -> None:
    path = tmp_path / "x.yaml"
    text = SPEC.format(layout=layout, training=training)
    path.write_text(text.replace("loss: cross_entropy, ", "") if "loss" in training else text, encoding="utf-8")
    with pytest.raises(UnsupportedError, match=named) as refused:
        planner.plan(path)
    assert "is not modeled yet" in str(refused.value)


def test_a_cluster_of_one_device_changes_no_figure(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    lines = SPEC.format(layout="", training="").splitlines()
    path.write_text("\n".join(lines[:3]), encoding="utf-8")
    alone = planner.plan(path, device="h100")
    path.write_text("\n".join([*lines[:3], "cluster: {device: H100-80GB-SXM, devices: 1}"]), encoding="utf-8")
    one = planner.plan(path)
    assert (one.memory, one.parameters, one.flops) == (alone.memory, alone.parameters, alone.flops)
    assert one.fleet is not None
    assert one.fleet.free_bytes == (81_559 << 20) - 2 * 2**30 - one.memory.peak_bytes  # devices.yaml; 2 GiB of reserve


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("head: {tied: true}", "head.tied, which torch.distributed.pipelining does not share between stages"),
        ("head: {tied: false, logit_softcap: 30}", "logit_softcap"),
        ("head: {tied: false}, embedding_dim: 16", "embedding_dim"),
        (
            "head: {tied: false}, attention: {qkv: separate}, layers: [{count: 3}, {count: 1, attention: {shared_kv: true}}]",
            "attention.shared_kv",
        ),
    ],
)
def test_what_stages_cannot_share_is_refused_by_name(tmp_path: Path, more: str, named: str) -> None:
    path = tmp_path / "x.yaml"
    text = SPEC.format(layout="pipeline_parallel: 2, schedule: gpipe", training=", loss: cross_entropy_float32")
    path.write_text(text.replace("loss: cross_entropy, ", "").replace("head: {tied: false}", more), encoding="utf-8")
    with pytest.raises(UnsupportedError, match=f"{named}.*with pipeline_parallel"):
        planner.plan(path)


@pytest.mark.parametrize("of", ["bert-base-cased", "t5-small", "mbart-large-50"])
def test_buckets_are_as_large_as_all_gradients_of_an_encoder(of: str) -> None:
    """Reducer's buckets live throughout, besides the gradients. Both devices run what one alone does."""
    training = {"batch_size": 1, "precision": "bf16", "implementation": "transformers"}
    alone = planner.plan({"name": of, "extends": f"catalog/{of}", "training": training | {"device": "h100"}}).memory
    two = {
        "name": of,
        "extends": f"catalog/{of}",
        "training": training,
        "cluster": {"device": "H100-80GB-SXM", "devices": 2},
        "layout": {"data_parallel": "ddp"},
    }
    both = planner.plan(two).memory
    trained = 2 * planner.plan(two).parameters.total  # bytes of bfloat16
    assert both.gradients_bytes == trained
    assert both.live.start == alone.live.start + trained
    assert both.peak_bytes == alone.peak_bytes + trained
    for kind in ("fsdp", "hsdp") if of != "bert-base-cased" else ():
        with pytest.raises(UnsupportedError, match=f"model.encoder with data_parallel {kind}"):
            planner.plan(two | {"layout": {"data_parallel": kind, **({"shard_degree": 1} if kind == "hsdp" else {})}})
