"""Counting records over a declared domain."""

import pickle

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import SparseCounts
from pymc_dirdp.counting.tables import count, count_between, count_sparse, interval_of, refuse_absent
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, DataError

from .test_engines import HOSTILE

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


# Numbers as intervals, in memory and in engines.


@pytest.mark.parametrize("kind", [list, np.array, lambda values: np.array(values, dtype=object)])
def test_an_interval_is_the_number_of_edges_that_are_reached(kind):
    values = [-np.inf, -1, 0, 0.5, 1, 2, np.inf]
    assert interval_of(kind(values), [0, 1.0]).tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_integers_of_any_type():
    for dtype in (np.int8, np.uint64, np.int64, np.float32):
        assert interval_of(np.array([1, 2, 3], dtype=dtype), [2, 3]).tolist() == [0, 1, 2]


def test_records_are_counted_in_each_interval():
    rng = np.random.default_rng(0)
    values, edges = rng.normal(size=500), [-1.0, 0.0, 2.0]
    expected = [np.sum((low <= values) & (values < high)) for low, high in zip([-9, *edges], [*edges, 9], strict=True)]
    assert count_between({"x": values}, "x", edges, None).tolist() == expected
    assert count_between({"x": [], "who": []}, "x", edges, Bound("who", 1)).tolist() == [0, 0, 0, 0]
    assert count_between({"x": values, "who": [1] * 500}, "x", edges, Bound("who", 3)).sum() == 3
    with pytest.raises(DataError, match="different lengths"):
        count_between({"x": values, "who": [1]}, "x", edges, Bound("who", 1))


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
    refuse_absent(records, {"x": []}, bound=None)
    found = count_between(records, "x", EDGES, None)
    assert found.tolist() == expected
    assert found.dtype == np.int64


def test_an_engine_keeps_a_few_records_of_each_unit(choosing):
    """A person with ten records in one interval, and one whose records lie in two."""
    table = pa.table({"x": [5.0] * 10 + [50.0] + [5.0, 50.0] * 4, "who": ["ann"] * 10 + ["bob"] + ["cid"] * 8})
    bound = Bound("who", 2)
    refuse_absent(choosing(table), {"x": []}, bound=bound)
    seen = [count_between(choosing(table), "x", [10.0], bound) for _ in range(12)]
    assert {int(counts.sum()) for counts in seen} == {5}
    assert all(2 <= counts[0] <= 4 for counts in seen)
    # Which records of the third one are retained is chosen anew.
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
            refuse_absent(in_engine(table), {column: []}, bound=bound)


# Occupied cells of huge tables: the dense count's answer from every engine, and nothing of it in a text.

pytestmark = pytest.mark.filterwarnings("ignore:Dask support is moving:FutureWarning")


def dense(found):
    table = np.zeros(found.n_cells, dtype=np.int64)
    table[found.cells] = found.counts
    return table.reshape([len(labels) for labels in found.categories.values()])


def test_hostile_records_have_the_cells_of_the_dense_count_or_are_refused(in_engine):
    """Oracle: the counts that the dense form is tested against, to the last one."""
    for column, labels, expected in HOSTILE.values():
        try:
            records = in_engine(pa.table({"x": column}))
        except pytest.skip.Exception:
            continue
        if expected is None:
            with pytest.raises(DataError, match="'x' holds missing values, or values that") as caught:
                count_sparse(records, ["x"], categories={"x": labels})
            assert caught.value.__context__ is None
        else:
            found = count_sparse(records, ["x"], categories={"x": labels})
            assert dense(found).tolist() == expected
            assert np.all(found.counts > 0)


def test_a_declared_category_takes_what_would_be_refused():
    """Oracle: the dense count."""
    column = ["b", None, "x", "b"]
    options = {"categories": {"x": ["a", "b", "other"]}, "otherwise": {"x": "other"}}
    for records in ({"x": column}, duckdb.connect().from_arrow(pa.table({"x": column}))):
        found = count_sparse(records, ["x"], **options)
        assert dense(found).tolist() == count(records, ["x"], **options).tolist() == [0, 2, 2]


