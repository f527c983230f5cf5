"""Quantiles of counts, and of shares that are mixtures of Beta distributions over a count."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaincinv, betaln, expit, log_expit, logit

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import InternalError
from pymc_dirdp.inference.numbers import NODES, Lists, block_rule

# A distribution function, its density, and the slope of that.
type _Values = tuple[Array, Array, Array]

# Above this logit a share is 1, and below its negative, where doubles lose digits, it is 0.
_FARTHEST = 708.0


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixtures of Beta distributions, one for each of `size` cells.

    Attributes
    ----------
    first, second : array, shape (m,)
        Parameters of the Beta distributions. The second is 0 in a row of one category, whose share is 1.
    masses : array, shape (m,)
        Their masses, which sum to 1 for every cell.
    cell : array of int, shape (m,)
        The cell of each Beta distribution.
    size : int
    """

    first: Array
    second: Array
    masses: Array
    cell: Integers
    size: int

    def part(self, take: NDArray[np.bool_]) -> "Mixture":
        """A subset of the Beta distributions."""
        return Mixture(self.first[take], self.second[take], self.masses[take], self.cell[take], self.size)

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
        # Division removes the rounding error of the masses, so the share of the only cell of a row is exactly 1.
        whole = np.bincount(self.cell, self.masses, self.size)
        size, share = self.first + self.second, self.first / (self.first + self.second)
        mean = np.bincount(self.cell, self.masses * share, self.size) / whole
        spread = share * (self.second / size) / (size + 1) + (share - mean[self.cell]) ** 2
        return mean, np.bincount(self.cell, self.masses * spread, self.size) / whole


def count_quantiles(levels: Array, *counts: Lists, shares: Sequence[Array] = ()) -> Integers:
    """The smallest count whose cumulative probability is at least the level, shape `(levels, d)`.

    Parameters
    ----------
    levels : array
    *counts : Lists
        The distributions of d counts, or the components of mixtures.
    shares : sequence of array, shape (d,)
        The weights of the components.
    """
    d = counts[0].size
    cell, level = np.tile(np.arange(d), len(levels)), np.repeat(levels, d) * (1 - 1e-14)
    # The quantile of a mixture lies between those of its components.
    lows, highs = zip(*(_bracket(part, cell, level) for part in counts), strict=True)
    low: Integers = np.stack(lows).min(axis=0)
    high: Integers = np.stack(highs).max(axis=0)
    active = np.flatnonzero(low < high)
    while len(active):
        middle, cells_left = (low[active] + high[active]) // 2, cell[active]
        probability = np.zeros(len(active))
        for number, part in enumerate(counts):
            probability += probability_up_to(part, cells_left, middle) * (shares[number][cells_left] if shares else 1.0)
        enough = probability >= level[active]
        high[active], low[active] = np.where(enough, middle, high[active]), np.where(enough, low[active], middle + 1)
        active = active[low[active] < high[active]]
    quantiles: Integers = low.reshape(len(levels), d)
    return quantiles


def _bracket(counts: Lists, cell: Integers, level: Array) -> tuple[Integers, Integers]:
    """Lower and upper bounds on quantiles of some distributions."""
    cell_of_piece, start, length, mass = counts.pieces
    cumulative, first = np.cumsum(mass), np.searchsorted(cell_of_piece, np.arange(counts.size + 1))
    before = (cumulative - mass)[first[:-1]]
    piece = np.clip(np.searchsorted(cumulative, before[cell] + level), first[cell], first[cell + 1] - 1)
    within = counts.reaching(piece, level - (cumulative - mass)[piece] + before[cell])
    # Rounding in a sum over all distributions may shift a quantile to the next piece.
    low, high = (start[piece] + end for end in within)
    low = np.where(within[0] == 0, start[np.maximum(piece - 1, first[cell])], low)
    after = np.minimum(piece + 1, first[cell + 1] - 1)
    return low, np.where(within[1] == length[piece] - 1, start[after] + length[after] - 1, high)


def probability_up_to(counts: Lists, cell: Integers, x: Integers) -> Array:
    """The cumulative probability of each number x in the distribution of its cell."""
    cell_of_piece, start, length, mass = counts.pieces
    cumulative, first = (
        np.concatenate([[0.0], np.cumsum(mass)]),
        np.searchsorted(cell_of_piece, np.arange(counts.size + 1)),
    )
    # The numbers of all distributions are in one array.
    place = np.concatenate([[0], np.cumsum(counts.highs - counts.lows + 1)]) - np.append(counts.lows, 0)
    before = np.searchsorted(
        place[cell_of_piece] + start, place[cell] + np.minimum(x, counts.highs[cell]), side="right"
    )
    piece = np.maximum(before - 1, first[cell])
    room = np.clip(x - start[piece] + 1, 0, length[piece])
    whole = room == length[piece]
    probabilities: Array = cumulative[piece + whole] - cumulative[first[cell]]
    parts = np.flatnonzero(~whole & (room > 0))
    probabilities[parts] += counts.first_of(piece[parts], room[parts])
    return probabilities


