"""Curves of many releases together, about the same people or about different people."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.numerics.roots import least_epsilon
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves, best_order, epsilon_at, log_delta_at
from pymc_dirdp.privacy.loss_distribution import ComposedLoss, LossDistribution, discretised


def curve_cache_key(curves: PrivacyCurves) -> Hashable:
    """What is equal for compositions of the same curves, also where their mechanisms are different objects."""
    match curves:
        case Composition():
            parts = tuple((curve_cache_key(mechanism), times) for mechanism, times in curves._distinct)
            return parts[0][0] if curves._single is not None else (Composition, *parts)
        case Parallel():
            return (Parallel, *map(curve_cache_key, curves.members))
    return curves.curve_key


@final
@dataclass(frozen=True)
class Composition(PrivacyCurves):
    """Sequential composition: releases that the same records feed, such as `K` draws from one posterior.

    A single release keeps its exact curves. For more, Rényi divergences add at equal order, and the (epsilon, delta)
    curve is that of the sum of their privacy losses, on a grid that errs towards more loss. The sums are also valid if
    a later mechanism answers a question that was chosen after seeing an earlier answer.

    Parameters
    ----------
    parts : tuple of (PrivacyCurves, int)
        Each mechanism and how many independent draws of it are released. All have the same adjacency.

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
        """The parts as they were given."""
        return self.parts

    @cached_property
    def _distinct(self) -> tuple[tuple[PrivacyCurves, int], ...]:
        """The parts; those with equal curves are counted together."""
        times: Counter[Hashable] = Counter()
        representative: dict[Hashable, PrivacyCurves] = {}
        flat = list(_flat(self.parts))
        if len(flat) > 1 or flat[0][1] > 1:
            # Several tables may lose in opposite directions.
            flat = [(one, times * count) for part, count in flat for one, times in part.composed_of]
        for mechanism, count in flat:
            times[mechanism.curve_key] += count
            representative.setdefault(mechanism.curve_key, mechanism)
        return tuple((representative[curve], count) for curve, count in times.items())

    @property
    def _single(self) -> PrivacyCurves | None:
        (mechanism, times), *others = self._distinct
        return mechanism if times == 1 and not others else None

    @property
    def pure_epsilon(self) -> float:
        """The sum of the pure epsilons of the parts."""
        return _added(times * mechanism.pure_epsilon for mechanism, times in self._distinct)

    def _renyi(self, order: float) -> float:
        if order not in self._divergences:
            self._divergences[order] = _added(times * mechanism._renyi(order) for mechanism, times in self._distinct)
        return self._divergences[order]

    def _renyi_back(self, order: float) -> float:
        return _added(times * mechanism._renyi_back(order) for mechanism, times in self._distinct)

    @cached_property
    def _divergences(self) -> dict[float, float]:
        """A cache by order, because all searches for the best order start at the same ones."""
        return {}

    def _rho(self, omega: float) -> float:
        return _added(times * mechanism._rho(omega) for mechanism, times in self._distinct)

    def _delta(self, epsilon: float) -> float:
        if self._single is not None:
            return self._single._delta(epsilon)
        # No loss is above the sum of the largest ones, which the grid does not know.
        if epsilon >= self.pure_epsilon:
            return 0.0
        delta = self._summed_delta(epsilon)
        if not self._may_be_converted(delta):
            return delta

        def log_delta(order: float) -> float:
            return log_delta_at(order, self._larger_renyi(order), epsilon)

        return min(delta, math.exp(log_delta(best_order(log_delta))))

    def _epsilon(self, delta: float) -> float:
        if self._single is not None:
            return self._single._epsilon(delta)
        summed = min(least_epsilon(self._summed_delta, delta), self.pure_epsilon)
        if not self._may_be_converted(delta):
            return summed

        # One search for the best order, where each delta of a search for epsilon would take another. The result is
        # raised, so that rounding does not make its delta too large.
        def epsilon(order: float) -> float:
            return epsilon_at(order, self._larger_renyi(order), delta)

        found = min(summed, epsilon(best_order(epsilon)) * (1 + 1e-10))
        return found if self._delta(found) <= delta else min(super()._epsilon(delta), summed)

    def _summed_delta(self, epsilon: float) -> float:
        """The delta of the losses that are summed on a grid."""
        return min(self._total_variation, 1.0 if self._loss is None else self._loss.delta(epsilon))

    def _may_be_converted(self, delta: float) -> bool:
        """Whether the Rényi divergences may give less than sums on the grid.

        They may below the cut of the grid, where there is no grid, and where the curve of a part comes from them.
        """
        infinite = 1.0 if self._loss is None else self._loss.infinite
        return delta <= 2 * infinite or any(mechanism.from_divergences for mechanism, _ in self._distinct)

    def _larger_renyi(self, order: float) -> float:
        return max(self._renyi(order), self._renyi_back(order))

    @cached_property
    def _total_variation(self) -> float:
        """An upper bound of every delta: the probability that a coupling of the outputs of neighbours fails."""
        distances = [(mechanism._delta(0.0), times) for mechanism, times in self._distinct]
        if any(distance >= 1 for distance, _ in distances):
            return 1.0
        differ = -math.expm1(math.fsum(times * math.log1p(-distance) for distance, times in distances))
        # The factor covers the rounding of the three functions.
        return min(1.0, differ * (1 + 1e-14))

    @cached_property
    def _loss(self) -> ComposedLoss | None:
        """The composed losses in all directions; None where the losses are too small or too large for a grid."""
        spreads = {mechanism.curve_key: mechanism._loss_spread for mechanism, _ in self._distinct}
        together = math.hypot(*(math.sqrt(times) * spreads[mechanism.curve_key] for mechanism, times in self._distinct))
        # Beyond these, squares of standard deviations are no doubles.
        if not 1e-100 <= together <= 1e100:
            return None
        widening = max(mechanism.widening for mechanism, _ in self._distinct)
        step = _grid_step([(spreads[mechanism.curve_key], times) for mechanism, times in self._distinct], widening)
        losses: list[LossDistribution] = []
        # How many there are of each loss: all parts remove, or all of them add.
        removing: list[int] = []
        adding: list[int] = []
        for mechanism, times in self._distinct:
            there, back = _on_grid(mechanism, step, spreads[mechanism.curve_key])
            same = there is back
            losses += [there] if same else [there, back]
            removing += [times] if same else [times, 0]
            adding += [times] if same else [0, times]
        ways = dict.fromkeys((tuple(removing), tuple(adding)))
        return ComposedLoss(tuple(zip(losses, zip(*ways, strict=True), strict=True)))


