"""Quantiles of counts, and of shares that are mixtures of Beta laws over a count."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, betaln, expit, log_expit, logit, ndtr

from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["Mixture", "count_quantiles", "share_mixture", "share_quantiles"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# A distribution function, its density, and the slope of that.
type _Values = tuple[Array, Array, Array]

# Nodes with less mass are left out of a mixture.
_NEGLIGIBLE = 1e-12
# Numbers, or nodes, that are looked at one by one at a time.
_AT_A_TIME = 2**16
# Nodes a step apart of this share of the deviation of a Beta law add up smooth functions of the count exactly.
_STRIDE = 0.9
# With more steps the blocks' nodes are fewer.
_MOST_STRIDES = 256
_NODES = 12
_LEAST_LOGIT = -700.0
_MOST_STEPS = 200
# How far from its level a quantile may be.
_STEP = 1e-10
_FAR = 7.0
# Below so many records, deviations say too little of a Beta law's tails.
_FEW = 10


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixtures of Beta laws, one for each of `size` cells.

    Attributes
    ----------
    first, second : array, shape (m,)
        Parameters of the Beta laws.
    masses : array, shape (m,)
        Their masses, which add up to 1 for every cell.
    cell : array of int, shape (m,)
        The cell of each.
    size : int
    """

    first: Array
    second: Array
    masses: Array
    cell: Integers
    size: int

    def part(self, kept: NDArray[np.bool_]) -> "Mixture":
        """Some of the Beta laws."""
        return Mixture(self.first[kept], self.second[kept], self.masses[kept], self.cell[kept], self.size)

    @cached_property
    def log_beta(self) -> Array:
        """Logarithms of the Beta functions of the parameters."""
        return np.asarray(betaln(self.first, self.second))

    @cached_property
    def odds_root(self) -> Array:
        """Cube roots of the odds of the second parameter."""
        return np.cbrt(self.second / self.first)

    @property
    def moments(self) -> tuple[Array, Array]:
        """Means and variances of the shares, shape (size,)."""
        if self.size == 1:
            # The share of the only cell of a row is 1.
            return np.ones(1), np.zeros(1)
        size = self.first + self.second
        mean = np.bincount(self.cell, self.masses * self.first / size, self.size)
        spread = self.first * self.second / (size**2 * (size + 1)) + (self.first / size - mean[self.cell]) ** 2
        return mean, np.bincount(self.cell, self.masses * spread, self.size)


def count_quantiles(marginals: NumberLaws, levels: Array) -> Integers:
    """The least count with at least so much probability up to it, shape `(levels, d)`."""
    cumulative = np.cumsum(marginals.block_mass)
    first = np.searchsorted(marginals.block_law, np.arange(marginals.size))
    before = (cumulative - marginals.block_mass)[first]
    ends = np.append(first[1:], len(cumulative)) - 1
    wanted = before + levels[:, None] * (cumulative[ends] - before)
    block = np.clip(np.searchsorted(cumulative, wanted), first, ends).ravel()
    short = (wanted.ravel() - (cumulative - marginals.block_mass)[block]) / (cumulative[ends] - before)[
        marginals.block_law[block]
    ]
    found = np.empty(len(block), dtype=np.int64)
    # Quantiles in the order of the lengths of their blocks, a few at a time.
    order = np.argsort(marginals.block_length[block], kind="stable")
    room = np.cumsum(marginals.block_length[block][order]) // _AT_A_TIME
    for part in np.split(order, np.flatnonzero(np.diff(room)) + 1):
        found[part] = _inside(marginals, block[part], short[part])
    return found.reshape(wanted.shape)


def _inside(marginals: NumberLaws, block: Integers, mass: Array) -> Integers:
    """In each block, the least number with so much mass from the start of the block up to it."""
    length = marginals.block_length[block]
    offsets = np.cumsum(length) - length
    which = np.repeat(np.arange(len(block)), length)
    x = marginals.block_start[block][which] + np.arange(length.sum()) - offsets[which]
    cumulative = np.cumsum(np.exp(marginals.log_pmf(x.astype(np.float64), marginals.block_law[block][which])))
    before = np.concatenate([[0.0], cumulative])[offsets]
    place = np.searchsorted(cumulative, before + mass * (1 - 1e-14))
    found: Integers = marginals.block_start[block] + np.clip(place - offsets, 0, length - 1)
    return found