def test_a_table_of_nearly_all_cells_that_numbers_can_name(in_engine):
    """Oracle: a dictionary of the records and Python's integers."""
    rng = np.random.default_rng(4)
    places = rng.integers(0, 2**15, (4, 3000))
    places[:, :500] = places[:, 500:1000]
    places[:, 0] = 2**15 - 1
    records = pa.table(dict(zip("abcd", places, strict=True)))
    categories = {name: range(2**15) for name in "abcd"} | {"e": [True, False, 7]}
    table = records.append_column("e", pa.array([7] * 3000))
    found = count_sparse(in_engine(table), list("abcde"), categories=categories)
    assert found.n_cells == 3 * 2**60
    by_hand = {}
    for row in zip(*places.tolist(), strict=True):
        cell = 0
        for place in row:
            cell = 2**15 * cell + place
        cell = 3 * cell + 2
        by_hand[cell] = by_hand.get(cell, 0) + 1
    assert dict(zip(found.cells.tolist(), found.counts.tolist(), strict=True)) == by_hand
    assert found.cells.tolist() == sorted(by_hand)
    rows = set(zip(*places.tolist(), [7] * 3000, strict=True))
    assert set(zip(*found.labels().values(), strict=True)) == rows


@pytest.mark.thorough
def test_a_few_records_of_each_unit(choosing):
    """Each person has seven records in two cells of a table that no memory holds."""
    table = pa.table(
        {
            "who": [f"p{i % 50}" for i in range(350)],
            "zip": [i % 50 for i in range(350)],
            "street": [7] * 350,
            "house": [1999] * 350,
            "ill": ["flu" if i < 200 else "cold" for i in range(350)],
        }
    )
    declared = {name: range(2000) for name in ("zip", "street", "house")} | {"ill": ["cold", "flu"]}
    options = {"categories": declared, "unit": "who"}
    for contribution, distinct, most in ((1, False, 1), (3, False, 3), (20, False, 7), (20, True, 2)):
        found = count_sparse(choosing(table), list(declared), contribution=contribution, distinct=distinct, **options)
        of_people = np.zeros(50, dtype=int)
        np.add.at(of_people, found.labels()["zip"], found.counts)
        assert of_people.tolist() == [most] * 50
        assert found.bound.records == contribution
    with pytest.raises(DataError, match="of the units holds missing"):
        count_sparse(
            choosing(table.set_column(0, "who", pa.array([None] * 350, pa.string()))),
            ["zip"],
            contribution=1,
            **options,
        )


def test_no_records(in_engine):
    table = pa.table({"x": pa.array([], pa.string())})
    found = count_sparse(in_engine(table), ["x"], categories={"x": ["a", "b"]})
    assert found.cells.tolist() == found.counts.tolist() == []
    assert found.labels() == {"x": []}


def test_a_text_shows_what_is_public():
    found = count_sparse(
        {"who": ["a"], "x": [12_345]}, ["x"], categories={"x": range(10**6)}, unit="who", contribution=2
    )
    assert repr(found) == str(found) == "SparseCounts(x: 1000000 cells, unit='who', contribution=2)"
    back = pickle.loads(pickle.dumps(found))
    assert back.cells.tolist() == [12_345]
    assert back.bound == found.bound
    with pytest.raises(ValueError, match="read-only"):
        found.counts[0] = 7
    assert SparseCounts(np.array([1]), np.array([2]), {"x": (0, 1)}).n_cells == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variables", "categories", "message"),
    [
        ("x", {"x": [1]}, "list"),
        ([], {}, "at least one"),
        (["x", "x"], {"x": [1]}, "each variable once"),
        (["x"], {}, "declare all values"),
        (list("uvwxyz"), dict.fromkeys("uvwxyz", range(2**11)), "below 2"),
        (["y"], {"y": [1]}, "no column 'y'"),
    ],
)
def test_wrong_declarations_of_a_sparse_table(variables, categories, message):
    with pytest.raises(ArgumentError, match=message):
        count_sparse({"x": [1]}, variables, categories=categories)


