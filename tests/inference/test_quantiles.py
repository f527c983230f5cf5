"""Estimates of releases against sums over all counts and totals, and quantiles of shares in pieces of any size."""

from dataclasses import fields

import numpy as np
import pytest
from scipy.stats import beta

import pymc_dirdp as dirdp
from pymc_dirdp.inference import quantiles
from pymc_dirdp.inference.estimates import KnownRows
from pymc_dirdp.inference.numbers import Lists
from pymc_dirdp.inference.quantiles import Mixture, share_quantiles, sums_of_others
from pymc_dirdp.mechanisms.geometric import ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

from .exact_shares import off, output_of, random_output, share_distributions

ENDS = np.array([0.025, 0.25, 0.5, 0.975])
PROB = np.array([0.001, 0.5, 0.95, 0.9999])
LEVELS = np.stack([(1 - PROB) / 2, (1 + PROB) / 2], axis=1)
# How far quantiles of 20,000 draws may be from their levels.
OF_DRAWS = 5 * np.sqrt(LEVELS * (1 - LEVELS) / 20_000) + 1e-3


def mixture(alpha, counts):
    """As many Beta distributions for each cell as there are tables of counts, equally likely."""
    counts = np.asarray(counts, dtype=float)
    cell = np.broadcast_to(np.arange(len(alpha)), counts.shape)
    others = counts.sum(axis=1, keepdims=True) - counts
    masses = np.full(counts.shape, 1 / len(counts))
    own, rest = np.asarray(alpha, dtype=float), sums_of_others(np.asarray(alpha, dtype=float)[None])[0]
    first, second, masses, cell = (values.ravel() for values in (own + counts, rest + others, masses, cell))
    return Mixture(first, second, masses, cell, len(own))


@pytest.mark.parametrize("room", [1, 7, 300])
def test_pieces_of_any_size_give_the_same_numbers(room, monkeypatch):
    """Found by attack: a piece that held one cell was taken for a table of one category, whose share is 1."""
    prior = np.array([[1, 0.5, 2], [0.2, 1, 1]])
    mechanism = ZeroSumGeometricMechanism(prior, 2.0, contribution=Contribution(1, ("each",)))
    output = dirdp.mechanisms.MechanismOutput(mechanism, [[3, 6, -1], [5, -2, 5]], prior=prior, n_records=16)
    wanted = dirdp.estimate(output).tables["p"]
    assert np.all((wanted.share_intervals > 0) & (wanted.share_intervals < 1))
    for function in (KnownRows.share_quantiles, quantiles.share_quantiles):
        monkeypatch.setitem(function.__kwdefaults__, "at_a_time", room)
    found = dirdp.estimate(output).tables["p"]
    for field in ("share_intervals", *(field.name for field in fields(wanted))):
        one, other = getattr(found, field), getattr(wanted, field)
        if not isinstance(other, str) and field != "share_quantiles":
            np.testing.assert_allclose(one, other, rtol=1e-11)


def test_the_share_of_the_only_cell_is_1():
    found = mixture([0.3], [[5], [7], [8]])
    assert np.all(share_quantiles(found, ENDS) == 1)
    assert [values.tolist() for values in found.moments] == [[1.0], [0.0]]


SMALL = [
    ([1e-3, 1e-3, 1e-3], [[0, 0, 0]]),
    ([1e-3, 1e-3, 1e-3], [[1, 0, 0]]),
    ([1e-3, 1e-3], [[0, 1], [1, 0]]),
    ([1e-3, 50.0], [[0, 9000], [3, 8997]]),
    ([0.5, 0.5], [[0, 100], [2, 98]]),
    ([0.386, 0.68], [[4, 0], [3, 1]]),
    ([1e-8, 1.0], [[0, 1]]),
    ([1e9, 1e-3], [[0, 0]]),
    ([9.9, 10.1], [[0, 0]]),
]


@pytest.mark.parametrize(("alpha", "counts"), SMALL, ids=str)
def test_small_parameters(alpha, counts):
    """Found by attack: an approximation whose distribution function stays below .95 had no quantile above it."""
    levels = np.array([5e-5, 0.0005, 0.25, 0.4995, 0.5, 0.5005, 0.75, 0.9995, 0.99995, 0.5])
    shares, x = share_quantiles(mixture(alpha, counts), levels), np.array(counts, dtype=float)
    assert np.all(np.diff(shares[np.argsort(levels)], axis=0) >= 0)
    for i, a in enumerate(alpha):
        others = sum(np.delete(alpha, i)) + np.delete(x, i, axis=1).sum(axis=1)
        mix = a + x[:, i], others, np.full(len(x), 1 / len(x))
        assert max(off(mix, share, level, 1e-9) for share, level in zip(shares[:, i], levels, strict=True)) < 1e-9


