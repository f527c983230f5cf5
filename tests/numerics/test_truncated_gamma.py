"""The Gamma distribution above a floor, against mpmath with 40 digits and more."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from pymc_dirdp.numerics.gamma import (
    log_mass,
    log_mass_change,
    moments_log,
    variance_log,
)

# The shape with the largest variance of the logarithm, and that variance, for each floor.
LARGEST = [
    (1e-3, 0.1036, 4.1105297),
    (0.01, 0.2540, 2.0797837),
    (0.1, 0.7818, 0.84315382),
    (0.5, 2.0235, 0.37479508),
    (1, 3.1909, 0.25047769),
    (2, 5.1758, 0.16175535),
    (4, 8.6319, 0.10092768),
    (8, 14.7863, 0.06090124),
    (16, 25.9732, 0.03560836),
    (32, 46.682, 0.02023046),
    (64, 85.6287, 0.01120624),
    (256, 302.886, 0.00323388),
]
DISTRIBUTIONS = [
    (1e-3, 1e-3, math.inf),
    (0.3, 1e-12, math.inf),
    (0.02, 8.0, math.inf),
    (1.0, 2.0, math.inf),
    (12.0, 8.0, math.inf),
    (40.0, 8.0, math.inf),
    (0.5, 900.0, math.inf),
    (1000.0, 900.0, math.inf),
    (3.0, 1e4, math.inf),
    (1e7, 1e4, math.inf),
    (-3.2, 0.7, math.inf),
    (-500.0, 8.0, math.inf),
    (1e-3, 1e-3, 5.0),
    (2.0, 0.5, 3.0),
    (30.0, 0.5, 3.0),
    (5.0, 4.0, 4.5),
    (1e3, 800.0, 900.0),
]


def moment(f, a, floor, ceiling):
    """The integral of f(log g) against the density of log g, relative to exp(a log c - c), with 40 digits."""
    c = mp.mpf(min(max(a, floor), ceiling))
    low = mp.log(mp.mpf(floor) / c)
    high = mp.log(ceiling / c) if math.isfinite(ceiling) else mp.log(1 + (200 + 20 * mp.sqrt(c)) / c)
    width = min(1, 1 / mp.sqrt(c), 1 / (abs(c - a) + mp.mpf("1e-9")))
    points = {low, high, mp.mpf(0)}
    points |= {sign * width * 1.6**k for sign in (-1, 1) for k in range(-3, 24)}
    points = sorted(point for point in points if low <= point <= high)
    return mp.quad(lambda u: f(mp.log(c) + u) * mp.exp(mp.mpf(a) * u - c * mp.expm1(u)), points)


def exact_moments(a, floor, ceiling):
    with mp.workdps(40):
        total = moment(lambda _: 1, a, floor, ceiling)
        first = moment(lambda v: v, a, floor, ceiling) / total
        second = moment(lambda v: (v - first) ** 2, a, floor, ceiling) / total
        c = mp.mpf(min(max(a, floor), ceiling))
        log_total = mp.log(total) + a * mp.log(c) - c
    return tuple(map(float, (log_total, first, second)))


@pytest.mark.thorough
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_masses_and_moments_against_quadrature_with_40_digits(distribution):
    log_total, first, second = exact_moments(*distribution)
    assert log_mass(*distribution) == pytest.approx(log_total, rel=4e-15, abs=2e-14)
    assert moments_log(*distribution)[0] == pytest.approx(first, rel=1e-14, abs=1e-14)
    assert variance_log(*distribution) == pytest.approx(second, rel=1e-13)


def test_masses_of_random_distributions_are_incomplete_gamma_functions():
    rng = np.random.default_rng(1)
    a, floor = 10 ** rng.uniform(-3, 2.5, 60), 10 ** rng.uniform(-3, 3, 60)
    with mp.workdps(40):
        exact = [float(mp.log(mp.gammainc(x, t))) for x, t in zip(a.tolist(), floor.tolist(), strict=True)]
    np.testing.assert_allclose(log_mass(a, floor), exact, rtol=1e-14, atol=3e-15)


def test_a_mass_with_a_negative_shape():
    assert log_mass(-3.2, 0.7) == pytest.approx(-0.971068206947233, rel=1e-14)


@pytest.mark.parametrize(("floor", "shape", "largest"), LARGEST)
def test_the_largest_variance_of_the_logarithm(floor, shape, largest):
    found = minimize_scalar(
        lambda a: -variance_log(a, floor), bounds=(shape / 2, 2 * shape), method="bounded", options={"xatol": 1e-8}
    )
    assert -found.fun == pytest.approx(largest, rel=5e-7)
    # A maximum is flat, and the table has few digits.
    assert found.x == pytest.approx(shape, rel=5e-4)


@pytest.mark.parametrize("step", [1e-9, 1e-4, 0.3, 10.0, 1e3])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_changes_of_the_mass_do_not_cancel(distribution, step):
    a, floor, ceiling = distribution
    with mp.workdps(60):
        # The double `a + step` is not the sum that is meant.
        end = mp.mpf(a) + mp.mpf(step)
        if math.isinf(ceiling) and a < 1e4:
            change = mp.log(mp.gammainc(end, floor)) - mp.log(mp.gammainc(a, floor))
        elif a > 1e6:
            # The floor is 300 standard deviations below the mean.
            change = mp.loggamma(end) - mp.loggamma(a)
        else:
            masses = [mp.quad(lambda g, x=x: g ** (x - 1) * mp.exp(-g), [floor, ceiling]) for x in (mp.mpf(a), end)]
            change = mp.log(masses[1]) - mp.log(masses[0])
    assert log_mass_change(a, step, floor, ceiling) == pytest.approx(float(change), rel=1e-13, abs=3e-14 * step)


def test_arrays_broadcast_and_agree_with_their_numbers():
    shapes, floors = np.array([[0.5], [3.0], [50.0]]), np.array([0.2, 8.0])
    for f in (log_mass, lambda *distribution: moments_log(*distribution)[0], variance_log):
        table = f(shapes, floors)
        assert table.shape == (3, 2)
        expected = [[float(f(a, t)) for t in floors.tolist()] for a in shapes.ravel().tolist()]
        np.testing.assert_allclose(table, expected, rtol=1e-15)
    assert log_mass_change(shapes, 0.5, floors).shape == (3, 2)


def test_a_distant_floor_and_ceiling_leave_the_gamma_distribution():
    from scipy.special import digamma, gammaln, polygamma

    a = np.array([30.0, 200.0, 1e4])
    np.testing.assert_allclose(log_mass(a, 1e-9, 1e6), gammaln(a), rtol=1e-14)
    np.testing.assert_allclose(moments_log(a, 1e-9, 1e6)[0], digamma(a), rtol=1e-14)
    np.testing.assert_allclose(variance_log(a, 1e-9, 1e6), polygamma(1, a), rtol=1e-13)