def test_categories_read_off_the_data_are_noticed():
    frame = pd.DataFrame({"x": ["a", "b"]})
    with pytest.warns(CategoriesFromDataWarning):
        count_sparse(frame, ["x"], categories={"x": frame["x"]})


DECLARED = {"x": ["a", "b", "c"], "y": range(1000)}


def days(**options):
    """Two days of records of three people, who come again."""
    first = {"x": ["a", "b", "c", "a"], "y": [1, 2, 3, 1], "who": [1, 2, 3, 3]}
    second = {"x": ["b", "a"], "y": [2, 0], "who": [2, 1]}
    return [count_sparse(day, ["x", "y"], categories=DECLARED, **options) for day in (first, second)]


def test_days_add_up_to_the_count_of_all_records():
    """Oracle: all records counted at once."""
    first, second = days()
    whole = count_sparse({"x": list("abcaba"), "y": [1, 2, 3, 1, 2, 0]}, ["x", "y"], categories=DECLARED)
    for both in (first + second, second + first, sum([first, second]), first.with_other_people(second)):
        assert both.cells.tolist() == whole.cells.tolist()
        assert both.counts.tolist() == whole.counts.tolist()
        assert (dict(both.categories), both.bound) == (dict(whole.categories), None)
        assert not both.counts.flags.writeable
        assert repr(both) == repr(whole)
    # What was added is as it was.
    assert first.counts.tolist() == [2, 1, 1]


@pytest.mark.thorough
def test_who_may_be_in_both_tables_contributes_to_both():
    """As dense counts do; equal records of a unit on two days are two."""
    for options, adds in [({"contribution": 1}, 1), ({"contribution": 2, "distinct": True}, 2)]:
        first, second = days(unit="who", **options)
        dense_days = [
            count({"x": ["a"], "who": [1]}, ["x"], categories={"x": ["a"]}, unit="who", **options) for _ in range(2)
        ]
        assert (first + second).bound == (dense_days[0] + dense_days[1]).bound
        assert (first + second).bound.records == 2 * adds
        assert (first + second + first).bound == (dense_days[0] + dense_days[1] + dense_days[0]).bound
        assert first.with_other_people(second).bound == first.bound
    first, second = days(unit="who", contribution=2)
    assert sum([first, second, first]).bound.records == 6


def test_tables_of_other_declarations_are_not_added():
    first, _ = days()
    person, _ = days(unit="who", contribution=1)
    once, _ = days(unit="who", contribution=1, distinct=True)
    one = {"x": ["a"], "y": [1], "who": [1]}
    turned = count_sparse(one, ["y", "x"], categories=DECLARED)
    longer = count_sparse(one, ["x", "y"], categories=DECLARED | {"x": ["a", "b", "c", "d"]})
    other = count_sparse(one | {"x ": ["a"]}, ["x", "y"], categories=DECLARED | {"x": ["a", "c", "b"]})
    for wrong in (turned, longer, other):
        with pytest.raises(ArgumentError, match="different variables or categories"):
            first + wrong
    for one_table, another in [(first, person), (person, first)]:
        with pytest.raises(ArgumentError, match="with unit= and the other without"):
            one_table + another
    with pytest.raises(ArgumentError, match="different units"):
        person + once
    with pytest.raises(ArgumentError, match="as count_sparse"):
        first.with_other_people([1])


def test_nothing_else_is_added():
    """An array would otherwise hold the counts in the place of its zeros, without what a unit contributes."""
    first, _ = days(unit="who", contribution=1)
    table = count({"x": ["a"], "who": [1]}, ["x"], categories={"x": ["a", "b", "c"]}, unit="who", contribution=1)
    for other in (1, np.zeros(2), np.int64(0), np.zeros(2, dtype=object), table, None, False):
        with pytest.raises(TypeError):
            first + other
        with pytest.raises(TypeError):
            other + first
