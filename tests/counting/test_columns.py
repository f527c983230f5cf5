"""What each engine holds is read by its values: whatever the order of records, of dictionaries and of chunks."""

import datetime
import enum
import sys
from decimal import Decimal
from subprocess import run

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, DataError, type_name

YES = ["yes", "no", "unsure"]


def chunked(values, kind=None):
    """Two chunks, each of which makes its own dictionary where there is one."""
    kind, half = kind or pa.string(), len(values) // 2
    return pa.chunked_array([pa.array(values[:half], kind), pa.array(values[half:], kind)])


# The types that a column of texts may have. Each takes a list with None for a missing value.
TEXTS = {
    "list": list,
    "tuple": tuple,
    "object array": lambda x: np.array(x, dtype=object),
    "pandas": pd.Series,
    "pandas string": lambda x: pd.Series(x, dtype="string"),
    "pandas category": lambda x: pd.Series(pd.Categorical(x)),
    "pandas category, reversed": lambda x: pd.Series(pd.Categorical(x, categories=YES[::-1])),
    "Categorical": pd.Categorical,
    "CategoricalIndex": pd.CategoricalIndex,
    "pandas Arrow": lambda x: pd.Series(x, dtype="string[pyarrow]"),
    "pandas Arrow dictionary": lambda x: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(x).dictionary_encode()]))
    ),
    "polars": pl.Series,
    "polars Categorical": lambda x: pl.Series(x, dtype=pl.Categorical),
    "polars Enum": lambda x: pl.Series(x, dtype=pl.Enum(YES[::-1])),
    "Arrow": pa.array,
    "Arrow chunks": chunked,
    "Arrow large string": lambda x: pa.array(x, pa.large_string()),
    "Arrow string view": lambda x: pa.array(x, pa.string_view()),
    "Arrow dictionary": lambda x: pa.array(x).dictionary_encode(),
    "Arrow dictionary of nulls": lambda x: pa.array(x).dictionary_encode(null_encoding="encode"),
    "Arrow dictionary, chunks": lambda x: chunked(x).dictionary_encode(),
    "Arrow dictionaries that differ": lambda x: chunked(x, pa.dictionary(pa.int8(), pa.string())),
    "Arrow run ends": lambda x: pc.run_end_encode(pa.array(x)),
    "Arrow table": lambda x: pa.table({"a": pa.array(x).dictionary_encode()})["a"],
    "Arrow from pandas": lambda x: pa.Table.from_pandas(pd.DataFrame({"a": pd.Categorical(x)}))["a"],
    "Arrow from a frame of polars": lambda x: pl.DataFrame({"a": pl.Series(x, dtype=pl.Categorical)}).to_arrow()["a"],
    "scalars of Arrow": lambda x: [pa.scalar(value, pa.string()) for value in x],
    "xarray": lambda x: xr.DataArray(np.array(x, dtype=object)),
    "xarray of pandas": lambda x: xr.Dataset.from_dataframe(pd.DataFrame({"a": pd.Categorical(x)}))["a"],
}


def tally(column, labels=YES):
    return count({"a": column}, ["a"], categories={"a": labels}).tolist()


@pytest.mark.parametrize("engine", TEXTS)
def test_the_order_of_records_does_not_matter_and_missing_values_are_refused(engine):
    """Oracle: list.count. Dictionaries stand in order of first appearance, so each answer comes first once.

    At 0.1.0 the nulls of an Arrow dictionary were counted as the answer that came last (trust, finding 15).
    """
    for first in YES:
        values = [first, *(["yes"] * 31 + ["no"] * 20 + ["unsure"] * 9)]
        expected = [values.count(label) for label in YES]
        assert tally(TEXTS[engine](values)) == tally(TEXTS[engine](values[::-1])) == expected
    for first in ("yes", "no", None):
        values = [first, *(["yes"] * 31 + ["no"] * 20 + [None] * 40)]
        with pytest.raises(DataError, match=r"^The column 'a' holds missing values, or values that") as caught:
            tally(TEXTS[engine](values))
        assert "40" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


