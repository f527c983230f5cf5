"""Every engine gives the same table, or all refuse the records."""

import itertools
import re
import sys
from decimal import Decimal
from types import SimpleNamespace

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.counting import engines
from pymc_dirdp.counting.columns import identifier
from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import ArgumentError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:Dask support is moving:FutureWarning")

BIG = 2**53
# Arrow arrays, the labels, and the counts; None where everybody has to refuse the records.
HOSTILE = {
    "texts": (pa.array(["b", "a", "b", "b"]), ["a", "b", "c"], [1, 3, 0]),
    "null": (pa.array(["b", None, "b", "b"]), ["a", "b"], None),
    "unseen": (pa.array(["b", "a", "x", "b"]), ["a", "b"], None),
    "a space": (pa.array(["b", "a ", "b", "b"]), ["a", "b"], None),
    "NUL": (pa.array(["b", "a\0", "b", "b"]), ["a", "b"], None),
    "composed letter": (pa.array(["b", "e\u0301", "b", "b"]), ["\u00e9", "b"], None),
    "other letters": (pa.array(["b", "é", "字", "b"]), ["é", "b", "字"], [1, 2, 1]),
    "empty text": (pa.array(["b", "", "b", "b"]), ["", "b"], [1, 3]),
    "text null": (pa.array(["b", "null", "None", "nan"]), ["b", "null", "None", "nan"], [1, 1, 1, 1]),
    "null in a dictionary": (pa.array(["b", None, "b", "b"]).dictionary_encode(), ["a", "b"], None),
    "numbers": (pa.array([1, 0, 1, 7]), [0, 1, 7, 8], [1, 2, 1, 0]),
    "small numbers": (pa.array([1, 0, 1, 255], pa.uint8()), [-1, 0, 1, 255, 256], [0, 1, 2, 1, 0]),
    "numbers with a null": (pa.array([1, None, 1, 1]), [0, 1], None),
    "texts for numbers": (pa.array(["1", "0", "1", "1"]), [0, 1], None),
    "both for texts": (pa.array(["1", "0", "1", "1"]), [0, 1, "0", "1"], [0, 0, 1, 3]),
    "booleans for 0 and 1": (pa.array([True, False, True, True]), [0, 1], [1, 3]),
    "2 for booleans": (pa.array([1, 0, 2, 1]), [False, True], None),
    "booleans with a null": (pa.array([True, None, True, True]), [False, True], None),
    "whole doubles": (pa.array([1.0, 0.0, 1.0, 1.0]), [0, 1], [1, 3]),
    "both zeros": (pa.array([1.0, -0.0, 0.0, 1.0]), [0, 1], [2, 2]),
    "not a number": (pa.array([1.0, float("nan"), 0.0, 1.0]), [0, 1], None),
    "halves": (pa.array([0.5, 0.25, 0.5, 0.5]), [0.25, 0.5], [1, 3]),
    "short doubles": (pa.array([0.5, 0.1, 0.5, 0.5], pa.float32()), [0.1, 0.5], None),
    "large numbers": (pa.array([BIG + 1, BIG, 0, 0]), [0, BIG, BIG + 1], [2, 1, 1]),
    "rounded numbers": (pa.array([1.0 * BIG, 0.0, 0.0, 0.0]), [0, BIG, BIG + 1], None),
    "decimals": (pa.array([Decimal("0.10"), Decimal("0.20")] * 2), [Decimal("0.1"), Decimal("0.2")], [2, 2]),
    "dates": (pa.array([1, 2, 1, 1], pa.date32()), [1, 2], None),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_records_are_counted_alike_or_refused_by_all(case, in_engine):
    column, labels, expected = HOSTILE[case]
    records = in_engine(pa.table({"x": column, "n": [1, 1, 2, 2]}))
    # A column may have a name that the library uses itself.
    categories = {"x": labels, "n": [2, 1]}
    if expected is None:
        with pytest.raises(DataError, match="'x' holds missing values, or values that") as caught:
            count(records, ["n", "x"], categories=categories)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    else:
        found = count(records, ["n", "x"], categories=categories)
        assert found.sum(axis=0).tolist() == expected
        assert found.sum(axis=1).tolist() == [2, 2]
    # A declared category takes what would be refused. Oracle: the records of the mapping, value by value.
    other, values = "other" if str in {type(label) for label in labels} else -7, column.to_pylist()
    plain = expected or [sum(value == label for value in values) for label in labels]
    # What may have been rounded is no label.
    plain = [3, 0, 0] if case == "rounded numbers" else plain
    found = count(records, ["x"], categories={"x": [*labels, other]}, otherwise={"x": other}).tolist()
    assert found == [*plain, len(values) - sum(plain)]


def test_many_records_and_the_tables_of_a_network(in_engine):
    """Oracle: NumPy's histogram of the codes, and its sums."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, (3, 5_000))
    labels = {"a": ["x", "y", "z", "é"], "b": [3, 1, 2, 0], "c": [0.5, 1.5, 2.5, -1.0]}
    table = pa.table({name: np.array(labels[name])[code] for name, code in zip(labels, codes, strict=True)})
    whole, _ = np.histogramdd(codes.T, bins=[np.arange(5) - 0.5] * 3)
    records = in_engine(table)
    np.testing.assert_array_equal(count(records, ["c", "a"], categories=labels), whole.sum(axis=1).T)
    assert not np.any(count(in_engine(table.slice(0, 0)), ["c", "a"], categories=labels))
    structure = {"a": [], "b": ["a"], "c": ["b", "a"]}
    model = dirdp.bayesian_network(records, structure, categories=labels)
    expected = {"a": whole.sum(axis=(1, 2)), "b": whole.sum(axis=2), "c": whole.transpose(1, 0, 2)}
    for name, counts in expected.items():
        np.testing.assert_array_equal(model.rvs_to_values[model[f"n_{name}"]].data, counts)
    with pytest.raises(ArgumentError, match="no column 'y'"):
        count(records, ["y"], categories={"y": ["a", "b"]})
    with pytest.raises(DataError, match="'b' holds missing"):
        dirdp.bayesian_network(records, structure, categories=labels | {"b": [3, 1, 2]})
    with pytest.raises(ArgumentError, match=r"Leave counts= out|no column"):
        dirdp.bayesian_network(records, {"a": []}, categories=labels, counts="n")


@pytest.mark.parametrize("setting", ["NOCASE", "NOACCENT"])
def test_a_collation_does_not_make_other_texts_equal(setting):
    """Found by attack: DuckDB groups 'Blue' with 'blue' if the connection or the column says so."""
    connection = duckdb.connect()
    connection.execute(f"SET default_collation='{setting}'; CREATE TABLE t (x VARCHAR)")
    connection.execute("INSERT INTO t VALUES ('é'), ('e'), ('E'), ('é')")
    assert count(connection.table("t"), ["x"], categories={"x": ["é", "e", "E"]}).tolist() == [2, 1, 1]
    for other in "eE":
        with pytest.raises(DataError):
            count(connection.table("t"), ["x"], categories={"x": ["é", other]})


def test_names_that_sql_would_read():
    name = 'x"; DROP TABLE t; --'
    table = pa.table({name: ["a", "b", "a"], "select": [1, 2, 1]})
    labels = {name: ["a", "b"], "select": [1, 2]}
    for records in (table, duckdb.connect().from_arrow(table), pl.from_arrow(table).lazy()):
        assert count(records, [name, "select"], categories=labels).tolist() == [[2, 0], [0, 1]]


def test_values_of_an_error_of_the_engine_stay_in_it():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (x VARCHAR)")
    connection.execute("INSERT INTO t VALUES ('secret')")
    records = connection.sql("SELECT x::INTEGER AS x FROM t")
    with pytest.raises(DataError, match="ConversionException, whose message may contain data") as caught:
        count(records, ["x"], categories={"x": [0, 1]})
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("values", "labels", "other"),
    [
        ([str(i) for i in range(5000)], ["1", "2"], "no"),
        (list(range(5000)), [1, 2], -1),
        ([i / 7 for i in range(5000)], [0.5, 1.5], -1),
    ],
    ids=["texts", "numbers", "doubles"],
)
def test_a_column_of_names_does_not_come_back(values, labels, other):
    """With more different rows than declared cells, a few are enough to refuse the records."""
    records = duckdb.connect().from_arrow(pa.table({"x": values}))
    with pytest.raises(DataError, match="'x' holds"):
        count(records, ["x"], categories={"x": labels})
    declared = {"categories": {"x": [*labels, other]}, "otherwise": {"x": other}}
    if isinstance(values[0], float):
        with pytest.raises(DataError, match="too many different values"):
            count(records, ["x"], **declared)
    else:
        assert count(records, ["x"], **declared).tolist() == [1, 1, 4998]


def test_more_variables_than_duckdb_groups_at_once():
    names = [f"x{i}" for i in range(66)]
    table = pa.table({name: ["a", "b", "a"] for name in names})
    categories = dict.fromkeys(names, ("a", "b"))
    model = dirdp.naive_bayes(duckdb.connect().from_arrow(table), "x0", categories=categories)
    assert len(model.observed_RVs) == 66
    for variable in model.observed_RVs[1:]:
        assert model.rvs_to_values[variable].data.tolist() == [[2, 0], [0, 1]]


INTEGERS = {"x": pa.array([1, 0])}


@pytest.mark.parametrize(
    "other", [{"x": pa.array(["1", "0"])}, {"x": pa.array([1, 0], pa.int32())}, {"y": INTEGERS["x"]}]
)
def test_files_whose_columns_would_be_converted(other, tmp_path):
    """DuckDB converts the texts of a second file to the numbers of the first."""
    for i, columns in enumerate((INTEGERS, other)):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    with pytest.raises(ArgumentError, match="in one type"):
        count(tmp_path, ["x"], categories={"x": [0, 1]})


def test_names_of_folders_are_no_columns_and_a_path_may_be_no_data(tmp_path):
    (tmp_path / "x=1").mkdir()
    pq.write_table(pa.table({"y": ["a"]}), tmp_path / "x=1" / "part.parquet")
    with pytest.raises(ArgumentError, match="no column 'x'"):
        count(tmp_path, ["x"], categories={"x": [0, 1]})
    assert count(str(tmp_path / "x=1" / "part.parquet"), ["y"], categories={"y": ["a", "b"]}).tolist() == [1, 0]
    (tmp_path / "empty").mkdir()
    for nothing in ("none.parquet", "empty"):
        with pytest.raises(ArgumentError, match="no Parquet file"):
            count(tmp_path / nothing, ["x"], categories={"x": [0, 1]})
    (tmp_path / "broken.parquet").write_bytes(b"secret")
    with pytest.raises(DataError, match="not a Parquet file, or is damaged") as caught:
        count(tmp_path / "broken.parquet", ["x"], categories={"x": [0, 1]})
    assert caught.value.__context__ is None


class RefusesTheBar:
    """A connection as it is in a notebook without ipywidgets, where DuckDB has no bar and refuses to change that."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, query, *given):
        if "progress_bar" in query:
            raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")
        return self.connection.execute(query, *given)

    def __getattr__(self, name):
        return getattr(self.connection, name)


def test_files_in_a_notebook_without_widgets(tmp_path, monkeypatch):
    pq.write_table(pa.table({"y": ["a", "b", "a"]}), tmp_path / "part.parquet")
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda: RefusesTheBar(connect()))
    assert count(tmp_path, ["y"], categories={"y": ["a", "b"]}).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("module", "records", "line"),
    [("narwhals", pl.LazyFrame({"x": [0]}), "narwhals"), ("duckdb", "records.parquet", "duckdb")],
)
def test_a_missing_extra_says_how_to_install_it(module, records, line, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"pip install {line}"):
        count(records, ["x"], categories={"x": [0, 1]})


