"""Bytes of weights in packed formats, compared with published sizes of files and with the blocks of each format.

``tests/data/ggml_types.csv``: elements and bytes of a block, from the package gguf 0.19 (constants.py, GGML_QUANT_SIZES).
``tests/data/packed_files.csv``: published sizes, which include the tokenizer and other data: up to some 12 MB.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

import planner
from planner.capacity.figures import Plan, Weight
from planner.capacity.formats import GGML, formats, grouped, in_squares, of_type

DATA = Path(__file__).parent.parent / "data"
TYPES = list(csv.DictReader((DATA / "ggml_types.csv").read_text(encoding="utf-8").splitlines()))
FILES = list(csv.DictReader((DATA / "packed_files.csv").read_text(encoding="utf-8").splitlines()))
ROUNDING = 0.013  # GiB


@cache
def stored(model: str) -> tuple[dict[str, int], Plan]:
    plan = planner.plan(planner.load({"name": "stored", "extends": f"catalog/{model}"}))
    return {one.name: one.bytes for one in formats(plan)}, plan


def linear(*shape: int) -> Weight:
    return Weight("layers.N.mlp.up_proj.weight", shape, 1, "feed_forward", "", always_float32=False, active_each=0, multiplied=True)


def test_every_type_of_ggml() -> None:
    assert {row["type"]: (int(row["elements"]), int(row["bytes"])) for row in TYPES} == GGML
    for kind, (elements, size) in GGML.items():
        assert of_type(kind, linear(3, 512)) == 3 * 512 // elements * size


def test_types_of_rows_that_blocks_do_not_divide() -> None:
    assert of_type("q4_k", linear(10, 96)) == 10 * 96 // 32 * 22  # q5_0
    assert of_type("q6_k", linear(10, 96)) == 10 * 96 // 32 * 34  # q8_0
    assert of_type("q4_k", linear(10, 33)) == 10 * 33 * 2


@pytest.mark.parametrize("row", FILES, ids=[f"{row['model']}-{row['format']}" for row in FILES])
def test_published_files(row: dict[str, str]) -> None:
    sizes, plan = stored(row["model"])
    assert abs(sizes[row["format"]] / 2**30 - float(row["published_gib"])) < ROUNDING + (0.04 if "mxfp4" in row["format"] else 0)
    if row["bits_per_weight"]:
        assert 8 * sizes[row["format"]] / plan.parameters.total == pytest.approx(float(row["bits_per_weight"]), abs=5e-5)


def test_linears_in_groups_and_squares() -> None:
    # 4 bits an element; a scale of 2 bytes and a zero point of half a byte per group of 128 inputs and output: 100 · 2 groups
    assert grouped(linear(100, 256), 128) == 100 * 256 // 2 + 200 * 2 + 200 // 2
    # DeepSeek-V3: a float32 scale per square of 128 · 128, edges rounded up: 2 · 3 squares
    assert in_squares(linear(200, 300)) == 200 * 300 + 6 * 4


def test_int8_has_a_scale_per_row() -> None:
    sizes, plan = stored("llama-2-7b")
    rows = 32 * (4 * 4096 + 2 * 11_008 + 4096)
    packed = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008)
    assert sizes["int8"] == packed + 4 * rows + 2 * (plan.parameters.total - packed)


@pytest.mark.parametrize("model", ["falcon-7b", "gpt2", "mixtral-8x7b-v0.1", "gemma-2-2b"])
def test_files_whose_types_are_not_known_are_not_listed(model: str) -> None:
    assert not [name for name in stored(model)[0] if name.startswith("gguf")]
