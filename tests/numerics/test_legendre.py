"""Ratios of Legendre polynomials against 60 digits, and against the sums that they stand for."""

import itertools
import math

import mpmath
import pytest

from pymc_dirdp.numerics.quadrature import coth_excess, legendre_excess, log_legendre


@pytest.mark.parametrize("u", [1e-300, 0.1, 8.0, 60.0])
def test_ratios_have_no_cancellation(u):
    with mpmath.workdps(60):
        x = mpmath.coth(mpmath.mpf(u) / 2)
        values = [mpmath.mpf(1), x]
        for n in range(2, 60):
            values.append(((2 * n - 1) * x * values[-1] - (n - 1) * values[-2]) / n)
        assert coth_excess(u) == pytest.approx(float(x - 1), rel=4e-16)
        for n in (1, 2, 3, 30, 59):
            assert legendre_excess(n, u) == pytest.approx(float(values[n] / values[n - 1] - 1), rel=2e-15)
            assert log_legendre(n, u) == pytest.approx(float(mpmath.log(values[n])), rel=2e-15)


def test_the_polynomial_is_the_sum_over_lists_that_add_up_to_0():
    q, reach = math.exp(-0.5), range(-60, 61)
    total = math.fsum(q ** (abs(a) + abs(b) + abs(a + b)) for a, b in itertools.product(reach, reach))
    assert log_legendre(2, 1.0) == pytest.approx(math.log(total), rel=1e-13)
    assert log_legendre(0, 1.0) == 0.0


def test_a_late_start_is_below_the_truth():
    for u, near in ((0.01, 1e-15), (1.0, 1e-15), (9.0, 0.1)):
        truth = legendre_excess(3000, u)
        assert truth * (1 - near) <= legendre_excess(3000, u, steps=100) <= truth * (1 + 1e-15)
    assert legendre_excess(5, 800.0) == 0.0
    assert log_legendre(5, 2.0**1001) == 0.0
    assert 0 < legendre_excess(10**5, 1e-300) < math.inf
