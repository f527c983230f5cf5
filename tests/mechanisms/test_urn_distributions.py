"""A Dirichlet mechanism whose number of steps is decided: its curves are those of the counts of an urn."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.audit_distributions import urn_distributions
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.exact import positive_frequencies

EPSILONS, ORDERS = (0.0, 0.05, 0.2, 0.5, 1.0), (1.0, 2.0, 5.0, 50.0)
# One row, uneven rows, add-remove, a guarantee on every cell, several records, and people with a record in each row.
MECHANISMS = [
    DirichletMechanism([1.0, 2.0], 0.4, urn_steps=30),
    DirichletMechanism([0.3, 1.0, 4.0], 1.0, urn_steps=12),
    DirichletMechanism([[0.5, 2.0], [3.0, 1.0]], 0.7, urn_steps=9),
    DirichletMechanism([[0.5, 2.0], [3.0, 1.0]], 0.7, urn_steps=9, adjacency="add-remove"),
    DirichletMechanism([1.0, 1.0], 0.5, urn_steps=20, min_count=2),
    DirichletMechanism([0.2, 0.2, 0.2], 2.0, urn_steps=5, contribution=2),
    DirichletMechanism([[1.0, 1.0], [0.5, 0.5]], 0.5, urn_steps=8, contribution=Contribution(1, ("each",))),
    DirichletMechanism([2.0, 2.0], 0.5, urn_steps=15, n_records=4),
]
IDS = [str(i) for i in range(len(MECHANISMS))]


def neighbours(mechanism, most=3):
    """Pairs of tables of up to so many other records in each cell, that differ as the mechanism says."""
    shape, least = mechanism.shape, math.ceil(mechanism.min_count)
    cells = list(np.ndindex(shape))
    rng = np.random.default_rng(1)
    for _ in range(40):
        base = least + rng.integers(0, most + 1, shape)
        if mechanism.contributed.axes == ("each",):
            moves = [[(row, int(rng.integers(2))) for row in range(shape[0])] for _ in range(2)]
        else:
            moves = [[cells[rng.integers(len(cells))] for _ in range(mechanism.contributed.records)] for _ in range(2)]
        x, y = base.copy(), base.copy()
        for cell in moves[0]:
            x[cell] += 1
        for cell in moves[1] if mechanism.adjacency == "replace-one" else ():
            y[cell] += 1
        if np.any(x != y) and mechanism.n_records in (None, x.sum()):
            yield x, y


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=IDS)
def test_no_neighbours_are_further_apart(mechanism):
    pairs = [mechanism.worst_pair(), *neighbours(mechanism)]
    assert len(pairs) > 3
    for x, y in pairs:
        distributions = mechanism.output_distributions(x, y)
        assert distributions.pure_epsilon <= mechanism.pure_epsilon * (1 + 1e-11)
        assert all(
            distributions.delta(epsilon) <= mechanism.delta(epsilon) * (1 + 1e-11) + 1e-14 for epsilon in EPSILONS
        )
        assert all(distributions.renyi(order) <= mechanism.renyi(order) * (1 + 1e-10) for order in ORDERS)


def test_the_curves_are_the_smaller_ones():
    for mechanism in MECHANISMS:
        draw = DirichletMechanism(
            mechanism.alpha,
            mechanism.r,
            adjacency=mechanism.adjacency,
            min_count=mechanism.min_count,
            contribution=mechanism.contribution,
            n_records=mechanism.n_records,
        )
        assert mechanism == draw.as_drawn(mechanism.urn_steps)
        assert mechanism != draw == draw.as_drawn(None)
        assert mechanism.pure_epsilon < draw.pure_epsilon == math.inf
        assert math.isfinite(mechanism.rho(math.inf))
        assert all(mechanism.delta(epsilon) <= draw.delta(epsilon) for epsilon in EPSILONS)
        assert mechanism.epsilon(1e-300) <= mechanism.pure_epsilon


@pytest.mark.parametrize("steps", [7, 300])
def test_distributions_are_those_of_the_likelihood(steps):
    mechanism = DirichletMechanism([0.5, 1.5, 2.0], 0.8, urn_steps=steps)
    x, y = np.array([3, 0, 2]), np.array([2, 1, 2])
    distributions = mechanism.output_distributions(x, y)
    assert math.fsum(np.exp(distributions.log_p)) == pytest.approx(1, rel=1e-12)
    if steps == 7:
        seen = [c for c in itertools.product(range(8), repeat=3) if sum(c) == 7]
        outputs = positive_frequencies(np.array(seen), 7)
        p, q = (mechanism.log_likelihood(outputs, counts) for counts in (x, y))
        assert np.exp(p).sum() == pytest.approx(1, rel=1e-12)
        assert np.sort(p - q) == pytest.approx(np.sort(distributions.log_p - distributions.log_q), abs=1e-11)
        assert mechanism.log_likelihood_ratio(outputs, x, y) == pytest.approx(p - q, abs=1e-12)


def test_the_sampler_has_this_distribution_and_another_number_of_steps_has_not():
    mechanism, counts, n = DirichletMechanism([1.0, 0.5], 0.7, urn_steps=6), np.array([4, 1]), 20_000
    draws = mechanism.sample(counts, draws=n, random_seed=5)
    seen = np.bincount(np.rint(((2 * 6 + 2) * draws[:, 0] - 1) / 2).astype(int), minlength=7)
    distribution = np.exp(
        mechanism.log_likelihood(positive_frequencies(np.array([[i, 6 - i] for i in range(7)]), 6), counts)
    )
    assert stats.chisquare(seen, n * distribution / distribution.sum()).pvalue > 1e-6
    other = DirichletMechanism([1.0, 0.5], 0.9, urn_steps=6)
    wrong = np.exp(other.log_likelihood(positive_frequencies(np.array([[i, 6 - i] for i in range(7)]), 6), counts))
    assert stats.chisquare(seen, n * wrong / wrong.sum()).pvalue < 1e-6
    assert np.all(mechanism.releases(counts, 50, sampler="fast", random_seed=1) * 14 % 1 < 1e-9)


def test_only_these_steps_of_the_exact_sampler_keep_the_guarantee():
    mechanism, counts = DirichletMechanism([1.0, 1.0], 0.5, urn_steps=50), [3, 4]
    assert mechanism.default_steps(10**6) == mechanism.default_steps(None) == 50
    assert mechanism.steps("exact", 7) == 50
    assert mechanism.sample(counts, steps=50).shape == (1, 2)
    with pytest.raises(ArgumentError, match="another number of steps"):
        mechanism.sample(counts, steps=51)
    with pytest.raises(ArgumentError, match="sampler='exact'"):
        mechanism.sample(counts, sampler="fast")
    grid = positive_frequencies(np.array([[10, 40]]), 50)
    assert mechanism.is_on_grid(grid, 50)
    assert not mechanism.is_on_grid(grid, None)
    assert not mechanism.is_on_grid(positive_frequencies(np.array([[20, 80]]), 100), 100)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "8"])
def test_the_number_of_steps_is_whole_and_positive(steps):
    with pytest.raises(ArgumentError, match="urn_steps"):
        DirichletMechanism([1.0, 1.0], 0.5, urn_steps=steps)


def test_equal_data_sets_have_no_distributions():
    u = np.array([[1.0, 2.0]])
    with pytest.raises(ArgumentError, match="differ"):
        urn_distributions(u, u, 5)


def test_distributions_of_several_rows_are_products():
    u, v = np.array([[1.0, 2.0], [1.5, 1.0]]), np.array([[1.5, 2.0], [1.0, 1.0]])
    divergences = [
        float(np.exp(distributions.log_p) @ (distributions.log_p - distributions.log_q))
        for distributions in (
            urn_distributions(u, v, 4),
            urn_distributions(u[:1], v[:1], 4),
            urn_distributions(u[1:], v[1:], 4),
        )
    ]
    assert divergences[0] == pytest.approx(divergences[1] + divergences[2], rel=1e-12)


@pytest.mark.thorough
def test_an_audit_passes_and_a_quarter_of_the_loss_is_refuted():
    mechanism = DirichletMechanism([1.0, 1.0], 2.0, urn_steps=40)
    for share, refuted in ((1.0, False), (0.25, True)):
        claim = dirdp.PureDP(epsilon=share * mechanism.pure_epsilon)
        assert dirdp.audit(mechanism, claim=claim, n=4_000, random_seed=1).bounds[0].exceeded == refuted
