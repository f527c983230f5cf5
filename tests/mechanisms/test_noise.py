"""Noises are values: probabilities, samplers and curves of each, against lists, and what Gaussian noise guarantees."""

import itertools
import math
import pickle
import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian, DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import Geometric, ZeroSumGeometric
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.mechanisms.noise import ListedCurves, Noise, round_scale_up
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, ZeroCDP
from pymc_dirdp.sampling.bits import Bits

Binomial = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_mechanism.py"))["Binomial"]

# Lists of so many cells.
NOISES = {
    "geometric": (Geometric(0.8), 2),
    "zero-sum": (ZeroSumGeometric(0.9, 3), 3),
    "gaussian": (DiscreteGaussian(0.9), 2),
    "joint": (JointNoise([1, 2], 0.3, (1, 2)), 3),
    "joint, one block of two": (JointNoise([2, 2], 0.4), 2),
    "joint zero-sum": (JointNoise([2, 2], 0.6, zero_sum=True), 4),
    "binomial": (Binomial(10), 2),
}
LEVEL, DRAWS = 1e-6, 3000


def listed(noise, cells, reach=12):
    """All lists that are not too unlikely, and their probabilities."""
    lists = np.array(list(itertools.product(range(-reach, reach + 1), repeat=cells)), dtype=float)
    masses = np.exp(noise.log_probability(lists))
    return lists[masses > 0], masses[masses > 0]


@pytest.mark.parametrize("name", NOISES)
def test_probabilities_add_up_to_1_and_have_the_stated_deviation(name):
    noise, cells = NOISES[name]
    lists, masses = listed(noise, cells, 9 if cells == 4 else 30 if cells == 3 else 60)
    assert masses.sum() == pytest.approx(1, abs=1e-4 if cells > 2 else 1e-9)
    covariance, near = (lists.T * masses) @ lists, 1e-3 if cells > 2 else 1e-7
    assert math.sqrt(covariance[0, 0]) == pytest.approx(noise.sd, rel=near)
    # The covariance of independent noise with the free variance, and given its sum.
    if "joint" not in name:
        free = np.eye(cells) - (1 / cells if name == "zero-sum" else 0)
        np.testing.assert_allclose(covariance, noise.free_variance * free, rtol=near, atol=near)
    first, second = np.random.default_rng(3).choice(listed(noise, cells, 3)[0], (2, 50))
    with np.errstate(invalid="ignore"):
        wanted = noise.log_probability(first) - noise.log_probability(second)
    np.testing.assert_allclose(noise.log_ratio(first, second), wanted, atol=1e-10)
    # A noise is equal to another of the same numbers.
    again = pickle.loads(pickle.dumps(noise)) if name != "binomial" else Binomial(10)
    assert again == noise
    assert hash(again) == hash(noise)
    assert noise.curves(1, 1, 1) == again.curves(1, 1, 1)
    assert hash(noise.curves(1, 1, 1)) == hash(again.curves(1, 1, 1))
    assert noise.name


@pytest.mark.parametrize("sampler", ["exact", "fast"])
@pytest.mark.parametrize("name", NOISES)
def test_samplers_draw_from_these_probabilities(name, sampler):
    noise, cells = NOISES[name]
    lists, masses = listed(noise, cells, 9)
    rng = np.random.default_rng(1)
    shape = (DRAWS, cells)
    drawn = noise.fast(shape, rng) if sampler == "fast" else noise.exact(shape, Bits(2)).astype(float)
    places = {tuple(z): i for i, z in enumerate(lists.tolist())}
    seen = np.bincount([places.get(tuple(z), len(lists)) for z in drawn.tolist()], minlength=len(lists) + 1)
    common = np.append(DRAWS * masses >= 5, False)
    expected = DRAWS * masses[common[:-1]]
    observed = seen[common]
    both = np.append(observed, DRAWS - observed.sum()), np.append(expected, DRAWS - expected.sum())
    assert chisquare(*both).pvalue > LEVEL
    # With a fifth more noise in each cell it would not.
    assert chisquare(both[0], np.append(expected * 0.8, DRAWS - expected.sum() * 0.8)).pvalue < LEVEL


def test_what_a_list_leaves_out_is_lost():
    class Short(Noise):
        """Noise of which a tenth lies beyond the list."""

        sd = 0.1

        def log_pmf(self, noise):
            return np.log(np.where(noise == 0, 0.5, np.where(np.abs(noise) == 1, 0.2, 0.0)) + 1e-300)

        def fast(self, shape, rng):
            raise NotImplementedError

        exact = fast

    curves = Short().curves(1, 1, 1)
    assert curves.delta(0.0) == pytest.approx(0.5 - 0.2 + 0.2 + 0.1, abs=1e-9)
    with pytest.raises(UnattainableError, match="one record of a person"):
        Short().curves(2, 1, 1)
    with pytest.raises(ArgumentError, match="too wide"):
        ListedCurves(DiscreteGaussian(100.0), 2).delta(0.3)


def test_scales_that_no_double_holds_are_refused():
    assert round_scale_up(2.0**-1000) == 2.0**-1000
    for scale in (2.0**-1001, 2.0**1001, 0.0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="scale"):
            round_scale_up(scale)
    with pytest.raises(ArgumentError, match=r"2\*\*980"):
        ZeroSumGeometric(2.0**981, 3)
    with pytest.raises(ArgumentError, match="too many cells"):
        Binomial.cell_distributions(Geometric(1.0), 10**6) and Noise.cell_distributions(Geometric(1e5), 1)


# Discrete Gaussian noise.


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
