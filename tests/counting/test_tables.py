"""Counting records over a declared domain."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import ArgumentError, DataError

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
        with pytest.raises(DataError, match="integers from 0 on"):
            count(FRAME.assign(n=wrong), ["eye", "left"], categories=CATEGORIES, counts="n")
    with pytest.raises(ArgumentError, match="Leave counts= out"):
        count(FRAME.assign(n=n), ["eye"], categories=CATEGORIES, counts="n", unit="age", contribution=1)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.astype({"eye": "category", "age": "Int64", "left": "boolean"}),
        FRAME.astype({"eye": "string"}),
        {name: FRAME[name].to_list() for name in FRAME},
        FRAME.to_records(index=False),
        xr.Dataset({name: ("record", FRAME[name].to_numpy()) for name in FRAME}),
    ],
    ids=["pandas", "nullable pandas", "pandas strings", "lists", "records", "xarray"],
)
def test_any_frame_with_columns_will_do(frame):
    expected = count(FRAME, ["eye", "left"], categories=CATEGORIES)
    np.testing.assert_array_equal(count(frame, ["eye", "left"], categories=CATEGORIES), expected)
    np.testing.assert_array_equal(
        count(frame, ["age"], categories=CATEGORIES), count(FRAME, ["age"], categories=CATEGORIES)
    )


@pytest.mark.parametrize("value", ["violet", None, np.nan, pd.NA, pd.NaT, "Blue", 3, ["blue"]])
def test_what_was_not_declared_is_an_error_without_the_value(value):
    columns = {"eye": [*FRAME["eye"][:9], value]}
    with pytest.raises(DataError, match="'eye' holds missing values, or values that categories") as caught:
        count({"eye": np.array([*columns["eye"], None], dtype=object)[:-1]}, ["eye"], categories=CATEGORIES)
    assert "violet" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_numbers_are_equal_as_in_python_and_texts_are_not():
    counts = count({"x": [0, 1, True, 1.0]}, ["x"], categories={"x": [False, True]})
    np.testing.assert_array_equal(counts, [1, 3])
    with pytest.raises(DataError):
        count({"x": ["0", "1"]}, ["x"], categories={"x": [0, 1]})
    with pytest.raises(ArgumentError, match=r"1, 1\.0 and True are the same"):
        count({"x": [0, 1]}, ["x"], categories={"x": [1, True]})


@pytest.mark.parametrize(
    ("variables", "categories", "message"),
    [
        (["eye"], {}, r"categories\['eye'\]"),
        (["eye"], {"eye": []}, "at least one label"),
        (["eye"], {"eye": "blue"}, "one text"),
        (["eye"], {"eye": ["a", "a"]}, "differ"),
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


def test_columns_of_another_length_or_dimension():
    with pytest.raises(DataError, match="different lengths"):
        count({"a": [0, 1], "b": [0]}, ["a", "b"], categories={"a": [0, 1], "b": [0, 1]})
    with pytest.raises(DataError, match="one-dimensional"):
        count({"a": [[0, 1]]}, ["a"], categories={"a": [0, 1]})


def test_no_records_give_zeros():
    np.testing.assert_array_equal(count({"a": []}, ["a"], categories={"a": [0, 1]}), [0, 0])


@pytest.mark.parametrize("categories", [["blue", "green", "grey", "brown"], ["grey", "brown", "green", "blue"]])
def test_the_order_is_the_declared_one_and_not_that_of_a_categorical_column(categories):
    """Oracle: a loop over the records. The column's own codes are in another order."""
    column = pd.Series(pd.Categorical(FRAME["eye"], categories=sorted(categories)))
    by_hand = [sum(value == label for value in FRAME["eye"]) for label in categories]
    np.testing.assert_array_equal(count({"eye": column}, ["eye"], categories={"eye": categories}), by_hand)


def test_a_masked_entry_is_missing():
    column = np.ma.array([0, 1, 1], mask=[False, False, True])
    with pytest.raises(DataError, match="'x' holds missing values"):
        count({"x": column}, ["x"], categories={"x": [0, 1]})
    np.testing.assert_array_equal(count({"x": column[:2]}, ["x"], categories={"x": [0, 1]}), [1, 1])


def test_lists_keep_the_types_of_their_entries():
    """NumPy makes one text of 1 and "1", and the text "nan" of a missing value among texts."""
    np.testing.assert_array_equal(count({"x": [1, "1", 1]}, ["x"], categories={"x": ["1", 1]}), [1, 2])
    with pytest.raises(DataError):
        count({"x": [1, "1"]}, ["x"], categories={"x": ["1", "2"]})
    with pytest.raises(DataError):
        count({"x": ["a", float("nan")]}, ["x"], categories={"x": ["a", "nan"]})


class Talkative:
    """A value that says of itself what it is, wherever it is asked."""

    def __hash__(self):
        raise ValueError("secret")


@pytest.mark.parametrize(
    "column", [[Talkative(), 0], [[0], [0, 1]], [np.zeros((2, 2)), np.zeros((2, 3))], np.array([[0, 1]]), 0, "01"]
)
def test_unusual_columns_are_an_error_that_names_the_column_alone(column):
    with pytest.raises(DataError, match="'x'") as caught:
        count({"x": column}, ["x"], categories={"x": [0, 1]})
    assert "secret" not in str(caught.value)
    assert "2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_million_records():
    rng = np.random.default_rng(3)
    columns = {f"x{i}": rng.integers(8, size=10**6) for i in range(5)}
    counts = count(columns, list(columns), categories=dict.fromkeys(columns, range(8)))
    np.testing.assert_array_equal(counts.sum(axis=(0, 1, 3, 4)), np.bincount(columns["x2"]))
