"""Ordinary models, each with the reading that is expected: whose records they are, what is public, what is asked.

Each animal is a function that builds a model and says what becomes of it. `is_read` gives the unit and, for each table,
how many records a person holds in a block of cells, the pattern of the table's row axes, and the public number of
records. `is_asked` gives words of the question; `is_refused` words of the refusal, and its key in `REFUSALS`, where it
is one of those: what is read of the same animal is its way out.
"""

import functools
import re
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.refusals import REFUSALS
from pymc_dirdp.models.tables import root_model
from tests.planned import read_people

from . import small

RNG = np.random.default_rng(11)
PEOPLE, ITEMS, TIMES, LEVELS = 40, 5, 3, 3
ANSWERS = RNG.integers(0, LEVELS, (PEOPLE, ITEMS))
VISITS = RNG.integers(0, LEVELS, (PEOPLE, ITEMS, TIMES))
CODES = RNG.integers(0, LEVELS, PEOPLE)
GROUP = RNG.integers(0, 4, PEOPLE)
YES = RNG.integers(0, 2, PEOPLE)
PATHS = RNG.integers(0, LEVELS, (PEOPLE, 6))
WORDS = RNG.multinomial(6, np.full(LEVELS, 1 / LEVELS), PEOPLE)
LENGTHS = RNG.integers(3, 30, PEOPLE)
TEXTS = np.array([RNG.multinomial(n, np.full(LEVELS, 1 / LEVELS)) for n in LENGTHS])
HAIR = np.array([108, 286, 71, 127])
SMOKERS = np.array([[12, 30, 8], [20, 15, 15], [9, 31, 10], [40, 5, 5]])

# The dims of all models, and their lengths.
LENGTHS_OF_DIMS = {"person": PEOPLE, "item": ITEMS, "time": TIMES, "document": PEOPLE, "word": LEVELS, "hair": 4}
LENGTHS_OF_DIMS |= {"department": 3, "town": 4, "street": 4, "habit": 3, "level": LEVELS}


class Animal(NamedTuple):
    build: object
    said: dict
    relation: str
    expected: dict


ZOO: dict[str, Animal] = {}


def _add(said, relation, expected):
    def added(build):
        name = build.__name__ + "".join(f", {key}={value}" for key, value in said.items())
        name += ", add-remove" if relation == "add-remove" else ""
        assert name not in ZOO
        ZOO[name] = Animal(build, said, relation, expected)
        return build

    return added


def is_read(label, blocks, n=None, /, *, relation="replace-one", **said):
    """With the relation "both", the same is read under both, where only one has a public number of records."""
    if relation != "both":
        return _add(said, relation, {"unit": label, "blocks": blocks, "n": n})
    private = is_read(label, blocks, relation="add-remove", **said)
    return lambda build: private(is_read(label, blocks, n, **said)(build))


def is_asked(*words, relation="replace-one", **said):
    return _add(said, relation, {"words": ("Cannot say whom", *words), "lines": True})


def is_refused(*words, relation="replace-one", key=None, **said):
    return _add(said, relation, {"words": words, "lines": False, "key": key})


def says(key, text):
    """Whether a text is that of a refusal and of its way out, whatever names stand in the place of braces."""
    one = REFUSALS[key]
    parts = (re.split(r"\{[^}]*\}", part) for part in (one.reason, one.way_out))
    return all(re.search(".*".join(map(re.escape, part)), text) for part in parts)


def flat(*shape, name="p", dims=None):
    return pm.Dirichlet(name, np.ones(shape), dims=dims)


