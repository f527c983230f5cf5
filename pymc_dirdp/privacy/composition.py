"""Curves of several releases, about the same people or about different people."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.roots import least_epsilon, raised, round_up
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves, converted_delta, converted_epsilon
from pymc_dirdp.privacy.loss_distribution import ComposedLoss, LossDistribution, discretise


@final
@dataclass(frozen=True)
class Composition(LossCurves):
    """Sequential composition: releases from the same records, such as `K` draws from one posterior.

    A single release has its exact curves. For more, Rényi divergences add at equal order, and the (epsilon, delta)
    curve is that of the sum of their privacy losses, on a grid that errs towards more loss. The sums are also valid if
    a later mechanism answers a question that was chosen after seeing an earlier answer.

    Parameters
    ----------
    parts : tuple of (PrivacyCurves, int)
        Each mechanism and the number of its independent draws. All have the same adjacency.

    References
    ----------
    P1 Lemma 1; Zhu, Dong and Wang (2022), Optimal accounting of differential privacy via characteristic function,
    Theorem 10; Theory, section 7.

    Examples
    --------
    >>> from pymc_dirdp.privacy.dominating_pairs import DominatingPair
    >>> draws = Composition(((DominatingPair(1.0, 10.0, 0.02), 200),))
    >>> draws.renyi(2) / DominatingPair(1.0, 10.0, 0.02).renyi(2)
    200.0...
    """

    parts: tuple[tuple[PrivacyCurves, int], ...]

    @property
    def composed_of(self) -> tuple[tuple[PrivacyCurves, int], ...]:
        """The parts."""
        return self.parts

    @property
    def curve_key(self) -> Hashable:
        """Equal for compositions of the same curves, even if their mechanisms are different objects."""
        keys = tuple((curves.curve_key, times) for curves, times in self._distinct_parts)
        return (Composition, *keys) if self._single is None else keys[0][0]

    @cached_property
    def _distinct_parts(self) -> tuple[tuple[LossCurves, int], ...]:
        """The curves of the parts; equal curves are merged."""
        totals: Counter[Hashable] = Counter()
        representative: dict[Hashable, LossCurves] = {}
        parts = list(_flatten(self.parts))
        if len(parts) > 1 or parts[0][1] > 1:
            # Several tables may lose in opposite directions.
            parts = [(component, totals * count) for part, count in parts for component, totals in part.composed_of]
        for curves, count in ((part._curves, count) for part, count in parts):
            totals[curves.curve_key] += count
            representative.setdefault(curves.curve_key, curves)
        return tuple((representative[curve], count) for curve, count in totals.items())

    @property
    def _single(self) -> LossCurves | None:
        (curves, times), *others = self._distinct_parts
        return curves if times == 1 and not others else None

    @property
    def pure_epsilon(self) -> float:
        """The sum of the pure epsilons of the parts."""
        return _sum((times, mechanism.pure_epsilon) for mechanism, times in self._distinct_parts)

    def _renyi(self, order: float) -> float:
        if order not in self._divergences:
            directions = [
                self._distinct_parts,
                tuple((curves._reversed, times) for curves, times in self._distinct_parts),
            ]
            # Neighbours may come in either order.
            self._divergences[order] = max(
                _sum((times, curves._renyi(order)) for curves, times in direction)
                for direction in dict.fromkeys(directions)
            )
        return self._divergences[order]

    @cached_property
    def _divergences(self) -> dict[float, float]:
        """A cache by order, because all searches for the best order start at the same ones."""
        return {}

    def _rho(self, omega: float) -> float:
        return _sum((times, mechanism._rho(omega)) for mechanism, times in self._distinct_parts)

    def _delta(self, epsilon: float) -> float:
        if self._single is not None:
            return self._single._delta(epsilon)
        # No loss exceeds the sum of the largest losses, which the grid ignores.
        if epsilon >= self.pure_epsilon:
            return 0.0
        delta = self._summed_delta(epsilon)
        return min(delta, converted_delta(self._renyi, epsilon)) if self._may_be_converted(delta) else delta

    def _epsilon(self, delta: float) -> float:
        if self._single is not None:
            return self._single._epsilon(delta)
        grid_epsilon = min(least_epsilon(self._summed_delta, delta), self.pure_epsilon)
        if not self._may_be_converted(delta):
            return grid_epsilon

        # One search for the best order, where each delta of a search for epsilon would take another. The result is
        # raised, so that rounding does not make its delta too large.
        epsilon = min(grid_epsilon, converted_epsilon(self._renyi, delta) * (1 + 1e-10))
        return epsilon if self._delta(epsilon) <= delta else min(super()._epsilon(delta), grid_epsilon)

    def _summed_delta(self, epsilon: float) -> float:
        """The delta of the losses that are summed on a grid."""
        return min(self._total_variation, 1.0 if self._loss is None else self._loss.delta(epsilon))

    def _may_be_converted(self, delta: float) -> bool:
        """Whether the Rényi divergences may give a smaller delta than the grid.

        They may below the cut-off of the grid, if there is no grid, and if the curve of a part comes from them.
        """
        infinite = 1.0 if self._loss is None else self._loss.infinite
        return delta <= 2 * infinite or any(mechanism.uses_renyi_conversion for mechanism, _ in self._distinct_parts)

    @cached_property
    def _total_variation(self) -> float:
        """An upper bound of every delta: the probability that a coupling of the outputs of neighbours fails."""
        distances = [(mechanism._delta(0.0), times) for mechanism, times in self._distinct_parts]
        if any(distance >= 1 for distance, _ in distances):
            return 1.0
        differ = -math.expm1(math.fsum(times * math.log1p(-distance) for distance, times in distances))
        return min(1.0, raised(differ, 16))

    @cached_property
    def _loss(self) -> ComposedLoss | None:
        """The composed losses in all directions; None if the losses are too small or too large for a grid."""
        spreads = [(curves._loss_spread, times) for curves, times in self._distinct_parts]
        total_spread = math.hypot(*(math.sqrt(times) * spread for spread, times in spreads))
        # Beyond these, squares of standard deviations overflow or underflow.
        if not 1e-100 <= total_spread <= 1e100:
            return None
        widening = max(mechanism.widening for mechanism, _ in self._distinct_parts)
        step = _grid_step(spreads, widening)
        losses: list[LossDistribution] = []
        # The number of copies of each loss: all parts remove, or all of them add.
        removing: list[int] = []
        adding: list[int] = []
        for (curves, times), (spread, _) in zip(self._distinct_parts, spreads, strict=True):
            epsilons = _grid(curves, step, spread)
            reversed_curves, forward_deltas = curves._reversed, curves._deltas(epsilons)
            if reversed_curves is curves:
                losses.append(discretise(step, forward_deltas, forward_deltas))
                removing.append(times)
                adding.append(times)
            else:
                backward_deltas = reversed_curves._deltas(epsilons)
                losses += [
                    discretise(step, forward_deltas, backward_deltas),
                    discretise(step, backward_deltas, forward_deltas),
                ]
                removing += [times, 0]
                adding += [0, times]
        directions = dict.fromkeys((tuple(removing), tuple(adding)))
        return ComposedLoss(tuple(zip(losses, zip(*directions, strict=True), strict=True)))


def _sum(losses: Iterable[tuple[int, float]]) -> float:
    """The sum of losses, each so many times, rounded up once; infinite beyond the largest double."""
    try:
        return round_up(sum((times * Fraction(loss) for times, loss in losses), Fraction(0)))
    except OverflowError:
        return math.inf


def _flatten(parts: Iterable[tuple[PrivacyCurves, int]]) -> Iterator[tuple[PrivacyCurves, int]]:
    """The parts, with those of a part that is itself a composition."""
    for mechanism, count in parts:
        if isinstance(mechanism._curves, Composition):
            yield from _flatten((part, times * count) for part, times in mechanism._curves.parts)
        else:
            yield mechanism, count


def _grid_step(spreads: list[tuple[float, int]], widening: float) -> float:
    """A step that widens the sum of losses with these standard deviations by at most a share of its variance.

    Joining the dots spreads a mass within a step over both its ends, which adds `step**2 / 6` to a smooth loss, and
    less than `step * spread` to one that is narrower than the step.
    """
    variance = math.fsum(times * spread**2 for spread, times in spreads)
    step = max(spread for spread, _ in spreads) / 16
    while math.fsum(times * min(step**2 / 6, step * spread) for spread, times in spreads) > widening * variance:
        step /= 2
    return step


def _grid(curves: LossCurves, step: float, spread: float, *, max_points: int = 2**15) -> Array:
    """The epsilons at which the curves of one loss are evaluated."""
    points = min(math.ceil(_reach(curves, step, spread, max_points=max_points) / step), max_points) + 2
    return step * np.arange(points, dtype=np.float64)


def _reach(curves: LossCurves, step: float, spread: float, *, max_points: int = 2**15, cut: float = 1e-22) -> float:
    """An epsilon at which a grid may end: delta is below the cut-off, or the rest is an infinite loss."""
    directions, top = (curves, curves._reversed), math.inf
    # Beyond these spreads a double has no digit of the order minus 1.
    for order in [1 + share / spread for share in (0.5, 1.5, 4.0, 10.0)] if 1e-10 < spread < 1e10 else ():
        divergence = max(direction._renyi(order) for direction in directions)
        top = min(top, divergence - math.log(cut) / (order - 1))
    if math.isfinite(top):
        return max(top, step)

    def largest_delta(top: float) -> float:
        """The larger delta of both directions."""
        return max(float(direction._deltas(np.array([top]))[0]) for direction in directions)

    # The search starts above 0, and at a step or more where the other losses have a larger scale.
    top, furthest = max(4 * spread, step), max_points * step
    floor = max(cut, largest_delta(furthest))
    while top < furthest and largest_delta(top) > floor:
        top *= 1.3
    return top


@final
@dataclass(frozen=True)
class Parallel(LossCurves):
    """Parallel composition: no person has records in more than one of the releases, so the largest loss counts.

    Parameters
    ----------
    members : tuple of PrivacyCurves
        Each may itself be a composition. All have the same adjacency.
    """

    members: tuple[PrivacyCurves, ...]

    @cached_property
    def _member_curves(self) -> tuple[LossCurves, ...]:
        return tuple(member._curves for member in self.members)

    @property
    def curve_key(self) -> Hashable:
        """Equal for members with equal curves."""
        return (Parallel, *(member.curve_key for member in self.members))

    @property
    def pure_epsilon(self) -> float:
        """The largest pure epsilon of a member."""
        return max(member.pure_epsilon for member in self.members)

    def _renyi(self, order: float) -> float:
        return max(curves._renyi(order) for curves in self._member_curves)

    def _rho(self, omega: float) -> float:
        return max(curves._rho(omega) for curves in self._member_curves)

    def _delta(self, epsilon: float) -> float:
        return max(curves._delta(epsilon) for curves in self._member_curves)

    def _epsilon(self, delta: float) -> float:
        return max(curves._epsilon(delta) for curves in self._member_curves)

    def _deltas(self, epsilons: Array) -> Array:
        return np.asarray(np.max([curves._deltas(epsilons) for curves in self._member_curves], axis=0))

    @property
    def _reversed(self) -> LossCurves:
        members = tuple(curves._reversed for curves in self._member_curves)
        return self if members == self._member_curves else Parallel(members)
