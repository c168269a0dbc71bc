"""What requests share, what a draft proposes and what decoding costs, by arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.capacity.served import Pooled
from planner.spec.problems import SpecError
from planner.trace.unsupported import UnsupportedError

A100: dict[str, Any] = {"engine": "vllm", "memory": "A100-80GB-SXM"}  # 312 TFLOP/s in bf16, 2,039 GB/s


def pooled(spec: dict[str, Any]) -> Pooled:
    made = planner.serve(spec)
    assert isinstance(made, Pooled)
    return made


def test_a_shared_prefix_is_cached_once() -> None:
    """Blocks of 16 tokens of 2 layers of 256 keys and values: 32 KiB. Requests of 48 tokens have 3, the first of which they share."""
    model = {"vocab_size": 128, "context_length": 64, "d_model": 256, "n_layers": 2, "n_heads": 4, "positions": "none"}
    serving = {"engine": "vllm", "prompt": 40, "output": 8, "batch_size": 10, "shared_prefix": 20, "cache_memory": "1MiB"}
    pool = pooled({"name": "small", "model": model, "serving": serving}).pool
    assert pool.request_bytes == 3 * 32 * 1024
    assert pool.all_bytes == (1 + 10 * 2) * 32 * 1024
    assert pool.concurrency == (32 - 1) / 2


def test_products_of_a_shared_prefix_are_done() -> None:
    made = planner.serve("catalog/llama-2-7b", prompt=1024, shared_prefix=512, **A100)
    assert made.bounds
    linears = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    pairs = (1024**2 - 512**2) // 2  # of queries and keys that the causal mask allows, two products of each
    assert made.bounds.prefill.flops == 2 * 512 * linears + 32 * 2 * 2 * 4096 * pairs


def test_drafts_are_accepted_up_to_the_first_that_is_not() -> None:
    alone = planner.serve("catalog/llama-2-7b", prompt=64, **A100).bounds
    drafted = planner.serve("catalog/llama-2-7b", prompt=64, draft_tokens=3, acceptance=0.8, **A100).bounds
    assert alone
    assert drafted
    assert drafted.tokens_per_pass == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3)
    assert drafted.last.seconds == alone.last.seconds  # it reads the same weights and cache
    assert drafted.last.flops == 4 * alone.last.flops
    assert drafted.tokens_per_second / alone.tokens_per_second == pytest.approx(2.952)


def test_the_price_of_a_million_tokens() -> None:
    made = planner.serve("catalog/llama-2-7b", prompt=64, tensor_parallel=2, price=1.8, **A100).bounds
    assert made
    assert made.price_per_million == pytest.approx(2 * 1.8 / 3600 * 10**6 / made.all_tokens_per_second)


def test_a_window_has_room_for_a_pass() -> None:
    """As vLLM's spec of a window: blocks for window - 1 and the tokens of a pass, and one since they need not start at a block."""
    layers = [{"count": 1, "layers": [{}, {"attention": {"window": 64}}]}]
    model = {"vocab_size": 64, "context_length": 4096, "d_model": 64, "n_heads": 4, "positions": "none", "layers": layers}
    made = pooled({"name": "hybrid", "model": model, "serving": {"engine": "vllm", "prompt": 4095, "batched_tokens": 1024}})
    blocks = 4096 // 16 + (-(-(64 - 1 + 1024) // 16) + 1)
    assert made.pool.request_bytes == blocks * 16 * 2 * 64 * 2
    with pytest.raises(UnsupportedError, match="shared prefix of layers with a window"):
        planner.serve({"name": "hybrid", "model": model, "serving": {"engine": "vllm", "prompt": 4095, "shared_prefix": 64}})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"engine": "vllm", "prompt": 16, "shared_prefix": 16}, "shared_prefix 16 must be less than prompt 16"),
        ({"prompt": 16, "shared_prefix": 8}, "shared_prefix requires engine"),
        ({"prompt": 16, "draft_tokens": 2}, "draft_tokens requires acceptance"),
        ({"prompt": 16, "acceptance": 0.5}, "acceptance requires draft_tokens"),
        ({"prompt": 16, "draft_tokens": 2, "acceptance": 1.5}, "acceptance '1.5' exceeds 1"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        planner.serve("catalog/llama-2-7b", **settings)
