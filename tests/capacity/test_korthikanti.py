"""Activation memory per device by the formulas of Korthikanti et al. 2022 (arXiv:2205.05198), for the models of its table 3.

s tokens of b sequences of width h, a heads, L layers, t tensor-parallel and p pipeline devices, m stages per device (interleaved), V words.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import pytest

import planner
from planner.capacity.figures import Plan
from planner.trace.unsupported import UnsupportedError

s, t, V = 2048, 8, 51200


class Model(NamedTuple):
    """A row of table 3."""

    a: int
    h: int
    L: int
    p: int
    m: int
    b: int

    @property
    def sbh(self) -> int:
        return s * self.b * self.h


MODELS = {
    "22B": Model(64, 6144, 48, 1, 1, 4),
    "175B": Model(96, 12288, 96, 8, 3, 1),
    "530B": Model(128, 20480, 105, 35, 3, 1),
    "1T": Model(160, 25600, 128, 64, 1, 1),
}


def planned(row: Model, *, sp: bool, recompute: str, **layout: object) -> Plan:
    """Plan the model's step on the devices of one replica."""
    model = {"vocab_size": V, "context_length": s, "d_model": row.h, "n_layers": row.L, "n_heads": row.a}
    training = {"batch_size": row.b, "precision": "fp16-master", "gradient_dtype": "fp32", "dropout": 0.1, "recompute": recompute}
    training |= {"implementation": "megatron", "gradient_accumulation": row.p * row.m}
    interleaved: dict[str, Any] = {"schedule": "interleaved", "virtual_stages": row.m} if row.m > 1 else {}
    laid = {"tensor_parallel": t, "sequence_parallel": sp, "pipeline_parallel": row.p} | interleaved | layout
    cluster = {"device": "A100-80GB-SXM", "devices": t * row.p}
    return planner.plan({"name": "x", "model": model, "training": training, "cluster": cluster, "layout": laid})


def per_layer(row: Model, *, sp: bool, recompute: str) -> Fraction:
    """Return the bytes that a layer saves: table 2, with the last row divided if the sequence is."""
    if recompute == "full":
        return Fraction(2 * row.sbh, t if sp else 1)
    attention = Fraction(5 * row.a * s, row.h * t) if recompute == "none" else 0
    return row.sbh * ((Fraction(34, t) if sp else 10 + Fraction(24, t)) + attention)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_activation_memory_of_a_device(name: str, sp: bool, recompute: str) -> None:
    row, plan = MODELS[name], planned(MODELS[name], sp=sp, recompute=recompute)
    layers = sum(entry.bytes_each * entry.copies for entry in plan.memory.kept if ".layers." in entry.path)
    # The first stage has p microbatches of L/p layers in flight (section 4.2.3), interleaved 1 + (p - 1) / (p·m) times as many.
    share = 1 + Fraction(row.p - 1, row.p * row.m) if row.m > 1 else 1
    assert layers == per_layer(row, sp=sp, recompute=recompute) * row.L * share
    if row.m == 1:  # section 4.3: the mask of the embedding's dropout, and without a pipeline final norm, head and logits
        parts = t if sp else 1
        outside = row.p * row.sbh // parts + (0 if row.p > 1 else 4 * row.sbh // parts + 4 * s * row.b * V // t)
        ids = s * row.b * (9 * row.p + (0 if row.p > 1 else 8))  # own ids and their mask, and targets, which the paper omits
        assert plan.memory.activations_bytes - layers == outside + ids


@pytest.mark.parametrize("name", MODELS)
def test_models_that_ran_fit(name: str) -> None:
    # Table 3: all of them ran on A100 of 80 GB with sequence parallelism and selective recomputation.
    fleet = planned(MODELS[name], sp=True, recompute="selective").fleet
    assert fleet is not None
    assert fleet.free_bytes > 0


@pytest.mark.parametrize(
    ("layout", "named"), [({"data_parallel": "zero1"}, "zero1"), ({"context_parallel": 1, "schedule": "gpipe"}, "gpipe")]
)
def test_newer_layouts_are_refused(layout: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        planned(MODELS["1T"], sp=True, recompute="none", **layout)
