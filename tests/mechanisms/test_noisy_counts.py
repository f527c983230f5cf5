"""What kinds of noise on counts share: draws from one noisy table, and frequencies from noisy counts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.noisy_counts import postprocessed

COUNTS = [108, 286, 71, 127]
BOTH = [DiscreteGaussianMechanism(np.ones(4), 5.0), GeometricMechanism(np.ones(4), 3.0)]


@pytest.mark.parametrize("mechanism", BOTH, ids=["gaussian", "geometric"])
def test_draws_come_from_one_noisy_table(mechanism):
    draws = mechanism.sample(COUNTS, released_draws=5_000, sampler="fast", random_seed=4)
    assert draws.shape == (5_000, 4)
    noisy = np.maximum(mechanism.release(COUNTS, sampler="fast", random_seed=4), 0) + mechanism.noise_sd / 4 + 1
    distribution = stats.beta(noisy[0], noisy[1:].sum())
    assert stats.kstest(draws[:, 0], distribution.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:, 0], stats.beta(108 + 1, 484 + 3).cdf).pvalue < 1e-6
    mechanism.sample([7654321, 1, 1, 1], sampler="fast")
    assert "7654321" not in repr(mechanism)
    with pytest.raises(DataError, match="integers"):
        mechanism.sample([1.5, 1, 1, 1], sampler="fast")


def test_mechanisms_are_comparable_and_odd_ones_are_refused():
    assert len({*BOTH, replace(BOTH[0], contribution=2), DiscreteGaussianMechanism(np.ones(4), 5.1)}) == 4
    with pytest.raises(ArgumentError, match="Did you mean 'clip-and-smooth'"):
        replace(BOTH[0], postprocess="clip-and-smoothe")
    with pytest.raises(ArgumentError, match="sigma > 0"):
        replace(BOTH[0], sigma=0.0)
    with pytest.raises(ArgumentError, match="scale > 0"):
        replace(BOTH[1], scale=math.inf)


def test_the_prior_is_part_of_the_draw_and_not_of_the_estimate():
    mechanism = DiscreteGaussianMechanism([500.0, 100.0], 0.1)
    draws = mechanism.sample([0, 0], released_draws=2000, random_seed=8)
    assert draws[:, 0].mean() == pytest.approx(5 / 6, abs=0.005)
    assert mechanism.estimate([300, 700], random_seed=8)[0] == pytest.approx(0.3, abs=0.005)


@pytest.mark.parametrize("how", ["clip-and-smooth", "clip", "project"])
def test_estimates_are_frequencies_in_every_row(how):
    mechanism = DiscreteGaussianMechanism(np.ones((50, 3)), 3.0, postprocess=how)
    for counts in (np.tile([0, 5, 1], (50, 1)), np.zeros((50, 3), dtype=int)):
        estimate = mechanism.estimate(counts, sampler="fast", random_seed=2)
        assert np.all(estimate >= 0)
        np.testing.assert_allclose(estimate.sum(axis=-1), 1)


def test_projection_is_the_nearest_point():
    """Oracle: a general optimiser."""
    for noisy in ([3.0, -1.0, 0.5], [10.0, 9.0, -30.0, 12.0], [1.0, 0.6, -0.4], [-3.0, -1.0]):
        total = max(sum(noisy), 0.0)
        found = minimize(
            lambda z, to=noisy: np.sum((z - np.array(to)) ** 2),
            np.full(len(noisy), total / len(noisy)),
            bounds=[(0, None)] * len(noisy),
            constraints={"type": "eq", "fun": lambda z, total=total: z.sum() - total},
        )
        np.testing.assert_allclose(postprocessed(np.array(noisy), "project", noise=1.0), found.x, atol=1e-4)


def test_smoothing_is_near_the_best_and_clipping_explodes():
    """ERRATA P1.6: P1's baselines clip at 1e-6, and that alone makes their loss large."""
    rng = np.random.default_rng(6)
    for d, n, sigma in ((4, 592, 5.0), (1000, 100_000, 10.0)):
        losses = dict.fromkeys(("clip-and-smooth", "clip", 0.0625, 0.5, 1.0), 0.0)
        for _ in range(30):
            counts = rng.multinomial(n, rng.dirichlet(np.ones(d)))
            noisy = counts + rng.normal(0, sigma, d)
            for how in losses:
                by_hand = isinstance(how, float)
                used = np.maximum(noisy, 0) + how * sigma if by_hand else postprocessed(noisy, how, noise=sigma)
                losses[how] += stats.entropy(counts, used)
        assert losses["clip-and-smooth"] <= 1.25 * min(losses.values())
        assert d < 100 or losses["clip"] > 2 * losses["clip-and-smooth"]
