"""The mixture that is fitted to noisy pairs: what is seen by them, gradients, and what the prior does."""

import itertools
import math

import numpy as np
import pytest

from pymc_dirdp.inference import mixture as mixture_file
from pymc_dirdp.inference.mixture import COMMON_SD, SLOPE_SD, Mixture, NoisyPairs, _Descent, fit_mixture


def pairs_of(codes, lengths, sd, rng, known=None):
    """Noisy pairs of records."""
    hot = np.concatenate([np.eye(length)[codes[:, i]] for i, length in enumerate(lengths)], axis=1)
    counts = hot.T @ hot
    noise = np.triu(rng.normal(0, sd, counts.shape), 1)
    noisy = NoisyPairs(tuple(lengths), np.zeros(len(counts)), np.zeros(counts.shape, np.float32), sd**2, known)
    several = np.repeat(np.array(lengths) > 1, lengths)
    singles = np.where(several, np.diag(counts) + rng.normal(0, sd, len(counts)), 0.0)
    pairs = np.where(noisy.is_measured, counts + noise + noise.T, 0.0).astype(np.float32)
    return NoisyPairs(tuple(lengths), singles, pairs, sd**2, known)


def made_up(n, lengths, rng):
    """Records of a few classes."""
    codes = np.empty((n, len(lengths)), dtype=np.int64)
    group = rng.integers(3, size=n)
    for i, length in enumerate(lengths):
        shares = rng.dirichlet(np.ones(length), size=3)
        codes[:, i] = [rng.choice(length, p=shares[g]) for g in group]
    return codes


def test_tables_of_a_mixture_by_brute_force():
    rng, lengths = np.random.default_rng(0), (2, 3, 2, 4)
    shares = np.concatenate([rng.dirichlet(np.ones(length), size=5) for length in lengths], axis=1)
    mixture = Mixture(lengths, shares)
    for order in (1, 2, 3, 4):
        for columns in itertools.permutations(range(4), order):
            table = mixture.table(columns)
            for cell in np.ndindex(table.shape):
                terms = [mixture.by_column[i][:, value] for i, value in zip(columns, cell, strict=True)]
                assert table[cell] == pytest.approx(np.prod(terms, axis=0).mean(), rel=1e-12)
    codes = {0: np.array([0, 1]), 2: np.array([1, 1])}
    np.testing.assert_allclose(np.exp(mixture.log_proba(codes)), mixture.table([0, 2])[[0, 1], [1, 1]], rtol=1e-12)


@pytest.mark.parametrize("lengths", [(2, 3), (4, 1, 3, 2), (2,) * 6])
def test_what_all_tables_tell_has_no_bias_and_the_variance_that_is_said(lengths):
    rng = np.random.default_rng(4)
    codes = np.stack([rng.integers(length, size=400) for length in lengths], axis=1)
    found = [pairs_of(codes, lengths, 30.0, rng) for _ in range(400)]
    numbers = np.array([noisy.n_records for noisy in found])
    sd = found[0].n_records_sd
    assert numbers.mean() == pytest.approx(400, abs=5 * sd / 20)
    assert numbers.std() == pytest.approx(sd, rel=0.15)
    seen = np.array([noisy.column_counts for noisy in found])
    true = np.concatenate([np.bincount(codes[:, i], minlength=length) for i, length in enumerate(lengths)])
    several = np.repeat(np.array(lengths) > 1, lengths)
    for cell in np.flatnonzero(several):
        assert seen[:, cell].mean() == pytest.approx(true[cell], abs=5 * seen[:, cell].std() / 20)
        assert seen[:, cell].std() < 30.0


def test_a_public_number_of_records_is_taken_as_it_is():
    noisy = pairs_of(np.zeros((7, 2), dtype=int), (2, 2), 50.0, np.random.default_rng(0), known=7)
    assert (noisy.n_records, noisy.n_records_sd) == (7.0, 0.0)
    empty = pairs_of(np.zeros((0, 2), dtype=int), (2, 2), 1.0, np.random.default_rng(0), known=0)
    assert empty.n_records == 1.0
    assert np.isfinite(fit_mixture(empty, steps=20).shares).all()


def log_density(noisy, places, slopes, common):
    """That of the model, by its definition."""
    logits, shares = places @ slopes + common, []
    for i in range(len(noisy.lengths)):
        part = logits[:, noisy.place(i)]
        shares.append(np.exp(part) / np.exp(part).sum(axis=1, keepdims=True))
    total = -(places**2).sum() / 2 - (slopes**2).sum() / (2 * SLOPE_SD**2) - (common**2).sum() / (2 * COMMON_SD**2)
    n = noisy.n_records
    for i, one in enumerate(shares):
        if noisy.lengths[i] > 1:
            total -= ((n * one.mean(axis=0) - noisy.counts[noisy.place(i)]) ** 2).sum() / (2 * noisy.variance)
        for j in range(i + 1, len(shares)):
            if noisy.lengths[i] > 1 and noisy.lengths[j] > 1:
                expected = n * one.T @ shares[j] / len(places)
                seen = noisy.pair_counts[noisy.place(i), noisy.place(j)]
                total -= ((expected - seen) ** 2).sum() / (2 * noisy.variance)
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
            slope = -(ends[0] - ends[1]) / 2e-4
            assert 10 * mean[index] == pytest.approx(slope, rel=2e-3, abs=2e-2)


def test_a_fit_is_nearer_than_the_noisy_counts():
    rng, lengths = np.random.default_rng(7), (4, 5, 3, 4, 6)
    codes = made_up(3000, lengths, rng)
    exact, noisy = pairs_of(codes, lengths, 1e-6, rng), pairs_of(codes, lengths, 25.0, rng)
    mixture = fit_mixture(noisy)
    true, measured = exact.pair_counts, exact.is_measured

    def off(found):
        return np.abs(found - true)[measured].mean()

    fit = noisy.n_records * mixture.shares.T @ mixture.shares / len(mixture.shares)
    assert off(fit) < 0.75 * off(noisy.pair_counts)
    assert not noisy.hides_dependence


def test_noise_that_hides_everything_gives_nearly_independent_columns():
    rng, lengths = np.random.default_rng(3), (3, 4, 2)
    noisy = pairs_of(made_up(200, lengths, rng), lengths, 3000.0, rng, known=200)
    assert noisy.hides_dependence
    mixture = fit_mixture(noisy)
    for i, j in itertools.combinations(range(3), 2):
        table = mixture.table([i, j])
        independent = np.outer(mixture.table([i]), mixture.table([j]))
        assert np.abs(table - independent).sum() / 2 < 0.05


def test_shares_are_the_nearest_that_add_up():
    for values in ([0.5, 0.7, -0.3], [2.0, 0.0], [-1.0, -1.0, -1.0], [0.2, 0.3, 0.5], [1e300, 1e17]):
        found = mixture_file._simplex(np.array(values))
        assert found.sum() == pytest.approx(1)
        assert found.min() >= 0
        # No shares are nearer, among many.
        if max(values) > 10:
            continue
        others = np.random.default_rng(0).dirichlet(np.full(len(values), 0.3), size=2000)
        best = np.sqrt(((others - values) ** 2).sum(axis=1)).min()
        assert math.dist(found, values) <= best + 1e-12
