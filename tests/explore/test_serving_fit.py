"""``planner fit --serving``: the largest values fit, and the next ones do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import planner
from planner.capacity.served import Served
from planner.cli import main
from planner.explore import serving_fit
from planner.spec import read

LLAMA = """\
name: llama-4-layers
extends: catalog/llama-3-8b
model: {n_layers: 4}
"""


def written(folder: Path, serving: str) -> Path:
    path = folder / "llama.yaml"
    path.write_text(f"{LLAMA}serving: {{{serving}}}\n", encoding="utf-8")
    return path


def peak(path: Path, override: str) -> int:
    ((spec,), problems) = read([path], [override])
    assert not problems
    assert spec.serving is not None
    made = planner.serve(spec)
    assert isinstance(made, Served)
    return made.peak_bytes


def test_the_most_sequences_fit_and_one_more_does_not(tmp_path: Path) -> None:
    path = written(tmp_path, "prompt: 1024, output: 16, memory: 8GiB")
    spec = planner.load(path)
    assert spec.serving is not None
    batch, prompt = serving_fit.largest(spec, spec.serving)
    assert batch.best is not None
    assert peak(path, f"serving.batch_size={batch.best}") == batch.bytes
    assert peak(path, f"serving.batch_size={batch.best}") <= 8 * 2**30 < peak(path, f"serving.batch_size={batch.best + 1}")
    assert (prompt.best, "exceed context_length 8192" in prompt.limited_by) == (8192 - 16, True)
    assert [one.prompt for one in serving_fit.users(spec, spec.serving)] == [1024, 2048, 4096, 8192 - 16]
    assert serving_fit.users(spec, spec.serving)[0].most == batch.best


def test_requests_of_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 KiB a token in 4 layers of 8 key heads of 128: 1 GiB has room for 65,536 tokens, 64 requests of 1,024 or 8 of 8,192."""
    path = written(tmp_path, "engine: vllm, prompt: 1008, output: 16, cache_memory: 1GiB")
    assert main(["fit", str(path), "--serving", "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(one["setting"], one["best"]) for one in made["fits"]] == [("batch_size", 64), ("prompt", 8192 - 16)]
    assert made["users"][-1] == {"prompt": 8192 - 16, "most": 8}
    assert made["devices"] is None


def test_the_fewest_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of 3.58 GiB do not fit in 2 GiB, and 64 requests of 1,024 tokens need 1 GiB: 8 heads are shared by up to 8 devices."""
    path = written(tmp_path, "engine: vllm, batch_size: 64, prompt: 1008, output: 16, memory: 2GiB, memory_utilization: 1")
    assert main(["fit", str(path), "--serving", "--format", "json"]) == 1  # one device has no room for any
    # On 4 devices weights leave over 1 GiB, and the cache needs 256 MiB; on 2, 1.79 GiB of weights leave too little for 512 MiB.
    assert json.loads(capsys.readouterr().out)["devices"]["best"] == 4


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "prompt: 64")
    assert main(["fit", str(path), "--serving"]) == 2
    assert "give --memory" in capsys.readouterr().err
    assert main(["fit", str(path), "--serving", "--memory", "8GiB", "--for", "batch_size"]) == 2
    assert "--for lists settings of training" in capsys.readouterr().err
    assert main(["fit", str(path), "--serving", "--memory", "8GiB"]) == 0
    assert "Most sequences at once by length of the prompt" in capsys.readouterr().out
