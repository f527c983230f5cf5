"""The loss of discrete Gaussian noise against 40-digit sums, at one epsilon and on grids."""

import functools
import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.gaussian_loss import GaussianLoss, convert_deltas, deltas, gaussian_excess, renyi


def delta(s, cells, records, epsilon):
    return float(deltas(s, cells, records, np.array([epsilon]))[0])


DIGITS = 40


def theta(s, x=0):
    """Sum over whole k of exp(-(k - x)**2 / (2 s)); what is left out is below 1e-400 of it."""
    reach = int(45 * math.sqrt(s)) + 25
    centre = round(float(x))
    return mp.fsum(mp.exp(-((k - x) ** 2) / (2 * s)) for k in range(centre - reach, centre + reach + 1))


@functools.cache
def masses(s, cells):
    """Of the sum of the noises of one cell or two: a single sum, by the identity k**2 + (j - k)**2 = ..."""
    s = mp.mpf(s)
    reach = int(45 * math.sqrt(s * cells)) + 25
    whole = theta(s)
    if cells == 1:
        return {j: mp.exp(-(mp.mpf(j) ** 2) / (2 * s)) / whole for j in range(-reach, reach + 1)}
    parity = [theta(s / 2), theta(s / 2, mp.mpf(1) / 2)]
    square = whole**2
    return {j: mp.exp(-(mp.mpf(j) ** 2) / (4 * s)) * parity[j % 2] / square for j in range(-reach, reach + 1)}


def exact_delta(s, cells, records, epsilon):
    """By its definition, with 40 digits."""
    with mp.workdps(DIGITS):
        terms = []
        for j, mass in masses(s, cells).items():
            loss = (cells * mp.mpf(records) ** 2 + 2 * records * j) / (2 * mp.mpf(s))
            if loss > epsilon:
                terms.append(mass * (1 - mp.exp(epsilon - loss)))
        return mp.fsum(terms)


def within(found, exact, above):
    """Not below the exact value, and above it by so much at most, relative."""
    # The oracle leaves out less than this; a result of 1 needs no oracle.
    assert found >= exact * (1 - mp.mpf(10) ** -25) or found == 1
    assert found <= float(exact) * (1 + above) + 1e-300


@pytest.mark.thorough
@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.7, 1.9, 2.5, 20.0])
@pytest.mark.parametrize("cells", [1, 2])
def test_delta_with_forty_digits(sigma, cells):
    s = float(Fraction(sigma) ** 2)
    for records, deviations in itertools.product((1, 3), (-2.0, 0.0, 1.0, 4.0, 9.0, 36.0)):
        ratio = records * math.sqrt(cells / s)
        epsilon = max(0.0, ratio * (ratio / 2 + deviations))
        within(delta(s, cells, records, epsilon), exact_delta(s, cells, records, epsilon), 1e-11)


def test_two_cells_by_the_double_sum():
    """The oracle's own identity, against the sum over both cells."""
    for s in (0.3, 2.0):
        with mp.workdps(DIGITS):
            one = masses(s, 1)
            for j, mass in list(masses(s, 2).items())[20:-20:7]:
                double = mp.fsum(p * one.get(j - k, 0) for k, p in one.items())
                assert abs(mass - double) < mp.mpf(10) ** -38


@pytest.mark.parametrize("sigma", [0.3, 1.6, 1.8])
@pytest.mark.parametrize("cells", [3, 5])
def test_many_cells_by_exact_convolution(sigma, cells):
    """With 40 digits, on either side of where the sum is taken for one discrete Gaussian variable."""
    s = float(Fraction(sigma) ** 2)
    with mp.workdps(DIGITS):
        one = masses(s, 1)
        reach = int(10 * sigma) + 5
        distribution = {0: mp.mpf(1)}
        for _ in range(cells):
            summed = {}
            for (i, p), k in itertools.product(distribution.items(), range(-reach, reach + 1)):
                summed[i + k] = summed.get(i + k, 0) + p * one[k]
            distribution = summed
        for deviations in (-1.0, 1.0, 4.0, 6.0):
            ratio = math.sqrt(cells / s)
            epsilon = max(0.0, ratio * (ratio / 2 + deviations))
            exact = mp.fsum(
                p * (1 - mp.exp(min(epsilon - (cells + 2 * j) / (2 * mp.mpf(s)), 0))) for j, p in distribution.items()
            )
            within(delta(s, cells, 1, epsilon), exact, 1e-10)


@pytest.mark.parametrize("cells", [1, 2, 20])
@pytest.mark.parametrize("sigma", [5e3, 1e5, 1e9, 1e15])
def test_large_sigma_is_above_the_continuous_distribution_and_near_it(sigma, cells):
    """There both distributions agree to 1e-6 and better.

    By Poisson's formula the difference is of second order in 1 / sigma.
    """
    ratio = math.sqrt(cells) / sigma
    with mp.workdps(60):
        for deviations in (0.0, 1.0, 4.0, 8.0):
            epsilon = ratio * (ratio / 2 + deviations)
            r, e = mp.sqrt(cells) / mp.mpf(sigma), mp.mpf(epsilon)
            exact = mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)
            found = delta(sigma**2, cells, 1, epsilon)
            assert exact * (1 - (1 + deviations) / sigma**1.5) < found
            assert found < exact * (1 + 1e-11 + (9 + deviations**2) / sigma**2)


