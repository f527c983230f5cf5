"""Counts that know whose they are: what keeps the knowledge, what loses it, and what adds up."""

import copy
import pickle

import numpy as np
import pytest

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import Counts, live_bound
from pymc_dirdp.counting.tables import count
from pymc_dirdp.errors import ArgumentError

CATEGORIES = {"x": ["a", "b", "c"], "y": [0, 1], "z": [0, 1]}
RNG = np.random.default_rng(8)


def records(n=200):
    return {
        "who": RNG.integers(0, 40, n),
        "x": RNG.choice(CATEGORIES["x"], n),
        "y": RNG.integers(0, 2, n),
        "z": RNG.integers(0, 2, n),
    }


def counted(n=200, *, variables=("x", "y"), **options):
    options = {"categories": CATEGORIES, "unit": "who", "contribution": 3} | options
    return count(records(n), list(variables), **options)


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: counts[0],
        lambda counts: next(iter(counts[0])),
        lambda counts: counts[:, 1:],
        lambda counts: counts.T,
        lambda counts: counts.reshape(-1),
        lambda counts: counts.sum(axis=0),
        lambda counts: counts.astype(np.int32),
        lambda counts: counts.copy(),
        copy.deepcopy,
        lambda counts: pickle.loads(pickle.dumps(counts)),
    ],
)
def test_parts_and_copies_know_the_unit(change):
    counts = counted()
    changed = change(counts)
    assert changed.bound == Bound("who", 3)
    assert not changed.is_computed
    np.testing.assert_array_equal(changed, change(np.asarray(counts)))
    assert getattr(change(counted(unit=None, contribution=None)), "bound", None) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: 2 * counts,
        lambda counts: counts / counts.sum(),
        lambda counts: np.maximum(counts, 3),
        lambda counts: np.add(counts, counts),
        lambda counts: np.add(counts, 1, out=counts),
        # A unit's record may count twice in these, or lie in another cell.
        lambda counts: counts[[0, 0]],
        lambda counts: counts.reshape(-1)[[[0, 1], [0, 1]]],
        lambda counts: counts.repeat(2, axis=0),
        lambda counts: np.tile(counts, 2),
        lambda counts: np.sort(counts, axis=0),
        lambda counts: np.concatenate([counts, counts]),
        lambda counts: np.stack([np.asarray(counts), counts]),
        lambda counts: (2 * counts)[0].sum(axis=0, keepdims=True),
        lambda counts: pickle.loads(pickle.dumps(2 * counts)),
        lambda counts: counts.__imul__(2),
        lambda counts: counts.__setitem__(0, counts[1]) or counts,
    ],
)
def test_what_is_computed_says_so(change):
    counts = counted()
    changed, plain = change(counts.copy()), change(np.array(counts))
    assert isinstance(changed, Counts)
    assert changed.is_computed
    assert changed.bound == counts.bound
    np.testing.assert_array_equal(changed, plain)


def test_numbers_that_are_no_arrays_stay_numbers():
    counts = counted()
    assert type(counts.sum()) is np.int64
    assert np.array_equal(counts, np.asarray(counts))
    assert type(counts + np.ones((3, 2))) is Counts
    assert type(counted(unit=None, contribution=None) + 1) is np.ndarray


def test_days_add_up():
    first, second = counted(), counted()
    both = first + second
    np.testing.assert_array_equal(both, np.asarray(first) + np.asarray(second))
    assert both.bound == Bound("who", 6)
    assert sum([first, second, counted()]).bound == Bound("who", 9)
    total = first
    total += second
    assert total.bound == Bound("who", 6)
    assert first.bound == Bound("who", 3)
    free = counted(unit=None, contribution=None)
    assert (free + free).bound is None
    total *= 2
    with pytest.raises(ArgumentError, match="Add complete tables of count"):
        total + first


def test_people_who_are_in_one_part_only_keep_their_bound():
    """Oracle: the records of both parts at once."""
    given = {"who": np.arange(90) % 30, "x": np.array(list("abc"))[np.arange(90) % 3]}
    parts = [{name: column[given["who"] % 2 == k] for name, column in given.items()} for k in range(2)]
    options = {"categories": CATEGORIES, "unit": "who", "contribution": 2}
    one, other = (count(part, ["x"], **options) for part in parts)
    both = one.with_other_people(other)
    assert both.bound == Bound("who", 2)
    np.testing.assert_array_equal(both, count(given, ["x"], **options))
    larger = counted(contribution=5, variables=["x"]).with_other_people(other)
    assert larger.bound == Bound("who", 5)
    with pytest.raises(ArgumentError, match="counts as count"):
        one.with_other_people(np.zeros(3))


