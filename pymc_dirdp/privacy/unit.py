"""What one person can change in a table: pairs of distributions for several records, groups and blocks."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, final, override

import numpy as np
from scipy.special import digamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import within
from pymc_dirdp.numerics.gamma import mean_digamma
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import (
    ORDERS,
    LossCurves,
    NoLoss,
    converted_delta,
    converted_deltas,
    least_log_delta,
)
from pymc_dirdp.privacy.divergences import renyi_add, renyi_remove
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.people import Contribution, adjacency_named

# Several records of one person that may lie anywhere in a block of cells.
#
# Where the prior parameters are 1/2 or more, or `r` is small against them, the loss is largest with all records in one
# cell (Theory, Theorems 5 and 9). Otherwise it may be larger with the records spread over several cells, and the curves
# here are the largest over all ways to spread them.


# From this prior parameter on the worst place of several records is one cell, whatever `r` is.
_ALWAYS_TOGETHER = 0.5
# Up to so many records all ways to spread them are tried, for divergences (77 ways).
_MOST_SPREAD = 12


def records_in_cells(
    cells: tuple[float, ...], n_cells: int, r: float, records: int, adjacency: str, *, spread: bool = True
) -> LossCurves:
    """What up to `records` records of one person change in a block of cells where they may lie anywhere.

    Parameters
    ----------
    cells : tuple of float
        The smallest prior parameters of the block in rising order, :func:`cells_needed` of them at least.
    n_cells, r, records, adjacency
        Same as in :class:`SpreadRecords`, but one record is enough.
    spread : bool
        False puts all records in one cell, which bounds the curves of the block from below.
    """
    if spread and not lie_in_one_cell(cells[0], r, records):
        return SpreadRecords(cells[: cells_needed(cells, records)], n_cells, r, records, adjacency)
    gains = cells[1] if adjacency_named(adjacency).records_are_public else math.inf
    return DominatingPair(cells[0], gains, records * r)


def cells_needed(cells: tuple[float, ...], records: int) -> int:
    """How many of the smallest prior parameters of a block, in rising order, can decide its curves."""
    together = records == 1 or cells[0] >= _ALWAYS_TOGETHER
    return 2 if together else min(records, _MOST_SPREAD) + 1


def lie_in_one_cell(smallest: float, r: float, records: int) -> bool:
    """Whether every f-divergence is largest with all records of a person in one cell (Theory, Theorems 5 and 9)."""
    if records == 1 or smallest >= _ALWAYS_TOGETHER:
        return True
    return _join(smallest, r, records - 1, 1)


def _join(a: float, r: float, larger: int, smaller: int) -> bool:
    """Whether every f-divergence rises if records in two cells, with parameters of at least `a`, come together."""
    both, one = mean_digamma(a, (larger + smaller) * r), mean_digamma(a, larger * r)
    # Where rounding could hide the answer, it is no: the curves of spread records are the larger ones.
    return both - one <= math.log1p(smaller / larger) - 1e-12 * (1 + abs(both))


@lru_cache(maxsize=128)
def partitions(records: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write a number as a sum of at most so many integers, each in falling order.

    >>> partitions(4, 2)
    ((4,), (3, 1), (2, 2))
    """

    def rest(left: int, largest: int, parts: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        elif parts:
            for first in range(min(left, largest), 0, -1):
                for others in rest(left - first, first, parts - 1):
                    yield first, *others

    return tuple(rest(records, records, parts))


@final
@dataclass(frozen=True)
class SpreadRecords(LossCurves):
    """Several records of one person in a block of cells, where the loss may be larger if they are spread.

    The Rényi divergences are exact for up to 12 records, and bounds beyond. The hockey-stick curve is the largest over
    all ways to spread up to 6 records, and for more the conversion of the Rényi divergences.

    Parameters
    ----------
    cells : tuple of float
        The smallest prior parameters of the block, in rising order; at least two.
    n_cells : int
        How many cells the block has.
    r : float
        The concentration, positive.
    records : int
        The most records of a person, at least 2.
    adjacency : {"replace-one", "add-remove"}

    References
    ----------
    Theory, section 6.
    """

    cells: tuple[float, ...]
    n_cells: int
    r: float
    records: int
    adjacency: str
    from_divergences: ClassVar[bool] = True

    @property
    def _replaced(self) -> bool:
        return adjacency_named(self.adjacency).records_are_public

    @override
    def _renyi(self, order: float) -> float:
        losing = renyi_remove(order, self.cells[0], self.records * self.r)
        if not self._replaced or not math.isfinite(losing):
            return losing
        return losing + gains(order, self.cells[1:], self.n_cells - 1, self.r, self.records)

    @override
    def _rho(self, omega: float) -> float:
        # The divergence over its order is convex in the order (Theory, section 6), so it is largest at an end.
        return max(self._renyi(1.0), self._renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        worst = self._together._delta(epsilon)
        # Up to so many records all ways to spread them are tried, 11 ways for 6 records.
        if self.records > 6:
            bounds = [converted_delta(self._renyi, epsilon), *(pair._delta(epsilon) for pair in self._weaker)]
            return max(worst, min(bounds))
        for spread, divergences in self._spread:
            # A way that cannot be the worst need not be composed.
            if least_log_delta(divergences, epsilon) > math.log(max(worst, 1e-300)):
                worst = max(worst, spread._delta(epsilon))
        return worst

    @override
    def _deltas(self, epsilons: Array) -> Array:
        """Bounds from the divergences, because the exact curve would take too long on a whole grid."""
        bounds = [converted_deltas(self._renyi, epsilons), *(pair._deltas(epsilons) for pair in self._weaker)]
        return np.asarray(np.min(bounds, axis=0))

    @property
    def _together(self) -> DominatingPair:
        """The pair with all records in one cell. It is attained, so no bound is below it."""
        return self._pair(self.cells[0], self.cells[1])

    @property
    def _weaker(self) -> tuple[DominatingPair, ...]:
        """A pair with smaller parameters that bounds every way to spread the records, if there is one."""
        low, high = (min(a, _ALWAYS_TOGETHER - self.records * (_ALWAYS_TOGETHER - a)) for a in self.cells[:2])
        return (self._pair(low, high),) if low > 0 else ()

    def _pair(self, low: float, high: float) -> DominatingPair:
        return DominatingPair(low, high if self._replaced else math.inf, self.records * self.r)

    @cached_property
    def _spread(self) -> tuple[tuple[LossCurves, Array], ...]:
        """Every other way to spread the records, with its divergences at `ORDERS`.

        Cells that gain have the second smallest parameter and cells that lose the smallest; a composition also covers
        the other direction.
        """
        low, high = self.cells[:2]
        lost, won = self._divergences(renyi_remove, low), self._divergences(renyi_add, high)
        lost_back, won_back = self._divergences(renyi_remove, high), self._divergences(renyi_add, low)
        spread: list[tuple[LossCurves, Array]] = []
        for losing, gaining in self._ways():
            parts: list[tuple[LossCurves, int]] = [(DominatingPair(low, math.inf, k * self.r), 1) for k in losing]
            parts += [(DominatingPair(math.inf, high, k * self.r), 1) for k in gaining]
            there = sum(lost[k] for k in losing) + sum(won[k] for k in gaining)
            back = sum(won_back[k] for k in losing) + sum(lost_back[k] for k in gaining)
            spread.append((Composition(tuple(parts)), np.maximum(there, back)))
        return tuple(spread)

    def _divergences(self, divergence: Callable[[float, float, float], float], a: float) -> dict[int, Array]:
        sizes = range(1, self.records + 1)
        return {k: np.array([divergence(order, a, k * self.r) for order in ORDERS.tolist()]) for k in sizes}

    def _ways(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """How many records each cell loses and gains, without the case of one cell each. No cell does both."""
        # A way with two parts that lose more together is never the worst.
        apart = [
            parts
            for parts in partitions(self.records, self.n_cells)
            if not any(_join(self.cells[0], self.r, *two) for two in itertools.combinations(parts, 2))
        ]
        for losing in apart:
            room = self.n_cells - len(losing) if self._replaced else 0
            for gaining in [parts for parts in apart if len(parts) <= room] or [()]:
                if max(len(losing), len(gaining)) > 1:
                    yield losing, gaining


def gains(order: float, cells: tuple[float, ...], n_cells: int, r: float, records: int) -> float:
    """The largest sum of divergences of `n_cells` cells that gain so many records together; a bound for very many.

    `cells` are their smallest prior parameters in rising order. The larger part of a partition belongs into the cell
    with the smaller parameter (Theory, section 6).
    """
    if records > _MOST_SPREAD:
        return _many_gains(order, cells, n_cells, r, records)
    known = [[renyi_add(order, a, k * r) for k in range(1, records // i + 1)] for i, a in enumerate(cells, 1)]
    return max(
        math.fsum(known[i][k - 1] for i, k in enumerate(spread))
        for spread in partitions(records, min(len(cells), n_cells))
    )


def _many_gains(order: float, cells: tuple[float, ...], n_cells: int, r: float, records: int) -> float:
    """A bound for any number of records, of any size.

    The divergence of a gain is first convex and then concave in its size. So no way to share has more divergence than
    equal real shares, and none has more for its size than the steepest.
    """
    a, gain = cells[0], records * r
    if cells[-1] >= _ALWAYS_TOGETHER:
        # Among the cells of 1/2 and more the divergence is largest with all gains in one of them.
        n_cells = min(n_cells, 1 + sum(cell < _ALWAYS_TOGETHER for cell in cells))
    together, steepest = renyi_add(order, a, gain), _steepest(order, a)
    if gain <= steepest or n_cells == 1:
        return together
    share = max(gain / min(records, n_cells), steepest)
    return max(together, gain / share * renyi_add(order, a, share))


@lru_cache(maxsize=512)
def _steepest(order: float, a: float) -> float:
    """The gain that has the most divergence for its size, in a cell with prior parameter below 1/2."""

    def rises(gain: float) -> bool:
        end = max(order, 1 + 1e-6)
        slope = end * float(digamma(a + end * gain) - digamma(a + gain)) / (end - 1)
        return slope * gain > renyi_add(end, a, gain)

    low, high = math.log(a) - 20, math.log(a) + 30
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(math.exp(middle)) else (low, middle)
    return math.exp(high)


# What one person can change in a Dirichlet table: from the blocks of cells of a person to exact privacy curves.
#
# A person's records lie in blocks of cells (see :class:`~pymc_dirdp.privacy.people.Contribution`). Records of
# different blocks cannot meet, so blocks compose. Where only one entry of an axis is this person's, the entry with the
# largest loss counts (Theory, section 6).


# Prior parameters and r lie within these bounds.
LEAST_PARAMETER, MOST_PARAMETER = 1e-100, 1e100

# The smallest prior parameters of a block, and how many blocks of a person have these parameters.
type _Blocks = tuple[tuple[tuple[float, ...], int], ...]


@final
@dataclass(frozen=True)
class PersonalCells:
    """Those cells of a table that decide what one person's records can change.

    Adding the same number to every prior parameter does not change which are the smallest, so a calibration needs to
    look at the table only once.

    Attributes
    ----------
    people : tuple
        The blocks of cells for every kind of person: the smallest prior parameters in rising order, and how many blocks
        have them.
    records : int
        The most records of a person in each block.
    n_cells : int
        How many cells each block has.
    n_records : int, optional
        The public number of records of the table, if it is one row of two cells.
    """

    people: tuple[_Blocks, ...]
    records: int
    n_cells: int
    n_records: int | None = None

    def curves(
        self,
        r: float,
        adjacency: str,
        *,
        more: float = 0.0,
        min_count: float = 0.0,
        spread: bool = True,
    ) -> LossCurves:
        """The privacy curves at the concentration `r`, for prior parameters that a calibration has raised.

        Parameters
        ----------
        r, adjacency, min_count
            Same as in :func:`dominating_pair`.
        more : float
            What is added to every prior parameter, at least 0.
        spread : bool
            False puts all records of each block in one cell, for a quick bound from below.

        Returns
        -------
        curves : LossCurves
            A dominating pair of distributions where a person has one block, and a composition of such pairs otherwise.
            Curves with equal `r` and equal smallest prior parameters are equal.
        """
        # Counts are integers.
        least = math.ceil(min_count)
        members = dict.fromkeys(self._person(blocks, r, adjacency, more, least, spread) for blocks in self.people)
        return next(iter(members)) if len(members) == 1 else Parallel(tuple(members))

    def _person(self, blocks: _Blocks, r: float, adjacency: str, more: float, least: int, spread: bool) -> LossCurves:
        times: Counter[LossCurves] = Counter()
        for cells, count in blocks:
            # The sum is rounded in this order, as if `more` were in the prior: a calibration must see the curves of
            # its result.
            raised = tuple(cell + more + r * least for cell in cells)
            if self.n_records is not None:
                return self._public_row(raised[0], raised[1], r, least)
            times[records_in_cells(raised, self.n_cells, r, self.records, adjacency, spread=spread)] += count
        ((first, count), *others) = times.items()
        return first if count == 1 and not others else Composition(tuple(times.items()))

    def _public_row(self, low: float, high: float, r: float, least: int) -> LossCurves:
        """All records that do not move lie in the cell with the larger prior, but for those that each cell holds."""
        assert self.n_records is not None
        # Both prior parameters have the guaranteed records in them already.
        others = self.n_records - 2 * least
        moving = min(self.records, others)
        # Where every cell holds just what is guaranteed there is one table, and without that many records there is
        # none.
        return DominatingPair(low, high + r * (others - moving), moving * r) if moving > 0 else NoLoss()


def is_binary_row(shape: Sequence[int]) -> bool:
    """Whether a table of this shape has one row of two cells, so that one of them decides the other."""
    return shape[-1] == 2 and math.prod(shape) == 2


def personal_cells(alpha: Array, contribution: Contribution, n_records: int | None = None) -> PersonalCells:
    """Where one person's records may lie in a table with the prior parameters `alpha`, shape (..., d).

    `n_records` is the public number of records of a table with one row of two cells.
    """
    within(LEAST_PARAMETER, MOST_PARAMETER, prior=alpha)
    table = contribution.by_person(alpha)
    most = cells_needed((0.0,), contribution.records)
    smallest = np.sort(np.partition(table, min(most, table.shape[2]) - 1, axis=-1)[..., :most], axis=-1)
    people = dict.fromkeys(_counted(blocks, contribution.records) for blocks in smallest)
    return PersonalCells(_worst(tuple(people)), contribution.records, table.shape[2], n_records)


def _counted(blocks: Array, records: int) -> _Blocks:
    """The distinct smallest prior parameters of the blocks, and how many blocks have them."""
    times: Counter[tuple[float, ...]] = Counter()
    for cells in map(tuple, blocks.tolist()):
        times[cells[: cells_needed(cells, records)]] += 1
    return tuple(sorted(times.items()))


def _worst(people: tuple[_Blocks, ...]) -> tuple[_Blocks, ...]:
    """The people without those whose only block has larger prior parameters than somebody else's (Theorem 3)."""
    if any(len(blocks) > 1 or blocks[0][1] > 1 for blocks in people):
        return people
    worst: list[tuple[float, ...]] = []
    for ((cells, _),) in sorted(people):
        if not any(len(others) == len(cells) and np.all(np.less_equal(others, cells)) for others in worst):
            worst.append(cells)
    return tuple(((cells, 1),) for cells in worst)


def dominating_pair(
    alpha: Array,
    r: float,
    adjacency: str,
    min_count: float = 0.0,
    contribution: Contribution | int = 1,
    n_records: int | None = None,
) -> LossCurves:
    """The privacy curves of what one person can change in the release of a Dirichlet table.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive. Where a person has one record, the rows of a table cost no more than one row.
    r : float
        The concentration, positive.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    min_count : float
        The public guarantee that every cell of every possible data set holds at least this many records.
    contribution : Contribution or int
        What one person can add to the table.
    n_records : int, optional
        The public number of records, under replace-one, of a table with one row of two cells.

    Returns
    -------
    curves : LossCurves
        A dominating pair of distributions, or a composition of them.

    References
    ----------
    Theory, sections 2 and 6.
    """
    person = personal_cells(alpha, Contribution.of(contribution), n_records)
    return person.curves(r, adjacency, min_count=min_count)