WHOLE, LABELS = [3, 255, 0, 3, 2**53 + 1], [0, 3, 255, 2**53, 2**53 + 1]
# Columns that hold the same numbers, the labels, and the numbers themselves.
NUMBERS = {
    "range": (range(4), range(4), range(4)),
    **{
        name: (make(WHOLE), LABELS, WHOLE)
        for name, make in {
            "list": list,
            "NumPy": np.array,
            "masked": lambda x: np.ma.array(x, mask=False),
            "pandas nullable": lambda x: pd.Series(x, dtype="Int64"),
            "pandas category": lambda x: pd.Series(pd.Categorical(x)),
            "pandas Arrow": lambda x: pd.Series(x, dtype="int64[pyarrow]"),
            "pandas array": pd.array,
            "polars": pl.Series,
            "Arrow": pa.array,
            "Arrow dictionary": lambda x: pa.array(x).dictionary_encode(),
            "xarray": lambda x: xr.DataArray(x, dims="r"),
        }.items()
    },
    "NumPy uint8": (np.array([255, 0, 255], dtype=np.uint8), [-1, 0, 255, 256], [255, 0, 255]),
    "NumPy uint64": (np.array([2**64 - 1, 0], dtype=np.uint64), [-1, 0, 2**64 - 1], [2**64 - 1, 0]),
    "NumPy float32": (np.array([0.5, 0.25], dtype=np.float32), [0.25, 0.5], [0.5, 0.25]),
    "NumPy scalars": ([np.int8(1), np.float64(2.0), np.bool_(True)], [1, 2], [1, 2, 1]),
    "pandas sparse": (pd.Series(pd.arrays.SparseArray([0, 0, 7])), [0, 7], [0, 0, 7]),
    "polars Int128": (pl.Series([2**70, 1], dtype=pl.Int128), [1, 2**70], [2**70, 1]),
    "Arrow uint8": (pa.array([255, 0], pa.uint8()), [-1, 0, 255], [255, 0]),
    "booleans of NumPy": (np.array([True, False, True]), [False, True], [True, False, True]),
    "booleans of Arrow": (pa.array([True, False, True]), [False, True], [True, False, True]),
    "both zeros": (np.array([0.0, -0.0, 1.0]), [0, 1], [0, 0, 1]),
    "decimals": ([Decimal("0.1"), Decimal("0.2")], [Decimal("0.1"), Decimal("0.2")], [Decimal("0.1"), Decimal("0.2")]),
    "decimals of Arrow": (pa.array([Decimal("0.1")]), [Decimal("0.1"), Decimal("0.2")], [Decimal("0.1")]),
    "bytes of Arrow": (pa.array([b"x", b"y"]), [b"x", b"y"], [b"x", b"y"]),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_keep_their_values(case):
    """Oracle: equality in Python, on a list that holds the same numbers."""
    column, labels, plain = NUMBERS[case]
    assert tally(column, labels) == [list(plain).count(label) for label in labels]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        # Integers of a nanosecond, an hour or a day, in NumPy's lists.
        (np.array([1, 2], "M8[ns]"), [1, 2]),
        (np.array([1, 2], "M8[D]"), [1, 2]),
        ([np.datetime64(1, "ns"), np.datetime64(2, "ns")], [1, 2]),
        (np.array([np.datetime64(1, "ns"), 2], dtype=object), [1, 2]),
        (pd.Series(pd.to_datetime([1, 2])), [1, 2]),
        (pd.Series(pd.PeriodIndex(["2020", "2021"], freq="Y")), [50, 51]),
        (pd.Categorical(pd.to_datetime([1, 2])), [1, 2]),
        (xr.DataArray(np.array([1, 2], "M8[ns]")), [1, 2]),
        (pl.Series([1, 2]).cast(pl.Datetime("ns")), [1, 2]),
        (pa.array([1, 2], pa.timestamp("ns", "UTC")), [1, 2]),
        (pa.array([1, 2], pa.date32()), [1, 2]),
        (pd.cut(pd.Series([1, 2]), [0, 1, 2]), [0, 1]),
        # Neighbours that are one number as floats.
        (np.array([2.0**53]), [2**53, 2**53 + 1]),
        ([float(2**53), -float(2**53)], [-(2**53), 2**53]),
        (pd.Series([2**53 + 1, None]).dropna(), [2**53, 2**53 + 1]),
        (pl.Series([float(2**53)]), [2**53, 1]),
        (np.array([16777217], dtype=np.float32), [16777216, 16777217]),
        (pd.Series([16777217], dtype="Float32"), [16777216, 16777217]),
        (pd.Series(pd.Categorical(pd.Series([16777217], dtype="float32"))), [16777216, 16777217]),
        (pl.Series([16777217.0], dtype=pl.Float32), [16777216, 16777217]),
        (pa.array(np.array([16777217], dtype=np.float32)), [16777216, 16777217]),
        (pa.array(np.array([16777217], dtype=np.float32)).dictionary_encode(), [16777216, 16777217]),
        (np.array([2049], dtype=np.float16), [2048, 2049]),
        # What has no single value.
        (np.array([(1,), (2,)], dtype=[("x", int)]), [1, 2]),
        (pl.Series([{"x": 1}, {"x": 2}]), [1, 2]),
        (pa.array([[1], [2]]), [1, 2]),
        # Which are texts, and which are not.
        (np.array([b"1", b"2"]), ["1", "2"]),
        (pa.array([b"1", b"2"]), ["1", "2"]),
        ([np.str_("1\0"), "2"], ["1", "2"]),
        (np.array([np.str_("1\0"), "2"], dtype=object), ["1", "2"]),
        (pa.array(["1\0", "2"]), ["1", "2"]),
    ],
)
def test_what_a_conversion_would_change_is_refused(column, labels):
    with pytest.raises(DataError, match="'a'") as caught:
        tally(column, labels)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "column",
    [
        pa.scalar("yes"),
        pa.scalar(["yes", "no"]),
        "yes",
        b"\0\1",
        bytearray(b"\0\1"),
        {"yes", "no"},
        {"yes": 1},
        (x for x in YES),
        np.array("yes"),
        0,
        [[0], [0, 1]],
        np.array([[0, 1]]),
        xr.DataArray([[0, 1]]),
        type("Broken", (), {"__len__": lambda self: 2, "__iter__": lambda self: 1 / 0})(),
    ],
    ids=lambda column: type(column).__name__,
)
def test_what_is_no_column(column):
    with pytest.raises(DataError, match="'a' is not one-dimensional, or its values cannot be read") as caught:
        tally(column, [0, 1])
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": "yes"}, {"a": "no"}],
        ({"a": "yes"},),
        iter([{"a": "yes"}]),
        "records.csv",
        None,
        pd.Series(YES, name="a"),
        pl.Series("a", YES),
        np.array([["yes", "no"]]),
        xr.DataArray(YES, dims="a"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_has_no_columns_by_name(rows):
    """Found in use: a list of dicts "has no column", which is not what is wrong with it."""
    for call in (
        lambda: count(rows, ["a"], categories={"a": YES}),
        lambda: dirdp.naive_bayes(rows, YES, categories={"a": YES, "class": YES}),
        lambda: dirdp.bayesian_network(rows, {"a": []}, categories={"a": YES}),
    ):
        with pytest.raises(ArgumentError, match=f"columns by name, got {type_name(rows)}. Pass a data frame") as e:
            call()
        assert "yes" not in str(e.value)


def test_an_array_of_another_library_and_two_columns_of_one_name():
    class Foreign:
        ndim = 1

        def __array__(self, dtype=None, copy=None):
            return np.array([1, 0, 1])

    assert tally(Foreign(), [0, 1]) == [1, 2]
    with pytest.raises(DataError, match="check that no two have the same name"):
        count(pd.DataFrame([["yes", "no"]], columns=["a", "a"]), ["a"], categories={"a": YES})


def test_another_library_of_arrow_is_asked_for_values_and_not_for_an_array():
    class Foreign:
        """As PyArrow's chunks do, it says to NumPy that a null is the last entry of its dictionary."""

        def __init__(self, values):
            self.values = pa.array(values).dictionary_encode()

        def __len__(self):
            return len(self.values)

        def __iter__(self):
            return iter(self.values)

        def __arrow_c_array__(self, requested_schema=None):
            return self.values.__arrow_c_array__(requested_schema)

        def __array__(self, dtype=None, copy=None):
            return np.array([value or "no" for value in self.values.to_pylist()])

    assert tally(Foreign(["yes", "no", "no"])) == [1, 2, 0]
    with pytest.raises(DataError, match="missing"):
        tally(Foreign(["yes", "no", None]))


def test_a_frame_and_what_is_not_computed_yet_are_no_columns():
    for frame in (pl.DataFrame({"a": YES}), pd.DataFrame({"a": YES}), pa.table({"a": YES})):
        with pytest.raises(DataError, match="a frame: pass one of its columns"):
            tally(frame)
        assert tally(frame["a"]) == [1, 1, 1]
    lazy = pl.LazyFrame({"a": YES, "b": YES})
    with pytest.raises(ArgumentError, match=r"got a LazyFrame.*collect\(\)"):
        dirdp.naive_bayes(lazy, YES, categories={"a": YES, "class": YES})
    with pytest.raises(ArgumentError, match=r"got a LazyFrame.*collect\(\)"):
        dirdp.naive_bayes(lazy.collect(), lazy.select("b"), categories={"a": YES, "b": YES}, target="b")
    with pytest.raises(ArgumentError, match=r"got an Expr.*select\(...\).to_series\(\)"):
        tally(pl.col("a"))


FRAMES = {
    "nullable pandas": lambda x: pd.DataFrame(x).convert_dtypes(),
    "Arrow batch": pa.RecordBatch.from_pydict,
    "xarray": lambda x: xr.Dataset({name: ("r", values) for name, values in x.items()}),
    "records": lambda x: pd.DataFrame(x).to_records(index=False),
    "structured": lambda x: np.array(list(zip(*x.values(), strict=True)), dtype=[("a", "U6"), ("b", "i4")]),
}


@pytest.mark.parametrize("engine", FRAMES)
def test_every_frame_makes_the_same_table(engine):
    """Oracle: a loop over the pairs."""
    rng = np.random.default_rng(4)
    values = {"a": rng.choice(YES, 200).tolist(), "b": rng.integers(4, size=200).tolist()}
    found = count(FRAMES[engine](values), ["a", "b"], categories={"a": YES, "b": range(4)})
    pairs = list(zip(values["a"], values["b"], strict=True))
    assert found.tolist() == [[pairs.count((x, y)) for y in range(4)] for x in YES]


def test_prediction_reads_values_too():
    """A release of 0.1.0 gave the nulls of an Arrow dictionary a class."""
    categories = {"a": YES, "class": ["u", "v"]}
    records = {"a": YES * 20, "class": ["u", "v"] * 30}
    release = dirdp.sample(
        dirdp.ApproxDP(epsilon=9, delta=1e-6), dirdp.naive_bayes(records, records["class"], categories=categories)
    )
    analysis = dirdp.analyse(release, 50, chains=1)
    plain = dirdp.predict_log_proba(analysis, {"a": ["no", "yes"]})
    for engine in TEXTS.values():
        np.testing.assert_array_equal(dirdp.predict_log_proba(analysis, {"a": engine(["no", "yes"])}), plain)
        with pytest.raises(DataError, match="'a'"):
            dirdp.predict_log_proba(analysis, {"a": engine(["no", None])})


class Eye(enum.Enum):
    BLUE = "blue"
    GREEN = "green"


class Text(enum.StrEnum):
    BLUE = "blue"
    GREEN = "green"


def test_enums_can_be_categories():
    assert tally([Eye.BLUE, Eye.BLUE, Eye.GREEN], Eye) == [2, 1]
    with pytest.raises(DataError):
        tally(["blue"], Eye)
    assert tally(["blue", Text.GREEN, "blue"], Text) == [2, 1]
    model = dirdp.bayesian_network({"x": ["blue"]}, {"x": []}, categories={"x": Text})
    assert [type(label) for label in model.coords["x"]] == [str, str]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], "dates; one is a date. Write dates"),
        (["never", datetime.datetime(2021, 1, 1)], "one is a datetime. Write dates"),
        ([pa.scalar(datetime.date(2020, 1, 1)), pa.scalar(datetime.date(2021, 1, 1))], "one is a Date32Scalar"),
        (np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"), "one is a datetime64"),
        (pd.date_range("2020-01-01", periods=2), "one is a Timestamp"),
        (pl.Series([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]), "one is a date"),
        (pd.DataFrame({"x": [1], "y": [2]}), "got a DataFrame. Write the labels as a list"),
        (pl.DataFrame({"x": [1], "y": [2]}), "got a DataFrame. Write the labels as a list"),
        (pl.LazyFrame({"x": [1]}), "got a LazyFrame"),
        (pa.table({"x": [1]}), "got a Table"),
        ({"yes": 1, "no": None}.items(), "one is a tuple"),
        ([np.datetime64(1, "ns"), np.datetime64(2, "ns")], "dates"),
        ([pd.Timestamp(1), pd.Timestamp(2)], "dates"),
        ([pd.Interval(0, 1), pd.Interval(1, 2)], "intervals"),
        ([(0, 1), (1, 2)], "texts or numbers"),
        ([np.zeros(2), np.ones(2)], "texts or numbers"),
        ([Decimal("sNaN"), 1], "missing"),
        ([pd.NaT, 1], "missing"),
        (["a\0", "a"], "NUL"),
        ([b"a\0", b"a"], "NUL"),
        ([-0.0, 0.0], "differ"),
        ([2, Decimal(2)], "differ"),
    ],
)
def test_labels_that_engines_read_in_several_ways(labels, message):
    with pytest.raises(ArgumentError, match=message):
        tally([0, 1], labels)