@pytest.mark.slow
def test_spark_counts_alike_or_refuses(spark):
    for case, (column, labels, expected) in HOSTILE.items():
        if pa.types.is_dictionary(column.type) or column.type in (pa.uint8(), pa.decimal128(2, 2)):
            continue  # Spark has no such columns.
        records = spark.createDataFrame(pa.table({"x": column}))
        if expected is None:
            with pytest.raises(DataError, match="'x' holds missing values, or values that"):
                count(records, ["x"], categories={"x": labels})
        else:
            assert count(records, ["x"], categories={"x": labels}).tolist() == expected, case
    records = spark.sql("SELECT x COLLATE UTF8_LCASE AS x FROM VALUES ('a'), ('A') AS t(x)")
    with pytest.raises(ArgumentError, match="its collation may make"):
        count(records, ["x"], categories={"x": ["a", "A"]})


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UTF8_BINARY", None])
def test_a_schema_of_spark_is_read_for_collations(collation):
    """With a schema that is made up, so that no Spark is needed."""
    fields = [SimpleNamespace(name="x", dataType=SimpleNamespace(collation=collation))]
    frame = SimpleNamespace(
        to_native=lambda: SimpleNamespace(schema=SimpleNamespace(fields=fields)),
        implementation=SimpleNamespace(value="pyspark"),
        select=lambda *columns: columns,
    )
    assert len(engines._rename(frame, {"y": "v0"}, [])) == 1
    if collation == "UTF8_LCASE":
        with pytest.raises(ArgumentError, match="to STRING COLLATE"):
            engines._rename(frame, {"x": "v0"}, [])
    else:
        assert len(engines._rename(frame, {"x": "v0"}, [])) == 1


def test_texts_that_stay_in_the_engine_are_in_their_one_form():
    """Others are brought back and compared. All texts of two characters of ASCII, and one of all others."""
    pairs = map("".join, itertools.product(map(chr, range(128)), repeat=2))
    texts = ["", *pairs, *map(chr, range(2**16))]
    staying = [text for text in texts if not re.search(engines._NOT_IN_ONE_FORM, text)]
    assert {"a", "7", "a0", "70", "-5", "_a"} <= set(staying)
    assert [identifier(text) for text in staying] == staying
