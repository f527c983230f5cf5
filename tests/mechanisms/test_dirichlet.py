"""Dirichlet draws: their distribution with known power, the worst neighbours, public numbers, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.privacy.people import Contribution

COUNTS = np.array([12, 0, 40, 3])
MECHANISM = DirichletMechanism([1, 1, 1, 1], 0.3)


@pytest.mark.parametrize("size", [1, 10**8])
@pytest.mark.parametrize("scale", [1.0, 0.7, 1.3])
def test_the_distribution_of_a_component_is_beta(scale, size):
    """The true distribution passes at 1e-6, and r off by 30 per cent does not. Rows and draws are independent."""
    mechanism, n, counts = DirichletMechanism([[1, 2, 0.5, 1]] * 2, 0.5), 20_000, size * COUNTS
    y = mechanism.sample([counts, counts], released_draws=n, sampler="fast", random_seed=7)[..., 2]
    u = scale * 0.5 * counts + mechanism.alpha[0]
    p_value = stats.kstest(y[:, 0], stats.beta(u[2], u.sum() - u[2]).cdf).pvalue
    assert (p_value > 1e-6) == (scale == 1.0)
    for one, other in ((y[:, 0], y[:, 1]), (y[1:, 0], y[:-1, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(n)


def test_exact_is_the_default_on_the_grid_of_the_total_number_of_records(monkeypatch):
    """The sum was made of doubles. Above 2**53 its rounding told where the records lie, by the grid of the release."""
    given = {"random_seed": 5, "steps": 99}
    y = MECHANISM.sample(COUNTS, **given)
    assert np.array_equal(y, MECHANISM.sample(COUNTS, sampler="exact", **given))
    assert MECHANISM.is_on_grid(y, 99)
    assert not MECHANISM.is_on_grid(y, None)
    assert not MECHANISM.is_on_grid(y, 98)
    y = MECHANISM.sample(COUNTS)
    assert not np.array_equal(y, MECHANISM.sample(COUNTS))
    assert MECHANISM.is_on_grid(y, MECHANISM.default_steps(55))
    asked = []
    monkeypatch.setattr(DirichletMechanism, "default_steps", lambda _, n_records: asked.append(n_records) or 50)
    for counts in ([2**53, 1, 1], [2**53 - 1, 1, 2]):
        DirichletMechanism([1.0, 1.0, 1.0], 1e-12).sample(counts, random_seed=1)
    DirichletMechanism([1, 1], 1.0, adjacency="add-remove").sample([3, 1])
    assert asked == [2**53 + 2, 2**53 + 2, None]


@pytest.mark.parametrize(
    ("alpha", "r", "options", "message"),
    [
        *((alpha, 1, {}, "alpha") for alpha in ([], [1, 0], [1, np.nan], [1, np.inf], ["a", "b"], 3)),
        *(([1, 1], r, {}, "r > 0") for r in (0, -1, np.nan, np.inf, "1", True, None)),
        *((alpha, 1, {"n_records": 5}, "one row of two categories") for alpha in ([1.0] * 3, [[1.0, 1.0]] * 2)),
        ([1, 1], 1, {"n_records": 5, "adjacency": "add-remove"}, "one row of two categories"),
        *(([1, 1], 1, {"n_records": wrong}, "n_records") for wrong in (-1, 1.5, math.nan, 2**54)),
    ],
)
def test_bad_parameters(alpha, r, options, message):
    with pytest.raises(ArgumentError, match=message):
        DirichletMechanism(alpha, r, **options)


def test_counts_have_to_add_up_to_the_public_number_of_records():
    mechanism = DirichletMechanism([1.0, 2.0], 0.1, n_records=7)
    assert mechanism.sample([3, 4]).shape == (1, 2)
    with pytest.raises(DataError, match="n_records") as caught:
        mechanism.sample([3, 5])
    assert "5" not in str(caught.value)
    assert mechanism.public_records(None) == 7
    with pytest.raises(ArgumentError, match="the number of records of the mechanism"):
        mechanism.public_records(8)
    # The pair attains the bound: the records that stay are where the larger prior is.
    np.testing.assert_array_equal(np.sort(mechanism.worst_neighbours(), axis=0), [[0, 6], [1, 7]])


def test_without_a_record_nothing_is_lost():
    mechanism = DirichletMechanism([1.0, 2.0], 0.1, n_records=0)
    assert mechanism.delta(0.0) == mechanism.renyi(3.0) == mechanism.pure_epsilon == 0.0
    # With one record there is no other one, and with many the loss is that of a record that appears or disappears.
    for name in ("delta", "renyi"):
        one, any_number, many, alone = (
            getattr(DirichletMechanism([1.0, 2.0], 0.1, **options), name)(2.0)
            for options in ({"n_records": 1}, {}, {"n_records": 10**7}, {"adjacency": "add-remove"})
        )
        assert one == any_number
        assert alone < many < alone * (1 + 1e-4)


def test_likelihood_ratios_are_those_of_the_densities():
    x, y, mechanism = np.array([2.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0]), DirichletMechanism([0.5, 1.0, 2.0], 0.3)
    draws = mechanism.sample(x, released_draws=20, sampler="fast", random_seed=1)
    densities = [
        stats.dirichlet.logpdf((draws / draws.sum(axis=-1)[:, None]).T, mechanism.concentration(of)) for of in (x, y)
    ]
    expected = densities[0] - densities[1]
    np.testing.assert_allclose(mechanism.log_likelihood_ratio(draws, x, y), expected, rtol=1e-7, atol=1e-9)
    # A component that is zero on a grid counts as half a step, and outputs that no mechanism gives do no harm.
    assert np.isfinite(mechanism.log_likelihood_ratio(np.array([[0.0, 0.25, 0.75]]), x, y, floor=0.125)).all()
    strange = np.array([[-1.0, 0.0, 1e100], [0.0, 0.0, 0.0]])
    assert np.isfinite(mechanism.log_likelihood_ratio(strange, x, y)).all()


# The worst neighbours.

SURVEY = np.array([[1.0, 3.0, 2.0], [0.5, 5.0, 4.0], [2.0, 2.0, 2.0]])


@pytest.mark.parametrize(
    ("alpha", "contribution", "difference"),
    [
        # Records go between the two smallest priors of each block.
        ([0.4, 2.0, 0.9], Contribution(1), [1, 0, -1]),
        (SURVEY, Contribution(3, ("each",)), [[3, 0, -3], [3, 0, -3], [3, -3, 0]]),
        # The two smallest priors lie in two rows.
        (SURVEY, Contribution(2), [[-2, 0, 0], [2, 0, 0], [0, 0, 0]]),
        # A person with a row of their own is the one whose row shows most.
        (SURVEY, Contribution(2, ("own",)), [[0, 0, 0], [2, 0, -2], [0, 0, 0]]),
    ],
)
def test_the_worst_neighbours(alpha, contribution, difference):
    mechanism = DirichletMechanism(alpha, 0.2, contribution=contribution)
    x, y = mechanism.worst_neighbours()
    np.testing.assert_array_equal(x - y, difference)
    if contribution == Contribution(2):
        # Both rows are filled: the curve is approached there.
        assert np.all(np.minimum(x, y)[:2].sum(axis=1) >= 1_000_000)
    if contribution.axes == ("own",):
        losses = []
        for row, priors in enumerate(SURVEY):
            a, b = np.argsort(priors, kind="stable")[:2]
            z, w = np.zeros((2, 3, 3))
            z[row, a], w[row, b] = 2, 2
            losses.append(mechanism.output_distributions(z, w).renyi(1.0))
        assert mechanism.output_distributions(x, y).renyi(1.0) == pytest.approx(max(losses), rel=1e-12)


@pytest.mark.parametrize("axes", [*itertools.product(("each", "own", "any"), repeat=2), ()])
def test_under_add_remove_the_records_are_nowhere_in_the_other_data_set(axes):
    """One of the cells with the smallest prior of each block, where two axes have rows."""
    unit, prior = Contribution(2, axes), np.stack([SURVEY, SURVEY])
    mechanism = DirichletMechanism(prior, 0.2, contribution=unit, adjacency="add-remove", min_count=3)
    x, y = mechanism.worst_neighbours()
    assert np.all(y >= 3)
    assert np.all(x >= y)
    assert sorted((x - y)[x > y].tolist()) == [2.0] * unit.blocks(prior.shape)
    assert np.all(prior[x > y] == prior.min(axis=2)[np.any(x > y, axis=2)])
