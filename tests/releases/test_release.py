"""Plan, release, report and synthetic data: what is guaranteed, and that nothing else comes out."""

import os
import pickle
import re

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError, SeededReleaseWarning
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.sampling.exact import urn_counts
from tests.planned import STUDENTS, hair_model, planned_sample

TARGET, RENYI = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.RenyiDP(order=2, epsilon=0.5)
ALL_BLACK, ADD_REMOVE = (592, 0, 0, 0), {"adjacency": "add-remove"}
COUNTS = [48611, 31337]
CODES = {"a": ["48611"], "b": ["31337"]}


def admissions_model(admitted=(601, 370, 322), applied=(933, 585, 918)):
    with pm.Model(coords={"department": list("ABC")}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=applied, p=rate, observed=admitted)
    return model


def seeded(*args, **kwargs):
    with pytest.warns(SeededReleaseWarning):
        return planned_sample(*args, random_seed=1, **kwargs)


def test_a_release_looks_like_what_pm_sample_returns_and_has_the_curves_of_its_mechanism():
    release = dirdp.sample(TARGET, hair_model())
    p = release["posterior"]["p"]
    assert p.dims == ("chain", "draw", "hair")
    assert p.shape == (1, 1, 4)
    assert list(p["hair"].values) == ["black", "brown", "red", "blond"]
    np.testing.assert_allclose(p.sum("hair"), 1)
    assert set(release.children) == {"posterior", "mechanism", "privacy", "utility", "release"}
    group = release["mechanism/p"]
    mechanism = dirdp.mechanisms.DirichletMechanism(group["alpha"].values, float(group["r"]))
    curves = dirdp.interop.as_mechanism(release)
    orders, epsilons = np.array([1.0, 2.0, 8.0, 64.0]), np.array([0.01, 0.3, 1.0, 5.0])
    np.testing.assert_array_equal(curves.renyi(orders), mechanism.renyi(orders))
    np.testing.assert_array_equal(curves.delta(epsilons), mechanism.delta(epsilons))
    assert mechanism.satisfies(TARGET)
    assert curves.epsilon(1e-6) == pytest.approx(1.0, rel=1e-8)


def test_a_loose_guarantee_gives_back_the_posterior():
    (part,) = dirdp.plan(dirdp.RenyiDP(order=1.5, epsilon=50), hair_model()).parts
    assert part.mechanism.r == 1.0
    np.testing.assert_array_equal(part.mechanism.alpha, [1, 1, 1, 1])
    release = dirdp.sample(dirdp.RenyiDP(order=2, epsilon=100), admissions_model())
    rates = np.divide([601, 370, 322], [933, 585, 918])
    np.testing.assert_allclose(release["posterior"]["rate"].values[0, 0], rates, atol=0.2)
    assert list(release["mechanism/rate"]["rate_outcome"].values) == ["success", "failure"]


@pytest.mark.thorough
def test_sample_draws_from_the_distribution_that_it_states():
    """The p-value threshold is 1e-6; r off by 30 per cent must be rejected at the same threshold."""
    many = seeded(dirdp.RenyiDP(order=8, epsilon=8_000.0), hair_model(), released_draws=8_000)
    group, drawn = many["mechanism/p"], many["posterior"]["p"].values[0, :, 0]
    for scale in (1.0, 0.7, 1.3):
        u = scale * float(group["r"]) * np.array(STUDENTS) + group["alpha"].values
        assert (stats.kstest(drawn, stats.beta(u[0], u.sum() - u[0]).cdf).pvalue > 1e-6) == (scale == 1.0)


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ([hair_model(), hair_model(ALL_BLACK)], {}),
        ([hair_model(), hair_model(ALL_BLACK), hair_model((108, 286, 71, 126))], ADD_REMOVE | {"n_records": 500}),
        ([admissions_model(), admissions_model((0, 0, 0), (2434, 1, 1))], {}),
    ],
    ids=["replace-one", "add-remove", "rows"],
)
def test_a_plan_is_the_same_bytes_for_other_data(models, options):
    assert len({pickle.dumps(dirdp.plan(TARGET, model, **options)) for model in models}) == 1


def test_only_the_posterior_of_a_release_depends_on_the_data():
    first, second = (seeded(TARGET, hair_model(counts)) for counts in (STUDENTS, ALL_BLACK))
    for group in ("mechanism/p", "privacy", "utility"):
        assert first[group].to_dataset().identical(second[group].to_dataset())
    assert str(dirdp.report(first, full=True)) == str(dirdp.report(second, full=True))


def test_add_remove_makes_the_number_of_records_private(numbers_in):
    plan = dirdp.plan(TARGET, hair_model(), **ADD_REMOVE, mechanism=Dirichlet(strategy="temper"))
    assert plan.parts[0].n_records is None
    with pytest.raises(ArgumentError, match=r"^The best Dirichlet draw .* Pass n_records=.*'geometric'"):
        dirdp.plan(TARGET, hair_model(), **ADD_REMOVE)
    assert dirdp.plan(TARGET, hair_model(), **ADD_REMOVE, mechanism="geometric").parts
    release = dirdp.sample(TARGET, hair_model(), **ADD_REMOVE, n_records=1000)
    assert release["utility"]["n_records"].values.tolist() == [1000]
    assert 592 not in numbers_in(str(dirdp.report(release, full=True)))
    with pytest.raises(ArgumentError, match="Under replace-one"):
        dirdp.plan(TARGET, hair_model(), n_records=592)


