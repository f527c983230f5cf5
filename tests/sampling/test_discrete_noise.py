"""Discrete noise: its distribution by all its choices, compiled code beside Python, and scales at the ends of doubles.

The chi-square tests of whole samplers are in `tests/mechanisms/test_noise.py`.
"""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling import discrete_noise
from pymc_dirdp.sampling.bits import Bits, exponential_coin
from pymc_dirdp.sampling.discrete_noise import (
    discrete_gaussian,
    discrete_laplace,
    dyadic_above,
    gaussian,
    geometric,
    laplace,
)
from tests.oracles import AgainError, Tape, agrees, distribution

SCALES = [Fraction(1), Fraction(3, 2), Fraction(2, 5), Fraction(4), Fraction(1, 3)]
VARIANCES = [Fraction(1), Fraction(5, 4), Fraction(1, 5), Fraction(9), Fraction(1, 30), Fraction(17, 3)]
LARGEST = math.nextafter(math.inf, 0)


class Compared(Tape):
    """Uniform numbers of any size, of which only comparisons are asked: a branch for each answer."""

    def uniform(self, n):
        return Below(self, n)


class Below:
    def __init__(self, tape, n):
        self.tape, self.n = tape, n

    def __lt__(self, a):
        return self.tape.coin(Fraction(min(max(a, 0), self.n), self.n))

    def __eq__(self, a):
        assert a == 0
        return self < 1


@pytest.mark.parametrize(
    "numbers", [(0, 1), (1, 1), (1, 2), (2, 3), (7, 7), (1, 10**30), (1, 2, 1, 3), (2, 3, 5, 7), (10**20, 10**20, 1, 9)]
)
def test_the_coin_by_all_its_choices(numbers):
    a, b, c, d = (*numbers, 1, 1)[:4]
    heads = math.exp(-(a / b) * (c / d))

    def run(tape):
        return exponential_coin(tape.uniform, *numbers)

    assert agrees(run, {True: heads, False: 1 - heads}, Compared, Fraction(1, 10**11), others=True)
    assert not agrees(run, {True: heads + 1e-9}, Compared, Fraction(1, 10**11), others=True)


def coin(uniform, a, b, c=1, d=1):
    """`exponential_coin` as one branch, where the source is a tape."""
    assert 0 <= a <= b
    assert 0 <= c <= d
    return uniform.__self__.coin(Fraction(math.exp(-(a / b) * (c / d))))


@cache
def masses(t, s, negative):
    """Of geometric noise, or of that with two sides: what is proposed, and one for all that lies further out."""
    at_0 = math.tanh(s / (2 * t)) if negative else -math.expm1(-s / t)
    reach = math.ceil(15 * t / s)
    listed = [Fraction(at_0 * math.exp(-abs(x) * s / t)) for x in range(-reach * negative, reach + 1)]
    return [*listed, 1 - sum(listed)], reach * negative


def of_one_proposal(draw, proposal, numbers, monkeypatch):
    """The probabilities of what is accepted, and what was not followed. The proposal and the coins are branches."""

    def run(tape):
        asked = itertools.count()

        def proposed(uniform, t, s):
            if next(asked):
                raise AgainError
            shares, offset = masses(t, s, negative=proposal == "laplace")
            return tape.choose(shares) - offset

        def first_coin(*given):
            heads = coin(*given)
            if not next(asked) and not heads:
                raise AgainError
            return heads

        with monkeypatch.context() as patched:
            patched.setattr(discrete_noise, "exponential_coin", coin if proposal else first_coin)
            if proposal:
                patched.setattr(discrete_noise, proposal, proposed)
            return draw(tape.uniform, *numbers)

    return distribution(run, left=Fraction(1, 10**5))


CHAIN = [
    *((geometric, None, scale) for scale in SCALES),
    *((laplace, "geometric", scale) for scale in SCALES),
    *((gaussian, "laplace", variance) for variance in VARIANCES),
]


@pytest.mark.parametrize(("draw", "proposal", "parameter"), CHAIN)
def test_noise_by_all_its_choices(draw, proposal, parameter, monkeypatch):
    """What is accepted has the probabilities of the noise, up to a factor."""
    found, left = of_one_proposal(draw, proposal, parameter.as_integer_ratio(), monkeypatch)
    assert found[0] > 0.05

    def is_that(parameter):
        def weight(x):
            if draw is geometric and x < 0:
                return 0
            return Fraction(math.exp(-(x**2) / (2 * parameter) if draw is gaussian else -abs(x) / parameter))

        return all(abs(found[x] - found[0] * weight(x)) <= left for x in range(-6, 7))

    assert is_that(parameter)
    assert not is_that(parameter * 9 / 10) or parameter < Fraction(1, 4)


# Compiled code.

SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}
PARAMETERS = [
    *(("laplace", scale) for scale in (Fraction(10, 3), Fraction(2, 5), Fraction(2**62))),
    # On both sides of powers of two, up to the largest that compiled code admits.
    *(("laplace", Fraction(2**power + e)) for power in (8, 31, 32, 33, 61) for e in (-1, 0, 1)),
    *(("gaussian", variance) for variance in (Fraction(1, 5), Fraction(9), Fraction(100, 3), dyadic_above(1e12))),
    ("gaussian", Fraction(2**40, 2**10 + 1)),
    ("gaussian", dyadic_above(1e30)),
]


