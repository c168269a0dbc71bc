"""An encoder's layers under FSDP2: PyTorch's own code around a class of transformers allocates and sends what the plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import planner
from planner.spec.records import Cluster, Layout, Training

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from planner.verify import huggingface, parallel
from planner.verify.layout import of_device

SIZES = {"vocab_size": 256, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 160}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recomputed": ({}, {"recompute": "full"}),
    "float32": ({"reshard_after_forward": "always"}, {"precision": "fp32"}),
    "replicas": ({"data_parallel": "hsdp", "shard_degree": 2}, {"gradient_accumulation": 2}),
}


class Parts:
    """The parts of transformers' BERT."""

    def __init__(self, module: Any, _: object) -> None:  # noqa: ANN401 - a class without types
        self.whole = self.trunk = module
        self.layers = list(module.bert.encoder.layer)


def built(_: object, training: Training, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return BERT with its masked language head."""
    sizes: dict[str, Any] = {
        "vocab_size": 256,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 160,
    }
    dropout: dict[str, Any] = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = BertConfig(max_position_embeddings=32, pad_token_id=None, **sizes, **dropout)
    return huggingface.module_of(config, BertForMaskedLM, training, device, dtype)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_encoder_is_shared_layer_by_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "build", built)
    monkeypatch.setattr(parallel, "Parts", Parts)
    small = {"name": "small BERT", "extends": "catalog/bert-base-cased", "model": SIZES}
    spec = planner.load(small | {"training": {"sequence_length": 32, "batch_size": 2, "device": "h100", "precision": "bf16-master"}})
    of_layout, of_training = LAYOUTS[name]
    layout = replace(Layout(Cluster("device", 80 << 30, 4), data_parallel="fsdp"), **of_layout)
    training = replace(spec.scenarios[0].training, implementation="transformers", layout=layout, **of_training)
    rows = [row for number in (0, 3) for row in of_device(spec.model, training, layout, 0, number)]
    assert [row for row in rows if row[2] != row[3]] == []
