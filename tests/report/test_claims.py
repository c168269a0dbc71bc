from __future__ import annotations

from dataclasses import replace

import pytest

from planner import spec as spec_room
from planner.report.claims import failed
from planner.report.columns import CLAIMABLE
from planner.report.planned import Planned
from planner.spec.records import Claim, Place

PLACE = Place("specs/tiny.yaml", 30, 17)


def claiming(planned: Planned, figure: str, value: int) -> Planned:
    return replace(planned, spec=replace(planned.spec, claims=(Claim(figure, value, PLACE),)))


def test_a_correct_expected_value_is_not_an_error(planned: Planned) -> None:
    assert failed(claiming(planned, "params_total", 1028)) == ()
    assert failed(claiming(planned, "train_flops", 616_800_000_000_000_000_000_000)) == ()


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        (1030, "params_total is 1,028, expected 1,030 (2 less)"),
        (0, "params_total is 1,028, expected 0 (1,028 more)"),
    ],
)
def test_a_wrong_expected_value_is_reported_with_both_numbers_and_its_location(planned: Planned, claimed: int, message: str) -> None:
    (problem,) = failed(claiming(planned, "params_total", claimed))
    assert problem.render() == f"specs/tiny.yaml:30:17: error[expect]: {message}"


def test_a_metric_without_value_cannot_be_expected(planned: Planned) -> None:
    plan = replace(planned.plans[0], train_tokens=None)
    (problem,) = failed(claiming(replace(planned, plans=(plan,)), "train_tokens", 5))
    assert problem.message == "train_tokens has no value because the spec gives no tokens, expected 5"


def test_expected_values_apply_to_the_base_scenario(planned: Planned) -> None:
    other = replace(planned.plans[0], scenario="long", train_tokens=1)
    assert failed(claiming(replace(planned, plans=(*planned.plans, other)), "train_tokens", 10**20)) == ()


def test_the_schema_has_every_column_allowed_under_expect() -> None:
    assert list(spec_room.schema()["properties"]["expect"]["properties"]) == list(CLAIMABLE)
