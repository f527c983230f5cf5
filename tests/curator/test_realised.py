"""Errors of cells and of estimates on the data: against formulas, draws and releases rebuilt."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import digamma

import pymc_dirdp as dirdp
from pymc_dirdp.curator.realised import (
    Distribution,
    _cell_errors,
    _ranked,
    by_size,
    frequencies,
    fresh_estimates,
    kl_of_draws,
    kl_of_estimates,
)
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.planning.draw_error import DrawError, expected_kl

TARGET = dirdp.ApproxDP(epsilon=0.5, delta=1e-6)
COUNTS = np.array([2, 300, 60, 138])


def survey(counts=COUNTS):
    with pm.Model(coords={"answer": list("abcd")}) as model:
        p = pm.Dirichlet("p", np.ones(4), dims="answer")
        pm.Multinomial("n", n=int(np.sum(counts)), p=p, observed=counts, dims="answer")
    return model


def posterior_of(model):
    (table,) = dirdp.tables(model)
    return Distribution(table, COUNTS.astype(float), table.prior, 1.0)


@pytest.fixture(scope="module")
def diagnosed():
    model = survey()
    release = dirdp.sample(TARGET, model)
    return release, dirdp.diagnose(release, model, draws=100)["cells/p"].to_dataset()


def test_the_bias_of_a_cell_is_equation_3(diagnosed):
    """Oracle: P1's formula as it is printed, for a flat alpha, with its sign."""
    release, cells = diagnosed
    group = release["mechanism/p"]
    alpha, r, n, d = float(group["alpha"][0]), float(group["r"]), COUNTS.sum(), 4
    printed = alpha * np.abs(n - d * COUNTS) / (n * (r * n + d * alpha))
    np.testing.assert_allclose(np.abs(cells["bias_of_draw"]), printed)
    # The mean of a draw is drawn to the middle.
    np.testing.assert_array_equal(np.sign(cells["bias_of_draw"]), np.sign(n - d * COUNTS))


def test_the_error_of_an_estimate_is_about_the_shares_of_the_data():
    """Oracle: root mean squares by hand, of two estimates whose own mean is far from the data."""
    distribution, shares = posterior_of(survey()), np.array([[0.1, 0.5, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2]])
    found = _cell_errors(distribution, None, shares[0], shares[0], shares)
    by_hand = np.sqrt(((shares - COUNTS / 500) ** 2).sum(axis=0) / 2)
    np.testing.assert_allclose(found["error_of_estimate"], by_hand)
    np.testing.assert_array_equal(found["estimate"], shares[0])
    assert set(found.data_vars) == {"records", "share", "estimate", "error_of_estimate", "posterior_parameter"}


def test_a_share_is_one_of_its_row():
    counts = np.array([[1.0, 3.0], [20.0, 20.0], [0.0, 0.0]])
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((3, 2)))
        pm.Multinomial("n", n=[4, 40, 0], p=p, observed=counts)
    (table,) = dirdp.tables(model)
    found = _cell_errors(Distribution(table, counts, table.prior, 1.0), None, counts, counts, np.zeros((0, 3, 2)))
    np.testing.assert_array_equal(found["share"], [[0.25, 0.75], [0.5, 0.5], [np.nan, np.nan]])


def test_the_divergence_of_an_estimate_is_that_of_draws_of_the_posterior():
    """Oracle: the mean divergence over draws, and the formula by hand."""
    distribution, estimate = posterior_of(survey()), np.array([0.1, 0.5, 0.2, 0.2])
    p = np.random.default_rng(2).dirichlet(COUNTS + 1, 200_000)
    divergence = (p * np.log(p / estimate)).sum(axis=1)
    found = float(kl_of_estimates(distribution, estimate))
    assert abs(found - divergence.mean()) < 6 * divergence.std() / np.sqrt(len(p))
    u = COUNTS + 1
    by_hand = (u / u.sum() * (digamma(u + 1) - digamma(u.sum() + 1) - np.log(estimate))).sum()
    assert found == pytest.approx(by_hand)
    several = kl_of_estimates(distribution, np.array([estimate, estimate[::-1]]))
    assert several[0] == found
    assert several[1] > found


@pytest.mark.thorough
def test_ranks_of_estimates_are_uniform():
    """And those of a release whose noise is of another size are not."""
    model = survey()
    plan = dirdp.plan(TARGET, model, mechanism="geometric")
    distribution, rng = posterior_of(model), np.random.default_rng(3)
    others = kl_of_estimates(
        distribution, fresh_estimates(distribution, plan.parts[0].mechanism, public=True, draws=1, rng=rng)
    )

    def errors(plan, n):
        estimates = (dirdp.estimate(dirdp.sample(plan, model)).tables["p"].share_means for _ in range(n))
        return [float(kl_of_estimates(distribution, estimate)) for estimate in estimates]

    own = errors(plan, 100)
    assert stats.ks_2samp(own, others).pvalue > 1e-6
    assert 0.3 < np.mean([np.mean(others < error) for error in own]) < 0.7
    worse = dirdp.plan(dirdp.ApproxDP(epsilon=0.1, delta=1e-6), model, mechanism="geometric")
    assert stats.ks_2samp(errors(worse, 60), others).pvalue < 1e-6


def test_large_and_empty_tables_have_no_fresh_releases():
    full = posterior_of(survey())
    empty, mechanism = Distribution(full.table, np.zeros(4), full.prior, 1.0), DirichletMechanism(np.ones(4), 0.1)
    fresh = fresh_estimates(empty, mechanism, public=True, draws=1, rng=np.random.default_rng(1))
    assert fresh.shape == (0, 4)
    assert kl_of_estimates(empty, fresh).shape == (0,)


def test_the_expected_divergence_of_a_table_is_the_mean_over_its_draws():
    """Oracles: 20,000 draws; by hand, where one row has no record; and `DrawError` row by row."""
    counts, mechanism = np.array([[108, 286, 71, 127], [0, 0, 0, 0], [3, 0, 1, 0]]), np.full((3, 4), 2.0)
    u = 0.2 * counts + mechanism
    y = DirichletMechanism(mechanism, 0.2).sample(counts, released_draws=20_000, sampler="fast", random_seed=1)
    of_draws = kl_of_draws(counts, y)
    expected = float(by_size(counts, expected_kl(frequencies(counts), u)))
    assert of_draws.mean() == pytest.approx(expected, abs=5 * of_draws.std() / np.sqrt(len(y)))
    rows = [DrawError(counts[i] / counts[i].sum(), u[i]) for i in (0, 2)]
    assert expected == pytest.approx((592 * rows[0].mean + 4 * rows[1].mean) / 596, rel=1e-12)
    p = counts[0] / 592
    first = (592 * (p * np.log(p / y[0, 0])).sum() + 4 * (0.75 * np.log(0.75 / y[0, 2, 0]))) / 596
    assert of_draws[0] == pytest.approx(first + 4 * 0.25 * np.log(0.25 / y[0, 2, 2]) / 596)


def test_a_rank_is_the_share_of_a_reference_that_is_smaller():
    others = np.array([3.0, 1.0, 2.0, 2.0])
    errors = _ranked("kl", np.array([0.5, 2.0, 2.5, 9.0, np.nan, np.inf]), others, None)
    np.testing.assert_array_equal(errors["kl_rank"], [0, 0.25, 0.75, 1, np.nan, np.nan])
    assert np.isnan(errors["kl_expected"])
    assert np.isnan(_ranked("kl", np.array(1.0), others[:0], 0.5)["kl_rank"])
