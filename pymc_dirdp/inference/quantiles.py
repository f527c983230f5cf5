"""Quantiles of counts, and of shares that are mixtures of Beta distributions over a count."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaincinv, betaln, expit, log_expit, logit

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import InternalError
from pymc_dirdp.inference.numbers import Distributions

# A distribution function, its density, and the slope of that.
type _Values = tuple[Array, Array, Array]

# Nodes with less mass are left out of a mixture.
_NEGLIGIBLE = 1e-12
# Numbers, or nodes, that are looked at one by one at a time.
_AT_A_TIME = 2**16
# Nodes a step apart of this share of the width of a function add up smooth functions of the count exactly: for a normal
# density the error is exp(-2 (pi / 0.9)^2), about 3e-11.
_STRIDE = 0.9
# With more steps the blocks' nodes are fewer.
_MOST_STRIDES = 256
_NODES = 12
# With a larger error the sums are no sums over all counts.
_TRAPEZOID = 1e-10
# Above this logit a share is 1, and below its negative, where no double holds all digits, it is called 0. Beta
# distributions whose parameters are not below the second number have nothing there.
_FARTHEST, _SHALLOW = 708.0, 0.1
# The search ends at so small a part of a level, or of what is above it. After so many steps each other one halves the
# range, and so many halve the longest to two neighbouring doubles.
_CLOSE, _SURE_STEPS, _MOST_STEPS = 1e-10, 6, 160
# No quantile is returned that is farther from its level.
_LARGEST_ERROR = 1e-8
# Beyond so many deviations there is less than the error that is allowed.
_FAR = 7.0
# Below this parameter, deviations say too little of a Beta distribution's tails.
_FEW = 10


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixtures of Beta distributions, one for each of `size` cells.

    Attributes
    ----------
    first, second : array, shape (m,)
        Parameters of the Beta distributions. The second is 0 in a row of one category, whose share is 1.
    masses : array, shape (m,)
        Their masses, which add up to 1 for every cell.
    cell : array of int, shape (m,)
        The cell of each.
    size : int
    tails : array, shape (m,), optional
        Where the Beta distributions are runs of which the second parameter rises by 1: the mass of all that follow each
        in its run, over its second parameter. As `I(a, b + 1) - I(a, b) = p**a (1 - p)**b / (b B(a, b))`, one
        distribution function a run is enough.
    runs : array of bool, shape (m,), optional
        The first of each run.
    """

    first: Array
    second: Array
    masses: Array
    cell: Integers
    size: int
    tails: Array | None = field(default=None, repr=False)
    runs: NDArray[np.bool_] | None = field(default=None, repr=False)

    @classmethod
    def of_counts(cls, alpha: Array, counts: Array, others: Array, masses: Array, cell: Integers) -> "Mixture":
        """The shares of cells that hold so many records while the other cells of their row hold so many.

        The priors have the shape (rows, d).
        """
        # Sums of the parameters before and after each, because a difference would lose the digits of small ones.
        rest = np.zeros(alpha.shape)
        rest[:, 1:] += np.cumsum(alpha[:, :-1], axis=1)
        rest[:, :-1] += np.cumsum(alpha[:, :0:-1], axis=1)[:, ::-1]
        return cls(alpha.ravel()[cell] + counts, rest.ravel()[cell] + others, masses, cell, alpha.size)

    def part(self, take: NDArray[np.bool_]) -> "Mixture":
        """Some of the Beta distributions."""
        tails, runs = (None, None) if self.tails is None or self.runs is None else (self.tails[take], self.runs[take])
        return Mixture(self.first[take], self.second[take], self.masses[take], self.cell[take], self.size, tails, runs)

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
        # The sum of the masses is 1 but for rounding, and the share of the only cell of a row is 1 without.
        whole = np.bincount(self.cell, self.masses, self.size)
        size, share = self.first + self.second, self.first / (self.first + self.second)
        mean = np.bincount(self.cell, self.masses * share, self.size) / whole
        spread = share * (self.second / size) / (size + 1) + (share - mean[self.cell]) ** 2
        return mean, np.bincount(self.cell, self.masses * spread, self.size) / whole


