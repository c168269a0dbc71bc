"""Engines that serve packed weights: bytes of published files and logs, and what decoding reads."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.spec.problems import SpecError
from planner.trace.unsupported import UnsupportedError

# Gibibytes of files of Llama 3.1 8B (ggml-org/llama.cpp, tools/quantize/README.md), rounded to 0.01.
FILES = {"q8_0": 7.95, "q5_k_m": 5.33, "q4_k_m": 4.58, "q3_k_s": 3.41}


@pytest.mark.parametrize("name", FILES)
def test_weights_of_llama_cpp_are_those_of_its_files(name: str) -> None:
    made = planner.serve("catalog/llama-3.1-8b", engine="llama.cpp", weights=name, prompt=512)
    assert made.weights_bytes / 2**30 == pytest.approx(FILES[name], abs=0.013)


def test_weights_in_8_bits_are_those_of_a_log() -> None:
    """vllm-project/vllm#12569: "model weights take 67.7229GiB" of Llama 3.1 70B in W8A8."""
    made = planner.serve("catalog/llama-3.1-70b", engine="vllm", weights="int8", prompt=2047)
    assert made.weights_bytes / 2**30 == pytest.approx(67.7229, rel=1e-3)


SMALL = {"vocab_size": 128, "context_length": 64, "d_model": 256, "n_layers": 2, "n_heads": 4, "d_ff": 512, "positions": "none"}
PLAIN = {
    "norm": {"type": "rmsnorm"},
    "attention": {"bias": False, "qkv": "separate"},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "head": {"tied": False},
}


def small(**serving: object) -> Any:  # noqa: ANN401 - either kind of result
    return planner.serve({"name": "small", "model": SMALL | PLAIN, "serving": {"engine": "vllm", "prompt": 16, **serving}})


@pytest.mark.parametrize("devices", [1, 2])
def test_devices_share_packed_linears(devices: int) -> None:
    linears = 4 * 256 * 256 + 3 * 256 * 512  # elements of a layer
    # 4 bits an element, and per group of 64 inputs and output a scale of 2 bytes and a zero point of half a byte
    packed = linears // 2 + linears // 64 * 5 // 2
    plain = 2 * (2 * 128 * 256 // devices + (2 * 2 + 1) * 256)  # embedding and head are shared, norms are not
    assert small(weights="awq", group_size=64, tensor_parallel=devices).weights_bytes == 2 * packed // devices + plain


def test_experts_are_packed_one_by_one() -> None:
    experts = {"count": 8, "top_k": 2, "d_ff": 128}
    plain, packed = (
        planner.serve(
            {
                "name": "small",
                "model": SMALL | PLAIN | {"experts": experts},
                "serving": {"engine": "vllm", "prompt": 16, "weights": weights},
            }
        )
        for weights in ("bf16", "mxfp4")
    )
    elements = 2 * 8 * 3 * 256 * 128  # 16 bits, or 4 and 8 bits of an exponent per 32
    assert plain.weights_bytes - packed.weights_bytes == 2 * elements - elements * 17 // 32


def test_decoding_reads_packed_weights() -> None:
    made = planner.serve("catalog/llama-2-7b", engine="llama.cpp", weights="q8_0", prompt=1024, memory="A100-80GB-SXM")
    assert made.bounds
    products = 6_738_415_616 - 32_000 * 4096 - (2 * 32 + 1) * 4096  # weights but for the embedding and norms, 34 bytes for 32
    cache = 2 * 1025 * 32 * 2 * 4096
    assert made.bounds.last.seconds == pytest.approx((products * 34 // 32 + cache) / 2_039e9, rel=1e-12)


def test_rates_in_4_bits_are_below_the_bound() -> None:
    """gpt-fast's README: 196.8 tokens a second of Llama 2 7B, and 25.25 of 70B, in int4 of groups of 32 on an A100-80GB."""
    for model, published in (("7b", 196.8), ("70b", 25.25)):
        settings: dict[str, Any] = {
            "engine": "vllm",
            "weights": "awq",
            "group_size": 32,
            "prompt": 5,
            "output": 200,
            "memory": "A100-80GB-SXM",
        }
        bounds = planner.serve(f"catalog/llama-2-{model}", **settings).bounds
        assert bounds
        assert 0.25 < published / bounds.tokens_per_second < 1


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        ("mixtral-8x7b-v0.1", {"engine": "llama.cpp", "weights": "q4_k_m"}, "known only of dense models"),
        ("llama-2-7b", {"engine": "vllm", "weights": "mxfp4"}, "the model has none"),
    ],
)
def test_what_is_not_known_is_refused(model: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        planner.serve(f"catalog/{model}", prompt=16, **settings)


@pytest.mark.parametrize(("engine", "weights"), [("llama.cpp", "awq"), ("vllm", "q4_k_m"), ("transformers", "awq")])
def test_formats_belong_to_engines(engine: str, weights: str) -> None:
    with pytest.raises(SpecError, match=f"weights {weights} are not modeled with engine {engine}"):
        planner.serve("catalog/llama-2-7b", prompt=16, engine=engine, weights=weights)
