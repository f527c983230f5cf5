"""Statistics that are learned tell other outputs of the same two distributions apart."""

import numpy as np
import pytest

from pymc_dirdp.auditing.outputs import seen
from pymc_dirdp.auditing.statistics import learned

PAIR = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def best(from_x, from_y, other_x, other_y, shape, **options):
    """The largest separation of any statistic on other outputs: a difference of means in standard deviations."""
    statistics = learned(seen(from_x, shape), seen(from_y, shape), *PAIR, **options)
    apart = []
    for statistic in statistics:
        x, y = statistic(seen(other_x, shape)), statistic(seen(other_y, shape))
        apart.append((x.mean() - y.mean()) / np.sqrt((x.var() + y.var()) / 2 + 1e-12))
    return max(apart)


def draws(rng, distribution):
    return [distribution(rng, side) for side in (0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("distribution", "least"),
    [
        (lambda rng, side: rng.normal(side, 1.0, size=(4_000, 3)), 1.2),
        (lambda rng, side: rng.normal(0.0, 1.0 + side, size=(4_000, 3)), 0.8),
        (lambda rng, side: np.exp(rng.normal(side, 1.0, size=(4_000, 2))), 1.0),
    ],
    ids=["means", "variances", "logarithms"],
)
def test_discriminants_find_what_normal_distributions_differ_in(distribution, least):
    from_x, from_y, x, y = draws(np.random.default_rng(1), distribution)
    shape = from_x.shape[1:]
    assert best(from_x, from_y, x, y, shape) > least
    # Without them, and on two equal distributions, much less is left.
    assert best(from_x, from_x[::-1], x, distribution(np.random.default_rng(2), 0), shape) < 0.2


def test_shapes_and_zeros_alone_are_enough():
    rng = np.random.default_rng(3)
    from_x, from_y, x, y = draws(
        rng, lambda rng, side: [np.ones(2 + side * (i % 2)) * rng.random() for i in range(400)]
    )
    assert best(from_x, from_y, x, y, (2,)) > 0.9


def test_outputs_without_entries_are_no_error():
    nothing = [np.zeros(0)] * 50
    statistics = learned(seen(nothing, (0,)), seen(nothing, (0,)), *PAIR, last_bits=True)
    assert all(np.all(statistic(seen(nothing, (0,))) == 0) for statistic in statistics)