class TablesOfCounts:
    @is_read("record", {"p": (1,)}, {"p": 592}, relation="both")
    @is_read("at most 3 records", {"p": (3,)}, {"p": 592}, contribution=3)
    @is_refused("unit='hair' is the dim of the categories of 'students'", unit="hair")
    @is_refused("pass contribution=1 instead of unit=", unit="trial")
    @is_refused("unit=0 is not an axis of any observation", unit=0)
    def hair_colours():
        pm.Multinomial("students", n=592, p=flat(4, dims="hair"), observed=HAIR, dims="hair")

    @is_read("record", {"rate": (1, "any")}, {"rate": 2436}, relation="both")
    @is_refused("is not in public=", 'public=["admitted"]', "contribution=m", unit="department")
    @is_read("department", {"rate": (933, "own")}, {"rate": 2436}, unit="department", public=["admitted"])
    @is_read("record", {"rate": (1, "own")}, {"rate": 2436}, public=["admitted"])
    @is_refused("changes nothing", "in any rows", contribution=2, public=["admitted"])
    def admissions():
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[933, 585, 918], p=rate, observed=[601, 370, 322], dims="department")

    @is_read("record", {"rate": (1, "any")}, {"rate": 200})
    @is_read("axis 0", {"rate": (100, "own")}, {"rate": 200}, unit=0)
    @is_read("record", {"rate": (1, "own")}, {"rate": 200}, public=["bought"])
    @is_refused("changes nothing", "has the same number of trials", unit=0, public=["bought"])
    def a_b_test():
        pm.Binomial("bought", n=100, p=pm.Beta("rate", 1, 1, shape=2), observed=[13, 21])

    @is_refused("'a' has another number of records than 'b'", 'public=["a"]', 'disjoint=[["a"], ["b"]]')
    @is_refused("'a' has another number of records than 'b'", contribution=1, key="different numbers")
    @is_read("record", {"first": (1,), "second": (1,)}, {"first": 50, "second": 60}, public=["a"])
    @is_refused("'a' has another number of records than 'b'", public=["b"])
    @is_read("at most 2 records", {"first": (2,), "second": (2,)}, contribution=2)
    @is_read("record", {"first": (1,), "second": (1,)}, disjoint=[["first"], ["second"]])
    @is_read("record", {"first": (1,), "second": (1,)}, relation="add-remove")
    def a_b_test_in_two_tables():
        pm.Binomial("a", n=50, p=pm.Beta("first", 1, 1), observed=13)
        pm.Binomial("b", n=60, p=pm.Beta("second", 1, 1), observed=21)

    @is_refused("may be a count of what 'signed' observes")
    @is_refused("'returned' has", "may be a count of what 'signed' observes", public=["signed", "bought"])
    @is_read("record", {"a": (1,), "b": (1,), "c": (1,)}, {"a": 230, "c": 1000}, public=["bought", "returned"])
    def two_variables_of_those_who_were_counted():
        """They do not outvote the first."""
        pm.Binomial("bought", n=230, p=pm.Beta("a", 1, 1), observed=41)
        pm.Binomial("returned", n=230, p=pm.Beta("b", 1, 1), observed=7)
        pm.Binomial("signed", n=1000, p=pm.Beta("c", 1, 1), observed=230)

    @is_refused("'bought' ", 'public=["bought"]', disjoint=[["north"], ["south"]])
    @is_read("record", {"a": (1,), "b": (1,), "c": (1,)}, disjoint=[["north"], ["south", "bought"]])
    def a_variable_that_both_groups_may_feed():
        pm.Binomial("bought", n=230, p=pm.Beta("a", 1, 1), observed=41)
        pm.Binomial("north", n=1000, p=pm.Beta("b", 1, 1), observed=230)
        pm.Binomial("south", n=230, p=pm.Beta("c", 1, 1), observed=7)

    @is_refused("'few' has another number of records than 'many'", unit=0)
    @is_read("axis 0", {"p": (1,), "q": (1,)}, unit=0, disjoint=[["many"], ["few"]])
    def people_along_axes_of_other_lengths():
        pm.Bernoulli("many", p=pm.Beta("p", 1, 1), observed=YES)
        pm.Bernoulli("few", p=pm.Beta("q", 1, 1), observed=YES[:4])

    @is_read("at most 5 records", {"p": (5,), "q": (5, "any")}, {"p": 40, "q": 200}, contribution=5)
    @is_read("record", {"p": (1,), "q": (1, "any")}, contribution=1)
    def words_of_topics():
        """Words are more than documents, by a number that the model states."""
        topic = pm.Bernoulli("topic", p=pm.Beta("p", 1, 1), observed=YES)
        pm.Multinomial("words", n=5, p=flat(2, 3, name="q")[topic], observed=np.tile([2, 2, 1], (PEOPLE, 1)))


class OneAnswerOfEachPerson:
    @is_read("record", {"p": (1,)}, {"p": PEOPLE})
    @is_read("person", {"p": (1,)}, {"p": PEOPLE}, unit="person", relation="both")
    @is_read("axis 0", {"p": (1,)}, unit=0)
    @is_refused("unit='persn' is not a dim of any observation. Did you mean 'person'?", unit="persn")
    @is_refused("names an axis of 'answer' twice", unit=("person", 0))
    @is_read("person", {"p": (3,)}, unit="person", contribution=3)
    @is_refused("public", "'answer'", public=["answer"])
    def one_question():
        pm.Categorical("answer", p=flat(LEVELS), observed=CODES, dims="person")


