"""Gauss-Legendre rules on graded panels: exact for polynomials, and next to a pole."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaln, zeta

from pymc_dirdp.numerics.quadrature import _log_gamma_ratio, graded_breaks, integrate, nodes

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


@pytest.mark.parametrize("gap", [1e-150, 1e-8, 0.3, 1e6])
@pytest.mark.parametrize("length", [1e-200, 0.3, 1e5])
def test_panels_are_no_longer_than_their_distance_from_the_singularity(gap, length):
    breaks = graded_breaks(gap, length)
    assert breaks[0] == 0
    assert breaks[-1] == length
    assert np.all(np.diff(breaks) > 0)
    assert np.all(np.diff(breaks) <= (gap + breaks[:-1]) * (1 + 1e-12))
    # And not many more than that takes: each panel is at least about half as long.
    assert len(breaks) - 1 <= 1 + math.log2(1 + length / gap)


@pytest.mark.parametrize("gap", [1e-8, 1e-3, 1.0, 50.0])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e4])
def test_poles_at_the_gap_keep_thirteen_digits(gap, length):
    """Oracles: the logarithm, and digamma with 60 digits for the pole that the curves have."""
    breaks = graded_breaks(gap, length)
    assert integrate(lambda x: 1 / (gap + x), breaks) == pytest.approx(math.log1p(length / gap), rel=1e-13)
    with mp.workdps(60):
        exact = float(mp.psi(0, mp.mpf(gap) + mp.mpf(length)) - mp.psi(0, mp.mpf(gap)))
    assert integrate(lambda x: zeta(2.0, gap + x), breaks) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("a", [1e-3, 0.5, 1.0, 3.7, 60.0])
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
