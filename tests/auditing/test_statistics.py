"""Statistics tell other outputs of the same two distributions apart."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.statistics import Source, as_rows, learned


def test_noise_is_released_as_one_by_one():
    """Many tables at once are one tall table; here against the release of one, moments at 6 standard errors."""
    mechanism, rng = dirdp.mechanisms.GeometricMechanism([[1.0, 1.0], [1.0, 1.0]], 1.0), np.random.default_rng(4)
    counts = np.array([[3.0, 0.0], [1.0, 7.0]])
    many = Source(mechanism, "fast").releases(counts, 30_000, rng)
    single = np.array([mechanism.release(counts, random_seed=rng) for _ in range(5_000)])
    assert many.shape == (30_000, 2, 2)
    spread = mechanism.noise_sd * math.sqrt(1 / 5_000 + 1 / 30_000)
    assert np.all(np.abs(many.mean(axis=0) - single.mean(axis=0)) < 6 * spread)
    assert np.abs(np.corrcoef(many.reshape(-1, 4).T) - np.eye(4)).max() < 6 / math.sqrt(30_000)


def test_the_sampler_that_is_asked_for_draws():
    mechanism, rng = dirdp.mechanisms.DirichletMechanism([1.0, 2.0], 0.5), np.random.default_rng(1)
    exact = Source(mechanism, "exact", 7).releases(np.array([3.0, 1.0]), 20, rng)
    assert len(np.unique(exact[:, 0])) <= 8
    fast = Source(mechanism, "fast").releases(np.array([3.0, 1.0]), 20, rng)
    assert len(np.unique(fast[:, 0])) == 20


def test_without_a_name_the_sampler_is_the_default():
    assert Source(dirdp.mechanisms.GeometricMechanism(np.ones(2), 1.0)).checked().sampler == "exact"
    assert Source(dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1)).checked().drawn_by == "exact"
    with pytest.raises(dirdp.errors.ArgumentError, match="sampler"):
        Source(dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1), "quick").checked()


def test_a_function_brings_outputs_of_any_shape():
    shapes = iter([(2,), (3,), ()])
    outputs = Source(lambda _: np.zeros(next(shapes))).releases(np.ones(1), 3, np.random.default_rng(1))
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


def test_shapes_and_zeros_alone_are_enough():
    rng = np.random.default_rng(3)
    from_x, from_y, x, y = draws(
        rng, lambda rng, side: [np.ones(2 + side * (i % 2)) * rng.random() for i in range(400)]
    )
    assert best(from_x, from_y, x, y, (2,)) > 0.9


def test_outputs_without_entries_are_no_error():
    nothing = [np.zeros(0)] * 50
    statistics = learned(as_rows(nothing, (0,)), as_rows(nothing, (0,)), *PAIR, last_bits=True)
    assert all(np.all(statistic(as_rows(nothing, (0,))) == 0) for statistic in statistics)
