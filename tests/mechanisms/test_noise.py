"""Gaussian and Laplace noise on counts: curves against quadrature, calibration, post-processing, draws."""

import math
import pickle

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.postprocess import postprocessed
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

COUNTS = [108, 286, 71, 127]
BOTH = [GaussianMechanism(np.ones(4), 5.0), LaplaceMechanism(np.ones(4), 3.0)]
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


@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0, 1e5])
@pytest.mark.parametrize("epsilon", [0.0, 1e-4, 0.5, 5.0])
def test_gaussian_delta_with_fifty_digits(sigma, epsilon):
    with mp.workdps(50):
        ratio = mp.sqrt(2) / mp.mpf(sigma)
        exact = mp.ncdf(ratio / 2 - epsilon / ratio) - mp.exp(epsilon) * mp.ncdf(-ratio / 2 - epsilon / ratio)
        if exact < mp.mpf("1e-300"):
            return
    assert GaussianMechanism(np.ones(2), sigma).delta(epsilon) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("u", [1e-9, 1e-5, 0.01, 0.4, 3.0, 40.0])
@pytest.mark.parametrize("order", [1.0, 1 + 1e-6, 1.5, 4.0, 300.0])
def test_laplace_divergence_with_fifty_digits(u, order):
    with mp.workdps(60):
        u_, o = mp.mpf(u), mp.mpf(order)
        if order == 1:
            exact = u_ + mp.expm1(-u_)
        else:
            inside = (o * mp.exp((o - 1) * u_) + (o - 1) * mp.exp(-o * u_)) / (2 * o - 1)
            exact = mp.log(inside) / (o - 1)
    mechanism = LaplaceMechanism(np.ones(2), 1 / u, adjacency="add-remove")
    assert mechanism.renyi(order) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
@pytest.mark.parametrize(("adjacency", "cells"), [("add-remove", 1), ("replace-one", 2)])
def test_laplace_delta_by_integration(scale, adjacency, cells):
    """Oracle: E[1 - exp(epsilon - loss)]+ over the noise of each cell that changes, on a fine grid of its quantiles."""
    mechanism = LaplaceMechanism(np.ones(3), scale, adjacency=adjacency)
    n = 2001 if cells == 2 else 2_000_001
    noise = stats.laplace.ppf((np.arange(n) + 0.5) / n) * scale
    loss = (np.abs(noise + 1) - np.abs(noise)) / scale
    total = loss if cells == 1 else np.add.outer(loss, loss)
    for share in (0.0, 0.3, 0.9):
        epsilon = share * mechanism.pure_epsilon
        by_hand = np.mean(np.maximum(-np.expm1(epsilon - total), 0))
        assert mechanism.delta(epsilon) == pytest.approx(by_hand, rel=5e-3, abs=1e-7)
    assert mechanism.delta(mechanism.pure_epsilon) == 0
    assert mechanism.satisfies(PureDP(epsilon=mechanism.pure_epsilon))


def test_two_cells_lose_less_than_one_that_moves_twice():
    """ERRATA P1.11: twice the scalar divergence at sensitivity 1, not that at sensitivity 2."""
    mechanism = LaplaceMechanism(np.ones(3), 2.0)
    loose = LaplaceMechanism(np.ones(3), 1.0, adjacency="add-remove")
    assert mechanism.renyi(3) < loose.renyi(3)
    assert mechanism.pure_epsilon == loose.pure_epsilon


def test_the_least_rho_of_laplace_noise_is_its_kl():
    """D / order falls in the order, over a grid (Theory, Theorem 7)."""
    for scale in (0.05, 0.5, 2.0, 100.0):
        mechanism = LaplaceMechanism(np.ones(2), scale)
        orders = 1 + np.geomspace(1e-6, 1e4, 200)
        assert np.all(mechanism.renyi(orders) / orders <= mechanism.rho(math.inf) * (1 + 1e-12))


@pytest.mark.parametrize("cls", [GaussianMechanism, LaplaceMechanism])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_calibration_is_safe_and_tight(cls, target, adjacency):
    if cls is GaussianMechanism and isinstance(target, PureDP):
        with pytest.raises(UnattainableError, match="GeometricMechanism"):
            cls.for_guarantee(target, prior=np.ones(4), adjacency=adjacency)
        return
    mechanism = cls.for_guarantee(target, prior=np.ones(4), adjacency=adjacency)
    assert mechanism.satisfies(target)
    weaker = cls(np.ones(4), (mechanism.noise_sd / cls(np.ones(4), 1.0).noise_sd) * (1 - 1e-8), adjacency=adjacency)
    assert not weaker.satisfies(target)


@pytest.mark.parametrize("mechanism", BOTH)
def test_noise_has_the_stated_law(mechanism):
    """The threshold is 1e-6, and noise that is 30 % off is rejected at it."""
    table = type(mechanism)(np.ones((200, 200)), mechanism.noise_sd / type(mechanism)(np.ones(2), 1.0).noise_sd)
    noise = table.release(np.zeros((200, 200), dtype=int), sampler="fast", random_seed=3).ravel()
    law = stats.norm if isinstance(mechanism, GaussianMechanism) else stats.laplace
    scale = table.sigma if isinstance(mechanism, GaussianMechanism) else table.scale
    assert stats.kstest(noise, law(0, scale).cdf).pvalue > 1e-6
    for wrong in (0.7, 1.3):
        assert stats.kstest(noise, law(0, wrong * scale).cdf).pvalue < 1e-6


