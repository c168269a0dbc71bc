"""Measure a step of DeepSpeed's ZeRO for one rank, on a CPU: prints a row of tests/data/deepspeed_steps.jsonl.

    python tools/measure_deepspeed.py '{"rank": 0, "devices": 3, "model": {...}, "training": {...}, "layout": {...}}'

The keys are those of the rows. It needs DeepSpeed 0.19 and its dependencies, which `make test` does not install. DeepSpeed runs on real
tensors in a fake process group, which sends nothing; checks that ranks agree are turned off, and that of overflows, since gathered weights
are whatever was in memory. The third step is measured, and for stage 3 with a recorded trace of its modules.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

STAGES = {"zero1": 1, "zero2": 2, "fsdp": 3}
OF_STAGE_3 = {
    "persistence_threshold": "param_persistence_threshold",
    "max_live_parameters": "max_live_parameters",
    "max_reuse_distance": "max_reuse_distance",
    "prefetch_bucket_size": "prefetch_bucket_size",
}


def config(row: dict[str, Any]) -> dict[str, Any]:
    """Return DeepSpeed's configuration of a row."""
    layout, training = row["layout"], row["training"]
    zero = {"stage": STAGES[layout["data_parallel"]], "reduce_bucket_size": layout["reduce_bucket_size"]}
    zero |= {f"stage3_{theirs}": layout[ours] for ours, theirs in OF_STAGE_3.items() if ours in layout}
    zero |= {"overlap_comm": layout["overlap_comm"]} if "overlap_comm" in layout else {}
    zero |= {"offload_optimizer": {"device": "cpu"}} if layout.get("offload") == "optimizer" else {}
    return {
        "train_micro_batch_size_per_gpu": training["batch_size"],
        "gradient_accumulation_steps": training["gradient_accumulation"],
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        **({"data_types": {"grad_accum_dtype": "fp32"}} if training["gradient_dtype"] == "fp32" else {}),
    }


def engine(row: dict[str, Any]) -> tuple[Any, Any]:
    """Return DeepSpeed's engine and the modules of a row's model."""
    rank, devices = row["rank"], row["devices"]
    names = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": devices, "MASTER_PORT": 29511, "DS_IGNORE_CUDA_DETECTION": 1}
    os.environ.update({name: str(value) for name, value in names.items()} | {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "localhost"})
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=devices)
    import deepspeed  # type: ignore[import-not-found] # not installed for the tests

    import planner
    from planner.verify import modules

    for module in [one for name, one in sys.modules.items() if name.startswith("deepspeed")]:
        off = {"build_shm_op": lambda: None, "assert_ints_same_as_other_ranks": lambda *_: None, "get_lst_from_rank0": lambda items: items}
        vars(module).update({name: function for name, function in off.items() if name in vars(module)})
    path = Path(tempfile.mkdtemp()) / "model.yaml"
    document = {"name": "model", "model": row["model"], "training": {"device": "cpu", **row["training"]}}
    path.write_text(json.dumps(document), encoding="utf-8")
    spec = planner.load(path)
    made = modules.CausalLM(spec.model, spec.scenarios[0].training, torch.device("cpu"), torch.bfloat16)
    optimizer = torch.optim.AdamW(made.parameters(), fused=True)
    its = deepspeed.initialize(model=made, optimizer=optimizer, config=config(row), dist_init_required=False)[0]
    if row["layout"]["data_parallel"] == "fsdp":
        its.optimizer._overflow_check_and_loss_scale_update = lambda *_, **__: False  # noqa: SLF001 - no public switch
    return its, made


def measure(row: dict[str, Any]) -> dict[str, int]:
    """Run three steps, and return the bytes of the third."""
    import torch

    from planner.verify.allocations import AllocationTracker

    torch.set_num_threads(1)
    its, modules = engine(row)
    ids = torch.zeros((row["training"]["batch_size"], row["training"]["sequence_length"]), dtype=torch.long)
    targets, tracker = ids.clone(), AllocationTracker(torch.device("cpu"))
    found: dict[str, int] = {}

    def forward() -> Any:  # noqa: ANN401 - a tensor
        logits = its(ids)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    passes = 3 * row["training"]["gradient_accumulation"]
    for _ in range(passes - 1):
        its.backward(forward())
        its.step()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated attributes of other objects
        tracker.track([one for one in gc.get_objects() if isinstance(one, torch.Tensor)], "start")
    tracker.track([weight.grad for weight in modules.parameters()], "start")
    found["start"] = tracker.bytes
    tracker.start_phase()
    with tracker:
        loss = forward()
    found |= {"peak_forward": tracker.peak_bytes, "after_forward": tracker.bytes}
    tracker.start_phase()
    with tracker:
        its.backward(loss)
        loss = loss.detach()
    found |= {"peak_backward": tracker.peak_bytes, "after_backward": tracker.bytes}
    tracker.start_phase()
    with tracker:
        its.step()
    found["peak_optimizer"] = tracker.peak_bytes
    zero = its.optimizer
    parts = getattr(zero, "bit16_groups_flat", None) or [weight.ds_tensor for weight in modules.parameters()]
    masters = getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_partitioned_groups_flat
    moments = [one for state in zero.optimizer.state.values() for name, one in state.items() if name != "step"]
    for name, tensors in (("weights", parts), ("master", masters), ("optimizer", moments)):
        found[name] = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return found


if __name__ == "__main__":
    case = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(case | {"measured": measure(case)}) + "\n")
