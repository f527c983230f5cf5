"""What one person can change in a Dirichlet table: from the blocks of cells of a person to exact privacy curves.

A person's records lie in blocks of cells (see :class:`~pymc_dirdp.privacy.contribution.Contribution`). Records of
different blocks cannot meet, so blocks compose. Where only one entry of an axis is this person's, the entry with the
largest loss counts (Theory, section 6).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import within
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves
from pymc_dirdp.privacy.dominating_pairs import PublicRowPair
from pymc_dirdp.privacy.several_records import cells_needed, records_in_cells

__all__ = ["LEAST_PARAMETER", "MOST_PARAMETER", "PersonalCells", "dominating_pair", "is_binary_row", "personal_cells"]

# Prior parameters and r lie within these bounds.
LEAST_PARAMETER, MOST_PARAMETER = 1e-100, 1e100

# The smallest prior parameters of a block, and how many blocks of a person have these parameters.
type _Blocks = tuple[tuple[tuple[float, ...], int], ...]


@final
@dataclass(frozen=True)
class PersonalCells:
    """Those cells of a table that decide what one person's records can change.

    Neither adding the same number to every prior parameter nor raising the small ones to one level changes which are
    the smallest, so a calibration needs to look at the table only once.

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
        level: float = 0.0,
        min_count: float = 0.0,
        spread: bool = True,
    ) -> PrivacyCurves:
        """The privacy curves at the concentration `r`, for prior parameters that a calibration has raised.

        Parameters
        ----------
        r, adjacency, min_count
            Same as in :func:`dominating_pair`.
        more : float
            What is added to every prior parameter, at least 0.
        level : float
            What smaller prior parameters are raised to before that, at least 0.
        spread : bool
            False puts all records of each block in one cell, for a quick bound from below.

        Returns
        -------
        curves : PrivacyCurves
            A dominating pair of distributions where a person has one block, and a composition of such pairs otherwise.
            Curves with equal `r` and equal smallest prior parameters are equal.
        """
        # Counts are whole numbers.
        least = math.ceil(min_count)
        members = dict.fromkeys(
            self._person(_levelled(blocks, level), r, adjacency, more, least, spread) for blocks in self.people
        )
        return next(iter(members)) if len(members) == 1 else Parallel(tuple(members))

    def _person(
        self, blocks: _Blocks, r: float, adjacency: str, more: float, least: int, spread: bool
    ) -> PrivacyCurves:
        times: Counter[PrivacyCurves] = Counter()
        for cells, count in blocks:
            # The sum is rounded in this order, as if `more` were in the prior: a calibration must see the curves of
            # its result.
            raised = tuple(cell + more + r * least for cell in cells)
            if self.n_records is not None:
                return self._public_row(raised[0], raised[1], r, least)
            times[records_in_cells(raised, self.n_cells, r, self.records, adjacency, spread=spread)] += count
        ((first, count), *others) = times.items()
        return first if count == 1 and not others else Composition(tuple(times.items()))

    def _public_row(self, low: float, high: float, r: float, least: int) -> PrivacyCurves:
        """All records that do not move lie in the cell with the larger prior, but for those that each cell holds."""
        assert self.n_records is not None
        # Both prior parameters have the promised records in them already.
        others = self.n_records - 2 * least
        moving = min(self.records, others)
        # Where every cell holds just what is promised there is one table, and without that many records there is none.
        return PublicRowPair(low, high + r * (others - moving), moving * r) if moving > 0 else NoLoss()


def _levelled(blocks: _Blocks, level: float) -> _Blocks:
    """The blocks with no prior parameter below the level."""
    return tuple((tuple(max(cell, level) for cell in cells), count) for cells, count in blocks) if level else blocks


def is_binary_row(shape: Sequence[int]) -> bool:
    """Whether a table of this shape has one row of two cells, so that one of them decides the other."""
    return shape[-1] == 2 and math.prod(shape) == 2


def personal_cells(alpha: Array, contribution: Contribution, n_records: int | None = None) -> PersonalCells:
    """Where one person's records may lie in a table with the prior parameters `alpha`, shape (..., d).

    `n_records` is the public number of records of a table with one row of two cells.
    """
    within(LEAST_PARAMETER, MOST_PARAMETER, prior=alpha)
    axes = contribution.fitted(alpha.shape).axes
    own, each = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each"))
    rest = [i for i in range(alpha.ndim) if i not in {*own, *each}]
    lengths = np.array(alpha.shape)
    shape = tuple(int(np.prod(lengths[some])) for some in (own, each, rest))
    # The first axis has an entry for each kind of person, the second one for each block of such a person.
    table = alpha.transpose([*own, *each, *rest]).reshape(shape)
    most = cells_needed((0.0,), contribution.records)
    smallest = np.sort(np.partition(table, min(most, shape[2]) - 1, axis=-1)[..., :most], axis=-1)
    people = dict.fromkeys(_counted(blocks, contribution.records) for blocks in smallest)
    return PersonalCells(_worst(tuple(people)), contribution.records, shape[2], n_records)


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
) -> PrivacyCurves:
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
    curves : PrivacyCurves
        A dominating pair of distributions, or a composition of them.

    References
    ----------
    Theory, sections 2 and 6.
    """
    person = personal_cells(alpha, Contribution.of(contribution), n_records)
    return person.curves(r, adjacency, min_count=min_count)
