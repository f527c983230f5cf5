"""What a run never changes, and what a file may say of it."""

import json

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.settings import Settings
from tests.texts.test_grammar import changed, places

GUARANTEE = dirdp.PureDP(epsilon=1.0)
COUNTS = {"mechanism": "counts", "utilities": {"no": 0.0, "perhaps": 0.5, "yes": 1.0}}
NONSENSE = [None, True, -1, 0, 1.5, 10**400, "x", "", [], [[]], {}, {"a": 1}, "\n", "00" * 31]


def settings(**options):
    return dirdp.ThompsonSampler(["a", 7], GUARANTEE, **options)._settings


def test_a_fingerprint_tells_people_apart_by_the_key():
    own, other = settings(contribution=1), settings(contribution=1)
    assert own.key.hex() not in repr(own)
    assert repr(own.key) not in repr(own)
    assert own.fingerprint("7") == own.fingerprint(7) != own.fingerprint("70")
    assert own.fingerprint("7") != other.fingerprint("7")
    assert settings().fingerprint(None) is None
    for person in (None, 1.5, True, ["Ann"], b"5", ("5",), "", " ", "A\u200bnn", "\ud800", 10**5000):
        with pytest.raises(dirdp.errors.ArgumentError, match="person="):
            own.fingerprint(person)
    assert {own.fingerprint(written) for written in (5, "5 ", "05", "\uff15", "\u0665")} == {own.fingerprint("5")}
    assert own.fingerprint("ANN") == own.fingerprint("Ann") != own.fingerprint("5")


@pytest.mark.parametrize("options", [{}, {"contribution": 2, "utilities": {"no": 0.0, "yes": 1.0}}, COUNTS])
def test_one_fact_that_is_nonsense_is_refused_or_means_something(options):
    own = settings(**options)
    assert Settings.from_json(own.to_json()) == own
    facts, refused = json.loads(own.to_json()), 0
    for place in places(facts):
        for value in (..., *NONSENSE):
            edited = json.dumps(changed(facts, place, "leave out" if value is ... else "change", value))
            try:
                read = Settings.from_json(edited)
            except (ArithmeticError, LookupError, TypeError, ValueError):
                refused += 1
                continue
            # What is accepted keeps its guarantee, and is a run as if it had been made with it.
            assert isinstance(read.design, Design)
            assert read.design.privacy.satisfies(read.guarantee)
            assert len(read.key) == 32
            assert read.to_json() == edited
    assert refused > 150


REFUSED = {
    ("unit",): ["reward"],
    ("seeded",): [0],
    ("arms",): ["ab", ["a", "a"]],
    ("utilities",): [{"one": 1.0}],
    ("design", "scale"): [1.5, "2.0"],
    ("design", "rewards"): [3],
    ("design", "mechanism"): ["laplace"],
    ("design", "prior"): [[1.0]],
    ("design", "growth"): [1],
    ("design", "worths"): [[0.0, 1.0]],
    ("design", "more"): [1],
    ("guarantee",): ['{"kind": "PureDP", "epsilon": 0.5}', '{"kind": "os"}'],
}


def test_facts_that_contradict_others_are_refused_and_the_grammar_is_closed():
    text = settings(contribution=2).to_json()
    facts = json.loads(text)
    for place, values in REFUSED.items():
        for value in values:
            with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
                Settings.from_json(json.dumps(changed(facts, place, "change", value)))
    for edited in (
        text.replace(", ", ","),
        text + " ",
        text.replace('"growth": 1.0', '"growth": 1.0000'),
        text.replace('"growth": 1.0', '"growth": 2.0, "growth": 1.0'),
        json.dumps(dict(reversed(facts.items()))),
    ):
        assert edited != text
        with pytest.raises(ValueError, match="written"):
            Settings.from_json(edited)
