"""Published figures of fine-tunings: those that plans reach, and a reason for each other one."""

from __future__ import annotations

import pytest

from tests.capacity.finetune_published import COUNTS, FIGURES, holds, trained


@pytest.mark.parametrize("row", FIGURES, ids=[row["id"] for row in FIGURES])
def test_a_published_figure_is_reached_or_has_a_reason(row: dict[str, str]) -> None:
    assert holds(row) is not bool(row["reason"])


@pytest.mark.parametrize("row", COUNTS, ids=[f"{row['model']}-{row['method']}" for row in COUNTS])
def test_published_counts_of_trainable_parameters(row: dict[str, str]) -> None:
    found = trained(row)
    if found is None:
        assert row["reason"] or row["wrong"]
    else:
        assert (found == int(row["published"])) is not bool(row["wrong"])


def test_four_publications_are_wrong() -> None:
    assert len([row for row in COUNTS if row["wrong"]]) == 4