def sums_of_others(alpha: Array) -> Array:
    """For each parameter the sum of the others in its row, shape (rows, d)."""
    # Sums of those before and after, because a difference would lose the digits of small parameters.
    sums = np.zeros(alpha.shape)
    sums[:, 1:] += np.cumsum(alpha[:, :-1], axis=1)
    sums[:, :-1] += np.cumsum(alpha[:, :0:-1], axis=1)[:, ::-1]
    return sums


def share_mixture(
    counts: Lists, priors: tuple[Array, Array], totals: Integers, units: Array, *, negligible: float = 1e-12
) -> Mixture:
    """The mixture of Beta distributions of each share, over the values or quadrature nodes of its count.

    The priors are those of each cell and of all others in its row. Counts and totals are in `units` of records. Nodes
    with a negligible mass are left out.

    The distribution of a share given a count x of n has a width of about `sqrt(x (1 - x / n))` counts, and its product
    with the distribution of the count is no wider. So the nodes are all integers, or those of a Gauss rule in blocks of
    a few such widths.
    """
    x, cell, masses = counts.x, counts.cell, counts.masses
    if not counts.are_whole:
        x, cell, masses = _nodes_of_short_blocks(counts, totals, units)
    take = masses > negligible
    x, cell, masses = x[take], cell[take], masses[take]
    first, second = units[cell] * x, units[cell] * (totals[cell] - x)
    alphas, others = priors
    return Mixture(alphas[cell] + first, others[cell] + second, masses, cell, counts.size)


