"""Counts given a list of noisy counts: against sums by hand, and truths among draws."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare, kstest, nbinom

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.sparse_cells import SparsePosterior, SparsePrior, occupied
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism


@pytest.mark.parametrize(
    ("n_cells", "n_records", "n_occupied"), [(100, 1000.0, 60.0), (10**10, 1e6, 1e4), (2**63 - 1, 50.0, 49.0)]
)
def test_the_prior_expects_what_it_says(n_cells, n_records, n_occupied):
    prior = SparsePrior(n_records, n_occupied, n_cells)
    shape = prior.concentration / n_cells
    counts = nbinom(shape, prior.concentration / (prior.concentration + n_records))
    assert n_cells * counts.mean() == pytest.approx(n_records)
    with mpmath.workdps(50):
        a, total = mpmath.mpf(prior.concentration) / n_cells, mpmath.mpf(prior.concentration)
        empty = (total / (total + n_records)) ** a
        assert float(n_cells * (1 - empty)) == pytest.approx(n_occupied, rel=1e-8)
        for x in (0, 1, 2, 70):
            ways = mpmath.rf(a, x) / mpmath.factorial(x)
            exact = mpmath.log(ways) + a * mpmath.log(total / (total + n_records))
            exact += x * mpmath.log(n_records / (total + n_records))
            assert prior.log_mass(np.array([x]))[0] == pytest.approx(float(exact), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(
    ("n_records", "n_occupied"), [(10.0, 10.0), (10.0, 20.0), (1e9, 100.0), (0.0, 1.0), (1.0, -1.0)]
)
def test_priors_that_cannot_be(n_records, n_occupied):
    with pytest.raises(ArgumentError):
        SparsePrior(n_records, n_occupied, 100)


def posterior_of(n_cells=1000, threshold=9, scale=2.0, noisy=(), n_records=500.0, n_occupied=50.0):
    mechanism = SparseGeometricMechanism(n_cells, threshold, scale)
    return SparsePosterior(mechanism, np.array(noisy, dtype=np.int64), SparsePrior(n_records, n_occupied, n_cells))


def summary(posteriors):
    return posteriors.means[0], posteriors.variances[0], occupied(posteriors)[0]


def by_hand(posterior, likelihood):
    """Mean, variance and the probability of a record, by sums over counts with 40 digits."""
    with mpmath.workdps(40):
        a, total = (
            mpmath.mpf(posterior.prior.concentration) / posterior.prior.n_cells,
            mpmath.mpf(posterior.prior.concentration),
        )
        ratio = posterior.prior.n_records / (posterior.prior.n_records + total)
        weights, ways = [], mpmath.mpf(1)
        for x in range(1500):
            weights.append(ways * ratio**x * likelihood(x))
            ways *= (a + x) / (x + 1)
        whole = mpmath.fsum(weights)
        mean = mpmath.fsum(x * w for x, w in enumerate(weights)) / whole
        variance = mpmath.fsum((x - mean) ** 2 * w for x, w in enumerate(weights)) / whole
        return float(mean), float(variance), float(1 - weights[0] / whole)


@pytest.mark.parametrize("z", [9, 15, 40, 700])
def test_a_listed_cell_by_hand(z):
    posterior = posterior_of(noisy=[z])
    expected = by_hand(posterior, lambda x: mpmath.exp(-mpmath.mpf(abs(z - x)) / 2))
    assert summary(posterior.given(posterior.noisy)) == pytest.approx(expected, rel=1e-9)


def test_another_cell_by_hand():
    posterior = posterior_of()
    q = mpmath.exp(mpmath.mpf(-1) / 2)

    def below(x):
        return 1 - q ** (9 - x) / (1 + q) if x < 9 else q ** (x - 8) / (1 + q)

    assert summary(posterior.other) == pytest.approx(by_hand(posterior, below), rel=1e-9)


@pytest.mark.parametrize("z", [10_000, 10**7, 10**12, 2**53 - 1000, 2**53])
def test_large_counts(z):
    """By a prior that hardly knows what to expect, a large noisy count is a large count."""
    posterior = posterior_of(n_cells=10**10, threshold=50, noisy=[z], n_records=1e15, n_occupied=1000.0)
    mean, variance, holds = summary(posterior.given(posterior.noisy))
    assert mean == pytest.approx(z, rel=1e-3)
    # Laplace noise of scale 2 on integers has the variance 2 q / (1 - q)^2.
    q = math.exp(-0.5)
    # Above 2^53 every other integer is a double.
    assert z == 2**53 or variance == pytest.approx(2 * q / (1 - q) ** 2, rel=1e-3)
    assert holds == pytest.approx(1.0)


def test_a_prior_that_contradicts_the_list():
    """A prior by which no cell holds 5000 records takes a noisy count of 5000 for noise, in two parts or in one."""
    posterior = posterior_of(n_cells=10**6, threshold=50, noisy=[1200], n_records=10.0, n_occupied=9.0)
    found = summary(posterior.given(posterior.noisy))
    expected = by_hand(posterior, lambda x: mpmath.exp(-mpmath.mpf(abs(1200 - x)) / 2))
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] < 1


def test_noise_of_billions():
    """The prior is nearly flat there, and the noise Laplace's: a count has its scale, and is cut at 0."""
    scale, z = 2.0**30, 2**37
    posterior = posterior_of(n_cells=10**10, threshold=2**36, scale=scale, noisy=[z], n_records=1e15, n_occupied=1000.0)
    mean, variance, holds = summary(posterior.given(posterior.noisy))
    assert mean == pytest.approx(z, rel=0.03)
    assert variance == pytest.approx(2 * scale**2, rel=0.1)
    assert holds == pytest.approx(1.0)


