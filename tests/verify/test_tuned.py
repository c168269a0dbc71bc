"""Adapters and frozen weights: plans equal peft's and bitsandbytes' modules on fake tensors, value by value."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import planner
from planner.verify import CannotMeasureError
from planner.verify.comparison import compare

LLAMA: dict[str, Any] = {
    "vocab_size": 1000,
    "context_length": 512,
    "d_model": 128,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 256,
    "positions": "rope",
    "norm": {"type": "rmsnorm"},
    "attention": {"bias": False, "qkv": "separate"},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "head": {"tied": False},
    "model_type": "llama",
}
MIXTRAL = {key: value for key, value in LLAMA.items() if key != "feed_forward"} | {
    "model_type": "mixtral",
    "experts": {"count": 8, "top_k": 2, "d_ff": 192},
}
GPT2 = {
    "vocab_size": 1000, "context_length": 512, "d_model": 128, "n_heads": 4, "n_layers": 3, "model_type": "gpt2",
    "feed_forward": {"activation": "gelu_new"}, "head": {"tied": True},
}  # fmt: skip
QLORA = {"base": {"format": "nf4", "double_quant": True, "prepare": True, "dtype": "bf16"}}
FROZEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (LLAMA, {"train": ["layers.1", "final_norm", "head"]}),
    (LLAMA, {"train": ["layers.1-2", "head"], "recompute": "full"}),
    (GPT2, {"train": "bias"}),
    ({key: value for key, value in LLAMA.items() if key != "model_type"}, {"train": ["layers.2"], "implementation": "pytorch"}),
]


def adapters(**settings: Any) -> dict[str, Any]:  # noqa: ANN401 - any setting
    return {"train": "adapters", "adapters": settings}


ADAPTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (LLAMA, adapters(rank=4, layers=["1-2"], dtype="base") | {"padding": True}),
    (LLAMA, adapters(rank=4, type="dora", dropout=0.1) | {"precision": "bf16-autocast", "base": {"dtype": "bf16"}}),
    (LLAMA, adapters(rank=4) | QLORA | {"recompute": "full"}),
    (LLAMA, adapters(rank=4, targets=["q", "v"]) | {"base": {"format": "fp4"}, "sequence_length": 512}),
    (LLAMA, adapters(rank=4, targets=["q", "embedding"]) | {"input_gradients": True}),
    (LLAMA, adapters(rank=4, targets=["q"]) | {"also_train": ["embedding", "head"]}),
    (LLAMA, adapters(type="ia3", targets=["k", "v", "down"])),
    (LLAMA, adapters(type="prompt")),
    (LLAMA, adapters(type="prefix") | {"padding": True}),
    (LLAMA, adapters(type="prefix") | QLORA),
    (LLAMA, adapters(rank=4, type="dora") | QLORA),
    (MIXTRAL, adapters(rank=4) | {"recompute": "full"}),
    (GPT2, adapters(rank=4) | {"precision": "bf16-autocast", "base": {"dtype": "bf16"}}),
    (GPT2, adapters(rank=4, targets=["qkv", "down"]) | {"base": {"format": "nf4"}}),
    (GPT2, adapters(rank=4) | QLORA | {"recompute": "full"}),  # position ids, and biases that bitsandbytes casts in place
]
# pip install modelplan[tuning]
CASES = FROZEN + (ADAPTERS if find_spec("peft") and find_spec("bitsandbytes") else [])


def checked(model: dict[str, Any], training: dict[str, Any], checks: tuple[Any, ...]) -> list[tuple[str, object, object]]:
    settings = {"implementation": "transformers", "precision": "bf16", "batch_size": 2, "sequence_length": 64, **training}
    spec = planner.load({"name": "tuned", "model": model, "training": settings})
    rows = [row for check in checks for row in compare(spec, spec.scenarios[0], check)]
    return [(row.figure, row.ours, row.pytorch) for row in rows if row.ours != row.pytorch]


@pytest.mark.parametrize(("model", "training"), CASES, ids=[str(training) for _, training in CASES])
def test_a_step_of_peft_equals_its_plan(model: dict[str, Any], training: dict[str, Any]) -> None:
    assert checked(model, training, (("parameters",), ("kept", "flops", "step"))) == []


@pytest.mark.parametrize("check", ["optimizer", "loss"])
def test_checks_of_all_weights_are_refused(check: str) -> None:
    with pytest.raises(CannotMeasureError, match=f"{check}: compared only where all weights train"):
        checked(LLAMA, {"train": "head"}, ((check,),))
