"""Two neighbouring data sets on which a mechanism shows what it loses."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior
from pymc_dirdp.privacy.contribution import Contribution

__all__ = ["aggregated_laws", "worst_pair"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

# The curve of a record that joins, or that changes rows, is a supremum: it is approached as the row fills up.
_CROWD = 1_000_000
# Up to so many data sets of a finite mechanism are all tried; beyond, corners and the centre.
_MOST_TRIED = 600


def worst_pair(mechanism: Mechanism) -> Pair:
    """Made-up neighbours on which the loss is the largest, or close to it.

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
            return _moved(np.zeros(mechanism.prior.shape), [(0, 1)], 1, mechanism.adjacency)
        case WholePosterior():
            return _finite(mechanism)
    raise ArgumentError(
        f"No pair of data sets is known for a {type(mechanism).__name__}. Pass pair=(x, y), and the release as a "
        "function of the counts."
    )


def _moved(base: Array, moves: list[tuple[int, int]], records: int, adjacency: str) -> Pair:
    """One person's records in the first cell of each move; in the second, or nowhere."""
    x, y = base.copy(), base.copy()
    for a, b in moves:
        x.flat[a] += records
        if adjacency_named(adjacency).records_are_public:
            y.flat[b] += records
    return x, y


def _dirichlet(mechanism: DirichletMechanism) -> Pair:
    d, records = mechanism.alpha.shape[-1], Contribution.of(mechanism.contribution).records
    base = np.full(mechanism.alpha.shape, math.ceil(mechanism.min_count), dtype=np.float64)
    moves = [_two_cells(mechanism.alpha.ravel(), block) for block in _blocks(mechanism)]
    for a, b in moves:
        if mechanism.adjacency == "add-remove":
            _fill(base, a, d)
        elif a // d != b // d:
            _fill(base, a, d)
            _fill(base, b, d)
    return _moved(base, moves, records, mechanism.adjacency)


def _blocks(mechanism: DirichletMechanism) -> NDArray[np.int64]:
    """The cells of every block of the person with the smallest prior parameter, shape ``(blocks, rows, d)``."""
    shape = mechanism.alpha.shape
    axes = Contribution.of(mechanism.contribution).fitted(shape).axes
    smallest = np.unravel_index(int(mechanism.alpha.argmin()), shape)
    fixed = tuple(
        slice(int(i), int(i) + 1) if axis == "own" else slice(None) for i, axis in zip(smallest, axes, strict=False)
    )
    cells = np.arange(mechanism.alpha.size, dtype=np.int64).reshape(shape)[fixed]
    each = [i for i, axis in enumerate(axes) if axis == "each"]
    rest = [i for i in range(len(shape)) if i not in each]
    n_blocks = math.prod(shape[i] for i in each)
    return cells.transpose([*each, *rest]).reshape(n_blocks, -1, shape[-1])


def _two_cells(alpha: Array, block: NDArray[np.int64]) -> tuple[int, int]:
    """The cells of a block with the two smallest prior parameters."""
    order = np.argsort(alpha[block], axis=None, kind="stable")[:2]
    a, b = (int(cell) for cell in block.flat[order])
    # Equal priors leave a choice; two cells of one row attain the supremum.
    least_in_row = np.sort(alpha[block], axis=1)[:, :2]
    rows = np.flatnonzero(np.all(least_in_row == [alpha[a], alpha[b]], axis=1))
    if rows.size:
        row = block[rows[0]]
        a, b = (int(row[i]) for i in np.argsort(alpha[row], kind="stable")[:2])
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
    for counts in data:
        for a in range(d):
            for b in range(d):
                if a != b and counts[a]:
                    moved = np.array(counts, dtype=np.float64)
                    moved[a] -= 1
                    moved[b] += 1
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
