"""Gauss-Legendre rules on graded panels: exact for polynomials, and next to a pole."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.numerics.quadrature import (
    _log_gamma_ratio,
    coth_excess,
    graded_breaks,
    integrate,
    legendre_excess,
    log_legendre,
    nodes,
)

BREAKS = np.array([-1.0, 0.2, 0.5, 3.0])


@pytest.mark.parametrize("degree", [0, 13, 27])
def test_polynomials_up_to_degree_27_are_exact_and_no_others(degree):
    powers = BREAKS ** (degree + 1) / (degree + 1)
    panels = [integrate(lambda x: x**degree, BREAKS[i : i + 2]) for i in range(3)]
    np.testing.assert_allclose(panels, np.diff(powers), rtol=1e-13, atol=1e-16)
    points, weights = nodes(BREAKS)
    assert np.all(np.diff(points) > 0)
    assert np.all(weights > 0)
    for found in (integrate(lambda x: x**degree, BREAKS), points**degree @ weights):
        assert found == pytest.approx(powers[-1] - powers[0], rel=1e-13)
    # The rule has 14 nodes and no more: a test that passes for any function would show nothing.
    one_panel = np.array([-1.0, 3.0])
    assert integrate(lambda x: x**28, one_panel) != pytest.approx((3.0**29 + 1) / 29, rel=1e-13)


@pytest.mark.parametrize("gap", [1e-150, 1e-8, 50.0])
@pytest.mark.parametrize("length", [1e-200, 1e-6, 1e4])
def test_panels_are_no_longer_than_their_distance_from_a_pole_which_keeps_thirteen_digits(gap, length):
    breaks = graded_breaks(gap, length)
    assert (breaks[0], breaks[-1]) == (0, length)
    assert np.all(np.diff(breaks) > 0)
    assert np.all(np.diff(breaks) <= (gap + breaks[:-1]) * (1 + 1e-12))
    # And not many more than that takes: each panel is at least about half as long.
    assert len(breaks) - 1 <= 1 + math.log2(1 + length / gap)
    assert integrate(lambda x: 1 / (gap + x), breaks) == pytest.approx(math.log1p(length / gap), rel=1e-13)


@pytest.mark.parametrize("a", [1e-3, 1.0, 60.0])
def test_ratios_of_gamma_functions_with_fifty_digits(a):
    """With Stirling's series from 64 on, whose terms up to the fifth power are all seen at 65."""
    x = np.array([0.0, 1.0, 63.5, 64.5, 65.0, 66.0, 1e3, 1e9, 1e15])
    with mp.workdps(50):
        exact = [float(mp.loggamma(mp.mpf(one) + mp.mpf(a)) - mp.loggamma(mp.mpf(one) + 1)) for one in x.tolist()]
    np.testing.assert_allclose(_log_gamma_ratio(x, a), exact, rtol=2e-15, atol=2e-13)


@pytest.mark.parametrize("a", [1e-100, 1e-60, 1e-17, 1e-3])
def test_gamma_ratios_keep_the_smallest_priors(a):
    """Gamma(a) is nearly 1 / a; 1 and what is left of a small one hold nothing of it."""
    found = _log_gamma_ratio(np.array([0.0, 1.0, 100.0]), a)
    np.testing.assert_allclose(found, gammaln(np.array([0.0, 1.0, 100.0]) + a) - gammaln([1.0, 2.0, 101.0]), rtol=1e-12)
    assert found[0] > -np.log(a) - 0.01


@pytest.mark.parametrize("u", [1e-300, 0.1, 8.0, 60.0])
def test_ratios_of_legendre_polynomials_have_no_cancellation(u):
    with mp.workdps(60):
        x = mp.coth(mp.mpf(u) / 2)
        values = [mp.mpf(1), x]
        for n in range(2, 60):
            values.append(((2 * n - 1) * x * values[-1] - (n - 1) * values[-2]) / n)
        assert coth_excess(u) == pytest.approx(float(x - 1), rel=4e-16)
        for n in (1, 2, 30, 59):
            assert legendre_excess(n, u) == pytest.approx(float(values[n] / values[n - 1] - 1), rel=2e-15)
            assert log_legendre(n, u) == pytest.approx(float(mp.log(values[n])), rel=2e-15)
    # A late start is below the truth.
    truth = legendre_excess(3000, u)
    least = {8.0: 0.9, 60.0: 0.01}.get(u, 1 - 1e-15)
    assert truth * least <= legendre_excess(3000, u, steps=100) <= truth * (1 + 1e-15)
    assert legendre_excess(5, 800.0) == log_legendre(5, 2.0**1001) == log_legendre(0, u) == 0.0
