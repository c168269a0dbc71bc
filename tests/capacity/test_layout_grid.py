"""Layouts as arrays: each figure of each layout is that of its own plan."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planner
from planner.capacity import layout_groups
from planner.capacity.layout_grid import evaluate, peaks
from planner.capacity.layout_symbols import SIZES, size_of, with_sizes
from planner.explore.table import METRICS
from planner.spec.records import Cluster, Layout, Model, Scenario, Spec, Training
from planner.spec.records.layout import ContextKind
from planner.spec.records.training import GradientDtype
from planner.trace.unsupported import UnsupportedError
from tests.work import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

GPT2 = {"name": "gpt", "extends": "catalog/gpt2-xl", "model": {"n_heads": 32, "d_model": 512, "head": {"tied": False},
    "pad_vocab_to_multiple_of": 32}, "training": {"batch_size": 1, "dropout": 0}}  # fmt: skip
LLAMA = {"name": "llama", "extends": "catalog/llama-3-8b", "training": {"batch_size": 1}}
MIXED = {"name": "two kinds of layers", "extends": "catalog/llama-3-8b", "training": {"batch_size": 1}, "model": {
    "layers": [{"count": 3, "d_ff": 512}, {"count": 29}]}}  # fmt: skip


def drawn(rng: random.Random, *, divided_class: bool) -> Iterator[tuple[str, Any]]:
    """Yield settings of a training that is modeled at random, those of its layout by their names there.

    ``divided_class``: whether tensor parallelism of the model's class of transformers is modeled.
    """
    pipeline, tensor = rng.random() < 0.6, rng.random() < 0.6
    kind = rng.choice(["ddp", "fsdp"] if pipeline or tensor else ["ddp", "zero1", "fsdp", "hsdp"])
    others = (["bf16-master"] if kind in ("fsdp", "hsdp") else []) + ([] if pipeline or tensor else ["bf16-autocast"])
    precision = rng.choice(["bf16", "fp32", *others])
    yield from {"pipeline": pipeline, "tensor": tensor, "data_parallel": kind, "precision": precision}.items()
    yield "schedule", rng.choice(["1f1b", "gpipe", "interleaved"])
    yield "sequence_parallel", tensor and rng.random() < 0.5
    yield "loss_parallel", tensor and rng.random() < 0.5
    yield "reshard_after_forward", "never" if pipeline else rng.choice(["auto", "never", "always"])
    yield "shard_group", rng.choice(["block", "titan", "none"])
    yield "gradient_as_bucket_view", kind in ("ddp", "zero1") and rng.random() < 0.5
    yield "recompute", rng.choice(["none", "full"])
    yield "implementation", rng.choice(["pytorch", *(["transformers"] if divided_class or not tensor else [])])
    yield "optimizer", rng.choice(["adamw", "sgd"])
    yield "device", rng.choice(["h100", "a100"])


OF_LAYOUT = ("data_parallel", "schedule", "sequence_parallel", "loss_parallel", "reshard_after_forward", "shard_group",
    "gradient_as_bucket_view")  # fmt: skip


def training(spec: Spec, settings: dict[str, Any]) -> Training:
    """Return a training with these settings."""
    own = {key: value for key, value in settings.items() if key not in (*OF_LAYOUT, "pipeline", "tensor")}
    layout = Layout(Cluster("device", 80 << 30, 8), **{key: settings[key] for key in OF_LAYOUT})
    gradients: GradientDtype = "bf16" if settings["precision"] == "bf16" else "fp32"
    return replace(spec.scenarios[0].training, layout=layout, gradient_dtype=gradients, loss="cross_entropy_float32", **own)


def grid(settings: dict[str, Any], model: Model, rng: np.random.Generator, count: int) -> dict[str, NDArray[np.int64]]:
    """Return possible layouts at random."""
    ones, kind, interleaved = np.ones(count, dtype=np.int64), settings["data_parallel"], settings["schedule"] == "interleaved"
    tp = 2 ** rng.integers(1, 4, count) if settings["tensor"] else ones
    pp = rng.choice([1, 2, 3, 4, 5, 8, 10], count) if settings["pipeline"] else ones
    v = int(rng.integers(2, 5 - (kind != "ddp"))) if interleaved else 1
    alone = kind == "ddp" and (settings["tensor"] or settings["pipeline"])  # the only one modeled with these
    shard = rng.integers(2, 5, count) if kind == "hsdp" else ones
    data = ones if alone else shard * rng.integers(1, 4, count) if kind == "hsdp" else rng.integers(1 if kind == "ddp" else 2, 9, count)
    layers = {"n_layers": pp * v * rng.integers(1, 7, count)} if len(model.runs) == 1 else {}
    if not layers:
        pp, v = (np.where(model.n_layers % pp == 0, pp, 2), 2 if interleaved else 1)
        pp = np.where(model.n_layers // pp % v == 0, pp, 2)
    passes = pp * rng.integers(1, 7, count)
    more = rng.integers(0, 5, count) if settings["schedule"] == "1f1b" else 0
    return {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "virtual_stages": ones * v,
        "devices": tp * pp * data,
        "shard_degree": shard,
        "gradient_accumulation": passes + more,
        "batch_size": rng.integers(1, 5, count),
        "sequence_length": 8 * rng.integers(1, 65, count),
        **layers,
    }


def single(spec: Spec, scenario: Scenario, sizes: dict[str, int]) -> dict[str, int | None] | None:
    """Return the figures of one layout's own plan, None if it is not modeled."""
    model, training = with_sizes(spec.model, scenario.training, sizes)
    try:
        made = planner.capacity.plan(replace(spec, model=model), replace(scenario, training=training))
    except UnsupportedError:
        return None
    return {name: read(made) for name, read in METRICS.items()}