def count_quantiles(marginals: Distributions, levels: Array) -> Integers:
    """The least count with at least so much probability up to it, shape `(levels, d)`."""
    cumulative = np.cumsum(marginals.block_mass)
    first = np.searchsorted(marginals.block_distribution, np.arange(marginals.size))
    before = (cumulative - marginals.block_mass)[first]
    ends = np.append(first[1:], len(cumulative)) - 1
    wanted = before + levels[:, None] * (cumulative[ends] - before)
    block = np.clip(np.searchsorted(cumulative, wanted), first, ends).ravel()
    short = (wanted.ravel() - (cumulative - marginals.block_mass)[block]) / (cumulative[ends] - before)[
        marginals.block_distribution[block]
    ]
    found = np.empty(len(block), dtype=np.int64)
    # Quantiles in the order of the lengths of their blocks, a few at a time.
    order = np.argsort(marginals.block_length[block], kind="stable")
    room = np.cumsum(marginals.block_length[block][order]) // _AT_A_TIME
    for part in np.split(order, np.flatnonzero(np.diff(room)) + 1):
        found[part] = _inside(marginals, block[part], short[part])
    return found.reshape(wanted.shape)


def _inside(marginals: Distributions, block: Integers, mass: Array) -> Integers:
    """In each block, the least number with so much mass from the start of the block up to it."""
    length = marginals.block_length[block]
    offsets = np.cumsum(length) - length
    which = np.repeat(np.arange(len(block)), length)
    x = marginals.block_start[block][which] + np.arange(length.sum()) - offsets[which]
    cumulative = np.cumsum(np.exp(marginals.log_pmf(x.astype(np.float64), marginals.block_distribution[block][which])))
    before = np.concatenate([[0.0], cumulative])[offsets]
    place = np.searchsorted(cumulative, before + mass * (1 - 1e-14))
    found: Integers = marginals.block_start[block] + np.clip(place - offsets, 0, length - 1)
    return found


def share_mixture(marginals: Distributions, alpha: Array, totals: Integers) -> Mixture:
    """Nodes of the counts that add up functions which vary no faster than the distribution of a share.

    The priors have the shape (rows, d).

    Away from the ends of the counts, equal steps do: the error of the trapezoid rule falls faster than any power of the
    step. What is summed is the probability of the count times the distribution function of the Beta distribution. Its
    width is that of the product of two normal functions, which is less than the deviation of either. Where the
    distributions of the counts have kinks, or counts near the ends matter, the blocks' nodes are taken.
    """
    low, high = marginals.lows.astype(np.float64), marginals.highs.astype(np.float64)
    concentration = np.repeat(alpha.sum(axis=1) + totals, alpha.shape[1])
    total, sds = np.repeat(totals, alpha.shape[1]), np.sqrt(marginals.variances)
    # Joint noise lists counts above the total, too, which have a probability of 0.
    edge = np.maximum(np.minimum(low, total - high), 0) + alpha.ravel()
    beta_sds = np.sqrt(edge * (1 - np.minimum(edge / concentration, 0.5)))
    width = beta_sds * sds / np.maximum(np.hypot(beta_sds, sds), 1e-300)
    stride = np.maximum(1, np.floor(_STRIDE * width))
    steps = np.floor((high - low) / stride).astype(np.int64) + 1
    fits = steps <= _MOST_STRIDES
    cell = np.repeat(np.flatnonzero(fits), steps[fits])
    first = np.cumsum(np.where(fits, steps, 0)) - steps
    x = low[cell] + stride[cell] * (np.arange(len(cell)) - first[cell])
    mass = stride[cell] * np.exp(marginals.log_pmf(x, cell))
    # The error may vanish in the sum and be there in the mean, or the other way round.
    off = np.bincount(cell, mass, marginals.size) - 1, np.bincount(cell, mass * (x - marginals.means[cell]), alpha.size)
    fits &= (np.abs(off[0]) < _TRAPEZOID) & (np.abs(off[1]) < _TRAPEZOID * np.maximum(sds, 1))
    if not fits.all():
        # Blocks no longer than some deviations of the Beta distribution of a share: above the least count, and where
        # few records are left, every count is a node.
        def limit(cell: Integers, start: Integers, end: Integers) -> Array:
            longest = 4 * np.sqrt(np.maximum(np.minimum(start, total[cell] - end), 0) + _NODES * 0.75)
            return np.asarray(np.where(fits[cell], np.inf, longest))

        marginals.shorten(limit)
    take, rest = (
        fits[cell] & (mass > _NEGLIGIBLE),
        ~fits[marginals.node_distribution] & (marginals.masses > _NEGLIGIBLE),
    )
    counts = np.concatenate([x[take], marginals.nodes[rest]])
    masses = np.concatenate([mass[take], marginals.masses[rest]])
    cells = np.concatenate([cell[take], marginals.node_distribution[rest]])
    return Mixture.of_counts(alpha, counts, total[cells] - counts, masses, cells)


