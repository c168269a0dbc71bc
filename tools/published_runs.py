"""Published training runs as terms of a step time: each is planned as a spec, and its terms are those of the slowest device.

``tests/data/published_runs.yaml`` has the runs with their layouts, links, and what was assumed. Where the planner does not model a run, a
neighbor is planned: layers are added until stages are even; windows beside tensor, pipeline or expert parallelism are traced on one device;
fully sharded runs and those of JAX are planned as PyTorch's, products of fp8 and fp4 as those of bf16, which move to the lower rate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml

import planner
from planner import devices
from planner.capacity.figures import Plan, RankPeak, Work
from planner.capacity.work import work
from planner.devices import Device
from planner.spec.precision import Dtype
from planner.spec.records import Cluster, Layout
from planner.time.kernels import Kernel, slowdown
from planner.time.rates import Low, Rates, rates
from planner.time.terms import Seconds, Setting, by_group, terms, turns
from planner.trace.decoder import trace
from planner.trace.nodes import Flops, Node, Operation
from planner.trace.sizes import hinted

PUBLISHED = Path(__file__).parent.parent / "tests" / "data" / "published_runs.yaml"
RECOMPUTE = {"selective": "selective", "selective-op": "selective", "none": "none"}  # others: all layers
HIDES = ("megatron-bridge", "megatron-202", "megascale", "meta", "maxtext", "llm.c", "torchtitan")
KERNELS: Mapping[str, Kernel] = {"flash": "flash-1", "flash2": "flash-2"}
SWEEPS = ("hag", "bs-", "simumax", "mb-")  # groups of one model on one cluster; other groups have several models
LOW: Mapping[str, Low] = {"fp8": "fp8", "nvfp4": "nvfp4", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its terms at full rates, measured seconds per step, and what errors are grouped by."""

    name: str
    source: str
    sweep: str
    device: str
    kind: str  # as planner.time.estimate.kind_of
    layout: tuple[Any, ...]
    terms: Seconds
    seconds: float
    link: str


def runs(path: Path = PUBLISHED, known: Collection[str] = ()) -> Iterator[Run]:
    """Yield the runs of a file that have a step time and a complete layout, but for known ones."""
    book = _read(path)
    others = {entry["name"]: _device(entry) for entry in _read(PUBLISHED)["devices"]}
    plans: dict[str, Plan] = {}
    for run in book["runs"]:
        if run["grade"] in "AB" and "step_s" in run["reported"] and run.get("micro_batch") and "d_model" in book["models"][run["model"]]:
            if run["id"] in known or run["global_batch"] % (run["micro_batch"] * run["dp"]):
                continue  # also: devices that share a sequence in a way that is not published
            yield _run(run, book["models"][run["model"]], others, plans)


def campaigns() -> Iterator[tuple[Run, float]]:
    """Yield whole trainings as runs whose step takes as long as its part of all device hours, and these hours."""
    book = _read(PUBLISHED)
    others = {entry["name"]: _device(entry) for entry in book["devices"]}
    for run in book["campaigns"]:
        steps = run["tokens"] / (run["global_batch"] * run["seq"])
        of_step = {"step_s": run["device_hours"] * 3600 / run["gpus"] / steps}
        yield _run({**run, "reported": of_step}, book["models"][run["model"]], others, {}), run["device_hours"]


def _read(path: Path) -> Any:  # noqa: ANN401 - a file of runs
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe


def _run(run: Mapping[str, Any], model: Mapping[str, Any], others: Mapping[str, Device], plans: dict[str, Plan]) -> Run:
    device = others.get(run["device"]) or devices.find(run["device"])
    assert device is not None, run["device"]  # noqa: S101 - the file has all of them
    written, uneven = spec(run, model)
    key = json.dumps(written, sort_keys=True)
    plan = plans.get(key) or planner.plan({"name": run["id"].replace("_", "-"), **written})
    plans[key] = plan
    full = _rates(run, device)
    microbatches, both_ways = run["global_batch"] // (run["micro_batch"] * run["dp"]), run.get("schedule") == "dualpipe"
    schedule = Layout(Cluster("", 0, 1), schedule="dualpipev" if both_ways else "1f1b")
    of = Setting(
        microbatches=microbatches,
        turns=turns(schedule, microbatches, run["pp"], run["vp"]),
        tensor=run["tp"],
        context=run["cp"],
        experts=run["ep"],
        sharing=run["dp"] * run["cp"],
        per_node=run["gpus_per_node"],
        gathers=run["zero"] == 3,  # noqa: PLR2004 - ZeRO-3
        overlaps=run["stack"].startswith(HIDES) and run["stack"] != "megatron-2021",
        kernel=slowdown(_kernel(run), device.name),
        top_k=model.get("moe", {}).get("top_k", 1),
        hides_exchange=both_ways,
    )
    assert plan.fleet is not None  # noqa: S101 - it has a cluster
    ranks = plan.fleet.ranks[:-1] if uneven and len(plan.fleet.ranks) > 1 else plan.fleet.ranks
    ratio, norms = _window_ratio(run, model, plans), _eager_norms(run, model, plans)
    every = [_terms(rank, run, of, full, ratio, plan) for rank in ranks]
    for one in every:
        one["moved"] += norms / full.memory * of.turns
    slowest = max(every, key=lambda one: sum(one.values()))
    seconds, kind = run["reported"]["step_s"], _kind(run, model)
    sweep = run["group"] if run["group"].startswith(SWEEPS) else "-".join(str(run[key]) for key in ("source", "model", "seq", "precision"))
    return Run(run["id"], run["source"], sweep, device.name, kind, _layout(run), slowest, seconds, run["link"])


