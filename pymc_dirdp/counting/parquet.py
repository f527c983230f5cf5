"""Parquet files through DuckDB, which counts what is larger than memory."""

import contextlib
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["is_parquet", "relation"]


def is_parquet(records: Any) -> bool:
    """Whether this is the path of a Parquet file or of a folder."""
    return isinstance(records, str | os.PathLike) and (
        Path(records).suffix.lower() in (".parquet", ".pq") or Path(records).is_dir()
    )


def relation(path: str | os.PathLike[str], columns: Sequence[str]) -> Any:
    """The records of a file, or of all Parquet files in a folder and below it, as a relation of DuckDB.

    Names of folders, such as `year=2024`, are no columns: what type they have is a guess.

    Raises
    ------
    ImportError
        If DuckDB is not installed.
    ArgumentError
        If there is no such file, or files hold a column in different types, which DuckDB would convert.
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
        # DuckDB would print a bar also where nobody looks at a terminal. In a notebook without ipywidgets, where it has
        # no bar, it refuses to change it.
        with contextlib.suppress(duckdb.InvalidInputException):
            connection.execute("SET enable_progress_bar = false")
        # `schema_element` has a row for each column of each file.
        types = connection.execute(
            "SELECT name, count(DISTINCT (type, type_length, logical_type, converted_type, num_children)), count(*) "
            "FROM parquet_schema(?) GROUP BY name",
            [names],
        ).fetchall()
        found = connection.read_parquet(names, hive_partitioning=False)
    except duckdb.Error:
        types = None
    if types is None:
        raise DataError(f"Some file of {os.fspath(path)!r} is no Parquet file, or a damaged one.")
    held = {name: (kinds, rows) for name, kinds, rows in types}
    for column in columns:
        kinds, rows = held.get(column, (1, len(files)))
        if kinds > 1 or rows != len(files):
            raise ArgumentError(
                f"The files of {os.fspath(path)!r} do not all hold the column {column!r} once and in one type, and a "
                "conversion may change values. Write them with one schema."
            )
    return found
