"""Which records of each unit are retained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MAX_RECORDS, identifier, integer
from pymc_dirdp.counting.columns import NOTHING, dictionary_of, is_missing, values_of
from pymc_dirdp.errors import ArgumentError, DataError, missing_values, type_name
from pymc_dirdp.privacy.people import adjacency_named

# At most so many records of each unit: which ones are retained, in memory. **Secret**.


_Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Bound:
    """How many records of each unit are counted. It is public.

    Attributes
    ----------
    unit : str
        The column whose entries are the units.
    records : int
        How many records of a unit are retained at most.
    distinct : bool
        Whether equal records of a unit count once; in a sum of tables, once in each of them.
    """

    unit: str
    records: int
    distinct: bool = False

    @property
    def without_unit(self) -> DataError:
        """The error for records whose unit is missing."""
        return DataError(
            f"The column {self.unit!r} of the units holds missing values, empty texts or characters that cannot be "
            f"seen, so it is unknown whose these records are. {missing_values('Find out whose they are')}"
        )

    def refuse_unclear(self, distinct: Iterable[Any]) -> None:
        """Refuse units of which somebody could be several, or whose text says nothing. **Secret**.

        Raises
        ------
        DataError
            If one of them is no identifier, or two of them are ways to write one.
        """
        written = set(distinct)
        people = set(map(identifier, written))
        if None in people:
            raise self.without_unit
        if len(people) < len(written):
            raise DataError(
                f"The column {self.unit!r} of the units holds texts that differ in letter case, Unicode form, spaces, "
                "or zeros before an integer alone, so it is unknown whether they are one person. Write the unit of a "
                "person in one way; number the people, in a table that you keep, if they are different."
            )

    def lost(self, name: str) -> DataError:
        """The error for numbers that are bounded counts of this process, and do not know it."""
        return DataError(
            f"{name} has the same numbers as counts of at most {self.records} records of each {self.unit!r}, but not "
            "these counts themselves, so that each record would be protected as another person's. Pass the counts as "
            f"they were returned, or say contribution={self.records}. If these are other data, say with contribution= "
            "or unit= whose they are, or delete the counts."
        )

    def refuse_public_number(self, adjacency: str) -> None:
        """Refuse a relation that makes the number of these records public, although it depends on who the units are."""
        if self.records > 1 and adjacency_named(adjacency).records_are_public:
            raise ArgumentError(
                f"At most {self.records} records of each {self.unit!r} are counted, so the number of records depends "
                'on who these are, and replace-one would make it public. Add adjacency="add-remove" (and n_records= '
                "for planning), or count with contribution=1, where it is the number of units."
            )


def checked_bound(unit: str | None, contribution: int | None, *, distinct: bool) -> Bound | None:
    """The bound that these arguments of `count` ask for."""
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
    """Whose records are counted, and how many of each at most, where the number of those that are counted is no secret.

    Raises
    ------
    ArgumentError
        If the number of records would be public, although it depends on who the units are.
    """
    bound = checked_bound(unit, contribution, distinct=False)
    if bound is not None:
        bound.refuse_public_number(adjacency)
    return bound


def retained_rows(units: Any, codes: Sequence[Integers], bound: Bound, key: int) -> Integers:
    """The rows that are retained of these records, as positions in ascending order. The key has 256 bits.

    A hash is that of the key, the unit, the record, and the number of the record among equal ones of the unit. So which
    records of a unit are retained depends on this unit's records and the key alone, not on their order and not on
    others.
    """
    numbers, hashes = _numbered(units, bound, key)
    if any(len(column) != len(numbers) for column in codes):
        raise DataError(f"The column {bound.unit!r} and the variables have different lengths.")
    words = [np.uint64(key >> 64 * i & (2**64 - 1)) for i in range(4)]
    record = np.full(len(numbers), words[0])
    for column in codes:
        record = _mixed(record ^ column.astype(np.uint64) ^ words[1])
    order = np.lexsort((record, numbers))
    among_equal = _place(numbers[order], record[order])
    if bound.distinct:
        order, among_equal = order[among_equal == 0], among_equal[among_equal == 0]
    hashed = _mixed(record[order] ^ _mixed(hashes[numbers[order]] ^ words[2]))
    hashed = _mixed(hashed ^ among_equal.astype(np.uint64) ^ words[3])
    by_hash = np.lexsort((hashed, numbers[order]))
    order = order[by_hash]
    return np.sort(order[_place(numbers[order]) < bound.records])


def _place(*sorted_columns: NDArray[Any]) -> Integers:
    """The number of each row among those before it that are equal to it, in rows that are sorted."""
    rows = np.arange(len(sorted_columns[0]))
    starts = np.zeros(len(rows), dtype=bool)
    starts[:1] = True
    for column in sorted_columns:
        starts[1:] |= column[1:] != column[:-1]
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


def _mixed(words: _Words) -> _Words:
    """Words whose bits depend on all bits of the given ones (the finaliser of splitmix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _numbered(units: Any, bound: Bound, key: int) -> tuple[Integers, _Words]:
    """Each row's unit as a number, and a hash of each unit's value. No hash depends on another unit."""
    dictionary = dictionary_of(units, bound.unit)
    values = values_of(units, bound.unit) if dictionary is None else dictionary[1]
    used = values if dictionary is None else [None if i < 0 else values[i] for i in np.unique(dictionary[0])]
    kinds = set(map(type, used))
    if not (kinds <= {int} or all(issubclass(kind, str) for kind in kinds)):
        if any(value is NOTHING or is_missing(value) for value in used):
            raise bound.without_unit
        raise DataError(
            f"Expected the column {bound.unit!r} of the units to hold texts or integers, and not both. Cast it: "
            "in another type one person may have two values, such as 7 and 7.0."
        )
    if kinds != {int}:  # Integers are written in one way.
        bound.refuse_unclear(used)
    found: dict[Any, int] = {}
    numbers = np.array([found.setdefault(value, len(found)) for value in values], dtype=np.int64)
    hashes = np.array([hash((key, value)) & (2**64 - 1) for value in found], dtype=np.uint64)
    return (numbers if dictionary is None else numbers[dictionary[0]]), hashes


# Which records of a unit an engine keeps: the first ones in the order of a keyed hash. **Secret**.


def retained(frame: Any, columns: Sequence[str], bound: Bound, key: int) -> Any:
    """At most `bound.records` records of each entry of the column `u` of a lazy frame of Narwhals, with these columns.

    A hash is that of the key, the unit, the record, and the number of the record among equal ones of the unit. So which
    records of a unit are retained depends on this unit's records and the key alone, not on their order and not on
    others.
    """
    import narwhals as nw

    engine = str(frame.implementation.value)
    if bound.distinct:
        frame = frame.unique(["u", *columns]).with_columns(j=nw.lit(1))
    else:
        # The first column of nulls would not be counted, so a constant is.
        frame = frame.with_columns(one=nw.lit(1))
        frame = frame.with_columns(j=nw.col("one").cum_sum().over("u", *columns, order_by="u"))
    native = _HASHED[engine](nw.get_native_namespace(frame), frame.to_native(), ["u", *columns, "j"], key)
    frame = nw.from_native(native).with_columns(one=nw.lit(1))
    frame = frame.with_columns(k=nw.col("one").cum_sum().over("u", order_by="h"))
    return frame.filter(nw.col("k") <= bound.records).select(*columns)


def refuse_engine(frame: Any) -> None:
    """Refuse a lazy frame of an engine that cannot choose records."""
    engine = str(frame.implementation.value)
    if engine not in _HASHED:
        raise ArgumentError(
            f"Records of {engine} cannot be chosen by unit. Write them to Parquet and pass the folder, or collect them."
        )


def _in_duckdb(duckdb: Any, native: Any, columns: Sequence[str], key: int) -> Any:
    # DuckDB joins the hashes of several values by an exclusive or, so numbers that differ in the last value alone are
    # not spread as if at random before they are hashed again.
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


_HASHED = {"duckdb": _in_duckdb, "polars": _in_polars, "ibis": _in_ibis, "pyspark": _in_spark}
