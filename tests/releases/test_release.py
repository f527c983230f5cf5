"""Plan, release, report and synthetic data: what is guaranteed, and that nothing else comes out."""

import dataclasses
import inspect
import math
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.odds import Odds
from pymc_dirdp.releases.plan import Options, Planning, Sampling
from tests.planned import planned_sample

HAIR = [108, 286, 71, 127]  # Snee (1974)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair_model(counts=HAIR, n=592, **data):
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=n, p=p, observed=counts, **data)
    return model


def admissions_model(admitted=(601, 370, 322), applied=(933, 585, 918)):
    with pm.Model(coords={"department": list("ABC")}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=applied, p=rate, observed=admitted)
    return model


def seeded(*args, **kwargs):
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        return planned_sample(*args, random_seed=1, **kwargs)


def test_a_release_looks_like_what_pm_sample_returns():
    release = dirdp.sample(TARGET, hair_model())
    p = release["posterior"]["p"]
    assert p.dims == ("chain", "draw", "hair")
    assert p.shape == (1, 1, 4)
    assert list(p["hair"].values) == ["black", "brown", "red", "blond"]
    np.testing.assert_allclose(p.sum("hair"), 1)
    assert set(release.children) == {"posterior", "mechanism", "privacy", "utility", "release"}


def test_the_curves_of_the_release_are_those_of_its_mechanism():
    release = dirdp.sample(TARGET, hair_model())
    group = release["mechanism/p"]
    mechanism = dirdp.mechanisms.DirichletMechanism(group["alpha"].values, float(group["r"]))
    curves = dirdp.interop.as_mechanism(release)
    orders, epsilons = np.array([1.0, 2.0, 8.0, 64.0]), np.array([0.01, 0.3, 1.0, 5.0])
    np.testing.assert_array_equal(curves.renyi(orders), mechanism.renyi(orders))
    np.testing.assert_array_equal(curves.delta(epsilons), mechanism.delta(epsilons))
    assert mechanism.satisfies(TARGET)
    # Tight too: the guarantee that was asked for is the one that is used.
    assert curves.epsilon(1e-6) == pytest.approx(1.0, rel=1e-8)


def test_a_beta_is_the_probability_of_success():
    release = dirdp.sample(dirdp.RenyiDP(order=2, epsilon=100), admissions_model())
    # The guarantee is loose and N large: a draw lies within a few standard errors of the rates.
    np.testing.assert_allclose(
        release["posterior"]["rate"].values[0, 0], np.divide([601, 370, 322], [933, 585, 918]), atol=0.2
    )
    assert list(release["mechanism/rate"]["rate_outcome"].values) == ["success", "failure"]


def test_a_loose_guarantee_gives_back_the_posterior():
    (part,) = dirdp.plan(dirdp.RenyiDP(order=1.5, epsilon=50), hair_model()).parts
    assert part.mechanism.r == 1.0
    np.testing.assert_array_equal(part.mechanism.alpha, [1, 1, 1, 1])


@pytest.fixture(scope="module")
def many_draws():
    return seeded(dirdp.RenyiDP(order=8, epsilon=20_000.0), hair_model(), released_draws=20_000)


@pytest.mark.parametrize("scale", [1.0, 0.7, 1.3])
@pytest.mark.thorough
def test_sample_draws_from_the_distribution_that_it_states(many_draws, scale):
    """The p-value threshold is 1e-6; r off by 30 per cent must be rejected at the same threshold."""
    release = many_draws
    group = release["mechanism/p"]
    u = scale * float(group["r"]) * np.array(HAIR) + group["alpha"].values
    p_value = stats.kstest(release["posterior"]["p"].values[0, :, 0], stats.beta(u[0], u.sum() - u[0]).cdf).pvalue
    assert (p_value > 1e-6) == (scale == 1.0)


