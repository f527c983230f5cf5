"""Two neighbouring data sets on which a mechanism shows what it loses."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.renyi import renyi_add, renyi_remove

__all__ = ["aggregated_laws", "worst_pair"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

# The curve of a record that joins, or that changes rows, is a supremum: it is approached as the row fills up.
_CROWD = 1_000_000
# Up to so many data sets of a finite mechanism are all tried; beyond, corners and the centre.
_MOST_TRIED = 600


def worst_pair(mechanism: Mechanism) -> Pair:
    """Made-up neighbours on which the loss is the largest, or close to it.

    In each block of cells where a person's records may lie anywhere, all of them are in one cell in `x`, and in
    another cell, or nowhere, in `y`.

    Parameters
    ----------
    mechanism : Mechanism
        Any mechanism of this library that releases something.

    Returns
    -------
    x, y : array
        Tables of counts; vectors of probabilities for a `SimplexMechanism`.

    References
    ----------
    Theory, section 2 and 6.
    """
    match mechanism:
        case DirichletMechanism():
            return _dirichlet(mechanism)
        case SimplexMechanism():
            return _simplex(mechanism)
        case NoisyCounts():
            return _noisy(mechanism)
        case WholePosterior():
            return _finite(mechanism)
    raise ArgumentError(
        f"No pair of data sets is known for a {type(mechanism).__name__}. Pass pair=(x, y), and the release as a "
        "function of the counts."
    )


def _blocks(prior: Array, contribution: Contribution, weigh: Callable[[float, float], float]) -> list[NDArray[np.intp]]:
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

    def weight(blocks: list[NDArray[np.intp]]) -> float:
        return math.fsum(weigh(*np.partition(prior.flat[cells], 1)[:2].tolist()) for cells in blocks)

    return max(([block(own, each) for each in along("each")] for own in along("own")), key=weight)


def _moved(base: Array, moves: Sequence[tuple[int, int]], records: int, adjacency: str) -> Pair:
    """One person's records: in each block all in the first cell; in the second, or nowhere."""
    x, y = base.copy(), base.copy()
    for a, b in moves:
        x.flat[a] += records
        if adjacency_named(adjacency).records_are_public:
            y.flat[b] += records
    return x, y


def _noisy(mechanism: NoisyCounts) -> Pair:
    # Noise is the same in all cells.
    contribution = Contribution.of(getattr(mechanism, "contribution", 1))
    blocks = _blocks(mechanism.prior, contribution, lambda *_: 0.0)
    moves = [(int(cells[0]), int(cells[1])) for cells in blocks]
    return _moved(np.zeros(mechanism.prior.shape), moves, contribution.records, mechanism.adjacency)


def _dirichlet(mechanism: DirichletMechanism) -> Pair:
    alpha, d = mechanism.alpha, mechanism.alpha.shape[-1]
    contribution = Contribution.of(mechanism.contribution)
    r, replaced = contribution.records * mechanism.r, mechanism.adjacency == "replace-one"

    def weigh(least: float, second: float) -> float:
        # The Kullback-Leibler divergence, which is always finite.
        return renyi_remove(1.0, least, r) + (renyi_add(1.0, second, r) if replaced else 0.0)

    base = np.full(alpha.shape, math.ceil(mechanism.min_count), dtype=np.float64)
    moves = []
    for cells in _blocks(alpha, contribution, weigh):
        a, b = _two_cells(alpha, cells, d)
        moves.append((a, b))
        if not replaced:
            _fill(base, a, d)
        elif a // d != b // d:
            _fill(base, a, d)
            _fill(base, b, d)
    return _moved(base, moves, contribution.records, mechanism.adjacency)


def _two_cells(alpha: Array, cells: NDArray[np.intp], d: int) -> tuple[int, int]:
    """The two smallest priors of a block. Equal ones leave a choice: two cells of one row attain the supremum."""
    a, b = cells[np.argsort(alpha.flat[cells], kind="stable")[:2]].tolist()
    # A block holds whole rows.
    for row in cells.reshape(-1, d):
        i, j = row[np.argsort(alpha.flat[row], kind="stable")[:2]].tolist()
        if (alpha.flat[i], alpha.flat[j]) == (alpha.flat[a], alpha.flat[b]):
            return i, j
    return a, b


def _fill(base: Array, cell: int, d: int) -> None:
    """Records in the row of this cell, in another cell."""
    row, column = divmod(cell, d)
    base.flat[row * d + (column + 1) % d] += _CROWD


def _simplex(mechanism: SimplexMechanism) -> Pair:
    """All protected entries at the floor, and one step in the first or in the second; the last entry is free."""
    domain = mechanism.domain
    vectors = []
    for position in (0, 1):
        p = np.full(domain.n_protected + 1, domain.eta)
        p[position] += domain.largest_step
        p[-1] = 1 - p[:-1].sum()
        vectors.append(p)
    return vectors[0], vectors[1]


def _finite(mechanism: WholePosterior) -> Pair:
    """The neighbours that are furthest apart at half of the largest loss seen on any."""
    tried = [(x, y, *aggregated_laws(mechanism, x, y)[1:]) for x, y in _few_neighbours(mechanism)]
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = max(float(np.nanmax(np.abs(np.log(p) - np.log(q)))) for _, _, p, q in tried)
    factor = math.exp(min(largest, 600.0) / 2)

    def apart(p: Array, q: Array) -> float:
        return max(float(np.maximum(u - factor * v, 0.0).sum()) for u, v in ((p, q), (q, p)))

    x, y, _, _ = max(tried, key=lambda one: apart(one[2], one[3]))
    return x, y


def _few_neighbours(mechanism: WholePosterior) -> Iterator[Pair]:
    d, n = len(mechanism.prior), mechanism.n_records
    if math.comb(n + d - 1, d - 1) <= _MOST_TRIED:
        data = _all_counts(n, d)
    else:
        centre = np.full(d, n // d)
        centre[0] += n - centre.sum()
        data = [*(n * np.eye(d, dtype=np.int64)), centre]
    records = Contribution.of(getattr(mechanism, "contribution", 1)).records
    for counts in data:
        for a in range(d):
            for b in range(d):
                if a != b and counts[a] >= min(records, n):
                    moved = np.array(counts, dtype=np.float64)
                    moved[a] -= min(records, n)
                    moved[b] += min(records, n)
                    yield np.array(counts, dtype=np.float64), moved


def _all_counts(n: int, d: int) -> list[NDArray[np.int64]]:
    if d == 1:
        return [np.array([n])]
    return [np.concatenate([[first], rest]) for first in range(n + 1) for rest in _all_counts(n - first, d - 1)]


def aggregated_laws(mechanism: WholePosterior, x: Array, y: Array) -> tuple[NDArray[np.int64], Array, Array]:
    """All outcomes once, and their probabilities given x and given y.

    The law of a mechanism may list an outcome more than once; its probability is the sum.
    """
    outcomes, p = mechanism.law(x)
    _, q = mechanism.law(y)
    distinct, which = np.unique(outcomes, axis=0, return_inverse=True)
    of_x, of_y = (np.bincount(which.ravel(), weights=law, minlength=len(distinct)) for law in (p, q))
    return distinct, of_x, of_y
