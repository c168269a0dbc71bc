"""Memory by part: the parts of each sample sum to the sample of the plain walk, which PyTorch checks, and none is negative."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import planner
from planner.capacity.parameters import parameters
from planner.capacity.parts import PARTS, TaggedTimeline, samples_of, tag, throughout
from planner.capacity.peak import trace_memory
from planner.capacity.shares import share
from planner.capacity.step import step
from planner.capacity.symbols import symbolize
from planner.trace.decoder import trace
from planner.trace.sizes import evaluate, total

ROOT = Path(__file__).parent.parent.parent
SPECS = ("gpt2-small", "llama-3-8b", "catalog/olmoe/olmoe-1b-7b-0924", "catalog/gemma2/gemma-2-2b", "catalog/mamba/mamba-130m")


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("precision", "recompute"), [("bf16-autocast", "none"), ("fp32", "selective"), ("bf16-master", "full")])
def test_parts_of_each_sample_sum_to_it_and_are_not_negative(name: str, precision: str, recompute: str) -> None:
    spec = planner.load(ROOT / "specs" / f"{name}.yaml", set={"training.precision": precision, "training.recompute": recompute})
    training = spec.scenarios[0].training
    names = symbolize(spec.model, training)
    forward, tagged = trace(names.model, names.training), trace(names.model, names.training)
    held = share(forward, parameters(forward).weights, names.training)
    a_step = step(forward, held, names.training)
    tag(tagged.nodes)
    timeline = TaggedTimeline()
    trace_memory(tagged.nodes, preallocated=held.preallocated, record=timeline)
    found = samples_of(timeline)
    value = partial(evaluate, values=names.values)
    highest: dict[str, int] = {}
    for phase, operator, parts in found.samples:
        values = {part: value(size) for part, size in parts.items()}
        assert values.keys() <= set(PARTS)
        assert all(size >= 0 for size in values.values()), (operator, values)
        highest[phase] = max(highest.get(phase, 0), sum(values.values()))
    assert highest == {phase: value(size) for phase, _, size in a_step.later.highest()}
    assert value(total(found.after.values())) == value(a_step.later.after_backward)
    assert value(total(throughout(held, a_step).values())) == value(a_step.throughout_later)
