"""What one person can change: brute force over replaced people, sentences, and what is checked at the release."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.contributions import unite
from pymc_dirdp.models.graph import same_data, shift_axis
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.models.privacy_unit import as_code, unit_options
from pymc_dirdp.models.tables import tables
from pymc_dirdp.models.whose_records import reading_of, tables_and_people
from pymc_dirdp.privacy.people import Contribution

RNG = np.random.default_rng(5)
NOTHING = {"unit": None, "contribution": None, "public": (), "disjoint": None}
PEOPLE = 6


def reading(model, relation="replace-one", **said):
    return tables_and_people(model, unit_options(**NOTHING | said, adjacency=relation)).reading


# Brute force: one person is replaced, and the counts may change by no more than what was read


def survey(answers):
    with pm.Model() as model:
        pm.Categorical("y", p=pm.Dirichlet("p", np.ones((2, 2))), observed=answers["records"])
    return model


def repeated(answers):
    with pm.Model() as model:
        pm.Categorical("y", p=pm.Dirichlet("p", np.ones(2)), observed=answers["records"])
    return model


def items_and_times(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Categorical("y", p=p[:, None], observed=answers["cube"])
    return model


def own_rows(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((PEOPLE, 2)))
        pm.Categorical("y", p=p[:, None], observed=answers["records"])
    return model


def chains(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Categorical("y", p=p[answers["path"][:, :-1]], observed=answers["path"][:, 1:])
    return model


def documents(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        ones = answers["cube"].reshape(PEOPLE, -1).sum(axis=1)
        pm.Multinomial("y", n=4, p=p[answers["records"][:, 0]], observed=np.stack([ones, 4 - ones], axis=1))
    return model


def two_likelihoods(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Categorical("y", p=p, observed=answers["records"])
        pm.Categorical("z", p=p[answers["cube"][:, 0, 0]], observed=answers["cube"][:, 0, 1])
    return model


def nested(answers):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Categorical("y", p=p[:, None], observed=answers["records"][:, 0].reshape(2, 3))
    return model


def networks(answers):
    with pm.Model() as model:
        a = pm.Categorical("a", p=pm.Dirichlet("q", np.ones(2)), observed=answers["records"][:, 0])
        pm.Categorical("b", p=pm.Dirichlet("p", np.ones((2, 2)))[a], observed=answers["records"][:, 1])
    return model


def fits(changed, contribution, shape):
    """Whether gains (or losses) lie in the blocks that were read, by loops over the cells."""
    adds = contribution.fitted(shape)
    blocks: dict = {}
    for cell in np.ndindex(shape):
        key = tuple(i for i, axis in zip(cell, adds.axes, strict=False) if axis == "each")
        blocks[key] = blocks.get(key, 0) + max(changed[cell], 0)
    owners = {
        tuple(i for i, axis in zip(cell, adds.axes, strict=False) if axis == "own")
        for cell in np.ndindex(shape)
        if changed[cell]
    }
    return max(blocks.values()) <= adds.records and len(owners) <= 1, max(blocks.values()) == adds.records


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("build", "unit"),
    [
        (survey, 0),
        (survey, (0, 1)),
        (repeated, 0),
        (items_and_times, 0),
        (own_rows, 0),
        (chains, 0),
        (documents, 0),
        (two_likelihoods, 0),
        (nested, (0, 1)),
        (networks, 0),
    ],
)
def test_a_replaced_person_changes_no_more_than_was_read_and_no_less(build, unit):
    rng = np.random.default_rng(3)

    def answers():
        return {
            "records": rng.integers(0, 2, (PEOPLE, 2)),
            "cube": rng.integers(0, 2, (PEOPLE, 2, 2)),
            "path": rng.integers(0, 2, (PEOPLE, 5)),
        }

    reached: dict[str, bool] = {}
    for turn in range(24):
        first = answers()
        second = {name: values.copy() for name, values in first.items()}
        other = answers()
        # Of people that are entries of several axes, one entry is replaced; of the others, all that they hold.
        for name, values in second.items():
            at = (0, 1) if unit == (0, 1) and build is survey else 0
            # Every other time all that the person holds moves, so that the claim is reached.
            values[at] = other[name][at] if turn % 2 else 1
            first[name][at] = first[name][at] if turn % 2 else 0
        one, two = build(first), build(second)
        found = reading(one, unit=unit)
        for table in tables(one):
            contribution = found.contribution(table.name)
            difference = read_counts(find_observations([table], two)) - read_counts(find_observations([table], one))
            for change in (difference, -difference):
                inside, most = fits(change, contribution, table.shape)
                assert inside
                reached[table.name] = reached.get(table.name, False) or most
    # No smaller claim would hold.
    assert all(reached.values())


def test_the_reading_of_single_records_is_refuted_by_the_same_check():
    """The mutant of 0.1.0: a survey read as one record a person."""
    before, after = np.zeros((2, 2), dtype=int), np.array([[0, 1], [0, 1]])
    assert fits(after - before, Contribution(1, ("each",)), (2, 2))[0]
    assert not fits(after - before, Contribution(1), (2, 2))[0]


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


def test_only_the_axes_that_differ_are_united():
    given = [Contribution(1, ("each", "own")), Contribution(1, ("each", "each"))]
    assert unite(given, (4, 5, 2), sum) == Contribution(1 + 5, ("each", "any"))


# Words


def test_who_is_protected_in_a_sentence():
    with pm.Model(coords={"person": range(7), "item": list("abc")}) as model:
        theta = pm.Dirichlet("theta", np.ones((3, 2)), dims=("item", "yes"), shape=(3, 2))
        pm.Categorical("y", p=theta, observed=RNG.integers(0, 2, (7, 3)), dims=("person", "item"))
    by_unit = reading(model, unit="person")
    assert by_unit.protected == (
        "every person (dim 'person', 7 of them, as the publisher states, 3 records each: one in each row of theta). "
        "Neighbours: all 3 records of one person replaced; how many of them there are is public, and so is how many "
        "records each holds."
    )
    assert by_unit.n_units == 7
    private = reading(model, "add-remove", unit="person")
    assert private.n_units is None
    assert "7" not in private.protected
    assert "appear or disappear; how many of them there are is private" in private.protected
    bound = reading(model, contribution=3)
    assert bound.label == "at most 3 records"
    assert "at most 3 records of each table" in bound.protected
    assert "one record moves" not in bound.protected + bound.neighbours
    each = reading(model, contribution=1)
    assert each.protected.startswith("every record: each observation, and each trial where several are counted, is")
    assert pickle.loads(pickle.dumps(by_unit)) == by_unit != bound


def test_lines_are_python():
    assert as_code(("a'b", 'c"d', 1)) == '("a\'b", "c\\"d", 1)'
    assert eval(as_code(["ä", ["b"]])) == ["ä", ["b"]]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"unit": 1.5}, "got a float"),
        ({"unit": True}, "got a bool"),
        ({"unit": -1}, "got an int below 0"),
        ({"unit": ()}, "at least one axis"),
        ({"unit": (0, 0)}, "no axis twice"),
        ({"contribution": 0}, "contribution to be an integer >= 1"),
        ({"unit": 0, "contribution": 0}, "contribution to be an integer >= 1"),
        ({"public": "words"}, r"write \['name'\]"),
    ],
)
def test_what_cannot_be_said(said, words):
    with pytest.raises(ArgumentError, match=words):
        unit_options(**NOTHING | said)


def test_one_axis_named_twice():
    with pm.Model(coords={"person": range(4)}) as model:
        pm.Categorical("y", p=pm.Dirichlet("p", np.ones(2)), observed=[0, 1, 1, 1], dims="person")
    with pytest.raises(ArgumentError, match="names an axis of 'y' twice"):
        reading(model, unit=("person", 0))


def test_two_groups_with_people_on_other_axes_end_with_a_question():
    """An answer for one group leaves the other open; the search for lines must not go round in circles."""
    with pm.Model(coords={"person": range(4), "house": range(4)}) as model:
        for name, dim in (("x", "person"), ("y", "house")):
            p = pm.Dirichlet(f"p_{name}", np.ones((3, 2)))
            pm.Categorical(name, p=p, observed=RNG.integers(0, 2, (4, 3)), dims=(dim, f"{name}_item"), shape=(4, 3))
    with pytest.raises(UnsupportedModelError, match="contribution=3"):
        reading(model, disjoint=[["x"], ["y"]])


# What the data have to keep


def texts(lengths):
    with pm.Model() as model:
        n = np.asarray(lengths)
        pm.Multinomial("words", n=n, p=pm.Dirichlet("p", np.ones(2)), observed=np.stack([n, 0 * n], axis=1))
    return model


def check_people(model, options):
    for observed in find_observations(tables(model), model):
        reading_of(observed, options).check_people()


def test_a_person_with_more_records_than_stated_is_an_error_without_a_value():
    said = unit_options(**NOTHING | {"unit": 0, "contribution": 7919})
    check_people(texts([7919, 3]), said)
    with pytest.raises(DataError, match="more than contribution=7919 records of 'words'") as caught:
        check_people(texts([7919, 7920]), said)
    assert "7920" not in str(caught.value)


def test_a_repeated_person_is_counted_over_all_its_records():
    with pm.Model() as model:
        n = np.array([[3, 4], [2, 2]])
        pm.Binomial("k", n=n, p=pm.Beta("b", 1, 1), observed=n - 1)
    said = {"unit": 0, "contribution": 6}
    assert reading(model, **said).contribution("b") == Contribution(6)
    with pytest.raises(DataError, match="'k'"):
        check_people(model, unit_options(**NOTHING | said))
    check_people(model, unit_options(**NOTHING | said | {"contribution": 7}))


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


@pytest.mark.parametrize("least", [2, 3, 4])
def test_a_chain_of_as_many_numbers_as_are_asked_for_is_one(least):
    """Three numbers agree: those are enough for two or three, and chance for four."""
    x = np.array([2, 0, 1, 5])
    found = shift_axis(pt.as_tensor(x), pt.as_tensor(np.append(x[1:], 9)), least=least)
    assert found == (0 if least <= 3 else None)


# Groups of disjoint people


def three_tables():
    with pm.Model() as model:
        for name, counts in {"a": [1, 2], "b": [3, 1], "c": [2, 6]}.items():
            pm.Multinomial(f"y_{name}", n=sum(counts), p=pm.Dirichlet(name, np.ones(2)), observed=counts)
    return model


@pytest.mark.parametrize("disjoint", [[["a"], ["b", "a"]], [["a", "b"], ["y_b"]]])
def test_a_table_in_two_groups_is_refused_by_either_name(disjoint):
    with pytest.raises(ArgumentError, match="is in two groups of disjoint="):
        reading(three_tables(), disjoint=disjoint)


def test_a_refusal_under_add_remove_says_nothing_of_the_private_number_of_trials():
    """Two likelihoods of one parameter are refused with a number to start from, which must not be that of the data."""

    def refused(trials):
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(2))
            for name in ("first", "second"):
                pm.Multinomial(name, n=trials, p=p, observed=[trials, 0])
        with pytest.raises(Exception, match="is used twice") as caught:
            reading(model, "add-remove")
        return str(caught.value)

    assert refused(7) == refused(1234)
