"""A wide table planned, charged, released, and read from its text, of which nothing is believed."""

import contextlib
import copy
import itertools
import json
import pickle
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError, ReleaseError
from pymc_dirdp.releases import pairs_drawn
from pymc_dirdp.releases.opened import content_of
from pymc_dirdp.releases.pairs import PairsPlan, PairsRelease
from pymc_dirdp.texts.grammar import parse
from tests.planned import planned_sample
from tests.releases.kinds import APPROX, CATEGORIES, GUARANTEES, RECORDS, made_up


@pytest.fixture(scope="module")
def model():
    return dirdp.latent_class(RECORDS, categories=CATEGORIES)


@pytest.fixture(scope="module")
def release(model):
    return dirdp.sample(APPROX, model)


@pytest.mark.parametrize(
    ("guarantee", "adjacency"), list(zip(GUARANTEES, itertools.cycle(["replace-one", "add-remove"]), strict=False))
)
def test_every_kind_of_guarantee_is_planned_charged_and_verified(guarantee, adjacency, model, tmp_path):
    ledger = dirdp.Ledger(guarantee, adjacency=adjacency)
    plan = dirdp.plan(guarantee, model, adjacency=adjacency)
    assert dirdp.verify(plan)
    release = dirdp.sample(plan, model, ledger=ledger)
    assert [entry.digest for entry in ledger.entries()] == [plan.digest]
    with pytest.raises(BudgetError):
        dirdp.sample(plan, model, ledger=ledger)
    path = tmp_path / "release.json"
    dirdp.save(release, path)
    assert dirdp.load(path).identical(release)
    assert dirdp.verify(path)
    assert str(guarantee) in str(dirdp.report(path, full=True))
    assert str(guarantee) in str(dirdp.statement(path))


def test_the_number_of_records_is_public_or_nowhere(model, release):
    private = dirdp.plan(APPROX, model, adjacency="add-remove")
    assert dirdp.plan(APPROX, model).n_records == 900
    assert private.n_records is None
    assert "900" not in private.text
    noisy = content_of(dirdp.sample(private, model)).noisy.n_records
    assert noisy != 900
    assert noisy == pytest.approx(900, abs=200)
    assert content_of(release).noisy.n_records == 900


def test_people_with_several_records(model):
    records = RECORDS | {"who": np.arange(900) // 3}
    people = dirdp.latent_class(records, categories=CATEGORIES, unit="who", contribution=2)
    plan = dirdp.plan(APPROX, people, adjacency="add-remove")
    assert plan.mechanism.parameter > 1.9 * dirdp.plan(APPROX, model, adjacency="add-remove").mechanism.parameter
    release = dirdp.sample(plan, people)
    assert "every who" in str(dirdp.report(release))
    assert content_of(release).noisy.n_records == pytest.approx(600, abs=300)
    for options, words in (({}, "add-remove"), ({"adjacency": "add-remove", "contribution": 2}, "contribution=")):
        with pytest.raises(ArgumentError, match=words):
            dirdp.plan(APPROX, people, **options)


def test_what_was_chosen_before_is_covered():
    ages, part = {"age": np.arange(900) % 60}, dirdp.ApproxDP(epsilon=0.3, delta=1e-7)
    bins = dirdp.choose_bins(part, ages, "age", n_bins=3, candidates=range(5, 60, 5), ledger=None)
    records = RECORDS | {"age": bins.label(ages["age"])}
    model = dirdp.latent_class(records, categories=CATEGORIES | {"age": bins.labels})
    with pytest.raises(ArgumentError, match="after=bins"):
        dirdp.plan(APPROX, model)
    plan = dirdp.plan(APPROX, model, after=bins)
    assert plan.composition.satisfies(APPROX)
    assert plan.mechanism.epsilon(1e-6) < 0.99
    release = dirdp.sample(plan, model)
    assert "bins" in str(dirdp.report(release, full=True))
    assert dirdp.verify(release)


def test_a_plan_is_for_its_own_model_and_has_no_options_of_tables(model):
    plan = dirdp.plan(APPROX, model)
    network = dirdp.bayesian_network(RECORDS, {"a": [], "b": ["a"]}, categories=CATEGORIES)
    others = [
        dirdp.latent_class(made_up(901), categories=CATEGORIES),
        dirdp.latent_class(RECORDS, categories={name: CATEGORIES[name] for name in ("b", "a", "c", "one")}),
        dirdp.latent_class(RECORDS, categories=CATEGORIES | {"one": ["only", "more"]}),
        network,
    ]
    for own, other in [*((plan, other) for other in others), (dirdp.plan(APPROX, network), model)]:
        with pytest.raises(ArgumentError, match=r"plan|another model"):
            dirdp.sample(own, other)
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.sample(plan, model, adjacency="add-remove")
    options = ({"released_draws": 2}, {"mechanism": "geometric"}, {"weights": {"a": 1}}, {"sampler": "fast"})
    for option in options:
        with pytest.raises(ArgumentError, match=next(iter(option))):
            planned_sample(APPROX, model, **option)


def test_the_records_are_looked_at_after_the_charge(model, monkeypatch):
    monkeypatch.setattr(pairs_drawn, "tabulate_columns", Mock(side_effect=DataError("a value.")))
    ledger = dirdp.Ledger(APPROX)
    with pytest.raises(DataError, match="charged"):
        dirdp.sample(APPROX, model, ledger=ledger)
    assert len(ledger.entries()) == 1


def test_a_release_is_its_text(release):
    assert release._repr_html_().startswith(dirdp.report(release)._repr_html_())
    stored = content_of(release)
    assert isinstance(parse(stored.text.encode()), PairsRelease)
    again = [copy.copy(stored), copy.deepcopy(stored), pickle.loads(pickle.dumps(stored)), parse(stored.text.encode())]
    assert {one.text for one in again} == {stored.text}
    assert parse(stored.plan.text.encode()) == stored.plan
    assert isinstance(pickle.loads(pickle.dumps(stored.plan)), PairsPlan)


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
def test_texts_that_contradict_themselves(release, what, text_of_facts):
    facts = json.loads(content_of(release).text)
    del facts["digest"]
    FORGED[what](facts)
    with pytest.raises(ReleaseError):
        parse(text_of_facts(facts).encode())


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
    path, plan = tmp_path / "less.json", tmp_path / "plan.json"
    path.write_text(less.text)
    plan.write_text(less.plan.text)
    assert not dirdp.verify(path)
    assert "does not hold" in str(dirdp.verify(path))
    with pytest.raises(Exception, match="does not satisfy"):
        dirdp.load(plan)


def test_an_edited_tree_is_seen(release):
    assert dirdp.verify(release)
    stated, drawn = release.copy(deep=True), release.copy(deep=True)
    stated["privacy"].attrs["statement"] = "0.001-differential privacy"
    drawn["posterior"]["p_a"] = drawn["posterior"]["p_a"] * 0
    for tree in (stated, drawn):
        assert not dirdp.verify(tree)
        assert not dirdp.report(tree).title.startswith("Private pairs")


@pytest.mark.parametrize("verb", ["analyse", "release_logp", "diagnose", "private_model"])
def test_verbs_about_tables_say_what_takes_pairs(verb, release):
    with pytest.raises((ReleaseError, ArgumentError, TypeError)) as raised:
        getattr(dirdp, verb)(release)
    assert "900" not in str(raised.value)


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
    network = dirdp.sample(APPROX, dirdp.bayesian_network(RECORDS, {"a": []}, categories=CATEGORIES))
    with pytest.raises(ArgumentError, match="wide table"):
        dirdp.estimate(network, columns=["a"])
