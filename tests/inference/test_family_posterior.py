import numpy as np
import pytest
from scipy.optimize import approx_fprime

from pymc_dirdp.inference.family_posterior import FamilyPosterior
from pymc_dirdp.inference.measurements import Family, Measurement

FAMILY = Family("p", ("a", "b", "c"), (2, 3, 4))
RNG = np.random.default_rng(3)
COUNTS = RNG.multinomial(800, RNG.dirichlet(np.ones(24))).reshape(2, 3, 4).astype(float)


def measured(variance, counts=COUNTS, rng=None):
    """All of the table, a pair, a marginal, and a marginal of something that the family does not have."""
    noise = (lambda shape: 0.0) if rng is None else (lambda shape: rng.normal(0, variance**0.5, shape))
    outer = np.stack([0.3 * counts.sum(axis=(0, 1)), 0.7 * counts.sum(axis=(0, 1))])
    exact = {"abc": counts, "ca": counts.sum(axis=1).T, "b": counts.sum(axis=(0, 2)), "xc": outer}
    return [Measurement(tuple(axes), table + noise(table.shape), variance) for axes, table in exact.items()]


def posterior(variance=30.0, n=800.0):
    found = FamilyPosterior(FAMILY, measured(variance, rng=np.random.default_rng(5)), n)
    found.reweighted(found.start())
    return found


def test_the_objective_is_minus_the_logarithm_of_the_stated_densities():
    one = posterior()
    scales = np.random.default_rng(1).uniform(0.5, 1.5, (2, 3, 4))
    x = np.random.default_rng(2).normal(size=24)

    def directly(x):
        p = one.shares(scales * x.reshape(2, 3, 4))
        p0 = one.shares(one.start())
        total = 0.5 * x @ x
        for own, axes in zip(measured(30.0, rng=np.random.default_rng(5)), ("abc", "ca", "b", "c"), strict=True):
            letters = f"abc->{axes}"
            noisy = own.noisy.sum(axis=0) if axes == "c" else own.noisy
            variance = (2 if axes == "c" else 1) * 30.0 + 800 * np.einsum(letters, p0)
            total += 0.5 * np.sum((noisy - 800 * np.einsum(letters, p)) ** 2 / variance)
        return total

    other = np.zeros(24)
    difference = one.objective(x, scales)[0] - one.objective(other, scales)[0]
    assert difference == pytest.approx(directly(x) - directly(other), rel=1e-12)


def test_the_gradient_is_that_of_finite_differences():
    one = posterior()
    scales = np.random.default_rng(1).uniform(0.5, 1.5, (2, 3, 4))
    x = np.random.default_rng(2).normal(size=24)
    numeric = approx_fprime(x, lambda x: one.objective(x, scales)[0], 1e-7)
    np.testing.assert_allclose(one.objective(x, scales)[1], numeric, rtol=1e-4, atol=1e-4)


def test_the_curvature_is_that_of_finite_differences():
    one = posterior()
    scales = np.random.default_rng(1).uniform(0.5, 1.5, (2, 3, 4))
    x, v, h = *np.random.default_rng(2).normal(size=(2, 24)), 1e-6
    numeric = (one.objective(x + h * v, scales)[1] - one.objective(x - h * v, scales)[1]) / (2 * h)
    np.testing.assert_allclose(one.curvature(x, scales)(v), numeric, rtol=1e-5, atol=1e-4)


def test_the_gauss_newton_curvature_is_the_sum_of_squares_of_derivatives_of_the_marginals():
    one = posterior()
    scales = np.full((2, 3, 4), 0.7)
    x = np.random.default_rng(2).normal(size=24)

    def marginals(x):
        p = 800 * one.shares(scales * x.reshape(2, 3, 4))
        return np.concatenate([np.einsum(f"abc->{axes}", p).ravel() for axes in ("abc", "ca", "b", "c")])

    h = 1e-6
    slopes = np.stack([(marginals(x + h * e) - marginals(x - h * e)) / (2 * h) for e in np.eye(24)], axis=1)
    p0 = one.shares(one.start())
    counted = [("abc", 1), ("ca", 1), ("b", 1), ("c", 2)]
    variance = np.concatenate([(k * 30.0 + 800 * np.einsum(f"abc->{axes}", p0)).ravel() for axes, k in counted])
    dense = np.eye(24) + slopes.T @ (slopes / variance[:, None])
    np.testing.assert_allclose(one.curvature(x, scales, gauss_newton=True)(np.eye(24)), dense, rtol=1e-5, atol=1e-5)


def test_the_mode_has_no_gradient_and_does_not_depend_on_the_start():
    one = posterior()
    scales = np.array([0.0, *np.ones(len(one.effects.orders) - 1)])
    found = one.mode(one.start(), scales, 1e-6)
    other = one.mode(np.random.default_rng(0).normal(size=(2, 3, 4)), scales, 1e-6)
    np.testing.assert_allclose(found, other, atol=1e-6)
    of_each = scales[one.effects.groups]
    x = np.divide(found, of_each, out=np.zeros(found.shape), where=of_each > 0)
    assert np.linalg.norm(one.objective(x.ravel(), of_each)[1]) < 1e-6


def test_without_noise_and_without_shrinkage_the_marginals_are_the_empirical_ones():
    one = FamilyPosterior(FAMILY, measured(1e-6, COUNTS + 1), 824.0)
    one.reweighted(one.start())
    scales = np.array([0.0, *np.full(len(one.effects.orders) - 1, 1e5)])
    fitted = one.shares(one.mode(one.start(), scales, 1e-3))
    np.testing.assert_allclose(fitted, (COUNTS + 1) / 824, atol=1e-6)


def test_what_the_marginals_tell_is_the_trace_that_linear_algebra_gives():
    one = posterior()
    scales = np.array([0.0, *np.full(len(one.effects.orders) - 1, 0.6)])
    mode = one.mode(one.start(), scales, 1e-6)
    of_each = scales[one.effects.groups]
    x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
    dense = one.curvature(x.ravel(), of_each, gauss_newton=True)(np.eye(24))
    exact = one.effects.sums(1 - np.diag(np.linalg.inv(dense)))
    known = one.known(mode, scales)
    np.testing.assert_allclose(known, exact, atol=0.25)
    assert known.sum() == pytest.approx(exact.sum(), rel=0.05)


def test_the_start_is_independence_with_the_measured_marginals():
    one = FamilyPosterior(FAMILY, measured(1e-6, COUNTS), 800.0)
    expected = np.einsum("a,b,c->abc", *(COUNTS.sum(axis=over) / 800 for over in ((1, 2), (0, 2), (0, 1))))
    np.testing.assert_allclose(one.shares(one.start()), expected, rtol=1e-6)


def test_without_measurements_the_mode_is_uniform():
    one = FamilyPosterior(FAMILY, [Measurement(("x",), np.ones(2), 1.0)], 10.0)
    found = one.mode(np.ones((2, 3, 4)), np.array([0.0, *np.ones(len(one.effects.orders) - 1)]), 1e-6)
    np.testing.assert_allclose(one.shares(found), 1 / 24, rtol=1e-6)