def share_quantiles(mixture: Mixture, levels: Array) -> Array:
    """Quantiles of the mixture of every cell, shape `(levels, d)`, for levels in (0, 1)."""
    if not mixture.second.any():
        return np.ones((len(levels), mixture.size))
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
    """Quantiles, from that of the Beta distribution with the mean and variance of the mixture.

    What is found is checked.
    """
    mean, variance = mixture.moments
    # Whatever goes wrong here is seen by the check.
    with np.errstate(all="ignore"):
        size = np.maximum(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1, 1e-300)
        guess = betaincinv(np.maximum(size * mean, 1e-12), np.maximum(size * (1 - mean), 1e-12), levels[:, None])
        t = np.nan_to_num(np.clip(logit(guess), -_FARTHEST, _FARTHEST))
        t, value = _root(mixture, levels, t)
    # Levels next to one another may have their quantiles exchanged within the accuracy of both.
    order = np.argsort(levels)
    t[order], value[order] = np.sort(t, axis=0), np.sort(value, axis=0)
    off = value - levels[:, None]
    beyond = np.where(t <= -_FARTHEST, off > 0, (t >= _FARTHEST) & (off < 0))
    if not np.all(beyond | (np.abs(off) < _LARGEST_ERROR)):
        raise InternalError("The end of a credible interval of shares was not found. Please report this.")
    shares: Array = np.where(np.abs(t) < _FARTHEST, expit(t), t > 0)
    return shares


def _root(mixture: Mixture, levels: Array, start: Array) -> tuple[Array, Array]:
    """The logits at which the distributions of the cells have their levels, and what they have there.

    Newton's method between two logits around each, which are halved if it does not end soon.
    """
    t, level = start.copy(), np.broadcast_to(levels[:, None], start.shape)
    low, high = np.full(t.shape, -_FARTHEST), np.full(t.shape, _FARTHEST)
    found, active = np.full(t.shape, np.nan), np.ones(t.shape, dtype=bool)
    if min(mixture.first.min(), mixture.second.min()) < _SHALLOW:
        for end in (low, high):
            value, _, _ = _distribution(mixture, end, active[0])
            past = active & ((value > level) if end is low else (value < level))
            t[past], found[past], active[past] = end[past], value[past], False
    close = _CLOSE * np.minimum(level, 1 - level)
    for step in range(_MOST_STEPS):
        rows, cells = active.any(axis=1), active.any(axis=0)
        if not rows.any():
            break
        value, slope, curvature = _distribution(mixture, t[rows], cells)
        now, error = active[rows], level[rows] - value
        found[rows] = np.where(now, value, found[rows])
        low[rows] = np.where(now & (error > 0), t[rows], low[rows])
        high[rows] = np.where(now & (error <= 0), t[rows], high[rows])
        # Newton's method for the logit of the distribution function, which is nearly a line in both tails, with
        # Halley's correction: the error after the step is of the third order.
        spare = value * (1 - value)
        first, second = slope / spare, curvature / spare - slope**2 * (1 - 2 * value) / spare**2
        newton = (logit(level[rows]) - logit(value)) / first
        new = t[rows] + newton / np.maximum(1 + newton * second / (2 * first), 0.5)
        middle = (low[rows] + high[rows]) / 2
        useful = (new > low[rows]) & (new < high[rows]) & (step < _SURE_STEPS or step % 2 == 0)
        new = np.where(useful, new, middle)
        now = now & (np.abs(error) > close[rows]) & (low[rows] < middle) & (middle < high[rows])
        active[rows] = now
        t[rows] = np.where(now, new, t[rows])
    return t, found


