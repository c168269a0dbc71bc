"""Steps that train adapters or parts of a model, measured on fake tensors of a simulated A100 (PyTorch 2.13, transformers 5.24).

``tests/data/tuned_steps.csv``: peft 0.21.2 and bitsandbytes 0.50.2; the second step with fused AdamW. Four-bit products are added to the
FLOPs of PyTorch's counter, and what the CUDA kernel unpacks to the peaks.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import planner

ROWS = list(csv.DictReader((Path(__file__).parent.parent / "data" / "tuned_steps.csv").read_text(encoding="utf-8").splitlines()))
LLAMA: dict[str, Any] = {
    "positions": "rope",
    "norm": {"type": "rmsnorm"},
    "attention": {"bias": False, "qkv": "separate"},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "head": {"tied": False},
    "model_type": "llama",
}
GPT2 = {"d_model": 768, "n_heads": 12, "positions": "learned", "feed_forward": {"activation": "gelu_new"}, "head": {"tied": True}}
PYTHIA = {"d_ff": 8192, "positions": {"type": "rope", "rotary_dim": 32}, "block": "parallel_two_norms", "head": {"tied": False}}
BIASES = {"bias": {"q": True, "k": True, "v": True, "o": False}, "qkv": "separate"}


def sizes(vocabulary: int, d_model: int, heads: int, kv_heads: int, d_ff: int) -> dict[str, int]:
    return {"vocab_size": vocabulary, "d_model": d_model, "n_heads": heads, "n_kv_heads": kv_heads, "d_ff": d_ff}


MODELS: dict[str, dict[str, Any]] = {
    "llama-3-8B": LLAMA | sizes(128_256, 4096, 32, 8, 14_336),
    "llama-2-7B": LLAMA | sizes(32_000, 4096, 32, 32, 11_008),
    "llama-2-13B": LLAMA | sizes(32_000, 5120, 40, 40, 13_824),
    "llama-3.2-1B": LLAMA | sizes(128_256, 2048, 32, 8, 8192) | {"head": {"tied": True}},
    "smollm2-360M": LLAMA | sizes(49_152, 960, 15, 5, 2560) | {"head": {"tied": True}},
    "qwen2-7B": LLAMA | sizes(152_064, 3584, 28, 4, 18_944) | {"attention": BIASES, "model_type": "qwen2"},
    "qwen3-8B": LLAMA
    | sizes(151_936, 4096, 32, 8, 12_288)
    | {"head_dim": 128, "attention": {"bias": False, "qkv": "separate", "qk_norm": "head_dim"}, "model_type": "qwen3"},
    "hf-gpt2": {"vocab_size": 50_257, "context_length": 1024, "model_type": "gpt2"} | GPT2,
    "pythia-1.4B": {"vocab_size": 50_304, "d_model": 2048, "n_heads": 16, "model_type": "gpt_neox", "attention": {"qkv": "fused_per_head"}}
    | PYTHIA,
}
WITH_EXPERTS = {key: value for key, value in LLAMA.items() if key != "feed_forward"}
MODELS["mixtral-8x7B"] = (
    WITH_EXPERTS | sizes(32_000, 4096, 32, 8, 14_336) | {"experts": {"count": 8, "top_k": 2, "d_ff": 14_336}, "model_type": "mixtral"}
)
MODELS["qwen3-30B-A3B"] = (
    WITH_EXPERTS
    | sizes(151_936, 2048, 32, 4, 6144)
    | {key: MODELS["qwen3-8B"][key] for key in ("head_dim", "attention")}
    | {"experts": {"count": 128, "top_k": 8, "d_ff": 768, "scores_dtype": "compute"}, "model_type": "qwen3_moe"}
)
PARTS = {"norm.weight": "norm", "lm_head": "head", "embed_tokens": "embedding", "mlp": "feed_forward", "down_proj": "down"}
VIRTUAL = ("prompt", "prefix")
TARGETS = {"c_attn": ["qkv"], "query_key_value": ["qkv"], "c_fc": ["up"], "c_proj": ["o", "down"]}


def spec(row: dict[str, str]) -> dict[str, Any]:
    """Return the spec of a row."""
    autocast, wide = row["autocast"] == "True", row["weights"] == "fp32"
    training: dict[str, Any] = {
        "batch_size": int(row["B"]),
        "sequence_length": int(row["n"]),
        "implementation": "transformers" if row["attn"] == "sdpa" else "transformers-eager",
        "precision": "bf16-autocast" if autocast else "fp32" if wide else "bf16",
        "recompute": "none" if row["ckpt"] == "none" else "full",
        "reentrant": row["ckpt"] == "reentrant",
    }
    if row["input_grads"] == "True":
        training["input_gradients"] = True
    if row["method"] == "freeze":
        training["train"] = [PARTS.get(part, part.rstrip(".")) for part in json.loads(row["train"])]
    elif row["method"] != "full":
        training |= {"train": "adapters", "adapters": adapters(row)}
        if row["save"]:
            training["also_train"] = [PARTS[part] for part in json.loads(row["save"])]
        if row["method"] == "qlora":
            kind = {"format": "nf4", "double_quant": row["double"] == "True", "dtype": "bf16", "prepare": row["prepare"] == "True"}
            training["base"] = kind
        elif autocast and not wide:
            training["base"] = {"dtype": "bf16"}
    model = {"context_length": 8192, **MODELS[row["model"]], "n_layers": int(row["L"])}
    return {"name": "measured", "model": model, "training": training}


def adapters(row: dict[str, str]) -> dict[str, Any]:
    """Return the adapters of a row, whose ``r`` are the tokens of a prompt or prefix."""
    if row["method"] in VIRTUAL:
        return {"type": row["method"], "virtual_tokens": int(row["r"])}
    names = [row["targets"]] if row["targets"] == "all-linear" else json.loads(row["targets"])
    targets = [target for name in names for target in TARGETS.get(name, [name])]
    kind = "dora" if row["dora"] == "True" else "rslora" if row["rslora"] == "True" else "lora"
    layers = {"layers": [str(number) for number in json.loads(row["layers"])]} if row["layers"] else {}
    return {
        "rank": int(row["r"]),
        "targets": targets,
        "type": kind,
        "dtype": row["adapter_dtype"],
        "dropout": float(row["dropout"]),
        **layers,
    }


# Three layers of Llama in bfloat16, measured with peft 0.21.2: parameters, saved bytes, bytes allocated at the start and after both passes,
# FLOPs of both passes, peak.
SMALL = LLAMA | sizes(1000, 128, 4, 2, 256) | {"context_length": 512, "n_layers": 3}
FEEDS = {"type": "ia3", "targets": "all-linear", "feedforward": ["gate", "up", "down"]}
QLORA = {"base": {"format": "nf4", "double_quant": True, "prepare": True, "dtype": "bf16"}}
SCALED: list[tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = [
    ({"type": "ia3", "targets": ["k", "v", "down"]}, {}, (700416, 2304076, 1414564, 3718644, 1419176, 158597120, 169082880, 4741620)),
    (FEEDS, {}, (701952, 2899532, 1433044, 4332580, 1443800, 158597120, 169082880, 5355556)),
    (
        {"rank": 4, "targets": ["q", "embedding"]},
        {"recompute": "full"},
        (706848, 689156, 1491744, 2179880, 1522084, 159514624, 280756224, 3202856),
    ),
    (
        {"rank": 4, "type": "dora"},
        QLORA,
        (726912, 7296004, 1612936, 8908944, 1723532, 172359680, 174981120, 9931920),
    ),
    ({"type": "prefix"}, QLORA, (706944, 3156180, 1373072, 4529256, 1403796, 162529280, 178913280, 5552232)),
]


@pytest.mark.parametrize(("adapters", "others", "measured"), SCALED)
def test_adapters_of_other_kinds(adapters: dict[str, Any], others: dict[str, Any], measured: tuple[int, ...]) -> None:
    training = {"implementation": "transformers", "batch_size": 2, "sequence_length": 64, "precision": "bf16", "train": "adapters"}
    plan = planner.plan(planner.load({"name": "small", "model": SMALL, "training": {**training, "adapters": adapters, **others}}))
    live, hardware = plan.memory.live, next(count for count in plan.flops.by_convention if count.convention == "hardware")
    passes = hardware.forward_per_step, hardware.train_per_step - hardware.forward_per_step
    figures = plan.parameters.total, plan.memory.activations_bytes, live.start, live.after_forward, live.after_backward
    assert (*figures, *passes, plan.memory.peak_bytes) == measured


def what_only_fake_tensors_hold(row: dict[str, str]) -> int:
    """Return the bytes of a further copy of the LM head that the measured model holds and saves, but a real one does not.

    peft's modules_to_save was run on real tensors, too: there are four tables, two of which train, and the head saves its parameter.
    """
    model = MODELS[row["model"]]
    return 2 * model["vocab_size"] * model["d_model"] if "lm_head" in row["save"] else 0


def converted_biases(row: dict[str, str]) -> int:
    """Return by how many bytes the first pass makes weights smaller: bitsandbytes casts biases to the dtype of computation in place."""
    model = MODELS[row["model"]]
    width = model["d_model"] + 2 * model["d_model"] // model["n_heads"] * model.get("n_kv_heads", 0)
    return 2 * width * int(row["L"]) if row["prepare"] == "True" and model.get("model_type") == "qwen2" else 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['group']}-{row['model']}-{row['method']}-{ROWS.index(row)}")
def test_a_step_equals_the_measured_one(row: dict[str, str]) -> None:
    plan = planner.plan(planner.load(spec(row)))
    memory, more, fewer = plan.memory, what_only_fake_tensors_hold(row), converted_biases(row)
    # peft makes the ids of a prompt on the default device, which is the measured one, but the CPU in a real run.
    ids = 8 * int(row["r"]) if row["method"] in VIRTUAL else 0
    peaks = {phase.phase: phase.peak_bytes for phase in memory.phases}
    hardware = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    assert plan.parameters.trained == int(row["trainable_params"])
    packed = sum(weight.params for weight in plan.parameters.weights if weight.packing)
    assert plan.parameters.total - packed // 2 == int(row["stored_elements"])  # whose packed weights count their bytes
    assert memory.weights_bytes + fewer == int(row["weights_bytes"])
    assert memory.optimizer_bytes + memory.step_counters_bytes == int(row["optimizer_bytes"])
    assert memory.activations_bytes + more == int(row["saved_bytes"])
    assert memory.live.start + more + ids == int(row["start_bytes"])
    assert memory.live.after_forward + more == int(row["after_fwd_bytes"])
    assert memory.live.after_backward + more + ids == int(row["after_bwd_bytes"])
    assert max(peaks["forward"], peaks["loss"]) + more == int(row["peak_fwd_bytes"])
    assert peaks["backward"] + more == int(row["peak_bwd_bytes"])
    assert peaks["optimizer"] + more + ids == int(row["peak_opt_bytes"])
    assert hardware.forward_per_step == int(row["flops_fwd"])
    assert hardware.train_per_step - hardware.forward_per_step == int(row["flops_bwd"])
