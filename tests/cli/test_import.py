"""planner import, and the other commands on a config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main

Planner = Callable[..., tuple[int, str, str]]

# Llama 3.2 1B: 1,235,814,400 parameters as published.
LLAMA: dict[str, Any] = {
    "_name_or_path": "meta-llama/Llama-3.2-1B", "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
    "max_position_embeddings": 131072, "rope_theta": 500000.0, "unsloth_version": "2025.1",
}  # fmt: skip
PARAMS = "1235814400"
CATALOG = Path(__file__).parent.parent.parent / "specs" / "catalog"


@pytest.fixture
def config(home: Path) -> Path:
    """Write a config.json into a folder with the model's name."""
    path = home / "llama-3.2-1b" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    return path


def test_a_config_becomes_a_commented_spec_that_runs(planner: Planner, config: Path, home: Path) -> None:
    code, out, err = planner("import", str(config), "-o", "specs/mine.yaml")
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "planner: ignored unrecognized keys (assumed not to affect the model): unsloth_version",
        "planner: wrote specs/mine.yaml",
    ]
    assert (
        (home / "specs" / "mine.yaml").read_text(encoding="utf-8")
        == """\
# Imported from a configuration of type llama. Comments show the source keys of each line.
# Unknown keys, assumed not to affect the model: unsloth_version.
name: mine
source: https://huggingface.co/meta-llama/Llama-3.2-1B
model:
  model_type: llama
  vocab_size: 128256
  context_length: 131072  # max_position_embeddings
  d_model: 2048  # hidden_size
  n_layers: 16  # num_hidden_layers
  n_heads: 32  # num_attention_heads
  n_kv_heads: 8  # num_key_value_heads
  d_ff: 8192  # intermediate_size
  attention: {bias: false, qkv: separate}
  feed_forward: {type: gated, activation: silu, bias: false}
  norm: {type: rmsnorm}
  positions: rope
"""
    )
    assert planner("run", "specs/mine.yaml")[0] == 0
    assert PARAMS in (home / "reports" / "capacity.csv").read_text(encoding="utf-8")


def test_keys_can_be_set(planner: Planner, config: Path) -> None:
    code, out, err = planner("import", str(config), "--set", "vocab_size=32000", "--set", "attention_bias=true")
    assert code == 0
    assert "  vocab_size: 32000\n" in out
    assert "  attention: {qkv: separate}  # attention_bias\n" in out
    assert "planner: note: `vocab_size` is 32000 as set, not 128256 as in the file" in err
    code, out, err = planner("import", str(config), "--set", "vocab_sise=32000")
    assert (code, out) == (1, "")
    assert err.endswith("--set vocab_sise: unknown key of Hugging Face configurations; did you mean vocab_size?\n")


