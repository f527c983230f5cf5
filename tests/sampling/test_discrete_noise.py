"""Discrete noise: its distribution by its tree of choices.

Draws with known power, and scales at the ends of the doubles.
"""

import inspect
import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, ncx2

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling import discrete_noise
from pymc_dirdp.sampling import discrete_noise as compiled_noise
from pymc_dirdp.sampling.bits import Bits, exponential_coin
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian, discrete_laplace, dyadic_above

SMALL_SCALES = [Fraction(1), Fraction(3, 2), Fraction(2, 5), Fraction(4), Fraction(1, 3)]
SMALL_VARIANCES = [Fraction(1), Fraction(5, 4), Fraction(1, 5), Fraction(9), Fraction(1, 30), Fraction(17, 3)]


class RestartError(Exception):
    """A draw begins again from nothing: that state was there before, so no new one has to be followed."""


class Tree:
    """Follows a function through all outcomes of its choices; no mass is above the true one.

    Masses are integers in units of 2**-256, rounded down. What is left of 1 is the mass that was not followed.
    """

    ONE = 2**256

    def __init__(self, run, least):
        self.mass, self.restarted = Counter(), 0
        paths = [((), self.ONE)]
        while paths:
            path, weight = paths.pop()
            if weight < least * self.ONE:
                continue
            self.path, self.at, self.asked = path, 0, None
            try:
                self.mass[run(self)] += weight
            except RestartError:
                self.restarted += weight
            except EOFError:
                paths += [((*path, outcome), math.floor(weight * share)) for outcome, share in self.asked]

    def choose(self, outcomes):
        if self.at == len(self.path):
            self.asked = outcomes
            raise EOFError
        self.at += 1
        return self.path[self.at - 1]

    def interval(self, value):
        """Both ends of the probability of a value, given that the draw ends."""
        unresolved = self.ONE - self.mass.total() - self.restarted
        low, high = self.mass[value], self.mass[value] + unresolved
        ends = self.ONE - self.restarted
        return Fraction(low, ends), Fraction(high, ends - unresolved)


@cache
def exponential(x):
    """`exp(-x)` as a fraction, not above it and within 1e-60."""
    with mpmath.workdps(80):
        return Fraction(int(mpmath.floor(mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * 2**210)), 2**210)


def coins(tree):
    """`exponential_coin` as one choice with its weight."""

    def coin(uniform, a, b, c=1, d=1):
        assert 0 <= a <= b
        assert 0 <= c <= d
        heads = exponential(Fraction(a * c, b * d))
        # What is missing at 1 is mass that is not followed.
        tails = 1 - heads - Fraction(1, 2**209) if heads < 1 else Fraction(0)
        return tree.choose([(True, heads), (False, tails)] if tails else [(True, heads)])

    return coin


class Below:
    """A uniform number below n, of which only comparisons are asked: a branch for each answer, not for each number."""

    def __init__(self, tree, n):
        self.tree, self.n = tree, n

    def __lt__(self, a):
        share = Fraction(min(max(a, 0), self.n), self.n)
        return self.tree.choose([(True, share), (False, 1 - share)])

    def __le__(self, a):
        return self < a + 1

    def __eq__(self, a):
        assert a == 0
        return self < 1


def source(**changed):
    """The module's own functions, or those of a changed text of it."""
    # The coin is defined again at the end, so that it can be changed, too.
    text = inspect.getsource(discrete_noise) + inspect.getsource(exponential_coin)
    for old, new in changed.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def functions(text):
    space = {}
    exec(compile(text, "discrete_noise", "exec"), space)
    return space


def coin_tree(text, *numbers):
    coin = functions(text)["exponential_coin"]
    return Tree(lambda tree: coin(lambda n: Below(tree, n), *numbers), least=1e-30)


def laplace_tree(text, scale):
    space = functions(text)

    def run(tree):
        asked = []

        def uniform(n):
            # The number u comes first and the sign last; whatever comes otherwise is the number u of another round.
            accepted = asked and asked[0] == "kept"
            if asked == ["u"] or "sign" in asked:
                raise RestartError
            asked[:] = ["sign"] if accepted else ["u"]
            return tree.choose([(value, Fraction(1, n)) for value in range(n)])

        plain = coins(tree)

        def coin(*given):
            heads = plain(*given)
            if asked == ["u"] and heads:
                asked[:] = ["kept"]
            return heads

        space["exponential_coin"] = coin
        return space["laplace"](uniform, scale.numerator, scale.denominator)

    return Tree(run, least=1e-17)


