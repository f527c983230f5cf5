"""The likelihood of shares: against all tables one after the other, in many digits, and by its slopes."""

import math
from functools import partial, reduce

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput, number_of, pooled
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree, posterior_of
from pymc_dirdp.mechanisms import GeometricMechanism

from .posteriors import geometric, log_convolved, with_means


def test_shares_and_outputs_that_are_too_improbable_for_doubles():
    """The weights of counts differ by far more than doubles can: the logarithms are those of one table."""
    z = np.array([[20.0, 0.0], [10.0, 20.0]])

    def steep(own):
        return lambda counts, cells: -1e4 * np.abs(own[cells] - counts)

    rows = [RowPosterior(alpha=[1, 1], total=50, log_likelihood=steep(own)) for own in z]
    log_shares = np.array([[-900.0, 0.0], [-1.0, np.log(-np.expm1(-1.0))]])
    given = CountTree(rows, [np.zeros_like] * 2, 50, None, np.ones(2)).with_shares(log_shares)
    np.testing.assert_allclose(given.count_means, z, atol=1e-12)
    # 20 records in one row of 50 are as likely as any other number.
    expected = -math.log(51) + 20 * -900.0 + math.log(math.comb(30, 10)) - 10 + 20 * log_shares[1, 1]
    assert given.log_evidence == pytest.approx(expected, rel=1e-12)


def over_all_totals(log_prior, row_prior, cells):
    """The logarithm of the likelihood, from the logarithms of the weights of 0, 1, 2, ... records in each cell."""
    x = np.arange(cells.shape[-1] + 0.0)
    rows = [reduce(log_convolved, row) + gammaln(x + a) - gammaln(a) for row, a in zip(cells, row_prior, strict=True)]
    of_whole = gammaln(x + 1) + gammaln(row_prior.sum()) - gammaln(x + row_prior.sum())
    return logsumexp(reduce(log_convolved, rows) + of_whole + log_prior(x))


N_PRIORS = {
    "integer": 300,
    "range": range(3, 301),
    "array": np.exp(-np.arange(301) / 200),
    "gaps": np.arange(301) % 7 == 0,
    "public": None,
}


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("n_prior", N_PRIORS.values(), ids=N_PRIORS)
@pytest.mark.parametrize(("rows", "releases"), [(1, 1), (1, 2), (2, 1)])
def test_numbers_of_records_are_summed_wherever_shares_lead(rows, n_prior, releases, far):
    """Numbers far from the sum of the noisy counts were left out: as nearly impossible, but so is all that is far.

    Sums also ended at the first number that a prior excludes.
    """
    noisy = np.array([[200.0, 4.0], [12.0, 30.0]])[:rows] + np.zeros((releases, 1, 1))
    noisy[1:, 0] += [1, -2]
    shares = np.array([[0.02, 0.98], [0.9, 0.1]] if far else [[0.97, 0.03], [0.3, 0.7]])[:rows]
    if rows == 1:
        noisy, shares = noisy[:, 0], shares[0]
    known = {"n_records": 210} if n_prior is None else {}
    mechanism = GeometricMechanism(np.ones(shares.shape), 1.0, adjacency="replace-one" if known else "add-remove")
    outputs = [MechanismOutput(mechanism, z, prior=np.ones(shares.shape), **known).observed_table for z in noisy]
    seen, row_prior = pooled(outputs, own_prior=True), np.array([0.5, 2.0])[:rows]
    beliefs = Beliefs(n_prior=n_prior, row_prior=row_prior if rows > 1 else None)
    value, means = posterior_of(seen, beliefs).likelihood(np.log(shares))
    x = np.arange(301.0)
    noise = mechanism.cell_noise.log_noise(noisy[..., None] - x).sum(axis=0)
    cells = (np.log(shares)[..., None] * x - gammaln(x + 1) + noise).reshape(rows, 2, -1)
    log_prior = number_of(seen, n_prior)[1] or (lambda n: np.where(n == 210, 0.0, -np.inf))
    expected, wanted = with_means(partial(over_all_totals, log_prior, row_prior), cells)
    assert value == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(means.reshape(rows, 2), wanted, rtol=1e-8)


@pytest.mark.parametrize("z", [[270.0, 100.0, 830.0], [-100.0, 33.0, 17.0]], ids=["far from 0", "near 0"])
@pytest.mark.parametrize(("rows", "private"), [(1, True), (2, False), (2, True)])
def test_trees_in_units_are_off_by_the_square_of_the_unit(rows, private, z):
    """Near 0, too, where a private number of records may be any of a few units."""
    rng, scale = np.random.default_rng(rows), 83.0
    posteriors = [
        RowPosterior(alpha=[0.5, 1.0, 2.0], total=3000, log_likelihood=geometric(rng.permutation(z), scale))
        for _ in range(rows)
    ]
    log_prior = (lambda n: -3e-4 * n) if private else None
    every = CountTree(posteriors, [np.zeros_like] * rows, 3000, log_prior, np.arange(1.0, rows + 1))
    units = every.in_units(4.0)
    error = 20 * (units.unit / scale) ** 2
    assert abs(units.log_evidence - every.log_evidence) < error
    for found, exact in zip(units.rows, every.rows, strict=True):
        (means, sds), (true_means, true_sds) = found.count_moments, exact.count_moments
        assert np.all(np.abs(means - true_means) < error * true_sds)
        assert np.all(np.abs(sds / true_sds - 1) < error)
        # What shares are if there are fewer records than a unit is unknown.
        unknown = 3 * units.unit / scale if private else 0.0
        np.testing.assert_allclose(found.share_moments, exact.share_moments, rtol=2 * error + unknown)
        ends = np.array([0.025, 0.25, 0.5, 0.975])
        off = np.abs(found.count_quantiles(ends) - exact.count_quantiles(ends))
        assert np.all(off <= 2 * units.unit + error * true_sds)
    counts = units.counts(2000, rng)
    assert np.all(counts >= 0)
    if not private:
        assert np.all(counts.sum(axis=(1, 2)) == 3000)
    expected, sds = (np.stack(of) for of in zip(*(row.count_moments for row in every.rows), strict=True))
    assert np.all(np.abs(counts.mean(axis=0) - expected) < 5 * sds / 2000**0.5 + error * sds)
