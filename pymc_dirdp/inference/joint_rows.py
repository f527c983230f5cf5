"""The likelihood of tables that share one joint noise: compiled sums over all tables near the noisy counts.

A table has cells with counts x_k, a total n, and noisy counts z_k. Given the latent radius r the tables are
independent, and the noise of a table is uniform over all vectors whose norm is at most the table's limit. If each count
has a weight f_k and the total has a weight t, the probability of the output is

    S = sum_r w_r prod over tables [ sum_{s <= limit(r)} T(s) ],
    T(s) = sum over x at distance s of t(n) prod_k f_k(x_k).

With `f(x) = Gamma(x + a) / (x! Gamma(a))` and `t(n) = n! Gamma(A) / Gamma(n + A)` this is the evidence for Dirichlet
priors a with the sum A. With `f(x) = p**x / x!` and `t(n) = n!` it is the likelihood of the probabilities p.

**One table.** Gains g and losses l are the totals by which cells lie above and below their noisy counts. If the noise
sums to 0, both equal the norm. Otherwise the norm is g + l, and the total is that of the noisy counts plus g - l.
Cell k gains v with the weight F_k(v) = f_k(z_k + v), v >= 1, or loses v with G_k(v) = f_k(z_k - v), v >= 0. The sums
over the first cells by g and l form a matrix, which is a sum of products U_j(g) L_j(l). One more cell gives

    sum_j (F * U_j)(g) L_j(l) + U_j(g) (G * L_j)(l),

which has twice as many pairs, one for each set of cells that gain. When there are more pairs than norms the code uses
the matrix itself: its rows are the L_j, and the U_j are unit vectors. All terms are positive, so nothing cancels. The
same steps backwards give the derivatives of S in all F_k(v) and G_k(v). These yield draws and the distributions of all
counts, whose means are the gradient of log S in log p.

**Scales.** Gains are multiplied by exp(-a v) and losses by exp(-b v). The largest terms take the largest steps of the
logarithms of F_k and G_k first (those of their concave hulls, where priors are below 1). The scales a and b are the
next steps where T is largest, so the sums there are of order 1. Sums below 1e-200 are set to 0.
"""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.sampling.bits import compiled


def multiplications(cells: int, reach: int) -> float:
    """Number of multiplications in the sums of a table whose noise has a norm up to `reach`."""
    return float(sum(min(2**k, 2 * (reach + 1)) for k in range(2, cells))) * (reach + 1) ** 2


