"""Queries to engines that store records."""

import contextlib
import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.columns import Categories, encode, missing_unit_error, refuse_ambiguous_units
from pymc_dirdp.errors import ArgumentError, DataError, DirdpError, type_name

if TYPE_CHECKING:
    import narwhals as nw


def is_parquet(records: Any) -> bool:
    """Whether this is the path of a Parquet file or of a folder."""
    return isinstance(records, str | os.PathLike) and (
        Path(records).suffix.lower() in (".parquet", ".pq") or Path(records).is_dir()
    )


def relation(path: str | os.PathLike[str], columns: Sequence[str]) -> Any:
    """The records of a file, or of all Parquet files in a folder and below it, as a relation of DuckDB.

    Names of folders, such as `year=2024`, are not columns, because their type is unknown.

    Raises
    ------
    ImportError
        If DuckDB is not installed.
    ArgumentError
        If there is no such file, or a column has different types, which DuckDB would convert.
    DataError
        If a file is damaged.
    """
    try:
        import duckdb
    except ImportError:
        raise ImportError("Parquet files need DuckDB: pip install duckdb narwhals pyarrow") from None
    root = Path(path)
    files = sorted(root.rglob("*.parquet")) + sorted(root.rglob("*.pq")) if root.is_dir() else [root]
    if not files or not all(file.is_file() for file in files):
        raise ArgumentError(f"There is no Parquet file at {os.fspath(path)!r}.")
    names = [glob.escape(os.fspath(file)) for file in files]
    try:
        connection = duckdb.connect()
        # DuckDB would print a bar even without a terminal. In a notebook without ipywidgets it has no bar, and raises
        # an error for this option.
        with contextlib.suppress(duckdb.InvalidInputException):
            connection.execute("SET enable_progress_bar = false")
        # `schema_element` has a row for each column of each file.
        types = connection.execute(
            "SELECT name, count(DISTINCT (type, type_length, logical_type, converted_type, num_children)), count(*) "
            "FROM parquet_schema(?) GROUP BY name",
            [names],
        ).fetchall()
        parquet = connection.read_parquet(names, hive_partitioning=False)
    except duckdb.Error:
        types = None
    if types is None:
        raise DataError(f"A file of {os.fspath(path)!r} is not a Parquet file, or is damaged.")
    by_column = {name: (kinds, rows) for name, kinds, rows in types}
    for column in columns:
        kinds, rows = by_column.get(column, (1, len(files)))
        if kinds > 1 or rows != len(files):
            raise ArgumentError(
                f"Write the files of {os.fspath(path)!r} with one schema: they do not all have the column {column!r} "
                "once and in one type, and a conversion may change values."
            )
    return parquet


# An engine groups its records, and returns only the table. **Secret**.

# Texts without a match equal their `identifier`.
_NOT_IN_ONE_FORM = r"^(0|$)|[^0-9a-z_-]"

# Rows as positions of labels, column by column, and the number of records of each row.
CodedRows = tuple[list[Integers], Integers]
# The values of one column, and the number of records of each value.
_Column = tuple[Any, Integers]
# The values of some columns, by name, and the number of records of each row.
_Group = tuple[dict[str, Any], Integers]


def is_engine_table(records: Any) -> bool:
    """Whether this is a lazy table of an engine, which has no columns in memory."""
    package = type(records).__module__.partition(".")[0]
    lazy = ("polars", "duckdb", "_duckdb", "ibis", "pyspark", "dask", "sqlframe")
    return package in lazy and (package != "polars" or type(records).__name__ == "LazyFrame")


