"""Count records over a declared domain. You declare the cells, so they do not depend on the data."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from secrets import randbits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import Bound, checked_bound
from pymc_dirdp.counting.columns import (
    UNKNOWN,
    Categories,
    Frame,
    Otherwise,
    checked_categories,
    checked_otherwise,
    checked_variables,
    column_of,
    dictionary_of,
    encode,
    is_missing,
    missing_unit_error,
    refuse_ambiguous_units,
    refuse_other_indexes,
    values_of,
)
from pymc_dirdp.counting.counts import Counts, row_counts, tabulate
from pymc_dirdp.counting.engines import EngineRecords, is_engine_table, is_parquet, relation
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
    """Count the records in each cell of the declared domain. The result is **secret**.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        One entry of each column is one record. Tables of DuckDB, Ibis, PySpark and Dask, and lazy tables of polars, are
        grouped in their engine. A path is a Parquet file or a folder of them.
    variables : sequence of str
        The columns to count, in the order of the axes of the result.
    categories : mapping of str to sequence
        All values that each variable could take, in order. They are public: do not read them off the data.
    counts : str, optional
        A column with the number of records in each row. Not with `unit` or an engine.
    unit : str, optional
        The column with the person, or other unit, of each record. At most `contribution` records of each are counted.
    contribution : int, optional
        The maximum number of records of a unit. Only with `unit`.
    distinct : bool, default False
        Whether to count equal records of a unit once.
    otherwise : mapping of str to label, optional
        The category for missing and undeclared values, by variable.

    Returns
    -------
    counts : Counts, an ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        The counts, 0 in cells without records, with the unit and the contribution for :func:`plan`.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories, or the domain is too large.
    DataError
        If a value is undeclared or missing, or columns differ in length. The message has no value and no number.
    ImportError
        If the extra of an engine is not installed.

    Warns
    -----
    CategoriesFromDataWarning
        If categories are an object of pandas, polars or Arrow, which may come from the data.

    Notes
    -----
    A hash with a random key, which is not stored, selects the records of a unit. The number of records is then private,
    unless `contribution` is 1. See the pages "Counting records where they are" and "Who is protected?".

    Examples
    --------
    >>> records = {"eye": ["blue", "green", "blue"], "left": [True, False, False]}
    >>> count(records, ["eye", "left"], categories={"eye": ["blue", "green", "grey"], "left": [False, True]}).tolist()
    [[1, 1], [1, 0], [0, 0]]

    One record of each patient:

    >>> visits, declared = {"patient": ["ann", "ann", "bob"], "ill": ["yes", "yes", "no"]}, {"ill": ["yes", "no"]}
    >>> count(visits, ["ill"], categories=declared, unit="patient", contribution=1).tolist()
    [1, 1]
    """
    names = checked_variables(variables)
    labels = checked_categories(names, categories)
    bound = checked_bound(unit, contribution, distinct=distinct)
    (table,) = count_families(
        records, [names], labels, otherwise=checked_otherwise(otherwise, labels), bound=bound, counts_column=counts
    )
    return Counts.of(table, tuple((name, tuple(labels[name])) for name in names), bound)


def count_families(
    records: Any,
    families: Sequence[Sequence[str]],
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    counts_column: str | None = None,
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
    counts_column : str, optional
        A column with the number of records that each row represents.
    """
    shapes = [table_shape(family, labels) for family in families]
    # Zero has two signs, and there may be a missing value. If there are more rows, some value is undeclared.
    max_rows = [math.prod(2 * (length + 1) for length in shape) for shape in shapes]
    coded = _coded_families(
        records, families, labels, otherwise=otherwise, bound=bound, counts_column=counts_column, max_rows=max_rows
    )
    return [tabulate(columns, shape, n) for (columns, n), shape in zip(coded, shapes, strict=True)]


def coded_records(
    records: Any,
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    counts_column: str | None = None,
    max_values: int = 2 * 10**8,
) -> Integers:
    """Whole records as positions of labels, shape (records, variables). **Secret**.

    Parameters
    ----------
    records, labels, otherwise, bound, counts_column
        See :func:`count_families`.
    max_values : int
        The maximum number of values, which limits the memory.

    Raises
    ------
    DataError
        If there are more values. The message contains no number from the data.
    """
    max_rows = [math.prod(2 * (len(values) + 1) for values in labels.values())]
    ((columns, weights),) = _coded_families(
        records,
        [list(labels)],
        labels,
        otherwise=otherwise,
        bound=bound,
        counts_column=counts_column,
        max_rows=max_rows,
    )
    n = len(columns[0]) if weights is None else int(weights.sum())
    if n * len(columns) > max_values:
        raise DataError(f"Use a sample of the people: the records have more than {max_values} values together.")
    codes = np.stack(list(columns), axis=1)
    return codes if weights is None else np.repeat(codes, weights, axis=0)


