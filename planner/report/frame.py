"""Plans as a pandas DataFrame with exact integers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from planner.capacity.figures import Plan
from planner.report.columns import Cell, columns_of

if TYPE_CHECKING:
    import pandas as pd

_INT64 = range(-(2**63), 2**63)


def to_frame(plans: Sequence[Plan]) -> pd.DataFrame:
    """One row per plan under the columns of capacity.csv, every integer exact.

    Integers are ``Int64``, a missing one is ``<NA>``; a column with a value beyond int64 is ``object`` with Python integers and None,
    because pandas would wrap it or convert it to float. Text is as in the spec, without the CSV's apostrophes.
    """
    columns = columns_of(plans)
    integers = [column.name for column in columns if column.kind == "integer"]
    return frame({column.name: [column.read(plan) for plan in plans] for column in columns}, integers)


def frame(columns: Mapping[str, Sequence[Cell]], integers: Collection[str] | None = None) -> pd.DataFrame:
    """Return a frame of columns; ``integers`` names those of integers (default: those without text)."""
    import pandas as pd

    series: dict[str, pd.Series] = {}
    for name, cells in columns.items():
        integral = name in integers if integers is not None else not any(isinstance(cell, str) for cell in cells)
        exact_in_int64 = integral and all(cell is None or cell in _INT64 for cell in cells)
        series[name] = pd.Series(cells, dtype="Int64" if exact_in_int64 else object, name=name)
    return pd.DataFrame(series)