def test_categories_of_a_data_frame_warn_once_for_each_call():
    for labels in (
        *(pd.Series(YES), pd.Series(pd.Categorical(YES)).cat.categories, pd.Categorical(YES)),
        *(pl.Series(YES).unique(maintain_order=True), pa.array(YES).unique()),
    ):
        with pytest.warns(
            CategoriesFromDataWarning, match=r"categories\['a'\] is an? \w+\. .*write them as a list"
        ) as caught:
            assert sum(tally(["no"], labels)) == 1
        assert len(caught) == 1
    records = pd.DataFrame({"a": YES, "b": YES})
    categories = {"a": records["a"], "b": records["b"], "class": YES}
    for _ in range(2):
        with pytest.warns(CategoriesFromDataWarning, match=r"categories\['a'\] is a Series, as are 1 more") as caught:
            dirdp.naive_bayes(records, YES, categories=categories)
        assert [(one.category, one.filename) for one in caught] == [(CategoriesFromDataWarning, __file__)]


def test_no_engine_is_needed():
    code = (
        "import sys; import numpy as np; from pymc_dirdp.counting.tables import count\n"
        "count({'a': [0, 1], 'b': np.ma.array([1, 0])}, ['a', 'b'], categories={'a': [0, 1], 'b': [0, 1]})\n"
        "assert not {'pandas', 'polars', 'pyarrow', 'xarray'} & set(sys.modules)"
    )
    run([sys.executable, "-c", code], check=True)