def _nodes_of_short_blocks(counts: Lists, total: Integers, unit: Array) -> tuple[Array, Integers, Array]:
    """Gauss nodes of blocks that are short relative to the width of a share, their cells, and their masses."""
    cell, first, size, _ = counts.pieces
    piece = np.arange(len(cell))
    parts: list[tuple[Array, Integers, Array]] = []
    while len(piece):
        last = first + size - 1
        records = unit[cell[piece]] * np.maximum(np.minimum(first, total[cell[piece]] - last), 0)
        long = (size > NODES) & (size * unit[cell[piece]] > 4 * np.sqrt(records + 9))
        for length in np.unique(size[~long]).tolist():
            chosen = np.flatnonzero(~long & (size == length))
            offsets, rule = block_rule(length)
            x, piece_of_node = (first[chosen, None] + offsets).ravel(), np.repeat(piece[chosen], NODES)
            parts.append((x, cell[piece_of_node], np.tile(rule, len(chosen)) * counts.densities(x, piece_of_node)))
        piece, half = np.repeat(piece[long], 2), np.repeat(size[long] // 2, 2)
        first = np.stack([first[long], first[long] + size[long] // 2], axis=1).ravel()
        size = half
    x, cells, masses = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(cells, kind="stable")
    return x[order], cells[order], masses[order]


def share_quantiles(mixture: Mixture, levels: Array, *, at_a_time: int = 2**19) -> Array:
    """Quantiles of the mixture of every cell, shape `(levels, d)`, for levels in (0, 1), `at_a_time` nodes at once."""
    if not mixture.second.any():
        return np.ones((len(levels), mixture.size))
    together = max(1, at_a_time // len(mixture.masses))
    parts = [_quantiles(mixture, levels[first : first + together]) for first in range(0, len(levels), together)]
    return np.concatenate(parts)


def _quantiles(mixture: Mixture, levels: Array, *, largest_error: float = 1e-8) -> Array:
    """Quantiles, searched from those of the Beta distribution with the mean and variance of the mixture.

    The function verifies that each has its level to `largest_error`.
    """
    mean, variance = mixture.moments
    # The verification below detects all numerical failures.
    with np.errstate(all="ignore"):
        size = np.maximum(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1, 1e-300)
        guess = betaincinv(np.maximum(size * mean, 1e-12), np.maximum(size * (1 - mean), 1e-12), levels[:, None])
        t = np.nan_to_num(np.clip(logit(guess), -_FARTHEST, _FARTHEST))
        t, value = _root(mixture, levels, t)
    # Quantiles of adjacent levels may be in the wrong order within their accuracy.
    order = np.argsort(levels)
    t[order], value[order] = np.sort(t, axis=0), np.sort(value, axis=0)
    off = value - levels[:, None]
    beyond = np.where(t <= -_FARTHEST, off > 0, (t >= _FARTHEST) & (off < 0))
    if not np.all(beyond | (np.abs(off) < largest_error)):
        raise InternalError("The search for a credible interval of shares did not converge. Please report this.")
    shares: Array = np.where(np.abs(t) < _FARTHEST, expit(t), t > 0)
    return shares


def _root(
    mixture: Mixture, levels: Array, start: Array, *, closeness: float = 1e-10, sure_steps: int = 6, steps: int = 160
) -> tuple[Array, Array]:
    """The logits at which the distribution functions of the cells equal the levels, and their values there.

    Bracketed Newton steps, until the error is at most `closeness` times the smaller of a level and one minus the level.
    After `sure_steps` every second step bisects, and `steps` are enough to bisect down to neighbouring doubles.
    """
    t, level = start.copy(), np.broadcast_to(levels[:, None], start.shape)
    low, high = np.full(t.shape, -_FARTHEST), np.full(t.shape, _FARTHEST)
    values, active = np.full(t.shape, np.nan), np.ones(t.shape, dtype=bool)
    # Only distributions with a parameter below .1 have mass beyond the ends.
    if min(mixture.first.min(), mixture.second.min()) < 0.1:
        for end in (low, high):
            value, _, _ = _distribution(mixture, end, active[0])
            past = active & ((value > level) if end is low else (value < level))
            t[past], values[past], active[past] = end[past], value[past], False
    close = closeness * np.minimum(level, 1 - level)
    for step in range(steps):
        rows, cells = active.any(axis=1), active.any(axis=0)
        if not rows.any():
            break
        value, slope, curvature = _distribution(mixture, t[rows], cells)
        is_active, error = active[rows], level[rows] - value
        values[rows] = np.where(is_active, value, values[rows])
        low[rows] = np.where(is_active & (error > 0), t[rows], low[rows])
        high[rows] = np.where(is_active & (error <= 0), t[rows], high[rows])
        # Halley's method for the logit of the distribution function, which is nearly linear in both tails. It converges
        # at third order.
        spare = value * (1 - value)
        first, second = slope / spare, curvature / spare - slope**2 * (1 - 2 * value) / spare**2
        newton = (logit(level[rows]) - logit(value)) / first
        new = t[rows] + newton / np.maximum(1 + newton * second / (2 * first), 0.5)
        middle = (low[rows] + high[rows]) / 2
        useful = (new > low[rows]) & (new < high[rows]) & (step < sure_steps or step % 2 == 0)
        new = np.where(useful, new, middle)
        is_active = is_active & (np.abs(error) > close[rows]) & (low[rows] < middle) & (middle < high[rows])
        active[rows] = is_active
        t[rows] = np.where(is_active, new, t[rows])
    return t, values


def _distribution(
    mixture: Mixture, t: Array, cells: NDArray[np.bool_], *, far: float = 7.0, few: float = 10.0
) -> _Values:
    """Distribution function, density and its slope at the logits t of the shares, for the marked cells.

    The mass beyond `far` standard deviations is below the tolerance, except that of Beta distributions with a parameter
    below `few`, which are far from normal.
    """
    if not cells.all():
        mixture = mixture.part(cells[mixture.cell])
    cell, masses, shape = mixture.cell, mixture.masses, t.shape
    normal, skewed = _paulson(mixture, t), np.minimum(mixture.first, mixture.second) < few
    row, near = np.nonzero((np.abs(normal) < far) | skewed)
    place = row * mixture.size + cell[near]
    x, y, logits = mixture.first[near], mixture.second[near], t.ravel()[place]
    log_density = x * log_expit(t).ravel()[place] + y * log_expit(-t).ravel()[place] - mixture.log_beta[near]
    density = masses[near] * np.exp(log_density)
    # Shares above a half are computed from 1 minus the share, which is more accurate.
    below, low = np.empty(len(logits)), logits < 0
    below[low], below[~low] = (
        betainc(x[low], y[low], expit(logits[low])),
        betaincc(y[~low], x[~low], expit(-logits[~low])),
    )
    # Nodes far below the share have their full mass, and those far above have none.
    whole = np.stack([np.bincount(cell, np.where(part > 0, masses, 0.0), mixture.size) for part in normal])
    corrected = masses[near] * (below - (normal[row, near] > 0))
    parts = (corrected, density, density * (x * expit(-logits) - y * expit(logits)))
    value, slope, curvature = (np.bincount(place, part, t.size).reshape(shape) for part in parts)
    return (whole + value) / np.bincount(cell, masses, mixture.size), slope, curvature


def _paulson(mixture: Mixture, t: Array) -> Array:
    """Normal scores of the logits t of Beta variables, approximately, from the cube roots of the odds.

    Paulson (1942), An approximate normalization of the analysis of variance distribution.
    """
    root = np.exp(t / 3)[:, mixture.cell] * mixture.odds_root
    first, second = 1 / (9 * mixture.first), 1 / (9 * mixture.second)
    return np.asarray(((1 - second) * root - (1 - first)) / np.hypot(np.sqrt(second) * root, np.sqrt(first)))