@pytest.mark.parametrize(("kind", "parameter"), PARAMETERS)
def test_compiled_and_python_make_the_same_noise_from_the_same_words(kind, parameter, monkeypatch):
    """Also what does not fit into 64 bits, and also at the ends of blocks, which 3000 draws cross several times."""
    bits, other = Bits(4), Bits(4)
    plain = SAMPLERS[kind](parameter, (3, 1000), bits)
    monkeypatch.setitem(discrete_noise._drawn.__kwdefaults__, "in_python", 0)
    fast = SAMPLERS[kind](parameter, (3, 1000), other)
    assert np.array_equal(plain, fast)
    assert all(type(x) is int for x in fast.ravel())
    # They also leave the same words behind.
    assert bits.uniform(2**64) == other.uniform(2**64)


def test_a_draw_that_meets_the_end_of_its_words_or_the_limit_of_its_integers_starts_again(monkeypatch):
    """With one more word at a time, so that each draw meets the end at each place; and with a limit that is low."""

    class Scarce(Bits):
        def ahead(self, least=1):
            return super().ahead(least)[:least]

    draws = [(discrete_laplace, Fraction(900, 7)), (discrete_gaussian, Fraction(100, 3))]
    plain = [sampler(parameter, (300,), Bits(3)).tolist() for sampler, parameter in draws]
    monkeypatch.setitem(discrete_noise._drawn.__kwdefaults__, "in_python", 0)
    assert [sampler(parameter, (300,), Scarce(3)).tolist() for sampler, parameter in draws] == plain
    # Not compiled: the compiled code has the limit inside.
    monkeypatch.setattr(discrete_noise, "compiled_draws", lambda: discrete_noise._draws)
    monkeypatch.setattr(discrete_noise, "_LIMIT", 2**12)
    with np.errstate(all="raise"):
        assert [sampler(parameter, (300,), Bits(3)).tolist() for sampler, parameter in draws] == plain


# Scales at the ends of the doubles, and odd arguments.


@pytest.mark.parametrize("scale", [1e20, 1e300])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_huge_scales_are_exact(kind, scale):
    """No number twice, the right mean absolute value, low digits as free as the high ones, independent cells."""
    parameter, draws = dyadic_above(scale), 4000
    noise = SAMPLERS[kind](parameter**2 if kind == "gaussian" else parameter, (draws,), Bits(7))
    assert len(set(noise)) == draws
    mean, spread = (1.0, 1.0) if kind == "laplace" else (math.sqrt(2 / math.pi), math.sqrt(1 - 2 / math.pi))
    size = float(Fraction(sum(map(abs, noise)), draws) / Fraction(scale))
    assert abs(size - mean) < 5 * spread / math.sqrt(draws)
    assert abs(sum(1 if x > 0 else -1 for x in noise)) < 5 * math.sqrt(draws)
    shares = (noise / int(parameter)).astype(float)
    assert abs(np.corrcoef(shares[:-1], shares[1:])[0, 1]) < 5 / math.sqrt(draws)
    for modulus in (2, 3, 64, 101):
        seen = np.bincount([x % modulus for x in noise], minlength=modulus)
        assert np.sum((seen - draws / modulus) ** 2) * modulus / draws < chi2.isf(1e-6, modulus - 1)


def test_numbers_that_no_double_can_hold_and_scales_that_are_nearly_0():
    """Nothing on the way is a floating-point number: it would overflow, or be 0. No seed is the default."""
    huge = Fraction(10**400)
    noise = discrete_laplace(huge, (20,), Bits(1))
    assert 10**390 < max(map(abs, noise)) < 10**402
    assert 10**190 < max(map(abs, discrete_gaussian(huge, (20,), Bits(1)))) < 10**202
    for small in (1 / huge, dyadic_above(1e-20)):
        assert set(discrete_laplace(small, (500,), Bits(1))) == set(discrete_gaussian(small, (500,), Bits(1))) == {0}


def test_shapes_and_bad_parameters():
    for shape in [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]:
        noise = discrete_laplace(Fraction(5), shape, Bits())
        assert noise.shape == shape
        assert noise.dtype == object
    for bad in (0, Fraction(-1), 1.5, math.inf, "1", None, True):
        for sampler in SAMPLERS.values():
            with pytest.raises(ArgumentError, match="positive Fraction"):
                sampler(bad, (1,), Bits())


@given(st.floats(math.ulp(0.0), LARGEST))
def test_a_scale_is_rounded_up_by_next_to_nothing(value):
    used = dyadic_above(value)
    assert Fraction(value) <= used <= Fraction(value) * (1 + Fraction(1, 2**40))
    # A double holds it, so the curves can be computed at exactly this number.
    assert Fraction(float(used)) == used
    odd = used.numerator // (used.numerator & -used.numerator)
    assert odd < 2**41 or used == Fraction(value) > Fraction(LARGEST) * (1 - Fraction(1, 2**40))


def test_the_least_scale_of_its_kind():
    for value in (1.0, 0.5, 3.0, 1e12, 2.0**-1074, 2.0**1023, 1 + 2.0**-40, LARGEST):
        assert dyadic_above(value) == Fraction(value)
    assert dyadic_above(1 + 2.0**-52) == 1 + Fraction(1, 2**40)
    assert dyadic_above(2 - 2.0**-52) == 2
    assert dyadic_above(Fraction(1, 3)) - Fraction(1, 3) < Fraction(1, 2**42)
    for bad in (0.0, -1.0, math.inf, math.nan, Fraction(0), Fraction(-1, 2)):
        with pytest.raises(ValueError, match="positive"):
            dyadic_above(bad)