def share_mixture(marginals: NumberLaws, alpha: Array, total: int) -> Mixture:
    """Nodes of the counts that add up functions of the count which vary no faster than a Beta law's distribution.

    Away from the ends of the counts, equal steps of a part of the Beta law's deviation do: the error of the trapezoid
    rule falls faster than any power of the step. Where counts near 0 matter the blocks' nodes are taken.
    """
    low, high = marginals.lows.astype(np.float64), marginals.highs.astype(np.float64)
    concentration = alpha.sum() + total
    edge = np.minimum(low, total - high) + alpha
    stride = np.maximum(1, np.floor(_STRIDE * np.sqrt(edge * (1 - np.minimum(edge / concentration, 0.5)))))
    steps = np.floor((high - low) / stride).astype(np.int64) + 1
    fits = steps <= _MOST_STRIDES
    cell = np.repeat(np.flatnonzero(fits), steps[fits])
    first = np.cumsum(np.where(fits, steps, 0)) - steps
    x = low[cell] + stride[cell] * (np.arange(len(cell)) - first[cell])
    mass = stride[cell] * np.exp(marginals.log_pmf(x, cell))
    fits &= np.abs(np.bincount(cell, mass, marginals.size) - 1) < 1e-9
    if not fits.all():
        # The blocks' rules, with blocks that are no longer than some deviations of the Beta law.
        marginals.shorten(lambda law, start: np.where(fits[law], np.inf, 4 * np.sqrt(start + _NODES)))
    kept, rest = fits[cell] & (mass > _NEGLIGIBLE), ~fits[marginals.node_law] & (marginals.masses > _NEGLIGIBLE)
    counts = np.concatenate([x[kept], marginals.nodes[rest]])
    masses = np.concatenate([mass[kept], marginals.masses[rest]])
    cells = np.concatenate([cell[kept], marginals.node_law[rest]])
    first = alpha[cells] + counts
    return Mixture(first, concentration - first, masses, cells, marginals.size)


