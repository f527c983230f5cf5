"""From noisy counts to frequencies: rows sum to 1, projection is the nearest point, clipping is poor."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.noisy_counts import postprocessed


@pytest.mark.parametrize("how", ["clip-and-smooth", "clip", "project"])
def test_estimates_are_frequencies_in_every_row(how):
    mechanism = DiscreteGaussianMechanism(np.ones((50, 3)), 3.0, postprocess=how)
    counts = np.tile([0, 5, 1], (50, 1))
    estimate = mechanism.estimate(counts, sampler="fast", random_seed=2)
    assert np.all(estimate >= 0)
    np.testing.assert_allclose(estimate.sum(axis=-1), 1)
    np.testing.assert_allclose(mechanism.estimate(0 * counts, sampler="fast", random_seed=2).sum(axis=-1), 1)


def test_projection_is_the_nearest_point():
    """Oracle: a general optimiser."""
    for noisy in ([3.0, -1.0, 0.5], [10.0, 9.0, -30.0, 12.0], [1.0, 1.0], [5.0, -0.1, -0.1]):
        projected = postprocessed(np.array(noisy), "project", noise=1.0)
        total = max(sum(noisy), 0.0)
        found = minimize(
            lambda z, to=noisy: np.sum((z - np.array(to)) ** 2),
            np.full(len(noisy), total / len(noisy)),
            bounds=[(0, None)] * len(noisy),
            constraints={"type": "eq", "fun": lambda z, total=total: z.sum() - total},
        )
        np.testing.assert_allclose(projected, found.x, atol=1e-4)
    np.testing.assert_array_equal(postprocessed(np.array([-3.0, -1.0]), "project", noise=1.0), [0, 0])


def kl(share, estimate):
    positive = share > 0
    return np.sum(share[positive] * np.log(share[positive] / estimate[positive]))


def test_smoothing_is_near_the_best_and_clipping_explodes():
    """ERRATA P1.6: P1's baselines clip at 1e-6, and that alone makes their loss large."""
    rng = np.random.default_rng(6)
    for d, n, sigma in ((4, 592, 5.0), (6, 1283, 20.0), (100, 1000, 5.0), (1000, 100_000, 10.0)):
        losses = dict.fromkeys((0.0625, 0.125, 0.25, 0.5, 1.0), 0.0) | {"clip": 0.0}
        for _ in range(60):
            counts = rng.multinomial(n, rng.dirichlet(np.ones(d)))
            noisy = counts + rng.normal(0, sigma, d)
            for how in losses:
                if how == "clip":
                    used = postprocessed(noisy, "clip", noise=sigma)
                else:
                    used = np.maximum(noisy, 0) + how * sigma
                losses[how] += kl(counts / n, used / used.sum())
        smooth = losses[0.25]
        assert smooth <= 1.25 * min(losses.values())
        if d >= 100:
            assert losses["clip"] > 2 * smooth