def test_sums_and_integrals_agree_where_they_meet():
    """With a variance just below and just above where the integral takes over; it must not fall."""
    just = 2.0**24
    for deviations in (0.0, 2.0, 5.0):
        epsilon = deviations / math.sqrt(just)
        summed, integrated = (delta(s, 1, 1, epsilon) for s in (just, math.nextafter(just, math.inf)))
        assert summed < integrated < summed * (1 + 1e-5)


@pytest.mark.parametrize("s", [0.0025, 0.05, 0.29, 0.31, 1.0, 4.0, 50.0])
def test_renyi_with_forty_digits(s):
    for order in (1 + 1e-9, 1 + 1e-4, 1.2, 1.5, 2.0, 2.9999, 3.0, 7.25, 40.5):
        with mp.workdps(DIGITS):
            at = mp.mpf(order)
            exact = at / (2 * mp.mpf(s)) + mp.log(theta(mp.mpf(s), at) / theta(mp.mpf(s))) / (at - 1)
        within(renyi(Fraction(s), 1, order), exact, 1e-11)
    assert renyi(Fraction(s), 3, 1.0) == pytest.approx(1.5 / s, rel=1e-15)


@pytest.mark.parametrize("ratio", [1e-9, 1e-5, 3e-3, 0.2, 3.0, 40.0])
@pytest.mark.parametrize("deviations", [-3.0, 0.0, 3.0, 9.0, 25.0])
def test_the_hockey_stick_of_two_normal_distributions_keeps_its_digits(ratio, deviations):
    """THEORY 20: the difference of two tails lost up to nine digits, on either side. Neither is allowed here."""
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    with mp.workdps(60):
        r, e = mp.mpf(ratio), mp.mpf(epsilon)
        exact = mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)
    assert gaussian_excess(ratio, np.array([epsilon / ratio - ratio / 2]))[0].item() == pytest.approx(
        float(exact), rel=1e-11
    )


@pytest.mark.parametrize(
    ("s", "cells", "records"), [(0.0025, 1, 1), (0.3, 2, 3), (2.0, 5, 1), (30.0, 2, 1), (1e5, 1, 2)]
)
@pytest.mark.parametrize("steps", [0.01, 0.3, 4.0])
def test_a_grid_has_the_deltas_of_its_points(s, cells, records, steps):
    """A grid is summed in one pass, each point from the one after it."""
    step = steps * records * math.sqrt(cells / s)
    grid = GaussianLoss(Fraction(s), cells, records)._deltas(step * np.arange(150))
    alone = [GaussianLoss(Fraction(s), cells, records).delta(step * i) for i in range(150)]
    np.testing.assert_allclose(grid, alone, rtol=1e-11, atol=1e-320)


@pytest.mark.parametrize("s", [2.0**25, 1e12, 1e40])
@pytest.mark.parametrize("steps", [0.01, 0.3, 4.0])
def test_a_grid_of_integrals_has_the_deltas_of_its_points(s, steps):
    loss, step = GaussianLoss(Fraction(s), 2, 1), steps * math.sqrt(2 / s)
    epsilons = step * np.arange(100)
    np.testing.assert_allclose(loss._deltas(epsilons), loss.delta(epsilons), rtol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("sigma", [0.3, 1.9, 20.0])
@pytest.mark.parametrize("cells", [1, 2])
def test_grids_with_forty_digits(sigma, cells):
    s = float(Fraction(sigma) ** 2)
    step = 0.37 * math.sqrt(cells / s)
    grid = deltas(s, cells, 1, step * np.arange(30))
    for i in range(0, 30, 3):
        within(grid[i], exact_delta(s, cells, 1, step * i), 1e-11)


@pytest.mark.parametrize("rho", [1e-30, 1e-22, 1e-9, 0.01, 3.0, 1e6])
def test_what_divergences_imply_is_the_least_over_all_orders(rho):
    """Also at orders of 1e12, where a difference of logarithms of the order would lose digits."""
    epsilons = rho + 2 * math.sqrt(rho) * np.array([0.0, 0.5, 2.0, 6.0, 20.0])
    for epsilon, found in zip(epsilons.tolist(), convert_deltas(rho, epsilons).tolist(), strict=True):
        with mp.workdps(60):
            e, rho_ = mp.mpf(epsilon), mp.mpf(rho)

            def log_delta(log_ratio_to_budget, e=e, rho_=rho_):
                above = mp.exp(log_ratio_to_budget)
                return above * ((1 + above) * rho_ - e) - above * mp.log1p(1 / above) - mp.log1p(above)

            low, high = mp.mpf(-200), mp.mpf(200)
            for _ in range(200):
                a, b = low + (high - low) / 3, high - (high - low) / 3
                low, high = (low, b) if log_delta(a) < log_delta(b) else (a, high)
            exact = min(mp.mpf(1), mp.sqrt(rho_ / 2), mp.exp(log_delta(low)))
        within(found, exact, 1e-10)
