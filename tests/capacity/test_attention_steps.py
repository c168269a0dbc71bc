"""Attention of transformers' classes: masks of windows, repeated heads, products in float32, stored masks and tables.

``tests/data/attention_steps.jsonl`` has small steps in the columns of ``fresh_steps.jsonl``, measured by ``planner.verify.step`` on
transformers' modules of each config, on fake CUDA tensors (PyTorch 2.13, transformers 5.24).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.capacity import step_formulas
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.spec import load_text
from planner.spec.records import Spec
from tests.capacity.fresh_steps import figures, planned

TABLE = Path(__file__).parent.parent / "data" / "attention_steps.jsonl"
CASES = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
MISTRAL: dict[str, Any] = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize("row", CASES, ids=[row["case"]["name"] for row in CASES])
def test_a_step_equals_the_measurement(row: dict[str, Any]) -> None:
    assert figures(planned(row["case"])) == row["measured"]


def test_mistral_beyond_its_window() -> None:
    # Measured on MistralForCausalLM in bfloat16 on fake CUDA tensors: every layer keeps a mask, and keys and values of all heads.
    made = planned({"hf": MISTRAL, "B": 1, "n": 8192, "prec": "bf16"})
    assert made.memory.activations_bytes == 61_486_563_852


def mistral(n: int) -> Spec:
    text = spec_text(read_huggingface(MISTRAL), "mistral")
    return load_text(text, [f"training.sequence_length={n}", "training.implementation=transformers", "training.precision=bf16"])


def test_formulas_on_both_sides_of_a_window() -> None:
    spec = mistral(4096)
    lengths = [1024, 4095, 4096, 8192]
    (swept,) = step_formulas(spec, spec.scenarios[0]).at(np.array([1]), np.array(lengths), lambda plan: plan.memory.activations_bytes)
    expected = [planned({"hf": MISTRAL, "B": 1, "n": n, "prec": "bf16"}).memory.activations_bytes for n in lengths]
    assert [int(value) for value in np.asarray(swept)] == expected
