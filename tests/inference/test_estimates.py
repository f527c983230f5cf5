"""Intervals against sums over all counts, and against draws."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import RowWithUncertainTotal, given_total
from pymc_dirdp.inference.observed_table import MechanismOutput
from pymc_dirdp.inference.tree import Cells, Group, Pmf
from pymc_dirdp.mechanisms import DiscreteGaussianMechanism, GeometricMechanism

from .exact_shares import below, share_distributions
from .posteriors import estimate, row


def test_probabilities_are_checked():
    for prob in ([], [0.0], [1.0], [2]):
        with pytest.raises(ArgumentError, match="prob"):
            estimate(row("dirichlet"), prob=prob)


@pytest.mark.parametrize("kind", [GeometricMechanism, DiscreteGaussianMechanism])
@pytest.mark.parametrize(("d", "n", "width"), [(2, 3000, 30), (3, 3000, 10), (3, 1000, 8)])
def test_quantiles_where_a_total_is_private_are_those_of_draws(kind, d, n, width):
    """Against mixtures over all pairs of counts and totals; always the same draws, and more of them than would do."""
    rng = np.random.default_rng(d)
    x = rng.multinomial(n, rng.dirichlet(np.ones(d)))
    z = x + np.rint(rng.normal(0, width, d))
    output = MechanismOutput(kind(np.ones(d), width, adjacency="add-remove"), z, prior=np.ones(d))
    prob = np.array([0.5, 0.8, 0.999])
    estimates = [dirdp.estimate(output, prob, n_prior=2 * n, progressbar=False).tables["p"] for _ in range(2)]
    np.testing.assert_array_equal(*(one.share_intervals for one in estimates))
    mixes = share_distributions(output, 2 * n, estimates[0].count_means)
    levels = np.stack([(1 - prob) / 2, (1 + prob) / 2], axis=1)
    tolerance = 5 * np.sqrt(levels * (1 - levels) / 20_000) + 1e-3
    for cell in range(d):
        ends = estimates[0].share_intervals[:, cell]
        found = np.vectorize(lambda share, cell=cell: below(mixes[0, cell], share))(ends)
        assert np.all(np.abs(found - levels) < tolerance)
        # Another cell's distribution is another one.
        other = np.vectorize(lambda share, cell=cell: below(mixes[0, (cell + 1) % d], share))
        assert np.any(np.abs(other(ends) - levels) > tolerance)
        first, second, masses = mixes[0, cell]
        share, size = first / (first + second), first + second
        mean = masses @ share
        sd = np.sqrt(masses @ (share * (1 - share) / (size + 1) + (share - mean) ** 2))
        assert estimates[0].share_means[cell] == pytest.approx(mean, rel=1e-9)
        assert estimates[0].share_sds[cell] == pytest.approx(sd, rel=1e-7)


def test_a_few_totals_that_are_known_apart_are_one_distribution():
    """A row given its total in parts adds up; with one total it is the row of a known one."""
    posterior = row("geometric", total=12)
    group = Group(Cells(posterior))
    group.start(total=6)
    alone = Pmf(12, np.ones((1, 1)))
    found = RowWithUncertainTotal(posterior.alpha, group.child_points(given_total(posterior.alpha, alone)))
    known = estimate(posterior)
    np.testing.assert_allclose(found.count_means, known.count_means, rtol=1e-10)
    np.testing.assert_allclose(found.count_moments[1], known.count_sds, rtol=1e-9)
    np.testing.assert_allclose(found.share_moments[0], known.share_means, rtol=1e-10)
    np.testing.assert_allclose(found.share_moments[1], known.share_sds, rtol=1e-8)