class SeveralItemsOfEachPerson:
    @is_asked("'answers' has 40 x 5 observations over the axes (0, 1)", "unit=0")
    @is_asked("'answers' has observations over the axes (0, 1)", relation="add-remove")
    @is_read("axis 0", {"theta": (1, "each")}, {"theta": 200}, unit=0, relation="both")
    @is_read("axis 1", {"theta": (PEOPLE, "own")}, unit=1)
    @is_read("axis 0, axis 1", {"theta": (1, "own")}, {"theta": 200}, unit=(0, 1), relation="both")
    @is_read("at most 5 records", {"theta": (5, "any")}, contribution=5)
    @is_read("record", {"theta": (1, "any")}, contribution=1)
    @is_read("axis 0", {"theta": (5, "any")}, unit=0, contribution=5)
    @is_refused("contribution=4 is too small for 'answers'", unit=0, contribution=4)
    def survey_of_rows():
        pm.Categorical("answers", p=flat(ITEMS, LEVELS, name="theta"), observed=ANSWERS)

    @is_refused("of 'a' and 'b' but not of 'c'", "Give 'c' the dim", 'disjoint=[["a", "b"], ["c"]]', unit="person")
    @is_read("person | record", {"p": (1,), "q": (1,), "r": (1,)}, unit="person", disjoint=[["a", "b"], ["c"]])
    @is_read("record", {"p": (1,), "q": (1,), "r": (1,)})
    def two_surveys():
        pm.Categorical("a", p=flat(LEVELS, name="p"), observed=CODES, dims="person")
        pm.Categorical("b", p=flat(LEVELS, name="q"), observed=CODES[::-1], dims="person")
        pm.Categorical("c", p=flat(LEVELS, name="r"), observed=ANSWERS[:, 0])


class RepeatedMeasures:
    @is_asked("'visits' has 40 x 5 x 3 observations", 'unit="person"')
    @is_read("person", {"theta": (TIMES, "each")}, {"theta": 600}, unit="person")
    @is_read("person, time", {"theta": (1, "each")}, unit=("person", "time"))
    @is_read("at most 15 records", {"theta": (15, "any")}, contribution=15)
    def items_over_time():
        theta = flat(ITEMS, LEVELS, name="theta")
        pm.Categorical("visits", p=theta[:, None], observed=VISITS, dims=("person", "item", "time"))

    @is_asked("n=10 trials in each entry of 'person'", 'unit="person"')
    @is_read("person", {"b": (10,)}, {"b": 400}, unit="person", relation="both")
    @is_read("record", {"b": (1,)}, {"b": 400}, contribution=1)
    def tosses_of_each_person():
        pm.Binomial("heads", n=10, p=pm.Beta("b", 1, 1), observed=CODES, dims="person")

    @is_read("record", {"b": (1, "any")}, {"b": 400})
    @is_read("person", {"b": (10, "own")}, {"b": 400}, unit="person")
    @is_refused("are the units of unit='person'", unit="person", relation="add-remove")
    def a_rate_for_each_person():
        pm.Binomial("heads", n=10, p=pm.Beta("b", 1, 1, dims="person"), observed=CODES, dims="person")


class Documents:
    @is_asked("several trials in each entry of 'document'", 'public=["words"]')
    @is_refused("publishes the number of records of every person", 'public=["words"]', unit="document")
    @is_read("document", {"topic": (LENGTHS.max(),)}, {"topic": LENGTHS.sum()}, unit="document", public=["words"])
    @is_read("document", {"topic": (40,)}, unit="document", contribution=40, relation="both")
    @is_refused("unit='document' under adjacency='add-remove'", unit="document", relation="add-remove")
    @is_refused("changes nothing", "are private", unit="document", relation="add-remove", public=["words"])
    @is_refused("changes nothing", "Leave out contribution=", unit="document", contribution=60, public=["words"])
    @is_refused("changes nothing", "in any rows", contribution=60, public=["words"])
    @is_refused("changes nothing", "determines the number of records of no row", contribution=1, public=["words"])
    @is_read("record", {"topic": (1,)}, {"topic": LENGTHS.sum()}, contribution=1)
    def documents_of_other_lengths():
        p = flat(LEVELS, name="topic", dims="word")
        pm.Multinomial("words", n=LENGTHS, p=p, observed=TEXTS, dims=("document", "word"))

    @is_refused("has a number for each person. Write a single number", unit="document", relation="add-remove")
    @is_read("document", {"topic": (6,)}, unit="document")
    @is_read("document", {"topic": (7,)}, unit="document", contribution=7, relation="add-remove")
    def documents_of_one_length_by_chance():
        """That the lengths agree is data under add-remove: another document may have another length."""
        topic = flat(LEVELS, name="topic", dims="word")
        pm.Multinomial("words", n=np.full(PEOPLE, 6), p=topic, observed=WORDS, dims=("document", "word"))


