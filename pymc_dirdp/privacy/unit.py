"""The sensitivity of a table to one person: pairs of distributions for several records, groups and blocks."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, final, override

import numpy as np
from scipy.special import digamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import within
from pymc_dirdp.numerics.gamma import mean_digamma
from pymc_dirdp.numerics.roots import product_above, raised, round_down
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
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name

# Several records of one person that may lie anywhere in a block of cells.
#
# Where the prior parameters are 1/2 or more, or `r` is small against them, the loss is largest with all records in one
# cell (Theory, Theorems 5 and 9). Otherwise it may be larger with the records spread over several cells, and the curves
# here are the largest over all ways to spread them.


# From this prior parameter on the worst case of several records is one cell, for any `r`.
_ONE_CELL_PRIOR = 0.5
# The maximum number of records for which all ways to spread them are tried, for divergences (77 ways).
_MAX_SPREAD = 12


def records_in_cells(
    cells: tuple[float, ...], n_cells: int, r: float, records: int, adjacency: str, *, spread: bool = True
) -> LossCurves:
    """The curves of up to `records` records of one person in a block of cells, where they may lie anywhere.

    Parameters
    ----------
    cells : tuple of float
        At least :func:`cells_needed` of the smallest prior parameters of the block, in ascending order.
    n_cells, r, records, adjacency
        Same as in :class:`SpreadRecords`, but one record is enough.
    spread : bool
        False puts all records in one cell, which bounds the curves of the block from below.
    """
    if spread and not lie_in_one_cell(cells[0], r, records):
        return SpreadRecords(cells[: cells_needed(cells, records)], n_cells, r, records, adjacency)
    gains = cells[1] if adjacency_by_name(adjacency).records_are_public else math.inf
    return DominatingPair(cells[0], gains, product_above(records, r))


def cells_needed(cells: tuple[float, ...], records: int) -> int:
    """The number of the smallest prior parameters of a block, in ascending order, that can decide its curves."""
    in_one_cell = records == 1 or cells[0] >= _ONE_CELL_PRIOR
    return 2 if in_one_cell else min(records, _MAX_SPREAD) + 1


def lie_in_one_cell(smallest: float, r: float, records: int) -> bool:
    """Whether every f-divergence is largest with all records of a person in one cell (Theory, Theorems 5 and 9)."""
    if records == 1 or smallest >= _ONE_CELL_PRIOR:
        return True
    return _prefer_one_cell(smallest, r, records - 1, 1)


def _prefer_one_cell(a: float, r: float, larger: int, smaller: int) -> bool:
    """Whether every f-divergence rises if records in two cells, with parameters of at least `a`, move to one cell."""
    joined, separate = mean_digamma(a, (larger + smaller) * r), mean_digamma(a, larger * r)
    # If rounding could decide, the answer is no: the curves of spread records are larger.
    return joined - separate <= math.log1p(smaller / larger) - 1e-12 * (1 + abs(joined))


@lru_cache(maxsize=128)
def partitions(records: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write a number as a sum of at most `parts` integers, each in descending order.

    >>> partitions(4, 2)
    ((4,), (3, 1), (2, 2))
    """

    def compose(remaining: int, largest: int, parts: int) -> Iterator[tuple[int, ...]]:
        if remaining == 0:
            yield ()
        elif parts:
            for first in range(min(remaining, largest), 0, -1):
                for others in compose(remaining - first, first, parts - 1):
                    yield first, *others

    return tuple(compose(records, records, parts))


