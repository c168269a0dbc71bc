"""Training steps on several devices as PyTorch 2.13 runs them: the table and the plans of its rows.

Rows of ``tests/data/fleet_steps.csv`` are one rank each: PyTorch's real code on a fake process group, which allocates every buffer and
sends nothing; fake tensors on a fake GPU, or real ones on a CPU (kinds ddp_ep and hsdp_tp: by the allocations that torch.profiler records).

- ``data``: DDP, ZeroRedundancyOptimizer, FSDP2; ``shard``: ranks of a copy under HSDP; ``group``, ``reshard``: FSDP2's groups; ``offload``:
  its parts in host memory; ``prec`` mp: its mixed precision; ``bucket_view``: gradient_as_bucket_view.
- ``tp``, ``sp``: DTensor's tensor and sequence parallelism; ``loss_parallel``: its loss on parts of the vocabulary.
- ``ep``: devices that share experts, with balanced routing; family moe: plain GPT-2 with top-k gated experts as batched products. Under
  data none, nothing reduces the gradients of what devices do not share. Under ddp, experts are wrapped for the ranks that have the same
  ones, if there are several, and ignored by the other wrapper. Under fsdp (kind fsdp_ep), fully_shard's shard_placement_fn shares the
  experts of a block among the ranks that have the same ones; these rows were measured with planner/verify/rank.py, whose modules these are.
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
from itertools import zip_longest
from pathlib import Path

from planner.capacity.activations import allocated, saved_for_backward
from planner.capacity.figures import Memory
from planner.capacity.parameters import parameters
from planner.capacity.passes import passes
from planner.capacity.pipeline import Passes, in_flight
from planner.capacity.plan import memory
from planner.capacity.schedules import stages_of
from planner.capacity.shares import Gathered, Share, alone, share
from planner.capacity.split_backward import of_weights
from planner.spec.records import Cluster, Experts, Layout, Model, Run, Training
from planner.spec.records.layout import V_SHAPED
from planner.trace.decoder import Piped, Trace, of_stages, trace
from planner.trace.nodes import operations
from planner.trace.sizes import Size, hinted, maximum
from planner.trace.stages import stage
from tests.capacity import training_steps

DATA = Path(__file__).parent.parent / "data"
TABLES = (DATA / "fleet_steps.csv", DATA / "context_steps.csv")
PRECISIONS = {"fp32": "fp32", "bf16": "bf16", "mp": "bf16-master"}
RESHARD = {"auto": "auto", "true": "always", "false": "never"}
SCHEDULES = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "ZB": "zero_bubble",
    "ZBV": "zbv",
    "DualPipeV": "dualpipev",
}
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


def planned(case: dict[str, str]) -> tuple[Share, Trace, Training]:
    """Return what the rank of a case holds and runs."""
    model, training = setting(case)
    pp, each = int(case["pp"]), int(case["tp"])
    forward = trace(model, training, context_rank=int(case["rank"]) // each % int(case["cp"]))
    if pp > 1:
        assert training.layout
        mine = stages_of(training.layout, int(case["rank"]) // (each * int(case["dp"])))
        neighbors = mine if training.layout.schedule in V_SHAPED else ()
        chunks = (stage(model, training.layout, number, neighbors) for number in mine)
        forward = of_stages(tuple(trace(model, training, one) for one in chunks))
    weights, divides = parameters(forward).weights, case["data"] != "none" or pp > 1
    held = share(forward, weights, training, int(case["rank"]) // each) if divides else alone(forward, weights, training)
    return held, forward, training


def figures(case: dict[str, str]) -> dict[str, Size]:
    """Return the planned values of the table's columns."""
    held, forward, training = planned(case)
    used = memory(forward, held, training)
    found = _held(case, held, used, sum(weight.params for weight in parameters(forward).weights)) | _allocated(used) | _sent(held)
    return found | _of_stages(case, forward, held, used) if forward.parts else found


def _of_stages(case: dict[str, str], forward: Trace, held: Share, used: Memory[Size]) -> dict[str, Size]:
    """Return the figures of a pipeline's device, of which the table has one peak and no bytes after the forward pass."""
    divided = max((one.divided for one in held.moments), key=sum)
    return {
        "saved_bytes": max(hinted(size) for size in _saved_after_forward(case, forward, held)),
        "start_bytes": used.live.start - sum(size * leaked(part)[0] for size, part in zip(divided, forward.parts, strict=False)),
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
    left = [leaked(part) for part in forward.parts]
    entries = [saved_for_backward(part.nodes).entries for part in forward.parts]
    of_loss = [sum(one.bytes for one in some if one.component in ("logits", "loss")) for some in entries]
    saved = [sum(one.bytes for one in some if one.component != "inputs") for some in entries]
    received = [any(one.storage.bytes == 0 for one in some) * pipe.passed for some, pipe in zip(entries, pipes, strict=True)]
    caller = int(case["micro"]) * 8 * int(case["B"]) * int(case["n"]) * sum(pipe.stage.first + pipe.stage.last for pipe in pipes)
    for one in held.moments:
        if one.step.kind == "forward":
            flying = [count + (number == one.step.stage) for number, count in enumerate(one.flying)]
            live = sum(count * size for count, size in zip(flying, saved, strict=True))
            for count, divided, size, loss, (whole, of_it) in zip(one.waiting, one.divided, saved, of_loss, left, strict=False):
                live += count * (size - loss + of_it) + (divided - count) * whole
            began = [sum(counts) for counts in zip_longest(flying, one.waiting, one.ended, fillvalue=0)]
            used = sum(count * size for count, size in zip(began, received, strict=True))
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


def leaked(part: Trace) -> tuple[Size, Size]:
    """Return the bytes that a divided backward pass of the table's program leaves allocated, and those of them that only the loss saves.

    The program packs saved tensors as themselves (torch.autograd.graph.saved_tensors_hooks), also outputs, which refer to the operator that
    saves them. Such a cycle is freed when the operator has run backward without retaining the graph. The backward pass of the weights runs
    operators that read a weight. Of the others, the last one that saves an output stays, with all saved tensors below it. Without the
    hooks, the same program leaves nothing: 0 bytes with fake tensors on the CPU, PyTorch's own engine and its garbage collector disabled.
    """
    if part.piped is None or part.piped.stage.first:
        return 0, 0
    every, weights = [node for node, _ in operations(part.nodes)], of_weights(part.nodes)
    idle = [node for node in every if not any(tensor.origin in weights for tensor in node.inputs)]
    own = [
        number
        for number, node in enumerate(idle)
        if {one.storage for one in node.saved_tensors} & {one.storage for one in node.outputs[:1]}
    ]
    saved = {tensor.storage for node in idle[: own[-1] + 1] for tensor in node.saved_tensors} & allocated(part.nodes)
    of_loss = {storage for storage in saved if storage.component == "logits"}
    whole, loss = (sum((storage.bytes * storage.copies for storage in some), 0) for some in (saved, of_loss))
    return whole, loss


def leaking(part: Trace, piped: Piped, whole: Gathered | None, share: Share, training: Training) -> Passes:
    """Return the passes of a stage as the table's program runs them."""
    made, (left, loss) = passes(part, piped, whole, share, training), leaked(part)
    samples = dict(made.samples)
    for kind in [kind for kind in samples if kind[0] == "weight"]:
        which, some = samples[kind]
        samples[kind] = which, [sample._replace(further=[*sample.further, loss - left]) for sample in some]
    return made._replace(input_gradient=made.input_gradient + left, waiting=made.waiting - left + loss, samples=samples)


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
