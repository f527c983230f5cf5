"""Floating-point draws of intensities above a floor: their distribution, their grid, and the last bits."""

import itertools
import math

import numpy as np
import pytest
from mpmath import exp, log, mpf, quad, workdps
from scipy.stats import chi2_contingency, chisquare, kstest

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.sampling import floored as floored_fast
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.floored import cells_of, exact_floored, fast_floored, intensities

DISTRIBUTIONS = [
    # a, floor, ceiling
    (1e-3, 1e-3, math.inf),
    (1e-3, 1.0, math.inf),
    (1e-3, 1e4, math.inf),
    (0.3, 1e-3, math.inf),
    (1.0, 8.0, math.inf),
    (16.5, 8.0, math.inf),
    (2000.0, 8.0, math.inf),
    (2000.0, 2000.0, math.inf),
    (9900.0, 1e4, math.inf),
    (12_000.0, 1e4, math.inf),
    (1e7, 1e-3, math.inf),
    (1e7, 1e4, math.inf),
    (1e-3, 1e-3, 0.5),
    (5.0, 2.0, 6.0),
    (5.0, 2.0, 2.001),
    (300.0, 2.0, 40.0),
    (1e7, 2.0, 1e4),
    (3.0, 900.0, 905.0),
]


def masses(edges, a, floor, ceiling):
    """Probabilities between edges on the logarithmic scale over the floor, by mpmath's quadrature."""
    with workdps(30):
        mode = log(mpf(min(max(a, floor), ceiling)) / floor)
        peak = a * mode - floor * exp(mode)

        def density(w):
            return exp(a * w - floor * exp(w) - peak)

        parts = [quad(density, [mpf(x), mpf(y)]) for x, y in itertools.pairwise(edges)]
        return np.array([float(part / sum(parts)) for part in parts])


@pytest.mark.thorough
@pytest.mark.parametrize(("a", "floor", "ceiling"), DISTRIBUTIONS)
def test_the_distribution(a, floor, ceiling):
    """Chi-square at 1e-6 of 40,000 draws in forty classes against mpmath; a draw that is a little off is rejected."""
    n = 40_000
    cells = fast_floored([a], 0.5, floor, [0], ceiling=ceiling, draws=n, rng=np.random.default_rng(8)).ravel()
    w = cells / 2**36 * math.log(2)
    # The classes hold about as many draws of another seed each, and reach from the floor to where nothing is left.
    other = fast_floored([a], 0.5, floor, [0], ceiling=ceiling, draws=n, rng=np.random.default_rng(9)).ravel()
    inner = np.quantile(other / 2**36 * math.log(2), np.linspace(0, 1, 41)[1:-1])
    last = math.log(ceiling / floor) if ceiling < math.inf else 4 * inner[-1] - 3 * inner[0]
    edges = np.array([0, *inner, last])
    expected = n * masses(edges, a, floor, ceiling)
    assert chisquare(np.histogram(np.clip(w, 0, last), edges)[0], expected).pvalue > 1e-6
    shifted = w + 0.2 * np.std(w)
    assert chisquare(np.histogram(np.clip(shifted, 0, last), edges)[0], expected).pvalue < 1e-6


@pytest.mark.parametrize(("a", "floor", "ceiling"), DISTRIBUTIONS)
def test_most_tries_are_taken(a, floor, ceiling):
    """So the time of a draw hardly depends on the counts."""
    taken = floored_fast._tries(np.full(20_000, a), floor, ceiling, np.random.default_rng(4))[1]
    assert taken.mean() > 0.6


@pytest.mark.thorough
def test_exact_and_fast_draws_have_one_distribution():
    alpha, counts = np.array([[0.02, 0.5], [3.0, 0.02]]), [[0, 7], [400, 12_000]]
    exact = exact_floored(alpha, 0.7, 8.0, counts, draws=700, bits=Bits(5))
    fast = fast_floored(alpha, 0.7, 8.0, counts, draws=20_000, rng=np.random.default_rng(5))
    assert exact.dtype == fast.dtype
    assert fast.shape == (20_000, 2, 2)
    for place in np.ndindex(2, 2):
        one, other = (np.sort(drawn[:, *place]) for drawn in (exact, fast))
        shares = np.searchsorted(other, one) / other.size
        assert kstest(shares, "uniform").pvalue > 1e-6


