"""What one person can change, by brute force; the sentences that say it; one refusal that asks for all that is open."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.contributions import unite
from pymc_dirdp.models.graph import same_data, shift_axis
from pymc_dirdp.models.privacy_unit import PrivacyUnit, UnitOptions, as_code
from pymc_dirdp.models.questions import Answer, OpenQuestionError, read_or_ask
from pymc_dirdp.privacy.people import Contribution
from tests.planned import counts_of, read_people

from .small import built, coded, counted, simplex

RNG = np.random.default_rng(5)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def reading(model, relation="replace-one", **said):
    return read_people(model, relation, **said).reading


# Brute force: one person is replaced, and the counts may change by no more than what was read. Random models have the
# same check for people along axes; here rows are chosen by what the person itself is observed in.
BY_OWN_CODES = {
    "chains": lambda path: coded(simplex(2, 2)[path[:, :-1]], path[:, 1:]),
    "networks": lambda path: coded(simplex(2, 2)[coded(simplex(2, name="q"), path[:, 0], "a")], path[:, 1], "b"),
    "documents": lambda path: counted(simplex(2, 2)[path[:, 0]], (path[:, 1:, None] == [1, 0]).sum(axis=1), 4),
}


@pytest.mark.parametrize("build", BY_OWN_CODES.values(), ids=BY_OWN_CODES)
def test_a_replaced_person_changes_no_more_than_was_read_and_no_less(build):
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
    # Lines of a question are Python.
    assert eval(as_code(["ä", ["b"], ("a'b", 'c"d', 1)])) == ["ä", ["b"], ("a'b", 'c"d', 1)]


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


REPLACED, REMOVED = "replace-one", "add-remove"
HAIR = ("hair",)
SHAPES = {"hair": (4,), "answers": (5, 3), "diary": (7, 2)}
ADDS = {"hair": Contribution(1), "answers": Contribution(1, ("each",)), "diary": Contribution(6, ("own",))}


def stated(*groups, relation=REPLACED, others=False, **said):
    """What is said of groups of tables, each of which has people of its own."""
    shapes, adds = (tuple((name, of[name]) for group in groups for name in group) for of in (SHAPES, ADDS))
    return PrivacyUnit(UnitOptions(**said, adjacency=relation), shapes, adds, groups, 9, others)


@pytest.mark.parametrize(
    ("groups", "holds", "changed"),
    [
        ([HAIR], "1 record each: one in hair", "the record of one person"),
        ([("hair", "answers")], "6 records each", "all 6 records of one person"),
        # The largest group, wherever it stands.
        ([HAIR, ("answers",)], "5 records each", "all 5 records of one person"),
        ([("answers",), HAIR], "5 records each", "all 5 records of one person"),
        ([("diary",)], "6 records each: 6 in a row of its own of diary", "all 6 records of one person"),
    ],
)
def test_how_many_records_a_person_holds_is_what_the_tables_say(groups, holds, changed):
    text = stated(*groups, unit=("person",)).protected
    assert text.startswith(f"every person (dim 'person', 9 of them, as the publisher states, {holds}")
    assert f"Neighbours: {changed} replaced; how many of them there are is public, and so is" in text


@pytest.mark.parametrize(
    ("unit", "called"),
    [
        (("person",), "every person (dim 'person', "),
        (("school", "class"), "every entry of (school, class) (dims 'school' and 'class', "),
        ((0,), "every entry of axis 0 (a numbered axis, "),
        (("school", 1), "every entry of (school, axis 1) (numbered axes, "),
    ],
)
def test_a_unit_is_called_by_its_axes(unit, called):
    assert stated(HAIR, unit=unit).protected.startswith(called)
    assert stated(HAIR, unit=unit, others=True).label.endswith(" | record")


@pytest.mark.parametrize(
    ("relation", "words"),
    [(REPLACED, "the number of records is public"), (REMOVED, "appear or disappear; the number is private")],
)
def test_several_records_of_anybody(relation, words):
    assert words in stated(HAIR, relation=relation, contribution=2).neighbours
    assert stated(HAIR, contribution=2).protected.startswith("every person, who holds at most 2 records")
    text = stated(("answers",), relation=REMOVED, unit=("person",), contribution=5).protected
    assert "at most 5 records each" in text
    assert "all records of one person appear or disappear; how many of them there are is private" in text
    # One record of a person is a record.
    single = stated(HAIR, contribution=1)
    assert (single.protected[:12], single.label) == ("every record", "record")


def test_the_unit_as_the_user_writes_it():
    assert [one.unit_text for one in (UnitOptions(), UnitOptions(contribution=1))] == ["single records"] * 2
    assert UnitOptions(contribution=3).unit_text == "contribution=3"
    assert UnitOptions(unit=("person",)).unit_text == "unit='person'"
    assert UnitOptions(unit=("person", 1)).unit_text == "unit=('person', 1)"


VERB = "dirdp.plan(guarantee, model"
NUMBERS = Answer({"public": ("n",)}, "if anybody may know it")
GROUPS = Answer({"disjoint": (("a",), ("b",))}, "if nobody is in both")
PERSON, HOUSE = Answer({"unit": ("person",)}), Answer({"unit": ("house",)})


def asked(*rules):
    """A reader that asks, in turn, what the rules say of what was said."""

    def read(said):
        for is_open, text, answers in rules:
            if is_open(said):
                raise OpenQuestionError(text, answers)
        return said

    return read


def test_all_questions_stand_in_one_refusal_with_one_call():
    read = asked(
        (lambda said: not said.unit, "Refused: who is it? Pass unit=.", [PERSON]),
        (lambda said: "n" not in said.public, "Refused: is n public? Pass public=.", [NUMBERS, GROUPS]),
        (lambda said: "x" not in said.public, "Refused: is x public? Pass public=.", [Answer({"public": ("x",)})]),
    )
    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(adjacency="add-remove", public=("m",)), VERB)
    assert not isinstance(caught.value, OpenQuestionError)
    assert caught.value.__suppress_context__
    *lines, call = str(caught.value).splitlines()
    assert lines[:3] == [
        "Refused: who is it? Pass unit=.",
        "Also: is n public? Pass public=.",
        "Also: is x public? Pass public=.",
    ]
    assert call == '    dirdp.plan(guarantee, model, unit="person", public=["m", "n", "x"], adjacency="add-remove")'


def test_other_answers_that_were_tried_are_named_in_words():
    read = asked((lambda said: said.public != ("n",) and not said.disjoint, "Refused: n?", [NUMBERS, GROUPS]))
    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(), VERB)
    assert "For example, if anybody may know it:\n" in str(caught.value)
    assert str(caught.value).endswith(
        'The first question may also be answered by disjoint=[["a"], ["b"]] if nobody is in both.'
    )


@pytest.mark.parametrize("kind", [UnsupportedModelError, ArgumentError])
def test_an_answer_that_leads_to_a_refusal_is_not_offered(kind):
    def read(said):
        if not said.public and not said.disjoint:
            raise OpenQuestionError("Refused: n?", [NUMBERS, GROUPS])
        if said.public:
            raise kind("Refused: no number is public.")
        return said

    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(), VERB)
    assert 'model, disjoint=[["a"], ["b"]])' in str(caught.value)
    assert "public=" not in str(caught.value)
    # Where no answer helps, the refusal itself is said.
    with pytest.raises(kind, match=r"^Refused: no number is public\.$"):
        read_or_ask(lambda said: read(said if said.public else UnitOptions(public=("n",))), UnitOptions(), VERB)


def test_no_answer_takes_another_one_back_or_changes_nothing():
    """Found by a hanging test: two groups with people on other axes asked for each other's unit for ever."""
    other_units = asked(
        (lambda said: said.unit != ("person",), "Refused: who?", [PERSON]),
        (lambda said: said.unit != ("house",), "Refused: who is b?", [HOUSE]),
    )
    idle = asked((lambda _: True, "Refused: who?", [NUMBERS]))
    for read, said in ((other_units, UnitOptions()), (idle, UnitOptions(public=("n",)))):
        with pytest.raises(UnsupportedModelError, match=r"^Refused: who\?$"):
            read_or_ask(read, said, VERB)
