"""One key of a small config changed: what is read is what the class of transformers builds, or the config is refused.

A sample of the changes is tried. With CHANGES=keys (make sweep), each key of each type is changed once; with CHANGES=all, in every way,
which takes hours.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.keys import uses_of
from planner.importer.reader import UnsupportedConfigError
from planner.importer.types import FAMILIES
from planner.spec.problems import SpecError
from tests.importer.test_twins import TWINS, built

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

SAMPLE = 3  # changes of a type
# The published weights decide where a class makes something else than they hold.
PUBLISHED_OTHERWISE = {
    ("gemma3n_text", "num_kv_shared_layers"),  # the weights hold the keys and values that the class no longer makes
    ("longcat_flash", "zero_expert_num"),  # the class makes half of the matrices of experts that are the identity
}


def values(value: object) -> tuple[object, ...]:
    """Return other values of a key, some of other kinds."""
    odd: tuple[object, ...] = (0, 1, 3, -1, 0.5, "", "other", None, True, False, [], ["full_attention"], {}, {"0": 1})
    match value:
        case bool():
            return (not value, *odd)
        case int():
            return (value + 1, 2 * value, *odd)
        case float():
            return (value / 2, *odd)
        case None:
            return (2, 24, *odd)
        case str():
            return ("gelu", *odd)
    return odd


def changes(base: Config, full: Config) -> Iterator[tuple[str, Config]]:
    """Yield the keys of a config and the config with the key changed, or without it."""
    row = FAMILIES[full["model_type"]]
    for key in sorted({*full, *(name for name, _ in uses_of([row.settings, row.only]) if "." not in name)} - {"model_type"}):
        yield from ((key, full | {key: other}) for other in values(full.get(key)))
        if key in base:
            yield key, {name: value for name, value in base.items() if name != key}
        if isinstance(full.get(key), dict):
            for inner, value in full[key].items():
                yield from ((key, full | {key: full[key] | {inner: other}}) for other in values(value))


def tried(model_type: str, every: list[tuple[str, Config]]) -> list[tuple[str, Config]]:
    """Return the changes to try: the first one of each key is to a value of its kind."""
    match os.environ.get("CHANGES"):
        case "all":
            return every
        case "keys":
            return list({key: (key, config) for key, config in reversed(every)}.values())
    return random.Random(model_type).sample(every, SAMPLE)  # noqa: S311 - no secret


@pytest.mark.parametrize("model_type", TWINS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_changed_key_means_what_its_class_makes_of_it(model_type: str, plan_model: PlanModel) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    every: list[tuple[str, Config]] = []
    for base in TWINS[model_type][:2]:
        full = json.loads(transformers.AutoConfig.for_model(**base).to_json_string(use_diff=False))
        every += changes(base, full)
    wrong = []
    for key, config in tried(model_type, every):
        try:
            imported = read_huggingface(config)
            counted = plan_model(imported.model, **imported.training).parameters.total
        except (UnsupportedConfigError, SpecError):
            continue
        try:
            right = built(transformers.AutoConfig.for_model(**config))
        except Exception:  # noqa: BLE001, S112 - whatever the class raises, it makes no model of this config
            continue
        if counted != right and (model_type, key) not in PUBLISHED_OTHERWISE:
            wrong.append((key, config.get(key), counted, right))
    assert not wrong
