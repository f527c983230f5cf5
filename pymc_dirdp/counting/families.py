"""Several tables of the same records, such as those of a network. **Secret**."""

import math
from collections.abc import Mapping, Sequence
from secrets import randbits
from typing import Any

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import Bound, kept_rows
from pymc_dirdp.counting.categories import Categories
from pymc_dirdp.counting.codes import encode
from pymc_dirdp.counting.columns import column_of
from pymc_dirdp.counting.engines import EngineRecords, in_engine
from pymc_dirdp.counting.parquet import is_parquet, relation
from pymc_dirdp.counting.tallies import row_counts, tabulate
from pymc_dirdp.errors import ArgumentError, DataError, type_name

__all__ = ["coded_families", "count_families", "refuse_absent", "table_shape"]

# A table of doubles of this size takes 400 MB, and the release several of them.
_MOST_CELLS = 50_000_000


def count_families(
    records: Any,
    families: Sequence[Sequence[str]],
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    times: str | None = None,
) -> list[Integers]:
    """Count several tables of the same records, each column of which is read once. **Secret**.

    Parameters
    ----------
    records : data frame, mapping, table of an engine, or path
    families : sequence of sequence of str
        The variables of each table.
    labels : mapping of str to list
        The checked labels of all these variables, and of no others.
    otherwise : mapping of str to int
        The position of the label for values that are missing or not declared.
    bound : Bound, optional
        The same records of a unit are counted in all tables.
    times : str, optional
        A column that says how many records each row stands for.
    """
    shapes = [table_shape(family, labels) for family in families]
    # A zero has two signs, and a missing value may be among the others. With more rows, some value is undeclared.
    most = [math.prod(2 * (length + 1) for length in shape) for shape in shapes]
    found = coded_families(records, families, labels, otherwise=otherwise, bound=bound, times=times, most=most)
    return [tabulate(columns, shape, n) for (columns, n), shape in zip(found, shapes, strict=True)]


def coded_families(
    records: Any,
    families: Sequence[Sequence[str]],
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    most: Sequence[int | None],
    times: str | None = None,
) -> Sequence[tuple[Sequence[Integers], Integers | None]]:
    """Rows of each family as positions of labels, and how many records each stands for; None if it is one. **Secret**.

    The parameters are those of :func:`count_families`; `most` is the number of different rows that a family can have at
    most, if there is a limit.
    """
    if (engine := _in_engine(records, labels, otherwise, bound, times)) is not None:
        found = engine.coded(families, most)
        # By now every record has been looked at, so which ones are chosen decides no error.
        return found if bound is None else engine.bounded(bound, randbits(256)).coded(families, most)
    columns = encode(records, list(labels), labels, otherwise, beside=None if bound is None else bound.unit)
    weights = None if times is None else row_counts(records, times)
    if weights is not None and len(weights) != len(next(iter(columns.values()))):
        raise DataError(f"The columns {', '.join([*labels, str(times)])} are not of one length.")
    if bound is not None:
        _refuse_times(times)
        rows = kept_rows(column_of(records, bound.unit), list(columns.values()), bound, randbits(256))
        columns = {name: codes[rows] for name, codes in columns.items()}
    return [([columns[name] for name in family], weights) for family in families]


def refuse_absent(records: Any, labels: Categories, *, bound: Bound | None, times: str | None = None) -> None:
    """Refuse records that cannot be counted because of what they are, before anything is spent. No value is looked at.

    Raises
    ------
    ArgumentError
        If they are no columns by name, a column is missing, or a column of numbers is given where there can be none.
    """
    if _in_engine(records, labels, {}, bound, times) is not None:
        return
    for name in (*labels, *([] if bound is None else [bound.unit]), *([] if times is None else [times])):
        column_of(records, name)
    if bound is not None:
        _refuse_times(times)


def _in_engine(
    records: Any, labels: Categories, otherwise: Mapping[str, int], bound: Bound | None, times: str | None
) -> EngineRecords | None:
    """Records that are in an engine or in files, of which the schema is read; None if they are in memory."""
    if is_parquet(records):
        records = relation(records, [*labels, *([] if bound is None else [bound.unit])])
    if not in_engine(records):
        return None
    if times is not None:
        raise ArgumentError(f"Expected each row of {type_name(records)} to be one record. Leave counts= out.")
    return EngineRecords.of(records, labels, otherwise, bound)


def _refuse_times(times: str | None) -> None:
    if times is not None:
        raise ArgumentError("Expected one record in each row where unit= says whose it is. Leave counts= out.")


def table_shape(names: Sequence[str], labels: Categories) -> tuple[int, ...]:
    """The shape of a table with these axes, or an error if it is too large to be released."""
    shape = tuple(len(labels[name]) for name in names)
    if math.prod(shape) > _MOST_CELLS:
        raise ArgumentError(
            f"The table of {', '.join(names)} has {math.prod(shape)} cells, more than {_MOST_CELLS}. "
            "Count fewer variables together, or merge categories; count_sparse is for tables of which few cells hold "
            "records."
        )
    return shape
