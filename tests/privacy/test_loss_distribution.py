"""Privacy losses on a grid, against exact curves and direct convolution; and finite distributions."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism, DiscreteGaussianMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.loss_distribution import ComposedLoss, FiniteDistributions, LossDistribution, discretise

PAIRS = [
    DominatingPair(1.0, 1.0, 0.3),
    DominatingPair(0.4, 3.0, 0.1),
    DominatingPair(2.0, math.inf, 0.5),
    DominatingPair(0.3, math.inf, 0.02),
]


def on_grid(pair, step, points):
    there, back = (way._deltas(step * np.arange(points)) for way in (pair, pair._reversed))
    return discretise(step, there, back), discretise(step, back, there)


def losses_of(distribution):
    n = len(distribution.masses) // 2
    return distribution.step * np.arange(-n, n + 1)


def direct(loss, epsilon):
    """The hockey-stick divergence of a discrete loss, by its definition."""
    above = losses_of(loss) > epsilon
    return loss.infinite + loss.masses[above] @ -np.expm1(epsilon - losses_of(loss)[above])


@pytest.mark.parametrize("pair", PAIRS)
def test_the_grid_is_never_below_the_curve_and_touches_it(pair):
    loss, _ = on_grid(pair, 0.02, 2000)
    assert np.all(loss.masses >= 0)
    assert loss.masses.sum() + loss.infinite == pytest.approx(1, abs=1e-12)
    # The second distribution gives exp(-loss) times as much; it may have a little where the first has nothing.
    assert loss.masses @ np.exp(-losses_of(loss)) <= 1 + 1e-9
    for epsilon in (0.0, 0.013, 0.4, 1.017, 3.0):
        assert direct(loss, epsilon) >= pair.delta(epsilon)
        on = round(epsilon / 0.02) * 0.02
        assert direct(loss, on) == pytest.approx(pair.delta(on), rel=1e-8, abs=2 * loss.infinite)
    # Below 0 it is the curve of the other direction: delta(eps) = 1 - exp(eps) + exp(eps) delta'(-eps).
    back = pair._reversed._deltas(0.02 * np.arange(2000))
    for epsilon in (-2.0, -0.5, -0.02):
        expected = -math.expm1(epsilon) + math.exp(epsilon) * back[round(-epsilon / 0.02)]
        assert direct(loss, epsilon) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 4.0])
def test_the_transform_is_a_convolution(epsilon):
    """Oracle: np.convolve, without tilt, window or transform."""
    first, _ = on_grid(DominatingPair(1.0, 1.0, 0.3), 0.05, 900)
    second, _ = on_grid(DominatingPair(0.4, 3.0, 0.1), 0.05, 900)
    masses = np.convolve(np.convolve(first.masses, second.masses), second.masses)
    n = len(masses) // 2
    losses = 0.05 * np.arange(-n, n + 1)
    above = losses > epsilon
    expected = masses[above] @ -np.expm1(epsilon - losses[above])
    composed = ComposedLoss([(first, 1), (second, 2)])
    # From above, by no more than the accounted rounding.
    assert expected <= composed.delta(epsilon) * (1 + 1e-12)
    assert composed.delta(epsilon) == pytest.approx(expected + composed.infinite, rel=1e-8)


def test_parts_that_lose_nothing_or_everything():
    loss, _ = on_grid(PAIRS[0], 0.05, 400)
    assert ComposedLoss(((LossDistribution(0.05, np.zeros(5), 0.3), 2),)).delta(1.0) == 1.0
    everything = ComposedLoss(((loss, 2), (LossDistribution(0.05, np.zeros(3), 1.0), 1)))
    assert everything.infinite == everything.delta(0.3) == 1.0
    # A loss that is always 0 has a grid of a single point.
    nothing = LossDistribution(0.05, np.array([1.0]), 0.0)
    alone, together = ComposedLoss(((loss, 2),)), ComposedLoss(((loss, 2), (nothing, 3)))
    for epsilon in (0.0, 0.5, 2.0):
        assert together.delta(epsilon) == pytest.approx(alone.delta(epsilon), rel=1e-9)


@pytest.mark.parametrize("part", [Bounded(0.3, 1e-7), Bounded(0.0, 1e-7), Bounded(0.3, 0.0)])
def test_a_grid_ends_where_the_curve_stops_falling(part):
    """A guarantee with a delta had a grid of 65,533 points, all empty but two, and 1000 of them took 84 seconds."""
    composition = Composition(((part, 2), (Bounded(0.25, 1e-8), 1)))
    assert all(len(one.masses) < 400 for one, _ in composition._loss.parts)


def test_many_different_parts_are_looked_at_few_times():
    """Of 15 tilts, and of ten to bound each window, few decide; moments of each are taken once."""
    composition = Composition(tuple((DominatingPair(1.0 + i / 10, 2.0, 0.03), 1) for i in range(40)))
    composition.epsilon(1e-6)
    points, bulks = composition._loss._points, composition._loss._bulks
    assert len(points._log_moments) <= 8 + 8 * len(bulks)
    for tilt, (losses, *_) in bulks.items():
        # The window is that of the best of all bounds, or as good.
        spread = float(np.sqrt(np.sum(points.variances(points.tilted_masses(tilt)))))
        assert len(losses) * composition._loss.step < 22 * spread


# Distributions that are cut into cells never lose more than those they come from, and little less.


def test_merging_cells_loses_little_and_gains_nothing():
    cells = np.arange(-12, 12, 0.02)
    logs = [norm.logpdf(cells, mean) for mean in (0.5, 0.0)]
    distributions = FiniteDistributions(*(log - logsumexp(log) for log in logs))
    product = distributions.merged(600).times(distributions.merged(600))
    merged = product.merged(800)
    assert len(merged.log_p) <= 800
    assert np.exp(merged.log_p).sum() == pytest.approx(1, rel=1e-9)
    for order in (1.0, 2.0, 8.0):
        assert merged.renyi(order) <= product.renyi(order) * (1 + 1e-12)
        assert merged.renyi(order) == pytest.approx(order * 0.5**2, rel=1e-3)
    for epsilon in (0.0, 1.0, 3.0):
        assert merged.delta(epsilon) <= product.delta(epsilon) * (1 + 1e-12)
        assert merged.delta(epsilon) == pytest.approx(product.delta(epsilon), rel=5e-3)


def test_impossible_cells_stay_impossible_when_cells_are_merged():
    distributions = FiniteDistributions(np.log([0.5, 0.25, 0.25]), np.array([-math.inf, math.log(0.5), math.log(0.5)]))
    assert distributions.merged(2).delta(5.0) == pytest.approx(0.5)


def test_a_record_in_each_of_many_rows_is_a_composition():
    """Oracle: the composition of as many mechanisms of one row, by its own convolution."""
    row, rows = DirichletMechanism([1.0, 1.0, 1.0], 0.2), 3
    table = DirichletMechanism(np.ones((rows, 3)), 0.2)
    x, y = np.zeros((2, rows, 3))
    x[:, 0], y[:, 1] = 1, 1
    distributions, whole = table.output_distributions(x, y, cells=2_000), Composition(((row, rows),))
    for order in (1.0, 2.0):
        assert distributions.renyi(order) <= whole.renyi(order) * (1 + 1e-9)
        assert distributions.renyi(order) == pytest.approx(rows * row.renyi(order), rel=5e-3)
    assert distributions.delta(0.5) <= whole.delta(0.5)
    assert distributions.delta(0.5) == pytest.approx(whole.delta(0.5), rel=2e-2)


def test_what_is_not_known_is_refused():
    mechanism = DirichletMechanism(np.ones(4), 0.3)
    with pytest.raises(ArgumentError, match="changes its cell within a row"):
        mechanism.output_distributions(np.array([3.0, 0, 0, 0]), np.array([0.0, 1, 0, 0]))
    with pytest.raises(ArgumentError, match="two data sets that differ"):
        mechanism.output_distributions(np.ones(4), np.ones(4))
    with pytest.raises(ArgumentError, match="too many cells"):
        DiscreteGaussianMechanism(np.ones(2), 1e20).output_distributions(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
