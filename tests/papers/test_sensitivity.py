"""P4's sensitivities against their definitions: every neighbour, every third posterior, distances by quadrature."""

import itertools
import math

import numpy as np
import pytest
from printed_p4 import p4_global_sensitivity, p4_local_sensitivity, p4_smooth_sensitivity
from scipy import integrate, stats

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers.hellinger_distributions import hellinger_distance


def data_sets(n, d):
    return [x for x in itertools.product(range(n + 1), repeat=d) if sum(x) == n]


def neighbours(x):
    for receives, gives in itertools.permutations(range(len(x)), 2):
        if x[gives]:
            other = list(x)
            other[receives] += 1
            other[gives] -= 1
            yield tuple(other)


def distance(x, z):
    return sum(abs(a - b) for a, b in zip(x, z, strict=True)) // 2


@pytest.mark.parametrize(("prior", "n"), [([1, 1], 7), ([0.1, 2], 6), ([1, 1, 1], 4), ([0.3, 1, 5], 4), ([1] * 4, 3)])
def test_all_three_are_their_definitions(prior, n):
    prior = np.asarray(prior, dtype=float)
    everything = data_sets(n, len(prior))
    posteriors = {x: prior + x for x in everything}
    local = {}
    for x in everything:
        # P4 looks at the change of the distance to any third posterior.
        local[x] = max(
            abs(hellinger_distance(posteriors[x], posteriors[r]) - hellinger_distance(posteriors[z], posteriors[r]))
            for z in neighbours(x)
            for r in everything
        )
        assert p4_local_sensitivity(x, prior=prior) == pytest.approx(local[x], rel=1e-7)
    assert p4_global_sensitivity(prior=prior, n_records=n) == pytest.approx(max(local.values()), rel=1e-7)
    for smoothness in (0.05, 1.0):
        for x in everything:
            smooth = max(1 / (1 / local[z] + smoothness * distance(x, z)) for z in everything)
            found = p4_smooth_sensitivity(x, prior=prior, smoothness=smoothness)
            assert found == pytest.approx(smooth, rel=1e-7)
            assert local[x] <= found * (1 + 1e-7)


def test_the_distance_is_that_of_the_densities():
    first, second = stats.beta(4, 8), stats.beta(5, 7)
    affinity = integrate.quad(lambda t: math.sqrt(first.pdf(t) * second.pdf(t)), 0, 1, epsabs=1e-13)[0]
    of_gain = math.sqrt(1 - affinity)
    third = stats.beta(3, 9)
    affinity = integrate.quad(lambda t: math.sqrt(first.pdf(t) * third.pdf(t)), 0, 1, epsabs=1e-13)[0]
    assert p4_local_sensitivity([3, 7], prior=[1, 1]) == pytest.approx(max(of_gain, math.sqrt(1 - affinity)), rel=1e-9)


def test_the_gap_of_p4_figure_1():
    """The local sensitivity of balanced data falls like 1 / sqrt(n), and the global one stays."""
    n = np.array([100, 10_000, 1_000_000])
    local = [p4_local_sensitivity([k // 2, k // 2], prior=[1, 1]) for k in n.tolist()]
    np.testing.assert_allclose(local * np.sqrt(n), local[-1] * 1000, rtol=0.01)
    assert p4_global_sensitivity(prior=[1, 1], n_records=1_000_000) == pytest.approx(
        p4_global_sensitivity(prior=[1, 1], n_records=100), rel=0.02
    )


def test_the_most_extreme_data_sets_that_the_functions_take():
    assert 0 < p4_local_sensitivity([1, 0], prior=[1e-3, 1e-3]) <= 1
    assert 0 < p4_local_sensitivity([10_000_000, 0], prior=[1, 1]) < 1
    assert p4_global_sensitivity(prior=[1, 1], n_records=1) == p4_local_sensitivity([1, 0], prior=[1, 1])
    wide = np.zeros(200, dtype=int)
    wide[0] = 5
    assert p4_local_sensitivity(wide, prior=np.ones(200)) <= p4_global_sensitivity(prior=np.ones(200), n_records=5)


def test_a_smoothness_that_looks_too_far_is_refused():
    with pytest.raises(UnattainableError, match="Raise the smoothness"):
        p4_smooth_sensitivity([1_000_000] * 3, prior=[1] * 3, smoothness=1e-3)
    assert p4_smooth_sensitivity([1_000_000] * 3, prior=[1] * 3, smoothness=1.0) < 1e-2


def test_more_records_than_memory_lists_are_refused_before_it_is_asked_for():
    for n in (2**53, 10**8):
        with pytest.raises(UnattainableError, match="up to 10000000"):
            p4_global_sensitivity(prior=[1, 1], n_records=n)
        for counts in ([n - 5, 5], [n - 5, 2, 3]):
            with pytest.raises(UnattainableError, match="up to 10000000") as raised:
                p4_smooth_sensitivity(counts, prior=np.ones(len(counts)))
            assert str(n - 5) not in str(raised.value)
        assert 0 < p4_global_sensitivity(prior=[1, 1, 1], n_records=n) < 1


def test_arguments():
    with pytest.raises(DataError, match="no neighbour"):
        p4_local_sensitivity([0, 0], prior=[1, 1])
    with pytest.raises(DataError, match="no neighbour"):
        p4_smooth_sensitivity([0, 0, 0], prior=[1, 1, 1])
    with pytest.raises(ArgumentError, match="n_records"):
        p4_global_sensitivity(prior=[1, 1], n_records=0)
    with pytest.raises(ArgumentError, match="one row"):
        p4_global_sensitivity(prior=np.ones((2, 2)), n_records=4)
    with pytest.raises(ArgumentError, match="smoothness"):
        p4_smooth_sensitivity([1, 1], prior=[1, 1], smoothness=0)
    for wrong in ([1.5, 1], [-7, 8], [1, 2, 3]):
        with pytest.raises((ArgumentError, DataError)) as caught:
            p4_local_sensitivity(wrong, prior=[1, 1])
        assert "7" not in str(caught.value)