def share_quantiles(mixture: Mixture, levels: Array) -> Array:
    """Quantiles of the mixture of every cell, shape `(levels, d)`, for levels in (0, 1)."""
    if mixture.size == 1:
        # The share of the only cell is 1, which is no Beta law.
        return np.ones((len(levels), 1))
    found = np.empty((len(levels), mixture.size))
    nodes = np.bincount(mixture.cell, minlength=mixture.size)
    # Cells one after the other, and levels too where a single cell has many nodes: memory for a bounded number of both.
    groups = np.split(np.arange(mixture.size), np.flatnonzero(np.diff(np.cumsum(nodes) // _AT_A_TIME)) + 1)
    for cells in groups:
        inside = (mixture.cell >= cells[0]) & (mixture.cell <= cells[-1])
        part = replace(mixture.part(inside), cell=mixture.cell[inside] - cells[0], size=len(cells))
        together = max(1, 8 * _AT_A_TIME // int(inside.sum()))
        for first in range(0, len(levels), together):
            found[first : first + together, cells] = _quantiles(part, levels[first : first + together])
    return found


def _quantiles(mixture: Mixture, levels: Array) -> Array:
    """Newton's method, from the quantile of the Beta law with the mean and variance of the mixture."""
    mean, variance = mixture.moments
    size = np.maximum(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1, 1e-300)
    guess = betaincinv(np.maximum(size * mean, 1e-12), np.maximum(size * (1 - mean), 1e-12), levels[:, None])
    t = np.clip(logit(guess), _LEAST_LOGIT, -_LEAST_LOGIT)
    spread = np.sqrt(variance) / np.maximum(mean * (1 - mean), 1e-300)
    # The search for the neighbourhood takes an approximation, because the distribution functions take most of the time.
    for exact, most_steps, nearest in ((False, 4, 1e-2), (True, _MOST_STEPS, _STEP ** (1 / 3))):
        t = _newton(partial(_distribution, mixture, exact), levels, t, nearest * spread, most_steps)
    return np.where(t <= _LEAST_LOGIT + 1, 0.0, np.where(t >= -_LEAST_LOGIT - 1, 1.0, expit(t)))


def _newton(
    distribution: Callable[..., _Values], levels: Array, start: Array, nearest: Array, most_steps: int
) -> Array:
    """The logits at which the distributions of the cells have their levels; a step below `nearest` is the last."""
    t, level = start.copy(), np.broadcast_to(levels[:, None], start.shape)
    low, high = np.full(t.shape, _LEAST_LOGIT), np.full(t.shape, -_LEAST_LOGIT)
    active = np.ones(t.shape, dtype=bool)
    for _ in range(most_steps):
        rows = active.any(axis=1)
        cells = active.any(axis=0)
        value, slope, curvature = distribution(t[rows], cells)
        error = level[rows] - value
        low[rows] = np.where((error > 0) & active[rows], t[rows], low[rows])
        high[rows] = np.where((error <= 0) & active[rows], t[rows], high[rows])
        # Newton's method for the logit of the distribution function, which is nearly a line in both tails, with
        # Halley's correction: the error after the step is of the third order.
        spare = value * (1 - value)
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = slope / spare, curvature / spare - slope**2 * (1 - 2 * value) / spare**2
            newton = (logit(level[rows]) - logit(value)) / first
            step = newton / np.maximum(1 + newton * second / (2 * first), 0.5)
        step = np.where(np.isfinite(step), step, np.inf)
        new = t[rows] + step
        good = (new > low[rows]) & (new < high[rows])
        done = (good & (np.abs(step) < nearest)) | (high[rows] - low[rows] < 1e-9)
        t[rows] = np.where(active[rows], np.where(good, new, (low[rows] + high[rows]) / 2), t[rows])
        active[rows] &= ~done
        if not active.any():
            break
    return t


def _distribution(mixture: Mixture, exact: bool, t: Array, cells: NDArray[np.bool_]) -> _Values:
    """Distribution function, density and its slope at the logits t of the shares, for the marked cells."""
    if not cells.all():
        mixture = mixture.part(cells[mixture.cell])
    cell, masses, shape = mixture.cell, mixture.masses, t.shape
    normal = _paulson(mixture, t)
    # Beyond so many standard deviations there is less than the error that is allowed.
    row, near = np.nonzero((np.abs(normal) < _FAR) | (np.minimum(mixture.first, mixture.second) < _FEW))
    place = row * mixture.size + cell[near]
    x, y, q = mixture.first[near], mixture.second[near], expit(t).ravel()[place]
    log_density = x * log_expit(t).ravel()[place] + y * log_expit(-t).ravel()[place] - mixture.log_beta[near]
    density = masses[near] * np.exp(log_density)
    below = betainc(x, y, q) if exact else ndtr(normal[row, near])
    # Nodes far below the share count in full and those far above not at all.
    whole = np.stack([np.bincount(cell, np.where(one > 0, masses, 0.0), mixture.size) for one in normal])
    corrected = masses[near] * (below - (normal[row, near] > 0))
    parts = (corrected, density, density * (x * (1 - q) - y * q))
    value, slope, curvature = (np.bincount(place, part, t.size).reshape(shape) for part in parts)
    return whole + value, slope, curvature


def _paulson(mixture: Mixture, t: Array) -> Array:
    """Numbers that are nearly normal if the logits t are those of the Beta variables: from the cube roots of the odds.

    Paulson (1942), An approximate normalization of the analysis of variance distribution.
    """
    root = np.exp(t / 3)[:, mixture.cell] * mixture.odds_root
    first, second = 1 / (9 * mixture.first), 1 / (9 * mixture.second)
    return np.asarray(((1 - second) * root - (1 - first)) / np.hypot(np.sqrt(second) * root, np.sqrt(first)))
