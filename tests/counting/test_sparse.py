"""Occupied cells of huge tables: the dense count's answer from every engine, and nothing of it in a text."""

import pickle

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from pymc_dirdp.counting.sparse import SparseCounts, count_sparse
from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, DataError

from .test_engines import HOSTILE

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
            "ill": ["flu" if i < 200 else "cold" for i in range(350)],
        }
    )
    declared = {"zip": range(10**5), "street": range(10**5), "ill": ["cold", "flu"]}
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
        (["x", "y", "z"], dict.fromkeys("xyz", range(2**21)), "below 2"),
        (["y"], {"y": [1]}, "no column 'y'"),
    ],
)
def test_wrong_declarations(variables, categories, message):
    with pytest.raises(ArgumentError, match=message):
        count_sparse({"x": [1]}, variables, categories=categories)


def test_categories_read_off_the_data_are_noticed():
    import pandas as pd

    frame = pd.DataFrame({"x": ["a", "b"]})
    with pytest.warns(CategoriesFromDataWarning):
        count_sparse(frame, ["x"], categories={"x": frame["x"]})


DECLARED = {"x": ["a", "b", "c"], "y": range(10**6)}


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