class GroupedTrials:
    @is_asked("'k' holds several trials for each entry of the observed parent 'an array'")
    @is_read("record", {"rate": (1, "any")}, {"rate": 26}, contribution=1)
    @is_refused("changes nothing", "of no row", contribution=1, public=["k"])
    @is_read("axis 0", {"rate": (8, "any")}, {"rate": 26}, unit=0, public=["k"])
    @is_refused("is not in public=", unit=0)
    def germination():
        rate = pm.Beta("rate", 1, 1, shape=3)
        pm.Binomial("k", n=[5, 6, 7, 8], p=rate[np.array([0, 2, 2, 1])], observed=[1, 2, 3, 4])

    @is_read("record", {"rate": (1, "any")}, {"rate": PEOPLE}, relation="both")
    @is_read("at most 7 records", {"rate": (7, "any")}, contribution=7)
    @is_read("axis 0", {"rate": (1, "any")}, unit=0)
    def a_rate_for_each_group():
        pm.Bernoulli("recovered", p=pm.Beta("rate", 1, 1, shape=4)[GROUP], observed=YES)


class Networks:
    @is_asked("'wheeze' takes its rows from what is observed in 'smoker'", "unit=0")
    @is_read("axis 0", {"share": (1,), "rate": (1, "any")}, {"share": 40, "rate": 40}, unit=0)
    @is_read("record", {"share": (1,), "rate": (1, "any")}, contribution=1)
    @is_refused("'wheeze' and 'smoker' are parent and child", disjoint=[["wheeze"], ["smoker"]])
    def two_nodes():
        smoker = pm.Bernoulli("smoker", p=pm.Beta("share", 1, 1), observed=YES)
        pm.Categorical("wheeze", p=flat(2, LEVELS, name="rate")[smoker], observed=CODES)

    @is_asked("'wheeze' takes its rows from what is observed in 'smoker' (an array)")
    def two_nodes_by_an_equal_array():
        pm.Bernoulli("smoker", p=pm.Beta("share", 1, 1), observed=YES)
        pm.Categorical("wheeze", p=flat(2, LEVELS, name="rate")[YES.copy()], observed=CODES)

    @is_asked("'a' and 'b' take their rows from the same parent")
    @is_read("axis 0", {"p": (1, "any"), "q": (1, "any")}, unit=0)
    @is_refused("'a' and 'b' hold the same data", disjoint=[["a"], ["b"]], key="shared data")
    def two_children_of_a_parent():
        parent = pm.Data("group", GROUP)
        pm.Categorical("a", p=flat(4, LEVELS, name="p")[parent], observed=CODES)
        pm.Bernoulli("b", p=pm.Beta("q", 1, 1, shape=4)[parent], observed=YES)


class ChainsAndSequences:
    @is_asked("'next' takes its rows of 'P' from itself some steps earlier", "unit=0")
    @is_asked("some steps earlier", relation="add-remove")
    @is_read("axis 0", {"P": (5, "any")}, {"P": 200}, unit=0)
    @is_read("at most 5 records", {"P": (5, "any")}, contribution=5)
    @is_refused("'next' is a sequence along axis 1, which unit=(0, 1) names", unit=(0, 1), key="steps")
    def markov_chains():
        pm.Categorical("next", p=flat(LEVELS, LEVELS, name="P")[PATHS[:, :-1]], observed=PATHS[:, 1:])

    @is_asked("'next' takes its rows of 'P' from itself", "contribution=38", "contribution=3")
    def one_long_sequence_of_second_order():
        """Each entry is the outcome of one record and a parent of two more."""
        P = flat(LEVELS, LEVELS, LEVELS, name="P")
        pm.Categorical("next", p=P[CODES[:-2], CODES[1:-1]], observed=CODES[2:])

    @is_asked("'a' takes its rows from what is observed in 'b' some steps earlier", "contribution=39")
    @is_refused("'a' is a sequence along axis 0, which unit=0 names", unit=0)
    def two_sequences_that_follow_each_other():
        pm.Categorical("a", p=flat(4, LEVELS, name="A")[GROUP[:-1]], observed=CODES[1:])
        pm.Categorical("b", p=flat(LEVELS, 4, name="B")[CODES[:-1]], observed=GROUP[1:])

    @is_read("axis 0", {"share": (1,), "p": (1, "any")}, unit=0)
    @is_asked("'y' takes its rows from what is observed in 'class'", "unit=0")
    def classes_in_turn():
        """Data that repeat themselves are no sequence."""
        turn = np.arange(PEOPLE) % 2
        cls = pm.Categorical("class", p=flat(2, name="share"), observed=turn)
        pm.Categorical("y", p=flat(2, LEVELS)[cls], observed=CODES)

    @is_read("axis 0", {"A": (5, "any"), "B": (5, "any")}, unit=0)
    @is_refused("'a' is a sequence along axis 1, which unit=(0, 1) names", unit=(0, 1))
    def sequences_of_people_that_follow_each_other():
        other = np.roll(PATHS, 7, axis=0)
        pm.Categorical("a", p=flat(LEVELS, LEVELS, name="A")[other[:, :-1]], observed=PATHS[:, 1:])
        pm.Categorical("b", p=flat(LEVELS, LEVELS, name="B")[PATHS[:, :-1]], observed=other[:, 1:])


