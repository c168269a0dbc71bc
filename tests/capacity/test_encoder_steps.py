"""Training steps of encoders and of models with one, measured with PyTorch 2.13 and transformers 5.24 on fake CUDA tensors: all equal.

``tests/data/encoder_steps.csv``: L layers instead of the published number, B sequences of n tokens or images of 224 × 224 pixels, m tokens
of the decoder, dtype of the weights, bf16 autocast, ``freeze`` fragments of names that do not train; bytes saved by autograd, bytes
allocated after the passes of the second step, its peak, and FLOPs including operators that PyTorch's counter omits. Dropout 0, no padding,
AdamW.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from planner import capacity
from planner.capacity.figures import Plan
from planner.capacity.symbolic import formulas
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.spec import load_text
from planner.trace.sizes import evaluate

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
CONFIGS["bart-base"] = {
    "model_type": "bart",
    "d_model": 768,
    **{
        f"{stack}_{key}": size
        for stack in ("encoder", "decoder")
        for key, size in (("attention_heads", 12), ("ffn_dim", 3072), ("layers", 6))
    },
}
CONFIGS["t5-small"] = {"model_type": "t5"}
# The class ties the head of Flan-T5, too.
CONFIGS["flan-t5-base"] = {"model_type": "t5", "d_model": 768, "num_heads": 12, "d_ff": 2048, "feed_forward_proj": "gated-gelu"}
DEPTHS = {"bart": ("encoder_layers", "decoder_layers"), "t5": ("num_layers",)}
PRECISIONS = {("fp32", "False"): "fp32", ("fp32", "True"): "bf16-autocast", ("bf16", "False"): "bf16"}
TRAINED = {
    '["embeddings", "layer.0.", "layer.1."]': ["layers.2-3", "head"],
    '["embeddings", "layers.0.", "layer.0."]': ["layers.1-3", "final_norm", "head"],
}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(case[key] for key in ("model", "L", "weights", "autocast", "attn", "ckpt"))
)
def test_a_step_equals_the_measured_one(case: dict[str, str]) -> None:
    config = CONFIGS[case["model"]]
    config = config | {key: int(case["L"]) for key in DEPTHS.get(config["model_type"], ("num_hidden_layers",)) if case["L"]}
    tokens, of_encoder = case["m"] or case["n"], case["n"] if case["m"] else ""
    training: dict[str, Any] = {
        "batch_size": int(case["B"]),
        **({"sequence_length": int(tokens)} if tokens else {}),
        **({"encoder_length": int(of_encoder)} if of_encoder else {}),
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


def test_encoder_decoders_have_the_parameters_of_their_classes() -> None:
    # Of transformers 5.24 on the meta device, as published: T5-base, Whisper-small, BART-large.
    t5 = {"model_type": "t5", "d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 3072}
    small = {
        f"{stack}_{key}": size
        for stack in ("encoder", "decoder")
        for key, size in (("attention_heads", 12), ("ffn_dim", 3072), ("layers", 12))
    }
    whisper = {"model_type": "whisper", "d_model": 768, **small}
    for config, right in ((t5, 222_903_552), (whisper, 241_734_912), ({"model_type": "bart"}, 406_291_456)):
        spec = load_text(spec_text(read_huggingface(config), "encoder-decoder", comments=False))
        assert capacity.plan(spec, spec.scenarios[0]).parameters.total == right


@pytest.mark.parametrize("model_type", ["t5", "bart", "whisper"])
def test_formulas_give_the_figures_of_a_plan(model_type: str) -> None:
    text = spec_text(read_huggingface({"model_type": model_type}), model_type, comments=False)
    spec = load_text(text, ["training.sequence_length=10", "training.implementation=transformers"])
    plan, made = capacity.plan(spec, spec.scenarios[0]), formulas(spec, spec.scenarios[0])
    for formula, right in zip(sizes_of(made.plan), sizes_of(plan), strict=True):
        assert evaluate(formula, made.values) == right


def sizes_of(plan: Plan) -> list[int]:
    memory, counts = plan.memory, plan.flops.by_convention
    return [plan.parameters.total, memory.activations_bytes, memory.peak_bytes, *(count.train_per_step for count in counts)]


def test_weights_of_an_encoder_read_its_own_tokens() -> None:
    text = spec_text(read_huggingface({"model_type": "t5"}), "t5", comments=False)
    spec = load_text(text, ["training.sequence_length=10", "training.encoder_length=30"])
    counts = {count.convention: count.forward_per_step for count in capacity.plan(spec, spec.scenarios[0]).flops.by_convention}
    # T5-small: 60,506,624 parameters, of which the encoder's 6 layers have 4 · 512² + 2 · 512 · 2048 and 2 norms each, besides a norm and
    # 32 · 8 distances. Each of 30 tokens of the encoder reads these twice (2 FLOPs), each of 10 tokens of the decoder all others.
    encoder = 6 * (4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512) + 512 + 32 * 8
    assert counts["6nd"] == 2 * (10 * (60_506_624 - encoder) + 30 * encoder)
    # PaLM's formula adds 4 · H · Q per pair of a query and a key: 6 layers each of 30 · 30, 10 · 10 and 10 · 30.
    assert counts["palm"] == counts["6nd"] + 4 * 6 * 512 * (30 * 30 + 10 * 10 + 10 * 30)


def test_both_conventions_count_all_pairs_without_a_causal_mask() -> None:
    spec = load_text(spec_text(read_huggingface(CONFIGS["bert-base"]), "bert", comments=False))
    counts = {count.convention: count.train_per_step for count in capacity.plan(spec, spec.scenarios[0]).flops.by_convention}
    assert counts["matmul"] == counts["matmul-causal"]
