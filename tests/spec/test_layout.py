"""Clusters and layouts: degrees that do not divide are errors with their place and the nearest values that do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.spec.records import Spec

Heads = Callable[..., list[str]]
Small = Callable[[str], Spec]

ON_12 = "cluster: {device: H100-80GB-SXM, devices: 12, per_node: 4}\n"

# Lines after the minimal spec (7 lines: vocab_size 100, d_model 48, n_heads 4, n_layers 2, context_length 64), and its errors.
REFUSED = """\
cluster: {device: H101, devices: 1}
    8:19: error[device]: unknown device 'H101'; did you mean H100-80GB-SXM?
cluster: {device: {memory: 80gb}, devices: 1}
    8:28: error[unit]: cluster.device.memory must be a number and a unit, not '80gb'; for example 80GiB
cluster: {device: b200, devices: 1}
    8:19: error[device]: the kernels that PyTorch chooses on a B200-180GB-SXM were not measured; \
write training.device: h100 or a100 to plan with its kernels
cluster: {device: h100, devices: 1, inter_node: 400}
    8:49: error[type]: cluster.inter_node must be text, not 400; write inter_node: 400Gb/s
cluster: {device: h100, devices: 1, inter_node: 400Gb}
    8:49: error[unit]: cluster.inter_node must be a number and a unit, not '400Gb'; for example 400Gb/s
cluster: {device: h100, devices: 1, reserve: 2}
    8:46: error[type]: cluster.reserve must be text, not 2; write reserve: 2GiB
cluster: {device: h100, devices: 1, reserve: 90GiB}
    8:46: error[reserve]: reserve '90GiB' leaves nothing of a device's 81559 MiB; write at most 81558MiB
cluster: {device: h100, devices: 12}
    8:10: error[per-node]: per_node 8 does not divide devices 12; write 6 or 12, or devices: 8 or 16
    8:34: error[layout-missing]: cluster has 12 devices, but no layout divides the model among them; \
write layout: {data_parallel: fsdp}, or devices: 1
cluster: {device: h100, devices: 1, price: {per_device_hour: 2, source: x, date: 2026-05-01}}
    8:37: error[missing-key]: missing required key 'currency' in cluster.price; for example currency: USD
cluster: {device: h100, devices: 1, price: {per_device_hours: 2, currency: USD, source: x, date: 2026-05-01}}
    8:45: error[unknown-key]: unknown key 'per_device_hours' in cluster.price; did you mean 'per_device_hour'?
cluster: {devices: 1}
    8:1: error[missing-key]: missing required key 'device' in cluster
cluster: {device: {memory: 80GiB, name: x}, devices: 1}
    8:19: error[device]: the kernels that PyTorch chooses on a device with 80GiB were not measured; \
write training.device: h100 or a100 to plan with its kernels
    8:35: error[unknown-key]: unknown key 'name' in cluster.device; write it at the top of the spec
layout: {data_parallel: fsdp}
    8:9: error[layout-cluster]: layout requires a cluster; write cluster: {device: H100-80GB-SXM, devices: 8}
"""
# The same, with a cluster of 12 devices on line 8.
REFUSED_ON_12 = """\
layout: {tensor_parallel: 5}
    9:27: error[degree]: tensor_parallel 5 does not divide devices 12, n_heads 4, n_kv_heads 4, d_ff 192; write 4
layout: {tensor_parallel: 3}
    9:27: error[degree]: tensor_parallel 3 does not divide padded vocab_size 100, n_heads 4, n_kv_heads 4; write 2 or 4
layout: {tensor_parallel: 4, pipeline_parallel: 2}
    9:27: error[degree]: tensor_parallel 4 does not divide devices 12 / 2 = 6; write 2
    9:49: error[degree]: pipeline_parallel 2 does not divide devices 12 / 4 = 3; write 1
layout: {pipeline_parallel: 3}
    9:29: error[degree]: pipeline_parallel 3 does not divide n_layers 2; write 2
    9:29: error[microbatches]: schedule 1f1b requires at least 3 microbatches (pipeline_parallel), and there are 1; \
write gradient_accumulation: 3 or more
layout: {pipeline_parallel: 2}
    9:29: error[microbatches]: schedule 1f1b requires at least 2 microbatches (pipeline_parallel), and there are 1; \
write gradient_accumulation: 2 or more
layout: {expert_parallel: 2, sequence_parallel: true}
    9:27: error[expert-parallel]: expert_parallel requires experts, and the model has none; remove it
    9:49: error[tensor-parallel]: sequence_parallel requires tensor_parallel above 1; remove it, or write tensor_parallel: 2
layout: {imbalance: 1.5}
    9:21: error[expert-parallel]: imbalance requires expert_parallel above 1; remove it, or write expert_parallel: 2
layout: {context_parallel: 12}
    9:28: error[context-parallel]: context_parallel 12 requires sequences of a multiple of 24 tokens, and sequence_length is 64; \
write sequence_length: 48 or 72, or context_parallel: 4
layout: {context_parallel: 6, context_kind: ulysses}
    9:28: error[degree]: context_parallel 6 does not divide n_heads 4, n_kv_heads 4; write 4
    9:28: error[context-parallel]: context_parallel 6 requires sequences of a multiple of 6 tokens, and sequence_length is 64; \