class NumbersOfTrialsThatAreData:
    @is_refused("'bought' has a number of trials", "observed in 'visited'", "add-remove", key="trials are data")
    @is_read("record", {"a": (1,), "b": (1,)}, {"a": 100, "b": 37}, public=["bought"])
    @is_read("record", {"a": (1,), "b": (1,)}, relation="add-remove")
    @is_refused("public", "Did you mean 'bought'?", public=["bougth"])
    def funnel():
        d = pm.Data("d", np.array(37))
        pm.Binomial("visited", n=100, p=pm.Beta("a", 1, 1), observed=d)
        pm.Binomial("bought", n=d, p=pm.Beta("b", 1, 1), observed=5)

    @is_refused("Pass contribution=m, which makes it private, and n_records=", unit="town", relation="add-remove")
    def funnel_of_towns():
        pm.Multinomial("smokes", n=50, p=flat(4, 3, name="smokes_p"), observed=SMOKERS, dims=("town", "habit"))
        pm.Binomial("quit", n=SMOKERS[:, 1], p=pm.Beta("quit_p", 1, 1), observed=SMOKERS[:, 1] // 2, dims="town")

    @is_read("record", {"p": (1,), "q": (1, "any")}, {"p": 592, "q": 592})
    def counts_by_hand_as_naive_bayes_has_them():
        pm.Multinomial("colour", n=592, p=flat(4), observed=HAIR)
        pm.Binomial("tall", n=HAIR, p=pm.Beta("q", 1, 1, shape=4), observed=[8, 86, 71, 0])

    @is_read("record", {"p": (1, "any")}, {"p": 240})
    def the_total_of_its_own_counts():
        x = pm.Data("x", WORDS)
        pm.Multinomial("y", n=x.sum(axis=-1), p=flat(PEOPLE, LEVELS), observed=x)

    @is_refused("'k' has a number of trials that is, or depends on, what is observed in 'k'")
    def trials_from_its_own_successes():
        k = pm.Data("k_data", np.array([3, 4]))
        pm.Binomial("k", n=2 * k, p=pm.Beta("b", 1, 1, shape=2), observed=k)

    @is_read("record", {"p": (1,), "b": (1,)}, {"p": PEOPLE, "b": PEOPLE})
    def trials_as_many_as_answers():
        """The length of raw records is public under replace-one; their values are not read."""
        y = pm.Data("y_data", CODES)
        pm.Categorical("y", p=flat(LEVELS), observed=y)
        pm.Binomial("k", n=y.shape[0], p=pm.Beta("b", 1, 1), observed=7)

    @is_refused("'k' has a number of trials that is, or depends on, what is observed in 'y'", contribution=1)
    def trials_from_codes_of_a_parent():
        group = pm.Data("group", GROUP)
        pm.Categorical("y", p=flat(4, LEVELS)[group], observed=CODES)
        pm.Binomial("k", n=group.sum(), p=pm.Beta("b", 1, 1), observed=3)


# Numbers of trials that NumPy took from what is observed, which leaves no trace.
OF_Y = {
    "came": lambda: pm.Binomial("y", n=100, p=pm.Beta("a", 1, 1, shape=2), observed=[37, 20]),
    "smoke": lambda: pm.Multinomial("y", n=50, p=flat(4, 3), observed=SMOKERS),
    "chose": lambda: pm.Categorical("y", p=flat(4, LEVELS)[GROUP], observed=CODES),
}
TAKEN = {
    "an equal array": ("came", np.array([37, 20])),
    "those who failed": ("came", np.array([63, 80])),
    "a column of counts": ("smoke", SMOKERS[:, 1].copy()),
    "all columns but one": ("smoke", SMOKERS[:, :2].copy()),
    "counts of codes": ("chose", np.bincount(GROUP[CODES != 1], minlength=4)),
}
for called, of_two in TAKEN.items():

    def taken(y=of_two[0], n=of_two[1]):
        OF_Y[y]()
        pm.Binomial("k", n=n, p=pm.Beta("b", 1, 1, shape=n.shape), observed=n // 2)

    taken.__name__ = f"trials are {called}"
    is_refused("'k' has a number of trials that is, or depends on, what is observed in 'y'")(taken)


class PriorsThatAreIntegratedOut:
    @is_asked("'words' holds several trials in each row of 'words_p'", 'public=["words"]')
    @is_read("record", {"words_p": (1, "any")}, {"words_p": LENGTHS.sum()}, contribution=1)
    @is_read("record", {"words_p": (1, "own")}, {"words_p": LENGTHS.sum()}, contribution=1, public=["words"])
    @is_read("axis 0", {"words_p": (LENGTHS.max(), "own")}, unit=0, public=["words"])
    @is_read("axis 0", {"words_p": (40, "own")}, unit=0, contribution=40)
    @is_refused("are the units of unit=0", "under add-remove", unit=0, contribution=40, relation="add-remove")
    @is_asked("several trials in each row", "contribution=1", "contribution=10", relation="add-remove")
    def integrated_documents():
        pm.DirichletMultinomial("words", n=LENGTHS, a=np.ones(LEVELS), observed=TEXTS)

    @is_read("record", {"y_p": (1, "any")}, {"y_p": PEOPLE})
    @is_refused("'y' has one record in each row of 'y_p'", relation="add-remove", key="row of each record")
    @is_refused("'y' has", "shape of the release", relation="add-remove", contribution=1)
    @is_refused("shape of the release", relation="add-remove", unit="person", key="row of each person")
    def integrated_people():
        """Finding 13: the shape and the labels of the release said who takes part."""
        one_hot = np.eye(LEVELS, dtype=int)[CODES]
        pm.DirichletMultinomial("y", n=1, a=np.ones(LEVELS), observed=one_hot, dims=("person", "level"))


class OneTableWithTwoLikelihoods:
    @is_refused("'p' is used twice: 'x' and 'y'", "contribution=2", "disjoint", key="used twice")
    @is_read("at most 2 records", {"p": (2,)}, {"p": 80}, contribution=2)
    @is_read("record", {"p": (1,)}, {"p": 80}, disjoint=[["x"], ["y"]])
    @is_read("axis 0", {"p": (2,)}, unit=0)
    def one_table_two_waves():
        p = flat(LEVELS)
        pm.Categorical("x", p=p, observed=CODES)
        pm.Categorical("y", p=p, observed=ANSWERS[:, 0])

    @is_read("person", {"theta": (6, "any")}, unit="person")
    @is_refused("used twice")
    def rows_by_position_and_by_codes():
        """One record in each of 5 rows, and one more in any row: six anywhere."""
        theta = flat(ITEMS, LEVELS, name="theta")
        pm.Categorical("all", p=theta, observed=ANSWERS, dims=("person", "item"))
        pm.Categorical("more", p=theta[GROUP], observed=CODES, dims="person")

    @is_asked("'b' holds n=10 trials", unit="person", disjoint=[["a"], ["b"]])
    @is_refused("but not of 'b'", "Give 'b' the dim.", unit="person")
    def a_survey_and_trials_of_others():
        """No line says unit= and contribution= at once, and no groups are offered that leave a question open."""
        pm.Bernoulli("a", p=pm.Beta("pa", 1, 1), observed=YES, dims="person")
        pm.Binomial("b", n=10, p=pm.Beta("pb", 1, 1), observed=CODES)

    @is_refused("unit=0 is the dim 'person' of 'a' and 'item' of 'b'", unit=0)
    @is_refused("unit=('item', 'town') names axes that no single observation has", unit=("item", "town"))
    def axes_with_two_names():
        pm.Categorical("a", p=flat(LEVELS, name="pa"), observed=CODES, dims="person")
        pm.Categorical("b", p=flat(ITEMS, LEVELS, name="pb")[:, None], observed=ANSWERS.T, dims=("item", "person"))
        pm.Bernoulli("c", p=pm.Beta("pc", 1, 1), observed=YES[:4], dims="town")

    @is_read("town, street", {"p": (2, "any")}, unit=("town", "street"))
    def rows_that_follow_one_axis_here_and_another_there():
        p, answers = flat(4, 2), YES[:16].reshape(4, 4)
        pm.Categorical("by_town", p=p[:, None], observed=answers, dims=("town", "street"))
        pm.Categorical("by_street", p=p, observed=1 - answers, dims=("town", "street"))

    @is_read("record", {"p": (1,)})
    @is_refused("a prior that depends on the number of observations", relation="add-remove", key="prior of a length")
    def a_prior_by_the_number_of_people():
        p = pm.Dirichlet("p", np.ones(LEVELS) / pm.modelcontext(None).dim_lengths["person"])
        pm.Categorical("y", p=p, observed=CODES, dims="person")


class SharesByFormulas:
    @is_refused("'a' has another number of records than 'b'")
    @is_read("record", {"theta": (1, "each")}, {"theta": 220}, public=["a"])
    @is_read("at most 2 records", {"theta": (2, "any")}, contribution=2)
    @is_refused("'theta' is used twice", 'disjoint=[["a"], ["b"]]', contribution=1)
    @is_read("record", {"theta": (1, "any")}, disjoint=[["a"], ["b"]])
    def an_arm_for_each_entry():
        """Two rows of a table are like two tables: a person may have a record in each."""
        theta = pm.Beta("theta", 1, 1, shape=2)
        pm.Binomial("a", n=100, p=theta[0], observed=13)
        pm.Binomial("b", n=120, p=theta[1], observed=21)

    @is_read("record", {"theta_A": (1,), "theta_B": (1,)}, {"theta_A": 10, "theta_B": 12}, relation="both")
    @is_refused("changes nothing", "of no row", public=["bought"])
    @is_refused("publishes the number of records of every person", unit=0)
    @is_read("axis 0", {"theta_A": (12,), "theta_B": (12,)}, unit=0, public=["bought"])
    def stacked_arms():
        arms = [pm.Beta("theta_A", 1, 1), pm.Beta("theta_B", 1, 1)]
        pm.Binomial("bought", n=[10, 12], p=pm.math.stack(arms), observed=[3, 5])

    @is_refused("uses a row of 'a' and 'b' at several positions", key="repeated rows")
    @is_refused("but not at all of them", unit=0)
    def a_list_of_people_in_the_formula():
        """The positions say which person is in which arm: that is data, and so is the number of records of each."""
        a, b = pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)
        pm.Bernoulli("y", p=pm.math.stack([(a, b)[arm] for arm in YES]), observed=CODES % 2)

    @is_refused("'y' chooses between 'a' and 'b' by the codes", key="tables by codes")
    @is_refused("the number of records of each is data", contribution=1)
    @is_refused("the number of records of each is data", unit=0)
    @is_read("record", {"a": (1,), "b": (1,)}, relation="add-remove")
    @is_read("axis 0", {"a": (1,), "b": (1,)}, unit=0, contribution=1)
    def arms_by_codes():
        arms = [pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)]
        pm.Bernoulli("y", p=pm.math.stack(arms)[YES], observed=CODES % 2)

    @is_read("record", {"b": (1, "any")})
    @is_refused("along which 'y' has its records", relation="add-remove", key="labels of people")
    @is_refused("has a row for each entry of a dim", relation="add-remove", unit="person")
    def one_of_the_rows_with_the_labels_of_people():
        pm.Bernoulli("y", p=pm.Beta("b", 1, 1, dims="person")[0], observed=YES, dims="person")

    @is_asked("'contains' has 40 x 5 observations", "unit=0")
    @is_read("axis 0", {"th": (1, "any", "each")}, {"th": 200}, unit=0, relation="both")
    @is_read("at most 5 records", {"th": (5, "any", "any")}, contribution=5)
    @is_refused("takes the rows of 5 records from one entry", "contribution=1 is too little", contribution=1)
    @is_refused("gives to several people", unit=(0, 1), key="shared codes")
    @is_refused("gives to several people", unit=1)
    def naive_bayes_in_one_table():
        """A document changes its class, and all of its words move to other rows."""
        pm.Bernoulli("contains", p=pm.Beta("th", 1, 1, shape=(4, ITEMS))[GROUP], observed=ANSWERS % 2)

    @is_asked("'answers' has 40 x 5 observations")
    @is_read("axis 0", {"th": (5, "any")}, {"th": 200}, unit=0)
    @is_read("at most 7 records", {"th": (7, "any")}, contribution=7)
    @is_refused("takes the rows of 5 records from one entry", contribution=4, key="few records")
    def several_answers_behind_one_code():
        pm.Categorical("answers", p=flat(4, LEVELS, name="th")[GROUP][:, None], observed=ANSWERS)

    @is_asked("'y' takes its rows from what is observed in 'class' (classes and sex)")
    @is_read("axis 0", {"share": (1,), "th": (1, "any")}, unit=0)
    @is_refused("are parent and child", disjoint=[["y"], ["class"]])
    def codes_of_an_observed_column_and_another():
        """A parent inside of a formula is a parent."""
        cls = pm.Categorical("class", p=flat(LEVELS, name="share"), observed=pm.Data("classes", CODES))
        pm.Categorical("y", p=flat(6, LEVELS, name="th")[cls * 2 + pm.Data("sex", YES)], observed=ANSWERS[:, 0])

    @is_refused("takes its row of 'th' from something that is computed in the model", key="computed codes")
    def codes_by_a_lookup():
        """One entry of the lookup decides the rows of many records."""
        region = pm.Data("region", np.array([0, 1, 1]))
        pm.Bernoulli("y", p=pm.Beta("th", 1, 1, shape=2)[region[CODES]], observed=YES)

    @is_asked("'y' has 40 x 2 observations")
    @is_read("axis 0", {"b": (2, "any")}, {"b": 80}, unit=0)
    def two_of_many_rows():
        """Two records anywhere cost less than one in each of nine rows."""
        pm.Bernoulli("y", p=pm.Beta("b", 1, 1, shape=9)[3:5], observed=ANSWERS[:, :2] % 2)


