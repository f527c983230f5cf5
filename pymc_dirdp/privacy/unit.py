"""What one person can change in a Dirichlet table: from the blocks of cells of a person to exact privacy curves.

A person's records lie in blocks of cells (see :class:`~pymc_dirdp.privacy.contribution.Contribution`). Records of
different blocks cannot meet, so blocks compose. Entries of which only one is this person's are alternatives, of which
the largest counts (Theory, section 6).
"""

from collections import Counter
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import within
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.several_records import cells_needed, records_in_cells

__all__ = ["LEAST_PARAMETER", "MOST_PARAMETER", "PersonalCells", "dominating_pair", "personal_cells"]

Array = NDArray[np.float64]

# Of a prior parameter and of r.
LEAST_PARAMETER, MOST_PARAMETER = 1e-100, 1e100

# The smallest prior parameters of a block, and how many blocks of a person have the same.
type _Blocks = tuple[tuple[tuple[float, ...], int], ...]


@final
@dataclass(frozen=True)
class PersonalCells:
    """The cells of a table where one person's records may lie, as far as they decide the privacy curves.

    Adding the same number to every prior parameter does not change which are the smallest, so a calibration needs to
    look at the table only once.

    Attributes
    ----------
    people : tuple
        For every kind of person the blocks of cells: the smallest prior parameters in rising order, and how many blocks
        have them.
    records : int
        The most records of a person in each block.
    n_cells : int
        How many cells each block has.
    """

    people: tuple[_Blocks, ...]
    records: int
    n_cells: int

    def curves(
        self, r: float, adjacency: str, *, more: float = 0.0, min_count: float = 0.0, spread: bool = True
    ) -> PrivacyCurves:
        """The privacy curves at the concentration `r`, with `more` added to every prior parameter.

        Parameters
        ----------
        r : float
            The concentration, positive.
        adjacency : {"replace-one", "add-remove"}
        more : float
            At least 0: what a calibration adds.
        min_count : float
            At least 0: how many records every cell holds for certain.
        spread : bool
            False for a bound from below that is quick: all records of each block in one cell.

        Returns
        -------
        curves : PrivacyCurves
            A dominating pair of laws where a person has one block; a composition of such pairs otherwise. They are
            equal where `r` and what matters of the prior parameters are.
        """
        members = dict.fromkeys(
            self._person(blocks, r, adjacency, more, r * min_count, spread) for blocks in self.people
        )
        return next(iter(members)) if len(members) == 1 else Parallel(tuple(members))

    def _person(
        self, blocks: _Blocks, r: float, adjacency: str, more: float, least: float, spread: bool
    ) -> PrivacyCurves:
        times: Counter[PrivacyCurves] = Counter()
        for cells, count in blocks:
            # In this order, as if what is added were the prior: a calibration must see what its result will.
            raised = tuple(cell + more + least for cell in cells)
            times[records_in_cells(raised, self.n_cells, r, self.records, adjacency, spread=spread)] += count
        ((first, count), *others) = times.items()
        return first if count == 1 and not others else Composition(tuple(times.items()))


def personal_cells(alpha: Array, contribution: Contribution) -> PersonalCells:
    """Where one person's records may lie in a table.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive.
    contribution : Contribution
        What one person can add to the table.
    """
    within(LEAST_PARAMETER, MOST_PARAMETER, prior=alpha)
    axes = contribution.fitted(alpha.shape).axes
    own, each = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each"))
    rest = [i for i in range(alpha.ndim) if i not in {*own, *each}]
    lengths = np.array(alpha.shape)
    shape = tuple(int(np.prod(lengths[some])) for some in (own, each, rest))
    # One row of the first axis for each kind of person, of the second for each block of such a person.
    table = alpha.transpose([*own, *each, *rest]).reshape(shape)
    most = cells_needed((0.0,), contribution.records)
    smallest = np.sort(np.partition(table, min(most, shape[2]) - 1, axis=-1)[..., :most], axis=-1)
    people = dict.fromkeys(_counted(blocks, contribution.records) for blocks in smallest)
    return PersonalCells(_worst(tuple(people)), contribution.records, shape[2])


def _counted(blocks: Array, records: int) -> _Blocks:
    """Blocks of the same smallest prior parameters, counted."""
    times: Counter[tuple[float, ...]] = Counter()
    for cells in map(tuple, blocks.tolist()):
        times[cells[: cells_needed(cells, records)]] += 1
    return tuple(sorted(times.items()))


def _worst(people: tuple[_Blocks, ...]) -> tuple[_Blocks, ...]:
    """Without those who have a single block, and in it larger prior parameters than somebody else (Theorem 3)."""
    if any(len(blocks) > 1 or blocks[0][1] > 1 for blocks in people):
        return people
    found: list[tuple[float, ...]] = []
    for ((cells, _),) in sorted(people):
        if not any(len(others) == len(cells) and np.all(np.less_equal(others, cells)) for others in found):
            found.append(cells)
    return tuple(((cells, 1),) for cells in found)


def dominating_pair(
    alpha: Array, r: float, adjacency: str, min_count: float = 0.0, contribution: Contribution | int = 1
) -> PrivacyCurves:
    """What one person can change in the release of a Dirichlet table: the curves, and what decides them.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive. Rows of a table compose in parallel at no cost where a person has one record.
    r : float
        The concentration, positive.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    min_count : float
        The public promise that every cell of every possible data set holds at least this many records.
    contribution : Contribution or int
        What one person can add to the table.

    Returns
    -------
    curves : PrivacyCurves
        A dominating pair of laws, or a composition of them.

    References
    ----------
    Theory, section 2 and 6.
    """
    person = personal_cells(alpha, Contribution.of(contribution))
    return person.curves(r, adjacency, min_count=min_count)
