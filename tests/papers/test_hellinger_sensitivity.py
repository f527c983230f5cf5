"""Candidates and sensitivities against their definitions, by brute force over all data sets."""

import itertools

import numpy as np
import pytest

from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.papers.hellinger_distributions import (
    Candidates,
    global_sensitivity,
    hellinger_distance,
    local_sensitivities,
    smooth_sensitivities,
)

SMALL = [
    ((1.0, 1.0), 1),
    ((0.02, 0.9), 13),
    ((1.0, 1.0, 1.0), 1),
    ((0.1, 0.4, 3.0), 7),
    ((0.5, 2.0, 1.0, 0.1), 4),
]


def by_force(prior, n):
    """All data sets, their distances as posteriors, and how many records differ."""
    d = len(prior)
    data = sorted(row for row in itertools.product(range(n + 1), repeat=d) if sum(row) == n)
    data = np.array(data)
    posteriors = data + np.array(prior)
    distances = np.array([np.atleast_1d(hellinger_distance(posteriors, p)) for p in posteriors])
    apart = np.maximum(data[:, None] - data, 0).sum(axis=-1)
    return data, distances, apart


@pytest.mark.parametrize(("prior", "n"), SMALL)
def test_candidates_their_order_their_distances_and_neighbours(prior, n):
    data, distances, apart = by_force(prior, n)
    candidates = Candidates(np.array(prior), n)
    np.testing.assert_array_equal(candidates.counts, data)
    assert candidates.size == len(data)
    np.testing.assert_allclose([candidates.distances(row) for row in data], distances, rtol=1e-9, atol=1e-12)
    assert [i for layer in candidates.layers() for i in layer] == list(range(len(data)))
    found = [
        tuple(sorted(pair))
        for first, second in candidates.neighbours
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    ]
    assert sorted(found) == [tuple(pair) for pair in np.argwhere(np.triu(apart == 1)).tolist()]
    for layer, (first, second) in zip(candidates.layers(), candidates.neighbours, strict=True):
        assert set(data[first, 0]) <= {data[layer.start, 0]}
        assert set(data[second, 0]) <= {data[layer.start, 0], data[layer.start, 0] - 1}


@pytest.mark.parametrize(("prior", "n"), SMALL)
def test_local_sensitivity_is_its_definition_and_the_triangle_inequality_makes_it_the_distance(prior, n):
    data, distances, apart = by_force(prior, n)
    changes = np.abs(distances[:, None] - distances[None]).max(axis=-1)  # over all third posteriors
    local = np.where(apart == 1, changes, 0).max(axis=1)
    np.testing.assert_allclose(local_sensitivities(np.array(prior), data), local, rtol=1e-12)
    assert global_sensitivity(np.array(prior), n) == pytest.approx(local.max(), rel=1e-12)


@pytest.mark.parametrize("smoothness", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize(("prior", "n"), SMALL)
def test_smooth_sensitivity_is_its_definition(prior, n, smoothness):
    data, distances, apart = by_force(prior, n)
    local = np.where(apart == 1, distances, 0).max(axis=1)
    smooth = 1 / (1 / local + smoothness * apart).min(axis=1)
    found = smooth_sensitivities(np.array(prior), data, smoothness)
    np.testing.assert_allclose(found, smooth, rtol=1e-12)
    np.testing.assert_allclose(smooth_sensitivities(np.array(prior), data[:1], smoothness), smooth[:1], rtol=1e-12)


def test_large_data_sets_need_no_list():
    """N = 10^6 in three categories has 5e11 data sets, and one global sensitivity for any number of records."""
    assert len({global_sensitivity(np.array([0.3, 1.0, 2.0]), n) for n in (1, 5, 10**6)}) == 1
    smooth = smooth_sensitivities(np.ones(3), np.array([[400_000, 599_990, 10]]), 1.0)
    assert 0 < smooth[0] < global_sensitivity(np.ones(3), 10**6)
    with pytest.raises(UnattainableError, match="500001500001 posteriors"):
        Candidates(np.ones(3), 10**6)
