"""Privacy curves of posterior draws whose intensities stay above a public floor.

Each cell of a table draws `G ~ TG(alpha + r n; floor, ceiling)`, and the intensities, or any function of them such as
the shares, are released. What a record in one cell changes depends on the cell's counts, and the worst counts are
nowhere near 0: every curve here is a supremum over all counts. The proofs are in the documentation under "floored".
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.roots import found_together, log_excess, root_search
from pymc_dirdp.numerics.truncated_gamma import log_mass_change
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.conversion import LOOKED_AT_FIRST, ORDERS, best_order, least_log_delta, log_delta_at
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.floored_renyi import (
    largest_divergences,
    largest_slope,
    largest_sum_of_variances,
    largest_variance,
)
from pymc_dirdp.privacy.floored_search import (
    LARGEST_STEP,
    LEAST_DELTA,
    Found,
    Shapes,
    largest_joins,
    largest_leaves,
    largest_moves,
    looser,
)
from pymc_dirdp.privacy.randomised_response import RandomisedResponse

__all__ = ["ALPHAS", "FLOORS", "STEPS", "FlooredCells"]

# Up to so many distinct prior parameters every lattice of shapes is searched. With more, all real shapes from the two
# smallest on are, which costs at most some thousandths of r.
_MOST_LATTICES = 3
_TOLERANCE = 0.02
# So much lower than delta the logarithm of what is seen has to be, because the bound is a little above it; and how far
# below that it may end.
_ROOM, _CLOSE = 0.025, 3e-3
# A smaller tolerance takes too many boxes, unless the counts are few; then single counts are exact.
_FINEST = 1e-3
# Within these bounds, of alpha, r, and the floor, the curves were tried and take little time.
ALPHAS, STEPS, FLOORS = (1e-6, 1e12), (1e-9, 100.0), (1e-6, 1e8)
_MOST_OTHERS = 2**36
# The rounding of a few operations.
_UP = 1 + 1e-12


@final
@dataclass(frozen=True)
class FlooredCells(PrivacyCurves):
    """What one person can change in a block of cells whose intensities stay above a floor.

    With one record of a person the curves are suprema over all counts: exact for Rényi divergences, and within 2 % for
    delta. With more records, and for delta with a ceiling, they are upper bounds from divergences.

    Parameters
    ----------
    cells : tuple of float
        The prior parameters of the cells in rising order, positive. Those that occur more than twice are here twice.
    r : float
        What one record adds to a shape, positive.
    floor, ceiling : float
        All intensities lie between them; `0 < floor < ceiling <= inf`.
    records : int
        The most records of a person in the block.
    adjacency : {"replace-one", "add-remove"}
    others : int, optional
        The number of records in two cells without the one that moves, if it is public. Then one cell decides the other,
        and the curves are smaller. `rho` and Rényi divergences are upper bounds, which are close for many records.

    Examples
    --------
    >>> curves = FlooredCells((0.5, 0.5), 0.65, 8.0)
    >>> curves.rho(math.inf), curves.epsilon(1e-6)
    (0.0257..., 0.9...)
    >>> FlooredCells((0.5, 0.5), 0.65, 8.0, others=99).epsilon(1e-6)
    0.7...
    """

    cells: tuple[float, ...]
    r: float
    floor: float
    ceiling: float = math.inf
    records: int = 1
    adjacency: str = "replace-one"
    others: int | None = None

    @property
    def _moves(self) -> bool:
        """Whether a record moves from one cell to another; otherwise it appears or disappears."""
        return adjacency_named(self.adjacency).records_are_public

    @property
    def _one_record(self) -> bool:
        return self.records == 1

    @property
    def _from_counts(self) -> bool:
        """Whether deltas are found by a search over counts."""
        return self._one_record and math.isinf(self.ceiling) and self.r <= LARGEST_STEP

    @property
    @override
    def from_divergences(self) -> bool:
        return True

    @cached_property
    def _shapes(self) -> tuple[Shapes, ...]:
        """The distinct shapes of cells without records."""
        distinct = tuple(dict.fromkeys(self.cells))
        if self._has_lattices:
            return tuple(Shapes(a) for a in distinct)
        return tuple(dict.fromkeys(Shapes(a, real=True) for a in self.cells[:2]))

    @cached_property
    def _has_lattices(self) -> bool:
        """Whether the lattice of every prior parameter is searched by itself."""
        return len(set(self.cells)) <= _MOST_LATTICES

    @cached_property
    def _pairs(self) -> tuple[tuple[Shapes, Shapes], ...]:
        """The cells that gain and lose a record: all ordered pairs of different cells, by their shapes.

        Of more cells than are searched one has a shape not below the smallest, and the other one not below the second.
        """
        if self._has_lattices:
            times = Counter(self.cells)
            return tuple((a, b) for a in self._shapes for b in self._shapes if a != b or times[a.start] > 1)
        low, high = (Shapes(a, real=True) for a in self.cells[:2])
        return tuple(dict.fromkeys([(low, high), (high, low)]))

    @cached_property
    def _rho_everywhere(self) -> float:
        """A bound on the divergence over its order, at every order (statement 3 on the page of proofs)."""
        steps = self.records * self.r
        most = largest_variance(self.floor, self.ceiling)[1]
        variance = 2 * most if self._moves else most
        if self.others is not None:
            shapes = sum(self.cells) + self.r * (self.others + 1)
            variance = min(variance, largest_sum_of_variances(shapes, self.floor, self.ceiling))
        return steps * steps * variance / 2 * _UP

    @property
    @override
    def pure_epsilon(self) -> float:
        """With a ceiling the loss is bounded, whatever the number of records is."""
        if math.isinf(self.ceiling):
            return math.inf
        width = self.r * math.log(self.ceiling / self.floor)
        if self._moves:
            least = float(log_mass_change(self.cells[0], self.r, self.floor, self.ceiling))
            # All other records lie in the other cell, without limit.
            width += self.r * math.log(self.ceiling) - least
        size = self.r * (1 + abs(math.log(self.floor)) + abs(math.log(self.ceiling)))
        return self.records * (width + 1e-13 * size)

    def _divergences(self, orders: Array) -> Array:
        """Rényi divergences at an array of orders."""
        if not self._one_record:
            return np.asarray(orders * self._rho_everywhere)
        law = (self.r, self.floor, self.ceiling)
        joins = {cell: largest_divergences(orders, cell, *law, joins=True) for cell in self._shapes}
        leaves = {cell: largest_divergences(orders, cell, *law, joins=False) for cell in self._shapes}
        if self._moves:
            largest = np.max([joins[a] + leaves[b] for a, b in self._pairs], axis=0)
            # The bound takes account of a public number of records.
            return np.asarray(np.minimum(largest, orders * self._rho_everywhere))
        return np.asarray(np.max([*joins.values(), *leaves.values()], axis=0))

    @override
    def _renyi(self, order: float) -> float:
        if order not in self._known:
            self._look_ahead("renyi", LOOKED_AT_FIRST if order in LOOKED_AT_FIRST else (order,))
        return self._known[order]

    @override
    def _look_ahead(self, curve: str, points: Sequence[float]) -> None:
        # Many orders together take as long as a few, and so do searches for many deltas.
        if curve == "renyi":
            self._learn(self._known, points, self._least_divergences)
        elif self._from_counts and curve == "delta":
            self._learn(self._known_deltas, points, self._certified_deltas)
        elif self._from_counts:
            self._learn(self._known_epsilons, points, self._certified_epsilons)

    def _least_divergences(self, orders: ArrayLike) -> list[float]:
        return np.minimum(self._divergences(np.asarray(orders)), self.pure_epsilon).tolist()  # type: ignore[no-any-return]

    @staticmethod
    def _learn(known: dict[float, float], points: Sequence[float], find: Callable[[list[float]], list[float]]) -> None:
        if new := [point for point in dict.fromkeys(points) if point not in known]:
            known.update(zip(new, find(new), strict=True))

    @cached_property
    def _known(self) -> dict[float, float]:
        """A cache by order, because all searches for the best order start at the same ones."""
        return {}

    @cached_property
    def _known_deltas(self) -> dict[float, float]:
        """A cache by epsilon: a plan, a release and its report ask for the same ones."""
        return {}

    @cached_property
    def _known_epsilons(self) -> dict[float, float]:
        """The same by delta."""
        return {}

    @override
    def _rho(self, omega: float) -> float:
        if math.isinf(omega) or not self._one_record:
            return self._rho_everywhere
        return min(largest_slope(self._divergences, omega), self._rho_everywhere)

    @override
    def _delta(self, epsilon: float) -> float:
        if not self._from_counts:
            return self._converted(epsilon)
        self._look_ahead("delta", (epsilon,))
        return self._known_deltas[epsilon]

    def _certified_deltas(self, epsilons: Sequence[float]) -> list[float]:
        # The search sees nothing below its least delta, which no delta is above where rho says so.
        far = self._rho_everywhere + 2 * math.sqrt(-self._rho_everywhere * math.log(LEAST_DELTA))
        common = [epsilon for epsilon in epsilons if epsilon < far]
        bounds = dict.fromkeys(epsilons, LEAST_DELTA)
        found = self._searched(common, _TOLERANCE) if common else []
        bounds.update((at, one.bound) for at, one in zip(common, found, strict=True))
        # There the divergences at a few orders are precise enough.
        return [
            min(bound, math.exp(least_log_delta(self._at_orders, at))) if bound <= 2 * LEAST_DELTA else bound
            for at, bound in ((epsilon, bounds[epsilon]) for epsilon in epsilons)
        ]

    def _searched(self, epsilons: Sequence[float], tolerance: float) -> list[Found]:
        """What the search finds at each epsilon; where a record comes or goes, the larger of both."""
        if self._moves:
            law = self.floor, self.r, self._pairs
            return list(largest_moves(*law, epsilons, tolerance=tolerance, others=self.others))
        both = (
            search(self.floor, self.r, self._shapes, epsilons, tolerance=tolerance)
            for search in (largest_joins, largest_leaves)
        )
        return list(itertools.starmap(Found.larger, zip(*both, strict=True)))

    @property
    @override
    def searches_counts(self) -> bool:
        return self._from_counts

    @override
    def proves(self, epsilon: float, delta: float) -> bool:
        if super().proves(epsilon, delta):
            return True
        if not self._from_counts:
            return False
        # A finer search may prove what is a little below the bound of the usual one.
        attained = self._searched([epsilon], _TOLERANCE)[0].attained
        if not LEAST_DELTA < attained <= delta:
            return False
        tolerance = max((delta / attained - 1) / 2, _FINEST) / float(looser(attained))
        return self._searched([epsilon], tolerance)[0].bound <= delta

    def worst_counts(self, epsilon: float, near: tuple[float, ...] | None = None) -> Found:
        """The largest delta that a quick search sees, for real shapes; no bound. Where records move, start at `near`.

        Real shapes have no smaller supremum than the lattice of counts, and it is smooth in r.
        """
        return self._worst_counts((epsilon,), None if near is None else (near,))[0]

    def _worst_counts(self, epsilons: Sequence[float], near: Sequence[tuple[float, ...]] | None) -> list[Found]:
        real = {cell: Shapes(cell.start, real=True) for cell in self._shapes}
        if self._moves:
            pairs = tuple((real[a], real[b]) for a, b in self._pairs)
            law = self.floor, self.r, pairs, epsilons
            # Real counts of more records are rounded, and nothing depends on so many.
            others = None if self.others is None else min(self.others, _MOST_OTHERS)
            return list(largest_moves(*law, tolerance=math.inf, near=near, others=others))
        both = (
            search(self.floor, self.r, tuple(real.values()), epsilons, tolerance=math.inf)
            for search in (largest_joins, largest_leaves)
        )
        return list(itertools.starmap(Found.larger, zip(*both, strict=True)))

    def _converted(self, epsilon: float) -> float:
        """The delta that the divergence at the best order implies, or the pure guarantee."""

        def log_delta(order: float) -> float:
            return log_delta_at(order, self._renyi(order), epsilon)

        converted = math.exp(log_delta(best_order(log_delta)))
        if math.isinf(self.pure_epsilon):
            return converted
        return min(converted, float(RandomisedResponse(self.pure_epsilon)._delta(epsilon)))

    @override
    def _epsilon(self, delta: float) -> float:
        if not self._from_counts:
            return min(super()._epsilon(delta), self.pure_epsilon)
        self._look_ahead("epsilon", (delta,))
        return self._known_epsilons[delta]

    def _certified_epsilons(self, deltas: Sequence[float]) -> list[float]:
        # The search for the worst counts is quick. Only its result needs to be proved.
        searched = [delta for delta in deltas if delta >= 10 * LEAST_DELTA]
        # The loss is nearly a Gaussian one with this mean and twice this variance.
        rho, far = self._rho_everywhere, [-math.log(delta) for delta in searched]
        start = [rho + 1.5 * math.sqrt(rho * nats) for nats in far]
        slope = [2 * nats / first for nats, first in zip(far, start, strict=True)]
        near: dict[int, tuple[float, ...]] = {}

        def excesses(less: dict[int, float]) -> list[float]:
            # A search starts where the last one for the same delta ended.
            found: dict[int, Found] = {}
            for known in (True, False):
                some = [i for i in less if (i in near) is known]
                if some:
                    begin = [near[i] for i in some] if known else None
                    found.update(zip(some, self._worst_counts([-less[i] for i in some], begin), strict=True))
            near.update((i, one.shapes) for i, one in found.items() if one.attained > 0)
            return [log_excess(found[i].attained, searched[i]) + _ROOM * float(looser(searched[i])) for i in less]

        searches = [
            root_search(-first, slope=steep, close=_CLOSE, reach=first, most=0.0)
            for first, steep in zip(start, slope, strict=True)
        ]
        roots = [0.0 if root is None else -root for root in found_together(searches, excesses)]
        self._look_ahead("delta", roots)
        proved = {}
        for delta, epsilon, first, steep in zip(searched, roots, start, slope, strict=True):
            # The promise holds where no loss is as large as epsilon.
            while (loss := log_excess(self._delta(epsilon), delta)) > 0:
                # The root may be 0, which no factor moves.
                epsilon += loss / steep + 1e-4 * first
            proved[delta] = epsilon
        return [proved[delta] if delta in proved else super(FlooredCells, self)._epsilon(delta) for delta in deltas]

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        """Bounds from the divergences, because a search over counts would take too long on a whole grid."""
        larger = np.exp([least_log_delta(self._at_orders, i * step) for i in range(points)])
        if math.isfinite(self.pure_epsilon):
            larger = np.minimum(larger, RandomisedResponse(self.pure_epsilon).hockey_sticks(step, points)[0])
        return larger, larger

    @cached_property
    def _at_orders(self) -> Array:
        return np.array(self._least_divergences(ORDERS))
