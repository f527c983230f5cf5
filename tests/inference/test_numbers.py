"""Lists of numbers by Gauss rules in blocks against lists of all numbers, at counts up to a million."""

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import KnownRows
from pymc_dirdp.inference.numbers import ImpossibleError, Numbers, TooManyNumbersError
from pymc_dirdp.inference.quantiles import count_quantiles, probability_up_to
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

LEVELS = np.array([1e-6, 0.025, 0.3, 0.5, 0.75, 0.975, 1 - 1e-6])


def of_prior(alpha, x):
    """Not by the difference of two large logarithms, which is rounded."""
    return _log_gamma_ratio(x, alpha)


def kinked(n):
    """Kinks at integers and between them, and a curve that has none."""
    z, alpha = np.array([0.3, 0.5, 0.9001, 0.61]) * n, np.array([1.0, 0.5, 3.0, 0.2])
    scale = np.array([n**0.5, 3.0, n**0.7, n / 20])

    def log_weight(x, i):
        off = np.abs(x - np.where(i < 2, np.rint(z[i]), z[i] + 0.3)) / scale[i]
        return np.where(i == 2, -(off**2) / 2, -off) + of_prior(alpha[i], x)

    return log_weight


def edge(n):
    """Next to nothing is known but that there are few: priors of less than a record peak at 0."""
    alpha = np.array([0.5, 1e-3, 1.0, 0.5])
    scale = np.array([n / 30, n / 30, n / 30, n / 3])
    return lambda x, i: of_prior(alpha[i], x) - x / scale[i]


def urn(n):
    seen, r, prior = np.array([20, 0, 4, 400]), 300 / n, np.array([1.0, 0.5, 2.0, 1.0])
    return lambda x, i: (
        gammaln(seen[i] + r * x + prior[i]) - gammaln(r * x + prior[i]) + of_prior(prior[i], x) - 1.2 * r * x
    )


KINDS = {"kinked": kinked, "edge": edge, "urn": urn}


def both(name, n, tilt=0.0, longest=np.inf):
    """The same numbers, all listed and in blocks."""
    log_weight = KINDS[name](n)
    every = Numbers(log_weight, 4, 0, n, most_listed=10**7, few=0).at(tilt, longest=None)
    blocks = Numbers(log_weight, 4, 0, n, few=0).at(tilt, longest=np.full(4, longest), dense=0)
    assert (every.are_whole, blocks.are_whole) == (True, False)
    return every, blocks


@pytest.mark.parametrize("n", [5_000, 10**6])
@pytest.mark.parametrize("name", KINDS)
def test_blocks_have_the_sums_and_quantiles_of_all_numbers(name, n):
    for tilt in (0.0, 3 / n, -(n**-0.5)):
        every, blocks = both(name, n, tilt)
        # Of two weights the logarithms are rounded.
        rounding = 3e-16 * np.abs(every.logs[np.isfinite(every.logs)]).max()
        np.testing.assert_allclose(blocks.log_totals, every.log_totals, rtol=0, atol=1e-11 + rounding)
        off = (blocks.means - every.means) / np.maximum(every.means, np.sqrt(every.variances))
        assert np.abs(off).max() < 1e-11 + rounding
        np.testing.assert_allclose(blocks.variances, every.variances, rtol=1e-11 + 10 * rounding, atol=1e-13)
    found = count_quantiles(LEVELS, blocks)
    for cell in range(every.size):
        cdf = np.append(0.0, np.cumsum(every.pmf(cell).astype(np.longdouble)).astype(np.float64))
        place = np.clip(found[:, cell] - every.lows[cell], 0, len(cdf) - 2)
        # Where a level is met but for rounding either number is right.
        assert np.all(cdf[place + 1] >= LEVELS - 1e-9)
        assert np.all(cdf[place] <= LEVELS + 1e-9)
    assert np.mean(found == count_quantiles(LEVELS, every)) > 0.9


@pytest.mark.parametrize("longest", [np.inf, 300.0])
@pytest.mark.parametrize("name", KINDS)
def test_probabilities_between_nodes_are_those_of_the_numbers(name, longest):
    """Within a block they follow a polynomial."""
    every, blocks = both(name, 20_000, longest=longest)
    for cell in range(every.size):
        x = np.arange(20_001)
        exact = np.zeros(len(x))
        exact[every.lows[cell] : every.highs[cell] + 1] = every.pmf(cell)
        inside = (x >= blocks.lows[cell]) & (x <= blocks.highs[cell])
        upto = probability_up_to(blocks, np.full(inside.sum(), cell), x[inside])
        assert np.abs(upto - np.cumsum(exact)[inside]).max() < 1e-9
        assert np.abs(np.diff(upto, prepend=0.0) - exact[inside]).max() < 1e-7 * exact.max()
    if np.isfinite(longest):
        assert blocks.blocks[2].max() <= 300
    # Shares given the counts are narrower than long blocks.
    rows = (KnownRows(np.ones((1, 4)), np.array([20_000]), of) for of in (blocks, every))
    np.testing.assert_allclose(*(row.share_quantiles(LEVELS[1:-1]) for row in rows), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 20])
def test_rough_moments_are_near(size):
    """Near enough for a search, at tilts that were searched for and at ones that were not."""
    rng = np.random.default_rng(size)
    z, scale = rng.uniform(0, 10**6, size), np.exp(rng.uniform(0, 10, size))
    numbers = Numbers(lambda x, i: -np.abs(x - z[i]) / scale[i], size, 0, 10**6)
    every = Numbers(lambda x, i: -np.abs(x - z[i]) / scale[i], size, 0, 10**6)
    for tilt in (0.0, 1e-7, 1e-5, 0.01, 3.0, -3.0, 0.0):
        found, exact = numbers.rough(tilt), every.at(tilt, longest=np.full(size, np.inf))
        sds = np.sqrt(exact.variances)
        assert np.all(np.abs(found.means - exact.means) < 0.4 * sds + 0.1)
        assert np.all(np.abs(found.variances - exact.variances) < 0.4 * exact.variances + 0.1)


def test_numbers_that_are_too_many_are_refused_and_so_is_what_is_impossible():
    with pytest.raises(TooManyNumbersError, match="larger parameters, or merge"):
        Numbers(lambda x, i: 0.0 * x, 3, 0, 10**6, smooth=False, most_listed=10**6).at(0.0)
    with pytest.raises(ImpossibleError, match="0 in double precision"):
        Numbers(lambda x, i: np.where(i == 1, -np.inf, 0.0 * x), 2, 0, 100).at(0.0)
    with pytest.raises(ArgumentError, match="NaN or"):
        Numbers(lambda x, i: np.where(x == 7, np.nan, 0.0), 2, 0, 100).at(0.0)


def test_only_numbers_that_others_leave_room_for_are_listed():
    numbers = Numbers(lambda x, i: -np.abs(x - 5000.0) / 100 + 0 * i, 2, 0, 10**6)
    found = numbers.at(0.0, room=lambda lows, highs: (np.array([4000, -5]), np.array([6000, 4500])))
    assert found.lows[0] == 4000
    assert found.highs.tolist() == [6000, 4500]
    # What the windows of the others leave is less than what all of their numbers do, but never nothing.
    found = numbers.at(0.0, room=lambda lows, highs: (lows, 2000 - (lows.sum() - lows)))
    assert found.highs.tolist() == [2000, 2000]
