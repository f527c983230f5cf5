"""What one person can change: brute force over replaced people, sentences, and what is checked at the release."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.contributions import unite
from pymc_dirdp.models.graph import same_data, shift_axis
from pymc_dirdp.models.privacy_unit import as_code
from pymc_dirdp.privacy.people import Contribution
from tests.planned import counts_of, read_people

from .small import built, coded, counted, simplex

RNG = np.random.default_rng(5)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def reading(model, relation="replace-one", **said):
    return read_people(model, relation, **said).reading


# Brute force: one person is replaced, and the counts may change by no more than what was read. Random models have the
# same check for people along axes; here rows are chosen by what the person itself is observed in.


def chains(path):
    coded(simplex(2, 2)[path[:, :-1]], path[:, 1:])


def networks(path):
    a = coded(simplex(2, name="q"), path[:, 0], "a")
    coded(simplex(2, 2)[a], path[:, 1], "b")


def documents(path):
    ones = path[:, 1:].sum(axis=1)
    counted(simplex(2, 2)[path[:, 0]], np.stack([ones, 4 - ones], axis=1), 4)


@pytest.mark.parametrize("build", [chains, networks, documents])
def test_a_replaced_person_changes_no_more_than_was_read_and_no_less(build):
    """All that the person holds moves from the lowest value to the highest, so the claim is reached; or anything."""
    rng, reached = np.random.default_rng(3), set()
    for turn in range(4):
        first = rng.integers(0, 2, (6, 5))
        second = first.copy()
        first[0], second[0] = (0, 1) if turn % 2 else rng.integers(0, 2, (2, 5))
        one, two = (built(lambda path=path: build(path)) for path in (first, second))
        found, before, after = reading(one, unit=0), counts_of(one), counts_of(two)
        for name, counts in before.items():
            adds = found.contribution(name)
            assert set(adds.axes) <= {"any"}
            changed = after[name] - counts
            for change in (changed, -changed):
                assert np.maximum(change, 0).sum() <= adds.records
                if np.maximum(change, 0).sum() == adds.records:
                    reached.add(name)
    # No smaller claim would hold.
    assert reached == set(before)


# Several likelihoods of one table


@pytest.mark.parametrize(
    ("parts", "total", "most"),
    [
        ([(1, ("each",)), (2, ("each",))], (3, ("each",)), (2, ("each",))),
        ([(1, ("each",)), (2, ("any",))], (7, ("any",)), (5, ("any",))),
        ([(3, ("own",)), (2, ("any",))], (5, ("any",)), (3, ("any",))),
        ([(3, ("own",)), (2, ("each",))], (13, ("any",)), (10, ("any",))),
        ([(3, ()), (2, ())], (5, ("any",)), (3, ("any",))),
        ([(4, ("own",))], (4, ("own",)), (4, ("own",))),
    ],
)
def test_contributions_to_one_table_are_united(parts, total, most):
    given = [Contribution(*part) for part in parts]
    assert unite(given, (5, 3), sum) == Contribution(*total)
    assert unite(given, (5, 3), max) == Contribution(*most)
    # Only the axes that differ are united.
    given = [Contribution(1, ("each", "own")), Contribution(1, ("each", "each"))]
    assert unite(given, (4, 5, 2), sum) == Contribution(1 + 5, ("each", "any"))


# Words


def test_what_is_public_of_the_people():
    with pm.Model(coords={"person": range(7), "item": list("abc")}) as model:
        theta = pm.Dirichlet("theta", np.ones((3, 2)), dims=("item", "yes"), shape=(3, 2))
        pm.Categorical("y", p=theta, observed=RNG.integers(0, 2, (7, 3)), dims=("person", "item"))
    by_unit, bound = reading(model, unit="person"), reading(model, contribution=3)
    assert "dim 'person', 7 of them" in by_unit.protected
    assert by_unit.n_units == 7
    private = reading(model, "add-remove", unit="person")
    assert private.n_units is None
    assert "7" not in private.protected
    assert pickle.loads(pickle.dumps(by_unit)) == by_unit != bound


def test_lines_are_python():
    assert eval(as_code(["ä", ["b"], ("a'b", 'c"d', 1)])) == ["ä", ["b"], ("a'b", 'c"d', 1)]


# What the data have to keep


def texts(lengths):
    return built(lambda: counted(simplex(2), np.stack([lengths, np.zeros_like(lengths)], axis=1), name="words"))


def test_a_person_with_more_records_than_stated_is_an_error_without_a_value():
    said = {"unit": 0, "contribution": 79, "mechanism": "geometric"}
    dirdp.sample(TARGET, texts([79, 3]), **said)
    with pytest.raises(DataError, match="more than contribution=79 records of 'words'") as caught:
        dirdp.sample(TARGET, texts([79, 83]), **said)
    assert "83" not in str(caught.value)
    # All records of a repeated person count.
    with pm.Model() as model:
        n = np.array([[3, 4], [2, 2]])
        pm.Binomial("k", n=n, p=pm.Beta("b", 1, 1), observed=n - 1)
    assert dict(reading(model, unit=0, contribution=6).contributions) == {"b": Contribution(6)}
    with pytest.raises(DataError, match="more than contribution=6 records of 'k'"):
        dirdp.sample(TARGET, model, **said | {"contribution": 6})
    dirdp.sample(TARGET, model, **said | {"contribution": 7})


# The same data twice


def test_the_same_data():
    one, two, three = (pt.as_tensor(np.array(a)) for a in ([1, 2], [[1], [2]], [1, 3]))
    assert same_data(one, two)
    assert not same_data(one, three)
    alone = pt.as_tensor(np.array([4]))
    assert same_data(alone, alone)
    assert not same_data(alone, pt.as_tensor(np.array([4])))


def test_a_chain_is_known_by_its_values():
    x = RNG.integers(0, 3, (8, 6))

    def axis(parent, child):
        return shift_axis(pt.as_tensor(parent), pt.as_tensor(child))

    assert axis(x[:, :-1], x[:, 1:]) == 1
    assert axis(x[:, 2:], x[:, :-2]) == 1
    assert axis(x[:-1], x[1:]) == 0
    # Sequences of one length, one after the other.
    assert axis(x[:, :-1].ravel(), x[:, 1:].ravel()) == 0
    assert axis(x[:, 1:].ravel(), x[:, :-1].ravel()) == 0
    assert axis(x[:, :-1], RNG.integers(0, 3, (8, 5))) is None
    assert axis(x[:, 0], x[:, 1]) is None
    # Three numbers that agree are enough for two or three, and chance for four.
    x = np.array([2, 0, 1, 5])
    for least in (2, 3, 4):
        found = shift_axis(pt.as_tensor(x), pt.as_tensor(np.append(x[1:], 9)), least=least)
        assert found == (0 if least <= 3 else None)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"unit": 1.5}, "got a float"),
        ({"unit": True}, "got a bool"),
        ({"unit": -1}, "got an int below 0"),
        ({"unit": ()}, "at least one axis"),
        ({"unit": (0, 0)}, "no axis twice"),
        ({"contribution": 0}, "contribution to be an integer >= 1"),
        ({"public": "words"}, r"write \['name'\]"),
        ({"disjoint": [["a"], ["b", "a"]]}, "is in two groups of disjoint="),
        ({"disjoint": [["a", "b"], ["y_b"]]}, "is in two groups of disjoint="),
    ],
)
def test_what_cannot_be_said(said, words):
    """A table or its observed variable may be in one group of disjoint people."""
    with pm.Model() as model:
        for name, counts in {"a": [1, 2], "b": [3, 1], "c": [2, 6]}.items():
            pm.Multinomial(f"y_{name}", n=sum(counts), p=pm.Dirichlet(name, np.ones(2)), observed=counts)
    with pytest.raises(ArgumentError, match=words):
        reading(model, **said)


def test_a_refusal_under_add_remove_says_nothing_of_the_private_number_of_trials():
    """Two likelihoods of one parameter are refused with a number to start from, which must not be that of the data."""

    def refused(trials):
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(2))
            for name in ("first", "second"):
                pm.Multinomial(name, n=trials, p=p, observed=[trials, 0])
        with pytest.raises(UnsupportedModelError, match="is used twice") as caught:
            reading(model, "add-remove")
        return str(caught.value)

    assert refused(7) == refused(1234)
