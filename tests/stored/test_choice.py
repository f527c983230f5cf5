"""Files of bins and of structures in which any one thing is wrong: they are refused, and one error says so."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.mechanisms.tree import TreeMechanism
from pymc_dirdp.stored.bins import Bins
from pymc_dirdp.stored.readable import digest, in_lines
from pymc_dirdp.stored.structure import Structure

KEPT = {"guarantee": dirdp.PureDP(epsilon=2.0), "unit": "record", "entry": Receipt("0" * 32, 1, "0" * 64)}
KEPT |= {"identity": "0" * 32, "reproducible": False, "library_version": "0.1.0"}
CHOICES = {
    "bins": Bins(column="age", edges=(18.0, 65.0), mechanism=QuantilesMechanism(3, n_candidates=9, scale=8.0), **KEPT),
    "structure": Structure(
        parents=(("rain", ()), ("wet", ("rain",))),
        mechanism=TreeMechanism((2, 3), 8.0, 10.0, "geometric"),
        **KEPT,
    ),
}
STRANGE = [None, -1, 0, 1, True, 10**400, 0.5, float("nan"), float("inf"), "", "x", "\x1b[2J\n", "9" * 5000]
STRANGE += [[], {}, [[]]]


def places(facts, path=()):
    """Every place in nested dicts and lists."""
    for key, value in facts.items() if isinstance(facts, dict) else enumerate(facts):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(facts, path, value, *, left_out=False):
    found = copy.deepcopy(facts)
    inside = found
    for key in path[:-1]:
        inside = inside[key]
    if left_out:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return found


def read(kind, facts):
    """The choice and no text, or the text of the one error that is allowed."""
    try:
        return kind.from_facts(facts), ""
    except ArgumentError as error:
        return None, str(error)


@pytest.mark.parametrize("name", CHOICES)
def test_what_was_written_is_read(name, tmp_path):
    choice, path = CHOICES[name], tmp_path / "choice.json"
    choice.to_json(path)
    assert type(choice).from_json(path) == choice
    assert json.loads(path.read_text())["format"] == f"pymc_dirdp {name}"
    other = CHOICES["bins" if name == "structure" else "structure"]
    with pytest.raises(ArgumentError, match=f"no {other.called} such as"):
        type(other).from_json(path)


@pytest.mark.parametrize("name", CHOICES)
@settings(max_examples=300)
@given(data=st.data())
def test_one_thing_that_is_wrong_is_one_error(name, data):
    """A file with a digest of its own, as whoever writes it can make."""
    choice = CHOICES[name]
    facts = choice.facts
    path = data.draw(st.sampled_from(list(places(facts))))
    left_out = data.draw(st.booleans())
    wrong = changed(facts, path, data.draw(st.sampled_from(STRANGE)), left_out=left_out)
    found, said = read(type(choice), wrong)
    assert "\x1b" not in said
    assert len(said) < 1500
    if found is not None:
        # It says something else that is true of itself.
        assert found.mechanism.satisfies(found.guarantee)
        assert json.loads(json.dumps(found.facts)) == wrong


@pytest.mark.parametrize("name", CHOICES)
def test_a_stronger_promise_is_not_believed(name, tmp_path):
    choice, path = CHOICES[name], tmp_path / "choice.json"
    facts = choice.facts
    stronger = dirdp.PureDP(epsilon=choice.mechanism.pure_epsilon * 0.99)
    facts |= {"promise": str(stronger), "guarantee": {"kind": "PureDP", "epsilon": stronger.epsilon}}
    path.write_text(in_lines({"digest": digest(facts)} | facts))
    with pytest.raises(ArgumentError, match="does not keep"):
        type(choice).from_json(path)
    # The same file with a promise that it keeps is read.
    weaker = dirdp.PureDP(epsilon=choice.mechanism.pure_epsilon * 1.01)
    facts |= {"promise": str(weaker), "guarantee": {"kind": "PureDP", "epsilon": weaker.epsilon}}
    path.write_text(in_lines({"digest": digest(facts)} | facts))
    assert type(choice).from_json(path).guarantee == weaker