def test_many_shards_in_which_a_unit_counts_once_in_a_cell_add_up():
    """Oracle: somebody who is in every shard, in the same cell and with equal records, is taken out of all of them."""
    shards = [{"who": ["p", "p", "p", "q"], "x": ["a", "a", "b", "a"]}] * 7
    options = {"categories": CATEGORIES, "unit": "who", "contribution": 2, "distinct": True}
    tables = [count(shard, ["x"], **options) for shard in shards]
    without = sum(count({"who": ["q"], "x": ["a"]}, ["x"], **options) for _ in shards)
    total = sum(tables)
    assert total.tolist() == [14, 7, 0]
    assert total.bound == without.bound == Bound("who", 14, distinct=True)
    assert (np.asarray(total) - np.asarray(without)).sum() == 14
    # In whatever order, and with parts that were divided by unit.
    (first, second, third), rest = tables[:3], sum(tables[3:])
    assert ((first + (second + third)) + rest).bound == total.bound
    assert (first + second).with_other_people(third).bound == Bound("who", 4, distinct=True)
    with pytest.raises(ArgumentError, match="distinct=True"):
        total + count(shards[0], ["x"], **options | {"distinct": False})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: counted(variables=["y", "x"]), "with the same variables and categories"),
        (lambda: counted(variables=["x"]), "with the same variables and categories"),
        (lambda: counted(categories=CATEGORIES | {"x": ["c", "b", "a"]}), "with the same variables and categories"),
        (lambda: counted(unit=None, contribution=None), "counted without it"),
        (lambda: counted(unit="y"), "the same unit"),
        (lambda: counted(distinct=True), "distinct=True"),
        (lambda: counted()[:], "Add complete tables of count"),
        (lambda: counted().copy(), "Add complete tables of count"),
        (lambda: 2 * counted(), "Add complete tables of count"),
    ],
)
def test_tables_that_do_not_add_up(other, message):
    with pytest.raises(ArgumentError, match=message):
        counted() + other()
    with pytest.raises(ArgumentError, match=message):
        counted().with_other_people(other())


FORMS = [
    (np.asarray, "xy"),
    (lambda counts: counts.tolist(), "xy"),
    (lambda counts: np.asarray(counts).ravel()[::-1], "xy"),
    (lambda counts: np.asarray(counts).sum(axis=0), "xy"),
    (lambda counts: np.asarray(counts)[:, 1], "xy"),
    (lambda counts: np.asarray(counts)[:, :, 1], "xyz"),
]


@pytest.mark.parametrize(("form", "variables"), FORMS, ids=range(len(FORMS)))
def test_the_bound_of_counts_is_known_by_their_numbers_while_they_live(form, variables):
    counts = counted(variables=variables)
    numbers = np.array(form(counts))
    assert live_bound(numbers) == Bound("who", 3)
    last = counts.copy()
    del counts
    assert live_bound(numbers) == Bound("who", 3)
    del last
    assert live_bound(numbers) is None


def test_other_numbers_have_no_bound():
    counts, unbounded = counted(), count(records(), ["x"], categories=CATEGORIES)
    plain = np.asarray(counts)
    for numbers in (plain + 1, plain[:, :1] + 1, plain[0, 0], plain[:1, :1], plain * 0, np.asarray(unbounded)):
        assert live_bound(numbers) is None
    assert live_bound(np.asarray(counts / counts.sum())) is None
    empty = count({"who": [], "x": [], "y": []}, ["x", "y"], categories=CATEGORIES, unit="who", contribution=3)
    assert live_bound(np.asarray(empty)) is None
    # The key of a choice is nowhere.
    assert set(vars(counts)) == {"bound", "is_computed", "_declaration"}
    assert vars(counts.bound) == {"unit": "who", "records": 3, "distinct": False}


def test_of_several_counts_with_the_same_numbers_the_largest_bound_holds():
    """Whoever has one record is counted alike with any bound."""
    alone = {"who": [1, 2, 3, 4], "x": ["a", "a", "b", "b"], "y": [0, 1, 1, 1]}
    several = [count(alone, ["x", "y"], categories=CATEGORIES, unit="who", contribution=m) for m in (1, 5, 2)]
    assert len({counts.tobytes() for counts in several}) == 1
    assert live_bound(np.asarray(several[0])) == Bound("who", 5)
