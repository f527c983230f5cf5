"""Statistics tell other outputs of the same two distributions apart."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.statistics import (
    Source,
    as_rows,
    commonest_shape,
    frequency_ratio,
    hashed,
    learned,
    most_informative,
    the_data,
    unreachable,
)


def test_noise_is_released_as_one_by_one():
    """Many tables at once are one tall table; moments at 6 standard errors."""
    mechanism, rng = dirdp.mechanisms.GeometricMechanism([[1.0, 1.0], [1.0, 1.0]], 1.0), np.random.default_rng(4)
    counts = np.array([[3.0, 0.0], [1.0, 7.0]])
    many = Source(mechanism, "fast").releases(counts, 10_000, rng)
    assert many.shape == (10_000, 2, 2)
    assert np.all(np.abs(many.mean(axis=0) - counts) < 6 * mechanism.noise_sd / 100)
    assert np.abs(np.corrcoef(many.reshape(-1, 4).T) - np.eye(4)).max() < 6 / 100


def test_the_sampler_that_is_asked_for_draws_or_the_default_or_a_function():
    mechanism, rng, counts = dirdp.mechanisms.DirichletMechanism([1.0, 2.0], 0.5), np.random.default_rng(1), [3.0, 1.0]
    exact = Source(mechanism, "exact", 7).releases(np.array(counts), 20, rng)
    assert len(np.unique(exact[:, 0])) <= 8
    fast = Source(mechanism, "fast").releases(np.array(counts), 20, rng)
    assert len(np.unique(fast[:, 0])) == 20
    assert Source(dirdp.mechanisms.GeometricMechanism(np.ones(2), 1.0)).checked().sampler == "exact"
    assert Source(mechanism).checked().drawn_by == "exact"
    with pytest.raises(dirdp.errors.ArgumentError, match="sampler"):
        Source(mechanism, "quick").checked()
    shapes = iter([(2,), (3,), ()])
    outputs = Source(lambda _: np.zeros(next(shapes))).releases(np.ones(1), 3, rng)
    assert [output.shape for output in outputs] == [(2,), (3,), ()]


PAIR = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def best(from_x, from_y, other_x, other_y, shape, **options):
    """The largest separation of any statistic on other outputs: a difference of means in standard deviations."""
    statistics = learned(as_rows(from_x, shape), as_rows(from_y, shape), *PAIR, **options)
    apart = []
    for statistic in statistics:
        x, y = statistic(as_rows(other_x, shape)), statistic(as_rows(other_y, shape))
        apart.append((x.mean() - y.mean()) / np.sqrt((x.var() + y.var()) / 2 + 1e-12))
    return max(apart)


def draws(rng, distribution):
    return [distribution(rng, side) for side in (0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("distribution", "least"),
    [
        (lambda rng, side: rng.normal(side, 1.0, size=(4_000, 3)), 1.2),
        (lambda rng, side: np.exp(rng.normal(side, 1.0, size=(4_000, 2))), 1.0),
    ],
    ids=["means", "logarithms"],
)
def test_the_discriminant_finds_the_means_that_normal_distributions_differ_in(distribution, least):
    from_x, from_y, x, y = draws(np.random.default_rng(1), distribution)
    shape = from_x.shape[1:]
    assert best(from_x, from_y, x, y, shape) > least
    # On two equal distributions much less is left.
    assert best(from_x, from_x[::-1], x, distribution(np.random.default_rng(2), 0), shape) < 0.2


def test_outputs_without_entries_are_no_error():
    nothing = [np.zeros(0)] * 50
    statistics = learned(as_rows(nothing, (0,)), as_rows(nothing, (0,)), *PAIR, last_bits=True)
    assert all(np.all(statistic(as_rows(nothing, (0,))) == 0) for statistic in statistics)


def test_outputs_of_other_shapes_and_numbers_are_of_another_kind():
    outputs = [np.array([1.0, 0.0]), np.array([2.0, 3.0]), np.ones(3), np.ones(3), np.zeros(3), np.array(np.nan)]
    assert commonest_shape(outputs[:2]) == (2,)
    found = as_rows(outputs, (2,))
    np.testing.assert_array_equal(found.inside, [True, True, False, False, False, False])
    np.testing.assert_array_equal(found.points[:2], [[1, 0], [2, 3]])
    assert found.kinds[2] == found.kinds[3]
    assert len(set(found.kinds.tolist())) == 5
    # What is not a number counts as zero.
    found = as_rows(np.array([[1.0, np.nan], [1.0, 2.0], [np.inf, 2.0]]), (2,))
    assert len(set(found.kinds.tolist())) == 3
    np.testing.assert_array_equal(found.numbers[0], [1, 0])
    assert np.all(np.isfinite(found.numbers))
    np.testing.assert_array_equal(found[1:].points[0], [1, 2])
    # Rows that differ have keys that differ.
    rows = np.random.default_rng(2).random((50_000, 3)).view(np.uint64)
    small = np.stack(np.meshgrid(*[np.arange(30, dtype=np.uint64)] * 3), axis=-1).reshape(-1, 3)
    assert [len(np.unique(hashed(keys))) for keys in (rows, small)] == [50_000, 30**3]


def test_keys_that_are_commoner_for_one_data_set_score_higher():
    x, y = np.array([7, 7, 7, 9], dtype=np.uint64), np.array([7, 9, 9, 9], dtype=np.uint64)
    score = frequency_ratio(x, y)(np.array([7, 9, 8, 2**63], dtype=np.uint64))
    assert score[:2].tolist() == pytest.approx([math.log(3.5 / 1.5), -math.log(3.5 / 1.5)])
    np.testing.assert_array_equal(score[2:], 0)
    # Samples of two sizes are compared by their shares.
    x, y = np.zeros(1_000, dtype=np.uint64), np.zeros(10, dtype=np.uint64)
    assert frequency_ratio(x, y)(x[:1])[0] == pytest.approx(0, abs=1e-9)
    # A key that never repeats fits its own outputs best, and tells nothing about others.
    rng = np.random.default_rng(3)
    unique = [rng.integers(2**60, size=2_000, dtype=np.uint64) for _ in range(2)]
    telling = [(rng.random(2_000) < share).astype(np.uint64) for share in (0.5, 0.6)]
    assert most_informative([unique[0], telling[0]], [unique[1], telling[1]], 1) == [1]


def test_each_data_set_is_distinguished_from_the_other():
    x, y = np.array([7.0, 3.0, 2.0]), np.array([6.0, 4.0, 2.0])
    outputs = np.array([x, y, x / x.sum(), (y + 0.5) / (y + 0.5).sum(), [0.2, 0.3, 0.5]])
    scores = the_data(x, y)(as_rows(outputs, (3,)))
    assert scores[0] > 2 > 1 > abs(scores[4])
    assert scores[1] < -2
    assert scores[2] >= 2
    assert scores[3] <= -2
    # Outputs of another shape say nothing here.
    assert np.all(the_data(x, y)(as_rows(np.ones((4, 2)), (2,))) == 0)


def test_quotients_are_known():
    sums = 1 + np.random.default_rng(1).random(1_000)
    assert not np.any(unreachable(1 / sums))
    # In [1/2, 1) there are twice as many doubles as in [1, 2], so at most half of them are such quotients.
    others = np.nextafter(1 / sums[1 / sums > 0.8], 1.0)
    assert np.mean(unreachable(others)) > 0.1
