"""Which records of a unit an engine keeps: the first ones in the order of a keyed hash. **Secret**."""

from collections.abc import Sequence
from typing import Any

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.errors import ArgumentError

__all__ = ["kept", "refuse_engine"]

# The upper half of a hash orders the records of a unit, and the lower half holds their numbers.
_HALF = 2**32


def kept(frame: Any, columns: Sequence[str], bound: Bound, key: int) -> Any:
    """At most `bound.records` records of each entry of the column `u` of a lazy frame of Narwhals, with these columns.

    A hash is that of the key, the unit, the record, and the number of the record among equal ones of the unit. So which
    records of a unit are kept depends on this unit's records and the key alone, not on their order and not on others.
    """
    import narwhals as nw

    engine = str(frame.implementation.value)
    if engine == "duckdb":
        return nw.from_native(_in_duckdb(frame.to_native(), columns, bound, key))
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
    if engine != "duckdb" and engine not in _HASHED:
        raise ArgumentError(
            f"Records of {engine} cannot be chosen by unit. Write them to Parquet and pass the folder, or collect them."
        )


def _in_duckdb(relation: Any, columns: Sequence[str], bound: Bound, key: int) -> Any:
    """The same by lists, one for each unit: windows over all records need several times the memory.

    In the lists a record is the hash of its values, which a look-up turns into the record again at the end.
    """
    listed = ", ".join(columns)
    coded = relation.project(f"u, hash('{key:x}', {listed}) AS c, {listed}")
    # Each hash is there once, so records that collide are counted as one another, and never twice.
    records = coded.aggregate("c, " + ", ".join(f"first({name}) AS {name}" for name in columns), "c")
    # Equal records stand side by side in a sorted list, so numbers in the list do what numbers among equal ones do.
    # DuckDB joins the hashes of several values by an exclusive or, so numbers that differ in the last value alone are
    # not spread as if at random before they are hashed again.
    hashed = f"hash(hash('{key:x}', u, x, i)) // {_HALF} * {_HALF} + i"
    first = f"list_sort(list_transform(l, lambda x, i: {hashed}))[:{bound.records}]"
    chosen = f"list_select(l, list_transform({first}, lambda h: (h % {_HALF})::BIGINT))"
    kept = coded.aggregate(f"u, list_sort(list({'DISTINCT ' * bound.distinct}c)) AS l", "u").project(
        f"unnest({chosen}) AS c"
    )
    return kept.set_alias("kept").join(records.set_alias("records"), "c").project(listed)


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


_HASHED = {"polars": _in_polars, "ibis": _in_ibis, "pyspark": _in_spark}
