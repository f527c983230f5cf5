"""The mechanism: its distribution with known power, its curves as a contract, and what it refuses."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.sampling.exact import positive_frequencies

COUNTS = np.array([12, 0, 40, 3])
MECHANISMS = [
    DirichletMechanism([1, 1, 1, 1], 0.3),
    DirichletMechanism([0.4, 3, 2, 1], 0.2, adjacency="add-remove"),
    DirichletMechanism([[2, 1], [5, 9]], 1.5, min_count=2),
]


@pytest.mark.parametrize("scale", [1.0, 0.7, 1.3])
def test_the_distribution_of_a_component_is_beta(scale):
    """Two-sided: the true distribution passes at 1e-6, r off by 30 per cent does not."""
    mechanism = DirichletMechanism([1, 2, 0.5, 1], 0.5)
    y = mechanism.sample(COUNTS, released_draws=20_000, sampler="fast", random_seed=7)
    u = scale * 0.5 * COUNTS + mechanism.alpha
    p_value = stats.kstest(y[:, 2], stats.beta(u[2], u.sum() - u[2]).cdf).pvalue
    assert (p_value > 1e-6) == (scale == 1.0)


def test_the_distribution_at_huge_counts():
    x = np.array([10**9, 3 * 10**9])
    y = DirichletMechanism([1, 1], 1.0).sample(x, released_draws=20_000, sampler="fast", random_seed=3)
    z = (y[:, 0] - 0.25) / np.sqrt(0.25 * 0.75 / 4e9)
    assert stats.kstest(z, "norm").pvalue > 1e-6
    assert stats.kstest(z / 0.85, "norm").pvalue < 1e-6


def test_exact_is_the_default():
    given = {"random_seed": 5, "steps": 99}
    assert np.array_equal(MECHANISMS[0].sample(COUNTS, **given), MECHANISMS[0].sample(COUNTS, sampler="exact", **given))
    assert not np.array_equal(MECHANISMS[0].sample(COUNTS), MECHANISMS[0].sample(COUNTS))
    places = (MECHANISMS[0].sample(COUNTS) * (2 * MECHANISMS[0].default_steps(55) + 4) - 1) / 2
    np.testing.assert_allclose(places, np.round(places), atol=1e-6)


def test_rows_and_draws_are_independent():
    mechanism, n = DirichletMechanism(np.ones((2, 3)), 0.1), 5_000
    y = mechanism.sample(np.full((2, 3), 5), released_draws=n, sampler="fast", random_seed=1)
    assert y.shape == (n, 2, 3)
    assert abs(np.corrcoef(y[:, 0, 0], y[:, 1, 0])[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(y[1:, 0, 0], y[:-1, 0, 0])[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize(
    "counts",
    [
        [-777, 1, 1, 1],
        [777.5, 1, 1, 1],
        [np.nan, 777, 1, 1],
        [np.inf, 777, 1, 1],
        [777, 1, 1],
        ["777", "x", 1, 1],
        [1e300, 777, 1, 1],
    ],
)
def test_bad_counts_are_an_error_that_never_shows_them(counts):
    with pytest.raises(DataError) as caught:
        MECHANISMS[0].sample(counts)
    error = caught.value
    while error is not None:
        assert "777" not in str(error) or error.__suppress_context__
        error = error.__cause__
    with pytest.raises(DataError, match="min_count"):
        MECHANISMS[2].sample([[1, 5], [5, 5]])


@pytest.mark.parametrize(
    ("alpha", "r", "message"),
    [
        *((alpha, 1, "alpha") for alpha in ([], [1, 0], [1, np.nan], [1, np.inf], ["a", "b"], 3)),
        *(([1, 1], r, "r > 0") for r in (0, -1, np.nan, np.inf, "1", True, None)),
    ],
)
def test_bad_parameters(alpha, r, message):
    with pytest.raises(ArgumentError, match=message):
        DirichletMechanism(alpha, r)


def test_objects_are_frozen_comparable_and_public():
    mechanism = MECHANISMS[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.r = 2.0
    with pytest.raises(ValueError, match="read-only"):
        mechanism.alpha[0] = 9
    mechanism.sample([7654321, 1, 1, 1])
    assert "7654321" not in repr(mechanism)
    assert mechanism == DirichletMechanism(np.ones(4), 0.3) != DirichletMechanism(np.ones(4), 0.31)
    changed = dataclasses.replace(mechanism, r=1.0)
    # Derived curves follow: nothing is stored that could be left behind.
    assert changed.renyi(1.5) > mechanism.renyi(1.5)


def test_the_steps_follow_from_the_total_number_of_records(monkeypatch):
    """The sum was made of doubles. Above 2**53 its rounding told where the records lie, by the grid of the release."""
    asked = []
    monkeypatch.setattr(DirichletMechanism, "default_steps", lambda _, n_records: asked.append(n_records) or 50)
    mechanism = DirichletMechanism([1.0, 1.0, 1.0], 1e-12)
    for counts in ([2**53, 1, 1], [2**53 - 1, 1, 2]):
        mechanism.sample(counts, random_seed=1)
    assert asked == [2**53 + 2] * 2


def test_a_public_number_of_records_is_for_one_row_of_two_categories():
    for alpha, adjacency in (([1.0] * 3, "replace-one"), ([[1.0, 1.0]] * 2, "replace-one"), ([1.0, 1.0], "add-remove")):
        with pytest.raises(ArgumentError, match="one row of two categories"):
            DirichletMechanism(alpha, 0.1, adjacency=adjacency, n_records=5)
    for wrong in (-1, 1.5, math.nan, 2**54):
        with pytest.raises(ArgumentError, match="n_records"):
            DirichletMechanism([1, 1], 0.1, n_records=wrong)


def test_counts_have_to_add_up_to_the_public_number_of_records():
    mechanism = DirichletMechanism([1.0, 2.0], 0.1, n_records=7)
    assert mechanism.sample([3, 4]).shape == (1, 2)
    with pytest.raises(DataError, match="n_records") as caught:
        mechanism.sample([3, 5])
    assert "5" not in str(caught.value)
    assert mechanism.public_records(None) == 7
    with pytest.raises(ArgumentError, match="the number of records of the mechanism"):
        mechanism.public_records(8)
    assert [table.sum() for table in mechanism.worst_neighbours()] == [7, 7]
    x, y = mechanism.worst_neighbours()
    # The pair attains the bound: the records that stay are where the larger prior is.
    np.testing.assert_array_equal(np.sort([x, y], axis=0), [[0, 6], [1, 7]])


def test_without_a_record_nothing_is_lost():
    mechanism = DirichletMechanism([1.0, 2.0], 0.1, n_records=0)
    assert mechanism.delta(0.0) == mechanism.renyi(3.0) == mechanism.pure_epsilon == 0.0
    # With one record there is no other one, and with many the loss is that of a record that appears or disappears.
    for guarantee in (mechanism.delta, mechanism.renyi):
        name = guarantee.__name__
        one = getattr(DirichletMechanism([1.0, 2.0], 0.1, n_records=1), name)(2.0)
        assert one == getattr(DirichletMechanism([1.0, 2.0], 0.1), name)(2.0)
        many = getattr(DirichletMechanism([1.0, 2.0], 0.1, n_records=10**7), name)(2.0)
        alone = getattr(DirichletMechanism([1.0, 2.0], 0.1, adjacency="add-remove"), name)(2.0)
        assert many == pytest.approx(alone, rel=1e-4)
        assert many > alone


X, Y = np.array([2.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0])


def test_likelihood_ratios_are_those_of_the_densities():
    mechanism = DirichletMechanism([0.5, 1.0, 2.0], 0.3)
    draws = mechanism.sample(X, released_draws=20, sampler="fast", random_seed=1)
    expected = [
        stats.dirichlet.logpdf(p / p.sum(), mechanism.concentration(X))
        - stats.dirichlet.logpdf(p / p.sum(), mechanism.concentration(Y))
        for p in draws
    ]
    np.testing.assert_allclose(mechanism.log_likelihood_ratio(draws, X, Y), expected, rtol=1e-7, atol=1e-9)
    # A component that is zero on a grid counts as half a step, and outputs that no mechanism gives do no harm.
    assert np.isfinite(mechanism.log_likelihood_ratio(np.array([[0.0, 0.25, 0.75]]), X, Y, floor=0.125)).all()
    strange = np.array([[-1.0, 0.0, 1e100], [0.0, 0.0, 0.0]])
    assert np.isfinite(mechanism.log_likelihood_ratio(strange, X, Y)).all()


def test_the_counts_of_an_urn_have_the_distribution_of_the_likelihood_and_lie_on_its_grid():
    counts, n, grid = np.array([4, 1]), 5_000, positive_frequencies(np.array([[i, 6 - i] for i in range(7)]), 6)
    mechanism, other = (DirichletMechanism([1.0, 0.5], r) for r in (0.7, 1.0))
    draws = mechanism.sample(counts, released_draws=n, steps=6, random_seed=5)
    seen = np.bincount(np.rint(((2 * 6 + 2) * draws[:, 0] - 1) / 2).astype(int), minlength=7)
    distribution, wrong = (np.exp(one.log_likelihood(grid, counts, steps=6)) for one in (mechanism, other))
    assert stats.chisquare(seen, n * distribution / distribution.sum()).pvalue > 1e-6
    assert stats.chisquare(seen, n * wrong / wrong.sum()).pvalue < 1e-6
    assert mechanism.is_on_grid(draws, 6)
    assert not mechanism.is_on_grid(draws, None)
    assert not mechanism.is_on_grid(draws, 7)
