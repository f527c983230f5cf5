"""Doubles as the rational numbers that are used: exact comparisons with fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dirdp.sampling.discrete_noise import dyadic_above
from pymc_dirdp.sampling.exact import over_one_power

SMALLEST, LARGEST = math.ulp(0.0), math.nextafter(math.inf, 0)


@given(st.floats(SMALLEST, LARGEST))
def test_a_scale_is_rounded_up_by_next_to_nothing(value):
    used = dyadic_above(value)
    assert Fraction(value) <= used <= Fraction(value) * (1 + Fraction(1, 2**40))
    # A double holds it, so the curves can be computed at exactly this number.
    assert Fraction(float(used)) == used
    assert used.denominator & (used.denominator - 1) == 0
    odd = used.numerator // (used.numerator & -used.numerator)
    assert odd < 2**41 or used == Fraction(value) > Fraction(LARGEST) * (1 - Fraction(1, 2**40))


@pytest.mark.parametrize("value", [1.0, 0.5, 3.0, 1e12, 2.0**-1074, 2.0**1023, 1 + 2.0**-40, LARGEST])
def test_short_numbers_stay_as_they_are(value):
    assert dyadic_above(value) == Fraction(value)


def test_the_least_of_its_kind():
    assert dyadic_above(1 + 2.0**-52) == 1 + Fraction(1, 2**40)
    assert dyadic_above(2 - 2.0**-52) == 2
    assert dyadic_above(Fraction(1, 3)) - Fraction(1, 3) < Fraction(1, 2**42)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, Fraction(0), Fraction(-1, 2)])
def test_numbers_without_a_scale(bad):
    with pytest.raises(ValueError, match="positive"):
        dyadic_above(bad)


@given(st.lists(st.floats(-LARGEST, LARGEST), max_size=5))
def test_one_denominator_for_all(values):
    numerators, digits = over_one_power(values)
    assert [Fraction(n, 2**digits) for n in numerators] == [Fraction(value) for value in values]
    # The least one.
    assert digits == 0 or any(n % 2 for n in numerators)