def _added(losses: Iterable[float]) -> float:
    """The sum of numbers that are not negative; infinite beyond the largest double."""
    try:
        return math.fsum(losses)
    except OverflowError:
        return math.inf


def _flat(parts: Iterable[tuple[PrivacyCurves, int]]) -> Iterator[tuple[PrivacyCurves, int]]:
    """The parts, with those of a part that is itself a composition."""
    for mechanism, count in parts:
        inner = CurvesOf.unwrapped(mechanism)
        if isinstance(inner, Composition):
            yield from _flat((part, times * count) for part, times in inner.parts)
        else:
            yield mechanism, count


def _grid_step(spreads: list[tuple[float, int]], widening: float) -> float:
    """A step that widens the sum of losses with these standard deviations by at most this share of its variance.

    Joining the dots spreads a mass within a step over both its ends, which adds `step**2 / 6` to a smooth loss, and
    less than `step * spread` to one that is narrower than the step.
    """
    variance = math.fsum(times * spread**2 for spread, times in spreads)
    step = max(spread for spread, _ in spreads) / 16
    while math.fsum(times * min(step**2 / 6, step * spread) for spread, times in spreads) > widening * variance:
        step /= 2
    return step


def _on_grid(
    mechanism: PrivacyCurves, step: float, spread: float, *, most: int = 2**15
) -> tuple[LossDistribution, LossDistribution]:
    """The loss of one mechanism, for removing and for adding; the same object where there is no difference."""
    top = _reach(mechanism, step, spread, most=most)
    points = min(math.ceil(top / step), most) + 2
    there, back = mechanism.hockey_sticks(step, points)
    forward = discretised(step, there, back)
    return forward, forward if there is back else discretised(step, back, there)


def _reach(mechanism: PrivacyCurves, step: float, spread: float, *, most: int = 2**15, cut: float = 1e-22) -> float:
    """An epsilon at which a grid may end: delta is below the cut, or what is left is an infinite loss."""
    top = math.inf
    # Beyond these spreads a double holds no digit of the order less 1.
    for order in [1 + share / spread for share in (0.5, 1.5, 4.0, 10.0)] if 1e-10 < spread < 1e10 else ():
        divergence = max(mechanism._renyi(order), mechanism._renyi_back(order))
        top = min(top, divergence - math.log(cut) / (order - 1))
    if math.isfinite(top):
        return max(top, step)

    def left(top: float) -> float:
        """The larger delta of both directions."""
        return max(float(deltas[1]) for deltas in mechanism.hockey_sticks(top, 2))

    # The search starts above 0, and at a step or more where the other losses have a larger scale.
    top, furthest = max(4 * spread, step), most * step
    never_less = max(cut, left(furthest))
    while top < furthest and left(top) > never_less:
        top *= 1.3
    return top


@final
@dataclass(frozen=True)
class Parallel(PrivacyCurves):
    """Releases about different people: no person's records feed more than one of them, so the largest loss counts.

    Parameters
    ----------
    members : tuple of PrivacyCurves
        Each may itself be a composition. All have the same adjacency.
    """

    members: tuple[PrivacyCurves, ...]

    @property
    def pure_epsilon(self) -> float:
        """The largest pure epsilon of a member."""
        return max(member.pure_epsilon for member in self.members)

    def _renyi(self, order: float) -> float:
        return max(member._renyi(order) for member in self.members)

    def _renyi_back(self, order: float) -> float:
        return max(member._renyi_back(order) for member in self.members)

    def _rho(self, omega: float) -> float:
        return max(member._rho(omega) for member in self.members)

    def _delta(self, epsilon: float) -> float:
        return max(member._delta(epsilon) for member in self.members)

    def _epsilon(self, delta: float) -> float:
        return max(member._epsilon(delta) for member in self.members)

    def hockey_sticks(self, step: float, points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest hockey-stick divergences of a member, for removing and for adding."""
        there, back = zip(*(member.hockey_sticks(step, points) for member in self.members), strict=True)
        removing, adding = np.max(there, axis=0), np.max(back, axis=0)
        # One object for both directions means that neighbours come in both orders.
        both_ways = all(one is other for one, other in zip(there, back, strict=True))
        return removing, removing if both_ways else adding