@pytest.mark.parametrize("mechanism", BOTH)
def test_draws_come_from_one_noisy_table(mechanism):
    draws = mechanism.sample(COUNTS, draws=20_000, sampler="fast", random_seed=4)
    assert draws.shape == (20_000, 4)
    noisy = np.maximum(mechanism.release(COUNTS, sampler="fast", random_seed=4), 0) + mechanism.noise_sd / 4 + 1
    law = stats.beta(noisy[0], noisy[1:].sum())
    assert stats.kstest(draws[:, 0], law.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:, 0], stats.beta(108 + 1, 484 + 3).cdf).pvalue < 1e-6


def test_the_prior_is_part_of_the_draw_and_not_of_the_estimate():
    mechanism = GaussianMechanism([500.0, 100.0], 0.1)
    draws = mechanism.sample([0, 0], draws=2000, sampler="fast", random_seed=8)
    assert draws[:, 0].mean() == pytest.approx(5 / 6, abs=0.005)
    assert mechanism.estimate([300, 700], sampler="fast", random_seed=8)[0] == pytest.approx(0.3, abs=0.005)


@pytest.mark.parametrize("how", ["clip-and-smooth", "clip", "project"])
def test_estimates_are_frequencies_in_every_row(how):
    mechanism = GaussianMechanism(np.ones((50, 3)), 3.0, postprocess=how)
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
    kept = share > 0
    return np.sum(share[kept] * np.log(share[kept] / estimate[kept]))


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


def test_objects_are_frozen_comparable_and_public():
    for mechanism in BOTH:
        mechanism.sample([7654321, 1, 1, 1], sampler="fast")
        assert "7654321" not in repr(mechanism)
        assert pickle.loads(pickle.dumps(mechanism)) == mechanism
        assert hash(mechanism) == hash(pickle.loads(pickle.dumps(mechanism)))
    assert BOTH[0] != BOTH[1]
    assert BOTH[0] != GaussianMechanism(np.ones(4), 5.1)
    with pytest.raises(ArgumentError, match="Did you mean 'clip-and-smooth'"):
        GaussianMechanism(np.ones(2), 1.0, postprocess="clip-and-smoothe")
    with pytest.raises(ArgumentError, match="sigma > 0"):
        GaussianMechanism(np.ones(2), 0.0)
    with pytest.raises(ArgumentError, match="scale > 0"):
        LaplaceMechanism(np.ones(2), math.inf)
    with pytest.raises(DataError, match="whole numbers"):
        BOTH[0].sample([1.5, 1, 1, 1], sampler="fast")


@pytest.mark.parametrize("mechanism", BOTH)
def test_continuous_noise_is_not_exact_and_says_what_is(mechanism):
    with pytest.raises(ArgumentError, match=mechanism.exact_form):
        mechanism.release(COUNTS)
    with pytest.raises(ArgumentError, match="sampler='fast'"):
        mechanism.sample(COUNTS, sampler="exact")
    with pytest.raises(ArgumentError, match="Did you mean 'fast'"):
        mechanism.sample(COUNTS, sampler="fats")


@pytest.mark.parametrize("ratio", [1e-9, 1e-5, 3e-3, 0.2, 3.0, 40.0])
@pytest.mark.parametrize("deviations", [-3.0, 0.0, 3.0, 9.0, 25.0])
def test_gaussian_delta_keeps_its_digits(ratio, deviations):
    """THEORY 20: the difference of two tails lost up to nine digits, on either side. Neither is allowed here."""
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    with mp.workdps(60):
        r, e = mp.mpf(ratio), mp.mpf(epsilon)
        exact = mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)
    mechanism = GaussianMechanism(np.ones(2), 1 / ratio, adjacency="add-remove")
    assert mechanism.delta(epsilon) == pytest.approx(float(exact), rel=2e-11)


def test_continuous_noise_for_several_records():
    """The l2 distance of m records in each of R rows is m sqrt(2 R); for Laplace noise rows compose."""
    each = Contribution(3, ("each",))
    wide = GaussianMechanism(np.ones((5, 2)), 30.0, contribution=each)
    assert wide.rho(math.inf) == pytest.approx(2 * 5 * 9 / (2 * 30.0**2), rel=1e-14)
    assert wide.delta(0.7) == GaussianMechanism(np.ones(2), 30 / (3 * math.sqrt(5))).delta(0.7)
    rows = LaplaceMechanism(np.ones((5, 2)), 8.0, contribution=Contribution(1, ("each",)))
    one = LaplaceMechanism(np.ones(2), 8.0)
    assert rows.renyi(3.0) == pytest.approx(5 * one.renyi(3.0), rel=1e-14)
    assert rows.pure_epsilon == pytest.approx(5 * one.pure_epsilon)
    assert rows.delta(0.5) == pytest.approx(Composition(((one, 5),)).delta(0.5), rel=1e-12)
    several = LaplaceMechanism(np.ones(2), 8.0, contribution=3)
    assert several.pure_epsilon == pytest.approx(6 / 8, rel=1e-15)
    # Where all records lie in one cell, the noise of a third of the scale would lose as much.
    alone = LaplaceMechanism(np.ones(2), 8 / 3)
    for order in (1.0, 2.0, 10.0):
        assert alone.renyi(order) <= several.renyi(order) <= 1.2 * alone.renyi(order)