def test_draws_are_accounted_for():
    target = dirdp.RenyiDP(order=4, epsilon=0.5)
    plan = dirdp.plan(target, hair_model(), released_draws=7)
    (part,) = plan.parts
    assert 7 * part.mechanism.renyi(4) <= 0.5
    assert 7 * part.mechanism.renyi(4) == pytest.approx(0.5, rel=1e-8)
    assert dirdp.sample(plan, hair_model())["posterior"]["p"].shape == (1, 7, 4)
    several = dirdp.plan(TARGET, hair_model(), released_draws=7)
    assert several.composition.satisfies(TARGET)
    assert several.composition.epsilon(TARGET.delta) > 0.98
    assert several.parts[0].mechanism.epsilon(TARGET.delta) < 0.6


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_plan_is_the_same_bytes_for_other_data(adjacency):
    size = {} if adjacency == "replace-one" else {"n_records": 500}

    def public(counts, n=592):
        return pickle.dumps(dirdp.plan(TARGET, hair_model(counts, n), adjacency=adjacency, **size))

    assert public(HAIR) == public([107, 287, 71, 127]) == public([592, 0, 0, 0])
    if adjacency == "add-remove":
        assert public(HAIR) == public([108, 286, 71, 126], 591)


def test_plan_does_not_depend_on_how_the_records_are_spread_over_rows():
    first = admissions_model(applied=(933, 585, 918))
    second = admissions_model(applied=(918, 933, 585))
    third = admissions_model(admitted=(0, 0, 0), applied=(2434, 1, 1))
    assert len({pickle.dumps(dirdp.plan(TARGET, model)) for model in (first, second, third)}) == 1


def test_only_the_posterior_of_a_release_depends_on_the_data():
    first, second = (seeded(TARGET, hair_model(counts)) for counts in (HAIR, [592, 0, 0, 0]))
    for group in ("mechanism/p", "privacy", "utility"):
        assert first[group].to_dataset().identical(second[group].to_dataset())
    assert str(dirdp.report(first, full=True)) == str(dirdp.report(second, full=True))


def test_add_remove_keeps_the_number_of_records_private(numbers_in):
    plan = dirdp.plan(TARGET, hair_model(), adjacency="add-remove", mechanism=Dirichlet(strategy="temper"))
    assert plan.parts[0].n_records is None
    # Nobody spoke of a strategy, so the error does not, and its ways out work.
    with pytest.raises(dirdp.errors.ArgumentError, match=r"^The best Dirichlet draw .* Pass n_records=.*'geometric'"):
        dirdp.plan(TARGET, hair_model(), adjacency="add-remove")
    assert dirdp.plan(TARGET, hair_model(), adjacency="add-remove", mechanism="geometric").parts
    release = dirdp.sample(TARGET, hair_model(), adjacency="add-remove", n_records=1000)
    assert release["utility"]["n_records"].values.tolist() == [1000]
    assert 592 not in numbers_in(str(dirdp.report(release, full=True)))
    with pytest.raises(dirdp.errors.ArgumentError, match="Under replace-one"):
        dirdp.plan(TARGET, hair_model(), n_records=592)


def test_sample_takes_the_options_of_plan():
    options = {field.name for field in dataclasses.fields(Options)}
    assert set(Planning.__annotations__) == options
    assert options < set(inspect.signature(dirdp.plan).parameters)
    assert set(Sampling.__annotations__) == options & set(inspect.signature(dirdp.sample).parameters)
    for function, names in ((dirdp.plan, options), (dirdp.sample, Sampling.__annotations__)):
        parameters = inspect.getdoc(function).partition("Parameters\n---")[2].partition("\nReturns\n")[0]
        assert all(re.search(rf"^(\w+, )*{name}\b", parameters, re.MULTILINE) for name in names)
        assert "**planning" not in function.__doc__


