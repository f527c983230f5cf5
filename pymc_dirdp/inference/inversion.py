"""The distribution of a sum of independent integers from characteristic functions at a few points."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["Inversion", "TooManyNodesError", "reach_of_sum", "refuse_too_many"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Integers = NDArray[np.int64]

# Where the product of characteristic functions stays below exp(-39), the rest of the integral is left out.
_NEGLIGIBLE = -39.0
_IN_A_ROW = 4
# A power of a complex number loses digits; so often it is computed afresh.
_FRESH = 32
# Gauss rules of 12 nodes add up a wave to 15 digits if its phase changes by up to this within a block.
_TURN = 9.0
_MOST_BLOCKS = 50_000
# So many waves are added up before it gives up; that takes some ten seconds. A table is refused before anything is
# drawn where a quarter of them is expected.
_MOST_TURNS = 1.6e9
# Sums of very many cells are nearly normal, and their characteristic functions are small after so many nodes at most.
_NODES_OF_MANY = 64
# So many sums are taken at a time.
_AT_A_TIME = 2**16
# The sum of the centres of all cells, or of all but one, is nearer to that of the means than this.
_ROUNDED = 3
# A sum below this share of its largest possible value is rounding.
_ROUNDING = 1e-15


class TooManyNodesError(ArgumentError):
    """Characteristic functions stay large over too many nodes."""


def _too_many() -> TooManyNodesError:
    return TooManyNodesError(
        "The output says so little about so many records that the counts cannot be summed exactly. Give a prior with "
        "larger parameters, or merge the cells that are nearly empty."
    )


def refuse_too_many(of_some: NumberLaws, cells: int) -> None:
    """Raise the error of :class:`Inversion` for a table of so many cells, from settled distributions of some of them.

    The output later may need more nodes for each cell, so a quarter of the work has to suffice.

    Raises
    ------
    TooManyNodesError
    """
    if _NODES_OF_MANY * cells * (len(of_some.nodes) / of_some.size) > _MOST_TURNS / 4:
        raise _too_many()


class Inversion:
    """Sums of some of the distributions of `cells`, and of all but one, by the trapezoid rule for Fourier's integral.

    With nodes `2 pi j / L` the rule is exact for the sum modulo L; L is so large that what lies a multiple of L away
    from the total has no probability. The error is about 1e-16 of the largest probability of the sum, so it must not
    be used far from the mean of the sum.

    Parameters
    ----------
    cells : NumberLaws
        Settled, at a tilt at which the cells add up to about the total.
    total : int
        The total that sums of all but one cell are compared with.
    of : array of int, optional
        The cells that are summed; all by default.
    most_nodes : int
        After so many nodes it gives up.

    Raises
    ------
    TooManyNodesError
        If the characteristic functions have not become small by then.
    """

    def __init__(self, cells: NumberLaws, total: int, of: Integers | None = None, most_nodes: int = 2**14) -> None:
        self._most_nodes = most_nodes
        self._cells = cells
        self._of = np.arange(cells.size) if of is None else np.sort(of)
        self._place = np.full(cells.size, -1)
        self._place[self._of] = np.arange(len(self._of))
        # Integers near the means, whose sums are near those of the means: rounded one by one, a million means of .4
        # would be wrong by 400,000 together, and the rule would need nodes for that.
        edges = np.round(np.cumsum(cells.means[self._of])).astype(np.int64)
        self._centres = np.zeros(cells.size, dtype=np.int64)
        self._centres[self._of] = np.diff(edges, prepend=0)
        self._centre = int(self._centres[self._of].sum())
        self._total = total
        self._reach = reach_of_sum(cells, self._of)
        self._step = 2 * np.pi / (2 * self._reach + 1)
        self._factors = self._characteristic_functions(cells)
        # The rule of a block adds up a wave exactly if it turns few times within the block.
        longest = _TURN / (self._step * self._factors.shape[1])
        long = cells.block_length > max(longest, 12)
        if long.any():
            if cells.block_length[long].sum() / longest > _MOST_BLOCKS:
                raise _too_many()
            cells.shorten(lambda law, start, end: np.full(law.shape, longest))
            self._factors = self._characteristic_functions(cells)
        product = np.prod(self._factors, axis=0)
        self._weights = np.full(len(product), self._step / np.pi)
        self._weights[0] /= 2
        self._product = product * self._weights
        self.log_bound = float(np.log(np.abs(self._product).sum()))

    def _characteristic_functions(self, cells: NumberLaws) -> Complex:
        """`E exp(i t (x - centre))` of each cell at the nodes, shape `(cells, nodes)`."""
        chosen = self._place[cells.node_law] >= 0
        x = (cells.nodes - self._centres[cells.node_law])[chosen]
        masses = cells.masses[chosen]
        starts = np.searchsorted(cells.node_law[chosen], self._of)
        turn = np.exp(1j * self._step * x)
        columns: list[Complex] = []
        small = 0
        current: Complex = masses.astype(np.complex128)
        for j in range(self._reach + 1):
            if j % _FRESH == 0:
                current[:] = masses * np.exp(1j * self._step * j * x)
            else:
                current *= turn
            columns.append(np.add.reduceat(current, starts))
            size = np.log(np.maximum(np.abs(columns[-1]), 1e-300))
            small = small + 1 if size.sum() - size.min() < _NEGLIGIBLE else 0
            if small == _IN_A_ROW:
                break
            if j == self._most_nodes or j * len(x) > _MOST_TURNS:
                raise _too_many()
        return np.stack(columns, axis=1)

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that the cells add up to each of some totals."""
        distinct, which = np.unique(totals, return_inverse=True)
        coefficients = np.broadcast_to(self._product[:, None], (len(self._product), len(distinct)))
        return self._inverted(coefficients, distinct - self._centre, float(np.exp(self.log_bound)))[which]

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that all cells but this one add up to `total - x`."""
        x, cell = np.broadcast_arrays(x, cell)
        x, cell, shape = x.ravel(), cell.ravel(), x.shape
        found = np.empty(x.size)
        for first in range(0, x.size, _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            found[part] = self._log_rest(x[part], cell[part])
        return found.reshape(shape)

    @cached_property
    def _without(self) -> Complex:
        """Products of the characteristic functions of all cells but one, shape `(nodes, cells)`."""
        ones = np.ones((1, self._factors.shape[1]))
        before = np.cumprod(np.concatenate([ones, self._factors[:-1]]), axis=0)
        after = np.cumprod(np.concatenate([ones, self._factors[:0:-1]]), axis=0)[::-1]
        return np.ascontiguousarray((before * after * self._weights).T)

    def spread(self, low: int, known: Array) -> list[Array]:
        """As :meth:`Convolution.spread`, of cells whose every number is a node."""
        cells = self._cells
        t = self._step * np.arange(len(self._product))
        of_sum = known @ np.exp(-1j * np.outer(np.arange(known.shape[1]), t))
        place, masses = cells.node_law, cells.masses
        turn = np.exp(1j * self._step * (cells.nodes + (self._centre - self._centres)[place] - low))
        value = np.zeros((len(known), len(place)), dtype=np.complex128)
        for j in range(len(self._product) - 1, -1, -1):
            value *= turn
            value += of_sum[:, j, None] * self._without[j][place]
        return np.split(np.maximum(value.real, 0.0) * masses, np.searchsorted(place, np.arange(1, cells.size)), axis=1)

    def _log_rest(self, x: Array, cell: Integers) -> Array:
        others = self._centre - self._centres[cell]
        bound = np.abs(self._without).sum(axis=0)[self._place[cell]]
        return self._inverted(_Columns(self._without, self._place[cell]), self._total - x - others, bound)

    def _inverted(self, coefficients: "Complex | _Columns", distance: Array | Integers, bound: Array | float) -> Array:
        """Logarithm of `Re sum_j c_j exp(-i j step distance)`, by Horner's rule; -inf beyond the period."""
        inside = np.abs(distance) <= self._reach
        turn = np.exp(-1j * self._step * np.where(inside, distance, 0))
        value = np.zeros(len(turn), dtype=np.complex128)
        for j in range(len(self._product) - 1, -1, -1):
            value *= turn
            value += coefficients[j]
        # What is below the rounding of the sum is not known to be positive.
        known = inside & (value.real > _ROUNDING * bound)
        return np.where(known, np.log(np.where(known, value.real, 1.0)), -np.inf)