class ColumnsOfOneArray:
    @is_asked("takes its rows of 'P' from itself", "contribution=37")
    @is_refused("'next' is a sequence along axis 0, which unit=0 names", unit=0, key="steps")
    @is_read("at most 3 records", {"P": (3, "any")}, contribution=3)
    def a_chain_of_three_steps_of_one_array():
        """The slices tell what the numbers alone would not: three steps earlier."""
        x = pm.Data("x", CODES)
        pm.Categorical("next", p=flat(LEVELS, LEVELS, name="P")[x[:-3]], observed=x[3:])

    @is_read("axis 0", {"p": (1,), "q": (1, "any")}, unit=0)
    @is_asked("takes its rows from what is observed in 'a'")
    @is_refused("are parent and child", disjoint=[["a"], ["b"]])
    def columns_of_one_array():
        x = pm.Data("x", ANSWERS)
        pm.Categorical("a", p=flat(LEVELS), observed=x[:, 0])
        pm.Categorical("b", p=flat(LEVELS, LEVELS, name="q")[x[:, 0]], observed=x[:, 1])

    @is_refused("hold the same data", disjoint=[["a"], ["b"]], key="shared data")
    @is_read("record", {"p": (1,), "q": (1,)})
    def two_columns_of_the_same_people():
        x = pm.Data("x", ANSWERS)
        pm.Categorical("a", p=flat(LEVELS), observed=x[:, 0])
        pm.Categorical("b", p=flat(LEVELS, name="q"), observed=x[:, 1])

    @is_refused("which hold records of people", public=["group"], key="prior of records")
    def a_prior_of_codes():
        group = pm.Data("group", GROUP)
        p = pm.Dirichlet("p", np.ones(LEVELS) + group.sum(), shape=(4, LEVELS))
        pm.Categorical("y", p=p[group], observed=CODES)


