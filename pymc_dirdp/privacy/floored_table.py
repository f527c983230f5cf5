"""What one person can change in a table of intensities above a floor: from blocks of cells to privacy curves."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import within
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves
from pymc_dirdp.privacy.floored import ALPHAS, FLOORS, STEPS, FlooredCells

__all__ = ["floored_curves"]


def floored_curves(
    alpha: Array,
    r: float,
    floor: float,
    ceiling: float = math.inf,
    adjacency: str = "replace-one",
    contribution: Contribution | int = 1,
    n_records: int | Sequence[int] | None = None,
) -> PrivacyCurves:
    """The privacy curves of what one person can change in a table of intensities above a floor.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, between 1e-6 and 1e12.
    r : float
        What one record adds to a shape, between 1e-9 and 100.
    floor, ceiling : float
        `floor < ceiling <= inf`, with a floor between 1e-6 and 1e8.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    contribution : Contribution or int
        What one person can add to the table.
    n_records : int or sequence of int, optional
        The public number of records of a row of two cells under replace-one, or of each such row in order, where a
        person has at most one record in a block. It is that of every data set that could occur, so a record moves
        within its row. With several rows of which only the total is public nothing is gained: leave it out.

    Returns
    -------
    curves : PrivacyCurves
        :class:`FlooredCells` for one block of cells, and a composition of them where a person has several blocks. Under
        replace-one a block of a single cell loses nothing.

    Raises
    ------
    ArgumentError
        If a number is outside of these bounds.

    Examples
    --------
    >>> floored_curves(np.full((2, 3), 0.5), 0.65, 8.0).rho(math.inf)
    0.0257...
    """
    within(*ALPHAS, alpha=alpha)
    within(*STEPS, r=r)
    within(*FLOORS, floor=floor)
    contribution = Contribution.of(contribution)
    axes = contribution.fitted(alpha.shape).axes
    own, each = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each"))
    rest = [i for i in range(alpha.ndim) if i not in {*own, *each}]
    shape = tuple(math.prod(alpha.shape[i] for i in some) for some in (own, each, rest))
    # The last axis of each block stays the last one, so a row of two cells stays a row.
    table = alpha.transpose([*own, *each, *rest]).reshape(shape)
    if n_records is None:
        law = (r, floor, ceiling, adjacency, contribution.records)
        return _largest(_of_person(blocks, *law) for blocks in table)
    totals = np.reshape(np.array(n_records, dtype=object), alpha.shape[:-1]).transpose([*own, *each, *rest[:-1]])
    people = zip(table, totals.reshape(shape[0], shape[1], -1).tolist(), strict=True)
    return _largest(_of_public_rows(blocks, numbers, r, floor, ceiling) for blocks, numbers in people)


def _largest(curves: Iterable[PrivacyCurves]) -> PrivacyCurves:
    """The curves of different people, of which the largest counts."""
    distinct = tuple(dict.fromkeys(curves))
    return distinct[0] if len(distinct) == 1 else Parallel(distinct)


def _of_public_rows(blocks: Array, numbers: list[list[int]], r: float, floor: float, ceiling: float) -> PrivacyCurves:
    """The curves of a person with a record in one row of each block, shape (blocks, 2 rows), by the rows' numbers."""
    times: Counter[PrivacyCurves] = Counter()
    for block, of_rows in zip(blocks.reshape(len(blocks), -1, 2).tolist(), numbers, strict=True):
        # Nothing can be told of a row without records.
        rows = (
            FlooredCells((min(row), max(row)), r, floor, ceiling, others=n - 1) if n else NoLoss()
            for row, n in zip(block, of_rows, strict=True)
        )
        times[_largest(rows)] += 1
    (first, count), *more = times.items()
    return first if count == 1 and not more else Composition(tuple(times.items()))


def _of_person(blocks: Array, r: float, floor: float, ceiling: float, adjacency: str, records: int) -> PrivacyCurves:
    """The curves of a person with records in each of some blocks, shape (blocks, cells)."""
    if blocks.shape[1] == 1 and adjacency_named(adjacency).records_are_public:
        return NoLoss()
    times: Counter[tuple[float, ...]] = Counter()
    for block in blocks:
        distinct, count = np.unique(block, return_counts=True)
        times[tuple(np.repeat(distinct, np.minimum(count, 2)).tolist())] += 1
    parts = tuple(
        (FlooredCells(cells, r, floor, ceiling, records, adjacency), count) for cells, count in sorted(times.items())
    )
    return parts[0][0] if len(parts) == 1 and parts[0][1] == 1 else Composition(parts)
