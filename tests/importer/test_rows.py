"""The rows of the importer: the known keys of a type, their meaning, and the origin of each setting of a spec."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planner.importer.engine import Row, read, row
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.keys import code, size, uses_of
from planner.importer.listing import TRAINERS, keys_text, read_keys
from planner.importer.reader import UnsupportedConfigError
from planner.importer.types import FAMILIES, REFUSED, SUPPORTED
from planner.importer.write import spec_text

Config = dict[str, Any]

DATA = Path(__file__).parent.parent / "data"
TWINS: list[Config] = [json.loads(line) for line in (DATA / "twins.jsonl").read_text(encoding="utf-8").splitlines()]
PUBLISHED = {row["name"]: row["hf_config"] for row in map(json.loads, (DATA / "published.jsonl").read_text(encoding="utf-8").splitlines())}
ROWS = {**FAMILIES, **TRAINERS}
SIZES = ("vocab_size", "context_length", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")
MINIMAL: dict[str, Any] = {
    "vocab_size": size("vocab_size"), "context_length": size("max_position_embeddings", 99), "d_model": size("hidden_size"),
    "n_layers": size("num_hidden_layers"),
}  # fmt: skip
CONFIG: Config = {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2}


def test_a_row_yields_settings_with_their_source_keys() -> None:
    imported = read(row(MINIMAL), CONFIG, "made-up")
    assert imported.model == {"vocab_size": 97, "context_length": 99, "d_model": 48, "n_layers": 2}
    assert imported.origins == {"vocab_size": ("vocab_size",), "d_model": ("hidden_size",), "n_layers": ("num_hidden_layers",),
                                "context_length": ()}  # fmt: skip
    assert imported.defaults == {"context_length"}


def test_reading_an_undeclared_key_is_an_error() -> None:
    half_made = row(MINIMAL, {"d_ff": code(lambda c: c.value("intermediate_size"))})
    with pytest.raises(LookupError, match="made-up does not declare intermediate_size"):
        read(half_made, CONFIG, "made-up")


def test_a_later_part_of_a_row_overrides_earlier_ones() -> None:
    base = row(MINIMAL, only={"bias": False}, ignored={"a factor": "scale other"})
    more = row(base, {"d_model": 64, "n_layers": None}, only={"bias": True}, ignored={"terms of the loss": "other"})
    assert (more.settings["d_model"], more.settings["n_layers"], more.only) == (64, None, {"bias": True})
    assert more.ignored == {"scale": "a factor", "other": "terms of the loss"}


@pytest.mark.parametrize("name", ROWS)
def test_a_key_is_a_single_word(name: str) -> None:
    one: Row = ROWS[name]
    read_from = [key for key, _ in uses_of(one.settings)]
    assert all(key and " " not in key for key in (*read_from, *one.only, *one.ignored))


# A source key determines its size: multiplied by a hundred, it changes the size, or the model is rejected.
@pytest.mark.parametrize("config", TWINS, ids=lambda config: config["model_type"])
def test_a_size_depends_on_its_source_keys(config: Config) -> None:
    imported = read_huggingface(config)
    for setting in SIZES:
        for key in imported.origins.get(setting, ()):
            section, dot, inner = key.partition(".")
            value = config[section][inner] if dot else config[key]
            assert value is not None
            if isinstance(value, int) and not isinstance(value, bool):
                changed = {**config[section], inner: 100 * value} if dot else 100 * value
                with suppress(UnsupportedConfigError):
                    assert read_huggingface({**config, section: changed}).model[setting] != imported.model[setting], key


@pytest.mark.parametrize("config", TWINS, ids=lambda config: config["model_type"])
def test_comments_name_only_known_keys_of_the_type(config: Config) -> None:
    known = read_keys(FAMILIES[config["model_type"]])
    named = {key for keys in read_huggingface(config).origins.values() for key in keys}
    assert named <= set(known), "a comment names a key that the type does not know"


def test_comments_name_the_keys_of_each_line() -> None:
    config = PUBLISHED["openai/gpt-oss-120b"]
    lines = spec_text(read_huggingface(config), "gpt-oss").splitlines()
    assert "  head_dim: 64" in lines
    assert "  # num_local_experts, num_experts_per_tok, intermediate_size, hidden_act" in lines
    assert "    # layer_types, sliding_window" in lines


def test_a_size_missing_in_the_file_is_marked_as_a_default() -> None:
    config = {**TWINS[0], "model_type": "qwen3", "num_attention_heads": 6, "num_key_value_heads": 2}
    config.pop("head_dim", None)
    text = spec_text(read_huggingface({key: config[key] for key in (
        "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    )}), "small")  # fmt: skip
    # Qwen3Config: head_dim 128, max_position_embeddings 32,768
    assert "  head_dim: 128  # not in the file; default of qwen3" in text
    assert "  context_length: 32768  # not in the file; default of qwen3" in text


# transformers 5.24, Qwen3Config and Qwen3Attention: optional biases, head_dim 128, optional windows from layer 28 on.
def test_the_keys_of_a_type_can_be_listed() -> None:
    listed = {line.split()[0]: " ".join(line.split()[1:]) for line in keys_text("qwen3").splitlines()}
    assert listed["hidden_size"] == "required d_model"
    assert listed["num_layers"] == "another name of num_hidden_layers n_layers"
    assert listed["head_dim"] == "default 128, null means d_model / n_heads head_dim"
    assert listed["attention_bias"] == "default false attention.bias"
    assert listed["sliding_window"] == "default 4096, null means none layers"
    assert listed["max_window_layers"] == "default 28 layers"
    assert listed["is_encoder_decoder"] == "false"


def test_a_key_with_one_supported_value_and_one_that_is_ignored_are_listed() -> None:
    text = keys_text("hunyuan_v1_dense")
    lines = [line.split() for line in text.splitlines()]
    assert ["norm_type", '"rms"'] in lines
    assert ["attention_head_dim", "head_dim"] in lines
    assert "the type's class does not read it: " in text


def test_supported_and_unsupported_types_are_listed() -> None:
    lines = keys_text("all").splitlines()
    assert lines[: len(SUPPORTED)] == list(SUPPORTED)
    assert sum("is not supported: it " in line for line in lines) == len(REFUSED)


@pytest.mark.parametrize("name", ROWS)
def test_the_keys_of_every_type_can_be_listed(name: str) -> None:
    text = keys_text(name)
    assert all(f"\n  {key} " in text for key in (*read_keys(ROWS[name]), *ROWS[name].only))
