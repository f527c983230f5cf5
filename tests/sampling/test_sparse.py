"""Noise above a threshold: its distribution by all choices, its coin bit by bit, and draws with known power."""

import inspect
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, kstest, ncx2

from pymc_dirdp.sampling import geometric
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.geometric import _context, decimal_coin, noise_above
from tests.sampling.test_discrete_noise import Tree, contains, exponential

# Noise beyond this is put together.
MOST = 3


class Given(Bits):
    """These words and no others."""

    def __init__(self, words):
        super().__init__(0)
        self.words = list(words)

    def uniform(self, n):
        assert n == 2**64
        return self.words.pop(0)


def bounds(share, digits, length):
    """Two integers between which the probability of a coin lies, times `2**length`."""
    with localcontext(_context(digits)):
        about, error = share(digits)
        return math.floor(about * (1 - error) * 2**length), math.ceil(about * (1 + error) * 2**length)


def source(**changed):
    text = inspect.getsource(geometric)
    for old, new in changed.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def tree_of(text, n_cells, threshold, scale):
    """All outputs of the function, with the geometric draws and the coin by their exact distributions."""
    space = {}
    exec(compile(text, "sparse", "exec"), space)

    def run(tree):
        def geometric(uniform, t, s):
            ratio = exponential(Fraction(s, t))
            least = 1 - ratio - Fraction(1, 2**200)
            shares = [(x, exponential(Fraction(x * s, t)) * least) for x in range(MOST)]
            return tree.choose([*shares, (MOST, exponential(Fraction(MOST * s, t)))])

        def coin(share, digits, bits):
            low, high = bounds(share, 100, 192)
            return tree.choose([(True, Fraction(low, 2**192)), (False, 1 - Fraction(high, 2**192))])

        space.update(geometric=geometric, decimal_coin=coin)
        places, noise = space["noise_above"](n_cells, threshold, scale, Bits(0))
        return tuple(places.tolist()), tuple(noise)

    return Tree(run, least=1e-18)


def mass(threshold, scale, values):
    """The probability of a list.

    Where None stands for a cell that is not listed, by the distribution of the dense table.
    """
    with mpmath.workdps(60):
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        passing = q**threshold / (1 + q)
        factors = []
        for value in values:
            if value is None:
                factors.append(1 - passing)
            elif value == threshold + MOST:
                factors.append(q**value / (1 + q))
            else:
                factors.append((1 - q) / (1 + q) * q**value)
        return mpmath.fprod(factors)


CASES = [(1, 1, Fraction(1)), (2, 3, Fraction(3, 2)), (3, 1, Fraction(2)), (3, 2, Fraction(1, 3)), (3, 1, Fraction(40))]


def agrees(text, n_cells, threshold, scale):
    tree = tree_of(text, n_cells, threshold, scale)
    with mpmath.workdps(60):
        outputs = list(product([None, *range(threshold, threshold + MOST + 1)], repeat=n_cells))
        for values in outputs:
            listed = [i for i, value in enumerate(values) if value is not None]
            interval = tree.interval((tuple(listed), tuple(values[i] for i in listed)))
            if not contains(interval, mass(threshold, scale, values)) or interval[1] - interval[0] > 1e-12:
                return False
    # There are no other outputs.
    return len(tree.mass) <= len(outputs)


@pytest.mark.parametrize(("n_cells", "threshold", "scale"), CASES)
def test_all_outputs_of_small_tables_have_the_distribution_of_the_dense_one(n_cells, threshold, scale):
    assert agrees(source(), n_cells, threshold, scale)


@pytest.mark.parametrize(
    "change",
    [
        {"place + 1 + geometric(uniform, t, 1)": "place + 1 + geometric(uniform, t, 1) + (place >= 0)"},
        {"place, places, noise = bits.uniform, -1, [], []": "place, places, noise = bits.uniform, 0, [], []"},
        {"if decimal_coin(share, more, bits):": "if True:"},
        {"threshold + geometric(": "threshold + 1 + geometric("},
        {"/ (1 - (-1 / Decimal(t)).exp())": "* t"},
        {"(1 + (-_decimal(1 / scale)).exp())": "2"},
    ],
    ids=["a cell left out", "the first cell", "no coin", "one too many", "nearly", "half"],
)
def test_a_wrong_draw_is_found(change):
    assert not all(agrees(source(**change), *case) for case in CASES[:3])