def test_counts_whose_probabilities_are_listed():
    """Found by a test of the command line: listed probabilities that are not smooth ended in an AttributeError.

    Oracle: the sum of Beta distribution functions, number by number.
    """
    weights = np.random.default_rng(1).dirichlet(np.full(200, 0.3))
    counts = Lists.whole(np.array([300, 301]), np.array([200, 200]), np.log([*weights, *weights[::-1]]))
    found = KnownRows(np.array([[0.5, 0.5]]), np.array([800]), counts).share_quantiles(ENDS)
    first = 300 + np.arange(200)
    np.testing.assert_allclose(beta.cdf(found[:, :1], 0.5 + first, 800.5 - first) @ weights, ENDS, atol=1e-8)
    second = 800 - first
    np.testing.assert_allclose(beta.cdf(found[:, 1:], 0.5 + second, 800.5 - second) @ weights, ENDS, atol=1e-8)


def test_a_quantile_that_is_not_found_is_an_error_of_the_library(monkeypatch):
    monkeypatch.setitem(quantiles._root.__kwdefaults__, "steps", 1)
    with pytest.raises(dirdp.errors.InternalError, match="report") as caught:
        share_quantiles(mixture([0.3, 1.0], [[5, 2], [7, 0], [0, 7]]), ENDS)
    assert not any(letter.isdigit() for letter in str(caught.value))


def check(output, most=None):
    """Moments and intervals of some cells are those of the sums."""
    found = dirdp.estimate(output, PROB, n_prior=most, progressbar=False).tables["p"]
    mixes = share_distributions(output, most)
    d = output.prior.shape[-1]
    # Where totals of rows are not known, quantiles of shares are those of draws.
    exact = most is None and output.prior.size // d in (1, len(output.observed_table.blocks))
    assert (found.caveat == "") == exact
    for cell in np.random.default_rng(d).permutation(len(mixes))[:4]:
        first, second, masses = mixes[divmod(int(cell), d)]
        share, size, prior = first / (first + second), first + second, output.prior.ravel()[cell]
        mean = masses @ share
        assert found.share_means[cell] == pytest.approx(mean, rel=1e-8)
        sd = np.sqrt(masses @ (share * (1 - share) / (size + 1) + (share - mean) ** 2))
        assert found.share_sds[cell] == pytest.approx(sd, rel=1e-6)
        ends = found.share_intervals[:, cell]
        assert np.all(ends[:, 0] <= ends[:, 1])
        for share, level, allowed in np.broadcast(ends, LEVELS, 1e-8 if exact else OF_DRAWS):
            assert off(mixes[divmod(int(cell), d)], share, level, allowed) < allowed
        counts = np.rint(first - prior)
        mean = masses @ counts
        assert found.count_means[cell] == pytest.approx(mean, rel=1e-8, abs=1e-10)
        assert found.count_sds[cell] == pytest.approx(np.sqrt(masses @ (counts - mean) ** 2), rel=1e-6, abs=1e-7)
        for end, level in np.broadcast(found.count_intervals[:, cell], LEVELS):
            assert masses[counts < end].sum() - 1e-9 < level <= masses[counts <= end].sum() + 1e-9


@pytest.mark.parametrize(
    ("seeds", "records", "rows"),
    [
        (range(20), 150, 2),
        pytest.param(range(20, 36), 150, 2, marks=pytest.mark.thorough),
        # Ends were off by up to .04 in level where noise has kinks, or a share is near 1.
        pytest.param((33, 57), 400, 3, marks=pytest.mark.thorough),
    ],
)
def test_releases_at_random(seeds, records, rows):
    for seed in seeds:
        check(*random_output(np.random.default_rng(seed), records, rows))


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
def test_counts_that_are_as_uncertain_as_the_share_given_them(ratio):
    """Found by releases at random: steps that were right for either function were too long for their product."""
    width = ratio * np.sqrt(2 * 800 / 4)
    check(output_of("discrete", np.array([415, 385]), width, np.ones(2), np.random.default_rng(1)))
