"""Contribution bounding: the choice of retained records of each unit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MAX_RECORDS, identifier, integer
from pymc_dirdp.counting.columns import UNKNOWN, dictionary_of, is_missing, values_of
from pymc_dirdp.errors import ArgumentError, DataError, missing_values, type_name
from pymc_dirdp.privacy.people import adjacency_by_name

# Contribution bounding in memory. **Secret**.


_Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Bound:
    """The maximum number of counted records of each unit. It is public.

    Attributes
    ----------
    unit : str
        The column that identifies the units.
    records : int
        The maximum number of retained records of a unit.
    distinct : bool
        Whether equal records of a unit count once. In a sum of tables they count once in each.
    """

    unit: str
    records: int
    distinct: bool = False

    @property
    def missing_unit_error(self) -> DataError:
        """The error for records whose unit is missing."""
        return DataError(
            f"The column {self.unit!r} of the units holds missing values, empty texts or invisible characters, so it "
            f"is unknown whose these records are. {missing_values('Find out whose they are')}"
        )

    def refuse_ambiguous_units(self, units: Iterable[Any]) -> None:
        """Refuse different texts that may be the same person, and texts without an identifier. **Secret**.

        Raises
        ------
        DataError
            If one of them is not an identifier, or two of them are spellings of one identifier.
        """
        spellings = set(units)
        people = set(map(identifier, spellings))
        if None in people:
            raise self.missing_unit_error
        if len(people) < len(spellings):
            raise DataError(
                f"The column {self.unit!r} of the units holds texts that differ only in letter case, Unicode form, "
                "spaces, or zeros before an integer, so it is unknown whether they are one person. Write the unit of "
                "a person in one way. Number the people, in a table that you keep, if they are different."
            )

    def lost_bound_error(self, name: str) -> DataError:
        """The error for numbers that equal bounded counts of this process, without their bound."""
        return DataError(
            f"{name} has the same numbers as counts of at most {self.records} records of each {self.unit!r}, but is "
            "another array, so each record of a person would be protected by itself. Pass the counts as they were "
            f"returned, or pass contribution={self.records}. If these are other data, pass contribution= or unit=, or "
            "delete the counts."
        )

    def refuse_public_number(self, adjacency: str) -> None:
        """Refuse an adjacency that makes the number of these records public, although it depends on the units."""
        if self.records > 1 and adjacency_by_name(adjacency).records_are_public:
            raise ArgumentError(
                'Pass adjacency="add-remove" (and n_records= for planning), or count with contribution=1, where the '
                f"number of records is the number of units: at most {self.records} records of each {self.unit!r} are "
                "counted, so the number of records depends on who they are, and replace-one would make it public."
            )


def checked_bound(unit: str | None, contribution: int | None, *, distinct: bool) -> Bound | None:
    """The bound that these arguments of `count` request."""
    if unit is None and contribution is None and not distinct:
        return None
    if unit is None or contribution is None:
        raise ArgumentError(
            "Expected unit and contribution together: unit='patient', contribution=3 counts at most 3 records of each "
            "patient."
        )
    if not isinstance(unit, str):
        raise ArgumentError(f"Expected unit to be the name of a column, got {type_name(unit)}.")
    records = integer(1, contribution=contribution)
    if records > MAX_RECORDS:
        raise ArgumentError("Expected contribution to be at most 2**53: no table with larger counts can be released.")
    return Bound(unit, records, bool(distinct))


def bound_for(*, adjacency: str, unit: str | None, contribution: int | None) -> Bound | None:
    """The bound on records of each unit, where the number of counted records may be public.

    Raises
    ------
    ArgumentError
        If the number of records would be public, although it depends on the units.
    """
    bound = checked_bound(unit, contribution, distinct=False)
    if bound is not None:
        bound.refuse_public_number(adjacency)
    return bound


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
            raise bound.missing_unit_error
        raise DataError(
            f"Expected the column {bound.unit!r} of the units to hold texts or integers, and not both. Cast it: "
            "in another type one person may have two values, such as 7 and 7.0."
        )
    if kinds != {int}:  # Integers have one spelling.
        bound.refuse_ambiguous_units(present)
    numbering: dict[Any, int] = {}
    numbers = np.array([numbering.setdefault(value, len(numbering)) for value in values], dtype=np.int64)
    hashes = np.array([hash((key, value)) & (2**64 - 1) for value in numbering], dtype=np.uint64)
    return (numbers if dictionary is None else numbers[dictionary[0]]), hashes


# Contribution bounding in an engine: the first records of a unit in the order of a keyed hash. **Secret**.


def retain_records(frame: Any, columns: Sequence[str], bound: Bound, key: int) -> Any:
    """At most `bound.records` records of each unit, the column `u`, of a lazy frame of Narwhals, with these columns.

    The hashes are those of :func:`retained_rows`, computed by the engine.
    """
    import narwhals as nw

    engine = str(frame.implementation.value)
    if bound.distinct:
        frame = frame.unique(["u", *columns]).with_columns(j=nw.lit(1))
    else:
        # Nulls of the first column would not be counted, so count a constant.
        frame = frame.with_columns(one=nw.lit(1))
        frame = frame.with_columns(j=nw.col("one").cum_sum().over("u", *columns, order_by="u"))
    native = _ADD_HASH[engine](nw.get_native_namespace(frame), frame.to_native(), ["u", *columns, "j"], key)
    frame = nw.from_native(native).with_columns(one=nw.lit(1))
    frame = frame.with_columns(k=nw.col("one").cum_sum().over("u", order_by="h"))
    return frame.filter(nw.col("k") <= bound.records).select(*columns)


def refuse_engine(frame: Any) -> None:
    """Refuse a lazy frame of an engine that cannot choose records."""
    engine = str(frame.implementation.value)
    if engine not in _ADD_HASH:
        raise ArgumentError(
            f"Write the records to Parquet and pass the folder, or collect them: {engine} cannot select them by unit."
        )


def _in_duckdb(duckdb: Any, native: Any, columns: Sequence[str], key: int) -> Any:
    # DuckDB combines the hashes of several values by an exclusive or. A second hash spreads rows that differ only in
    # the last value.
    return native.project(f"*, hash(hash('{key:x}', {', '.join(columns)})) AS h")


def _in_polars(polars: Any, native: Any, columns: Sequence[str], key: int) -> Any:
    texts = [polars.col(name).cast(polars.String).fill_null("") for name in columns]
    keyed = polars.concat_str(polars.lit(f"{key:x}"), *texts, separator="\0")
    return native.with_columns(h=keyed.hash(key & (2**64 - 1)))


def _in_ibis(ibis: Any, native: Any, columns: Sequence[str], key: int) -> Any:
    text = ibis.literal(f"{key:x}")
    for name in columns:
        text = text.concat("|", native[name].cast("string").fill_null(""))
    return native.mutate(h=text.hash())


def _in_spark(spark: Any, native: Any, columns: Sequence[str], key: int) -> Any:
    functions = spark.functions
    return native.withColumn("h", functions.xxhash64(functions.lit(f"{key:x}"), *map(functions.col, columns)))


_ADD_HASH = {"duckdb": _in_duckdb, "polars": _in_polars, "ibis": _in_ibis, "pyspark": _in_spark}
