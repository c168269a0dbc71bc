"""Every allowed value of a key can be built: a value in the schema without a module fails here, not at a user's."""

from __future__ import annotations

from typing import get_args

import pytest

pytest.importorskip("torch")

from planner.spec import records
from planner.verify import families, optimizers, parts


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (parts.ACTIVATIONS, records.Activation),
        (families.ACTIVATIONS, records.Activation),
        (optimizers.KERNELS, records.OptimizerKernel),
    ],
)
def test_a_table_has_an_entry_for_every_value_of_its_key(table: dict[str, object], names: object) -> None:
    assert set(table) == set(get_args(names))