@dataclass(frozen=True)
class EngineRecords:
    """A table in an engine, with the variables as columns `v0`, `v1`, ... and the unit as `u`.

    Attributes
    ----------
    frame : narwhals.LazyFrame
    labels : mapping of str to list
        The labels of the variables, in the order of the columns.
    otherwise : mapping of str to int
        The position of the label for values that are missing or not declared.
    """

    frame: "nw.LazyFrame[Any]"
    labels: Categories
    otherwise: Mapping[str, int]

    @classmethod
    def of(
        cls, records: Any, labels: Categories, otherwise: Mapping[str, int], bound: Bound | None = None
    ) -> "EngineRecords":
        """Read the schema, but no records.

        Raises
        ------
        ImportError
            If Narwhals is not installed.
        ArgumentError
            If a column is missing, Narwhals does not support this engine, or it cannot choose records by unit.
        """
        nw = _narwhals()
        try:
            frame = nw.from_native(records).lazy()
            schema = frame.collect_schema()
        except Exception:
            schema = None
        if schema is None:
            raise ArgumentError(f"Pass collected data: Narwhals cannot read the columns of {type_name(records)}.")
        units = [] if bound is None else [bound.unit]
        for name in (*labels, *units):
            if name not in schema:
                raise ArgumentError(f"The records have no column {name!r}.")
        for unit in units:
            refuse_engine(frame)
            if not (schema[unit].is_integer() or schema[unit] in (nw.String, nw.Categorical, nw.Enum)):
                raise ArgumentError(
                    f"Expected the column {unit!r} of the units to hold texts or integers. Cast it: in another type "
                    "one person may have two values, such as 7 and 7.0."
                )
        frame = _query(lambda: _rename(frame, {name: f"v{i}" for i, name in enumerate(labels)}, units))
        declared = {
            f"v{i}": _null_undeclared(nw.col(f"v{i}"), schema[name], labels[name])
            for i, name in enumerate(labels)
            if name in otherwise
        }
        return cls(frame.with_columns(**declared) if declared else frame, labels, otherwise)

    def with_bound(self, bound: Bound, key: int) -> "EngineRecords":
        """The retained records of each unit.

        Raises
        ------
        DataError
            If some record has no unit, or two units may be one person.
        """
        nw = _narwhals()
        missing = _query(lambda: self.frame.filter(nw.col("u").is_null()).head(1).collect())
        if len(missing):
            raise missing_unit_error(bound.unit)
        if not self.frame.collect_schema()["u"].is_integer():
            units = self.frame.select(nw.col("u").cast(nw.String))
            # If all units are in normal form, which is common, none is fetched.
            irregular = units.filter(nw.col("u").str.contains(_NOT_IN_ONE_FORM))
            if len(_query(lambda: irregular.head(1).collect())):
                refuse_ambiguous_units(_query(lambda: units.unique().collect()["u"].to_list()), bound.unit)
        columns = [f"v{i}" for i in range(len(self.labels))]
        return replace(self, frame=_query(lambda: retain_records(self.frame, columns, bound, key)))

    def encode_families(self, families: Sequence[Sequence[str]], max_rows: Sequence[int]) -> list[CodedRows]:
        """The distinct rows of each family of variables, as positions of labels, with the number of records of each.

        `max_rows` has the maximum number of rows of each family.
        """
        positions = [[list(self.labels).index(name) for name in family] for family in families]
        used = sorted({i for family in positions for i in family})
        # `grouping` of DuckDB takes no more columns.
        if str(self.frame.implementation.value) == "duckdb" and len(families) > 1 and len(used) <= 60:
            groups = _query(lambda: self._in_one_pass(positions, used, max_rows))
        else:
            groups = [
                _query(partial(self._group_by, *arguments)) for arguments in zip(positions, max_rows, strict=True)
            ]
        coded = []
        for (values, times), limit in zip(groups, max_rows, strict=True):
            columns = encode(values, list(values), self.labels, self.otherwise)
            if len(times) > limit:
                raise DataError(
                    f"Cast the columns {', '.join(values)} to texts or integers: they hold too many different values "
                    "to fetch."
                )
            coded.append(([columns[name] for name in values], times))
        return coded

    def values(self) -> _Column:
        """The distinct values of the first variable, with the number of records of each."""
        values, times = _query(partial(self._group_by, [0], None))
        return values[next(iter(self.labels))], times

    def _group_by(self, family: Sequence[int], max_rows: int | None) -> _Group:
        nw = _narwhals()
        groups = self.frame.group_by(*(f"v{i}" for i in family)).agg(nw.len().alias("n"))
        return self._to_group(family, (groups if max_rows is None else groups.head(max_rows + 1)).collect())

    def _in_one_pass(
        self, families: Sequence[Sequence[int]], used: Sequence[int], max_rows: Sequence[int]
    ) -> list[_Group]:
        """All families by one query of DuckDB."""
        nw = _narwhals()
        column_list = ", ".join(f"v{i}" for i in used)
        sets = ", ".join("(" + ", ".join(f"v{i}" for i in family) + ")" for family in families)
        selection = f"{column_list}, count(*) AS n, grouping({column_list})::BIGINT AS g"
        grouped = self.frame.to_native().aggregate(selection, f"GROUPING SETS ({sets})")
        answer = nw.from_native(grouped.limit(sum(max_rows) + len(max_rows))).collect()
        # A bit is 0 where the column is grouped by. The first column has the highest bit.
        marks = [sum(2 ** (len(used) - 1 - used.index(i)) for i in used if i not in family) for family in families]
        return [
            self._to_group(family, answer.filter(nw.col("g") == mark))
            for family, mark in zip(families, marks, strict=True)
        ]

    def _to_group(self, family: Sequence[int], rows: Any) -> _Group:
        names = list(self.labels)
        return {names[i]: rows[f"v{i}"].to_native() for i in family}, rows["n"].to_numpy().astype(np.int64)


