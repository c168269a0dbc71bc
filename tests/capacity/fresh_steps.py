"""Training steps of further classes and shapes, measured with PyTorch 2.13 and transformers 5.24, as specs.

``tests/data/fresh_steps.jsonl``: 68 steps measured like those of ``tests/data/training_steps.csv``. ``case``: a config.json (``hf``) or the
sizes of plain GPT-2 as in nanoGPT (``nano``), B, n, ``prec`` (amp: bf16 autocast, amp16: fp16 autocast), ``attn`` (default sdpa), ``ckpt``
(each block recomputed), ``backend`` (h100: kernels of an H100), ``opt``, ``accum`` (micro-batches). ``measured``: bytes saved by autograd,
bytes allocated between the phases of the second step, peaks of the second and the first step, and FLOPs of one micro-batch by
``torch.utils.flop_counter``, which does not count scans and counts a grouped convolution's backward pass as if it had one group. With
several micro-batches, the other bytes are those of the last one, but ``start_bytes`` is measured before the first one, without gradients.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.capacity import plan
from planner.capacity.figures import Plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.spec import load_text

TABLE = Path(__file__).parent.parent / "data" / "fresh_steps.jsonl"
PRECISIONS = {"fp32": "fp32", "amp": "bf16-autocast", "bf16": "bf16", "amp16": "fp16-autocast"}


def cases() -> list[dict[str, Any]]:
    """Return the rows of the table."""
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def planned(case: dict[str, Any]) -> Plan:
    """Return the plan of a case."""
    text = spec_text(read_huggingface(case["hf"]), "fresh") if "hf" in case else json.dumps(nano(case["nano"]))
    spec = load_text(text, [f"training.{key}={json.dumps(value)}" for key, value in training(case).items()])
    return plan(spec, spec.scenarios[0])


def nano(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return a spec of plain GPT-2."""
    bias = {"bias": sizes.get("bias", True)}
    shape = {"vocab_size": "V", "context_length": "nctx", "d_model": "d", "n_layers": "L", "n_heads": "H"}
    parts = {"attention": bias, "feed_forward": bias, "norm": bias}
    return {"name": "nano", "model": {**{key: sizes[name] for key, name in shape.items()}, **parts}}


def training(case: dict[str, Any]) -> dict[str, Any]:
    """Return the training settings of a case."""
    stack = "transformers" if "hf" in case else "pytorch"
    return {
        "batch_size": case["B"],
        "sequence_length": case["n"],
        "precision": PRECISIONS[case["prec"]],
        "implementation": f"{stack}-eager" if case.get("attn") == "eager" else stack,
        "device": case.get("backend", "a100"),
        "recompute": "full" if case.get("ckpt") else "none",
        "optimizer": case.get("opt", "adamw"),
        "gradient_accumulation": case.get("accum", 1),
        "keep_logits": case.get("keep_logits", False),
        "use_cache": case.get("use_cache", False),
        "dropout": case["hf"].get("attention_dropout", 0) if "hf" in case else case["nano"].get("dropout", 0),
    }


def figures(ours: Plan) -> dict[str, int]:
    """Return the values that were measured, by the names of the table."""
    memory, micro_batches = ours.memory, ours.training.gradient_accumulation
    hardware = next(count for count in ours.flops.by_convention if count.convention == "hardware")
    return {
        "params": ours.parameters.total,
        "saved_bytes": memory.activations_bytes,
        "start_bytes": memory.live.start - (memory.gradients_bytes if micro_batches > 1 else 0),
        "after_fwd_bytes": memory.live.after_forward,
        "after_bwd_bytes": memory.live.after_backward,
        "flops_fwd": hardware.forward_per_step,
        "flops_bwd": hardware.train_per_step // micro_batches - hardware.forward_per_step,
        "peak_bytes": memory.peak_bytes,
        "peak1_bytes": memory.first_step_peak_bytes,
    }