def test_a_seeded_release_says_that_it_is_not_private():
    first, second = seeded(TARGET, hair_model()), seeded(TARGET, hair_model())
    assert first["posterior"]["p"].identical(second["posterior"]["p"])
    assert first.attrs["reproducible"] == "not private"
    assert "not private" in str(dirdp.report(first, full=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = [dirdp.sample(TARGET, hair_model())["posterior"]["p"].values for _ in range(2)]
    assert not np.array_equal(*draws)


def test_no_records_give_a_draw_from_the_private_prior():
    release = dirdp.sample(TARGET, hair_model([0, 0, 0, 0], 0))
    np.testing.assert_array_equal(release["mechanism/p"]["alpha"], [1, 1, 1, 1])
    assert np.isnan(release["utility"]["expected_kl_estimate"].item())
    assert "records" in str(dirdp.report(release, full=True))


def test_synthetic_data_use_the_release_alone():
    release = dirdp.sample(TARGET, hair_model())
    synthetic = dirdp.releases.sample_posterior_predictive(release, n_records=10**6, random_seed=3)
    assert set(synthetic.children) == {"posterior_predictive"}
    students = synthetic["posterior_predictive"]["students"]
    assert int(students.sum()) == 10**6
    np.testing.assert_allclose(students.values / 1e6, release["posterior"]["p"].values, atol=0.003)
    beta = dirdp.releases.sample_posterior_predictive(dirdp.sample(TARGET, admissions_model()), n_records=50)
    assert beta["posterior_predictive"]["admitted"].dims == ("chain", "draw", "department")


@pytest.mark.parametrize("epsilon", [5.0, 710.0, 1e5])
def test_a_guarantee_of_any_size_can_be_reported(epsilon):
    """Found by fuzzing: exp(710) is no double."""
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=epsilon, delta=1e-6), hair_model())
    odds = dict(dict(dirdp.report(plan, full=True).sections)["Guarantee"])["posterior odds"]
    exact = math.exp(Odds(plan.composition, 1e-6, "a").log_factor)
    assert exact <= float(odds.split()[1]) <= 1.01 * exact, "from above"


def test_an_error_of_the_data_is_no_free_answer():
    """At 0.1.0 `min_count=k` with an empty ledger told the smallest cell, and nothing was recorded."""
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(dirdp.errors.DataError, match=r"min_count.*The ledger has been charged"):
        planned_sample(TARGET, hair_model(), min_count=72, ledger=ledger)
    assert len(ledger.entries()) == 1
    # With nothing left the answer is the same whether the guarantee holds or not.
    for min_count in (72, 71):
        with pytest.raises(dirdp.errors.BudgetError):
            planned_sample(TARGET, hair_model(), min_count=min_count, ledger=ledger)
    with pytest.raises(dirdp.errors.DataError, match=r"must hold for every possible data set\.$"):
        planned_sample(TARGET, hair_model(), min_count=72)


def test_an_entry_holds_the_unit_the_assumptions_and_the_plan():
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5))
    chosen = dirdp.plan(TARGET, hair_model(), contribution=2, min_count=3)
    dirdp.sample(chosen, hair_model(), ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.unit == "at most 2 records"
    assert entry.contribution == 2
    assert entry.min_count == 3
    assert entry.digest == chosen.digest
    assert dirdp.plan(TARGET, hair_model(), contribution=3).digest != chosen.digest
    with pytest.raises(dirdp.errors.ArgumentError, match="Keep a ledger for each unit"):
        dirdp.sample(TARGET, hair_model(), ledger=ledger)


@pytest.mark.thorough
def test_the_digest_of_a_plan_is_the_same_in_another_process():
    code = (
        "import pymc as pm, pymc_dirdp as dirdp\n"
        "with pm.Model(coords={'hair': ['black', 'brown', 'red', 'blond']}) as model:\n"
        "    p = pm.Dirichlet('p', a=[1, 1, 1, 1], dims='hair')\n"
        "    pm.Multinomial('students', n=592, p=p, observed=[108, 286, 71, 127])\n"
        "print(dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model).digest)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split()[-1] == dirdp.plan(TARGET, hair_model()).digest


def test_data_in_the_place_of_another_argument_are_not_printed():
    counts = [48611, 31337]
    for call in (
        lambda: dirdp.sample(counts, hair_model()),
        lambda: dirdp.plan(TARGET, hair_model(), mechanism=counts),
        lambda: dirdp.Ledger(np.array(counts)),
        lambda: dirdp.Ledger(TARGET).spend(np.array(counts), what="x"),
        lambda: dirdp.bayesian_network(
            {"a": [], "b": ["a"]}, {"a": ["48611"], "b": ["31337"]}, categories={"a": ["u"]}
        ),
    ):
        with pytest.raises(dirdp.errors.ArgumentError) as error:
            call()
        assert "48611" not in str(error.value)
        assert "31337" not in str(error.value)
