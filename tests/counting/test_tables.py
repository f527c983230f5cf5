"""Counting records over a declared domain."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.tables import count, count_between, interval_of, refuse_missing_columns
from pymc_dirdp.errors import ArgumentError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:Dask support is moving:FutureWarning")

RNG = np.random.default_rng(2)
FRAME = pd.DataFrame(
    {
        "eye": RNG.choice(["blue", "brown", "green"], 500),
        "age": RNG.choice([20, 30, 40], 500),
        "left": RNG.random(500) < 0.3,
    }
)
CATEGORIES = {"eye": ["brown", "blue", "grey", "green"], "age": [10, 20, 30, 40], "left": [False, True]}


def test_counts_equal_a_cross_table_with_the_unseen_cells():
    """Oracle: pandas.crosstab, with the cells that nobody is in put back."""
    counts = count(FRAME, ["eye", "age", "left"], categories=CATEGORIES)
    table = pd.crosstab(FRAME["eye"], [FRAME["age"], FRAME["left"]])
    table = table.reindex(CATEGORIES["eye"], fill_value=0).reindex(
        pd.MultiIndex.from_product([CATEGORIES["age"], CATEGORIES["left"]]), axis=1, fill_value=0
    )
    np.testing.assert_array_equal(counts.reshape(4, 8), table.to_numpy())
    assert counts.shape == (4, 4, 2)
    assert counts[2].sum() == 0


def test_a_row_may_stand_for_several_records():
    """Oracle: a frame in which each row stands as often as it says."""
    n = np.arange(len(FRAME)) % 4
    expected = count(FRAME.loc[FRAME.index.repeat(n)], ["eye", "left"], categories=CATEGORIES)
    found = count(FRAME.assign(n=n), ["eye", "left"], categories=CATEGORIES, counts="n")
    np.testing.assert_array_equal(found, expected)
    for wrong in (n - 1, n + 0.5):
        with pytest.raises(DataError, match="nonnegative integers"):
            count(FRAME.assign(n=wrong), ["eye", "left"], categories=CATEGORIES, counts="n")
    with pytest.raises(ArgumentError, match="Leave counts= out"):
        count(FRAME.assign(n=n), ["eye"], categories=CATEGORIES, counts="n", unit="age", contribution=1)


class Talkative:
    """A value that says of itself what it is, wherever it is asked."""

    def __hash__(self):
        raise ValueError("secret")


UNDECLARED = ["secret", None, np.nan, pd.NA, pd.NaT, "0", 3, [0], np.zeros((2, 2)), Talkative()]


@pytest.mark.parametrize("value", UNDECLARED, ids=lambda value: type(value).__name__)
def test_what_was_not_declared_is_an_error_without_the_value(value):
    columns = [np.array([0, 1, value, None], dtype=object)[:-1], [0, 1, value]]
    for column in columns:
        with pytest.raises(DataError, match=r"'x' (holds missing values, or values|is not one-d)") as e:
            count({"x": column}, ["x"], categories={"x": [0, 1]})
        assert "secret" not in str(e.value)
        assert e.value.__cause__ is None
        assert e.value.__context__ is None


def test_numbers_are_equal_as_in_python_and_texts_are_not():
    """NumPy makes one text of 1 and "1", and the text "nan" of a missing value among texts."""
    for column, labels, expected in (
        ([0, 1, True, 1.0], [False, True], [1, 3]),
        ([1, "1", 1], ["1", 1], [1, 2]),
        (np.ma.array([0, 1, 1], mask=[False, True, True])[:1], [0, 1], [1, 0]),
        (["0", "1"], [0, 1], None),
        ([1, "1"], ["1", "2"], None),
        (["a", float("nan")], ["a", "nan"], None),
        (np.ma.array([0, 1, 1], mask=[False, False, True]), [0, 1], None),
    ):
        if expected is None:
            with pytest.raises(DataError, match="'x' holds missing values"):
                count({"x": column}, ["x"], categories={"x": labels})
        else:
            np.testing.assert_array_equal(count({"x": column}, ["x"], categories={"x": labels}), expected)


@pytest.mark.parametrize(
    ("variables", "categories", "message"),
    [
        (["eye"], {}, r"categories\['eye'\]"),
        (["eye"], {"eye": []}, "at least one label"),
        (["eye"], {"eye": "blue"}, "one text"),
        (["eye"], {"eye": ["a", "a"]}, "differ"),
        (["eye"], {"eye": [1, True]}, r"1, 1\.0 and True are the same"),
        (["eye"], {"eye": {"a", "b"}}, "in order, got a set"),
        (["eye"], {"eye": 3}, "got an int"),
        (["eye"], {"eye": [["a"], ["b"]]}, "not lists"),
        (["eye"], {"eye": ["a", None]}, "missing value"),
        (["eye"], {"eye": ["a", np.nan]}, "missing value"),
        (["eye"], {"eye": ["a", pd.NA]}, "missing value"),
        (["eye"], ["eye"], "map each variable to its labels"),
        (["eye", "eye"], CATEGORIES, "each variable once"),
        (["nose"], {"nose": ["a", "b"]}, "no column 'nose'"),
        ([], {}, "at least one"),
        ("eye", CATEGORIES, "list"),
        (["eye", "age"], {"eye": range(10**5), "age": range(10**5)}, "10000000000 cells"),
    ],
)
def test_wrong_declarations(variables, categories, message):
    with pytest.raises(ArgumentError, match=message):
        count(FRAME, variables, categories=categories)


def test_columns_of_another_length():
    with pytest.raises(DataError, match="different lengths"):
        count({"a": [0, 1], "b": [0]}, ["a", "b"], categories={"a": [0, 1], "b": [0, 1]})


# Numbers as intervals, in memory and in engines.


def test_an_interval_is_the_number_of_edges_that_are_reached():
    values = [-np.inf, -1, 0, 0.5, 1, 2, np.inf]
    for column in (values, np.array(values), np.array(values, dtype=object)):
        assert interval_of(column, [0, 1.0]).tolist() == [0, 0, 1, 1, 2, 2, 2]
    for dtype in (np.int8, np.uint64, np.int64, np.float32):
        assert interval_of(np.array([1, 2, 3], dtype=dtype), [2, 3]).tolist() == [0, 1, 2]


def test_records_in_intervals_may_be_bounded():
    few = {"x": [-2.0, 0.5, 0.5, 9.0] * 20, "who": [1] * 80}
    assert count_between(few, "x", [-1.0, 2.0], Bound("who", 3))[0].sum() == 3
    assert count_between({"x": [], "who": []}, "x", [-1.0, 2.0], Bound("who", 1))[0].tolist() == [0, 0, 0]
    with pytest.raises(DataError, match="different lengths"):
        count_between(few | {"who": [1]}, "x", [-1.0, 2.0], Bound("who", 1))


EDGES = [-1.0, 0.0, 0.5, 2.0]
_RNG = np.random.default_rng(20261123)
# Many values are there several times, some lie on an edge, and a zero has two signs.
VALUES = np.concatenate([_RNG.normal(size=300).round(1), np.repeat(EDGES, 7), [-0.0, np.inf, -np.inf, 2**53]])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64(), pa.int8()], ids=str)
def test_an_engine_counts_as_memory_does(in_engine, kind):
    values = VALUES if pa.types.is_floating(kind) else np.clip(np.nan_to_num(VALUES), -100, 100).astype(int)
    table = pa.table({"x": pa.array(values).cast(kind, safe=False), "other": ["a"] * len(values)})
    seen = np.asarray(table["x"]).astype(float)
    expected = [np.sum((low <= seen) & (seen < high)) for low, high in zip([-np.inf, *EDGES], EDGES, strict=False)]
    expected += [np.sum(seen >= EDGES[-1])]
    records = in_engine(table)
    refuse_missing_columns(records, {"x": []}, bound=None)
    (found,) = count_between(records, "x", EDGES, None)
    assert found.tolist() == expected
    assert found.dtype == np.int64


def test_an_engine_keeps_a_few_records_of_each_unit(choosing):
    """A person with ten records in one interval, and one whose records lie in two."""
    table = pa.table({"x": [5.0] * 10 + [50.0] + [5.0, 50.0] * 4, "who": ["ann"] * 10 + ["bob"] + ["cid"] * 8})
    bound = Bound("who", 2)
    refuse_missing_columns(choosing(table), {"x": []}, bound=bound)
    seen = [count_between(choosing(table), "x", [10.0], bound)[0] for _ in range(12)]
    assert {int(counts.sum()) for counts in seen} == {5}
    assert all(2 <= counts[0] <= 4 for counts in seen)
    assert len({tuple(counts) for counts in seen}) > 1
    with pytest.raises(DataError):
        count_between(choosing(pa.table({"x": [1.0, 2.0], "who": ["ann", None]})), "x", [10.0], bound)


@pytest.mark.parametrize("wrong", [[1.0, None], [1.0, float("nan")], ["a", "31.5"], [True, False]], ids=str)
def test_what_is_no_number_in_an_engine_is_refused_and_not_shown(in_engine, wrong):
    with pytest.raises(DataError) as caught:
        count_between(in_engine(pa.table({"x": wrong})), "x", EDGES, None)
    assert "31.5" not in str(caught.value)
    assert caught.value.__context__ is None


def test_columns_that_are_not_there_are_missed_before_a_record_is_read(in_engine):
    table = pa.table({"x": [1.0], "who": ["ann"]})
    for column, bound in (("y", None), ("x", Bound("whom", 1))):
        with pytest.raises(ArgumentError, match="no column"):
            refuse_missing_columns(in_engine(table), {column: []}, bound=bound)
