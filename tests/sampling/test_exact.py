"""The positive grid of exact releases: its distribution by enumeration, the way back, and how many steps it takes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import (
    default_steps,
    exact_dirichlet,
    grid_share,
    over_one_power,
    positive_frequencies,
    synthetic_counts,
    urn_counts,
)
from tests.oracles import dirichlet_multinomial


@pytest.mark.parametrize(("u", "m"), [([0.25, 1.25, 2.0], 8), ([4.0, 0.125], 30)])
def test_mean_and_variance_by_enumeration(u, m):
    """Over all tables there are: the numbers that a report states about the grid."""
    exact, u, d = dirichlet_multinomial(list(map(Fraction, u)), m), np.array(u), len(u)
    counts, distribution = np.array(list(exact)), np.array([float(p) for p in exact.values()])
    y = positive_frequencies(counts, m)
    p = u / u.sum()
    share = grid_share(u, 1.0, 0, steps=m)
    assert share.variance == u.sum() / m
    assert share.weight == d / (2 * m + d)
    mean = distribution @ y
    np.testing.assert_allclose(mean, (1 - share.weight) * p + share.weight / d, rtol=1e-12)
    ideal = p * (1 - p) / (u.sum() + 1)
    factor = (1 - share.weight) ** 2 * (1 + share.variance)
    np.testing.assert_allclose(distribution @ (y - mean) ** 2, factor * ideal, rtol=1e-10)


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(1, 10**12), st.integers(0, 2**32))
def test_the_way_back_is_exact(d, m, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(m, rng.dirichlet(np.full(d, 0.3)), size=(2, 3))
    y = positive_frequencies(counts, m)
    assert np.all(y > 0)
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=1e-12)
    back = urn_counts(y, m)
    assert back.dtype == np.int64
    assert np.array_equal(back, counts)
    # A Beta variable is released as its first probability.
    if d == 2:
        assert np.array_equal(urn_counts(np.stack([y[..., 0], 1 - y[..., 0]], axis=-1), m), counts)


@pytest.mark.parametrize("y", [[0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.3, 0.3], [0.55, 0.45 + 1e-3], [0.0, 1.0]])
def test_what_does_not_lie_on_the_grid(y):
    with pytest.raises(ArgumentError):
        urn_counts(y, 10)


@pytest.mark.parametrize("alpha", [[1.0, 0.3, 2.0], np.full((2, 4), 1e-9)])
def test_releases_lie_on_the_grid_and_are_positive(alpha):
    alpha = np.asarray(alpha)
    counts = np.zeros(alpha.shape)
    y = exact_dirichlet(alpha, 0.3, counts, steps=500, draws=4, bits=Bits(3))
    assert y.shape == (4, *alpha.shape)
    assert np.all(y >= 1 / (2 * 500 + alpha.shape[-1]))
    assert np.array_equal(urn_counts(y, 500), synthetic_counts(alpha, 0.3, counts, steps=500, draws=4, bits=Bits(3)))


@settings(max_examples=40)
@given(st.integers(2, 3000), st.floats(1e-6, 10), st.floats(1e-6, 3), st.integers(0, 10**6))
def test_the_grid_weighs_less_than_one_per_cent(d, alpha, r, n_records):
    prior = np.full(d, alpha)
    share = grid_share(prior, r, n_records, steps=default_steps(prior, r, n_records))
    assert share.weight < 0.01
    assert share.variance <= max(0.01, (r * n_records + d * alpha) / 10**7) * (1 + 1e-9)


def test_steps_of_a_table():
    def steps(shape, n_records, value=1.0, r=1.0, **options):
        mechanism = dirdp.mechanisms.DirichletMechanism(np.full(shape, value), r, **options)
        return mechanism.default_steps(n_records)

    # 100 * (0.5 * 10**4 + 4), for the row with the larger prior.
    assert default_steps([[1, 1], [1, 3]], 0.5, 10**4) == 500_400
    assert default_steps([1, 1], 0.5, 0) == 10_000
    assert default_steps([1, 1], 1.0, 10**9) == default_steps([1e300, 1], 1.0, 5) == 10_000_000
    # 50 for each category, so that the grid weighs less than 1 %.
    assert default_steps(np.full(1000, 0.01), 0.1, 100) == 50_000
    with pytest.raises(ArgumentError):
        default_steps([1, 1], 1.0, -1)
    assert steps((2, 3), 1000, 1.5, 0.5) == math.ceil(100 * (500 + 4.5))
    assert steps((2, 3), 10**9, 1.5, 0.5) == 10_000_000
    assert steps((2, 3), 3, 1.5, 0.5) == 10_000
    # Many rows together take no more than so many steps, unless the grid would be too coarse.
    assert steps((500, 3), 10**7) == 100_000_000 // 500
    assert steps((25, 100_000), 10**7) == 5_000_000
    assert steps(3, None, adjacency="add-remove") == 1_000_000
    # Many records are no error under add-remove: a bound on them would tell about the data.
    private = dirdp.mechanisms.DirichletMechanism(np.ones(3), 1.0, adjacency="add-remove")
    y = private.sample([2**53, 2**53, 0], steps=100)
    assert np.all(np.abs(y[:, :2] - 0.5) < 0.25)


@given(st.lists(st.floats(-math.nextafter(math.inf, 0), math.nextafter(math.inf, 0)), max_size=5))
def test_one_denominator_for_all(values):
    numerators, digits = over_one_power(values)
    assert [Fraction(n, 2**digits) for n in numerators] == [Fraction(value) for value in values]
    # The least one.
    assert digits == 0 or any(n % 2 for n in numerators)
