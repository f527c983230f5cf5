"""Releases come from the sampler that is asked for, and many at once have the distribution of one by one."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.outputs import Source


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
    assert Source(dirdp.mechanisms.GaussianMechanism(np.ones(2), 1.0)).checked().sampler == "fast"
    assert Source(dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1)).checked().drawn_by == "exact"
    with pytest.raises(dirdp.errors.ArgumentError, match="sampler"):
        Source(dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1), "quick").checked()


def test_a_function_brings_outputs_of_any_shape():
    shapes = iter([(2,), (3,), ()])
    outputs = Source(lambda _: np.zeros(next(shapes))).releases(np.ones(1), 3, np.random.default_rng(1))
    assert [output.shape for output in outputs] == [(2,), (3,), ()]
