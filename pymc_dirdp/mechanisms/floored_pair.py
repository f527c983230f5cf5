"""Made-up counts at which a floored draw loses most, or close to it: for audits."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array

__all__ = ["floored_pair"]


def floored_pair(
    alpha: Array, r: float, floor: float, moving: Sequence[NDArray[np.intp]], numbers: Sequence[int]
) -> tuple[Array, list[tuple[int, int]]]:
    """The counts of those who stay, and for each block the two cells between which a record moves.

    Parameters
    ----------
    alpha, r, floor
        As of the mechanism.
    moving : sequence of array of int
        The cells of each block of one person's records.
    numbers : sequence of int
        The public number of records of each row of two categories; none if they are unknown.
    """
    # The loss is largest a little above the floor: nearly there for the cell that gains, further up for the other.
    near, far = (floor + k * math.sqrt(floor) for k in (1, 4))
    base = np.zeros(alpha.shape)
    moves = []
    for cells in moving:
        found = _worst_cells(cells, (near + far) / r, numbers)
        if found is None:
            continue
        a, b = found
        for cell, intensity in ((a, near), (b, far)):
            base.flat[cell] = max(round((intensity - alpha.flat[cell]) / r), 0)
        moves.append((a, b))
    rows = base.reshape(-1, base.shape[-1])
    for row, number in enumerate(numbers):
        leaving = sum(cell // 2 == row for cell, _ in moves)
        rows[row, 0] = min(rows[row, 0], max(number - leaving, 0))
        rows[row, 1] = number - leaving - rows[row, 0]
    return base, moves


def _worst_cells(cells: NDArray[np.intp], together: float, numbers: Sequence[int]) -> tuple[int, int] | None:
    """Two cells of a block between which a record moves; None if there is no record.

    Where rows' numbers are public they are those of a row. The worst one has about so many records together as the
    worst counts of any number.
    """
    if not numbers:
        return int(cells[0]), int(cells[1])
    rows = [row for row in cells.reshape(-1, 2).tolist() if numbers[row[0] // 2]]
    if not rows:
        return None
    a, b = min(rows, key=lambda row: abs(math.log(numbers[row[0] // 2] / together)))
    return a, b