@final
@dataclass(frozen=True)
class SpreadRecords(LossCurves):
    """Several records of one person in a block of cells, if the loss may be larger when they are spread.

    The Rényi divergences are exact for up to 12 records, and bounds beyond. The hockey-stick curve is the largest over
    all ways to spread up to 6 records, and for more the conversion of the Rényi divergences.

    Parameters
    ----------
    cells : tuple of float
        At least two of the smallest prior parameters of the block, in ascending order.
    n_cells : int
        The number of cells of the block.
    r : float
        The concentration, positive.
    records : int
        The maximum number of records of a person, at least 2.
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
    uses_renyi_conversion: ClassVar[bool] = True

    @property
    def _is_replacement(self) -> bool:
        return adjacency_by_name(self.adjacency).records_are_public

    @override
    def _renyi(self, order: float) -> float:
        losing = renyi_remove(order, self.cells[0], product_above(self.records, self.r))
        if not self._is_replacement or not math.isfinite(losing):
            return losing
        return losing + gains(order, self.cells[1:], self.n_cells - 1, self.r, self.records)

    @override
    def _rho(self, omega: float) -> float:
        # The divergence over its order is convex in the order (Theory, section 6), so it is largest at an end.
        return max(self._renyi(1.0), self._renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        worst = self._one_cell_pair._delta(epsilon)
        # Up to 6 records all ways to spread them are tried (11 ways).
        if self.records > 6:
            bounds = [converted_delta(self._renyi, epsilon), *(pair._delta(epsilon) for pair in self._bounding_pairs)]
            return max(worst, min(bounds))
        for spread, divergences in self._spread_ways:
            # Skip ways that cannot be the worst.
            if least_log_delta(divergences, epsilon) > math.log(max(worst, 1e-300)):
                worst = max(worst, spread._delta(epsilon))
        return worst

    @override
    def _deltas(self, epsilons: Array) -> Array:
        """Bounds from the divergences, because the exact curve would be too slow on a grid."""
        bounds = [converted_deltas(self._renyi, epsilons), *(pair._deltas(epsilons) for pair in self._bounding_pairs)]
        return np.asarray(np.min(bounds, axis=0))

    @property
    def _one_cell_pair(self) -> DominatingPair:
        """The pair with all records in one cell. It is attained, so no bound is below it."""
        return self._pair(self.cells[0], self.cells[1])

    @property
    def _bounding_pairs(self) -> tuple[DominatingPair, ...]:
        """A pair with smaller parameters that bounds every way to spread the records, if there is one."""
        half = Fraction(_ONE_CELL_PRIOR)
        exact = [half - self.records * (half - Fraction(a)) for a in self.cells[:2]]
        low, high = (min(a, round_down(bound)) for a, bound in zip(self.cells[:2], exact, strict=True))
        return (self._pair(low, high),) if low > 0 else ()

    def _pair(self, low: float, high: float) -> DominatingPair:
        return DominatingPair(low, high if self._is_replacement else math.inf, product_above(self.records, self.r))

    @cached_property
    def _spread_ways(self) -> tuple[tuple[LossCurves, Array], ...]:
        """Every other way to spread the records, with its divergences at `ORDERS`.

        Cells that gain have the second smallest parameter and cells that lose the smallest; a composition also covers
        the other direction.
        """
        low, high = self.cells[:2]
        removals, additions = self._divergences(renyi_remove, low), self._divergences(renyi_add, high)
        reverse_removals, reverse_additions = self._divergences(renyi_remove, high), self._divergences(renyi_add, low)
        ways: list[tuple[LossCurves, Array]] = []
        for losing, gaining in self._ways():
            parts: list[tuple[LossCurves, int]] = [
                (DominatingPair(low, math.inf, product_above(k, self.r)), 1) for k in losing
            ]
            parts += [(DominatingPair(math.inf, high, product_above(k, self.r)), 1) for k in gaining]
            forward = sum(removals[k] for k in losing) + sum(additions[k] for k in gaining)
            backward = sum(reverse_additions[k] for k in losing) + sum(reverse_removals[k] for k in gaining)
            ways.append((Composition(tuple(parts)), np.maximum(forward, backward)))
        return tuple(ways)

    def _divergences(self, divergence: Callable[[float, float, float], float], a: float) -> dict[int, Array]:
        sizes = range(1, self.records + 1)
        return {
            k: np.array([divergence(order, a, product_above(k, self.r)) for order in ORDERS.tolist()]) for k in sizes
        }

    def _ways(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The numbers of records that cells lose and gain, except for one cell each. No cell does both."""
        # A way with two parts that lose more in one cell is never the worst.
        spreads = [
            parts
            for parts in partitions(self.records, self.n_cells)
            if not any(_prefer_one_cell(self.cells[0], self.r, *pair) for pair in itertools.combinations(parts, 2))
        ]
        for losing in spreads:
            n_free = self.n_cells - len(losing) if self._is_replacement else 0
            for gaining in [parts for parts in spreads if len(parts) <= n_free] or [()]:
                if max(len(losing), len(gaining)) > 1:
                    yield losing, gaining


