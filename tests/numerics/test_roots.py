"""Roots end on the safe side, from either end; minima, and what is solved on the way."""

import math

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess

from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.numerics.minima import inverse_diagonal, minimised, solve
from pymc_dirdp.numerics.roots import (
    bracket,
    largest_satisfying,
    last_safe,
    least_epsilon,
    log_ratio_to_budget,
    safe_root,
)


@pytest.mark.parametrize(("safe", "unsafe"), [(1e-299, 1e-298), (1e299, 1e298), (1e-3, 10.0)])
def test_safe_root_is_as_close_where_products_are_no_doubles(safe, unsafe):
    """The last step towards the safe end asks on which side of it a point is."""
    sign = 1 if safe < unsafe else -1
    for root in np.geomspace(safe, unsafe, 20)[1:-1].tolist():
        found = safe_root(lambda x, root=root: -1.0 if sign * x <= sign * root else 1.0, safe=safe, unsafe=unsafe)
        assert sign * found <= sign * root
        assert found == pytest.approx(root, rel=1e-9, abs=0)


@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-250])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e4])
def test_least_epsilon_at_every_scale(delta, scale):
    def curve(epsilon):
        return 0.9 * math.exp(-scale * epsilon)

    epsilon = least_epsilon(curve, delta)
    assert curve(epsilon) <= delta < curve(epsilon * (1 - 1e-8))
    assert least_epsilon(lambda e: delta / 2, delta) == 0.0
    jump = least_epsilon(lambda e: 1.0 if e < 0.25 * scale else 0.0, delta)
    assert 0.25 * scale <= jump < 0.25 * scale * (1 + 1e-8)


@pytest.mark.parametrize(("safe", "unsafe"), [(1e-3, 10.0), (10.0, 1e-3)])
def test_what_is_returned_was_evaluated(safe, unsafe):
    """Also for a guarantee that holds and breaks again by rounding, close to its root."""
    seen = {}
    sign = 1 if safe < unsafe else -1

    def excess(x):
        seen[x] = sign * (x - 0.7) + 1e-10 * math.sin(1e13 * x)
        return seen[x]

    found = safe_root(excess, safe=safe, unsafe=unsafe)
    assert seen[found] <= 0
    assert found == pytest.approx(0.7, rel=1e-6)
    # Rounding may have put the bracket at the root; the guarantee is not stretched.
    for end in (-1.0, 1.0):
        assert safe_root(lambda x, end=end: end, safe=safe, unsafe=unsafe) == safe
    assert safe_root(lambda x: -1.0 if x == safe else math.inf, safe=safe, unsafe=unsafe) == pytest.approx(safe)


def test_excess_is_the_log_of_the_ratio():
    assert log_ratio_to_budget(3.0, 0.5) == pytest.approx(math.log(6))
    assert log_ratio_to_budget(1e-300, 1e300) == pytest.approx(math.log(1e-300) - math.log(1e300))
    # Noise of a small scale has a variance of 0 in doubles.
    for loss, allowed, sign in ((0.0, 1.0, -1), (math.inf, 1.0, 1), (5e-324, 0.0, 1), (0.0, 0.0, -1)):
        assert log_ratio_to_budget(loss, allowed) == sign * math.inf
    # Its sign is the comparison.
    for loss, allowed in ((1.0, 1.0), (0.0, 1e-300), (1.0, 1.0 + 2**-52), (0.1 + 0.2, 0.3)):
        assert (log_ratio_to_budget(loss, allowed) <= 0) == (loss <= allowed)
        assert log_ratio_to_budget(math.nextafter(allowed, math.inf), allowed) > 0


@pytest.mark.parametrize("factor", [2.0, 4.0, 0.25])
@pytest.mark.parametrize("root", [3e-7, 1.0, 7e8])
def test_a_bracket_holds_the_root_from_either_side(root, factor):
    """The guarantee holds below the root where the factor is above 1, and above it otherwise."""
    sign = 1 if factor > 1 else -1
    safe, unsafe = bracket(lambda x: sign * (x - root), factor=factor)
    assert sign * (safe - root) <= 0 < sign * (unsafe - root)
    assert max(safe, unsafe) / min(safe, unsafe) == max(factor, 1 / factor)
    searches = [last_safe(lambda x: sign * (x - root), factor=factor)]
    searches += [largest_satisfying(lambda x: x - root)] if factor > 1 else []
    for found in searches:
        assert sign * (found - root) <= 0
        assert found == pytest.approx(root, rel=1e-10)


@pytest.mark.parametrize(("factor", "beyond", "opposite"), [(4.0, math.inf, 0.0), (0.25, 0.0, math.inf)])
def test_a_search_without_a_root_says_on_which_side(factor, beyond, opposite):
    ends = {math.inf: 50.0, 0.0: 0.01}
    limits = {"factor": factor, "least": 0.01, "most": 50.0}
    assert bracket(lambda x: -1.0, **limits) == (ends[beyond], beyond)
    assert bracket(lambda x: 1.0, **limits) == (opposite, ends[opposite])
    with pytest.raises(UnattainableError, match="all too easy"):
        last_safe(lambda x: -1.0, **limits, loose="all too easy")
    with pytest.raises(UnattainableError, match="all too hard"):
        last_safe(lambda x: 1.0, **limits, tight="all too hard")


def test_the_limits_of_a_search_are_tried_themselves():
    assert bracket(lambda x: -1.0 if x <= 0.02 else 1.0, factor=4.0, least=0.02) == (0.02, 0.0625)
    assert bracket(lambda x: -1.0 if x < 40.0 else 1.0, factor=4.0, most=40.0) == (16.0, 40.0)


# Minima.


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
