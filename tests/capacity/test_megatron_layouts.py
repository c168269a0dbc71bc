"""Layouts of Megatron-Core against parameters that it builds, memory that runs on GPUs recorded, and sums by hand."""

from __future__ import annotations

import ast
import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from planner.capacity.figures import Plan
from tests.capacity.megatron_runs import RUNS, large, peaks, planned

# Parameters of ranks that Megatron-Core 0.16.1 builds on a CPU (use_cpu_initialization, local modules). Layers have LayerNorm.
TABLE = Path(__file__).parent.parent / "data" / "megatron_core_params.csv"
BUILT = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def on_devices(model: Mapping[str, Any], training: Mapping[str, Any], layout: Mapping[str, Any], devices: int) -> Plan:
    """Plan a model on H100 devices."""
    return planned(model, {"mask_in_data_loader": False} | dict(training), layout, {"device": "H100-80GB-SXM", "devices": devices})


def built(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the model of a row of BUILT: plain GPT-2 with 64 learned positions, or a Llama model with LayerNorm, maybe with experts."""
    cfg = ast.literal_eval(row["cfg"])
    model = {"vocab_size": cfg["V"], "context_length": 64, "d_model": cfg["d"], "n_layers": cfg["L"], "n_heads": cfg["H"]}
    model |= {"d_ff": cfg["f"], "head": {"tied": row["untied"] == "False"}}
    if row["model"] == "gpt":
        return model
    model |= {"n_kv_heads": cfg["K"], "positions": "rope", "attention": {"bias": False}, "norm": {"type": "layernorm"}}
    model |= {"feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
    return model | ({"experts": {"count": cfg["E"], "top_k": 2, "d_ff": cfg["f"]}} if row["model"] == "moe" else {})


@pytest.mark.parametrize("row", BUILT, ids=lambda row: "-".join(row[key] for key in ("model", "world", "rank", "tp", "pp", "ep", "untied")))
def test_a_device_has_the_parameters_that_megatron_core_builds(row: dict[str, str]) -> None:
    world, pp, tp, ep = (int(row[name]) for name in ("world", "pp", "tp", "ep"))
    layout = {"tensor_parallel": tp, "sequence_parallel": tp > 1, "pipeline_parallel": pp, "expert_parallel": ep}
    plan = on_devices(built(row), {"gradient_accumulation": 4}, layout, world)
    assert plan.fleet is not None
    ranks = plan.fleet.ranks
    assert ranks[int(row["rank"]) * pp // world].params == int(row["params_local"])  # ranks of a stage follow one another


@pytest.mark.parametrize("number", range(len(RUNS)), ids=lambda number: RUNS[number]["run"].partition("/")[2])
def test_peaks_of_runs_on_gpus(number: int) -> None:
    # Small models of Megatron-LM's tests have a peak of 1 to 4 GiB, of which 50 MiB are 1 to 5 %. Those on A100 set 64 MiB of workspaces
    # (CUBLAS_WORKSPACE_CONFIG), not 16 as PyTorch does; there, the compiled loss allocates a third copy of the logits.
    run = RUNS[number]
    on_a100 = 0.22 if run["training"].get("cross_entropy_fusion") == "native" else 0.06
    most = 0.003 if large(run) else on_a100 if "a100" in run["run"] else 0.05
    for peak, recorded in peaks(number):
        assert abs(peak / recorded - 1) < most


def test_the_median_of_all_runs_on_gpus() -> None:
    assert median(abs(peak / recorded - 1) for number in range(len(RUNS)) for peak, recorded in peaks(number)) < 0.01


LLAMA: dict[str, Any] = {
    "vocab_size": 100, "pad_vocab_to_multiple_of": 16, "context_length": 64, "d_model": 64, "n_heads": 8, "n_kv_heads": 4, "head_dim": 16,
    "d_ff": 96, "positions": "rope", "norm": {"type": "rmsnorm"}, "head": {"tied": False}, "attention": {"bias": False},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
}  # fmt: skip


def kept(layout: Mapping[str, Any], devices: int, **training: object) -> int:
    """Return the bytes that one layer saves on a device."""
    four, five = (
        on_devices(LLAMA | {"n_layers": layers}, {"batch_size": 2} | training, layout, devices).memory.activations_bytes
        for layers in (4, 5)
    )
    return five - four


@pytest.mark.parametrize(
    ("layout", "devices", "norms", "heads", "width", "tokens", "more"),
    [
        # Bytes per token of a layer, d 64: the norms' inputs and outputs (4·2·d) and statistics (2·4); queries, keys, values and the output
        # of attention, and a float32 per query head; gate, up and their product of 96. And 16 bytes of a state of random numbers.
        ({}, 1, 1, 8 + 4 + 4 + 8, 96, 128, 8 * 4 * 128 + 16),
        # Tensor parallelism divides heads and width, sequence parallelism the norms as well.
        ({"tensor_parallel": 2}, 2, 1, 4 + 2 + 2 + 4, 48, 128, 4 * 4 * 128 + 16),
        ({"tensor_parallel": 2, "sequence_parallel": True}, 2, 0.5, 4 + 2 + 2 + 4, 48, 128, 4 * 4 * 128 + 16),
        # 8 devices, 4 KV heads: two have each.
        ({"tensor_parallel": 8, "sequence_parallel": True}, 8, 0.125, 1 + 1 + 1 + 1, 12, 128, 1 * 4 * 128 + 16),
        # A ring has a state of random numbers per step. Exchanged heads are saved in the kernel, and the output once more for the
        # projection, like the steps of gathered keys.
        ({"context_parallel": 2}, 2, 1, 8 + 4 + 4 + 8, 96, 64, 8 * 4 * 64 + 2 * 16),
        ({"context_parallel": 4, "context_kind": "ulysses"}, 4, 1, 8 + 4 + 4 + 8 + 8, 96, 32, 8 * 4 * 32 + 16),
        ({"context_parallel": 2, "context_kind": "all_gather"}, 2, 1, 8 + 4 + 4 + 8 + 8, 96, 64, 8 * 4 * 64 + 2 * 16),
    ],
)  # fmt: skip
def test_a_layer_saves_a_device_s_part(
    layout: dict[str, Any], devices: int, norms: float, heads: int, width: int, tokens: int, more: int
) -> None:
    each = norms * (4 * 2 * 64 + 2 * 4) + 2 * 16 * heads + 2 * 3 * width
    assert kept(layout, devices) == each * tokens + more


def test_the_distributed_optimizer_divides_padded_buffers() -> None:
    # One layer on 3 devices. Rows of 64: 112 of the vocabulary (7 · 16) in embedding and head, (8 + 2·4)·16 of queries, keys and values, 64
    # of 128 of the output, 192 of gate and up; 64 · 96 down; three norms of 64. All are multiples of 64 elements, so only the end is
    # padded, to a multiple of 3 and of 128.
    elements = 64 * (2 * 112 + 256 + 128 + 192 + 96 + 3)
    padded = -(-elements // 384) * 384
    memory = on_devices(LLAMA | {"n_layers": 1}, {}, {"data_parallel": "zero1"}, 3).memory
    assert (memory.weights_bytes, memory.gradients_bytes) == (2 * padded, 4 * padded)
    assert (memory.master_weights_bytes, memory.optimizer_bytes) == (4 * padded // 3, 8 * padded // 3)
    alone = on_devices(LLAMA | {"n_layers": 1}, {}, {"data_parallel": "ddp"}, 3).memory
    assert (alone.weights_bytes, alone.gradients_bytes, alone.optimizer_bytes) == (2 * elements, 4 * elements, 8 * elements)


def test_experts_have_groups_of_their_own() -> None:
    # 8 experts of 64 · 32 (gate, up, down) on 4 devices of 8: two each, 2 · 3 · 64 · 32 elements, whose optimizer state two devices share;
    # eight share the rest, as above but for feed-forward and with a router of 8 rows. Buffers end at multiples of 128 and of the devices.
    model = LLAMA | {"n_layers": 1, "experts": {"count": 8, "top_k": 2, "d_ff": 32}}
    plan = on_devices(model, {}, {"data_parallel": "zero1", "expert_parallel": 4}, 8)
    routed, others = 2 * 3 * 64 * 32, 64 * (2 * 112 + 256 + 128 + 8 + 3)
    buffers = routed, -(-others // 128) * 128
    assert plan.memory.weights_bytes == 2 * sum(buffers)
    assert plan.memory.optimizer_bytes == 8 * (buffers[0] // 2 + buffers[1] // 8)


def test_a_tied_embedding_is_on_the_first_and_the_last_stage() -> None:
    # 100 rows are padded to 128: to 64, a multiple of 16, on each of two devices.
    model = LLAMA | {"n_layers": 4, "head": {"tied": True}}
    plan = on_devices(model, {"gradient_accumulation": 4}, {"tensor_parallel": 2, "pipeline_parallel": 4}, 8)
    assert plan.fleet is not None
    first, second, third, last = (rank.params for rank in plan.fleet.ranks)
    assert (first - second, third - second, last - second) == (64 * 64, 0, 64 * 64 + 64)  # the last one has the final norm, too
    # The first stage, which has most in flight, sums float32 gradients of its part of the table with the last one's.
    assert [one.bytes for one in plan.fleet.traffic if (one.collective, one.spans) == ("all-reduce", 8)] == [4 * 64 * 64]
