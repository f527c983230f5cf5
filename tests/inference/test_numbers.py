"""Lists of numbers by Gauss rules in blocks against lists of all numbers, at counts up to a million."""

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import ImpossibleError, Lists, Numbers, TooManyNumbersError
from pymc_dirdp.inference.quantiles import count_quantiles, probability_up_to
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

LEVELS = np.array([1e-6, 0.025, 0.3, 0.5, 0.75, 0.975, 1 - 1e-6])


def of_prior(alpha, x):
    """Not by the difference of two large logarithms, which is rounded."""
    return _log_gamma_ratio(x, alpha)


def kinked(n):
    z = np.array([0.3, 0.5, 0.9001]) * n
    scale = np.array([n**0.5, 3.0, n**0.7])
    return lambda x, i: -np.abs(x - np.rint(z[i])) / scale[i] + of_prior(np.array([1.0, 0.5, 3.0])[i], x)


def between(n):
    """Kinks between integers."""
    z = np.array([0.3 * n + 0.3, 0.61 * n + 0.77])
    return lambda x, i: -np.abs(x - z[i]) / np.array([n / 20, 70.0])[i] + of_prior(np.array([0.2, 1.0])[i], x)


def smooth(n):
    z, sd = np.array([0.3, 0.5, 0.9, 0.02]) * n, np.array([n / 10, n**0.5, 2.0, n**0.6])
    return lambda x, i: -(((x - z[i]) / sd[i]) ** 2) / 2 + of_prior(np.array([1.0, 0.5, 3.0, 1.0])[i], x)


def edge(n):
    """Next to nothing is known but that there are few: priors of less than a record peak at 0."""
    alpha = np.array([0.5, 1e-3, 1.0, 0.5])
    scale = np.array([n / 30, n / 30, n / 30, n / 3])
    return lambda x, i: of_prior(alpha[i], x) - x / scale[i]


def several(n):
    z = np.array([[0.3, 0.31, 0.33], [0.5, 0.7, 0.9]]) * n
    scale = np.array([[n**0.5, 2 * n**0.5, n / 50], [n / 20, n / 40, n / 3]])
    return lambda x, i: sum(-np.abs(x - np.rint(z[i, k])) / scale[i, k] for k in range(3))


def urn(n):
    seen, r, prior = np.array([20, 0, 4, 400]), 300 / n, np.array([1.0, 0.5, 2.0, 1.0])
    return lambda x, i: (
        gammaln(seen[i] + r * x + prior[i]) - gammaln(r * x + prior[i]) + of_prior(prior[i], x) - 1.2 * r * x
    )


def dirichlet_draw(n):
    y, r = np.log([0.5, 0.3, 1e-4]), 100 / n
    return lambda x, i: (r * x + 0.5) * y[i] - gammaln(r * x + 1.5)


KINDS = {
    "kinked": (kinked, 3),
    "between": (between, 2),
    "smooth": (smooth, 4),
    "edge": (edge, 4),
    "several": (several, 2),
    "urn": (urn, 4),
    "draw": (dirichlet_draw, 3),
}


def both(name, n, tilt=0.0, longest=np.inf):
    """The same numbers, all listed and in blocks."""
    log_weight, size = KINDS[name][0](n), KINDS[name][1]
    numbers = Numbers(log_weight, size, 0, n, few=0)
    every = Numbers(log_weight, size, 0, n, most_listed=10**7).at(tilt, longest=None)
    blocks = numbers.at(tilt, longest=np.full(size, longest), dense=0)
    assert every.are_whole
    return every, blocks


@pytest.mark.parametrize("n", [5_000, 10**6])
@pytest.mark.parametrize("name", KINDS)
def test_blocks_have_the_sums_of_all_numbers(name, n):
    for tilt in (0.0, 3 / n, -7 / n, -(n**-0.5)):
        every, blocks = both(name, n, tilt)
        assert not blocks.are_whole
        # Of two weights the logarithms are rounded.
        rounding = 3e-16 * np.abs(every.logs[np.isfinite(every.logs)]).max()
        np.testing.assert_allclose(blocks.log_totals, every.log_totals, rtol=0, atol=1e-11 + rounding)
        sds = np.sqrt(every.variances)
        off = (blocks.means - every.means) / np.maximum(every.means, sds)
        assert np.abs(off).max() < 1e-11 + rounding
        np.testing.assert_allclose(blocks.variances, every.variances, rtol=1e-11 + 10 * rounding, atol=1e-13)


@pytest.mark.parametrize("n", [5_000, 10**6])
@pytest.mark.parametrize("name", KINDS)
def test_quantiles_of_counts_are_those_of_all_numbers(name, n):
    every, blocks = both(name, n)
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
    every, blocks = both(name, 60_000, longest=longest)
    for cell in range(every.size):
        x = np.arange(blocks.lows[cell], blocks.highs[cell] + 1)
        upto, exact = probability_up_to(blocks, np.full(len(x), cell), x), every.pmf(cell)
        found = np.diff(upto, prepend=0.0)
        low = int(every.lows[cell] - blocks.lows[cell])
        inside = np.zeros(len(found))
        first, last = max(0, low), min(len(found), low + len(exact))
        inside[first:last] = exact[first - low : last - low]
        assert np.abs(upto - np.cumsum(inside)).max() < 1e-9
        assert np.abs(found - inside).max() < 1e-7 * exact.max()
    if np.isfinite(longest):
        assert blocks.blocks[2].max() <= 300


def test_a_rule_that_is_wrong_at_one_node_is_noticed():
    every, blocks = both("kinked", 60_000)
    logs = blocks.logs.copy()
    logs[blocks.masses[blocks.cell == 0].argmax()] += 1e-8
    wrong = Lists(blocks.lows, blocks.highs, blocks.cell, blocks.x, logs, 0.0, blocks.rule, blocks.blocks)
    assert abs(wrong.log_totals[0] - every.log_totals[0]) > 1e-10
    np.testing.assert_allclose(wrong.log_totals[1:], every.log_totals[1:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", [1, 3, 50])
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
