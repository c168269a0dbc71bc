"""Every value that a spec can give a key can be built: one that is stated and has no module fails here, not in front of a user."""

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
def test_a_table_by_the_values_of_a_key_has_them_all(table: dict[str, object], names: object) -> None:
    assert set(table) == set(get_args(names))