def test_draws_have_the_posterior():
    posterior = posterior_of(noisy=[9, 30, 9])
    listed, others = posterior.draw(20_000, np.random.default_rng(1))
    assert listed.shape == (20_000, 3)
    for i, z in enumerate((9, 30, 9)):
        each, x = posterior.given(np.array([z])), np.arange(100)
        weights = np.exp(each.log_pmf(x.astype(float), np.zeros(100, dtype=int)))
        keep = weights > 1e-3
        seen = np.array([(listed[:, i] == count).sum() for count in x[keep]])
        expected = 20_000 * weights[keep]
        seen, expected = np.append(seen, 20_000 - seen.sum()), np.append(expected, 20_000 - expected.sum())
        assert chisquare(seen, expected).pvalue > 1e-6
    # The sum over the others has their mean and variance, five standard errors.
    mean, variance = posterior.n_others * posterior.other.means[0], posterior.n_others * posterior.other.variances[0]
    assert abs(others.mean() - mean) < 5 * math.sqrt(variance / 20_000)
    assert others.var() == pytest.approx(variance, rel=0.15)


def test_truths_lie_among_draws_as_often_as_they_should():
    """Tables from the prior, lists from tables: the ranks of the truths among 49 draws are uniform."""
    n_cells, scale, threshold, draws, tables = 400, 2.0, 6, 49, 300
    mechanism, prior = SparseGeometricMechanism(n_cells, threshold, scale), SparsePrior(300.0, 40.0, n_cells)
    rng = np.random.default_rng(7)
    shape = prior.concentration / n_cells
    ranks: dict[str, list[float]] = {"listed": [], "total": [], "naive": []}
    for _ in range(tables):
        truth = rng.negative_binomial(shape, prior.concentration / (prior.concentration + 300.0), n_cells)
        cells = np.flatnonzero(truth)
        listed, noisy = mechanism.release(cells, truth[cells], random_seed=rng)
        posterior = SparsePosterior(mechanism, noisy, prior)
        drawn, others = posterior.draw(draws, rng)
        totals = drawn.sum(axis=1) + others
        ranks["total"].append((np.sum(totals < truth.sum()) + rng.random() * (1 + np.sum(totals == truth.sum()))) / 50)
        if len(listed):
            of_first, here = drawn[:, 0], truth[listed[0]]
            ranks["listed"].append((np.sum(of_first < here) + rng.random() * (1 + np.sum(of_first == here))) / 50)
            noise = mechanism.dense.noise_for((draws,), rng)
            around = noisy[0] + noise
            ranks["naive"].append((np.sum(around < here) + rng.random() * (1 + np.sum(around == here))) / 50)
    assert kstest(ranks["listed"], "uniform").pvalue > 1e-4
    assert kstest(ranks["total"], "uniform").pvalue > 1e-4
    # Who reads a noisy count as the count, noise and all, forgets that it was listed because of its noise.
    assert kstest(ranks["naive"], "uniform").pvalue < 1e-6