def gaussian_tree(text, variance):
    space = functions(text)

    @cache
    def shares(t):
        ratio = exponential(Fraction(1, t))
        # Powers of a ratio that is too small are too small; its normalisation is not, so a little is taken off.
        first = (1 - ratio) / (1 + ratio) * (1 - Fraction(1, 2**200))
        powers = {x: first * exponential(Fraction(x, t)) for x in range(28 * t + 1)}
        return [(x, powers[abs(x)]) for x in range(-28 * t, 28 * t + 1)]

    def run(tree):
        rounds = itertools.count()

        def laplace(uniform, t, s):
            if next(rounds):
                raise RestartError
            assert s == 1
            return tree.choose(shares(t))

        space.update(laplace=laplace, exponential_coin=coins(tree))
        return space["gaussian"](None, variance.numerator, variance.denominator)

    return Tree(run, least=1e-15)


def laplace_mass(scale, x):
    with mpmath.workdps(40):
        ratio = mpmath.exp(-1 / mpmath.mpf(scale.numerator) * scale.denominator)
        return (1 - ratio) / (1 + ratio) * ratio ** abs(x)


def gaussian_mass(variance, x):
    with mpmath.workdps(40):
        s = mpmath.mpf(variance.numerator) / variance.denominator
        # Jacobi's theta function at exp(-1 / (2 s)) is the sum over all integers.
        return mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * s)) / mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * s)))


def contains(interval, value):
    low, high = (mpmath.mpf(end.numerator) / end.denominator for end in interval)
    return low * (1 - mpmath.mpf(10) ** -38) <= value <= high * (1 + mpmath.mpf(10) ** -38)


def holds(tree, distribution, values, tight):
    """Whether the distribution lies in every interval; none of them is wide."""
    with mpmath.workdps(40):
        intervals = [tree.interval(value) for value in values]
        assert all(high - low < tight for low, high in intervals)
        return all(contains(interval, distribution(value)) for interval, value in zip(intervals, values, strict=True))


COINS = [
    (0, 1),
    (1, 1),
    (1, 2),
    (2, 3),
    (7, 7),
    (3, 1000),
    (1, 10**30),
    (1, 2, 1, 3),
    (2, 3, 5, 7),
    (10**20, 10**20, 1, 9),
]


def coin_distribution(numbers):
    a, b, c, d = (*numbers, 1, 1)[:4]
    x = mpmath.mpf(a * c) / (b * d)
    return {True: mpmath.exp(-x), False: -mpmath.expm1(-x)}.__getitem__


@pytest.mark.parametrize("numbers", COINS)
def test_the_coin_by_all_its_choices(numbers):
    with mpmath.workdps(40):
        assert holds(coin_tree(source(), *numbers), coin_distribution(numbers), [True, False], 1e-25)


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_laplace_noise_by_all_its_choices(scale):
    assert holds(laplace_tree(source(), scale), lambda x: laplace_mass(scale, x), range(-6, 7), 1e-13)


@pytest.mark.thorough
@pytest.mark.parametrize("variance", SMALL_VARIANCES)
def test_gaussian_noise_by_all_its_choices(variance):
    assert holds(gaussian_tree(source(), variance), lambda x: gaussian_mass(variance, x), range(-6, 7), 1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"return k % 2 == 1": "return k % 2 == 0"},
        {"uniform(b) < a and": "uniform(b) <= a and"},
        {"    k = 1\n    # P": "    k = 2\n    # P"},
        {" and (d == 1 or uniform(d) < c)": ""},
    ],
    ids=["even", "one too many", "a term left out", "a factor left out"],
)
def test_a_wrong_coin_is_found(change):
    with mpmath.workdps(40):
        text = source(**change)
        assert not all(
            holds(coin_tree(text, *numbers), coin_distribution(numbers), [True, False], 1e-15) for numbers in COINS
        )


@pytest.mark.parametrize(
    "change",
    [
        {"if not (negative and size == 0):": "if True:"},
        {"if not exponential_coin(uniform, u, t):": "if not (exponential_coin(uniform, u, t) or True):"},
        {"return (u + t * v) // s": "return -(-(u + t * v) // s)"},
        {"return (u + t * v) // s": "return u + t * v // s"},
    ],
    ids=["two zeros", "no rejection", "rounded up", "rounded first"],
)
def test_wrong_laplace_noise_is_found(change):
    text = source(**change)
    with mpmath.workdps(40):
        assert not all(
            contains(tree.interval(x), laplace_mass(scale, x))
            for scale in SMALL_SCALES
            for tree in [laplace_tree(text, scale)]
            for x in range(-3, 4)
        )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change",
    [
        {"distance, 2 * n, d * t * t": "distance, n, d * t * t"},
        {"abs(abs(x) * d * t - n)\n        if": "abs(abs(x) * d * t)\n        if"},
        {"for _ in range(i * j)": "for _ in range(i)"},
        {"exponential_coin(uniform, z, d) for _ in range(i)": "exponential_coin(uniform, x, b) for _ in range(i)"},
    ],
    ids=["variance", "centre", "whole coins", "coins mixed up"],
)
def test_wrong_gaussian_noise_is_found(change):
    text = source(**change)
    with mpmath.workdps(40):
        assert not all(
            contains(tree.interval(x), gaussian_mass(variance, x))
            for variance in SMALL_VARIANCES
            for tree in [gaussian_tree(text, variance)]
            for x in range(-3, 4)
        )


SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}
MASSES = {"laplace": laplace_mass, "gaussian": gaussian_mass}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "parameter", "other", "draws"),
    [
        ("laplace", Fraction(10), Fraction(11), 50_000),
        ("laplace", dyadic_above(7.123), dyadic_above(6.5), 50_000),
        ("gaussian", Fraction(100), Fraction(112), 40_000),
        ("gaussian", dyadic_above(25.075), dyadic_above(22.5), 40_000),
    ],
)
def test_draws_have_the_stated_distribution_and_the_test_has_power(kind, parameter, other, draws):
    """Chi-square with a threshold of 1e-6; the other parameter, 9 to 12 % away, is found with probability 0.99."""
    noise = SAMPLERS[kind](parameter, (draws,), Bits(2))
    ends = range(-300, 301)

    def cells(parameter):
        return draws * np.array([float(MASSES[kind](parameter, x)) for x in ends])

    seen, true, wrong = Counter(noise.tolist()), cells(parameter), cells(other)
    # Cells that are expected less than ten times under either distribution are put together.
    rare = np.minimum(true, wrong) < 10
    counted = np.array([seen[x] for x in ends])
    counted, true, wrong = (np.append(values[~rare], draws - values[~rare].sum()) for values in (counted, true, wrong))

    def statistic(expected):
        return float(np.sum((counted - expected) ** 2 / expected))

    freedom = len(true) - 1
    least = chi2.isf(1e-6, freedom)
    assert ncx2.sf(least, freedom, float(np.sum((true - wrong) ** 2 / wrong))) > 0.99
    assert statistic(true) < least < statistic(wrong)


THOROUGH = [
    ("laplace", dyadic_above(1e-5)),
    ("laplace", dyadic_above(1e17)),
    ("laplace", Fraction(2**62)),
    ("gaussian", dyadic_above(28.2)),
    ("gaussian", dyadic_above(1e-3)),
    ("gaussian", dyadic_above(1e12)),
    ("gaussian", Fraction(2**40, 2**10 + 1)),
    ("gaussian", dyadic_above(1e30)),
]


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [
        ("laplace", Fraction(10, 3)),
        ("gaussian", Fraction(100, 3)),
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in THOROUGH),
    ],
)
def test_compiled_and_python_make_the_same_noise_from_the_same_words(kind, parameter, monkeypatch):
    """Also what does not fit into 64 bits, and also at the ends of blocks, which 3000 draws cross several times."""
    given = SAMPLERS[kind], parameter, (3, 1000)
    bits = Bits(4)
    plain = given[0](*given[1:], bits)
    monkeypatch.setitem(discrete_noise._drawn.__kwdefaults__, "in_python", 0)
    other = Bits(4)
    fast = given[0](*given[1:], other)
    assert np.array_equal(plain, fast)
    assert all(type(x) is int for x in fast.ravel())
    # They also leave the same words behind.
    assert bits.uniform(2**64) == other.uniform(2**64)


def test_a_draw_that_meets_the_end_of_its_words_starts_again_from_its_first_one(monkeypatch):
    """With one more word at a time, so that each draw meets the end of its words at each place."""

    class Scarce(Bits):
        def ahead(self, least=1):
            return super().ahead(least)[:least]

    monkeypatch.setitem(discrete_noise._drawn.__kwdefaults__, "in_python", 0)
    for sampler, parameter in [(discrete_laplace, Fraction(9, 2)), (discrete_gaussian, Fraction(40, 3))]:
        assert np.array_equal(sampler(parameter, (200,), Scarce(1)), sampler(parameter, (200,), Bits(1)))


def test_numbers_that_pass_the_limit_of_compiled_code_are_drawn_in_python(monkeypatch):
    """With a limit so low that most draws pass it at one place or another."""
    noise = {}
    for limit in (2**62, 2**12):
        monkeypatch.setitem(discrete_noise._drawn.__kwdefaults__, "in_python", 0)
        monkeypatch.setattr(compiled_noise, "_LIMIT", limit)
        # Not compiled: the compiled code has the limit inside.
        monkeypatch.setattr(compiled_noise, "compiled_draws", lambda: compiled_noise._draws)
        with np.errstate(all="raise"):
            noise[limit] = [
                discrete_laplace(Fraction(900, 7), (300,), Bits(3)).tolist(),
                discrete_gaussian(Fraction(100, 3), (300,), Bits(3)).tolist(),
            ]
    assert noise[2**62] == noise[2**12]