@pytest.mark.parametrize(("a", "floor", "ceiling"), DISTRIBUTIONS)
def test_every_draw_lies_on_the_grid(a, floor, ceiling):
    cells = fast_floored([a, 2 * a], 1.0, floor, [0, 3], ceiling=ceiling, draws=2000, rng=np.random.default_rng(1))
    g = intensities(cells, floor)
    assert np.all((cells >= 0) & (floor < g) & (g < ceiling * (1 + 2.0**-36)))
    assert np.array_equal(cells_of(g, floor), cells)


def test_as_many_records_as_there_may_be():
    cells = fast_floored([0.02, 0.02], 1.0, 8.0, [2**53, 0], draws=1000, rng=np.random.default_rng(1))
    g = intensities(cells, 8.0)[:, 0]
    assert abs(g.mean() / 2**53 - 1) < 1e-8
    assert 0.8 < g.std() / 2**26.5 < 1.2


NEIGHBOURS = [([0, 7], [1, 6]), ([250, 31], [251, 30])]


@pytest.mark.thorough
@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_the_last_bits_do_not_tell_neighbours_apart(pair):
    """The low byte of 300,000 cells is uniform and the same for both; that of a draw without its lowest bit is not."""
    rng = np.random.default_rng(6)
    seen = [fast_floored([0.02, 0.02], 0.7, 8.0, table, draws=300_000, rng=rng) & 255 for table in pair]
    for place in (0, 1):
        bytes_ = np.array([np.bincount(s[:, place], minlength=256) for s in seen])
        assert min(chisquare(b).pvalue for b in bytes_) > 1e-6
        assert chi2_contingency(bytes_).pvalue > 1e-6
        assert chisquare(np.bincount(seen[0][:, place] & 254, minlength=256)).pvalue < 1e-6


class Coarse(np.random.Generator):
    """Uniform numbers of 20 bits, so that what is coarse far out is so within reach of a test."""

    def random(self, size=None):
        return (np.floor(super().random(size) * 2**20) + 0.5) / 2**20


def test_exponential_variables_are_fine_far_out():
    """Above 8 the logarithm of such a number takes 352 values. The share of a sum of two does not repeat itself."""
    rng = Coarse(np.random.PCG64(1))
    plain, ours = -np.log(rng.random(1_000_000)), floored_fast._exponential(1_000_000, rng)
    plain, ours = plain[plain > 8], ours[ours > 8]
    assert min(len(plain), len(ours)) > 200
    assert len(set(plain)) < 0.8 * len(plain)
    assert len(set(ours)) == len(ours)
    assert kstest(floored_fast._exponential(100_000, np.random.default_rng(2)), "expon").pvalue > 1e-6


def test_a_seed_fixes_the_draws_and_they_are_independent():
    def draw(seed):
        return fast_floored([0.3, 5.0, 90.0], 1.0, 8.0, [1, 2, 3], draws=300, rng=np.random.default_rng(seed))

    assert np.array_equal(draw(1), draw(1))
    assert not np.any(draw(1) == draw(2))
    ranks = np.argsort(np.argsort(draw(1), axis=0), axis=0)
    assert np.all(np.abs(np.corrcoef(ranks, rowvar=False)[np.triu_indices(3, 1)]) < 0.3)


def test_arguments():
    rng = np.random.default_rng(1)
    for wrong in ({"r": 0.0}, {"floor": 0.0}, {"ceiling": 8.0}, {"alpha": [0.0, 1.0]}, {"draws": 0}):
        settings = {"alpha": [1.0, 1.0], "r": 1.0, "floor": 8.0, "counts": [3, -4], "draws": 1, "rng": rng} | wrong
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            fast_floored(**settings)
    with pytest.raises(DataError) as error:
        fast_floored([1.0, 1.0], 1.0, 8.0, [3, -98765], draws=1, rng=rng)
    assert "98765" not in str(error.value)
