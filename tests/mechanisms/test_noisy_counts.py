"""What kinds of noise on counts share: calibration, the distribution of draws, several records."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import Geometric, GeometricMechanism
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

COUNTS = [108, 286, 71, 127]
BOTH = [DiscreteGaussianMechanism(np.ones(4), 5.0), GeometricMechanism(np.ones(4), 3.0)]
TARGETS = [
    ApproxDP(epsilon=1, delta=1e-6),
    ApproxDP(epsilon=0.01, delta=1e-9),
    ApproxDP(epsilon=0, delta=1e-3),
    RenyiDP(order=1, epsilon=0.1),
    RenyiDP(order=8, epsilon=0.5),
    TruncatedCDP(rho=0.1, omega=5),
    ZeroCDP(rho=0.02),
    PureDP(epsilon=0.7),
]


@pytest.mark.parametrize("cls", [DiscreteGaussianMechanism, GeometricMechanism])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_calibration_is_safe_and_tight(cls, target, adjacency):
    if cls is DiscreteGaussianMechanism and isinstance(target, PureDP):
        with pytest.raises(UnattainableError, match="GeometricMechanism"):
            cls.for_guarantee(target, prior=np.ones(4), adjacency=adjacency)
        return
    mechanism = cls.for_guarantee(target, prior=np.ones(4), adjacency=adjacency)
    assert mechanism.satisfies(target)
    assert not cls(np.ones(4), mechanism.parameter * (1 - 1e-8), adjacency=adjacency).satisfies(target)


@pytest.mark.parametrize("mechanism", BOTH)
def test_draws_come_from_one_noisy_table(mechanism):
    draws = mechanism.sample(COUNTS, released_draws=20_000, sampler="fast", random_seed=4)
    assert draws.shape == (20_000, 4)
    noisy = np.maximum(mechanism.release(COUNTS, sampler="fast", random_seed=4), 0) + mechanism.noise_sd / 4 + 1
    distribution = stats.beta(noisy[0], noisy[1:].sum())
    assert stats.kstest(draws[:, 0], distribution.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:, 0], stats.beta(108 + 1, 484 + 3).cdf).pvalue < 1e-6


def test_objects_are_frozen_comparable_and_public():
    for mechanism in BOTH:
        mechanism.sample([7654321, 1, 1, 1], sampler="fast")
        assert "7654321" not in repr(mechanism)
    assert len({*BOTH, replace(BOTH[0], contribution=2), DiscreteGaussianMechanism(np.ones(4), 5.1)}) == 4
    with pytest.raises(ArgumentError, match="Did you mean 'clip-and-smooth'"):
        DiscreteGaussianMechanism(np.ones(2), 1.0, postprocess="clip-and-smoothe")
    with pytest.raises(ArgumentError, match="sigma > 0"):
        DiscreteGaussianMechanism(np.ones(2), 0.0)
    with pytest.raises(ArgumentError, match="scale > 0"):
        GeometricMechanism(np.ones(2), math.inf)
    with pytest.raises(DataError, match="integers"):
        BOTH[0].sample([1.5, 1, 1, 1], sampler="fast")


def test_the_prior_is_part_of_the_draw_and_not_of_the_estimate():
    mechanism = DiscreteGaussianMechanism([500.0, 100.0], 0.1)
    draws = mechanism.sample([0, 0], released_draws=2000, random_seed=8)
    assert draws[:, 0].mean() == pytest.approx(5 / 6, abs=0.005)
    assert mechanism.estimate([300, 700], random_seed=8)[0] == pytest.approx(0.3, abs=0.005)


def test_noise_of_any_size_is_added_without_rounding_before_the_end(monkeypatch):
    """Oracle: sums of Python's integers, which end at 2**1000."""
    mechanism, most, largest = GeometricMechanism(np.ones(8), 2.0), 2**53, 2**1000
    counts = np.array([0.0, 5, most, 0, most, 7, most, 3])
    for far in (2**40 + 1, 2**62 - 1, 2**62, 2**63 - 1, 2**80, 2**2000):
        noise = [3, -9, 1, far, far, -far, -far, 1 - far]
        monkeypatch.setattr(
            Geometric, "exact", lambda self, shape, bits, noise=noise: np.array(noise, dtype=object).reshape(shape)
        )
        by_hand = [float(max(-largest, min(int(n) + x, largest))) for n, x in zip(counts.tolist(), noise, strict=True)]
        assert mechanism.release(counts).tolist() == by_hand
