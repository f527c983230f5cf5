import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess

from pymc_dirdp.numerics.minima import inverse_diagonal, minimised, solve


def low_rank(n, rank, size, seed=0):
    """The identity plus a matrix of that rank."""
    a = np.random.default_rng(seed).normal(size=(n, rank)) * np.geomspace(1, size, rank)
    return np.eye(n) + a @ a.T


def test_a_valley_that_is_not_convex_is_followed_to_its_end():
    def curvature(x, positive):
        # J'J of the residuals 10 (y - x^2) and 1 - x, twice, is the Gauss-Newton matrix of this function.
        slopes = np.array([[-20 * x[0], 10.0], [-1.0, 0.0]])
        matrix = np.eye(2) + 2 * slopes.T @ slopes if positive else rosen_hess(x)
        return lambda v: v @ matrix

    start = np.array([-1.2, 1.0])
    found = minimised(lambda x: (float(rosen(x)), rosen_der(x)), curvature, start, 1e-8)
    np.testing.assert_allclose(found, 1.0, atol=1e-7)


def test_a_saddle_is_left():
    """The start has a direction of negative curvature, and the gradient there is not zero."""

    def value(x):
        return float(x[0] ** 2 / 2 + x[1] ** 4 / 4 - x[1] ** 2 / 2), np.array([x[0], x[1] ** 3 - x[1]])

    def curvature(x, positive):
        matrix = np.diag([1.0, 1.0 + 3 * x[1] ** 2 if positive else 3 * x[1] ** 2 - 1])
        return lambda v: v @ matrix

    np.testing.assert_allclose(minimised(value, curvature, np.array([1.0, 0.01]), 1e-8), [0, 1], atol=1e-7)


def test_a_gradient_that_rounding_does_not_let_fall_ends_the_search():
    found = minimised(lambda x: (1e20 + float(x @ x), 2 * x), lambda *_: lambda v: 2 * v, np.ones(3), 1e-12)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize(("n", "rank", "size"), [(1, 1, 1.0), (50, 5, 1e3), (400, 30, 1e2)])
def test_sums_of_the_diagonal_of_the_inverse_are_those_of_linear_algebra(n, rank, size):
    matrix = low_rank(n, rank, size)
    found = inverse_diagonal(lambda v: v @ matrix, n)
    exact = np.diag(np.linalg.inv(matrix))
    assert found.sum() == pytest.approx(exact.sum(), rel=0.08)
    # The first half of the coordinates alone is found, too.
    assert found[: n // 2 + 1].sum() == pytest.approx(exact[: n // 2 + 1].sum(), rel=0.15)
    np.testing.assert_allclose(inverse_diagonal(lambda v: v, 7), 1, rtol=1e-12)
    right = np.random.default_rng(0).normal(size=(5, n))
    expected = np.linalg.solve(matrix, right.T).T
    assert np.linalg.norm(solve(lambda v: v @ matrix, right) - expected) < 0.03 * np.linalg.norm(expected)
