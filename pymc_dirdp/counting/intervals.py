"""Columns of numbers as the interval in which each number lies. **Secret**."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.codes import Frame, refuse_other_indexes
from pymc_dirdp.counting.columns import column_of, values_of
from pymc_dirdp.counting.dictionaries import plain_array
from pymc_dirdp.counting.engines import in_engine
from pymc_dirdp.counting.families import count_families
from pymc_dirdp.counting.parquet import is_parquet
from pymc_dirdp.errors import ArgumentError, DataError, type_name

__all__ = ["count_between", "interval_of", "refuse_elsewhere"]


def interval_of(column: Any, edges: Sequence[float], name: str = "values") -> Integers:
    """How many edges each number has reached: 0 below the first one. **Secret.**

    Raises
    ------
    DataError
        If a value is missing or is no number. The message shows no value.
    """
    return np.searchsorted(np.asarray(edges, dtype=float), _numbers(column, name), side="right").astype(np.int64)


def refuse_elsewhere(records: Any) -> None:
    """Refuse records that are in a file or in an engine."""
    if is_parquet(records) or in_engine(records):
        raise ArgumentError(
            f"Expected records in memory, got {type_name(records)}. Collect the columns that are needed, and pass them."
        )


def count_between(records: Frame, column: str, edges: Sequence[float], bound: Bound | None) -> Integers:
    """How many records lie below the first edge, between each edge and the next, and from the last one on. **Secret**.

    Parameters
    ----------
    records : data frame, or mapping of str to one-dimensional array
    column : str
    edges : sequence of float
        In rising order.
    bound : Bound, optional
        At most so many records of each unit.
    """
    columns = {name: column_of(records, name) for name in (column, *([] if bound is None else [bound.unit]))}
    # A column of codes would not show that the index is another one.
    refuse_other_indexes(columns)
    frame = columns | {column: interval_of(columns[column], edges, column)}
    (table,) = count_families(frame, [[column]], {column: list(range(len(edges) + 1))}, otherwise={}, bound=bound)
    return table


def _numbers(column: Any, name: str) -> Array:
    array = plain_array(column)
    numbers = None
    if array is not None and array.dtype.kind in "iuf":
        numbers = np.asarray(array, dtype=float)
    else:
        values = values_of(column, name)
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            # A whole number may be larger than any double.
            with suppress(OverflowError):
                numbers = np.array(values, dtype=float)
    if numbers is None or np.isnan(numbers).any():
        raise DataError(
            f"The column {name!r} holds missing values, or values that are no numbers. Drop those records, or count "
            "them in a category of their own and choose bins for the others."
        )
    return numbers
