"""The posterior given noisy marginals: beside sums over grids and weighted draws from the prior, and its coverage."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import SCALES, Effects
from pymc_dirdp.inference.marginal_posterior import MarginalPosterior
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable


def seen(shape, measurements, n_records):
    labels = tuple((axis, None) for axis, _ in zip("abc", shape, strict=False))
    return ObservedTable(
        name="p",
        prior=np.ones(shape),
        n_records=n_records,
        cell_labels=labels,
        share_labels=labels,
        mechanism_names=(),
        observed=(),
        row_likelihoods=list,
        damaged=ArgumentError,
        measurements=measurements,
    )


def posterior(shape, measurements, n_records):
    return MarginalPosterior(seen(shape, measurements, n_records), Beliefs())


def prior_shares(shape, draws, rng):
    """Shares of all cells from the prior: normal effects, with a random scale of each group."""
    effects = Effects(shape)
    scales = np.sqrt(np.pi**2 / 6 * 2 / rng.chisquare(2, (draws, len(effects.orders))))
    logits = effects.logits(scales[:, effects.groups] * rng.standard_normal((draws, *shape)))
    return softmax(logits.reshape(draws, -1), axis=1).reshape(draws, *shape)


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


def weighted(shape, measurements, n_records, rng, *, samples_apart=False, draws=400_000):
    """Shares from the prior and their weights: the normal likelihood with the covariance of the sample itself.

    It is the mutant that has a sample of its own for each marginal with `samples_apart`.
    """
    # Of the largest effects that the prior allows nothing but zeros would be left in a row.
    shares = np.maximum(prior_shares(shape, draws, rng), 1e-200)
    flat = shares.reshape(draws, -1)
    sums = []
    for one in measurements:
        to = np.ravel_multi_index(tuple(np.indices(shape)["abc".index(axis)] for axis in one.axes), one.noisy.shape)
        sums.append(np.eye(one.noisy.size)[to.ravel()].T)
    of = np.concatenate(sums)
    noisy = np.concatenate([one.noisy.ravel() for one in measurements])
    noise = np.concatenate([np.full(one.noisy.size, one.variance) for one in measurements])
    expected = flat @ of.T
    off = noisy - n_records * expected
    covariance = n_records * (
        np.einsum("kc,dc,lc->dkl", of, flat, of, optimize=True) - expected[:, :, None] * expected[:, None, :]
    )
    if samples_apart:
        number = np.repeat(np.arange(len(measurements)), [one.noisy.size for one in measurements])
        covariance *= number[:, None] == number
    covariance += np.diag(noise)
    log = -0.5 * np.einsum("dk,dk->d", off, np.linalg.solve(covariance, off[..., None])[..., 0])
    log -= 0.5 * np.linalg.slogdet(covariance)[1]
    weights = np.exp(log - log.max())
    return shares, weights / weights.sum()


@pytest.mark.thorough
def test_overlapping_marginals_have_one_sample_between_them():
    """Little noise, and three marginals of the same records: taken for three samples they would say too much."""
    rng = np.random.default_rng(0)
    measurements = [
        Measurement(("a",), np.array([62.0, 38.0]), 4.0),
        Measurement(("b",), np.array([41.0, 60.0]), 4.0),
        Measurement(("a", "b"), np.array([[30.0, 33.0], [12.0, 26.0]]), 16.0),
    ]
    found = posterior((2, 2), measurements, 100).estimate([0.95])
    for samples_apart in (False, True):
        shares, weights = weighted((2, 2), measurements, 100, rng, samples_apart=samples_apart)
        assert 1 / np.sum(weights**2) > 1000
        given = shares / shares.sum(axis=-1, keepdims=True)
        mean = np.einsum("d,dab->ab", weights, given)
        sd = np.sqrt(np.einsum("d,dab->ab", weights, (given - mean) ** 2)).ravel()
        near = np.abs(found.share_sds - sd) < 0.08 * sd
        assert near.all() == (not samples_apart)
        if not samples_apart:
            # That the variance of the sample does not vary with the shares moves them by some thousandths.
            np.testing.assert_allclose(found.share_means, mean.ravel(), atol=0.16 * sd.max())


def test_a_private_number_of_records_is_what_the_totals_say():
    measurements = [Measurement(("a",), np.array([300.0, 420.0, 280.0]), 400.0)]
    posterior_ = posterior((3,), measurements, None)
    drawn = posterior_.draw(4000, np.random.default_rng(1))
    totals = drawn.counts.sum(axis=1)
    assert totals.mean() == pytest.approx(1000, abs=5)
    assert totals.std() == pytest.approx(np.sqrt(3 * 400), rel=0.1)
    known = posterior((3,), measurements, 1000).draw(4000, np.random.default_rng(1))
    assert np.all(known.counts.sum(axis=1) == 1000)
    assert np.all(known.counts >= 0)
    np.testing.assert_allclose(known.shares.sum(axis=-1), 1)
    # Given all cells but for their noise: the prior of three cells says nothing here.
    np.testing.assert_allclose(known.counts.mean(axis=0), [300, 420, 280], atol=4)
    np.testing.assert_allclose(known.counts.std(axis=0), np.sqrt(400 * 2 / 3), rtol=0.15)


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


def declared_coverage(truths, *, fixed_scales=False):
    """How many shares 95 % intervals hold, where truths are rows that are uniform a priori, as networks declare them.

    It is the mutant that has effects of three axes for nearly known to be small with `fixed_scales`.
    """
    rng, shape, n = np.random.default_rng(7), (3, 3, 3), 1000
    covered_shares = []
    for _ in range(truths):
        rows = rng.dirichlet(np.ones(3), (3, 3))
        counts = rng.multinomial(n, (rng.dirichlet(np.ones(9)).reshape(3, 3, 1) * rows).ravel()).reshape(shape)
        found = posterior(shape, [Measurement(("a", "b", "c"), counts + 25 * rng.standard_normal(shape), 625.0)], n)
        if fixed_scales:
            found._spread, found._size = 4 * SCALES[Effects(shape).orders[1:]] ** 2, found._size + 2
        low, high = found.estimate([0.95]).share_intervals[0].T
        covered_shares.append(np.mean((low <= rows.ravel()) & (rows.ravel() <= high)))
    return np.mean(covered_shares)


@pytest.mark.thorough
def test_intervals_hold_shares_of_declared_rows(monkeypatch):
    fewer = property(lambda posterior: posterior.draw(1000, np.random.default_rng(1)))
    monkeypatch.setattr(MarginalPosterior, "_draws", fewer)
    assert 0.93 < declared_coverage(40) < 0.98
    assert declared_coverage(15, fixed_scales=True) < 0.87


def test_no_records_and_what_does_not_fit():
    empty = posterior((2, 3), [Measurement(("a", "b"), np.zeros((2, 3)), 4.0)], 0).estimate([0.5])
    np.testing.assert_allclose(empty.share_means, 1 / 3, atol=0.05)
    assert not empty.count_means.any()
    assert "6 of 6 cells with fewer than 5 records depend mostly on the prior" in empty.caveat
    with pytest.raises(ArgumentError, match="sums of effects"):
        MarginalPosterior(seen((2,), [], 5), Beliefs(prior=np.ones(2)))
    with pytest.raises(ArgumentError, match=r"1001 cells.*dirdp\.fit"):
        posterior((1001,), [], 5)