@pytest.mark.parametrize(
    ("threshold", "scale"),
    [
        (1, Fraction(1)),
        (1, Fraction(2**40)),
        (27, Fraction(2)),
        (1000, Fraction(401, 10)),
        (50, Fraction(1, 3)),
        (2**40, Fraction(2**36)),
        (400, Fraction(1)),
        (2**40, Fraction(1, 512)),
    ],
)
@pytest.mark.parametrize("length", [64, 128, 1024])
def test_bounds_on_the_acceptance_probability(threshold, scale, length):
    """With 60 more digits than they have, and they leave at most two numbers open."""
    t = geometric._mean_distance(threshold, scale)
    digits = 30 + length // 3 + 2 * len(str(t)) + len(str(math.ceil(threshold / scale)))
    low, high = bounds(partial(geometric._acceptance, threshold, scale, t), digits, length)
    with mpmath.workdps(length // 3 + 250):
        u = mpmath.mpf(scale.denominator) / scale.numerator
        passing = mpmath.exp(-threshold * u) / (1 + mpmath.exp(-u))
        share = passing / -mpmath.expm1(-mpmath.mpf(1) / t)
        assert share <= 1
        assert low <= share * mpmath.mpf(2) ** length <= high
        # Candidates are no more than needed, unless hardly any cell is one.
        assert share > 0.4 or t == 2**256
    assert high - low <= 2


def test_the_coin_compares_all_digits():
    """With the digits of 1 / e as words: a number below it is heads, one above is tails, and the same one asks on."""

    def share(digits):
        return Decimal(-1).exp(), Decimal(10) ** (2 - digits)

    def words(length):
        with mpmath.workdps(200):
            return int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** length)) % 2**64

    digits = [words(length) for length in (64, 128, 192)]
    for known in range(3):
        assert decimal_coin(share, 0, Given([*digits[:known], digits[known] - 1])) is True
        assert decimal_coin(share, 0, Given([*digits[:known], digits[known] + 1])) is False
    with pytest.raises(IndexError):
        decimal_coin(share, 0, Given(digits))
    assert decimal_coin(lambda digits: (Decimal(1), Decimal(0)), 0, Given([2**64 - 1])) is True
    assert decimal_coin(lambda digits: (Decimal(0), Decimal(0)), 0, Given([0])) is False


@pytest.mark.parametrize(("threshold", "scale"), [(5, Fraction(2)), (1, Fraction(9))])
def test_draws_have_the_distribution_of_the_dense_table_and_the_test_has_power(threshold, scale):
    """Chi-square at 1e-6 of how many are listed, where, and what; another scale, 10 % away, is found almost surely."""
    cells, draws, bits = 40, 3000, Bits(5)
    lists = [noise_above(cells, threshold, scale, bits) for _ in range(draws)]
    places = np.bincount(np.concatenate([where for where, _ in lists]), minlength=cells)
    noise = Counter(value for _, values in lists for value in values)
    seen = np.array([noise[threshold + x] for x in range(12)])
    seen = np.append(seen, draws * cells - seen.sum())

    def expected(scale):
        q = math.exp(-1 / scale)
        each = (1 - q) / (1 + q) * q ** (threshold + np.arange(12.0))
        return draws * cells * np.append(each, 1 - each.sum()), draws * q**threshold / (1 + q)

    by_value, by_place = expected(scale)
    wrong, _ = expected(float(scale) * 1.1)

    def statistic(counted, distribution):
        return float(np.sum((counted - distribution) ** 2 / distribution))

    least = chi2.isf(1e-6, 12)
    assert statistic(seen, by_value) < least < statistic(seen, wrong)
    assert ncx2.sf(least, 12, statistic(by_value, wrong)) > 0.999
    # The places, whose counts have a variance below that of a Poisson distribution.
    assert statistic(places, np.full(cells, by_place)) < chi2.isf(1e-6, cells)
    sizes = np.array([len(where) for where, _ in lists])
    share = by_place / draws
    assert abs(sizes.mean() - cells * share) < 5 * math.sqrt(cells * share * (1 - share) / draws)
    assert sizes.var() == pytest.approx(cells * share * (1 - share), rel=5 * math.sqrt(2 / draws) + 0.02)


@pytest.mark.parametrize("n_cells", [10**10, 2**63 - 1])
def test_huge_tables_take_a_time_that_depends_on_the_list_alone(n_cells):
    """Counted in words of random bits; places are uniform and distinct, also in their last digits."""

    class Counting(Bits):
        asked = 0

        def uniform(self, n):
            self.asked += 1
            return super().uniform(n)

    bits, threshold = Counting(3), math.ceil(2 * math.log(n_cells / 4000))
    places, noise = noise_above(n_cells, threshold, Fraction(2), bits)
    share = math.exp(-threshold / 2) / (1 + math.exp(-0.5))
    assert abs(len(places) - n_cells * share) < 6 * math.sqrt(n_cells * share)
    assert bits.asked < 60 * len(places)
    assert np.all(np.diff(places) > 0)
    assert 0 <= places[0] <= places[-1] < n_cells
    assert kstest(places / n_cells, "uniform").pvalue > 1e-6
    for modulus in (2, 7, 64):
        seen = np.bincount(places % modulus, minlength=modulus)
        assert np.sum((seen - len(places) / modulus) ** 2) * modulus / len(places) < chi2.isf(1e-6, modulus - 1)
    assert min(noise) == threshold


def test_a_threshold_that_nothing_passes():
    assert noise_above(2**63 - 1, 2**40, Fraction(1, 512), Bits())[1] == []
    places, noise = noise_above(2**63 - 1, 10**6, Fraction(1), Bits())
    assert places.dtype == np.int64
    assert (places.size, noise) == (0, [])
