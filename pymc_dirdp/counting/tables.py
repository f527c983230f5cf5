"""From records to counts over a declared domain: the user declares the cells, and the data never decide them."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from secrets import randbits
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import Bound, checked_bound, retained_rows
from pymc_dirdp.counting.columns import (
    Categories,
    Frame,
    Otherwise,
    checked_categories,
    checked_otherwise,
    checked_variables,
    column_of,
    encode,
    refuse_other_indexes,
    values_of,
)
from pymc_dirdp.counting.counts import Counts, row_counts, tabulate
from pymc_dirdp.counting.engines import EngineRecords, in_engine, is_parquet, relation
from pymc_dirdp.errors import ArgumentError, DataError, missing_values, type_name
from pymc_dirdp.signatures import user_facing


@user_facing
def count(
    records: Frame | str | PathLike[str],
    variables: Sequence[str],
    *,
    categories: Categories,
    counts: str | None = None,
    unit: str | None = None,
    contribution: int | None = None,
    distinct: bool = False,
    otherwise: Otherwise | None = None,
) -> Counts:
    """How many records fall into each cell of the declared domain. The result is **secret**.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        One entry of each column is one record. Tables that an engine holds, of DuckDB, Ibis, PySpark or Dask and lazy
        ones of polars, are grouped in the engine, and only the table comes back; this needs the extra `frames`. A path
        is that of a Parquet file or of a folder of them, which DuckDB reads; this needs the extra `duckdb`.
    variables : sequence of str
        The columns to count, each once, in the order of the result's axes.
    categories : mapping of str to sequence
        All values that each variable could take, in order: texts, numbers or members of an Enum. They are public, so
        they must not be read off the data. As in Python, 1, 1.0 and True are one label; "1" is another. A missing value
        is no label: see `otherwise`.
    counts : str, optional
        A column that says how many records each row stands for. By default each row is one record. Not with `unit`, and
        not for records that an engine groups.
    unit : str, optional
        The column that says whose record it is, in texts or integers. Then at most `contribution` records of each
        unit are counted. Without it every record is counted.
    contribution : int, optional
        How many records of a unit are counted at most. With `unit` only.
    distinct : bool, default False
        Whether records of a unit that lie in one cell are counted as one, before the choice.
    otherwise : mapping of str to label, optional
        For some variables the label, one of the categories, that stands for missing and undeclared values.

    Returns
    -------
    counts : Counts, an ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        Cells without records hold a 0. It knows the unit and the contribution, and :func:`plan` uses them.

    Warns
    -----
    CategoriesFromDataWarning
        If categories are an object of pandas, polars or Arrow, which may have been made from data.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories or is named twice, or the domain is too large, or the columns have
        different indexes of pandas or xarray.
    DataError
        If a column holds a value that was not declared, or a missing one (None, NaN, NA, NaT, masked), or the columns
        are not of one length, or a record has no unit. The message names the column, and no value, position or number
        of records.
    ImportError
        If an extra is missing. The message says how to install it.

    Notes
    -----
    Values are compared, whatever the engine: dictionaries and categoricals of pandas, polars and Arrow are decoded.
    Dates, durations and intervals are no labels, because engines differ in what they make of them; nor is a
    floating-point number that may have been rounded, where labels are integers of that size.

    Which records of a unit are counted is decided by a hash of the record and the unit with a key of the operating
    system's random bits, which is not stored: a call chooses anew. After it the number of records depends on who the
    units are. It is private, unless one record of each unit is counted: then it is the number of units. See "At most m
    records of a person" on the page "Who is protected?".

    Examples
    --------
    >>> records = {"eye": ["blue", "green", "blue"], "left": [True, False, False]}
    >>> count(records, ["eye", "left"], categories={"eye": ["blue", "green", "grey"], "left": [False, True]}).tolist()
    [[1, 1], [1, 0], [0, 0]]

    One record of each patient:

    >>> visits = {"patient": ["ann", "ann", "bob"], "ill": ["yes", "yes", None]}
    >>> declared = {"ill": ["yes", "no", "unknown"]}
    >>> otherwise = {"ill": "unknown"}
    >>> count(visits, ["ill"], categories=declared, unit="patient", contribution=1, otherwise=otherwise).tolist()
    [1, 0, 1]
    """
    names = checked_variables(variables)
    labels = checked_categories(names, categories)
    bound = checked_bound(unit, contribution, distinct=distinct)
    (table,) = count_families(
        records, [names], labels, otherwise=checked_otherwise(otherwise, labels), bound=bound, times=counts
    )
    return Counts.of(table, tuple((name, tuple(labels[name])) for name in names), bound)


# Several tables of the same records, such as those of a network. **Secret**.


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
    found = _coded_families(records, families, labels, otherwise=otherwise, bound=bound, times=times, most=most)
    return [tabulate(columns, shape, n) for (columns, n), shape in zip(found, shapes, strict=True)]


def coded_records(
    records: Any,
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    times: str | None = None,
    most_values: int = 2 * 10**8,
) -> Integers:
    """Whole records as positions of labels, shape (records, variables). **Secret**.

    Parameters
    ----------
    records, labels, otherwise, bound, times
        As for :func:`count_families`.
    most_values : int
        More of them would fill the memory.

    Raises
    ------
    DataError
        If there are more values. The message holds no number of the data.
    """
    most = [math.prod(2 * (len(values) + 1) for values in labels.values())]
    ((columns, weights),) = _coded_families(
        records, [list(labels)], labels, otherwise=otherwise, bound=bound, times=times, most=most
    )
    n = len(columns[0]) if weights is None else int(weights.sum())
    if n * len(columns) > most_values:
        raise DataError(f"The records have more than {most_values} values together. Take a sample of the people.")
    codes = np.stack(list(columns), axis=1)
    return codes if weights is None else np.repeat(codes, weights, axis=0)


def _coded_families(
    records: Any,
    families: Sequence[Sequence[str]],
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    most: Sequence[int],
    times: str | None = None,
) -> Sequence[tuple[Sequence[Integers], Integers | None]]:
    """Rows of each family as positions of labels, and how many records each stands for; None if it is one. **Secret**.

    The parameters are those of :func:`count_families`; `most` is the number of different rows that a family can have at
    most.
    """
    if (engine := _in_engine(records, labels, otherwise, bound, times)) is not None:
        found = engine.coded(families, most)
        # By now every record has been looked at, so which ones are chosen decides no error.
        return found if bound is None else engine.bounded(bound, randbits(256)).coded(families, most)
    columns = encode(records, list(labels), labels, otherwise, beside=None if bound is None else bound.unit)
    weights = None if times is None else row_counts(records, times)
    if weights is not None and len(weights) != len(next(iter(columns.values()))):
        raise DataError(f"The columns {', '.join([*labels, str(times)])} have different lengths.")
    if bound is not None:
        _refuse_times(times)
        rows = retained_rows(column_of(records, bound.unit), list(columns.values()), bound, randbits(256))
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


def table_shape(names: Sequence[str], labels: Categories, *, most_cells: int = 50_000_000) -> tuple[int, ...]:
    """The shape of a table with these axes, or an error if it is too large to be released.

    A table of doubles of `most_cells` takes 400 MB, and the release several of them.
    """
    shape = tuple(len(labels[name]) for name in names)
    if math.prod(shape) > most_cells:
        raise ArgumentError(
            f"The table of {', '.join(names)} has {math.prod(shape)} cells, more than {most_cells}. "
            "Count fewer variables together, or merge categories."
        )
    return shape


# Columns of numbers as the interval in which each number lies. **Secret**.


def interval_of(column: Any, edges: Sequence[float], name: str = "values") -> Integers:
    """How many edges each number has reached: 0 below the first one. **Secret.**

    Raises
    ------
    DataError
        If a value is missing or is no number. The message shows no value.
    """
    values, numbers = values_of(column, name), None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        # An integer may be larger than any double.
        with suppress(OverflowError):
            numbers = np.array(values, dtype=float)
    if numbers is None or np.isnan(numbers).any():
        raise DataError(
            f"The column {name!r} holds missing values, or values that are no numbers. "
            + missing_values("Give missing values a number of their own below all edges")
        )
    return np.searchsorted(np.asarray(edges, dtype=float), numbers, side="right").astype(np.int64)


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
    engine = _in_engine(records, {column: []}, {}, bound, None)
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


def _grouped(engine: EngineRecords, edges: Sequence[float], column: str) -> tuple[Integers, Integers]:
    values, times = engine.values()
    return interval_of(values, edges, column), times
