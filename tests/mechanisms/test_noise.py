"""Noises are values: probabilities, samplers and curves of each, against lists, and of noise of one's own."""

import itertools
import math
import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian
from pymc_dirdp.mechanisms.geometric import Geometric, ZeroSumGeometric
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.mechanisms.noise import ListedCurves, Noise, NoisyMarginal, round_scale_up
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


def test_the_noise_of_a_table_adds_up_to_0_along_the_axes_that_share_it():
    """A table of 2 x 3 x 2 in which the entries of the axis in the middle have lists of their own."""
    marginal = NoisyMarginal((0, 1, 2), (2, 3, 2), ZeroSumGeometric(2.0, 4), (1,))
    for source in (np.random.default_rng(1), Bits(1)):
        noise = marginal.noise_for((50,), source).astype(float)
        assert noise.shape == (50, 2, 3, 2)
        assert not noise.sum(axis=(1, 3)).any()
        assert noise.sum(axis=(2, 3)).any()
        assert np.array_equal(marginal.lists(noise).sum(axis=-1), np.zeros((50, 3)))
        assert np.all(marginal.log_likelihood(noise, np.zeros((2, 3, 2))) > -np.inf)
    noise[0, 0, 0, 0] += 1
    assert marginal.log_likelihood(noise, np.zeros((2, 3, 2)))[0] == -np.inf
