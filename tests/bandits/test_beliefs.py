"""Posteriors on a grid: against quadrature, against draws, and wherever the mass may lie."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from pymc_dirdp.bandits.batch_release import BatchNoise, log_probability
from pymc_dirdp.bandits.beliefs import CELLS, Belief, Grid, best_probabilities, expected_losses

NOISE = BatchNoise(2.0)


@pytest.mark.parametrize("prior", [(0.05, 0.05), (300.0, 2.0), (0.5, 4000.0)])
def test_prior_masses_are_those_of_the_beta_distribution(prior):
    belief = Belief(prior, NOISE)
    lower = stats.beta(*prior).cdf(np.sin(belief.grid.angles) ** 2)
    upper = stats.beta(*prior[::-1]).cdf(np.sin(np.pi / 2 - belief.grid.angles) ** 2)
    assert belief.cdf == pytest.approx(np.where(belief.grid.angles < 1, lower, 1 - upper), abs=1e-12)
    assert belief.weights.shape == (CELLS,)


def test_tails_of_the_prior_keep_their_digits_where_the_mass_is_elsewhere():
    low, high = Grid(1.2, 1.5), Belief((2.0, 3000.0), NOISE).grid
    logs = low.log_prior((2.0, 3000.0))
    middle = low.means
    expected = 1.5 * np.log(middle) + 2999.5 * np.log1p(-middle)
    assert np.ptp((logs - expected)[:1500]) < 0.1
    assert np.isfinite(high.log_prior((2.0, 3000.0))).all()


@pytest.mark.parametrize("batches", [((5, 3),), ((5, 9), (10, -4)), ((3, 1), (300, 2), (3000, 40))])
def test_means_are_those_of_quadrature(batches):
    belief = Belief((1.0, 2.0), NOISE, batches).narrowed()

    def density(mu):
        logs = sum(log_probability(z, n, [mu], NOISE.scale)[0] for n, z in batches)
        return np.exp(logs - top) * (1 - mu)

    grid = np.linspace(1e-4, 1 - 1e-4, 3000)
    top = sum(log_probability(z, n, grid, NOISE.scale) for n, z in batches).max()
    low, high = np.sin(belief.grid.low) ** 2, np.sin(belief.grid.high) ** 2
    whole = quad(density, low, high, limit=500, epsabs=0)[0]
    mean = quad(lambda mu: mu * density(mu), low, high, limit=500, epsabs=0)[0] / whole
    assert belief.mean == pytest.approx(mean, rel=2e-6)


def test_a_narrow_posterior_gets_a_fine_grid():
    draws = Belief((1.0, 1.0), NOISE, ((10**8, 3 * 10**7),)).narrowed().draw(4000, np.random.default_rng(1))
    assert stats.kstest(draws, stats.norm(0.3, np.sqrt(0.3 * 0.7 / 1e8)).cdf).pvalue > 1e-6
    assert draws.std() == pytest.approx(np.sqrt(0.3 * 0.7 / 1e8), rel=0.06)


def test_the_best_arm_is_that_of_draws():
    beliefs = [Belief((1.0, 1.0), NOISE, one) for one in (((10, 6),), ((10, 5), (10, 9)), ())]
    draws = np.stack([one.draw(50_000, np.random.default_rng(k)) for k, one in enumerate(beliefs)])
    seen = np.bincount(draws.argmax(axis=0), minlength=3) / draws.shape[1]
    on_one_grid = best_probabilities(np.stack([one.weights for one in beliefs]))
    best, losses = expected_losses([one.narrowed() for one in beliefs])
    assert on_one_grid == pytest.approx(seen, abs=0.01)
    assert best == pytest.approx(on_one_grid, abs=1e-5)
    assert losses == pytest.approx(draws.max(axis=0).mean() - draws.mean(axis=1), abs=0.004)


@pytest.mark.parametrize("batches", [((50, 20), (50, 90), (400, 100)), ((10**4, 4000), (10**4, 9000))])
def test_one_batch_after_the_other_gives_the_same_posterior(batches):
    belief = Belief((1.0, 1.0), NOISE)
    for size, released in batches:
        belief = belief.and_batch(size, released)
    at_once = Belief((1.0, 1.0), NOISE, batches).narrowed()
    assert belief.batches == at_once.batches
    assert belief.mean == pytest.approx(at_once.mean, rel=1e-6)