def _coded_families(
    records: Any,
    families: Sequence[Sequence[str]],
    labels: Categories,
    *,
    otherwise: Mapping[str, int],
    bound: Bound | None,
    max_rows: Sequence[int],
    counts_column: str | None = None,
) -> Sequence[tuple[Sequence[Integers], Integers | None]]:
    """Rows of each family as positions of labels, and the records that each represents; None for one. **Secret**.

    The parameters are those of :func:`count_families`; `max_rows` has the maximum number of different rows
    of each family.
    """
    if (engine := _engine_records(records, labels, otherwise, bound, counts_column)) is not None:
        coded = engine.encode_families(families, max_rows)
        # All records have been validated, so the selection cannot cause an error.
        return coded if bound is None else engine.with_bound(bound, randbits(256)).encode_families(families, max_rows)
    columns = encode(records, list(labels), labels, otherwise, unit=None if bound is None else bound.unit)
    weights = None if counts_column is None else row_counts(records, counts_column)
    if weights is not None and len(weights) != len(next(iter(columns.values()))):
        raise DataError(f"The columns {', '.join([*labels, str(counts_column)])} have different lengths.")
    if bound is not None:
        _refuse_counts_column(counts_column)
        rows = retained_rows(column_of(records, bound.unit), list(columns.values()), bound, randbits(256))
        columns = {name: codes[rows] for name, codes in columns.items()}
    return [([columns[name] for name in family], weights) for family in families]


def refuse_missing_columns(
    records: Any, labels: Categories, *, bound: Bound | None, counts_column: str | None = None
) -> None:
    """Refuse records that cannot be counted because of their form, before any charge. No value is read.

    Raises
    ------
    ArgumentError
        If they are not named columns, a column is missing, or a column of counts is not allowed.
    """
    if _engine_records(records, labels, {}, bound, counts_column) is not None:
        return
    for name in (
        *labels,
        *([] if bound is None else [bound.unit]),
        *([] if counts_column is None else [counts_column]),
    ):
        column_of(records, name)
    if bound is not None:
        _refuse_counts_column(counts_column)


def _engine_records(
    records: Any, labels: Categories, otherwise: Mapping[str, int], bound: Bound | None, counts_column: str | None
) -> EngineRecords | None:
    """The records as a table of an engine, after reading its schema; None if they are in memory."""
    if is_parquet(records):
        records = relation(records, [*labels, *([] if bound is None else [bound.unit])])
    if not is_engine_table(records):
        return None
    if counts_column is not None:
        raise ArgumentError(f"Leave counts= out: each row of {type_name(records)} must be one record.")
    return EngineRecords.of(records, labels, otherwise, bound)


def _refuse_counts_column(counts_column: str | None) -> None:
    if counts_column is not None:
        raise ArgumentError("Leave counts= out: with unit= each row must be one record.")


def table_shape(names: Sequence[str], labels: Categories, *, max_cells: int = 50_000_000) -> tuple[int, ...]:
    """The shape of a table with these axes, or an error if it is too large to be released.

    A table of `max_cells` doubles takes 400 MB, and a release needs several.
    """
    shape = tuple(len(labels[name]) for name in names)
    if math.prod(shape) > max_cells:
        raise ArgumentError(
            f"The table of {', '.join(names)} has {math.prod(shape)} cells, more than {max_cells}. "
            "Count fewer variables together, or merge categories."
        )
    return shape


def interval_of(column: Any, edges: Sequence[float], name: str = "values") -> Integers:
    """The number of edges at or below each number. **Secret.**

    Raises
    ------
    DataError
        If a value is missing or not a number. The message contains no value.
    """
    values, numbers = values_of(column, name), None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        # An integer may be larger than any double.
        with suppress(OverflowError):
            numbers = np.array(values, dtype=float)
    if numbers is None or np.isnan(numbers).any():
        raise DataError(
            f"The column {name!r} holds missing values, or values that are not numbers. "
            + missing_values("Replace missing values by a number below all edges")
        )
    return np.searchsorted(np.asarray(edges, dtype=float), numbers, side="right").astype(np.int64)