@dataclass(frozen=True, eq=False)
class CompiledRows(abc.ABC):
    """The likelihood of noisy counts as a compiled program, with its gradient.

    The published arrays are fixed, or are arguments of each evaluation.

    Attributes
    ----------
    published : tuple of array
        The fixed published arrays, noisy counts first. Empty if you pass them to each evaluation.
    """

    published: tuple[Array, ...] = field(default=(), kw_only=True)

    @staticmethod
    @abc.abstractmethod
    def program() -> Callable[..., None]:
        """The compiled program. All its arguments are arrays, so one program serves all rows of this kind.

        They are the logarithms of the weights and an output array for the gradient, both in the shape of the noisy
        counts; an output array with one value for each row, or one value; the published arrays; and the `arrays`.
        """

    @property
    @abc.abstractmethod
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The last arguments of the program."""

    def evaluated(self, log_weights: ArrayLike, *published: Array) -> tuple[Array, Array]:
        """Log-probability of the noisy counts of each row, and its gradient, the expected counts.

        Parameters
        ----------
        log_weights : array_like
            Logarithms of the weights of all cells, in any shape; `-inf` for 0.
        *published : array
            The published arrays, if the attribute is empty.
        """
        values, means = self.evaluate(log_weights, *published, *self.published, *self.arrays)
        return values, means.reshape(np.shape(log_weights))

    @classmethod
    def evaluate(cls, log_weights: ArrayLike, *arguments: NDArray[Any]) -> tuple[Array, Array]:
        """The same from all published and further arrays. The means are in the shape of the noisy counts."""
        shape = arguments[0].shape
        logs = np.ascontiguousarray(log_weights, dtype=np.float64).reshape(shape)
        values, means = np.zeros(max(math.prod(shape[:-1]), 1)), np.zeros(shape)
        cls.program()(logs, means, values, *arguments)
        return values.reshape(shape[:-1]), means

    def likelihood(self, log_weights: ArrayLike, *published: Array) -> tuple[float, Array]:
        """Log-likelihood of all rows together, and its gradient."""
        values, means = self.evaluated(log_weights, *published)
        return float(values.sum()), means


def readonly(kind: str, dimensions: int, layout: str = "A") -> str:
    """The Numba type of an array that may be read-only, such as those of samplers and JAX."""
    return f"Array({kind}, {dimensions}, '{layout}', readonly=True)"


@final
@dataclass(frozen=True, eq=False)
class JointRows(CompiledRows):
    """The likelihood of tables with public totals given the noisy counts of all, which share one noise.

    The logarithms are those of the probabilities of all cells. One array is published, the noisy counts of all tables
    side by side.

    Attributes
    ----------
    cells : array of int, shape (tables,)
    limits : array of int, shape (tables, radii)
        The largest norm of each table's noise given each radius.
    log_weights : array, shape (radii,)
    """

    cells: Integers
    limits: Integers
    log_weights: Array

    @classmethod
    def of(cls, blocks: Sequence[BlockLikelihood], log_weights: Array, *, published: bool) -> Self:
        """Build it from the blocks of :meth:`JointNoise.joint_likelihoods`."""
        noisy = np.concatenate([block.noisy for block in blocks])
        sizes = np.array([len(block.noisy) for block in blocks], dtype=np.int64)
        return cls(sizes, np.stack([block.limits for block in blocks]), log_weights, published=(noisy,) * published)

    @staticmethod
    @override
    def program() -> Callable[..., None]:
        return _likelihood()

    @property
    @override
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.cells, self.limits, self.log_weights


@cache
def _likelihood() -> Callable[..., None]:
    inputs = f"{readonly('float64', 1)}, {readonly('int64', 1)}, {readonly('int64', 2)}, {readonly('float64', 1)}"
    signature = f"({readonly('float64', 1, 'C')}, float64[::1], float64[::1], {inputs})"
    return compiled(signature, _rows, _tables, _added, _table, _backwards, _pulled, *_helpers())


@cache
def summed() -> Callable[..., Any]:
    """:func:`_table`, compiled."""
    square = "float64[:,::1]"
    result = f"Tuple(({square}, {square}, {square}, {square}, int64[:,::1], {square}, float64, float64, float64))"
    signature = f"{result}(float64[::1], boolean, float64[::1], int64, float64[::1], boolean)"
    return compiled(signature, _table, *_helpers())


@cache
def backwards() -> Callable[..., Any]:
    """:func:`_backwards`, compiled."""
    square = "float64[:,::1]"
    squares = ", ".join([square] * 4)
    signature = f"UniTuple({square}, 2)({squares}, int64[:,::1], {square})"
    return compiled(signature, _backwards, _pulled, _product, _end)


@cache
def drawn() -> Callable[..., Any]:
    """:func:`_drawn`, compiled."""
    squares = ", ".join(["float64[:,::1]"] * 4)
    return compiled(f"int64[:,::1]({squares}, int64[:,::1], int64[::1], int64[::1], float64[:,::1])", _drawn, _place)


def _helpers() -> tuple[Callable[..., Any], ...]:
    return _step, _steps, _concave, _slopes, _lists, _end, _convolved, _product, _sums, _ends


def _step(parameter: float, known: bool, x: float) -> float:
    """The logarithm of f(x) / f(x - 1)."""
    return parameter - math.log(x) if known else math.log((x - 1 + parameter) / x)


def _steps(parameter: float, known: bool, z: float, most: int) -> tuple[Any, Any]:
    """Logarithms of F_k(v) / F_k(v - 1) and G_k(v) / G_k(v - 1), v = 1, 2, ...; counts start at z, or at 0."""
    start = max(z, 0.0)
    gains, losses = np.empty(most), np.full(most, -math.inf)
    for v in range(most):
        gains[v] = _step(parameter, known, start + v + 1)
        if v < start:
            losses[v] = -_step(parameter, known, start - v)
    return gains, losses


def _concave(steps: Any) -> Any:
    """The steps of the concave hull. A step larger than those before it is averaged with them."""
    size, blocks = len(steps), 0
    means, lengths = np.empty(size), np.empty(size, dtype=np.int64)
    for step in steps:
        means[blocks], lengths[blocks] = step, 1
        blocks += 1
        while blocks > 1 and means[blocks - 1] > means[blocks - 2]:
            length = lengths[blocks - 2] + lengths[blocks - 1]
            weight = lengths[blocks - 1] / length
            means[blocks - 2] += weight * (means[blocks - 1] - means[blocks - 2])
            lengths[blocks - 2] = length
            blocks -= 1
    return np.repeat(means[:blocks], lengths[:blocks])


def _slopes(gains: Any, losses: Any, least: int, log_totals: Any, zero_sum: bool) -> tuple[float, float]:
    """The last steps a and b before the maximum of T, which gains at least `least`; or the first steps."""
    most, total = gains.shape[1], gains.shape[1] + least
    if most == 0:
        return 0.0, 0.0
    # The steps of a cell never rise, so the largest term takes those of all cells in falling order.
    ups, downs = np.sort(gains.ravel())[::-1], np.sort(losses.ravel())[::-1]
    gained, lost = 0, 0
    for norm in range(1 if zero_sum else least + 1, most + 1):
        up, down = ups[gained], downs[lost]
        gains_more, loses_more = norm > least, True
        if not zero_sum:
            rising = up + log_totals[total + 1] - log_totals[total]
            falling = down + log_totals[total - 1] - log_totals[total]
            if max(rising, falling) <= 0:
                break
            gains_more, loses_more = rising >= falling, rising < falling
        elif down == -math.inf:
            break
        gained, lost, total = gained + gains_more, lost + loses_more, total + gains_more - loses_more
        if zero_sum and gains_more and up + down <= 0:
            break
    down = downs[max(lost - 1, 0)]
    return ups[max(gained - 1, 0)], down if down > -math.inf else 0.0


def _lists(gains: Any, losses: Any, z: Any, a: float, b: float, up: Any, down: Any, smallest: float = 1e-200) -> float:
    """Write the scaled weights of gains and losses of each cell, and return the logarithm of their divisor."""
    cells, most = gains.shape
    scale = 0.0
    for k in range(cells):
        up[k], down[k] = -math.inf, -math.inf
        first = int(max(-z[k], 0.0))
        if first == 0:
            # No change counts as a loss of 0.
            up[k, 1:] = np.cumsum(gains[k] - a)
            down[k, 0], down[k, 1:] = 0.0, np.cumsum(losses[k] - b)
        elif first <= most:
            # A noisy count below 0 must gain.
            up[k, first] = -a * first
            up[k, first + 1 :] = np.cumsum(gains[k, : most - first] - a) - a * first
        largest = max(up[k].max(), down[k].max())
        if largest == -math.inf:
            return -math.inf
        scale += largest
        for changes in (up[k], down[k]):
            changes[:] = np.exp(changes - largest)
            changes[changes <= smallest] = 0.0
    return scale


def _end(values: Any) -> int:
    """Number of values up to the last nonzero one."""
    size = len(values)
    while size and values[size - 1] == 0:
        size -= 1
    return size


def _convolved(values: Any, before: Any, out: Any, room: int, smallest: float = 1e-200) -> None:
    """Add the convolution of two lists to `out`, up to `room` numbers. Tiny numbers are set to 0: they are slow."""
    end = _end(values)
    for s in range(min(_end(before), room)):
        weight = before[s]
        if weight > 0:
            for v in range(min(end, room - s)):
                out[s + v] += weight * values[v]
    for s in range(room):
        if out[s] < smallest:
            out[s] = 0.0


def _product(a: Any, b: Any) -> Any:
    """Product of two matrices, where the first has many zeros. It uses no thread pool of a linear algebra library."""
    product = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            weight = a[i, k]
            if weight != 0:
                for j in range(b.shape[1]):
                    product[i, j] += weight * b[k, j]
    return product


def _sums(up: Any, down: Any, zero_sum: bool, smallest: float = 1e-200) -> tuple[Any, Any, Any]:
    """The lists U and L of all sums, one pair in a row, and the layout of these rows.

    For each cell the layout has the first row before the cell, the number of rows, and the first row after the cell.
    """
    cells, size = up.shape
    layout = np.empty((cells, 3), dtype=np.int64)
    start, rank, rows = 0, 1, 1
    for k in range(cells):
        layout[k, 0], layout[k, 1], layout[k, 2] = start, rank, rows
        start, rank, rows = rows, 2 * rank, rows + 2 * rank
        if rank > size and k < cells - 1:
            start, rank, rows = rows, size, rows + size
    ups, downs = np.zeros((rows, size)), np.zeros((rows, size))
    ups[0, 0] = downs[0, 0] = 1.0
    for k in range(cells):
        start, rank, after = layout[k]
        # If the noise sums to 0, gains and losses are equal after the last cell.
        is_met = zero_sum and k == cells - 1
        for j in range(rank):
            u, l = ups[start + j], downs[start + j]  # noqa: E741  # The formula's letters.
            _convolved(up[k], u, ups[after + j], _end(l) if is_met else size)
            downs[after + j] = l
            _convolved(down[k], l, downs[after + rank + j], _end(u) if is_met else size)
            ups[after + rank + j] = u
        end = after + 2 * rank
        if k < cells - 1 and layout[k + 1, 0] == end:
            square = _product(ups[after:end].T, downs[after:end])
            for s in range(size):
                ups[end + s, s] = 1.0
                for v in range(size):
                    downs[end + s, v] = square[s, v] if square[s, v] > smallest else 0.0
    return ups, downs, layout


def _ends(ups: Any, downs: Any, layout: Any, zero_sum: bool) -> Any:
    """The sums by gains and losses, a square; or one row if gains equal losses."""
    _, rank, after = layout[-1]
    u, l = ups[after : after + 2 * rank], downs[after : after + 2 * rank]  # noqa: E741
    if not zero_sum:
        return _product(u.T, l)
    sums = np.zeros((1, ups.shape[1]))
    for j in range(2 * rank):
        sums[0] += u[j] * l[j]
    return sums


def _table(
    parameters: Any, known: bool, noisy: Any, most: int, log_totals: Any, zero_sum: bool
) -> tuple[Any, Any, Any, Any, Any, Any, float, float, float]:
    """The weights of one table, their sums, the sums by gains and losses, a, b, and the logarithm of the divisor.

    Parameters
    ----------
    parameters : array
        The priors of the shares, or the logarithms of known shares.
    known : bool
        Whether the shares are known.
    noisy : array
    most : int
        The largest norm.
    log_totals : array, shape (2 most + 1,)
        Finite, and near the logarithm of t(n) where t(n) > 0. Ignored if the noise sums to 0.
    zero_sum : bool
        Whether the noise sums to 0.
    """
    cells = len(noisy)
    gains, losses = np.empty((cells, most)), np.empty((cells, most))
    least = 0
    for k in range(cells):
        gains[k], losses[k] = _steps(parameters[k], known, noisy[k], most)
        least += int(max(-noisy[k], 0.0))
    rising, falling = gains.copy(), losses.copy()
    for k in range(0 if known else cells):
        rising[k], falling[k] = _concave(gains[k]), _concave(losses[k])
    a, b = _slopes(rising, falling, least, log_totals, zero_sum)
    up, down = np.empty((cells, most + 1)), np.empty((cells, most + 1))
    scale = _lists(gains, losses, noisy, a, b, up, down)
    ups, downs, layout = _sums(up, down, zero_sum)
    return up, down, ups, downs, layout, _ends(ups, downs, layout, zero_sum), a, b, scale


def _pulled(values: Any, before: Any, after: Any, above: Any, out: Any, passes: bool) -> None:
    """Backpropagate `after` through a convolution: add to the adjoints `above` of `before` and `out` of `values`."""
    # Terms beyond the last nonzero entries contribute nothing.
    reached, end = _end(before), _end(after)
    if passes:
        for v in range(min(_end(values), end)):
            weight = values[v]
            if weight > 0:
                for s in range(min(reached, end - v)):
                    above[s] += weight * after[s + v]
    for s in range(min(reached, end)):
        weight = before[s]
        if weight > 0:
            for v in range(end - s):
                out[v] += weight * after[s + v]


def _backwards(up: Any, down: Any, ups: Any, downs: Any, layout: Any, weights: Any) -> tuple[Any, Any]:
    """Backpropagate weights of the final sums to the gains and losses of each cell."""
    cells, size = up.shape
    of_up, of_down = np.zeros((cells, size)), np.zeros((cells, size))
    _, rank, after = layout[-1]
    # The adjoint of a matrix, and those of the lists whose products it sums.
    square, is_square = weights, len(weights) > 1
    of_u, of_l = np.zeros((2 * rank, size)), np.zeros((2 * rank, size))
    if not is_square:
        for j in range(2 * rank):
            of_u[j], of_l[j] = weights[0] * downs[after + j], weights[0] * ups[after + j]
    for k in range(cells - 1, -1, -1):
        start, rank, after = layout[k]
        if is_square:
            of_u = _product(downs[after : after + 2 * rank], square.T.copy())
            of_l = _product(ups[after : after + 2 * rank], square)
        # Unit vectors are constant and have no adjoint.
        is_square = k > 0 and layout[k - 1, 2] != start
        above_u, above_l = of_u[rank:].copy(), of_l[:rank].copy()
        for j in range(rank):
            _pulled(up[k], ups[start + j], of_u[j], above_u[j], of_up[k], not is_square)
            _pulled(down[k], downs[start + j], of_l[rank + j], above_l[j], of_down[k], True)
        of_u, of_l, square = above_u, above_l, above_l
    return of_up, of_down


def _place(values: Any, others: Any, left: float) -> int:
    """The last place from which products of two lists sum to more than `left`; or the first place with a product."""
    place = 0
    for v in range(len(values) - 1, -1, -1):
        chance = values[v] * others[v]
        if chance > 0:
            left -= chance
            place = v
            if left < 0:
                break
    return place


def _drawn(up: Any, down: Any, ups: Any, downs: Any, layout: Any, gains: Any, losses: Any, uniforms: Any) -> Any:
    """The change of each cell, shape (draws, cells), given the gains and losses of each draw, drawn from the last cell.

    `uniforms` has two numbers for each cell.
    """
    cells = len(up)
    changes = np.zeros((len(gains), cells), dtype=np.int64)
    for i in range(len(gains)):
        g, l, row = gains[i], losses[i], -1  # noqa: E741
        for k in range(cells - 1, -1, -1):
            start, rank, after = layout[k]
            if row < 0:
                u, others = ups[after : after + 2 * rank, g], downs[after : after + 2 * rank, l]
                row = _place(u, others, uniforms[i, 2 * k] * (u * others).sum())
            of_row = uniforms[i, 2 * k + 1]
            if row < rank:
                change = _place(up[k, : g + 1], ups[start + row, g::-1], of_row * ups[after + row, g])
                g, changes[i, k] = g - change, change
            else:
                change = _place(down[k, : l + 1], downs[start + row - rank, l::-1], of_row * downs[after + row, l])
                row, l, changes[i, k] = row - rank, l - change, -change  # noqa: E741
            # The matrix before this cell is again a sum over pairs.
            if k > 0 and layout[k - 1, 2] != start:
                row = -1
    return changes


def _added(a: float, b: float) -> float:
    """The logarithm of a sum from those of its terms. The first must be finite."""
    larger = max(a, b)
    return larger + math.log(math.exp(a - larger) + math.exp(b - larger))


def _rows(logs: Any, means: Any, values: Any, noisy: Any, cells: Any, limits: Any, log_weights: Any) -> None:
    """Write `log S` of all tables to `values`, and the means of the counts to `means`."""
    values[0] = _tables(logs, means, noisy, cells, limits, log_weights)


def _tables(logs: Any, means: Any, noisy: Any, cells: Any, limits: Any, log_weights: Any) -> float:
    """Return `log S` of all tables, and write the means of the counts to `means`."""
    if np.isnan(logs).any() or logs.max() == math.inf:
        return -math.inf
    # Stands for the logarithm of a probability of 0, so that all sums stay finite.
    log_zero = -1e4
    tables, inside = [], []
    by_radius = log_weights.copy()
    start = 0
    for table in range(len(cells)):
        end = start + cells[table]
        most = limits[table].max()
        log_p, z = np.maximum(logs[start:end], log_zero), noisy[start:end].copy()
        sums = _table(log_p, True, z, most, np.zeros(1), True)
        scaled, lines = sums[5], sums[8] + (sums[6] + sums[7]) * np.arange(most + 1)
        n = 0.0
        for k in range(len(z)):
            first = max(z[k], 0.0)
            lines += first * log_p[k] - math.lgamma(first + 1)
            n += z[k]
        lines += math.lgamma(n + 1)
        # Sums up to each norm, as logarithms.
        log_inside = np.empty(most + 1)
        total = -math.inf
        for s in range(most + 1):
            if scaled[0, s] > 0:
                total = _added(math.log(scaled[0, s]) + lines[s], total)
            log_inside[s] = total
        for r in range(len(by_radius)):
            by_radius[r] += log_inside[limits[table, r]]
        tables.append(sums)
        inside.append((log_inside, lines))
        start = end
    largest = by_radius.max()
    if largest == -math.inf:
        return -math.inf
    value: float = largest + math.log(np.exp(by_radius - largest).sum())
    start = 0
    for table in range(len(cells)):
        up, down, ups, downs, layout, scaled = tables[table][:6]
        log_inside, lines = inside[table]
        most = scaled.shape[1] - 1
        # The factor of T(s) in S, divided by S: a sum over all radii that allow s.
        reach, r = -math.inf, len(by_radius) - 1
        factors = np.zeros((1, most + 1))
        for s in range(most, -1, -1):
            while r >= 0 and limits[table, r] >= s:
                if by_radius[r] > -math.inf:
                    reach = _added(by_radius[r] - value - log_inside[limits[table, r]], reach)
                r -= 1
            if scaled[0, s] > 0:
                factors[0, s] = math.exp(reach + lines[s])
        of_up, of_down = _backwards(up, down, ups, downs, layout, factors)
        for k in range(cells[table]):
            mean = noisy[start + k]
            for v in range(1, most + 1):
                mean += v * (up[k, v] * of_up[k, v] - down[k, v] * of_down[k, v])
            means[start + k] = mean
        start += cells[table]
    return value
