"""Many records: a million hostile ones in every engine, and as many as no memory holds."""

import itertools
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Dask support is moving:FutureWarning")

N = 10**6
# For each kind of column: its type, its values by code, and the labels of the first codes. The last code stands for
# what has to be refused: a missing value, one that was not declared, or one that a cast would make a label.
KINDS = {
    "texts with a null": (pa.string(), ["b", "a", "é", None], ["b", "a", "é"]),
    "texts and a space": (pa.string(), ["b", "a", "é", "a "], ["b", "a", "é"]),
    "texts of numbers": (pa.string(), ["1", "0", "2", "1.0"], ["1", "0", "2"]),
    "small numbers": (pa.uint8(), [3, 0, 255, 2], [3, 0, 255]),
    "numbers with a null": (pa.int64(), [3, 0, 2**40, None], [3, 0, 2**40]),
    "a neighbour that doubles do not tell apart": (pa.int64(), [3, 0, 2**53 + 1, 2**53], [3, 0, 2**53 + 1]),
    "whole doubles and NaN": (pa.float64(), [3.0, 0.0, 2.0, float("nan")], [3, 0, 2]),
    "a double that is nearly whole": (pa.float64(), [3.0, 0.0, 2.0, float(np.nextafter(3, 4))], [3, 0, 2]),
    "truth values with a null": (pa.bool_(), [True, False, True, None], [True, False]),
}

SIZES = [("a", 20), ("b", 5), ("c", 3)]


def codes(rng):
    """Where a few records are hostile, and the last one is; most records stand many times."""
    found = rng.choice(3, N, p=[0.9, 0.09, 0.01])
    found[rng.choice(N, 7, replace=False)] = 3
    found[-1] = 3
    return found


def column(kind, found):
    type_of, values, _ = KINDS[kind]
    return pa.array(values, type_of).take(pa.array(found))


def expected(kind, found):
    """Oracle: NumPy's count of the codes. Two codes may have the same value."""
    _, values, labels = KINDS[kind]
    times = np.bincount(found, minlength=4)
    return [int(sum(times[i] for i in range(3) if values[i] == label)) for label in labels], int(times[3])


def counted_alike_or_refused(in_engine):
    """A million records in an engine, of which a few are hostile, and without these; the oracle is NumPy."""
    rng = np.random.default_rng(12)
    found = {kind: codes(rng) for kind in KINDS}
    declared = {kind: labels for kind, (_, _, labels) in KINDS.items()}
    hostile = in_engine(pa.table({kind: column(kind, found[kind]) for kind in KINDS}))
    for kind, labels in declared.items():
        with pytest.raises(DataError, match=f"'{kind}' holds missing values, or values that"):
            count(hostile, [kind], categories=declared)
        other = "other" if isinstance(labels[0], str) else -7
        seen = count(hostile, [kind], categories={kind: [*labels, other]}, otherwise={kind: other}).tolist()
        plain, left = expected(kind, found[kind])
        assert seen == [*plain, left], kind
    # The same records without the hostile codes, and two columns at a time.
    clean = {kind: np.where(one == 3, 0, one) for kind, one in found.items()}
    good = in_engine(pa.table({kind: column(kind, clean[kind]) for kind in KINDS}))
    kinds = list(KINDS)
    for one, two in itertools.pairwise(kinds[:-1]):
        table = np.asarray(count(good, [one, two], categories=declared))
        both, _, _ = np.histogram2d(clean[one], clean[two], bins=[np.arange(4) - 0.5] * 2)
        np.testing.assert_array_equal(table, both)
    assert count(good, kinds[-1:], categories=declared).tolist() == expected(kinds[-1], clean[kinds[-1]])[0]


@pytest.mark.thorough
def test_a_million_hostile_records_are_counted_alike_or_refused_by_all(in_engine):
    counted_alike_or_refused(in_engine)


@pytest.mark.slow
def test_spark_counts_a_million_hostile_records_alike_or_refuses_them(spark, tmp_path):
    def in_spark(table):
        # Spark has no numbers without a sign.
        place = table.schema.get_field_index("small numbers")
        path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
        pq.write_table(table.set_column(place, "small numbers", table[place].cast(pa.int16())), path)
        return spark.read.parquet(path)

    counted_alike_or_refused(in_spark)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["Parquet", "polars lazy"])
def test_ten_million_records_of_bounded_units(place, tmp_path):
    """Oracle: the smaller one of its records and the bound, for each unit, by NumPy."""
    n, units, most = 10**7, 2_500_000, 3
    path = tmp_path / "records.parquet"
    duckdb.sql(f"SELECT hash(i) % {units} AS who, hash(i + {n}) % 5 AS x FROM range({n}) AS t(i)").write_parquet(
        str(path)
    )
    who = pl.read_parquet(path, columns=["who"])["who"].to_numpy().astype(np.int64)
    # What is counted beside the records' own values is known of each unit.
    records = duckdb.sql(f"SELECT who, x, who % 7 AS y FROM '{path}'") if place == "Parquet" else pl.scan_parquet(path)
    if place != "Parquet":
        records = records.with_columns(y=pl.col("who") % 7)
    options = {"categories": {"y": range(7), "x": range(5)}, "unit": "who", "contribution": most}
    table = np.asarray(count(records, ["y", "x"], **options))
    retained = np.minimum(np.bincount(who, minlength=units), most)
    np.testing.assert_array_equal(table.sum(axis=1), np.bincount(np.arange(units) % 7, weights=retained, minlength=7))
    # Retaining a record does not depend on its values, so each value has its share, within 6 standard deviations.
    assert np.abs(table.sum(axis=0) - retained.sum() / 5).max() < 6 * np.sqrt(retained.sum() / 5)


_HUNDRED_MILLION = """
import sys
from pathlib import Path
import duckdb
import numpy as np
from pymc_dirdp.counting.tables import count

path, n = sys.argv[1], 10**8
categories = {"a": range(20), "b": range(5), "c": range(3)}
counts = np.asarray(count(path, ["a", "b", "c"], categories=categories))
lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20
rows = duckdb.sql(f"SELECT a, b, c, count(*) FROM '{path}' GROUP BY ALL").fetchall()
own = np.zeros_like(counts)
for a, b, c, times in rows:
    own[a, b, c] = times
assert np.array_equal(counts, own)
assert counts.sum() == n
print(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux alone says how much memory was held")
def test_a_hundred_million_records_take_less_than_two_gibibytes(tmp_path):
    """Oracle: DuckDB's own group-by."""
    path = tmp_path / "records.parquet"
    rows = ", ".join(f"(hash(i + {k * 10**8}) % {size})::TINYINT AS {name}" for k, (name, size) in enumerate(SIZES))
    duckdb.sql(f"SELECT {rows} FROM range(100000000) AS t(i)").write_parquet(str(path))
    done = subprocess.run(
        [sys.executable, "-c", _HUNDRED_MILLION, str(path)], check=True, capture_output=True, text=True
    )
    assert float(done.stdout) < 2
