"""Training steps on several devices as PyTorch 2.13 runs them: the table and the plans of its rows.

Rows of ``tests/data/fleet_steps.csv`` are one rank each: PyTorch's real code on a fake process group, which allocates every buffer and
sends nothing; fake tensors on a fake GPU, or real ones on a CPU (kinds ddp_ep and hsdp_tp: by the allocations that torch.profiler records).

- ``data``: DDP, ZeroRedundancyOptimizer, FSDP2; ``shard``: ranks of a copy under HSDP; ``group``, ``reshard``: FSDP2's groups; ``offload``:
  its parts in host memory; ``prec`` mp: its mixed precision; ``bucket_view``: gradient_as_bucket_view.
- ``tp``, ``sp``: DTensor's tensor and sequence parallelism; ``loss_parallel``: its loss on parts of the vocabulary.
- ``ep``: devices that share experts, with balanced routing; family moe: plain GPT-2 with top-k gated experts as batched products. Under
  data none, nothing reduces the gradients of what devices do not share. Under ddp, experts are wrapped for the ranks that have the same
  ones, if there are several, and ignored by the other wrapper.
- ``cp``, ``cp_kind``, ``cp_rotate``: context_parallel and its rotation, in ``tests/data/context_steps.csv``. Ulysses
  is DeepSpeed's DistributedAttention, whose rows divide token ids before. Rows after the first eleven were measured without the fake
  tensors on which DTensor computes shapes, and without the copies of what a collective has filled, which use no memory on a GPU;
  with ``sp`` they have no ``peak_opt``, for which the other rows count such a copy.
- ``pp`` stages, ``sched``, ``inflight``: pipelining. ``micro``: microbatches, or accumulated passes without synchronization until the last.

Other columns are those of ``training_steps``. Bytes are of the second step: ``param_bytes`` with padding, ``optim_bytes`` with the step
counters of all weights, ``start_bytes`` before the first pass, ``after_*`` between the phases, ``peak_*`` in them; collectives by the whole
tensors that they gather, scatter, reduce, broadcast or send.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from planner.capacity.activations import saved_for_backward
from planner.capacity.figures import Memory
from planner.capacity.parameters import parameters
from planner.capacity.pipeline import in_flight
from planner.capacity.plan import memory
from planner.capacity.shares import Share, alone, share
from planner.spec.records import Cluster, Experts, Layout, Model, Run, Training
from planner.trace.decoder import Trace, of_stages, trace
from planner.trace.sizes import Size, hinted, maximum
from planner.trace.stages import stages
from tests.capacity import training_steps

DATA = Path(__file__).parent.parent / "data"
TABLES = (DATA / "fleet_steps.csv", DATA / "context_steps.csv")
PRECISIONS = {"fp32": "fp32", "bf16": "bf16", "mp": "bf16-master"}
RESHARD = {"auto": "auto", "true": "always", "false": "never"}
SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved"}
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "send", "recv")
NAMES = {"receive": "recv"}
WITHOUT = {"ep": "1", "cp": "1", "cp_kind": "ring", "cp_rotate": "allgather"}
CONTEXT_KINDS = {("ring", "alltoall"): "ring", ("ring", "allgather"): "all_gather", ("ulysses", "allgather"): "ulysses"}
WIDTH = 4  # bytes of float32
OUTSIDE = {"sdpa_backend": "", "dropout": "0", "loss": "ce", "keep_logits": "False", "attn": "", "tied": "False"}


def cases() -> list[dict[str, str]]:
    """Return the rows of the tables."""
    found: list[dict[str, str]] = []
    for table in TABLES:
        with table.open(encoding="utf-8", newline="") as file:
            found += [{**WITHOUT, **row} for row in csv.DictReader(file)]
    return found


def layout(case: dict[str, str]) -> Layout:
    """Return the layout of a case."""
    cluster = Cluster("device", 80 << 30, int(case["dp"]) * int(case["tp"]) * int(case["pp"]) * int(case["cp"]))
    return Layout(
        cluster,
        tensor_parallel=int(case["tp"]),
        sequence_parallel=case["tp"] != "1" and case["sp"] == "True",
        loss_parallel=case["loss_parallel"] == "True",
        pipeline_parallel=int(case["pp"]),
        virtual_stages=int(case["vpp"]),
        expert_parallel=int(case["ep"]),
        context_parallel=int(case["cp"]),
        context_kind=CONTEXT_KINDS[case["cp_kind"], case["cp_rotate"]],  # type: ignore[arg-type]  # the spec language has these names
        schedule=SCHEDULES[case["sched"]],  # type: ignore[arg-type]
        data_parallel="ddp" if case["data"] == "none" else case["data"],  # type: ignore[arg-type]  # the spec language has these names
        shard_degree=int(case["shard"] or 1),
        shard_group=case["group"],  # type: ignore[arg-type]
        reshard_after_forward=RESHARD[case["reshard"]],  # type: ignore[arg-type]
        gradient_as_bucket_view=case["bucket_view"] == "True",
        offload="weights" if case["offload"] == "True" else "none",
    )


def setting(case: dict[str, str]) -> tuple[Model, Training]:
    """Return the model and the training of a case. The loss is computed outside the model."""
    cfg = {"nctx": int(case["n"]), **json.loads(case["cfg"])}
    family = "nano" if case["family"] == "moe" else case["family"]
    known = {**OUTSIDE, **case, "family": family, "cfg": json.dumps(cfg), "ckpt": str(case["ckpt"] == "full"), "prec": "bf16"}
    training = replace(
        training_steps.training(known),
        precision=PRECISIONS[case["prec"]],  # type: ignore[arg-type]
        gradient_dtype=case["prec"] if case["prec"] in ("fp32", "bf16") else case["reduce_dtype"],  # type: ignore[arg-type]
        loss="cross_entropy_float32",
        gradient_accumulation=int(case["micro"]),
        layout=layout(case),
    )
    model = training_steps.model(known)
    return (with_experts(model, cfg), replace(training, experts_kernel="batched")) if case["family"] == "moe" else (model, training)


def with_experts(model: Model, cfg: dict[str, int]) -> Model:
    """Return a model with experts in place of its feed-forwards."""
    layers = replace(
        model.runs[0].layers[0], feed_forward=None, experts=Experts(cfg["E"], cfg["k"], cfg["dff"], normalize=False, scores_dtype="compute")
    )
    return replace(model, runs=(Run(cfg["L"], (layers,)),))


def figures(case: dict[str, str]) -> dict[str, Size]:
    """Return the planned values of the table's columns."""
    model, training = setting(case)
    pp, each = int(case["pp"]), int(case["tp"])
    forward = trace(model, training, context_rank=int(case["rank"]) // each % int(case["cp"]))
    if pp > 1:
        chunks = stages(model, pp * int(case["vpp"]))[int(case["rank"]) // (each * int(case["dp"])) :: pp]
        forward = of_stages(tuple(trace(model, training, stage) for stage in chunks))
    weights = parameters(forward).weights
    divides = case["data"] != "none" or pp > 1
    held = share(forward, weights, training, int(case["rank"]) // each) if divides else alone(forward, weights, training)
    used = memory(forward, held, training)
    found = _held(case, held, used, sum(weight.params for weight in weights)) | _allocated(used) | _sent(held)
    return found | _of_stages(case, forward, held, used) if forward.parts else found


def _of_stages(case: dict[str, str], forward: Trace, held: Share, used: Memory[Size]) -> dict[str, Size]:
    """Return the figures of a pipeline's device, of which the table has one peak and no bytes after the forward pass."""
    return {
        "saved_bytes": max(hinted(size) for size in _saved_after_forward(case, forward, held)),
        "start_bytes": used.live.start,
        "inflight": sum(in_flight(held.moments)),
        "after_bwd_bytes": used.live.after_backward,
        "peak_opt": used.phases[-1].peak_bytes,
        "peak_bwd": used.peak_bytes,
    }


def _saved_after_forward(case: dict[str, str], forward: Trace, held: Share) -> Iterator[Size]:
    """Yield the bytes that a pipeline's device has saved after each forward pass, before the microbatch's loss.

    Ids and targets count for all microbatches, and so do buffers that have received any, if the stage saves their content.
    """
    pipes = [part.piped for part in forward.parts if part.piped]
    entries = [saved_for_backward(part.nodes).entries for part in forward.parts]
    of_loss = [sum(one.bytes for one in some if one.component in ("logits", "loss")) for some in entries]
    saved = [sum(one.bytes for one in some if one.component != "inputs") for some in entries]
    received = [any(one.storage.bytes == 0 for one in some) * pipe.passed for some, pipe in zip(entries, pipes, strict=True)]
    caller = int(case["micro"]) * 8 * int(case["B"]) * int(case["n"]) * sum(pipe.stage.first + pipe.stage.last for pipe in pipes)
    for one in held.moments:
        if one.step.forward:
            flying = [count + (number == one.step.stage) for number, count in enumerate(one.flying)]
            live = sum(count * size for count, size in zip(flying, saved, strict=True))
            used = sum((count + ended) * size for count, ended, size in zip(flying, one.ended, received, strict=True))
            yield live - of_loss[one.step.stage] + used + caller


def _held(case: dict[str, str], held: Share, used: Memory[Size], params: Size) -> dict[str, Size]:
    states, replicated = held.host or held.states, case["data"] in ("ddp", "zero1")
    earlier = states.gradients if replicated else held.held  # what earlier passes have left is not there before the first
    return {
        "params_local": params if replicated else sum(weight.params for weight in held.weights),
        "param_bytes": states.weights + states.master_weights,
        "grad_bytes": states.gradients,
        "optim_bytes": states.optimizer + 4 * sum(weight.copies for weight in held.weights),
        "saved_bytes": used.activations_bytes,
        "start_bytes": used.live.start - (earlier if case["micro"] != "1" else 0),
    }


def _allocated(used: Memory[Size]) -> dict[str, Size]:
    forward, loss, backward, optimizer = (phase.peak_bytes for phase in used.phases)
    of_loss = 4  # the table's program no longer has the loss
    return {
        "after_fwd_bytes": used.live.after_forward,
        "after_bwd_bytes": used.live.after_backward - of_loss,
        "peak_fwd": maximum(forward, loss),
        "peak_bwd": backward,
        "peak_opt": optimizer - of_loss,
        "peak_bytes": used.peak_bytes,
    }


def _sent(held: Share) -> dict[str, Size]:
    sent: dict[str, Size] = {f"{kind}_bytes": 0 for kind in COLLECTIVES}
    for one in held.traffic:
        name = f"{NAMES.get(one.collective, one.collective).replace('-', '_')}_bytes"
        sent[name] = sent[name] + one.bytes
    return sent


def propagated(case: dict[str, str]) -> dict[str, int]:
    """Return by how much the table's peaks exceed the real ones of a loss on parts of the vocabulary.

    DTensor runs each operator of this loss once more, on fake tensors of the whole shape, to know its result's shape
    (_propagate_tensor_meta). Fake tensors use no memory, but the table counts them: two of all logits, and the targets.
    """
    rows, V, tp = int(case["B"]) * int(case["n"]), json.loads(case["cfg"])["V"], int(case["tp"])
    whole = 2 * rows * V * WIDTH
    part = whole // 2 // tp
    forward = 2 * part + 3 * rows * WIDTH  # the operator itself: a temporary and its result
    backward = 3 * part + 33 * rows
    return {"peak_fwd": whole - forward, "peak_bwd": whole + 8 * rows + 2 * WIDTH - backward}


def name(case: dict[str, str]) -> str:
    """Return the name of a case in test reports."""
    return f"{case['case']}-{case['kind']}-{case['family']}"