def test_an_error_of_the_data_is_no_free_answer():
    """At 0.1.0 `min_count=k` with an empty ledger showed the smallest cell, and nothing was recorded."""
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(DataError, match=r"min_count.*The ledger has been charged"):
        planned_sample(TARGET, hair_model(), min_count=72, ledger=ledger)
    assert len(ledger.entries()) == 1
    for min_count in (72, 71):
        with pytest.raises(BudgetError):
            planned_sample(TARGET, hair_model(), min_count=min_count, ledger=ledger)
    with pytest.raises(DataError, match=r"must hold for every possible data set\.$"):
        planned_sample(TARGET, hair_model(), min_count=72)


def test_an_entry_has_the_unit_the_assumptions_and_the_plan():
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5))
    chosen = dirdp.plan(TARGET, hair_model(), contribution=2, min_count=3)
    dirdp.sample(chosen, hair_model(), ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.unit, entry.contribution, entry.min_count) == ("at most 2 records", 2, 3)
    assert entry.digest == chosen.digest
    assert dirdp.plan(TARGET, hair_model(), contribution=3).digest != chosen.digest
    with pytest.raises(ArgumentError, match="Keep a ledger for each unit"):
        dirdp.sample(TARGET, hair_model(), ledger=ledger)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dirdp.sample(COUNTS, hair_model()),
        lambda: dirdp.plan(TARGET, hair_model(), mechanism=COUNTS),
        lambda: dirdp.Ledger(np.array(COUNTS)),
        lambda: dirdp.Ledger(TARGET).spend(np.array(COUNTS), what="x"),
        lambda: dirdp.bayesian_network({"a": [], "b": ["a"]}, CODES, categories={"a": ["u"]}),
    ],
)
def test_data_in_the_place_of_another_argument_are_not_printed(call):
    with pytest.raises(ArgumentError) as error:
        call()
    assert not re.search("48611|31337", str(error.value))


def two_tables():
    with pm.Model() as model:
        for name in ("a", "b"):
            pm.Multinomial(f"{name}_seen", n=90, p=pm.Dirichlet(name, a=np.ones(3)), observed=[30, 30, 30])
    return model


def test_a_release_lies_on_its_public_grid_and_says_so():
    release = planned_sample(RENYI, two_tables(), sampler="exact", released_draws=3)
    attrs = release["mechanism/a"].attrs
    assert attrs["sampler"] == "exact"
    assert np.all(urn_counts(release["posterior"]["a"].values, attrs["steps"]) >= 0)
    text = " ".join(str(dirdp.report(release, full=True)).split())
    assert "integers: the release has the proved distribution" in text
    assert f"on a grid of {attrs['steps']} steps" in text


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_bits_come_from_the_operating_system_unless_there_is_a_seed_and_tables_share_none(monkeypatch):
    asked, real, model = [], os.urandom, two_tables()
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or real(size))
    own = planned_sample(RENYI, model, sampler="exact")
    assert sum(asked) >= 64 * 1024
    asked.clear()
    first, second = (planned_sample(RENYI, model, sampler="exact", random_seed=5) for _ in range(2))
    assert not asked
    assert first.attrs["reproducible"] == "not private"
    assert first["posterior"]["a"].equals(second["posterior"]["a"])
    for release in (own, first):
        assert not np.array_equal(release["posterior"]["a"].values, release["posterior"]["b"].values)


def test_exact_is_for_integers_and_steps_for_exact():
    with pytest.raises(ArgumentError, match="sampler"):
        planned_sample(RENYI, two_tables(), sampler="exakt")
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.2)
    for wrong in ({"sampler": "fast", "steps": 100}, {"sampler": "exact", "steps": 0}):
        with pytest.raises(ArgumentError, match="steps"):
            mechanism.sample([108, 286, 71, 127], **wrong)
    assert dirdp.mechanisms.DirichletMechanism([1e-9, 1e12], 1e-9).sample([5, 5], steps=100).shape == (1, 2)


def test_the_grid_uses_public_numbers_only():
    """With rows of very different sizes, which are secret, every row has as many steps."""
    mechanism = dirdp.mechanisms.DirichletMechanism(np.full((2, 3), 1.5), 0.5)
    assert mechanism.default_steps(1000) == 50_450
    y = mechanism.sample([[1000, 0, 0], [0, 0, 0]], sampler="exact", random_seed=1)[0]
    assert np.all(urn_counts(y, mechanism.default_steps(1000)) >= 0)


def test_no_records_give_a_draw_from_the_private_prior():
    release = dirdp.sample(TARGET, hair_model([0, 0, 0, 0]))
    np.testing.assert_array_equal(release["mechanism/p"]["alpha"], [1, 1, 1, 1])
    assert np.isnan(release["utility"]["expected_kl_estimate"].item())
