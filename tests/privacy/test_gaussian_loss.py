"""The loss of discrete Gaussian noise beside its limits, on grids, and what divergences imply.

`test_contract.py` has it against sums of all integers, and so has `tests/test_rounding.py`.
"""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.gaussian_loss import GaussianLoss, convert_deltas, deltas
from tests.oracles import normal_hockey_stick
from tests.test_rounding import zcdp_delta


def delta(s, cells, records, epsilon):
    return float(deltas(s, cells, records, np.array([epsilon]))[0])


@pytest.mark.parametrize("cells", [1, 2, 20])
@pytest.mark.parametrize("sigma", [5e3, 1e9, 1e15])
def test_large_sigma_is_above_the_continuous_distribution_and_near_it(sigma, cells):
    """By Poisson's formula the difference is of second order in 1 / sigma."""
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


@pytest.mark.parametrize(("groups", "records"), [(1, 5), (2, 3)])
def test_records_that_are_not_all_in_one_cell_are_bounded_by_their_squares(groups, records):
    """In one group they are in two cells at least: `records - 1` of them, and 1."""
    epsilons, squares = np.array([0.5, 2.0, 4.0]), (groups - 1) * records**2 + (records - 1) ** 2 + 1
    together, apart = deltas(9.0, groups, records, epsilons), convert_deltas(squares / 18, epsilons)
    assert np.any(apart > together)
    found = GaussianLoss(Fraction(9), groups, records)._deltas(epsilons)
    np.testing.assert_allclose(found, np.maximum(together, apart), rtol=1e-12)


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
            exact = min(mp.sqrt(mp.mpf(rho) / 2), zcdp_delta(mp.mpf(rho), mp.mpf(epsilon)))
        assert exact <= found <= exact * (1 + mp.mpf(1e-10)) + 1e-300
