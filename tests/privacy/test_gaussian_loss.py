"""The loss of discrete Gaussian noise against 40-digit sums, at one epsilon and on grids."""

import functools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.gaussian_loss import GaussianLoss, convert_deltas, deltas, gaussian_excess
from tests.oracles import normal_hockey_stick


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
@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.7, 1.9, 2.5, 12.0])
@pytest.mark.parametrize("cells", [1, 2])
def test_delta_with_forty_digits(sigma, cells):
    """Three records in one cell, far out, and on a grid; `test_contract.py` has one record."""
    s = float(Fraction(sigma) ** 2)
    for records, deviations in ((3, -2.0), (3, 1.0), (1, 9.0), (3, 36.0)):
        ratio = records * math.sqrt(cells / s)
        epsilon = max(0.0, ratio * (ratio / 2 + deviations))
        within(delta(s, cells, records, epsilon), exact_delta(s, cells, records, epsilon), 1e-11)
    epsilons = 0.37 * math.sqrt(cells / s) * np.arange(0, 30, 6)
    for epsilon, found in zip(epsilons.tolist(), deltas(s, cells, 1, epsilons).tolist(), strict=True):
        within(found, exact_delta(s, cells, 1, epsilon), 1e-11)


@pytest.mark.parametrize("cells", [1, 2, 20])
@pytest.mark.parametrize("sigma", [5e3, 1e9, 1e15])
def test_large_sigma_is_above_the_continuous_distribution_and_near_it(sigma, cells):
    """There both distributions agree to 1e-6 and better.

    By Poisson's formula the difference is of second order in 1 / sigma.
    """
    ratio = math.sqrt(cells) / sigma
    with mp.workdps(60):
        for deviations in (0.0, 1.0, 4.0, 8.0):
            epsilon = ratio * (ratio / 2 + deviations)
            exact = normal_hockey_stick(mp.sqrt(cells) / mp.mpf(sigma), epsilon)
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


@pytest.mark.parametrize("ratio", [1e-9, 1e-5, 3e-3, 0.2, 3.0, 40.0])
@pytest.mark.parametrize("deviations", [-3.0, 3.0, 25.0])
def test_the_hockey_stick_of_two_normal_distributions_keeps_its_digits(ratio, deviations):
    """THEORY 20: the difference of two tails lost up to nine digits, on either side. Neither is allowed here."""
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    with mp.workdps(60):
        exact = normal_hockey_stick(ratio, epsilon)
    assert gaussian_excess(ratio, np.array([epsilon / ratio - ratio / 2]))[0].item() == pytest.approx(
        float(exact), rel=1e-11
    )


@pytest.mark.parametrize(
    ("s", "cells", "records", "rtol"),
    [
        *((0.0025, 1, 1, 1e-11), (0.3, 2, 3, 1e-11), (2.0, 5, 1, 1e-11), (30.0, 2, 1, 1e-11), (1e5, 1, 2, 1e-11)),
        # Integrals.
        *((2.0**25, 2, 1, 1e-7), (1e12, 2, 1, 1e-7), (1e40, 2, 1, 1e-7)),
    ],
)
@pytest.mark.parametrize("steps", [0.01, 0.3, 4.0])
def test_a_grid_has_the_deltas_of_its_points(s, cells, records, rtol, steps):
    """A grid is summed in one pass, each point from the one after it."""
    loss, epsilons = GaussianLoss(Fraction(s), cells, records), steps * records * math.sqrt(cells / s) * np.arange(100)
    np.testing.assert_allclose(loss._deltas(epsilons), loss.delta(epsilons), rtol=rtol, atol=1e-320)


@pytest.mark.parametrize("rho", [1e-30, 1e-9, 0.01, 1e6])
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
