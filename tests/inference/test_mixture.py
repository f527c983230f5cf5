"""The mixture that is fitted to noisy pairs: gradients, what the prior does, and intervals that cover what they say."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import truncnorm

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference import mixture as mixture_file
from pymc_dirdp.inference.mixture import COMMON_SD, SLOPE_SD, Mixture, NoisyPairs, _Descent, fit_mixture
from pymc_dirdp.inference.mixture_intervals import (
    ErrorCurve,
    FitErrors,
    _Cells,
    _drawn,
    _mean_above_0,
    _measured,
    _Sums,
)


def pairs_of(codes, lengths, sd, rng, known=None):
    hot = np.concatenate([np.eye(length)[codes[:, i]] for i, length in enumerate(lengths)], axis=1)
    counts = hot.T @ hot
    noise = np.triu(rng.normal(0, sd, counts.shape), 1)
    noisy = NoisyPairs(tuple(lengths), np.zeros(len(counts)), np.zeros(counts.shape, np.float32), sd**2, known)
    several = np.repeat(np.array(lengths) > 1, lengths)
    singles = np.where(several, np.diag(counts) + rng.normal(0, sd, len(counts)), 0.0)
    pairs = np.where(noisy.is_measured, counts + noise + noise.T, 0.0).astype(np.float32)
    return replace(noisy, counts=singles, pair_counts=pairs)


def made_up(n, lengths, rng):
    group, shares = rng.integers(3, size=n), [rng.dirichlet(np.ones(length), size=3) for length in lengths]
    columns = [[rng.choice(len(of[g]), p=of[g]) for g in group] for of in shares]
    return np.array(columns, dtype=np.int64).T


def test_tables_of_a_mixture_by_brute_force():
    rng, lengths = np.random.default_rng(0), (2, 3, 2, 4)
    mixture = Mixture(lengths, np.concatenate([rng.dirichlet(np.ones(length), size=5) for length in lengths], axis=1))
    of = mixture.by_column
    every = np.einsum("ka,kb,kc,kd->abcd", *of) / 5
    for order in (1, 2, 3, 4):
        for columns in itertools.permutations(range(4), order):
            wanted = np.einsum(every, range(4), columns)
            np.testing.assert_allclose(mixture.table(columns), wanted, rtol=1e-12)
    codes = {0: np.array([0, 1]), 2: np.array([1, 1])}
    np.testing.assert_allclose(np.exp(mixture.log_proba(codes)), mixture.table([0, 2])[[0, 1], [1, 1]], rtol=1e-12)


@pytest.mark.parametrize("lengths", [(2, 3), (4, 1, 3, 2), (2,) * 6])
def test_what_all_tables_tell_has_no_bias_and_the_variance_that_is_said(lengths):
    rng = np.random.default_rng(4)
    codes = np.stack([rng.integers(length, size=400) for length in lengths], axis=1)
    found = [pairs_of(codes, lengths, 30.0, rng) for _ in range(400)]
    numbers, sd = np.array([noisy.n_records for noisy in found]), found[0].n_records_sd
    assert numbers.mean() == pytest.approx(400, abs=5 * sd / 20)
    assert numbers.std() == pytest.approx(sd, rel=0.15)
    seen = np.array([noisy.column_counts for noisy in found])
    for column, length in enumerate(lengths):
        if length > 1:
            of, sd = seen[:, found[0].place(column)], found[0].column_variance(column) ** 0.5
            np.testing.assert_allclose(of.mean(axis=0), np.bincount(codes[:, column], minlength=length), atol=sd / 4)
            np.testing.assert_allclose(of.std(axis=0), sd, rtol=0.15)
            assert sd < 30.0


def test_a_public_number_of_records_is_taken_as_it_is():
    noisy = pairs_of(np.zeros((7, 2), dtype=int), (2, 2), 50.0, np.random.default_rng(0), known=7)
    assert (noisy.n_records, noisy.n_records_sd) == (7.0, 0.0)
    empty = pairs_of(np.zeros((0, 2), dtype=int), (2, 2), 1.0, np.random.default_rng(0), known=0)
    assert empty.n_records == 1.0
    assert np.isfinite(fit_mixture(empty, steps=20).shares).all()


def log_density(noisy, places, slopes, common):
    logits = np.exp(places @ slopes + common)
    shares = [logits[:, part] / logits[:, part].sum(axis=1, keepdims=True) for part in map(noisy.place, range(3))]
    total = -(places**2).sum() / 2 - (slopes**2).sum() / (2 * SLOPE_SD**2) - (common**2).sum() / (2 * COMMON_SD**2)
    several = [i for i, length in enumerate(noisy.lengths) if length > 1]
    for i in several:
        off = noisy.n_records * shares[i].mean(axis=0) - noisy.counts[noisy.place(i)]
        total -= (off**2).sum() / (2 * noisy.variance)
    for i, j in itertools.combinations(several, 2):
        expected = noisy.n_records * shares[i].T @ shares[j] / len(places)
        total -= ((expected - noisy.pair_counts[noisy.place(i), noisy.place(j)]) ** 2).sum() / (2 * noisy.variance)
    return total


def test_a_step_goes_up_the_density_of_the_model(monkeypatch):
    """Gradients by finite differences of the log-density, with a column of one category."""
    rng, lengths = np.random.default_rng(1), (2, 1, 3)
    noisy = pairs_of(made_up(300, lengths, rng), lengths, 8.0, rng)
    monkeypatch.setattr(mixture_file, "COMPONENTS", 4)
    descent = _Descent(noisy, np.random.default_rng(0))
    before = [one.astype(np.float64).copy() for one in descent._parameters]
    descent.step()
    # After a first step the mean of a gradient is a tenth of it.
    for number, (mean, _) in enumerate(descent._moments):
        for index in list(np.ndindex(mean.shape))[:7]:
            ends = []
            for nudge in (1e-4, -1e-4):
                nudged = [one.copy() for one in before]
                nudged[number][index] += nudge
                ends.append(log_density(noisy, *nudged))
            assert 10 * mean[index] == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=2e-3, abs=2e-2)


def test_a_fit_is_nearer_than_the_noisy_counts_and_independent_behind_noise_that_hides_everything():
    rng, lengths = np.random.default_rng(7), (4, 5, 3, 4, 6)
    codes = made_up(3000, lengths, rng)
    exact, noisy, hidden = (pairs_of(codes, lengths, sd, rng, 3000) for sd in (1e-6, 60.0, 45_000.0))
    mixture, far = fit_mixture(noisy), fit_mixture(hidden)
    fit = 3000 * mixture.shares.T @ mixture.shares / len(mixture.shares)
    off = [np.abs(found - exact.pair_counts)[exact.is_measured].mean() for found in (fit, noisy.pair_counts)]
    # With slopes twenty times as wide, or a tenth, a priori: .57 and .83.
    assert off[0] < 0.53 * off[1]
    assert (noisy.hides_dependence, hidden.hides_dependence) == (False, True)
    for i, j in itertools.combinations(range(5), 2):
        assert np.abs(far.table([i, j]) - np.outer(far.table([i]), far.table([j]))).sum() / 2 < 0.05


@pytest.mark.parametrize(
    "values", [[0.5, 0.7, -0.3], [2.0, 0.0], [-1.0, -1.0, -1.0], [0.2, 0.3, 0.5], [1e300, 1e17]], ids=str
)
def test_shares_are_the_nearest_that_add_up(values):
    """All that are above 0 are off by the same, and others by no more; what is above a million is taken for that."""
    found = mixture_file._simplex(np.array(values))
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    off = np.clip(values, -1e6, 1e6) - found
    np.testing.assert_allclose(off[found > 0], off.max(), rtol=1e-12, atol=1e-12)


LENGTHS = (2, 4, 3, 5, 2, 4)


def population(rng, lengths=LENGTHS, components=300):
    """Shares `softmax(b + Z A)` with few coordinates: what the fit declares, drawn at random."""
    places = rng.standard_normal((components, 4))
    shares = []
    for length in lengths:
        logits = rng.standard_normal(length) + places @ (0.8 * rng.standard_normal((4, length)))
        weights = np.exp(logits)
        shares.append(weights / weights.sum(axis=1, keepdims=True))
    return Mixture(tuple(lengths), np.concatenate(shares, axis=1))


def measured(truth, sd, n_records, rng, *, is_public=True):
    size = len(truth.shares[0])
    empty = NoisyPairs(truth.lengths, np.zeros(size), np.zeros((size, size), dtype=np.float32), sd**2, n_records)
    counts = _drawn(empty, truth, rng)
    return counts, replace(_measured(counts, rng), known_records=n_records if is_public else None)


def tables(columns):
    return [(i,) for i in range(columns)] + list(itertools.combinations(range(columns), 2))


def counts_of(counts, columns):
    places = tuple(counts.place(i) for i in columns)
    return (counts.counts[places] if len(places) == 1 else counts.pair_counts[places]).ravel()


def covered(errors, truth, counts):
    both = []
    for pair in itertools.combinations(range(len(truth.lengths)), 2):
        found = errors.estimate(pair, [0.95])
        of = (found.share_intervals[0], truth.table(pair).ravel()), (found.count_intervals[0], counts_of(counts, pair))
        both.append([(ends[:, 0] <= value) & (value <= ends[:, 1]) for ends, value in of])
    return np.concatenate(both, axis=1).mean(axis=1)


@pytest.mark.parametrize(("sd", "is_public"), [(20.0, True), (60.0, False)])
def test_intervals_cover_what_they_say_under_the_declared_prior(sd, is_public):
    right, of_three, length = [], [], []
    for seed in range(3):
        rng = np.random.default_rng([55, seed])
        truth = population(rng)
        counts, noisy = measured(truth, sd, 3_000, rng, is_public=is_public)
        errors = FitErrors.of(noisy, fit_mixture(noisy, seed), seed)
        right.append(covered(errors, truth, counts))
        length.append(errors.estimate([1, 3], [0.95]).count_sds.mean() / sd)
        # Three columns were not measured.
        triple, share = errors.estimate([0, 3, 5], [0.95]), truth.table([0, 3, 5]).ravel()
        of_three.append(np.mean(np.abs(triple.share_means - share) < 2 * triple.share_sds))
        assert np.median(triple.share_sds) < 0.02
        assert np.all(triple.count_sds > 3_000 * triple.share_sds)
    # Of so few cells the excess is not known well, and the fit misses nothing here: hence more than is stated.
    assert np.all((np.mean(right, axis=0) >= 0.94) & (np.mean(right, axis=0) <= 0.985))
    assert 0.9 < np.mean(of_three) < 0.99
    # The counts alone have the noise's deviation.
    assert np.mean(length) < 0.8


def test_without_noise_intervals_are_those_of_a_sample_around_the_counts():
    rng = np.random.default_rng(1)
    truth = population(rng)
    counts, noisy = measured(truth, 1e-3, 20_000, rng)
    errors = FitErrors.of(noisy, fit_mixture(noisy))
    for columns in tables(len(LENGTHS)):
        found, number = errors.estimate(columns, [0.95]), counts_of(counts, columns)
        np.testing.assert_allclose(found.count_means, number, atol=0.01)
        np.testing.assert_array_equal(found.count_intervals[0], np.stack([number, number], axis=-1))
        share = number / 20_000
        sd = np.sqrt(share * (1 - share) / 20_000)
        assert np.sqrt(np.mean((found.share_means - share) ** 2)) < 0.5 * np.sqrt(np.mean(sd**2))
        assert 0.7 < np.sqrt(np.mean(found.share_sds**2) / np.mean(sd**2)) < 1.05


def test_the_combined_estimate_has_the_error_that_it_states_and_no_linear_one_has_less():
    rng = np.random.default_rng(3)
    fit, noise, both, size = 30.0, 50.0, 10.0, 400_000
    errors = rng.multivariate_normal([0.0, 0.0], [[fit, both], [both, noise]], size)
    truth = 1_000.0
    # One bin, nothing missed, and no draw: the curve has the moments above over the variance of the noise.
    moments = np.array([[fit / noise], [both / noise]])
    curve = ErrorCurve(np.empty(0), np.ones(1), np.zeros(1), moments, moments)
    cells = _Cells(truth + errors[:, 0], truth + errors[:, 1], noise, np.full(size, noise))
    for means, sds in curve.estimates(cells):
        assert np.std(means) == pytest.approx(sds[0], rel=0.01)
        for k in np.linspace(0, 1, 11):
            assert sds[0] <= np.std((1 - k) * errors[:, 0] + k * errors[:, 1]) * 1.01


def test_the_bias_that_is_left_over_is_found():
    """Where the squares of the release exceed those of its refits by 1.5 roots of the expected records."""
    rng, size, noise = np.random.default_rng(4), 200_000, 50.0
    m = rng.uniform(50, 150, size)
    bias, noise_of_both = rng.normal(0, np.sqrt(1.5 * np.sqrt(m))), rng.normal(0, math.sqrt(noise), (2, size))
    release = _Cells(m, m + bias + noise_of_both[0], noise, np.full(size, noise))
    refit = _Cells(m, m + noise_of_both[1], noise, np.full(size, noise))
    sums = _Sums(np.empty(0), np.zeros(1, dtype=int))
    sums.add(release, refit, m)
    curve = sums.curve()
    np.testing.assert_allclose(curve.residuals, refit.missed.mean() / refit.total.mean(), rtol=1e-12)
    np.testing.assert_allclose(curve.excess, 1.5, rtol=0.1)


@pytest.fixture(scope="module")
def errors():
    """Of columns of which one has one category."""
    rng = np.random.default_rng(5)
    _, noisy = measured(population(rng, (3, 1, 4, 5, 2)), 20.0, 3_000, rng)
    return FitErrors.of(noisy, fit_mixture(noisy))


def test_what_the_fit_misses_in_a_single_pair_widens_the_intervals_of_that_pair(errors):
    noisy = errors.noisy
    pairs = noisy.pair_counts.copy()
    pairs[noisy.place(2), noisy.place(3)] += 150 * np.random.default_rng(4).choice([-1, 1], (4, 5))
    missed = replace(errors, noisy=replace(noisy, pair_counts=pairs))
    assert missed.estimate([2, 3], [0.5]).count_sds.mean() > 1.1 * errors.estimate([2, 3], [0.5]).count_sds.mean()
    np.testing.assert_array_equal(missed.estimate([0, 3], [0.5]).share_sds, errors.estimate([0, 3], [0.5]).share_sds)
    # So does what is in it of three columns: by a part of the share that depends on the pair alone.
    wider, triple = (of.estimate([0, 2, 3], [0.5]) for of in (missed, errors))
    relative = ((wider.share_sds**2 - triple.share_sds**2) / triple.share_means**2).reshape(3, 4, 5)
    assert relative.min() > 0
    np.testing.assert_allclose(relative, np.broadcast_to(relative[:1], (3, 4, 5)), rtol=1e-6)


def test_columns_may_come_in_any_order_and_a_column_of_one_category_changes_nothing(errors):
    forwards, backwards = errors.estimate([0, 3], [0.8]), errors.estimate([3, 0], [0.8])
    np.testing.assert_allclose(backwards.share_means.reshape(5, 3).T.ravel(), forwards.share_means)
    np.testing.assert_allclose(backwards.share_sds.reshape(5, 3).T.ravel(), forwards.share_sds)
    np.testing.assert_array_equal(errors.estimate([0, 1, 3], [0.8]).share_sds, forwards.share_sds)
    known = errors.estimate([1], [0.8])
    assert (known.share_means, known.share_sds, known.count_means, known.count_sds) == (1.0, 0.0, 3_000.0, 0.0)


def test_a_number_of_records_that_is_private_widens_the_intervals_of_large_shares(errors):
    private = replace(errors, noisy=replace(errors.noisy, known_records=None))
    assert private.estimate([1], [0.8]).count_sds == private.noisy.n_records_sd > 0
    public, wider = (of.estimate([4], [0.95]) for of in (errors, private))
    assert np.all(wider.share_sds > public.share_sds)
    np.testing.assert_allclose(public.count_sds, wider.count_sds, rtol=0.01)


@pytest.mark.parametrize("mean", [-1e4, -30.0, -1.0, 0.0, 2.0, 40.0])
def test_the_mean_above_0_is_that_of_a_truncated_normal_distribution(mean):
    expected = truncnorm.mean(-mean / 2.0, np.inf, mean, 2.0) if mean > -100 else 4.0 / -mean
    # Far below 0 digits cancel, and an excess of the noise by so little is nothing.
    assert _mean_above_0(mean, 2.0) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_columns_and_probabilities_are_checked(errors):
    for columns in ([], [0, 0], [0, 1, 2, 3], [-1], [0, 6]):
        with pytest.raises(ArgumentError):
            errors.estimate(columns, [0.95])
    for prob in ([], [0.0], [1.0], [2.0]):
        with pytest.raises(ArgumentError):
            errors.estimate([0, 1], prob)
    # Refits have a seed of their own.
    again = FitErrors.of(errors.noisy, fit_mixture(errors.noisy))
    np.testing.assert_array_equal(again.estimate([0, 2], [0.9]).share_sds, errors.estimate([0, 2], [0.9]).share_sds)