@pytest.mark.parametrize("seed", range(15))
def test_every_figure_of_every_layout_is_that_of_its_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_groups, "FEW", 0)  # all of them as arrays
    rng, numbers = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 - not for secrets
    spec, settings = planner.load([GPT2, LLAMA, MIXED][seed % 3]), dict(drawn(rng, divided_class=seed % 3 > 0))
    scenario = Scenario("base", training(spec, settings))
    sizes = grid(settings, spec.model, numbers, 8)
    made = evaluate(spec, scenario, sizes, list(METRICS.values()))
    for number in map(int, numbers.choice(8, 4, replace=False)):
        own = {key: int(sizes[key][number]) if key in sizes else size_of(key, spec.model, scenario.training) for key in SIZES}
        expected = single(spec, scenario, own)
        assert (expected is None) == (number in made.refused), (own, made.refused.get(number))
        if expected:
            figures = {name: None if one is None else int(one[number]) for name, one in zip(METRICS, made.figures, strict=True)}
            assert figures == expected, own


@pytest.mark.parametrize("kind", ["ring", "all_gather"])
def test_stages_of_parts_of_sequences_have_the_figures_of_their_plans(kind: ContextKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_groups, "FEW", 0)
    spec, settings = planner.load(LLAMA), dict(drawn(random.Random(0), divided_class=True))  # noqa: S311 - not for secrets
    settings |= {"data_parallel": "fsdp", "precision": "bf16-master", "schedule": "1f1b", "reshard_after_forward": "never", "tensor": True}
    base = training(spec, settings | {"implementation": "pytorch", "shard_group": "titan", "sequence_parallel": True})
    assert base.layout
    scenario = Scenario("base", replace(base, layout=replace(base.layout, context_kind=kind)))
    tp, pp, cp, data = (axis.ravel() for axis in np.meshgrid([2, 4], [1, 2, 4], [1, 2, 4], [1, 3]))
    sizes = {"tensor_parallel": tp, "pipeline_parallel": pp, "context_parallel": cp, "devices": tp * pp * cp * data}
    sizes |= {"gradient_accumulation": 2 * pp, "sequence_length": 0 * pp + 64}
    made = evaluate(spec, scenario, sizes, list(METRICS.values()))
    assert not made.refused
    for number in (3, 8, 17, 22, 35):
        own = {key: int(sizes[key][number]) if key in sizes else size_of(key, spec.model, scenario.training) for key in SIZES}
        figures = {name: None if one is None else int(one[number]) for name, one in zip(METRICS, made.figures, strict=True)}
        assert figures == single(spec, scenario, own), own


def test_many_layouts_need_few_traces() -> None:
    """5 million function calls for 32,000 layouts of 70B, of which each one's own plan needs 100,000 or more."""
    spec = planner.load({"name": "llama", "extends": "catalog/llama-3-70b", "training": {"batch_size": 1, "precision": "bf16"}})
    settings = {"data_parallel": "fsdp", "schedule": "1f1b", "sequence_parallel": True, "loss_parallel": True, "precision": "bf16",
        "reshard_after_forward": "never", "shard_group": "block", "gradient_as_bucket_view": False}  # fmt: skip
    tp, pp, data, B = (axis.ravel() for axis in np.meshgrid([2, 4], [4, 8], np.arange(2, 1002), np.arange(1, 9)))
    sizes = {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "devices": tp * pp * data,
        "batch_size": B,
        "gradient_accumulation": 16 + 0 * B,
    }
    with at_most(5_000_000):
        made = peaks(spec.model, training(spec, settings), sizes)
    assert not made.refused
    (column,) = made.figures
    assert column is not None
    assert len(column) == 32_000
    assert (np.diff(column.reshape(2, 2, 1000, 8), axis=3) > 0).all()  # larger batches need more


def test_a_layout_that_is_not_modeled_has_its_reason() -> None:
    spec = planner.load(LLAMA)
    settings = dict(drawn(random.Random(0), divided_class=True)) | {"data_parallel": "zero2"}  # noqa: S311 - not for secrets
    made = peaks(spec.model, training(spec, settings), {"devices": np.array([2, 4])})
    reason = "layout.data_parallel zero2, which PyTorch does not have (write data_parallel: fsdp, or engine: deepspeed), is not modeled yet"
    assert made.refused == dict.fromkeys((0, 1), reason)
