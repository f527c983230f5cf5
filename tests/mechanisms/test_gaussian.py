"""Gaussian noise on counts: curves against many digits, and what the prior is for."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.mechanisms.gaussian import GaussianMechanism


@pytest.mark.parametrize("ratio", [1e-9, 1e-5, 3e-3, 0.2, 3.0, 40.0])
@pytest.mark.parametrize("deviations", [-3.0, 0.0, 3.0, 9.0, 25.0])
def test_gaussian_delta_keeps_its_digits(ratio, deviations):
    """THEORY 20: the difference of two tails lost up to nine digits, on either side. Neither is allowed here."""
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    for adjacency, cells in (("add-remove", 1), ("replace-one", 2)):
        mechanism = GaussianMechanism(np.ones(2), math.sqrt(cells) / ratio, adjacency=adjacency)
        with mp.workdps(60):
            r, e = mp.sqrt(cells) / mp.mpf(mechanism.sigma), mp.mpf(epsilon)
            exact = mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)
        assert exact <= mechanism.delta(epsilon) <= exact * (1 + 2e-11)


def test_gaussian_delta_is_rounded_up():
    """It was below the truth by up to 3e-11, relative, and by 3e-9 for a shift of a million standard deviations."""
    rng = np.random.default_rng(1)
    with mp.workdps(60):
        for ratio in 10 ** rng.uniform(-3, 6, size=300):
            mechanism = GaussianMechanism(np.ones(2), 1 / ratio, adjacency="add-remove")
            epsilon = max(0.0, ratio * (rng.uniform(-3, 36) + ratio / 2))
            r, e = 1 / mp.mpf(mechanism.sigma), mp.mpf(epsilon)
            exact = mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)
            assert exact <= mechanism.delta(epsilon)


def test_the_prior_is_part_of_the_draw_and_not_of_the_estimate():
    mechanism = GaussianMechanism([500.0, 100.0], 0.1)
    draws = mechanism.sample([0, 0], draws=2000, sampler="fast", random_seed=8)
    assert draws[:, 0].mean() == pytest.approx(5 / 6, abs=0.005)
    assert mechanism.estimate([300, 700], sampler="fast", random_seed=8)[0] == pytest.approx(0.3, abs=0.005)