def test_a_folder_and_standard_input_can_be_imported(planner: Planner, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = planner("import", str(config.parent))
    assert (code, out.splitlines()[2]) == (0, "name: llama-3.2-1b")
    with config.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        code, out, _ = planner("import", "-", "--name", "other", "--source", "a paper")
    assert (code, out.splitlines()[2:4]) == (0, ["name: other", 'source: "a paper"'])


def test_an_existing_spec_is_never_overwritten(planner: Planner, config: Path, home: Path) -> None:
    before = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8")
    code, _, err = planner("import", str(config), "-o", "specs/tiny.yaml")
    assert (code, "--force to overwrite" in err) == (2, True)
    assert (home / "specs" / "tiny.yaml").read_text(encoding="utf-8") == before
    assert planner("import", str(config), "-o", "specs/tiny.yaml", "--force")[0] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(LLAMA | {"hidden_size": None}), "llama config: `hidden_size` is missing"),
        (json.dumps(LLAMA | {"hidden_size": "2048"}), "llama config: `hidden_size: '2048'` is not a positive integer"),
        (json.dumps(LLAMA | {"model_type": "llama9"}), "model_type 'llama9' is not supported"),
        (json.dumps(LLAMA | {"model_type": "mixtral", "num_local_experts": 8}), "mixtral config: `num_experts_per_tok` is missing"),
        (
            json.dumps(LLAMA | {"num_key_value_heads": 7}),
            "describes an invalid model: n_kv_heads 7 does not divide n_heads 32",
        ),
        (json.dumps(LLAMA)[:99], "invalid JSON"),
        ("hello", "invalid JSON"),
        ("", "the file is empty"),
        ("[" * 2**21, "exceeds the limit of 1 MiB"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is not UTF-8"),
    ],
    ids=["missing", "type", "unknown", "no-top-k", "impossible", "truncated", "text", "empty", "huge", "binary"],
)
def test_bad_configurations_are_reported_in_one_line(content: str | bytes, message: str, planner: Planner, home: Path) -> None:
    (home / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    for command in ("import", "validate"):
        code, out, err = planner(command, "config.json")
        assert (code, out) == (1, "")
        assert message in err.splitlines()[0]
        assert err.startswith(("planner: config.json: ", "config.json"))


def test_a_missing_config_exits_with_2(planner: Planner) -> None:
    assert planner("import", "nowhere/config.json")[0] == 2


def test_run_accepts_a_config_directly(planner: Planner, config: Path, home: Path) -> None:
    assert planner("run", str(config), "--set", "training.sequence_length=128")[0] == 0
    row = (home / "reports" / "capacity.csv").read_text(encoding="utf-8").splitlines()[1]
    assert row.startswith("llama-3.2-1b,")
    assert PARAMS in row


def test_a_json_file_can_be_a_spec(planner: Planner, home: Path) -> None:
    model = {"vocab_size": 200, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4}
    (home / "spec.json").write_text(json.dumps({"name": "from-json", "model": model}), encoding="utf-8")
    assert planner("validate", "spec.json")[0] == 0


@pytest.mark.parametrize(("file", "given"), [("model.yml", LLAMA), ("spec.json", {"name": "small", "extends": "catalog/gpt2"})])
def test_json_is_a_configuration_or_a_spec_by_its_keys(file: str, given: dict[str, object], planner: Planner, home: Path) -> None:
    (home / file).write_text(json.dumps(given), encoding="utf-8")
    assert planner("validate", file)[0] == 0


LITGPT = "name: small\nn_layer: 2\nn_head: 6\nn_embd: 48\nblock_size: 64\npadded_vocab_size: 97\nrotary_percentage: 1.0\n"


@pytest.mark.parametrize(
    ("file", "given", "message"),
    [
        ("model_config.yaml", LITGPT, ""),
        ("flow.yml", "{n_layer: 2, n_head: 6, n_embd: 48, block_size: 64, padded_vocab_size: 97}", ""),
        ("gpt.py", "n_layer = 2\nn_head = 6\nn_embd = 48\nbias = False\n", ""),
        ("other.toml", "[train]\nsteps = 3\n", "unrecognized TOML"),
        ("training.yaml", "name: mine\ntraining: {batch_size: 8}\n", "missing required key 'model'"),
        ("class.yaml", "{model_type: LlamaForCausalLM}", "the model_type of its config.json is llama"),
    ],
)
def test_a_file_without_the_keys_of_a_spec_is_read_as_a_configuration(
    file: str, given: str, message: str, planner: Planner, home: Path
) -> None:
    (home / file).write_text(given, encoding="utf-8")
    code, _, err = planner("validate", file)
    assert (code, message in err) == (1 if message else 0, True)


def test_list_finds_a_model_by_part_of_its_name(planner: Planner) -> None:
    code, out, _ = planner("list", "llama-3-8b")
    assert code == 0
    assert out.splitlines()[1].split() == ["catalog/llama-3-8b", "8.030", "B", "8.030", "B", "meta-llama/Meta-Llama-3-8B"]
    assert sum(line.startswith("catalog/") for line in planner("list")[1].splitlines()) == len(list(CATALOG.rglob("*.yaml")))
    code, out, err = planner("list", "llamma-3-8b")
    assert (code, out) == (1, "")
    assert "catalog" in err
    assert "llama-3-8b" in err


def test_a_spec_can_extend_a_model_of_the_catalog(planner: Planner, home: Path) -> None:
    spec = home / "specs" / "mine.yaml"
    spec.write_text("name: mine\nextends: catalog/llama-3-8b\nmodel: {n_layers: 40}\n", encoding="utf-8")
    assert planner("run", "specs/mine.yaml")[0] == 0
    # 8,030,261,248 plus 8 more layers of 218,112,000
    assert str(8_030_261_248 + 8 * 218_112_000) in (home / "reports" / "capacity.csv").read_text(encoding="utf-8")
    spec.write_text("name: mine\nextends: catalog/llama-3-9b\n", encoding="utf-8")
    code, _, err = planner("run", "specs/mine.yaml")
    assert code == 1
    assert "no model named 'llama-3-9b' in the catalog; did you mean catalog/llama-3-8b" in err


def test_the_keys_of_a_type_are_printed(planner: Planner) -> None:
    code, out, err = planner("import", "--keys", "llama")
    assert (code, err) == (0, "")
    assert any(line.split() == ["hidden_size", "required", "d_model"] for line in out.splitlines())
    assert planner("import", "--keys", "all")[1].splitlines()[0] == "afmoe"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keys", "llama5"], "model_type 'llama5' is not supported; similar names, which are other architectures: llama"),
        (["--keys", "zamba2"], "model_type 'zamba2' is not supported: it uses attention blocks of twice the width"),
        (["--keys", "llama", "config.json"], "--keys takes no CONFIG"),
        ([], "missing CONFIG"),
    ],
)
def test_keys_of_an_unknown_type_and_a_missing_configuration_are_reported(planner: Planner, arguments: list[str], message: str) -> None:
    code, out, err = planner("import", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_config_that_is_read_directly_is_noted_as_on_import(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2,
        "vocab_size": 50, "max_position_embeddings": 32, "torch_dtype": "bfloat16", "a_new_word": 7,
    }  # fmt: skip
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert main(["import", "config.json"]) == 0
    noted = [line.removeprefix("planner: ") for line in capsys.readouterr().err.splitlines()]
    assert [line.partition(",")[0] for line in noted] == [
        "note: precision bf16",
        "ignored unrecognized keys (assumed not to affect the model): a_new_word",
    ]
    assert main(["show", "config.json"]) == 0
    assert capsys.readouterr().err.splitlines() == [f"planner: config.json: {line}" for line in noted]
