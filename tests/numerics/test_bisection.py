"""Many ranges are cut at once, and the last point inside stays between the two ends."""

import numpy as np
import pytest

from pymc_dirdp.numerics.bisection import last_inside


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
