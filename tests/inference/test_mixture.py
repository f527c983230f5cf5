"""The mixture that is fitted to noisy pairs: what is seen by them, gradients, and what the prior does."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pymc_dirdp.inference import mixture as mixture_file
from pymc_dirdp.inference.mixture import COMMON_SD, SLOPE_SD, Mixture, NoisyPairs, _Descent, fit_mixture


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
    """All that are above 0 are off by the same, and others by no more."""
    found = mixture_file._simplex(np.array(values))
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    off = values - found
    np.testing.assert_allclose(off[found > 0], off.max(), rtol=1e-12, atol=1e-12)
