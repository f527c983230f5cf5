"""Made-up neighbouring tables, for a person whose records lie in blocks of cells."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.contribution import Contribution

__all__ = ["blocks", "moved"]


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