def gains(order: float, cells: tuple[float, ...], n_cells: int, r: float, records: int) -> float:
    """The largest sum of divergences of `n_cells` cells that gain `records` together; a bound for many records.

    `cells` are their smallest prior parameters in ascending order. The larger part of a partition belongs in the cell
    with the smaller parameter (Theory, section 6).
    """
    if records > _MAX_SPREAD:
        return _many_gains(order, cells, n_cells, r, records)
    divergences = [
        [renyi_add(order, a, product_above(k, r)) for k in range(1, records // i + 1)] for i, a in enumerate(cells, 1)
    ]
    return max(
        math.fsum(divergences[i][k - 1] for i, k in enumerate(spread))
        for spread in partitions(records, min(len(cells), n_cells))
    )


def _many_gains(order: float, cells: tuple[float, ...], n_cells: int, r: float, records: int) -> float:
    """A bound for any number of records, of any size.

    The divergence of a gain is first convex and then concave in its size. So no division has more divergence than equal
    real shares, and none has more for its size than the steepest gain.
    """
    a, gain = cells[0], product_above(records, r)
    if cells[-1] >= _ONE_CELL_PRIOR:
        # Among the cells of 1/2 and more the divergence is largest with all gains in one of them.
        n_cells = min(n_cells, 1 + sum(cell < _ONE_CELL_PRIOR for cell in cells))
    in_one_cell, steepest = renyi_add(order, a, gain), _steepest_gain(order, a)
    if gain <= steepest or n_cells == 1:
        return in_one_cell
    share = max(gain / min(records, n_cells), steepest)
    return max(in_one_cell, raised(gain / share * renyi_add(order, a, share), 4))


@lru_cache(maxsize=512)
def _steepest_gain(order: float, a: float) -> float:
    """The gain with the largest divergence for its size, in a cell with prior parameter below 1/2."""

    def rises(gain: float) -> bool:
        end = max(order, 1 + 1e-6)
        slope = end * float(digamma(a + end * gain) - digamma(a + gain)) / (end - 1)
        return slope * gain > renyi_add(end, a, gain)

    low, high = math.log(a) - 20, math.log(a) + 30
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(math.exp(middle)) else (low, middle)
    return math.exp(high)


# The sensitivity of a Dirichlet table to one person: from the blocks of a person to exact privacy curves.
#
# A person's records lie in blocks of cells (see :class:`~pymc_dirdp.privacy.people.Contribution`). Records of
# different blocks are in different cells, so blocks compose. If only one entry of an axis is this person's, the entry
# with the largest loss counts (Theory, section 6).


# Prior parameters and r lie within these bounds.
MIN_PARAMETER, MAX_PARAMETER = 1e-100, 1e100

# The smallest prior parameters of a block, and the number of a person's blocks with these parameters.
type _Blocks = tuple[tuple[tuple[float, ...], int], ...]


@final
@dataclass(frozen=True)
class PersonalCells:
    """The cells of a table that decide its sensitivity to one person.

    Adding the same number to every prior parameter does not change which are the smallest, so a calibration
    reads the table only once.

    Attributes
    ----------
    people : tuple
        The blocks of cells for every kind of person: the smallest prior parameters in ascending order, and the number
        of blocks with them.
    records : int
        The maximum number of records of a person in each block.
    n_cells : int
        The number of cells of each block.
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
        raise_by: float = 0.0,
        min_count: float = 0.0,
        spread: bool = True,
    ) -> LossCurves:
        """The privacy curves at the concentration `r`, for prior parameters that a calibration has raised.

        Parameters
        ----------
        r, adjacency, min_count
            Same as in :func:`dominating_pair`.
        raise_by : float
            A number that is added to every prior parameter, at least 0.
        spread : bool
            False puts all records of each block in one cell, for a quick bound from below.

        Returns
        -------
        curves : LossCurves
            A dominating pair of distributions where a person has one block, and a composition of such pairs otherwise.
            Curves with equal `r` and equal smallest prior parameters are equal.
        """
        # Counts are integers. A parameter that depends on a product with them is rounded down, because losses fall with
        # the parameters, without bound next to a pole.
        min_records = math.ceil(min_count)
        members = dict.fromkeys(
            self._person(blocks, r, adjacency, raise_by, min_records, spread) for blocks in self.people
        )
        return next(iter(members)) if len(members) == 1 else Parallel(tuple(members))

    def _person(
        self, blocks: _Blocks, r: float, adjacency: str, raise_by: float, min_records: int, spread: bool
    ) -> LossCurves:
        parts: Counter[LossCurves] = Counter()
        for cells, count in blocks:
            # `raise_by` is added as it is to the prior: a calibration must see the curves of its result.
            above = tuple(_sum_down(cell + raise_by, r, min_records) for cell in cells)
            if self.n_records is not None:
                return self._public_row(above[0], above[1], r, min_records)
            parts[records_in_cells(above, self.n_cells, r, self.records, adjacency, spread=spread)] += count
        ((first, count), *others) = parts.items()
        return first if count == 1 and not others else Composition(tuple(parts.items()))

    def _public_row(self, low: float, high: float, r: float, min_records: int) -> LossCurves:
        """All other records are in the cell with the larger prior, except for the guaranteed records of each cell."""
        assert self.n_records is not None
        # Both prior parameters already include the guaranteed records.
        others = self.n_records - 2 * min_records
        moving = min(self.records, others)
        # If the cells have only the guaranteed records there is one table, and with fewer records there
        # is none.
        if moving <= 0:
            return NoLoss()
        return DominatingPair(low, _sum_down(high, r, others - moving), product_above(moving, r))


def _sum_down(cell: float, r: float, records: int) -> float:
    """`cell + r * records`, rounded down."""
    return round_down(Fraction(cell) + Fraction(r) * records) if records else cell


def is_binary_row(shape: Sequence[int]) -> bool:
    """Whether a table of this shape has one row of two cells, so that one of them decides the other."""
    return shape[-1] == 2 and math.prod(shape) == 2


def personal_cells(alpha: Array, contribution: Contribution, n_records: int | None = None) -> PersonalCells:
    """The cells for one person's records in a table with the prior parameters `alpha`, shape (..., d).

    `n_records` is the public number of records of a table with one row of two cells.
    """
    within(MIN_PARAMETER, MAX_PARAMETER, prior=alpha)
    table = contribution.by_person(alpha)
    n_smallest = cells_needed((0.0,), contribution.records)
    smallest = np.sort(np.partition(table, min(n_smallest, table.shape[2]) - 1, axis=-1)[..., :n_smallest], axis=-1)
    people = dict.fromkeys(_group_blocks(blocks, contribution.records) for blocks in smallest)
    return PersonalCells(_worst_people(tuple(people)), contribution.records, table.shape[2], n_records)


def _group_blocks(blocks: Array, records: int) -> _Blocks:
    """The distinct smallest prior parameters of the blocks, and how many blocks have them."""
    multiplicity: Counter[tuple[float, ...]] = Counter()
    for cells in map(tuple, blocks.tolist()):
        multiplicity[cells[: cells_needed(cells, records)]] += 1
    return tuple(sorted(multiplicity.items()))


def _worst_people(people: tuple[_Blocks, ...]) -> tuple[_Blocks, ...]:
    """The people except those whose only block has larger prior parameters than somebody else's (Theorem 3)."""
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
    """The privacy curves of the release of a Dirichlet table, for one person's records.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive. If a person has one record, the rows of a table cost no more than one row.
    r : float
        The concentration, positive.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    min_count : float
        The public guarantee that every cell of every possible data set has at least this many records.
    contribution : Contribution or int
        The contribution bound.
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
