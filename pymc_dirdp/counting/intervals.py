"""Columns of numbers as the interval in which each number lies. **Secret**."""

from collections.abc import Sequence
from contextlib import suppress
from secrets import randbits
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.codes import Frame, refuse_other_indexes
from pymc_dirdp.counting.columns import column_of, plain_array, values_of
from pymc_dirdp.counting.counts import tabulate
from pymc_dirdp.counting.engines import EngineRecords, in_engine, is_parquet, relation
from pymc_dirdp.counting.tables import count_families
from pymc_dirdp.errors import DataError

__all__ = ["count_between", "interval_of", "refuse_missing"]


def interval_of(column: Any, edges: Sequence[float], name: str = "values") -> Integers:
    """How many edges each number has reached: 0 below the first one. **Secret.**

    Raises
    ------
    DataError
        If a value is missing or is no number. The message shows no value.
    """
    return np.searchsorted(np.asarray(edges, dtype=float), _numbers(column, name), side="right").astype(np.int64)


def refuse_missing(records: Any, column: str, bound: Bound | None) -> None:
    """Refuse records that lack a column, or an engine that cannot be asked. No record is read."""
    if _engine(records, column, bound) is None:
        for name in (column, *([] if bound is None else [bound.unit])):
            column_of(records, name)


def count_between(records: Frame, column: str, edges: Sequence[float], bound: Bound | None) -> Integers:
    """How many records lie below the first edge, between each edge and the next, and from the last one on. **Secret**.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        An engine groups the records by their numbers, and each number comes back once.
    column : str
    edges : sequence of float
        In rising order.
    bound : Bound, optional
        At most so many records of each unit.
    """
    engine = _engine(records, column, bound)
    if engine is not None:
        lie, times = _grouped(engine, edges, column)
        if bound is not None:
            # By now every record has been looked at, so which ones are chosen decides no error.
            lie, times = _grouped(engine.bounded(bound, randbits(256)), edges, column)
        return tabulate([lie], (len(edges) + 1,), times)
    columns = {name: column_of(records, name) for name in (column, *([] if bound is None else [bound.unit]))}
    # A column of codes would not show that the index is another one.
    refuse_other_indexes(columns)
    frame = columns | {column: interval_of(columns[column], edges, column)}
    (table,) = count_families(frame, [[column]], {column: list(range(len(edges) + 1))}, otherwise={}, bound=bound)
    return table


def _engine(records: Any, column: str, bound: Bound | None) -> EngineRecords | None:
    """The numbers as an engine holds them; None for records in memory."""
    if is_parquet(records):
        records = relation(records, [column, *([] if bound is None else [bound.unit])])
    return EngineRecords.of(records, {column: []}, {}, bound) if in_engine(records) else None


def _grouped(engine: EngineRecords, edges: Sequence[float], column: str) -> tuple[Integers, Integers]:
    values, times = engine.values()
    return interval_of(values, edges, column), times


def _numbers(column: Any, name: str) -> Array:
    array = plain_array(column)
    numbers = None
    if array is not None and array.dtype.kind in "iuf":
        numbers = np.asarray(array, dtype=float)
    else:
        values = values_of(column, name)
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            # An integer may be larger than any double.
            with suppress(OverflowError):
                numbers = np.array(values, dtype=float)
    if numbers is None or np.isnan(numbers).any():
        raise DataError(
            f"The column {name!r} holds missing values, or values that are no numbers. Drop those records, or count "
            "them in a category of their own and choose bins for the others."
        )
    return numbers