class _Columns:
    """Row j of a matrix with its columns repeated, made when it is asked for."""

    def __init__(self, matrix: Complex, columns: Integers) -> None:
        self._matrix, self._columns = matrix, columns

    def __getitem__(self, j: int) -> Complex:
        row: Complex = self._matrix[j][self._columns]
        return row


def reach_of_sum(cells: NumberLaws, of: Integers) -> int:
    """How far from its mean the sum may be with a probability that matters: Chernoff's bound, or where numbers end."""
    chosen = np.zeros(cells.size, dtype=bool)
    chosen[of] = True
    inside = chosen[cells.node_law]
    law, masses = cells.node_law[inside], cells.masses[inside]
    x = (cells.nodes - cells.means[cells.node_law])[inside]
    deviation = np.sqrt(cells.variances[of].sum())
    ends = float(np.sum(cells.highs[of] - cells.lows[of])) + 1
    if deviation == 0:
        return int(ends)
    sides = []
    for sign in (-1, 1):
        best = ends
        for strength in (0.25, 0.5, 1.0, 2.0, 4.0):
            rate = strength / deviation
            # The exponent is bounded, because the mass beyond the window is not part of the rule.
            grown = np.bincount(law, masses * np.exp(np.minimum(sign * rate * x, 600.0)), cells.size)[of]
            best = min(best, (np.log(grown).sum() + 45) / rate)
        sides.append(best)
    return int(np.ceil(max(sides))) + _ROUNDED