def _narwhals() -> Any:
    """The module, or an ImportError with the line that installs it."""
    try:
        import narwhals as nw
    except ImportError:
        raise ImportError("Records of an engine need Narwhals: pip install narwhals") from None
    return nw


def _query[T](call: Callable[[], T]) -> T:
    """The result of a query. The engine's own errors may contain values of records."""
    try:
        return call()
    except (DirdpError, ImportError):
        raise
    except Exception as error:
        problem = type(error).__name__
    raise DataError(
        f"The engine of these records failed with {problem}, whose message may contain data. Group records by these "
        "columns in the engine itself to see it."
    )


def _null_undeclared(column: Any, dtype: Any, labels: Sequence[Any]) -> Any:
    """The column with null for undeclared texts and integers, so that they are not fetched."""
    nw = _narwhals()
    declared: list[Any]
    if dtype == nw.String:
        declared = [label for label in labels if isinstance(label, str)]
    elif dtype.is_integer():
        declared = [int(label) for label in labels if not isinstance(label, str | bytes) and label == int(label)]
    else:
        return column
    return nw.when(column.is_in(declared)).then(column)


def _rename(frame: Any, names: Mapping[str, str], units: Sequence[str]) -> Any:
    """Rename the variables, and the unit to `u`, with binary collation: others may make different texts equal."""
    nw, native, engine = _narwhals(), frame.to_native(), str(frame.implementation.value)
    if engine == "duckdb":
        quoted = {name: '"' + name.replace('"', '""') + '"' for name in (*names, *units)}
        texts = {name for name, kind in zip(native.columns, native.types, strict=True) if str(kind) == "VARCHAR"}
        collated = {name: f'{quoted[name]} COLLATE "binary"' if name in texts else quoted[name] for name in quoted}
        columns = [f"{collated[name]} AS {new}" for name, new in (*names.items(), *((unit, "u") for unit in units))]
        return nw.from_native(native.project(", ".join(columns)))
    if engine == "pyspark":
        for field in native.schema.fields:
            collation = getattr(field.dataType, "collation", None)
            if field.name in (*names, *units) and collation not in (None, "UTF8_BINARY"):
                raise ArgumentError(
                    f"Cast the column {field.name!r} to STRING COLLATE UTF8_BINARY: its collation may make different "
                    "texts equal."
                )
    columns = [nw.col(name).alias(new) for name, new in names.items()]
    return frame.select(*columns, *(nw.col(unit).alias("u") for unit in units))


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
