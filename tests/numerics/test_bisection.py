"""Many ranges are cut at once, and the last point inside stays between the two ends."""

import numpy as np
import pytest

from pymc_dirdp.numerics.bisection import last_inside, sign_changes


@pytest.mark.parametrize("n", [1, 3, 40, 200, 700])
@pytest.mark.parametrize("halvings", [1, 5, 16, 40])
def test_the_last_point_inside_is_between_the_ends(n, halvings):
    rng = np.random.default_rng(n + halvings)
    start = rng.uniform(-3, 3, n)
    end = start + rng.uniform(0.1, 9, n)
    last = start + (end - start) * rng.uniform(0.01, 0.99, n)
    low, high = last_inside(lambda x: x <= last, start, end, halvings)
    assert low.shape == high.shape == (n,)
    assert np.all((low <= last) & (last <= high))
    assert np.all(high - low <= (end - start) * 2.0**-halvings * (1 + 1e-9) + 1e-14)


def test_ranges_may_go_downwards():
    low, high = last_inside(lambda x: x > 0.3, np.array([2.0, 1.0]), np.array([0.0, -5.0]), 30)
    np.testing.assert_allclose(low, 0.3, atol=1e-8)
    np.testing.assert_allclose(high, 0.3, atol=1e-8)


def test_the_condition_is_asked_for_at_few_points_at_a_time():
    """Where there are many ranges, a call takes as much memory as before."""
    sizes = []

    def inside(x):
        sizes.append(x.size)
        return x < 0.5

    last_inside(inside, np.zeros(700), np.ones(700), 16)
    assert set(sizes) == {700}
    assert len(sizes) == 16


def test_sign_changes_are_narrow_ranges_with_a_sign_seen_at_each_end():
    rng = np.random.default_rng(8)
    roots, width = rng.uniform(-3, 3, 60), 10 ** rng.uniform(-9, -1, 60)
    low, high = roots - rng.uniform(0.01, 4, 60), roots + rng.uniform(0.01, 4, 60)
    guess = roots + rng.normal(size=60)
    seen = {}

    def f(x, of):
        # Steep, flat and bent, with a derivative that is wrong for a third of the functions.
        values = np.sinh(roots[of] - x) * 10.0 ** (of % 7 - 3)
        seen.update({(i, at): value for i, at, value in zip(of.tolist(), x.tolist(), values.tolist(), strict=True)})
        slopes = -np.cosh(roots[of] - x) * 10.0 ** (of % 7 - 3)
        return values, np.where(of % 3 == 0, 1e-3 * slopes, slopes)

    start, end = sign_changes(f, low, high, guess, width)
    assert np.all((start <= roots) & (roots <= end) & (end - start <= width))
    for i in range(60):
        assert start[i] == low[i] or seen[i, start[i]] > 0
        assert end[i] == high[i] or seen[i, end[i]] <= 0


def test_a_function_that_is_nowhere_positive_ends_at_its_first_point():
    for guess in (0.0, 0.7):
        found = sign_changes(lambda x, of: (-1 - x, -np.ones(len(x))), *np.array([[0.0], [1.0], [guess], [1e-6]]))
        assert [float(end[0]) for end in found] == [0.0, 0.0]


def test_ranges_that_are_narrow_already_are_not_looked_at():
    def fails(x, of):
        raise AssertionError

    low, high = sign_changes(fails, np.array([1.0]), np.array([1.01]), np.array([1.0]), np.array([0.1]))
    assert (low[0], high[0]) == (1.0, 1.01)


def test_sign_changes_take_few_steps_where_newtons_steps_help():
    calls = []

    def f(x, of):
        calls.append(len(x))
        return 2 - x**3, -3 * x**2

    low, high = sign_changes(f, np.array([0.1]), np.array([9.0]), np.array([2.0]), np.array([1e-10]))
    assert low[0] <= 2 ** (1 / 3) <= high[0] <= low[0] + 1e-10
    assert len(calls) <= 9