def test_tiny_scales_give_zero_by_their_distribution_and_not_by_rounding():
    assert set(discrete_laplace(dyadic_above(1e-20), (2000,), Bits())) == {0}
    assert set(discrete_gaussian(dyadic_above(1e-20), (2000,), Bits())) == {0}
    # At 1 / 3 the share of zeros is that of the distribution: five standard deviations.
    seen = discrete_laplace(Fraction(1, 3), (20_000,), Bits(1)).tolist().count(0)
    share = float(laplace_mass(Fraction(1, 3), 0))
    assert abs(seen - 20_000 * share) < 5 * math.sqrt(20_000 * share * (1 - share))


def test_noise_at_a_tiny_scale_needs_many_coins_and_no_more():
    """With u = 0 kept, each coin of exp(-1) that shows heads takes two draws of 0 and one of a number that is not.

    So noise of 1 at the scale 1/50 has a probability, about exp(-50), and here are the words that lead to it.
    """

    def words(heads):
        # Below 2 and then below 3, whose leading bits are looked at.
        for _ in range(heads):
            yield from (0, 0b01 << 62)
        yield 0b1 << 63
        # The sign.
        yield 0

    def noise_from(stream):
        noise = discrete_noise.laplace(lambda n: next(stream) >> 64 - (n - 1).bit_length() if n > 1 else 0, 1, 50)
        assert list(stream) == []
        return noise

    assert [noise_from(words(heads)) for heads in (49, 50, 99, 100, 5000)] == [0, 1, 1, 2, 100]


@pytest.mark.parametrize("scale", [1e20, 1e300])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_huge_scales_are_exact(kind, scale):
    """No number twice, the right mean absolute value, and low digits as free as the high ones."""
    parameter = dyadic_above(scale)
    if kind == "gaussian":
        parameter = parameter**2
    draws = 4000
    noise = SAMPLERS[kind](parameter, (draws,), Bits(7))
    assert len(set(noise)) == draws
    mean = 1.0 if kind == "laplace" else math.sqrt(2 / math.pi)
    spread = 1.0 if kind == "laplace" else math.sqrt(1 - 2 / math.pi)
    size = float(Fraction(sum(map(abs, noise)), draws) / Fraction(scale))
    assert abs(size - mean) < 5 * spread / math.sqrt(draws)
    assert abs(sum(1 if x > 0 else -1 for x in noise)) < 5 * math.sqrt(draws)
    for modulus in (2, 3, 64, 101):
        seen = np.bincount([x % modulus for x in noise], minlength=modulus)
        assert np.sum((seen - draws / modulus) ** 2) * modulus / draws < chi2.isf(1e-6, modulus - 1)


def test_numbers_that_no_double_can_hold():
    """Nothing on the way is a floating-point number: it would overflow, or be 0."""
    huge = Fraction(10**400)
    with pytest.raises(OverflowError):
        float(huge)
    noise = discrete_laplace(huge, (20,), Bits(1))
    assert 10**390 < max(map(abs, noise)) < 10**402
    assert 10**190 < max(map(abs, discrete_gaussian(huge, (20,), Bits(1)))) < 10**202
    assert set(discrete_laplace(1 / huge, (20,), Bits(1))) == {0}
    assert set(discrete_gaussian(1 / huge, (20,), Bits(1))) == {0}


def test_cells_are_independent():
    """Correlations of neighbouring cells: five standard deviations."""
    noise = discrete_gaussian(Fraction(50), (20_000,), Bits(6)).astype(float)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / math.sqrt(20_000)
    assert not np.array_equal(
        discrete_gaussian(Fraction(50), (9,), Bits()), discrete_gaussian(Fraction(50), (9,), Bits())
    )


def test_shapes():
    for shape in [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]:
        noise = discrete_laplace(Fraction(5), shape, Bits())
        assert noise.shape == shape
        assert noise.dtype == object


@pytest.mark.parametrize("bad", [0, Fraction(0), Fraction(-1), 1.5, math.inf, "1", None, True])
def test_bad_parameters(bad):
    with pytest.raises(ArgumentError, match="positive Fraction"):
        discrete_laplace(bad, (1,), Bits())
    with pytest.raises(ArgumentError, match="positive Fraction"):
        discrete_gaussian(bad, (1,), Bits())
