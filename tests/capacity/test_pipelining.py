"""PyTorch's own pipeline schedules, run on fake tensors for one device of a fake process group, allocate what is planned.

PyTorch's engine runs the backward passes, also those that are divided, and nothing packs saved tensors. CHANGES=all (make sweep) runs more.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining._utils import InferenceMode
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.capacity.plan import memory
from planner.capacity.schedules import stages_of
from planner.trace.sizes import hinted
from planner.verify.allocations import AllocationTracker
from tests.capacity import fleet_steps

B, N, D, H, V, LAYERS = 2, 64, 128, 8, 1024, 8
SCHEDULES = {
    "1F1B": schedules.Schedule1F1B,
    "Interleaved1F1B": schedules.ScheduleInterleaved1F1B,
    "ZB": schedules.ScheduleInterleavedZeroBubble,
    "ZBV": schedules.ScheduleZBVZeroBubble,
    "DualPipeV": schedules.ScheduleDualPipeV,
}


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ln_2, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer."""
        q, k, v = (part.view(B, N, H, D // H).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(D, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, N, D))
        made: Tensor = x + self.down(F.gelu(self.up(self.ln_2(x))))
        return made


class Part(nn.Module):
    """The layers of a stage."""

    def __init__(self, layers: int, *, first: bool, last: bool) -> None:
        super().__init__()
        self.tokens = nn.ModuleList([nn.Embedding(V, D), nn.Embedding(N, D)] if first else [])
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.head = nn.Sequential(*([nn.LayerNorm(D), nn.Linear(D, V, bias=False)] if last else []))

    def forward(self, x: Tensor) -> Tensor:
        """Run the stage."""
        if len(self.tokens):
            words, places = self.tokens
            x = words(x) + places(torch.arange(N))
        made: Tensor = self.head(self.blocks(x))
        return made


@pytest.fixture
def _static(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let stages know the shapes that they receive: nobody sends them."""

    def known(_: object, stages: list[PipelineStage], *__: object) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC  # noqa: SLF001 - otherwise set by what the others send

    monkeypatch.setattr(schedules._PipelineSchedule, "_warmup_p2p", known)  # noqa: SLF001 - the same
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def measured(case: dict[str, str]) -> tuple[int, int, int]:
    """Return the bytes allocated before and after the second step, and its peak."""
    layout, microbatches = fleet_steps.layout(case), int(case["micro"])
    mine, count = tuple(map(hinted, stages_of(layout, int(case["rank"])))), layout.pipeline_parallel * layout.virtual_stages
    dist.init_process_group("fake", store=FakeStore(), rank=int(case["rank"]), world_size=layout.pipeline_parallel)
    with FakeTensorMode():
        stages, x, ids = [], torch.empty(B, N, D).requires_grad_(), torch.zeros(B, N, dtype=torch.long)
        for number in mine:
            first, last = number == 0, number == count - 1
            part = Part(LAYERS // count, first=first, last=last)
            output = torch.empty(B, N, V).requires_grad_() if last else x
            stages.append(PipelineStage(part, number, count, torch.device("cpu"), ids if first else x, output))
        kind: Any = SCHEDULES[case["sched"]]
        run = kind(stages if case["sched"] != "1F1B" else stages[0], microbatches, loss_fn=cross_entropy)
        weights = [weight for stage in stages for weight in stage.submod.parameters()]
        optimizer = torch.optim.AdamW(weights, fused=True)
        ids, targets = (torch.zeros(B * microbatches, N, dtype=torch.long) for _ in range(2))
        inputs, outputs = ([ids] if 0 in mine else []), ({"target": targets} if count - 1 in mine else {})
        allocations = AllocationTracker(torch.device("cpu"))
        allocations.track([*weights, ids, targets], "start")
        with allocations:
            run.step(*inputs, **outputs, return_outputs=False)
            optimizer.step()
            optimizer.zero_grad()
            gc.collect()
            start = allocations.bytes
            allocations.start_phase()
            run.step(*inputs, **outputs, return_outputs=False)
            return start, allocations.bytes, allocations.peak_bytes


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


CASES = [
    ("1F1B", 2, 1, 0, 4),
    ("Interleaved1F1B", 4, 2, 1, 6),
    ("ZB", 2, 1, 1, 3),
    ("ZB", 4, 2, 3, 3),
    ("ZBV", 2, 2, 0, 6),
    ("DualPipeV", 2, 2, 1, 4),
]
MORE = [("ZB", 4, 2, 0, 8), ("ZBV", 4, 2, 3, 8), ("DualPipeV", 4, 2, 0, 8)]


@pytest.mark.usefixtures("_static")
@pytest.mark.parametrize(("schedule", "pp", "vpp", "rank", "micro"), CASES + MORE if os.environ.get("CHANGES") == "all" else CASES)
def test_a_schedule_of_pytorch_allocates_what_is_planned(schedule: str, pp: int, vpp: int, rank: int, micro: int) -> None:
    sizes = json.dumps({"L": LAYERS, "d": D, "H": H, "V": V, "nctx": N})
    case = {**fleet_steps.cases()[0], "family": "nano", "cfg": sizes, "device": "cpu", "prec": "fp32", "B": f"{B}", "n": f"{N}"}
    case |= {"sched": schedule, "pp": f"{pp}", "vpp": f"{vpp}", "rank": f"{rank}", "micro": f"{micro}", "dp": "1", "data": "none"}
    held, forward, training = fleet_steps.planned(case)
    used = memory(forward, held, training)
    assert (used.live.start, used.live.after_backward, used.peak_bytes) == measured(case)
