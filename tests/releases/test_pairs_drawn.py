"""A wide table planned, charged and released: every kind of guarantee, people, other models and odd options."""

import itertools

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError
from pymc_dirdp.releases.opened import content_of
from tests.planned import planned_sample
from tests.releases.wide_records import CATEGORIES, KINDS, RECORDS, TARGET, made_up


@pytest.fixture(scope="module")
def model():
    return dirdp.latent_class(RECORDS, categories=CATEGORIES)


@pytest.fixture(scope="module")
def release(model):
    return dirdp.sample(TARGET, model)


# What is guaranteed.


@pytest.mark.parametrize(
    ("guarantee", "adjacency"), list(zip(KINDS, itertools.cycle(["replace-one", "add-remove"]), strict=False))
)
def test_every_kind_of_guarantee_is_planned_charged_and_verified(guarantee, adjacency, model, tmp_path):
    ledger = dirdp.Ledger(guarantee, adjacency=adjacency)
    plan = dirdp.plan(guarantee, model, adjacency=adjacency)
    assert dirdp.verify(plan)
    release = dirdp.sample(plan, model, ledger=ledger)
    assert dirdp.verify(release)
    assert len(ledger.entries()) == 1
    assert ledger.entries()[0].digest == plan.digest
    with pytest.raises(BudgetError):
        dirdp.sample(plan, model, ledger=ledger)
    path = tmp_path / "release.json"
    dirdp.save(release, path)
    assert dirdp.load(path).identical(release)
    assert dirdp.verify(path)
    assert str(guarantee) in str(dirdp.report(path, full=True))
    assert str(guarantee) in str(dirdp.statement(path))


def test_the_number_of_records_is_public_or_nowhere(model):
    public, private = dirdp.plan(TARGET, model), dirdp.plan(TARGET, model, adjacency="add-remove")
    assert public.n_records == 900
    assert private.n_records is None
    assert "900" not in private.text
    release = content_of(dirdp.sample(private, model))
    assert release.noisy.n_records != 900
    assert release.noisy.n_records == pytest.approx(900, abs=200)
    assert content_of(dirdp.sample(public, model)).noisy.n_records == 900


def test_people_with_several_records():
    records = RECORDS | {"who": np.arange(900) // 3}
    model = dirdp.latent_class(records, categories=CATEGORIES, unit="who", contribution=2)
    with pytest.raises(ArgumentError, match="add-remove"):
        dirdp.plan(TARGET, model)
    plan = dirdp.plan(TARGET, model, adjacency="add-remove")
    assert plan.mechanism.contribution == 2
    of_records = dirdp.plan(TARGET, dirdp.latent_class(RECORDS, categories=CATEGORIES), adjacency="add-remove")
    assert plan.mechanism.parameter > 1.9 * of_records.mechanism.parameter
    release = dirdp.sample(plan, model)
    assert "every who" in str(dirdp.report(release))
    assert content_of(release).noisy.n_records == pytest.approx(600, abs=300)
    with pytest.raises(ArgumentError, match="contribution="):
        dirdp.plan(TARGET, model, adjacency="add-remove", contribution=2)


def test_what_was_chosen_before_is_covered():
    ages = {"age": np.arange(900) % 60}
    bins = dirdp.choose_bins(
        dirdp.ApproxDP(epsilon=0.3, delta=1e-7), ages, "age", n_bins=3, candidates=range(5, 60, 5), ledger=None
    )
    records = RECORDS | {"age": bins.label(ages["age"])}
    model = dirdp.latent_class(records, categories=CATEGORIES | {"age": bins.labels})
    with pytest.raises(ArgumentError, match="after=bins"):
        dirdp.plan(TARGET, model)
    plan = dirdp.plan(TARGET, model, after=bins)
    assert plan.composition.satisfies(TARGET)
    assert plan.mechanism.epsilon(1e-6) < 0.99
    release = dirdp.sample(plan, model)
    assert "bins" in str(dirdp.report(release, full=True))
    assert dirdp.verify(release)


# Other models, and other options.


def test_a_plan_is_for_its_own_model(model, release):
    plan = dirdp.plan(TARGET, model)
    others = [
        dirdp.latent_class(made_up(901), categories=CATEGORIES),
        dirdp.latent_class(RECORDS, categories={name: CATEGORIES[name] for name in ("b", "a", "c", "one")}),
        dirdp.latent_class(RECORDS, categories=CATEGORIES | {"one": ["only", "more"]}),
    ]
    for other in others:
        with pytest.raises(ArgumentError, match="plan"):
            dirdp.sample(plan, other)
    network = dirdp.bayesian_network(RECORDS, {"a": [], "b": ["a"]}, categories=CATEGORIES)
    with pytest.raises(ArgumentError, match="another model"):
        dirdp.sample(plan, network)
    with pytest.raises(ArgumentError, match="another model"):
        dirdp.sample(dirdp.plan(TARGET, network), model)
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.sample(plan, model, adjacency="add-remove")


@pytest.mark.parametrize(
    "option", [{"released_draws": 2}, {"mechanism": "geometric"}, {"weights": {"a": 1}}, {"strategy": "x"}]
)
def test_options_of_tables_and_draws_are_refused(model, option):
    with pytest.raises(ArgumentError, match=next(iter(option))):
        planned_sample(TARGET, model, **option)


def test_floating_point_is_refused(model):
    with pytest.raises(ArgumentError, match="sampler"):
        dirdp.plan(TARGET, model, sampler="fast")


def test_the_records_are_looked_at_after_the_charge(model, monkeypatch):
    from pymc_dirdp.releases import pairs_drawn

    def broken(*_, **options):
        raise DataError("a value.")

    monkeypatch.setattr(pairs_drawn, "tabulate_columns", broken)
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(DataError, match="charged"):
        dirdp.sample(TARGET, model, ledger=ledger)
    assert len(ledger.entries()) == 1
