"""The command serve: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import planner as api
from planner.capacity.served import Served

Planner = Callable[..., tuple[int, str, str]]


def test_serve_prints_memory_and_passes(home: Path, planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.output=4")
    code, out, err = planner("serve", "specs/tiny.yaml", *settings)
    assert (code, err) == (0, "")
    assert "cache after the prompts" in out
    code, text, _ = planner("serve", "specs/tiny.yaml", *settings, "--format", "json")
    made = json.loads(text)
    served = api.serve(home / "specs" / "tiny.yaml", prompt=16, output=4)
    assert isinstance(served, Served)
    assert (code, made["cache_bytes"], made["last"]["peak_bytes"]) == (0, served.cache_bytes, served.last.peak_bytes)


def test_json_has_the_figures_of_the_table(planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.memory=1MiB", "--format", "json")
    made = json.loads(planner("serve", "specs/tiny.yaml", *settings)[1])
    assert made["free_bytes"] == 1024 * 1024 - made["peak_bytes"]
    of_engine = json.loads(planner("serve", "specs/tiny.yaml", *settings, "--set", "serving.engine=vllm")[1])
    # The text says how many requests fit as a fraction; the table, how many whole ones.
    assert of_engine["requests"] == int(Fraction(of_engine["concurrency"]))


def test_serve_says_what_does_not_fit(planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.memory=1kB")
    code, out, _ = planner("serve", "specs/tiny.yaml", *settings)
    assert (code, "does not fit" in out) == (1, True)
    code, out, _ = planner("serve", "specs/tiny.yaml", *settings, "--set", "serving.engine=vllm")
    assert (code, "0.00 requests" in out) == (1, True)


def test_serve_reports_errors(home: Path, planner: Planner) -> None:
    assert planner("serve", "specs/tiny.yaml")[::2] == (
        2,
        "planner: serve: tiny has no section serving; write one, or add --set serving.prompt=2048\n",
    )
    share = ("--set", "serving.engine=vllm", "--set", "serving.memory_utilization=90")
    code, _, err = planner("serve", "specs/tiny.yaml", "--set", "serving.prompt=16", *share)
    assert (code, "memory_utilization '90' exceeds 1, all of the memory" in err) == (2, True)
    code, _, err = planner("serve", "specs/tiny.yaml", "--set", "serving.prompt=40")
    assert (code, "error[context]" in err) == (2, True)
    with pytest.raises(ValueError, match="has no section serving"):
        api.serve(home / "specs" / "tiny.yaml")


# Bytes of a token in bf16: gemma-2-2b has 13 layers of each kind with keys and values of 4 heads of 256; DeepSeek-V3 61 latents of 512 and
# rotated keys of 64; Jamba 4 layers of 32 with keys and values of 8 heads of 128, 28 of Mamba.
KINDS = {
    "gemma-2-2b": {"window": (13, 13 * 2 * 4 * 256 * 2), "full attention": (13, 13 * 2 * 4 * 256 * 2)},
    "deepseek-v3": {"latent": (61, 61 * (512 + 64) * 2)},
    "jamba-v0.1": {"state": (28, 0), "full attention": (4, 4 * 2 * 8 * 128 * 2)},
}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_layers_add_up_to_the_cache(name: str, cache: str, planner: Planner) -> None:
    settings = ("serving.prompt=5000", "serving.output=3", "serving.batch_size=2", f"serving.cache.type={cache}")
    arguments = ("serve", f"catalog/{name}", *(part for one in settings for part in ("--set", one)))
    made = json.loads(planner(*arguments, "--format", "json")[1])
    kinds = {one["kind"]: one for one in made["caches"]}
    assert {kind: (one["layers"], one["token_bytes"]) for kind, one in kinds.items()} == KINDS[name]
    assert sum(one["all_bytes"] for one in kinds.values()) == made["cache_after_bytes"]
    if name == "gemma-2-2b":  # a window of 4,096 tokens, and the number of tokens of each layer in 8 bytes
        assert kinds["window"]["all_bytes"] == 2 * 4096 * 13 * 4096 + 13 * 8
    shown = planner(*arguments)[1]
    assert ("a sequence" in shown) == (len(kinds) > 1)
