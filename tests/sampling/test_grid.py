"""The last bits of a noisy count tell nothing: Mironov's attack on floating-point noise, which must fail."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.sampling.fast import on_grid

MECHANISMS = {
    "gaussian": dirdp.mechanisms.GaussianMechanism.for_guarantee(dirdp.ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1]),
    "laplace": dirdp.mechanisms.LaplaceMechanism.for_guarantee(dirdp.PureDP(epsilon=1.0), prior=[1, 1]),
    "small scale": dirdp.mechanisms.LaplaceMechanism([1, 1], 0.01),
    "large scale": dirdp.mechanisms.GaussianMechanism([1, 1], 1e9),
}


def finest_bit(values):
    """The least power of two that is a factor of each number."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return np.where(whole == 0, np.inf, exponent - 53 + np.log2(np.maximum(whole & -whole, 1)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_all_counts_leave_the_same_bits(name):
    mechanism = MECHANISMS[name]
    rng = np.random.default_rng(1)
    finest = [
        finest_bit(
            np.array([mechanism.release([count, 3], sampler="fast", random_seed=rng)[0] for _ in range(3000)])
        ).min()
        for count in (0, 1, 12345)
    ]
    assert finest[0] == finest[1] == finest[2]


def test_without_the_grid_zero_shows_itself():
    """The attack that the test above makes does work on plain noise."""
    rng = np.random.default_rng(1)
    noise = rng.laplace(0, 2.0, 3000)
    assert finest_bit(0 + noise).min() < finest_bit(1 + noise).min()


def test_rounding_changes_next_to_nothing_and_adding_a_count_is_exact():
    noise = np.random.default_rng(2).normal(0, 3.0, 10_000)
    rounded = on_grid(noise, 3.0)
    assert np.abs(rounded - noise).max() < 3.0 * 2.0**-16
    assert np.all((rounded + 2.0**33) - 2.0**33 == rounded)
    assert np.all(on_grid(noise * 1e9, 3e9) % 1 == 0)
