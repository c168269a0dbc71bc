"""serving.csv: the figures of sections ``serving``; specs without one have the same reports as before."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from planner.cli import main

LLAMA = """\
name: llama-4-layers
model:
  vocab_size: 128256
  context_length: 8192
  d_model: 4096
  n_layers: 4
  n_heads: 32
  n_kv_heads: 8
  d_ff: 14336
  positions: rope
  norm: {type: rmsnorm}
  feed_forward: {type: gated, activation: silu, bias: false}
  attention: {bias: false, qkv: separate}
  head: {tied: false}
"""


def written(folder: Path, text: str) -> Path:
    """Write the reports of a spec into a folder."""
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    assert main(["run", str(folder / "x.yaml"), "--output", str(folder / "out")]) == 0
    return folder / "out"


def test_a_row_has_the_figures_of_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = written(tmp_path, LLAMA + "serving: {batch_size: 8, prompt: 512, output: 2}\n")
    with (out / "serving.csv").open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    # 4 layers of Llama 3 8B with 8 prompts of 512 tokens, measured on transformers 5.24 and PyTorch 2.13.
    right = {
        "params_total": 1923125248, "serving_weights_bytes": 3846250496, "serving_cache_bytes": 67108864,
        "serving_cache_after_bytes": 67371008, "serving_prefill_peak_bytes": 4400198144, "serving_peak_bytes": 4400198144,
        "serving_prefill_flops": 7292669919232, "serving_first_token_flops": 22632988672,
    }  # fmt: skip
    assert {name: int(row[name]) for name in right} == right
    assert (row["model"], row["engine"], row["serving_pool_bytes"]) == ("llama-4-layers", "transformers", "")
    package = json.loads((out / "datapackage.json").read_text(encoding="utf-8"))
    (described,) = (one for one in package["resources"] if one["path"] == "serving.csv")
    assert [field["name"] for field in described["schema"]["fields"]] == list(row)


def test_engines_have_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = written(tmp_path, LLAMA + "serving: {engine: vllm, prompt: 4095, output: 1, cache_memory: 1GiB}\n")
    with (out / "serving.csv").open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    # 2 · 8 heads · 128 · 2 bytes · 4 layers = 16 KiB a token; 1 GiB / 16 KiB = 65,536 tokens
    assert (row["serving_request_bytes"], row["serving_pool_tokens"], row["serving_cache_bytes"]) == (str(4096 * 16 * 1024), "65536", "")


def test_specs_without_the_section_have_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = written(tmp_path, LLAMA)
    assert sorted(path.name for path in out.iterdir()) == ["capacity.csv", "capacity.md", "components.csv", "datapackage.json"]
    assert "serving" not in (out / "datapackage.json").read_text(encoding="utf-8")
