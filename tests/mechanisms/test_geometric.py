"""Two-sided geometric noise: its size, and how far the noise of some cells goes."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import Geometric, GeometricMechanism


def test_it_is_less_noisy_than_laplace_noise_of_its_scale_and_loses_as_much():
    geometric = GeometricMechanism(np.ones(3), 2.0)
    assert geometric.pure_epsilon == 2 / 2.0
    assert geometric.noise_sd < math.sqrt(2) * 2.0


@pytest.mark.parametrize(("scale", "cells"), [(0.2, 3), (1.5, 1)])
def test_the_noise_of_some_cells_goes_no_further_than_is_looked(scale, cells):
    """Exact sums of the tail, with 60 digits: beyond the reach there is a probability below 2 exp(-60)."""
    reach = math.floor(Geometric(scale).sum_reach(cells))
    with mp.workdps(60):
        q = mp.exp(-1 / mp.mpf(scale))
        one = {z: (1 - q) / (1 + q) * q ** abs(z) for z in range(-reach, reach + 1)}
        # What the list leaves out of one cell is counted in full, for every cell.
        beyond = cells * 2 * q ** (reach + 1) / (1 + q)
        distribution = {0: mp.mpf(1)}
        for _ in range(cells):
            distribution = {
                z: mp.fsum(one[z - x] * p for x, p in distribution.items() if z - x in one)
                for z in range(-reach - max(distribution), reach + max(distribution) + 1)
            }
        beyond += mp.fsum(p for z, p in distribution.items() if abs(z) > reach)
        assert beyond < 2 * mp.exp(-60)
