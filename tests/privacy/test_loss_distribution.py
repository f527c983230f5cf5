"""Privacy losses on a grid, against exact curves, direct convolution and another library."""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.loss_distribution import ComposedLoss, LossDistribution, discretise

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
    for tilt, (losses, masses, errors, ulps) in bulks.items():
        assert errors.max() < 1e-8
        assert ulps < 1e5
        assert masses.sum() == pytest.approx(1, abs=1e-9)
        # The window is that of the best of all bounds, or as good.
        spread = float(np.sqrt(np.sum(points.variances(points.tilted_masses(tilt)))))
        assert len(losses) * composition._loss.step < 22 * spread
