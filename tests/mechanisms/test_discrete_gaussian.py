"""Discrete Gaussian noise: calibration, exact draws, several records of a person."""

import math
from fractions import Fraction

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian, DiscreteGaussianMechanism
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, ZeroCDP


def test_renyi_is_below_the_continuous_one_between_whole_orders():
    mechanism = DiscreteGaussianMechanism(np.ones(2), math.sqrt(0.05), adjacency="add-remove")
    bound = 1.5 / (2 * float(mechanism.variance))
    assert mechanism.renyi(1.5) == pytest.approx(0.759 * bound, rel=1e-3)
    assert mechanism.renyi(3.0) == pytest.approx(2 * bound, rel=1e-12)
    assert mechanism.rho(math.inf) == mechanism.rho(1.5)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5, 1.4, 1.5, 20.0])
def test_probabilities_add_up_to_1(sigma):
    masses = np.exp(DiscreteGaussian(sigma).log_pmf(np.arange(-400.0, 401.0)))
    assert masses.sum() == pytest.approx(1, rel=1e-13)


def test_the_variance_that_is_used_is_a_double_and_not_below_the_one_asked_for():
    rng = np.random.default_rng(3)
    for sigma in 10 ** rng.uniform(-30, 30, 100):
        used = DiscreteGaussianMechanism([1, 1], sigma).variance
        assert Fraction(float(used)) == used
        assert 1 - 2**-52 <= used / Fraction(sigma) ** 2 <= 1 + 2.0**-39
    assert DiscreteGaussianMechanism([1, 1], 5.0).variance == 25


def long_delta(s, cells, epsilon):
    """An oracle for many targets: 64 bits of mantissa, from the sum of the noise of both cells."""
    reach = int(10 * math.sqrt(s)) + 4
    k = np.arange(-reach, reach + 1).astype(np.longdouble)
    weights = np.exp(-(k**2) / (2 * np.longdouble(s)))
    weights, j = weights / weights.sum(), k
    if cells == 2:
        weights, j = np.convolve(weights, weights), np.arange(-2 * reach, 2 * reach + 1).astype(np.longdouble)
    excess = np.maximum((cells + 2 * j) / (2 * np.longdouble(s)) - np.longdouble(epsilon), 0)
    return float((weights * -np.expm1(-excess)).sum())


@pytest.mark.thorough
def test_random_targets_are_calibrated_on_the_safe_side():
    """Epsilon from 1e-4 to 100 and delta from 1e-12 to 0.5, half of them under either adjacency."""
    rng, checked = np.random.default_rng(1), 0
    for adjacency, cells in (("replace-one", 2), ("add-remove", 1)) * 20:
        target = ApproxDP(epsilon=10 ** rng.uniform(-4, 2), delta=10 ** rng.uniform(-12, -0.3))
        mechanism = DiscreteGaussianMechanism.for_guarantee(target, prior=[1, 1], adjacency=adjacency)
        assert mechanism.satisfies(target)
        s = float(mechanism.variance)
        if s < 200**2:
            assert long_delta(s, cells, target.epsilon) <= target.delta
            # In terms of sigma, because beside an atom of the loss delta changes by factors within 1e-9 of it.
            assert long_delta(s * (1 - 1e-8), cells, target.epsilon) > target.delta
            checked += 1
        else:
            # The true value lies within a few 1e-6 of the continuous one.
            assert mechanism.delta(target.epsilon) > target.delta * (1 - 1e-8)
    assert checked > 20


def test_delta_rises_with_sigma_somewhere_and_calibration_knows():
    """One cell at epsilon 1: less noise may lose less. The noise that is returned is on the safe side of a failure."""
    at = [DiscreteGaussianMechanism([1, 1], s, adjacency="add-remove").delta(1.0) for s in np.geomspace(0.3, 1.2, 200)]
    assert np.any(np.diff(at) > 0)
    for delta in (0.3, 0.5, 0.6, 0.7, 0.72, 0.74, 0.76):
        target = ApproxDP(epsilon=1, delta=delta)
        mechanism = DiscreteGaussianMechanism.for_guarantee(target, prior=[1, 1], adjacency="add-remove")
        for more in (1.0, 1.001, 1.01, 1.1, 1.5):
            larger = DiscreteGaussianMechanism([1, 1], more * mechanism.sigma, adjacency="add-remove")
            assert larger.satisfies(target)


def test_what_no_sigma_keeps():
    with pytest.raises(UnattainableError, match="GeometricMechanism"):
        DiscreteGaussianMechanism.for_guarantee(PureDP(epsilon=1), prior=[1, 1])
    with pytest.raises(UnattainableError, match="No sigma up to"):
        DiscreteGaussianMechanism.for_guarantee(ZeroCDP(rho=1e-300), prior=[1, 1])
    with pytest.raises(ArgumentError, match="data sets that differ"):
        DiscreteGaussianMechanism([1, 1], 2.0).output_distributions(np.ones(2), np.ones(2))
    for sigma in (1e-70, 1e70):
        with pytest.raises(ArgumentError, match="between"):
            DiscreteGaussianMechanism([1, 1], sigma)
    for loose in (ApproxDP(epsilon=1e300, delta=1e-6), ApproxDP(epsilon=0, delta=1 - 1e-12), ZeroCDP(rho=1e100)):
        assert DiscreteGaussianMechanism.for_guarantee(loose, prior=[1, 1]).satisfies(loose)
    tiny = ApproxDP(epsilon=1e-25, delta=1e-300)
    assert DiscreteGaussianMechanism.for_guarantee(tiny, prior=[1, 1]).satisfies(tiny)