def _distribution(mixture: Mixture, t: Array, cells: NDArray[np.bool_]) -> _Values:
    """Distribution function, density and its slope at the logits t of the shares, for the marked cells."""
    if not cells.all():
        mixture = mixture.part(cells[mixture.cell])
    cell, masses, shape = mixture.cell, mixture.masses, t.shape
    if mixture.tails is not None and mixture.runs is not None:
        return _of_runs(mixture, mixture.tails, np.flatnonzero(mixture.runs), t)
    normal, few = _paulson(mixture, t), np.minimum(mixture.first, mixture.second) < _FEW
    row, near = np.nonzero((np.abs(normal) < _FAR) | few)
    place = row * mixture.size + cell[near]
    x, y, at = mixture.first[near], mixture.second[near], t.ravel()[place]
    log_density = x * log_expit(t).ravel()[place] + y * log_expit(-t).ravel()[place] - mixture.log_beta[near]
    density = masses[near] * np.exp(log_density)
    # Shares above a half by what is left of 1, which keeps its digits.
    below, low = np.empty(len(at)), at < 0
    below[low], below[~low] = betainc(x[low], y[low], expit(at[low])), betaincc(y[~low], x[~low], expit(-at[~low]))
    # Nodes far below the share count in full and those far above not at all.
    whole = np.stack([np.bincount(cell, np.where(one > 0, masses, 0.0), mixture.size) for one in normal])
    corrected = masses[near] * (below - (normal[row, near] > 0))
    parts = (corrected, density, density * (x * expit(-at) - y * expit(at)))
    value, slope, curvature = (np.bincount(place, part, t.size).reshape(shape) for part in parts)
    return (whole + value) / np.bincount(cell, masses, mixture.size), slope, curvature


def _of_runs(mixture: Mixture, tails: Array, runs: Integers, t: Array) -> _Values:
    """The same of runs of Beta distributions."""
    value, slope, curvature = np.zeros(t.shape), np.zeros(t.shape), np.zeros(t.shape)
    size, cell, x, y = mixture.size, mixture.cell, mixture.first, mixture.second
    whole = np.add.reduceat(mixture.masses, runs)
    total = np.bincount(cell, mixture.masses, size)
    for row, at in enumerate(t):
        p, q = expit(at), expit(-at)
        density = np.exp(x * log_expit(at)[cell] + y * log_expit(-at)[cell] - mixture.log_beta)
        # Shares above a half by what is left of 1, which keeps its digits.
        low, high = betainc(x[runs], y[runs], p[cell[runs]]), betaincc(y[runs], x[runs], q[cell[runs]])
        first = np.bincount(cell[runs], whole * np.where(at[cell[runs]] < 0, low, high), size)
        value[row] = (first + np.bincount(cell, tails * density, size)) / total
        density *= mixture.masses
        slope[row] = np.bincount(cell, density, size) / total
        curvature[row] = np.bincount(cell, density * (x * q[cell] - y * p[cell]), size) / total
    return value, slope, curvature


def _paulson(mixture: Mixture, t: Array) -> Array:
    """Numbers that are nearly normal if the logits t are those of the Beta variables: from the cube roots of the odds.

    Paulson (1942), An approximate normalization of the analysis of variance distribution.
    """
    root = np.exp(t / 3)[:, mixture.cell] * mixture.odds_root
    first, second = 1 / (9 * mixture.first), 1 / (9 * mixture.second)
    return np.asarray(((1 - second) * root - (1 - first)) / np.hypot(np.sqrt(second) * root, np.sqrt(first)))
