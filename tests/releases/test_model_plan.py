"""Plans of private models: what they say, the forecast against exact posteriors, and as input of a release."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import beta

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.outcomes import ModelOptions
from pymc_dirdp.releases.model_plan import KNOWN, Chain, prior_data
from pymc_dirdp.releases.model_terms import planned_tables, read_model, with_terms

PURE = dirdp.PureDP(epsilon=0.2)


def one_share(observed=(0,) * 100):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=list(observed))
    return model


def rates(observed=(3, 0, 5)):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.2, shape=3)
        pm.Poisson("y", rate, observed=list(observed))
    return model


def exact_widening(simulations):
    """The same ratio on a grid of p, without NUTS: of Beta posteriors and of their mixtures given noisy counts."""
    rng, grid, n = np.random.default_rng(5), (np.arange(4000) + 0.5) / 4000, 100
    part = dirdp.plan(PURE, one_share(), any_model=True, simulations=0).tables.parts[0]
    x = np.arange(n + 1)
    ratios = []
    for _ in range(simulations):
        y = rng.binomial(n, rng.random())
        noisy = part.mechanism.releases(np.array([n - y, y], dtype=float), 1, random_seed=rng)[0]
        logs = part.mechanism.log_likelihood(noisy, np.stack([n - x, x], axis=1))
        weights = np.exp(logs - logsumexp(logs))
        cdf = beta.cdf(grid[:, None], x + 1, n - x + 1) @ weights
        low, high = np.interp([0.05, 0.95], cdf, grid)
        ratios.append((high - low) / np.subtract(*beta.ppf([0.95, 0.05], y + 1, n - y + 1)))
    return np.median(ratios)


@pytest.mark.thorough
def test_the_forecast_is_that_of_exact_posteriors():
    model = one_share()
    chosen = dirdp.plan(
        PURE, model, any_model=True, against=[dirdp.PureDP(epsilon=5.0)], simulations=40, progressbar=False
    )
    here, weak = chosen.widening["p"].values()
    expected = exact_widening(400)
    assert here == pytest.approx(expected, rel=0.1)
    assert expected > 1.3
    assert weak == pytest.approx(1.0, abs=0.1)
    assert "2 cells" in str(chosen)
    assert "40 data sets" in str(chosen)
    assert list(chosen.frame().index) == ["p"]


def test_a_plan_is_input_of_a_release():
    model = rates()
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), adjacency="add-remove")
    chosen = dirdp.plan(PURE, model, any_model=True, counts=["y"], simulations=0)
    assert chosen.cells == {"y": 3}
    assert "none: simulations=0" in str(chosen)
    opened = len(ledger.entries())
    private = dirdp.private_model(chosen, model, ledger=ledger)
    assert len(ledger.entries()) == opened + 1
    assert [rv.name for rv in private.free_RVs] == ["rate"]
    with pytest.raises(ArgumentError, match="a plan of a model decides"):
        dirdp.private_model(chosen, model, counts=["y"])


def test_the_tables_of_a_plan_are_a_file(tmp_path):
    model, path = rates(), tmp_path / "plan.json"
    dirdp.save(dirdp.plan(PURE, model, any_model=True, counts=["y"], simulations=0).tables, path)
    private = dirdp.private_model(path, model, counts=["y"])
    assert private.potentials[0].name == "y_release"
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(path, one_share())


def test_a_model_that_changed_is_refused_before_the_charge():
    chosen = dirdp.plan(PURE, one_share(), any_model=True, simulations=0)
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0))
    opened = ledger.entries()
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(chosen, one_share([0] * 101), ledger=ledger)
    with pm.Model() as other:
        pm.Categorical("y", pm.Dirichlet("p", [1, 1, 1]), observed=[0] * 100)
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(chosen, other, ledger=ledger)
    assert ledger.entries() == opened


def test_no_number_of_a_plan_depends_on_records():
    plans = [
        dirdp.plan(PURE, one_share(y), any_model=True, simulations=3, progressbar=False) for y in ([0] * 100, [1] * 100)
    ]
    assert plans[0].widening == plans[1].widening
    assert plans[0].tables == plans[1].tables


def test_what_is_said_wrongly():
    with pytest.raises(ArgumentError, match="n_records"):
        dirdp.plan(PURE, one_share(), any_model=True, adjacency="add-remove")
    with pytest.raises(TypeError, match="strategy"):
        dirdp.plan(PURE, one_share(), any_model=True, strategy="temper")
    with pytest.raises(ArgumentError, match="any_model=True"):
        dirdp.plan(PURE, one_share(), any_model=False)
    with pytest.raises(ArgumentError, match="simulations"):
        dirdp.plan(PURE, one_share(), any_model=True, simulations=-1)


@pytest.mark.parametrize("private", [False, True])
def test_simulated_counts_have_the_size_that_is_public(private):
    options = ModelOptions(adjacency="add-remove" if private else "replace-one")
    found = read_model(one_share(), options)
    terms = with_terms(found, planned_tables(PURE, found, options), None)
    simulate = prior_data(found, terms.model, 300 if private else None)
    sizes = [simulate(np.random.default_rng(k))[1]["y"].sum() for k in range(200)]
    if private:
        assert abs(np.mean(sizes) - 300) < 5 * np.sqrt(300 / 200)
        assert len(set(sizes)) > 20
    else:
        assert set(sizes) == {100}


def test_a_chain_draws_from_the_posterior():
    """Counts that are known leave the Beta posterior; a chain that reads other counts is told apart."""
    options = ModelOptions()
    found = read_model(one_share(), options)
    chosen = planned_tables(PURE, found, options)
    terms = with_terms(found, chosen, None)
    chain, rng = Chain(terms, found), np.random.default_rng(2)
    terms.publish({"y": KNOWN}, {"y": np.array([70.0, 30.0])})
    draws = chain.draws({"p": 0.3}, rng, 500, 4000)[:, 0]
    low, high = beta.ppf([1e-7, 1 - 1e-7], 31 * 300, 71 * 300)
    # 4000 draws, of which some 1000 are worth an independent one, are worth more than 300.
    assert low < draws.mean() < high
    assert not low < draws.mean() + 0.02 < high
    assert draws.std() == pytest.approx(beta.std(31, 71), rel=0.15)
