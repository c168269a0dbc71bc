"""Training steps of encoders, measured with PyTorch 2.13 and transformers 5.24 on fake CUDA tensors: every figure is equal.

``tests/data/encoder_steps.csv``: L layers instead of the published number, B sequences of n tokens or images of 224 × 224 pixels, dtype of
the weights, bf16 autocast, ``freeze`` fragments of names that do not train; bytes saved by autograd, bytes allocated after the passes of
the second step, its peak, and FLOPs including operators that PyTorch's counter omits. Dropout 0, no padding, AdamW.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from planner import capacity
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.spec import load_text

with (Path(__file__).parent.parent / "data" / "encoder_steps.csv").open(encoding="utf-8", newline="") as file:
    CASES = list(csv.DictReader(file))


def sizes(hidden_size: int, layers: int, heads: int, intermediate_size: int, vocab_size: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate_size,
        "vocab_size": vocab_size,
    }


# The published config.json of each: its model_type, class and sizes.
BASE = sizes(768, 12, 12, 3072, 30522)
CONFIGS: dict[str, dict[str, Any]] = {
    "bert-base": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **BASE},
    "bert-base-cls": {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **BASE},
    "bert-large": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **sizes(1024, 24, 16, 4096, 30522)},
    "roberta-base": {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        **sizes(768, 12, 12, 3072, 50265),
    },
    "distilbert-base": {
        "model_type": "distilbert",
        "architectures": ["DistilBertForMaskedLM"],
        "dim": 768,
        "n_layers": 6,
        "n_heads": 12,
        "hidden_dim": 3072,
        "vocab_size": 30522,
    },
    "modernbert-base": {"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], **sizes(768, 22, 12, 1152, 50368)},
}
CONFIGS |= {
    name: {"model_type": "vit", "architectures": ["ViTForImageClassification"], "num_labels": 1000, **of_vit}
    for name, of_vit in (("vit-base", sizes(768, 12, 12, 3072, 0)), ("vit-large", sizes(1024, 24, 16, 4096, 0)))
}
PRECISIONS = {("fp32", "False"): "fp32", ("fp32", "True"): "bf16-autocast", ("bf16", "False"): "bf16"}
TRAINED = {
    '["embeddings", "layer.0.", "layer.1."]': ["layers.2-3", "head"],
    '["embeddings", "layers.0.", "layer.0."]': ["layers.1-3", "final_norm", "head"],
}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(case[key] for key in ("model", "L", "weights", "autocast", "attn", "ckpt"))
)
def test_a_step_equals_the_measured_one(case: dict[str, str]) -> None:
    config = CONFIGS[case["model"]] | ({"num_hidden_layers": int(case["L"])} if case["L"] else {})
    training: dict[str, Any] = {
        "batch_size": int(case["B"]),
        **({"sequence_length": int(case["n"])} if case["n"] else {}),
        "precision": PRECISIONS[case["weights"], case["autocast"]],
        "implementation": "transformers-eager" if case["attn"] == "eager" else "transformers",
        "recompute": "full" if case["ckpt"] == "True" else "none",
        **({"train": TRAINED[case["freeze"]]} if case["freeze"] else {}),
    }
    text = spec_text(read_huggingface(config), case["model"], comments=False)
    spec = load_text(text, [f"training.{key}={json.dumps(value)}" for key, value in training.items()])
    plan = capacity.plan(spec, spec.scenarios[0])
    hardware = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    ours = {
        "params": plan.parameters.total,
        "saved_bytes": plan.memory.activations_bytes,
        "after_fwd_bytes": plan.memory.live.after_forward,
        "after_bwd_bytes": plan.memory.live.after_backward,
        "peak_bytes": plan.memory.peak_bytes,
        "flops_fwd": hardware.forward_per_step,
        "flops_bwd": hardware.train_per_step - hardware.forward_per_step,
    }
    assert ours == {name: int(case[name]) for name in ours}


def test_an_encoder_alone_has_the_parameters_of_its_class() -> None:
    # BertModel of transformers 5.24 on the meta device: the encoder with its pooler; ElectraModel has none.
    bert = CONFIGS["bert-base"] | {"architectures": ["BertModel"]}
    electra = {"model_type": "electra", "embedding_size": 768, **BASE}
    vit = CONFIGS["vit-base"]  # with its classes, as published
    for config, right in ((bert, 109_482_240), (electra, 108_891_648), (vit, 86_567_656)):
        spec = load_text(spec_text(read_huggingface(config), "encoder", comments=False))
        assert capacity.plan(spec, spec.scenarios[0]).parameters.total == right


def test_both_conventions_count_all_pairs_without_a_causal_mask() -> None:
    spec = load_text(spec_text(read_huggingface(CONFIGS["bert-base"]), "bert", comments=False))
    counts = {count.convention: count.train_per_step for count in capacity.plan(spec, spec.scenarios[0]).flops.by_convention}
    assert counts["matmul"] == counts["matmul-causal"]