def test_labels_of_another_type_say_theirs():
    """The types of the labels are public; those of the values may be data."""
    for labels, values, kind in (
        (["True", "False"], [True, False, True], "str"),
        (["2020", "2021"], [2020, 2021, 2020], "str"),
        (["2020-01-01"], np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), "str"),
        ([1, 2], ["1", "2", "1"], "int"),
        ([1, "other"], ["1", "other", "other"], "int or str"),
    ):
        with pytest.raises(DataError, match=f"or their type: the labels are of the type {kind}, and True is no 'True'"):
            tally(values, labels)


@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_indexes_that_differ_are_not_matched_by_position(library):
    """Found by attack: permuted labels of xarray were matched by position without a word."""
    fur, kinds = ["yes", "no", "no"], ["cat", "hen", "hen"]
    if library == "pandas":
        X, y = pd.DataFrame({"fur": fur}, index=[3, 1, 2]), pd.Series(kinds, index=[1, 2, 3], name="class")
        matched, bare = y.loc[X.index], (X.reset_index(drop=True), y.reset_index(drop=True))
    else:
        X = xr.Dataset({"fur": ("i", fur)}, coords={"i": [3, 1, 2]})
        y = xr.DataArray(kinds, dims="i", coords={"i": [1, 2, 3]}, name="class")
        matched, bare = y.sel(i=X["i"]), (X.drop_vars("i"), y.drop_vars("i"))
    categories = {"fur": ["yes", "no"], "class": ["cat", "hen"]}
    with pytest.raises(ArgumentError, match="have different indexes"):
        dirdp.naive_bayes(X, y, categories=categories)
    with pytest.raises(ArgumentError, match="have different indexes"):
        count({"fur": X["fur"], "class": y}, ["fur", "class"], categories=categories)
    # The ways out that the message names, and those that are right as they are.
    for features, classes, expected in [
        (X, matched, [[0, 1], [1, 1]]),
        (*bare, [[1, 0], [0, 2]]),
        (X, y.values, [[1, 0], [0, 2]]),
        (pl.DataFrame({"fur": fur}), y, [[1, 0], [0, 2]]),
    ]:
        dirdp.naive_bayes(features, classes, categories=categories, target="class")
        found = count({"fur": features["fur"], "class": classes}, ["fur", "class"], categories=categories)
        assert found.tolist() == expected