def count_between(records: Frame, column: str, edges: Sequence[float], bound: Bound | None) -> list[Integers]:
    """The number of records below the first edge, between consecutive edges, and from the last edge on. **Secret**.

    It is a list with one table, as from :func:`count_families`.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        An engine groups the records by their numbers.
    column : str
    edges : sequence of float
        In ascending order.
    bound : Bound, optional
        The maximum number of records of each unit.
    """
    engine = _engine_records(records, {column: []}, {}, bound, None)
    if engine is not None:
        positions, weights = _group_by_interval(engine, edges, column)
        if bound is not None:
            # All records have been validated, so the selection cannot cause an error.
            positions, weights = _group_by_interval(engine.with_bound(bound, randbits(256)), edges, column)
        return [tabulate([positions], (len(edges) + 1,), weights)]
    columns = {name: column_of(records, name) for name in (column, *([] if bound is None else [bound.unit]))}
    # A column of codes would not have the original index.
    refuse_other_indexes(columns)
    frame = columns | {column: interval_of(columns[column], edges, column)}
    return count_families(frame, [[column]], {column: list(range(len(edges) + 1))}, otherwise={}, bound=bound)


def _group_by_interval(engine: EngineRecords, edges: Sequence[float], column: str) -> tuple[Integers, Integers]:
    values, weights = engine.values()
    return interval_of(values, edges, column), weights


# The records of each unit that are counted, in memory. **Secret**.


_Words = NDArray[np.uint64]


def retained_rows(units: Any, codes: Sequence[Integers], bound: Bound, key: int) -> Integers:
    """The positions of the retained rows, in ascending order. The key has 256 bits.

    The hash of a row is that of the key, the unit, the record, and the number of the record among equal records of the
    unit. So the retained records of a unit depend only on this unit's records and the key, and not on their order.
    """
    numbers, unit_hashes = _number_units(units, bound, key)
    if any(len(column) != len(numbers) for column in codes):
        raise DataError(f"The column {bound.unit!r} and the variables have different lengths.")
    words = [np.uint64(key >> 64 * i & (2**64 - 1)) for i in range(4)]
    record = np.full(len(numbers), words[0])
    for column in codes:
        record = _mix(record ^ column.astype(np.uint64) ^ words[1])
    order = np.lexsort((record, numbers))
    rank = _rank_among_equal(numbers[order], record[order])
    if bound.distinct:
        order, rank = order[rank == 0], rank[rank == 0]
    row_hashes = _mix(record[order] ^ _mix(unit_hashes[numbers[order]] ^ words[2]))
    row_hashes = _mix(row_hashes ^ rank.astype(np.uint64) ^ words[3])
    by_hash = np.lexsort((row_hashes, numbers[order]))
    order = order[by_hash]
    return np.sort(order[_rank_among_equal(numbers[order]) < bound.records])


def _rank_among_equal(*sorted_columns: NDArray[Any]) -> Integers:
    """The number of earlier rows that equal each row, in sorted rows."""
    rows = np.arange(len(sorted_columns[0]))
    starts = np.zeros(len(rows), dtype=bool)
    starts[:1] = True
    for column in sorted_columns:
        starts[1:] |= column[1:] != column[:-1]
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


def _mix(words: _Words) -> _Words:
    """Mix all bits of each word (the finaliser of splitmix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _number_units(units: Any, bound: Bound, key: int) -> tuple[Integers, _Words]:
    """The number of each row's unit, and a hash of each unit. No hash depends on another unit."""
    dictionary = dictionary_of(units, bound.unit)
    values = values_of(units, bound.unit) if dictionary is None else dictionary[1]
    present = values if dictionary is None else [None if i < 0 else values[i] for i in np.unique(dictionary[0])]
    kinds = set(map(type, present))
    if not (kinds <= {int} or all(issubclass(kind, str) for kind in kinds)):
        if any(value is UNKNOWN or is_missing(value) for value in present):
            raise missing_unit_error(bound.unit)
        raise DataError(
            f"Expected the column {bound.unit!r} of the units to hold texts or integers, and not both. Cast it: "
            "in another type one person may have two values, such as 7 and 7.0."
        )
    if kinds != {int}:  # Integers have one spelling.
        refuse_ambiguous_units(present, bound.unit)
    numbering: dict[Any, int] = {}
    numbers = np.array([numbering.setdefault(value, len(numbering)) for value in values], dtype=np.int64)
    hashes = np.array([hash((key, value)) & (2**64 - 1) for value in numbering], dtype=np.uint64)
    return (numbers if dictionary is None else numbers[dictionary[0]]), hashes
