"""The likelihood of tables that share one joint noise, as a function of the probabilities of their cells; its gradient.

A table has cells with counts x_k and the public number of records n; its noisy counts z_k add up to n, too. Given the
latent radius r the tables are independent, and every list of noise whose norm is at most the table's limit is as
likely. So with f_k(x) = p_k^x / x! the likelihood is

    S = sum_r w_r prod over tables [ sum_{s <= limit(r)} T(s) ],
    T(s) = n! sum over x at the distance s of prod_k f_k(x_k).

**One table.** Noise that adds up to 0 has the norm s if some cells gain s together and the others lose s. With gains
F_k(v) = f_k(z_k + v), v >= 1, and losses G_k(v) = f_k(z_k - v), v >= 0,

    T(s) = n! sum over sets A of cells of [F_k, k in A, convolved](s) * [G_k, k not in A, convolved](s).

Each set's convolution is that of a smaller set with one more cell; a table of two cells needs none. All terms are
positive, so nothing cancels.

**Scales.** T(s) exp(-(a + b) s) has the gains times exp(-a v) and the losses times exp(-b v). The logarithms of F_k and
G_k are concave, so the best ways to gain and to lose s take the largest steps first, and a and b are the steps that are
next where T is largest: there the sums are of the order of 1. Sums below 1e-200 are left out.

**Gradient.** d log S / d log p_k = E[x_k | z]. The convolutions are run backwards: what each F_k(v) and G_k(v) is
multiplied by in S, times v.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.sampling.discrete_noise import compiled

_SIGNATURE = "(int64[:], int64[:,:], float64[:], float64[:], float64[:], float64[:])"
# Sums below this, where the largest is about 1, are no part of any probability; and smaller ones make products slow.
_SMALLEST = 1e-200
# The logarithm of a probability of 0: nothing of that probability occurs beside anything else.
_NEVER = -1e4


def multiplications(cells: int, reach: int) -> float:
    """How many multiplications the sums of a table take, whose noise has a norm up to `reach`."""
    return (2.0**cells - cells - 2) * (reach + 1) ** 2


@final
@dataclass(frozen=True, eq=False)
class JointRows:
    """The likelihood of tables with public totals given the noisy counts of all, which share one noise.

    Attributes
    ----------
    cells : array of int, shape (tables,)
    limits : array of int, shape (tables, radii)
        The largest norm of each table's noise given each radius.
    log_weights : array, shape (radii,)
    published : tuple
        The noisy counts of all tables side by side; or nothing, where they are an argument of each evaluation.
    """

    cells: Integers
    limits: Integers
    log_weights: Array
    published: tuple[Array, ...] = ()

    @classmethod
    def of(cls, blocks: Sequence[BlockLikelihood], log_weights: Array, *, published: bool) -> Self:
        """That of tables as :meth:`JointNoise.joint_likelihoods` has them."""
        noisy = np.concatenate([block.noisy for block in blocks])
        sizes = np.array([len(block.noisy) for block in blocks], dtype=np.int64)
        return cls(sizes, np.stack([block.limits for block in blocks]), log_weights, (noisy,) * published)

    def likelihood(self, log_shares: ArrayLike, *published: Array) -> tuple[float, Array]:
        """The logarithm of the probability of the noisy counts, and the expected counts: its gradient.

        Parameters
        ----------
        log_shares : array
            Logarithms of the probabilities of all cells, in any shape.
        *published : array
            The noisy counts of all cells, if they are not fixed.
        """
        (noisy,) = published or self.published
        logs, means = np.array(log_shares, dtype=np.float64), np.zeros(np.shape(log_shares))
        if np.isnan(logs).any() or np.isposinf(logs).any():
            return -math.inf, means
        noisy, flat = np.array(noisy, dtype=np.float64).ravel(), means.reshape(-1)
        return _compiled()(self.cells, self.limits, self.log_weights, logs.ravel(), noisy, flat), means

    def compiled(self) -> Callable[..., Any]:
        """The same as a function that Numba calls from compiled code."""
        from numba import njit  # Here, because it takes a second to import.

        tables, cells, limits, weights = _compiled(), self.cells, self.limits, self.log_weights

        @njit
        def likelihood(log_shares: Any, noisy: Any) -> Any:
            means = np.zeros(log_shares.shape)
            for log_share in log_shares.flat:
                if math.isnan(log_share) or log_share == math.inf:
                    return np.asarray(-math.inf), means
            # Copies, because arrays that must not be written to are another type.
            logs, seen = log_shares.copy().reshape(-1), noisy.copy().reshape(-1)
            value = tables(cells.copy(), limits.copy(), weights.copy(), logs, seen, means.reshape(-1))
            return np.asarray(value), means

        if not self.published:
            return likelihood  # type: ignore[no-any-return]
        (output,) = self.published
        return njit(lambda log_shares: likelihood(log_shares, output))  # type: ignore[no-any-return]


@cache
def _compiled() -> Callable[..., Any]:
    return compiled(_SIGNATURE, _tables, _steps, _slopes, _lists, _convolved, _one_table, _backwards)


def _steps(log_p: float, z: float, most: int) -> tuple[Any, Any]:
    """Logarithms of F_k(v) / F_k(v - 1), v = 1, 2, ..., and the same of G_k; counts start at z, or at 0."""
    start = max(z, 0.0)
    gains, losses = np.empty(most), np.full(most, -math.inf)
    for v in range(most):
        gains[v] = log_p - math.log(start + v + 1)
        if v < start:
            losses[v] = math.log(start - v) - log_p
    return gains, losses


def _slopes(gains: Any, losses: Any, least: int, most: int) -> tuple[float, float]:
    """The next steps a and b where T is largest, which gains `least` at least: steps are taken in falling order."""
    cells = len(gains)
    gained, lost = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
    a, b = 0.0, 0.0
    for s in range(1, most + 1):
        more, less, best_more, best_less = -1, -1, -math.inf, -math.inf
        for k in range(cells):
            if gained[k] < most and gains[k, gained[k]] > best_more:
                more, best_more = k, gains[k, gained[k]]
            if lost[k] < most and losses[k, lost[k]] > best_less:
                less, best_less = k, losses[k, lost[k]]
        if less < 0:
            break
        b, lost[less] = best_less, lost[less] + 1
        if s > least:
            a, gained[more] = best_more, gained[more] + 1
            if a + b <= 0:
                break
    return a, b


def _lists(gains: Any, losses: Any, z: Any, a: float, b: float, up: Any, down: Any) -> float:
    """Write the gains and losses of each cell, scaled, and return the logarithm of what they were divided by."""
    cells, most = gains.shape
    scale = 0.0
    for k in range(cells):
        # A count below 0 has to gain first.
        first = int(max(-z[k], 0.0))
        up[k], down[k] = -math.inf, -math.inf
        log = -a * first
        largest = -math.inf
        if first == 0:
            down[k, 0] = largest = 0.0
        elif first <= most:
            up[k, first] = largest = log
        for v in range(first + 1, most + 1):
            log += gains[k, v - first - 1] - a
            up[k, v] = log
            largest = max(largest, log)
        log = 0.0
        for v in range(1, most + 1 if first == 0 else 0):
            log += losses[k, v - 1] - b
            down[k, v] = log
            largest = max(largest, log)
        if largest == -math.inf:
            return -math.inf
        scale += largest
        for v in range(most + 1):
            up[k, v], down[k, v] = math.exp(up[k, v] - largest), math.exp(down[k, v] - largest)
            up[k, v] = up[k, v] if up[k, v] > _SMALLEST else 0.0
            down[k, v] = down[k, v] if down[k, v] > _SMALLEST else 0.0
    return scale


def _convolved(lists: Any, sums: Any) -> None:
    """Write the convolution of the lists of each set of cells but none and all; that of one cell is its list.

    Bit k of the number of a set says whether cell k is in it.
    """
    cells, size = lists.shape
    for one in range(1, 2**cells - 1):
        last = 0
        while one >> (last + 1):
            last += 1
        others = one - (1 << last)
        if others == 0:
            sums[one] = lists[last]
            continue
        found, before = sums[one], sums[others]
        found[:] = 0.0
        for v in range(size):
            weight = lists[last, v]
            if weight > 0:
                for s in range(size - v):
                    found[s + v] += weight * before[s]
        for s in range(size):
            if found[s] < _SMALLEST:
                found[s] = 0.0


def _backwards(lists: Any, sums: Any, adjoints: Any, found: Any) -> None:
    """From what sums of sets are multiplied by to what the lists are multiplied by, which is added to `found`."""
    cells, size = lists.shape
    for one in range(2**cells - 2, 0, -1):
        last = 0
        while one >> (last + 1):
            last += 1
        others = one - (1 << last)
        above, own = adjoints[one], found[last]
        if others == 0:
            for v in range(size):
                own[v] += above[v]
            continue
        below, before = adjoints[others], sums[others]
        for v in range(size):
            weight = lists[last, v]
            if weight > 0:
                for s in range(size - v):
                    below[s] += weight * above[s + v]
        for s in range(size):
            weight = before[s]
            if weight > 0:
                for v in range(size - s):
                    own[v] += weight * above[s + v]


def _one_table(log_p: Any, z: Any, most: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """The gains, losses and their sums over sets, scaled; T scaled; and the logarithms of T over that."""
    cells = len(z)
    gains, losses = np.empty((cells, most)), np.empty((cells, most))
    n, least, constant = 0.0, 0, 0.0
    for k in range(cells):
        gains[k], losses[k] = _steps(log_p[k], z[k], most)
        n += z[k]
        least += int(max(-z[k], 0.0))
        start = max(z[k], 0.0)
        constant += start * log_p[k] - math.lgamma(start + 1)
    a, b = _slopes(gains, losses, least, most)
    up, down = np.empty((cells, most + 1)), np.empty((cells, most + 1))
    constant += _lists(gains, losses, z, a, b, up, down) + math.lgamma(n + 1)
    ups, downs = np.zeros((2**cells, most + 1)), np.zeros((2**cells, most + 1))
    _convolved(up, ups)
    _convolved(down, downs)
    scaled, whole = np.zeros(most + 1), 2**cells - 1
    scaled[0] = 1.0
    for k in range(cells):
        scaled[0] *= down[k, 0]
    for one in range(1, whole):
        for s in range(1, most + 1):
            scaled[s] += ups[one, s] * downs[whole - one, s]
    return up, down, ups, downs, scaled, constant + (a + b) * np.arange(most + 1)


def _tables(cells: Any, limits: Any, log_weights: Any, logs: Any, noisy: Any, means: Any) -> float:
    """`log S` of all tables. The means of the counts are written into `means`."""
    every, inside = [], []
    by_radius = log_weights.copy()
    start = 0
    for table in range(len(cells)):
        end = start + cells[table]
        most = limits[table].max()
        sums = _one_table(np.maximum(logs[start:end], _NEVER), noisy[start:end], most)
        scaled, lines = sums[4], sums[5]
        # Sums up to each norm, as logarithms.
        log_inside = np.empty(most + 1)
        total = -math.inf
        for s in range(most + 1):
            if scaled[s] > 0:
                log = math.log(scaled[s]) + lines[s]
                larger = max(log, total)
                total = larger + math.log(math.exp(log - larger) + math.exp(total - larger))
            log_inside[s] = total
        for r in range(len(by_radius)):
            by_radius[r] += log_inside[limits[table, r]]
        every.append(sums)
        inside.append(log_inside)
        start = end
    largest = by_radius.max()
    if largest == -math.inf:
        means[:] = 0.0
        return -math.inf
    value: float = largest + math.log(np.exp(by_radius - largest).sum())
    start = 0
    for table in range(len(cells)):
        up, down, ups, downs, scaled, lines = every[table]
        d, most = cells[table], len(scaled) - 1
        # What T(s) is multiplied by in S, over S: the radii from the first that allows s on.
        reach, r = -math.inf, len(by_radius) - 1
        factors = np.zeros(most + 1)
        for s in range(most, -1, -1):
            while r >= 0 and limits[table, r] >= s:
                log = by_radius[r] - value - inside[table][limits[table, r]]
                if by_radius[r] > -math.inf:
                    larger = max(log, reach)
                    reach = larger + math.log(math.exp(log - larger) + math.exp(reach - larger))
                r -= 1
            if scaled[s] > _SMALLEST:
                factors[s] = math.exp(reach + lines[s])
        whole = 2**d - 1
        of_ups, of_downs = np.zeros_like(ups), np.zeros_like(downs)
        for one in range(1, whole):
            for s in range(1, most + 1):
                of_ups[one, s] = factors[s] * downs[whole - one, s]
                of_downs[one, s] = factors[s] * ups[whole - one, s]
        of_up, of_down = np.zeros_like(up), np.zeros_like(down)
        _backwards(up, ups, of_ups, of_up)
        _backwards(down, downs, of_downs, of_down)
        for k in range(d):
            mean = noisy[start + k]
            for v in range(1, most + 1):
                mean += v * (up[k, v] * of_up[k, v] - down[k, v] * of_down[k, v])
            means[start + k] = mean
        start += d
    return value
