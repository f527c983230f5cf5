"""The plan and the release of a wide table, as texts: what is said, what is believed, and what is refused."""

import contextlib
import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.releases.opened import content_of
from pymc_dirdp.releases.pairs import PairsPlan, PairsRelease
from pymc_dirdp.texts.grammar import digest, parse
from tests.releases.wide_records import CATEGORIES, RECORDS, TARGET


@pytest.fixture(scope="module")
def model():
    return dirdp.latent_class(RECORDS, categories=CATEGORIES)


@pytest.fixture(scope="module")
def release(model):
    return dirdp.sample(TARGET, model)


def edited(tree, change):
    """The text of a release with other facts, and with the digest that these have."""
    facts = json.loads(content_of(tree).text)
    del facts["digest"]
    change(facts)
    return understood_again(facts)


def understood_again(facts):
    text = json.dumps({"digest": digest(facts)} | facts)
    return text.encode()


# A text is its facts, and nothing that it says is believed.


def test_a_release_is_its_text(release):
    stored = content_of(release)
    assert isinstance(parse(stored.text.encode()), PairsRelease)
    assert parse(stored.text.encode()).text == stored.text
    for again in (copy.copy(stored), copy.deepcopy(stored), pickle.loads(pickle.dumps(stored))):
        assert again.text == stored.text
    plan = stored.plan
    assert parse(plan.text.encode()) == plan
    assert isinstance(pickle.loads(pickle.dumps(plan)), PairsPlan)


FORGED = {
    "counts": lambda facts: facts["counts"][0].pop(),
    "lengths": lambda facts: facts["plan"]["mechanism"]["lengths"].__setitem__(0, 4),
    "people": lambda facts: facts["plan"]["people"].update(contribution=5),
    "float": lambda facts: facts["counts"][0].__setitem__(0, float(facts["counts"][0][0])),
    "table": lambda facts: facts["counts"].pop(),
    "name": lambda facts: facts["plan"]["columns"][0].__setitem__(0, "b"),
    "extra": lambda facts: facts.update(secret=1),
}


@pytest.mark.parametrize("what", FORGED)
def test_texts_that_contradict_themselves(release, what):
    with pytest.raises(ReleaseError):
        parse(edited(release, FORGED[what]))


@pytest.mark.parametrize("number", [2**62, -(2**62), 2**40])
def test_counts_that_no_table_has_are_fitted_or_refused(release, number, tmp_path):
    stored = content_of(release)
    huge = replace(stored, counts=tuple(np.full_like(counts, number) for counts in stored.counts))
    path = tmp_path / "huge.json"
    path.write_text(huge.text)
    found = None
    with contextlib.suppress(ReleaseError):
        found = dirdp.log_likelihood(path, RECORDS)
    assert found is None or np.isfinite(found).all()


def test_less_noise_than_the_guarantee_needs_is_a_false_statement(release, tmp_path):
    stored = content_of(release)
    less = replace(stored, plan=replace(stored.plan, mechanism=replace(stored.plan.mechanism, parameter=2.0)))
    path = tmp_path / "less.json"
    path.write_text(less.text)
    assert not dirdp.verify(path)
    assert "does not hold" in str(dirdp.verify(path))
    plan = tmp_path / "plan.json"
    plan.write_text(less.plan.text)
    with pytest.raises(Exception, match="does not satisfy"):
        dirdp.load(plan)


@pytest.mark.parametrize("verb", ["analyse", "release_logp", "diagnose", "private_model"])
def test_verbs_about_tables_say_what_takes_pairs(verb, release):
    with pytest.raises((ReleaseError, ArgumentError, TypeError)) as raised:
        getattr(dirdp, verb)(release)
    assert "900" not in str(raised.value)


def test_an_edited_tree_is_seen(release):
    assert dirdp.verify(release)
    tree = release.copy(deep=True)
    tree["privacy"].attrs["statement"] = "0.001-differential privacy"
    assert not dirdp.verify(tree)
    tree = release.copy(deep=True)
    tree["posterior"]["p_a"] = tree["posterior"]["p_a"] * 0
    assert not dirdp.verify(tree)
    assert not dirdp.report(tree).title.startswith("Private pairs")


def test_estimates_of_one_two_and_three_columns(release):
    alone = dirdp.estimate(release)
    assert list(alone.frame().index)[:3] == ["a[x]", "a[y]", "a[z]"]
    pair = dirdp.estimate(release, [0.9], columns=["a", "c"]).frame()
    assert list(pair.index) == [f"a, c[{a}, {c}]" for a in "xyz" for c in (0, 1)]
    assert (pair["share_low_0.9"] <= pair["share"]).all()
    assert (pair["share"] <= pair["share_high_0.9"]).all()
    assert np.abs(pair["share"] - 1 / 6).max() < 0.1
    assert "bootstrap" in str(dirdp.estimate(release, columns=["a", "b", "c"]))
    assert dirdp.estimate(dirdp.fit(release), columns=["a", "c"], prob=[0.9]).frame().equals(pair)
    for columns in (["a", "a"], ["e"], [], ["a", "b", "c", "one"], "a"):
        with pytest.raises(ArgumentError):
            dirdp.estimate(release, columns=columns)
    with pytest.raises(ArgumentError, match="prior"):
        dirdp.estimate(release, prior=[1, 1, 1])
    network = dirdp.sample(TARGET, dirdp.bayesian_network(RECORDS, {"a": []}, categories=CATEGORIES))
    with pytest.raises(ArgumentError, match="wide table"):
        dirdp.estimate(network, columns=["a"])
