"""The same records in many engines, for tests."""

import tempfile
import warnings
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def ibis_table(table, folder):
    return pytest.importorskip("ibis", reason="tried where it is installed").memtable(table)


def dask_frame(table, folder):
    dask = pytest.importorskip("dask.dataframe", reason="tried where it is installed")
    if any(pa.types.is_dictionary(kind) or pa.types.is_decimal(kind) for kind in table.schema.types):
        pytest.skip("Dask does not group by dictionaries and decimals of Arrow")
    return dask.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype), npartitions=2)


def folder_of_parquet(table, folder):
    """Two files in folders whose names hold what a pattern would take for its own."""
    half = table.num_rows // 2
    for part, place in ((table.slice(0, half), folder / "[a]*"), (table.slice(half), folder / "b=1")):
        place.mkdir(parents=True)
        pq.write_table(part, place / "part.parquet")
    return folder


# In memory, where columns are read, and after them engines that group.
ENGINES = {
    "mapping": lambda table, folder: table.to_pydict(),
    "pandas": lambda table, folder: table.to_pandas(),
    "polars": lambda table, folder: pl.from_arrow(table),
    "Arrow": lambda table, folder: pa.concat_tables([table.slice(0, 3), table.slice(3)]),
    "polars lazy": lambda table, folder: pl.from_arrow(table).lazy(),
    "DuckDB": lambda table, folder: duckdb.connect().from_arrow(table),
    "Parquet": folder_of_parquet,
    "Ibis": ibis_table,
    "Dask": dask_frame,
}


def taken(name, table, folder):
    with warnings.catch_warnings():
        # Conversions between these packages warn of one another.
        warnings.simplefilter("ignore")
        return ENGINES[name](table, folder)


def fixture_of(names):
    """A function that puts a table of Arrow into an engine, for each of the engines."""

    @pytest.fixture(params=names)
    def engine(request, tmp_path):
        return lambda table: taken(request.param, table, Path(tempfile.mkdtemp(dir=tmp_path)))

    return engine


in_engine = fixture_of(ENGINES)
# Those that choose records by unit, and one of each way to choose: in memory, by the hashes of polars and of DuckDB.
choosing = fixture_of([name for name in ENGINES if name != "Dask"])
hashing = fixture_of(["mapping", "polars lazy", "DuckDB"])


@pytest.fixture(scope="session")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="tried where it is installed")
    session = sql.SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    yield session
    session.stop()