@functools.cache
def built(build):
    coords = {dim: [f"{dim} {i}" for i in range(n)] for dim, n in LENGTHS_OF_DIMS.items()}
    return root_model(small.built(build, coords=coords))


def each(*, read):
    found = {name: animal for name, animal in ZOO.items() if ("unit" in animal.expected) == read}
    return pytest.mark.parametrize("animal", found.values(), ids=found)


@each(read=True)
def test_what_one_person_adds(animal):
    read = read_people(built(animal.build), animal.relation, **animal.said)
    assert read.reading.label == animal.expected["unit"]
    found = {name: (adds.records, *adds.axes) for name, adds in read.reading.contributions}
    assert found == animal.expected["blocks"]
    public = animal.expected["n"] or {}
    assert {table.name: read.n_records(table) for table in read.tables if table.name in public} == public


@pytest.mark.filterwarnings("ignore::UserWarning")
@each(read=False)
def test_a_refusal_asks_with_a_call_that_is_accepted(animal):
    """Not with one that leads to another refusal, whatever was asked first."""
    model = built(animal.build)
    with pytest.raises((UnsupportedModelError, ArgumentError)) as caught:
        read_people(model, animal.relation, **animal.said)
    said = str(caught.value)
    for word in animal.expected["words"]:
        assert word in said, said
    if key := animal.expected.get("key"):
        assert says(key, said), said
    assert ("Cannot say whom" in said) == animal.expected["lines"]
    calls = re.findall(r"^    dirdp\.plan\(guarantee, model, (.*)\)$", said, flags=re.MULTILINE)
    assert len(calls) == ("For example" in said)
    assert calls or not animal.expected["lines"]
    for call in calls:
        assert read_people(model, **eval(f"dict({call})")).tables


def test_a_call_of_a_refusal_is_released():
    guarantee, model = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), built(ZOO["markov_chains"].build)
    with pytest.raises(UnsupportedModelError) as caught:
        dirdp.plan(guarantee, model)
    (call,) = re.findall(r"^    (dirdp\.plan\(.*\))$", str(caught.value), flags=re.MULTILINE)
    plan = eval(call, {"dirdp": dirdp, "guarantee": guarantee, "model": model})
    assert dirdp.verify(dirdp.sample(plan, model))
