"""The posterior given noisy marginals: beside sums over grids and weighted draws from the prior, and its coverage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.marginal_posterior import MarginalPosterior
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.mechanisms.geometric import GeometricMechanism


def posterior(shape, measurements, n_records, **beliefs):
    labels, prior = tuple((axis, None) for axis in "abc"[: len(shape)]), np.ones(shape)
    table = MechanismOutput(GeometricMechanism(prior, 1.0), prior, prior=prior, n_records=0).observed_table
    known = {"n_records": n_records, "measurements": measurements}
    return MarginalPosterior(replace(table, cell_labels=labels, share_labels=labels, **known), Beliefs(**beliefs))


def test_one_share_has_the_distribution_that_sums_over_a_grid_give():
    noisy, variance, n = np.array([130.0, 75.0]), 900.0, 200
    found = posterior((2,), [Measurement(("a",), noisy, variance)], n).estimate([0.5, 0.95])
    effect = np.linspace(-40, 40, 40_001)
    p = 1 / (1 + np.exp(-np.sqrt(2) * effect))
    spread = 4 * n * p * (1 - p) + 2 * variance
    log = -1.5 * np.log1p(3 * effect**2 / np.pi**2) - 0.5 * (55 - n * (2 * p - 1)) ** 2 / spread - 0.5 * np.log(spread)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = weights @ p
    sd = np.sqrt(weights @ (p - mean) ** 2)
    assert found.share_means[0] == pytest.approx(mean, abs=0.08 * sd)
    assert found.share_sds[0] == pytest.approx(sd, rel=0.08)
    ends = np.interp([[0.25, 0.75], [0.025, 0.975]], np.cumsum(weights), p)
    np.testing.assert_allclose(found.share_intervals[:, 0], ends, atol=0.15 * sd)
    # What the noise leaves open of the count, the sample of 200 does not.
    assert found.count_sds[0] < n * found.share_sds[0]
    assert "effective sample size" in found.caveat


@pytest.mark.thorough
def test_overlapping_marginals_have_one_sample_between_them():
    """Little noise, and three marginals of the same records: taken for three samples they would say too much.

    Oracle: shares from the prior with the weights of the normal likelihood, and the covariance of the sample itself.
    """
    noisy, noise = np.array([62.0, 38, 41, 60, 30, 33, 12, 26]), np.array([4.0, 4, 4, 4, 16, 16, 16, 16])
    marginals = (("a",), noisy[:2], 4.0), (("b",), noisy[2:4], 4.0), (("a", "b"), noisy[4:].reshape(2, 2), 16.0)
    found = posterior((2, 2), [Measurement(*one) for one in marginals], 100).estimate([0.95])
    rng, draws, effects = np.random.default_rng(0), 400_000, Effects((2, 2))
    # Normal effects, with a random scale of each group.
    scales = np.sqrt(np.pi**2 / 6 * 2 / rng.chisquare(2, (draws, len(effects.orders))))
    logits = effects.logits(scales[:, effects.groups] * rng.standard_normal((draws, 2, 2)))
    # Of the largest effects that the prior allows nothing but zeros would be left in a row.
    shares = np.maximum(softmax(logits.reshape(draws, 4), axis=1), 1e-200)
    sums = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], *np.eye(4)])
    expected = shares @ sums.T
    covariance = 100 * (
        np.einsum("kc,dc,lc->dkl", sums, shares, sums, optimize=True) - expected[:, :, None] * expected[:, None]
    )
    covariance, off = covariance + np.diag(noise), noisy - 100 * expected
    log = -0.5 * np.einsum("dk,dk->d", off, np.linalg.solve(covariance, off[..., None])[..., 0])
    weights = softmax(log - 0.5 * np.linalg.slogdet(covariance)[1])
    assert 1 / np.sum(weights**2) > 1000
    given = (shares.reshape(draws, 2, 2) / shares.reshape(draws, 2, 2).sum(axis=-1, keepdims=True)).reshape(draws, 4)
    mean = weights @ given
    sd = np.sqrt(weights @ (given - mean) ** 2)
    np.testing.assert_allclose(found.share_sds, sd, rtol=0.08)
    # That the variance of the sample does not vary with the shares moves them by some thousandths.
    np.testing.assert_allclose(found.share_means, mean, atol=0.16 * sd.max())


@pytest.mark.parametrize("n_records", [1000, None])
def test_counts_are_the_noisy_ones_and_their_sum_is_what_the_totals_say(n_records):
    noisy = np.array([300.0, 420.0, 280.0])
    drawn = posterior((3,), [Measurement(("a",), noisy, 25.0)], n_records).draw(4000, np.random.default_rng(1))
    totals = drawn.counts.sum(axis=1)
    assert totals.mean() == pytest.approx(1000, abs=2)
    assert totals.std() == pytest.approx(np.sqrt(3 * 25) * (n_records is None), rel=0.1)
    assert np.all(drawn.counts >= 0)
    np.testing.assert_allclose(drawn.shares.sum(axis=-1), 1)
    np.testing.assert_allclose(drawn.counts.mean(axis=0), noisy, atol=1)
    # The counts of a sample vary by three times as much.
    sd = 5.0 if n_records is None else np.sqrt(25 * 2 / 3)
    np.testing.assert_allclose(drawn.counts.std(axis=0), sd, rtol=0.07)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("noisy", [[60.0, 25.0], [5.0, -40.0], [-150.0, -90.0]])
def test_a_private_number_of_records_behind_wide_noise_is_what_sums_over_a_grid_give(noisy):
    """The noise has a standard deviation of 50, so a total may be negative; the number of records is not."""
    noisy, variance = np.array(noisy), 2500.0
    drawn = posterior((2,), [Measurement(("a",), noisy, variance)], None).draw(20_000, np.random.default_rng(1))
    # Trapezoids in both: the effect and the number of records.
    effect, n = np.linspace(-40, 40, 2001)[:, None], np.linspace(0.25, 600.25, 1201)
    p = 1 / (1 + np.exp(-np.sqrt(2) * effect))
    log = -1.5 * np.log1p(3 * effect**2 / np.pi**2)
    # The variance of the sample hardly counts beside that of the noise, so one at the mean will do.
    spread = variance + drawn.counts.mean(axis=0) / 2
    for share, seen_, v in zip((p, 1 - p), noisy, spread, strict=True):
        log = log - 0.5 * (seen_ - n * share) ** 2 / v
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    records, total = weights.sum(axis=0), drawn.counts.sum(axis=1)
    mean = records @ n
    sd = np.sqrt(records @ (n - mean) ** 2)
    assert total.mean() == pytest.approx(mean, abs=0.1 * sd)
    assert total.std() == pytest.approx(sd, rel=0.1)
    assert drawn.shares[:, 0].mean() == pytest.approx(np.sum(weights * p), abs=0.03)
    # Noise hides the share, and the tails of the prior remain, which walkers reach slowly: .7 to .9 of them. Of 2.6
    # degrees of freedom in the place of 2 there are half as many.
    extreme = np.sum(weights * (np.abs(effect) > 6.5))
    assert np.mean(drawn.shares.min(axis=-1) < 1 / (1 + np.exp(6.5 * np.sqrt(2)))) == pytest.approx(extreme, rel=0.3)


@pytest.mark.parametrize("n_records", [500, None])
def test_gradients_are_those_of_the_density(n_records):
    rng = np.random.default_rng(2)
    measurements = [
        Measurement(("a", "c"), rng.normal(80, 20, (2, 3)), 100.0),
        Measurement(("b",), rng.normal(250, 20, 2), 50.0),
    ]
    one = posterior((2, 2, 3), measurements, n_records)
    mode, curvature, form = one._mode
    slopes = one._slopes(form)
    for _ in range(3):
        x = mode + np.linalg.solve(np.linalg.cholesky(curvature).T, rng.standard_normal(len(mode)))
        off = check_grad(lambda x: slopes(x[None])[0][0], lambda x: slopes(x[None])[1][0], x, epsilon=1e-6)
        assert off < 1e-3 * np.linalg.norm(slopes(x[None])[1])
    assert np.linalg.norm(np.linalg.solve(np.linalg.cholesky(curvature), slopes(mode[None])[1][0])) < 1e-2


@pytest.mark.thorough
def test_intervals_hold_shares_of_declared_rows(monkeypatch):
    """Truths are rows that are uniform a priori, as networks declare them.

    Intervals held .80 of them where effects of three axes were taken for nearly known to be small.
    """
    monkeypatch.setattr(MarginalPosterior, "_draws", property(lambda of: of.draw(1000, np.random.default_rng(1))))
    rng, shape, n, covered = np.random.default_rng(7), (3, 3, 3), 1000, []
    for _ in range(16):
        rows = rng.dirichlet(np.ones(3), (3, 3))
        counts = rng.multinomial(n, (rng.dirichlet(np.ones(9)).reshape(3, 3, 1) * rows).ravel()).reshape(shape)
        found = posterior(shape, [Measurement(("a", "b", "c"), counts + 25 * rng.standard_normal(shape), 625.0)], n)
        low, high = found.estimate([0.95]).share_intervals[0].T
        covered.append(np.mean((low <= rows.ravel()) & (rows.ravel() <= high)))
    assert 0.93 < np.mean(covered) < 0.98


def test_no_records_and_what_does_not_fit():
    empty = posterior((2, 3), [Measurement(("a", "b"), np.zeros((2, 3)), 4.0)], 0).estimate([0.5])
    np.testing.assert_allclose(empty.share_means, 1 / 3, atol=0.05)
    assert not empty.count_means.any()
    assert "6 of 6 cells with fewer than 5 records depend mostly on the prior" in empty.caveat
    with pytest.raises(ArgumentError, match="sums of effects"):
        posterior((2,), [], 5, prior=np.ones(2))
    with pytest.raises(ArgumentError, match=r"1001 cells.*dirdp\.fit"):
        posterior((1001,), [], 5)
