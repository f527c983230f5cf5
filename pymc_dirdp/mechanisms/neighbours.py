"""Made-up neighbouring tables, for a person whose records lie in blocks of cells."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.contribution import Contribution

__all__ = ["blocks", "crowd", "moved", "smallest_two"]

# The curve of a record that joins, or that changes rows, is a supremum: it is approached as the row fills up.
_CROWD = 1_000_000


def blocks(prior: Array, contribution: Contribution, weigh: Callable[[float, float], float]) -> list[NDArray[np.intp]]:
    """The cells of each block of one person's records, for the person whose records show most.

    Along an axis "own" a person has one entry, and the one is taken whose blocks weigh most in all; `weigh` takes the
    two smallest priors of a block.
    """
    axes = contribution.fitted(prior.shape).axes
    positions = np.arange(prior.size).reshape(prior.shape)

    def along(kind: str) -> Iterator[tuple[int, ...]]:
        return product(*(range(n) for axis, n in zip(axes, prior.shape[:-1], strict=True) if axis == kind))

    def block(own: tuple[int, ...], each: tuple[int, ...]) -> NDArray[np.intp]:
        of = {"own": iter(own), "each": iter(each)}
        index = tuple(next(of[axis]) if axis in of else slice(None) for axis in axes)
        return positions[index].ravel()

    def weight(person: list[NDArray[np.intp]]) -> float:
        return math.fsum(weigh(*np.partition(prior.flat[cells], 1)[:2].tolist()) for cells in person)

    return max(([block(own, each) for each in along("each")] for own in along("own")), key=weight)


def moved(base: Array, moves: Sequence[tuple[int, int]], records: int, adjacency: str) -> tuple[Array, Array]:
    """One person's records on top of `base`: in each block all in the first cell; in the second, or nowhere."""
    x, y = base.copy(), base.copy()
    for a, b in moves:
        x.flat[a] += records
        if adjacency_named(adjacency).records_are_public:
            y.flat[b] += records
    return x, y


def smallest_two(alpha: Array, cells: NDArray[np.intp], d: int) -> tuple[int, int]:
    """The two smallest priors of a block. Equal ones leave a choice: two cells of one row attain the supremum."""
    a, b = cells[np.argsort(alpha.flat[cells], kind="stable")[:2]].tolist()
    # A block holds whole rows.
    for row in cells.reshape(-1, d):
        i, j = row[np.argsort(alpha.flat[row], kind="stable")[:2]].tolist()
        if (alpha.flat[i], alpha.flat[j]) == (alpha.flat[a], alpha.flat[b]):
            return i, j
    return a, b


def crowd(base: Array, cell: int, d: int) -> None:
    """Put many records into another cell of the row of this cell, beside which a record that joins shows most."""
    row, column = divmod(cell, d)
    base.flat[row * d + (column + 1) % d] += _CROWD
