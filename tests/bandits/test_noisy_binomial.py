"""The closed form against the sum over all counts, and its slope against the sum of slopes."""

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from pymc_dirdp.bandits.batch_release import BatchNoise, log_probability, slope
from pymc_dirdp.errors import ArgumentError

MEANS = np.array([1e-9, 1e-3, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-7])


def summed(z, n, mu, scale):
    x = np.arange(n + 1)[:, None]
    return logsumexp(binom.logpmf(x, n, mu) - np.abs(z - x) / scale, axis=0) + np.log(np.tanh(0.5 / scale))


@pytest.mark.parametrize("scale", [1000, 100, 10, 1, 0.3, 0.05])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 30, 97, 200])
def test_the_closed_form_is_the_sum(n, scale):
    for z in sorted({-3 * n, -1, 0, 1, n // 3, n - 1, n, n + 1, 4 * n}):
        expected = summed(z, n, MEANS, scale)
        assert log_probability(z, n, MEANS, scale) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_all_outputs_have_probability_one():
    z = np.arange(-400, 700)
    distribution = np.exp([log_probability(int(one), 50, [0.02, 0.4], 5.0) for one in z])
    assert distribution.sum(axis=0) == pytest.approx([1, 1], rel=1e-12)


@pytest.mark.parametrize(("z", "n", "mu"), [(0, 3000, 0.9), (2999, 3000, 0.01), (10, 5000, 0.5), (-5, 2000, 0.99)])
@pytest.mark.thorough
def test_far_from_every_likely_count_the_logarithm_keeps_its_digits(z, n, mu):
    """Both halves are below the least double there. Oracle: 60 digits."""
    with mpmath.workdps(60):
        p, q = mpmath.mpf(mu), mpmath.exp(-mpmath.mpf(1) / 3)
        terms = (mpmath.binomial(n, x) * p**x * (1 - p) ** (n - x) * q ** abs(z - x) for x in range(n + 1))
        expected = float(mpmath.log(mpmath.fsum(terms) * (1 - q) / (1 + q)))
    assert log_probability(z, n, [mu], 3.0)[0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("z", [-2, 0, 3, 9, 12, 20])
def test_the_slope_is_that_of_the_sum(z):
    n, scale, mu = 12, 1.7, np.array([0.05, 0.3, 0.9])
    x = np.arange(n + 1)[:, None]
    weights = np.exp(binom.logpmf(x, n, mu) - np.abs(z - x) / scale)
    score = x / mu - (n - x) / (1 - mu)
    expected = (weights * score).sum(axis=0) / weights.sum(axis=0)
    assert slope(z, n, mu, scale) == pytest.approx(expected, rel=1e-10)
    assert slope(z, 0, mu, scale) == pytest.approx([0, 0, 0])


def test_the_slope_of_a_batch_is_that_of_finite_differences():
    mechanism = BatchNoise(2.0)
    means, h = np.array([0.1, 0.5, 0.8]), 1e-6
    ahead, behind = (mechanism.log_likelihood(7, 12, means + step) for step in (h, -h))
    np.testing.assert_allclose(mechanism.slope(7, 12, means), (ahead - behind) / (2 * h), rtol=1e-6)


def test_outside_of_all_sums_only_the_constant_changes():
    mu = np.linspace(0.01, 0.99, 50)
    for far, near in ((-9, -1), (40, 21)):
        difference = log_probability(far, 20, mu, 2.0) - log_probability(near, 20, mu, 2.0)
        assert np.ptp(difference) < 1e-12


@pytest.mark.parametrize("mu", [[0.0], [1.0], [0.5, np.nan]])
def test_means_lie_strictly_inside(mu):
    with pytest.raises(ArgumentError, match="strictly between 0 and 1"):
        log_probability(1, 3, mu, 1.0)
