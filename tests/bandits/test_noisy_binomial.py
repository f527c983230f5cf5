"""The closed form against the sum over all counts, and its slope against the sum of slopes."""

import itertools

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from pymc_dirdp.bandits.batch_release import BatchNoise, log_probability
from pymc_dirdp.errors import ArgumentError

MEANS = np.array([1e-9, 1e-3, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-7])


def summed(z, n, mu, scale):
    x = np.arange(n + 1)[:, None]
    return logsumexp(binom.logpmf(x, n, mu) - np.abs(z - x) / scale, axis=0) + np.log(np.tanh(0.5 / scale))


def test_the_closed_form_is_the_sum():
    for scale, n in itertools.product([1000, 10, 1, 0.3, 0.05], [0, 1, 2, 5, 97]):
        for z in sorted({-3 * n, -1, 0, 1, n // 3, n - 1, n, n + 1, 4 * n}):
            expected = summed(z, n, MEANS, scale)
            assert log_probability(z, n, MEANS, scale) == pytest.approx(expected, rel=1e-12, abs=1e-12), (z, n, scale)


@pytest.mark.parametrize(("z", "n", "mu"), [(2999, 3000, 0.01), (-5, 2000, 0.99)])
def test_far_from_every_likely_count_the_logarithm_keeps_its_digits(z, n, mu):
    """Both halves are below the least double there. Oracle: 60 digits."""
    with mpmath.workdps(60):
        p, q = mpmath.mpf(mu), mpmath.exp(-mpmath.mpf(1) / 3)
        terms = (mpmath.binomial(n, x) * p**x * (1 - p) ** (n - x) * q ** abs(z - x) for x in range(n + 1))
        expected = float(mpmath.log(mpmath.fsum(terms) * (1 - q) / (1 + q)))
    assert log_probability(z, n, [mu], 3.0)[0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("z", [-2, 0, 7, 12, 20])
def test_the_slope_of_a_batch_is_that_of_the_sum(z):
    n, scale, mu = 12, 1.7, np.array([0.05, 0.3, 0.9])
    mechanism, x = BatchNoise(scale), np.arange(n + 1)[:, None]
    weights = np.exp(binom.logpmf(x, n, mu) - np.abs(z - x) / mechanism.scale)
    score = x / mu - (n - x) / (1 - mu)
    assert mechanism.slope(z, n, mu) == pytest.approx((weights * score).sum(axis=0) / weights.sum(axis=0), rel=1e-10)
    assert mechanism.slope(z, 0, mu) == pytest.approx([0, 0, 0])
    assert mechanism.log_likelihood(z, n, mu) == pytest.approx(summed(z, n, mu, mechanism.scale), rel=1e-12)


@pytest.mark.parametrize("mu", [[0.0], [1.0], [0.5, np.nan]])
def test_means_lie_strictly_inside(mu):
    with pytest.raises(ArgumentError, match="strictly between 0 and 1"):
        log_probability(1, 3, mu, 1.0)