def _terms(rank: RankPeak, run: Mapping[str, Any], of: Setting, full: Rates, ratio: float, plan: Plan) -> Seconds:
    done: Work[Any] = replace(cast("Work[Any]", rank.work), attention_flops=rank.work.attention_flops * ratio)
    if full.low:
        low = {"low_flops": done.linear_flops, "low_expert_flops": done.expert_flops}
        done = replace(done, linear_flops=0, expert_flops=0, **low)
    sent = by_group(rank)
    if run["stack"] == "maxtext":  # FSDP2 pads experts to the number of devices, JAX divides another dimension
        share = min(1.0, plan.parameters.total / (rank.params * of.sharing))
        sent = {key: size * (share if key[0] == "data" else 1) for key, size in sent.items()}
    return terms(done, sent, rank.updated_bytes, of, full)


def _kernel(run: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a run; MPT's was FlashAttention 1 in Triton."""
    return "triton" if run["stack"].startswith("fsdp-2023") else KERNELS.get(run["attention"], "best")


def _rates(run: Mapping[str, Any], device: Device) -> Rates:
    """Return the rates of a run. A device without rates in 8 bits computes with those in 16, and nvfp4 is as fast as mxfp4."""
    dtype: Dtype = "bfloat16" if "bf16" in device.tflops else "float16"
    low = LOW.get(run["precision"])
    if low and low not in device.tflops:
        device = replace(device, tflops={**device.tflops, low: device.tflops.get("mxfp4", device.tflops["bf16"])})
    far = run.get("inter_GBps_per_gpu")
    return rates(device, dtype, far * 1e9 if far else None, low)


def _device(entry: Mapping[str, Any]) -> Device:
    return Device(entry["name"], 1 << 40, tflops=entry["tflops"], gb_per_s=entry["gb_per_s"], link_gb_per_s=entry["link_gb_per_s"])


def _kind(run: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    return f"{'experts' if 'moe' in model else 'dense'}, {'8 bits or fewer' if run['precision'] in LOW else '16 bits'}"


def _layout(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(run[key] for key in ("tp", "pp", "vp", "cp", "micro_batch", "recompute", "sp", "attention", "stack"))


def spec(run: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the spec of a run without a name, and whether layers were added to make stages even."""
    implementation = _implementation(run, model)
    by_megatron = implementation.startswith("megatron")
    training = {
        "batch_size": run["micro_batch"],
        "sequence_length": run["seq"],
        "global_batch_size": run["global_batch"],
        "precision": "fp16-master" if run["precision"] == "fp16" else "bf16-master",
        "gradient_dtype": "fp32",
        "implementation": implementation,
        "device": "a100" if run["device"][:4] in ("A100", "V100") else "h100",
        "recompute": RECOMPUTE.get(run["recompute"], "full"),
    }
    layout = {
        "tensor_parallel": run["tp"],
        "sequence_parallel": run["tp"] > 1 and (run["sp"] or (by_megatron and "moe" in model)),
        "pipeline_parallel": run["pp"],
        "context_parallel": run["cp"],
        "expert_parallel": run["ep"],
        "data_parallel": "fsdp" if not by_megatron else "zero1" if run["zero"] and implementation == "megatron-core" else "ddp",
    }
    if run["pp"] > 1:
        layout |= {"virtual_stages": run["vp"], "schedule": "interleaved"} if run["vp"] > 1 else {"schedule": "1f1b"}
    if by_megatron:
        if implementation == "megatron-core" and not run["attention"].startswith("flash"):
            training["attention_kernel"] = "math"
        if "moe" in model and run["tp"] > 1 and run["gpus"] // run["pp"] % (run["ep"] * run["tp"]):
            layout["expert_tensor_parallel"] = 1
    else:
        training |= {"optimizer_kernel": "fused", "loss": "cross_entropy_float32"}
        training["recompute"] = "none" if run["tp"] > 1 and training["recompute"] == "selective" else training["recompute"]
        layout |= {"reshard_after_forward": "never"} if run["pp"] > 1 else {}
    per_node = max(size for size in range(1, min(run["gpus_per_node"], run["gpus"]) + 1) if run["gpus"] % size == 0)
    cluster = {"device": {"memory": "100TiB"}, "devices": run["gpus"], "per_node": per_node}
    layers = -(-model["layers"] // (run["pp"] * run["vp"])) * run["pp"] * run["vp"]
    written = {"model": _model(model, run["seq"], layers), "training": training, "cluster": cluster, "layout": layout}
    return written, layers != model["layers"]


def _implementation(run: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Return the implementation that is nearest to a run's program."""
    fused = run["attention"].startswith("flash")
    if run["pp"] > 1 and run["cp"] > 1:
        return "megatron-core"
    if run["zero"] == 3 or run["stack"].startswith("torchtitan"):  # noqa: PLR2004 - ZeRO-3
        return "pytorch" if fused else "pytorch-eager"
    return "megatron-core" if fused or model["gated"] else "megatron"


def _model(model: Mapping[str, Any], sequence: int, layers: int) -> dict[str, Any]:
    """Return the model of a spec: GPT-2's kind of layers, or Llama's if the feed-forward is gated."""
    gated, experts = model["gated"], model.get("moe")
    written: dict[str, Any] = {
        "vocab_size": model["vocab"],
        "context_length": sequence,
        "d_model": model["d_model"],
        "n_layers": layers,
        "n_heads": model["heads"],
        "d_ff": model["d_ff"],
        "feed_forward": {"type": "gated", "activation": "silu", "bias": False} if gated else {"type": "plain", "activation": "gelu"},
        "norm": {"type": "rmsnorm" if gated else "layernorm"},
        "positions": "rope" if gated else "learned",
        "head": {"tied": model["tied"]},
    }
    if "mla" in model:
        ranks = dict(zip(("q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim"), model["mla"], strict=True))
        written |= {"mixer": "latent_attention", "latent_attention": ranks}
    else:
        written |= {"n_kv_heads": model["kv_heads"], "head_dim": model["head_dim"], "attention": {"bias": not gated}}
    if experts:
        shared = {"shared": {"d_ff": experts["shared"] * experts["d_ff"]}} if experts["shared"] else {}
        written["experts"] = {"count": experts["experts"], "top_k": experts["top_k"], "d_ff": experts["d_ff"], **shared}
        if dense := experts["dense_layers"]:
            written["layers"] = [{"count": dense, "experts": "none"}, {"count": layers - dense}]
    return written


def _eager_norms(run: Mapping[str, Any], model: Mapping[str, Any], plans: dict[str, Plan]) -> float:
    """Return the bytes that norms move for a microbatch beyond fused ones, in programs whose norms are a chain of operators."""
    if run["stack"] != "aleph-scaling-2023":
        return 0.0
    moved: list[float] = []
    for implementation in ("transformers", "pytorch"):
        training = {"batch_size": run["micro_batch"], "sequence_length": run["seq"], "implementation": implementation, "device": "a100"}
        training |= {"precision": "bf16-master", "recompute": RECOMPUTE.get(run["recompute"], "full")}
        made = _model(model, run["seq"], model["layers"])
        written = {"model": made, "training": training, "cluster": {"device": {"memory": "100TiB"}, "devices": 1}}
        key = json.dumps(written, sort_keys=True)
        plans[key] = plan = plans.get(key) or planner.plan({"name": "norms", **written})
        forward = trace(plan.model, plan.training)
        moved.append(hinted(work([_only_norms(node) for node in forward.nodes]).moved_bytes))
    return float((moved[0] - moved[1]) / run["pp"] / (run["tp"] if run["sp"] else 1))


def _only_norms(node: Node) -> Node:
    """Return a node without operators of other components."""
    if isinstance(node, Operation):
        return node if node.component == "norm" else replace(node, outputs=(), flops=Flops())
    return replace(node, body=tuple(_only_norms(one) for one in node.body))


def _window_ratio(run: Mapping[str, Any], model: Mapping[str, Any], plans: dict[str, Plan]) -> float:
    """Return the attention of a model in which every other layer has a window, relative to one without windows, on one device."""
    if "window" not in model:
        return 1.0
    works: list[int] = []
    for layers in ({}, {"layers": [{"count": model["layers"] // 2, "layers": [{"attention": {"window": model["window"]}}, {}]}]}):
        training = {"batch_size": 1, "sequence_length": run["seq"], "device": "h100"}
        made = _model(model, run["seq"], model["layers"]) | layers
        written = {"model": made, "training": training, "cluster": {"device": {"memory": "100TiB"}, "devices": 1}}
        key = json.dumps(written, sort_keys=True)
        plans[key] = plan = plans.get(key) or planner.plan({"name": "window", **written})
        assert plan.fleet is not None  # noqa: S101 - it has a cluster
        works.append(plan.fleet.ranks[0].work.attention_flops)
    return works[1] / works[0]


def by_sweep(every: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each sweep."""
    found: dict[str, list[Run]] = {}
    for one in every:
        found.setdefault(one.sweep, []).append(one)
    return found
