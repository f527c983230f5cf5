"""The likelihood of noisy rows: against convolutions of logarithms, and against sums of other kinds."""

import math
from functools import reduce

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows, PrivateTotal, _step, noisy_rows
from pymc_dirdp.inference.observed_table import Beliefs
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree, posterior_of
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.mechanisms.outputs import CellNoise

from .posteriors import log_convolved, with_means
from .test_quantiles import output_of


def noise_of(rng, largest=20.0):
    scale = float(np.exp(rng.uniform(np.log(0.3), np.log(largest))))
    normal = bool(rng.integers(2))
    return CellNoise(normal, 1 / (2 * scale**2) if normal else 1 / scale, -1.3)


def rows_of(noise, noisy, totals):
    return NoisyRows(totals, published=(noisy, noise.numbers))


def terms(x, weight, noise, noisy):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x == 0, 0.0, x * np.log(weight)) - gammaln(x + 1) + noise.log_noise(noisy - x)


def summed(cells, log_number):
    """The logarithm of the sum over all counts, weighted by their total, and the expected counts."""
    return with_means(lambda logs: logsumexp(reduce(log_convolved, logs) + log_number), cells)


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_convolutions_also_where_the_shares_are_wrong(seed):
    """Narrow and wide noise, far from the noisy counts, too; rows of few records have fewer waves than cells."""
    rng, few = np.random.default_rng(seed), seed < 6
    cells, noise = int(rng.integers(2, 9)), noise_of(rng, 20.0 if seed % 2 else 1.0)
    n, shares = int(rng.integers(0, 9) if few else rng.integers(100, 200)), rng.dirichlet(np.ones(cells))
    noisy = rng.multinomial(n, shares) + np.round(rng.laplace(scale=5.0 if few else 2.0, size=cells))
    tried, x = rng.dirichlet(np.full(cells, rng.choice([0.1, 1.0, 10.0]))) if seed % 2 else shares, np.arange(n + 1.0)
    each = terms(x, tried[:, None], noise, noisy[:, None])
    expected, wanted = summed(each, np.where(x == n, gammaln(n + 1), -np.inf))
    value, means = rows_of(noise, noisy[None], np.array([n])).likelihood(np.log(tried)[None])
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-10)
    np.testing.assert_allclose(means[0], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("cells", [1, 3, 60])
def test_private_rows_are_sums_of_each_cell(cells, normal):
    rng, noise, x = np.random.default_rng(cells), CellNoise(normal, 0.3, -1.0), np.arange(400.0)
    noisy, expected = rng.integers(-3, 20, (2, cells)).astype(float), rng.dirichlet(np.ones(cells), 2) * 100
    each = terms(x, expected[..., None], noise, noisy[..., None])
    rows = rows_of(noise, noisy, None)
    value, means = rows.likelihood(np.log(expected))
    assert value == pytest.approx(logsumexp(each, axis=-1).sum(), rel=1e-12)
    np.testing.assert_allclose(means, np.exp(each - logsumexp(each, axis=-1, keepdims=True)) @ x, rtol=1e-9, atol=1e-12)


def compiled_rows(kind, cells, *, published=True):
    """The likelihood of one row, and its published arrays."""
    if kind == "joint":
        noisy = np.arange(cells) - 1.0
        rows = JointNoise([cells], 0.5, zero_sum=True).joint_likelihoods(noisy)
        return JointRows.of(rows.blocks, rows.log_weights, published=published), (noisy,)
    noisy, noise = np.full((1, cells), 4.0), CellNoise(False, 0.5, 0.0)
    totals = np.array([5]) if kind == "public" else None
    arrays = noisy, np.array(noise.numbers)
    return NoisyRows(totals, published=arrays if published else ()), arrays


@pytest.mark.parametrize("cells", [2, 3])
@pytest.mark.parametrize("kind", ["public", "private", "joint"])
def test_impossible_cells_and_arrays_that_must_not_be_written_to(kind, cells):
    (fixed, published), (free, _) = (compiled_rows(kind, cells, published=are) for are in (True, False))
    logs = np.full(cells, -np.log(cells))
    expected, means = fixed.likelihood(logs)
    for array in (*published, logs):
        array.flags.writeable = False
    for value, found in (fixed.likelihood(logs), free.likelihood(logs, *published)):
        assert value == expected
        np.testing.assert_array_equal(found, means)
    without = np.append(-np.inf, logs[1:])
    value, means = fixed.likelihood(without)
    assert value == pytest.approx(fixed.likelihood(np.maximum(without, -60.0))[0], abs=1e-10)
    assert means[0] == pytest.approx(0, abs=1e-12)
    for bad in (np.nan, np.inf):
        assert fixed.likelihood(np.append(bad, logs[1:]))[0] == -np.inf
    if kind == "public":
        value, means = fixed.likelihood(np.full(cells, -np.inf))
        assert (value, means.any()) == (-np.inf, False)


@pytest.mark.parametrize(
    ("kind", "cells", "n"),
    [("dirichlet", 6, 3000), ("urn", 6, 3000), ("truncated", 6, 3000), ("dirichlet", 2, 50), ("urn", 6, 0)],
)
def test_lists_are_the_sums_of_any_row(kind, cells, n):
    rng = np.random.default_rng(6)
    counts = rng.multinomial(n, rng.dirichlet(np.ones(cells)))
    output = output_of(kind, counts, 20.0, np.ones(cells), rng).observed_table
    rows = noisy_rows(output, Beliefs())
    assert rows.tables is not None
    for p in (rng.dirichlet(np.ones(cells)), (counts + 1) / (counts + 1).sum(), np.repeat([0.5, 0.0], [2, cells - 2])):
        with np.errstate(divide="ignore"):
            logs = np.log(p)
        value, means = rows.likelihood(logs[None])
        given = posterior_of(output, Beliefs()).with_shares(logs)
        assert value == pytest.approx(given.log_evidence, rel=1e-11)
        np.testing.assert_allclose(means[0], given.count_means, rtol=1e-8, atol=1e-8)


def test_no_list_is_read_beyond_its_end():
    """Compiled code would read whatever stands there, so the Python that it is compiled from is asked."""
    for x, step in enumerate([0.5, -math.log(2) - 2.5, -math.inf]):
        assert _step(False, 1.0, 0.0, 0.0, np.array([0.0, 0.5, -2.0]), float(x)) == pytest.approx(step)


@pytest.mark.parametrize("change", ["nothing", "noisy", "totals", "improper"])
def test_sums_of_listed_terms_are_those_from_the_noisy_counts_outward(change):
    """Odds and their inverses, even and odd totals, rows with many records, and samplers that are far away.

    A model may be given other noisy counts than those that it was made for: the list is not used then.
    """
    rng = np.random.default_rng(0)
    for _ in range(20):
        totals = np.r_[rng.integers(0, 101, size=12), 0, 1, 100, 101, 5000]
        noise, noisy = noise_of(rng), np.round(rng.normal(scale=60, size=(len(totals), 2)))
        log_odds = rng.normal(scale=rng.choice([1.0, 30.0, 900.0]), size=len(totals))
        log_odds[:4] = [0.0, np.inf, -np.inf, -745.0]
        logs = -np.logaddexp(0, np.stack([-log_odds, log_odds], axis=1))
        listed = rows_of(noise, noisy, totals).arrays[0]
        assert listed.shape == (len(totals), 1, 105)
        match change:
            case "noisy":
                noisy = noisy + rng.integers(0, 2, noisy.shape)
            case "totals":
                totals = totals + rng.integers(0, 2, totals.shape)
            case "improper":
                logs[0], logs[1] = np.nan, np.inf
        both = (
            rows.evaluated(logs, noisy, np.array(noise.numbers))
            for rows in (NoisyRows(totals, listed), NoisyRows(totals))
        )
        (value, means), (other, others) = both
        np.testing.assert_allclose(value, other, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(means, others, rtol=1e-10, atol=1e-10)


def test_a_private_total_that_may_be_beyond_its_range_is_left_to_other_sums():
    """Also if there may be no record."""
    noise, noisy, p = CellNoise(False, 1.0, -0.8), np.array([9.0, 4.0, 12.0]), np.array([0.3, 0.2, 0.5])
    for numbers in (range(0, 20), range(0, 26), range(0, 40), range(1, 200), range(24, 200), range(26, 200)):
        assert PrivateTotal(noisy, noise, numbers).likelihood(np.log(p)) is None
    for z in (noisy, noisy - 9):
        value, means = PrivateTotal(z, noise, range(0, 100)).likelihood(np.log(p))
        x = np.arange(100.0)
        expected, wanted = summed(terms(x, p[:, None], noise, z[:, None]), gammaln(x + 1) - np.log(100))
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(means, wanted, rtol=1e-9)


def test_a_private_total_far_from_the_noisy_counts():
    """Numbers near the sum of the noisy counts had 22 nats less. Oracle: a sum over expected numbers."""
    noise, noisy = CellNoise(False, 1 / 30, -np.log(60)), np.array([1489.0, 424.0, 7619.0, 469.0])
    log_p = np.log(np.random.default_rng(1).dirichlet(np.full(4, 50.0)))
    value, means = PrivateTotal(noisy, noise, range(0, 20_001)).likelihood(log_p)
    x, expected = np.arange(12_001.0)[:, None], np.arange(1_000, 12_000, 40.0)
    logs = [logsumexp(terms(x, m * np.exp(log_p), noise, noisy), axis=0).sum() - m for m in expected]
    assert value == pytest.approx(logsumexp(logs) + np.log(40 / 20_001), rel=1e-10)
    # The tree had no likelihood at all.
    row = RowPosterior(
        alpha=np.ones(4), total=20_000, log_likelihood=lambda x, i: noise.log_noise(noisy[i] - x), log_shares=log_p
    )
    tree = CountTree([row], [np.zeros_like], 20_000, lambda n: np.full(np.shape(n), -np.log(20_001)), None)
    assert tree.log_evidence == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(tree.count_means[0], means, rtol=1e-8)