write sequence_length: 60 or 66, or context_parallel: 4
layout: {context_parallel: 4, data_parallel: hsdp, shard_degree: 6}
    9:66: error[shard-degree]: shard_degree 6 is no multiple of context_parallel 4, whose devices share weights; \
write shard_degree: 4 or 12
layout: {data_parallel: hsdp}
    9:9: error[shard-degree]: data_parallel hsdp requires shard_degree; write shard_degree: 2
layout: {data_parallel: hsdp, shard_degree: 5}
    9:45: error[shard-degree]: shard_degree 5 does not divide the 12 data-parallel devices; write shard_degree: 4 or 6
layout: {shard_group: titan}
    9:23: error[shard-group]: shard_group requires data_parallel: fsdp or hsdp, not ddp; remove it, or write data_parallel: fsdp
layout: {virtual_stages: 2}
    9:26: error[virtual-stages]: virtual_stages requires schedule: interleaved or zero_bubble or zbv or dualpipev, not 1f1b; \
remove it, or write schedule: interleaved
layout: {first_stage_layers: 1}
    9:30: error[stage-layers]: first_stage_layers requires pipeline_parallel above 1; remove it, or write pipeline_parallel: 2
layout: {pipeline_parallel: 3, first_stage_layers: 2, schedule: gpipe}
    9:52: error[stage-layers]: first_stage_layers 2 of n_layers 2 leave 0 layers, which 2 other stages cannot have in equal parts; \
write first_stage_layers: 0
layout: {pipeline_parallel: 2, first_stage_layers: 0, last_stage_layers: 1, schedule: gpipe}
    9:74: error[stage-layers]: first_stage_layers 0 and last_stage_layers 1 of n_layers 2 leave 1 layers, which 0 other stages cannot \
have in equal parts; write last_stage_layers: 2
layout: {data_parallel: zero3}
    9:25: error[value]: invalid value 'zero3' for layout.data_parallel; did you mean 'fsdp'?
layout: {tp: 2}
    9:10: error[unknown-key]: unknown key 'tp' in layout; did you mean 'tensor_parallel'?
training: {global_batch_size: 30, batch_size: 2}
    8:43: error[layout-missing]: cluster has 12 devices, but no layout divides the model among them; \
write layout: {data_parallel: fsdp}, or devices: 1
    9:31: error[global-batch]: batch_size 2 * 12 data-parallel devices = 24 does not divide global_batch_size 30; write 24 or 48
"""


def table(text: str) -> list[tuple[str, list[str]]]:
    """Return the cases of a table: a line of a spec, and the indented lines of its errors."""
    cases: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(" "):
            cases[-1][1].append(f"x.yaml:{line.strip()}")
        else:
            cases.append((line, []))
    return cases


@pytest.mark.parametrize(("more", "errors"), table(REFUSED))
def test_a_cluster_that_does_not_exist_is_refused(heads: Heads, minimal: str, more: str, errors: list[str]) -> None:
    assert heads(minimal + more) == errors


@pytest.mark.parametrize(("more", "errors"), table(REFUSED_ON_12))
def test_a_layout_that_does_not_fit_the_cluster_is_refused(heads: Heads, minimal: str, more: str, errors: list[str]) -> None:
    assert heads(minimal + ON_12 + more) == errors


def test_the_data_parallel_degree_and_the_microbatches_follow(small: Small) -> None:
    text = ON_12 + "layout: {tensor_parallel: 2}\ntraining: {batch_size: 2, global_batch_size: 48, steps: 10}\n"
    training = small(text).scenarios[0].training
    assert training.layout is not None
    assert training.layout.data_degree == 12 // 2
    assert training.gradient_accumulation == 48 // (2 * 6)
    assert training.tokens == 10 * 48 * 64  # steps of the global batch of sequences of 64 tokens


def test_without_a_cluster_the_global_batch_is_that_of_one_device(small: Small) -> None:
    training = small("training: {batch_size: 2, global_batch_size: 6}\n").scenarios[0].training
    assert (training.gradient_accumulation, training.layout) == (3, None)


def test_the_kernels_are_those_of_the_cluster(small: Small) -> None:
    assert small("cluster: {device: h100, devices: 1}\n").scenarios[0].training.device == "h100"
    assert small("cluster: {device: {memory: 24GiB}, devices: 1}\ntraining: {device: a100}\n").scenarios[0].training.device == "a100"


def test_the_verdict_knows_the_memory_of_the_device(small: Small) -> None:
    layout = small("cluster: {device: {memory: 24GiB}, devices: 1, reserve: 1GiB}\ntraining: {device: a100}\n").scenarios[0].training.layout
    assert layout is not None
    assert (layout.cluster.memory_bytes, layout.cluster.reserve_bytes, layout.cluster.per_node) == (24 * 2**30, 2**30, 1)


def test_a_scenario_can_have_its_own_layout(small: Small) -> None:
    text = ON_12 + "layout: {data_parallel: fsdp}\nscenarios: [{name: wide, layout: {tensor_parallel: 4}}]\n"
    layouts = [scenario.training.layout for scenario in small(text).scenarios]
    assert [(one.tensor_parallel, one.data_parallel, one.data_degree) for one in layouts if one] == [(1, "fsdp", 12), (4, "fsdp", 3)]
