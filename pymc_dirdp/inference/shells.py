"""The prior of one table by how far its counts are from noisy ones: what a joint release says of it, by the radius.

Cells are added one after the other. The state is what they have gained and lost so far; one more cell gains, or loses,
or stays, so new sums are products of matrices. Where noise adds up to 0, a table is on a shell if gains and losses both
are its norm. Where its total is private, it is if their sum is, and then what both make of the total has a weight, too.
The same sums backwards are the distributions of all counts, and draws.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.inference.observed_table import OfTotal
from pymc_dirdp.inference.tree import Spread
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

IMPOSSIBLE = "No counts can have led to this output. Check the output and its mechanism."
# Products of sums over more lists than exp of this are no doubles.
_MOST_LOG_POINTS = 600.0
# Smaller sums are of states that are left out: others of the same gain and loss are so much larger.
_SMALLEST = 1e-290
# So many numbers at a time are looked at for draws.
_AT_ONCE = 10**7


@dataclass(frozen=True, eq=False)
class _State:
    """Sums over the changes of some cells, by their gains (rows) and losses (columns), over `exp(a + b)`.

    The scales follow the largest product of each gain and of each loss, so that priors may be of any strength.
    """

    sums: Array
    a: Array
    b: Array


@dataclass(frozen=True, eq=False)
class _Step:
    """What one more cell does to a state: it gains, or it loses, or neither; and the scales after it.

    Attributes
    ----------
    gain, loss : array, shape (S + 1, S + 1)
        Factors from each gain, or loss, before (columns) to each after (rows).
    rows, columns : array, shape (S + 1,)
        How the scale of gains changes for a cell that loses, and that of losses for one that gains.
    stay : float
        The weight of no change.
    """

    gain: Array
    loss: Array
    rows: Array
    columns: Array
    stay: float
    a: Array
    b: Array

    def after(self, sums: Array) -> Array:
        """The sums of all changes so far."""
        still = self.stay * self.rows[:, None] * self.columns * sums
        return np.asarray(self.gain @ sums * self.columns + self.rows[:, None] * (sums @ self.loss.T) + still)

    def diagonal_after(self, sums: Array) -> Array:
        """Those where the cells have lost as much as they have gained."""
        gained, lost = np.sum(self.gain * sums.T, axis=1), np.sum(self.loss * sums, axis=1)
        return np.asarray(
            gained * self.columns + self.rows * lost + self.stay * self.rows * self.columns * np.diag(sums)
        )


@dataclass(frozen=True, eq=False)
class Shells:
    """The prior of one table by how far it is from its noisy counts.

    Attributes
    ----------
    alpha : array, shape (d,)
    noisy, limits : arrays of int
        As in a :class:`BlockLikelihood`.
    zero_sum : bool
    logs : array, shape (d, 2 S + 1)
        Logarithms of the weights of each cell for changes from -S to S of its noisy count; that of the least is 0.
    log_totals : array, shape (2 S + 1,)
        The same for changes of the total, with all that is no weight of a cell.
    """

    most_norm: ClassVar[int] = 1500
    """States are gains and losses up to this, which takes some seconds for several cells."""

    alpha: Array
    noisy: Integers
    limits: Integers
    zero_sum: bool
    logs: Array
    log_totals: Array

    @classmethod
    def of(
        cls, block: BlockLikelihood, prior: ArrayLike, log_shares: Array | None, log_numbers: OfTotal | None
    ) -> "Shells":
        """What one block of a joint release says of a table; see :class:`JointTables` for the other arguments.

        Raises
        ------
        ArgumentError
            If the prior does not fit, or the sums are too long.
        ImpossibleError
            If no counts can have led to the output.
        """
        alpha, most, zero_sum = positive_array(prior=prior, fewest=1), int(block.limits.max()), block.ball.zero_sum
        if alpha.shape != block.noisy.shape:
            raise ArgumentError(f"Expected a prior of shape {block.noisy.shape}, got {alpha.shape}.")
        kind = _PairShells if alpha.size == 2 and zero_sum else cls
        if most > kind.most_norm:
            raise ArgumentError(
                f"Ask for a larger epsilon: the noise may be as large as {most}, and at most {kind.most_norm} is "
                "computed."
            )
        if kind is cls and block.ball.log_points(most) > _MOST_LOG_POINTS:
            raise ArgumentError(
                f"A table of {alpha.size} cells with joint noise up to {most} has too many possible counts to sum "
                "over. Take mechanism='geometric'."
            )
        noisy = np.rint(block.noisy).astype(np.int64)
        if not np.array_equal(noisy, block.noisy) or (zero_sum and noisy.sum() < 0):
            raise ArgumentError("Expected integers that add up to a number of records.")
        if np.maximum(-noisy, 0).sum() > most:
            raise ImpossibleError(IMPOSSIBLE)
        change = np.arange(-most, most + 1)
        counts, totals = (
            np.maximum(at, 0).astype(np.float64) for at in (noisy[:, None] + change, noisy.sum() + change)
        )
        if log_shares is None:
            logs, size = _log_gamma_ratio(counts, alpha[:, None]), float(alpha.sum())  # type: ignore[arg-type]
            log_totals = gammaln(size) - _log_gamma_ratio(totals, size) - gammaln(alpha).sum()
        else:
            with np.errstate(invalid="ignore"):
                logs = np.where(counts == 0, 0.0, counts * log_shares[:, None]) - gammaln(counts + 1)
            log_totals = gammaln(totals + 1)
        if zero_sum:
            log_totals = np.where(change == 0, log_totals, -np.inf)
        elif log_numbers is not None:
            log_totals = log_totals + log_numbers(totals)
        logs = np.where(noisy[:, None] + change >= 0, logs, -np.inf)
        least = np.where(logs > -np.inf, np.abs(change), most + 1).argmin(axis=1)[:, None]
        base = np.take_along_axis(logs, least, axis=1)
        if not np.all(base > -np.inf):
            raise ImpossibleError(IMPOSSIBLE)
        log_totals = np.where(noisy.sum() + change >= 0, log_totals + base.sum(), -np.inf)
        return kind(alpha, noisy, block.limits, zero_sum, logs - base, log_totals)

    @property
    def _reach(self) -> int:
        return len(self.log_totals) // 2

    @cached_property
    def _ends(self) -> tuple[Integers, Integers, Integers]:
        """The norms, gains and losses of all noise, in the order of norms: with a sum of 0 the three are the same."""
        norms = np.arange(self._reach + 1)
        if self.zero_sum:
            return norms, norms, norms
        each = np.repeat(norms, norms + 1)
        gains = np.arange(len(each)) - (norms * (norms + 1) // 2)[each]
        return each, gains, each - gains

    @property
    def _norms(self) -> Integers:
        return self._ends[0]

    @property
    def _changes(self) -> Integers:
        """By how much the total differs from that of the noisy counts."""
        _, gains, losses = self._ends
        return gains - losses

    def _step(self, cell: int) -> _Step:
        before, s, logs = self._before[cell], self._reach, self.logs[cell]
        gain, loss = _later(logs[s + 1 :]) + before.a, _later(logs[:s][::-1]) + before.b
        # A cell that cannot lose leaves no gains as they are, and the other way round.
        gains, loses = (bool(np.any(part > -np.inf)) for part in (logs[s:], logs[: s + 1]))
        a = np.maximum(gain.max(axis=1), before.a if loses else -np.inf)
        b = np.maximum(loss.max(axis=1), before.b if gains else -np.inf)
        a, b = (np.where(scale > -np.inf, scale, 0.0) for scale in (a, b))
        rows, columns = np.exp(before.a - a) * loses, np.exp(before.b - b) * gains
        return _Step(np.exp(gain - a[:, None]), np.exp(loss - b[:, None]), rows, columns, math.exp(logs[s]), a, b)

    @cached_property
    def _before(self) -> list[_State]:
        """The state before each cell, and after all; where noise adds up to 0, that is not needed."""
        s = self._reach
        none = np.where(np.arange(s + 1) == 0, 0.0, -np.inf)
        sums = np.zeros((s + 1, s + 1))
        sums[0, 0] = 1.0
        self.__dict__["_before"] = states = [_State(sums, none, none)]
        for cell in range(len(self.alpha) - self.zero_sum):
            step = self._step(cell)
            states.append(_State(step.after(states[-1].sums), step.a, step.b))
        return states

    @cached_property
    def _sums(self) -> tuple[Array, Array]:
        """Over all changes with the same ends, and what they are multiplied by, as a logarithm, to be the prior."""
        _, gains, losses = self._ends
        last = self._before[-1]
        if self.zero_sum:
            step = self._step(len(self.alpha) - 1)
            sums, a, b = step.diagonal_after(last.sums), step.a, step.b
        else:
            sums, a, b = last.sums[gains, losses], last.a, last.b
        sums[sums <= _SMALLEST] = 0.0
        return sums, a[gains] + b[losses] + self.log_totals[self._reach + gains - losses]

    @cached_property
    def _log_prior(self) -> Array:
        """Of all counts with the same ends."""
        sums, scales = self._sums
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums) + scales)

    @cached_property
    def _log_sums(self) -> Array:
        return np.logaddexp.accumulate(self._log_prior)

    @cached_property
    def log_inside(self) -> Array:
        """The logarithm of the prior of all counts up to each norm."""
        last = np.searchsorted(self._norms, np.arange(self._reach + 1), side="right") - 1
        return np.asarray(self._log_sums[last])

    def weights(self, log_reach: Array) -> Array:
        """The weight of noise by its ends, if a table on a shell has this one."""
        return np.exp(self._log_prior + log_reach[self._norms])

    def totals(self, weights: Array) -> Spread:
        """The distribution of the number of records."""
        masses = np.bincount(self._reach + self._changes, weights, minlength=2 * self._reach + 1)
        possible = np.flatnonzero(masses)
        low, high = possible[0], possible[-1] + 1
        return Spread(int(self.noisy.sum()) - self._reach + int(low), masses[low:high] / masses.sum())

    def given(self, weights: Array, total: Spread) -> list[Spread]:
        """As :meth:`Group.given`, of the cells, if ends have these weights."""
        at = np.clip(self.noisy.sum() + self._changes - total.low, 0, total.values.shape[-1] - 1)
        return self.marginals(weights, total.values[:, at] / np.maximum(total.values[0], 1e-300)[at])

    def marginals(self, weights: Array, of_total: Array | None = None) -> list[Spread]:
        """For each cell, the probabilities of its counts if ends have these weights: the sums backwards.

        The weight of a count is that of its cell times what all other cells add, which is the derivative of the sum.

        Parameters
        ----------
        weights : array
            From :meth:`weights`.
        of_total : array, shape (k, ends), optional
            Then the expectations of these functions of the total are given for each count, shape (k, counts).
        """
        functions = np.ones((1, len(weights))) if of_total is None else of_total
        each = [self._marginals(weights / weights.sum() * function) for function in functions]
        found = []
        for cell, noisy in enumerate(self.noisy.tolist()):
            masses = np.stack([one[cell] for one in each])[:, max(self._reach - noisy, 0) :]
            found.append(Spread(max(noisy - self._reach, 0), masses[0] if of_total is None else masses))
        return found

    def _marginals(self, weights: Array) -> list[Array]:
        s, cells = self._reach, len(self.alpha)
        _, gains, losses = self._ends
        sums, _ = self._sums
        after, found = np.zeros((s + 1, s + 1)), []
        after[gains, losses] = weights / np.where(sums > 0, sums, 1.0)
        for cell in range(cells - 1, -1, -1):
            step, sums = self._step(cell), self._before[cell].sums
            columns, rows = after * step.columns, after * step.rows[:, None]
            gained, lost = (
                _diagonals(one * two) for one, two in ((step.gain, columns @ sums.T), (step.loss, rows.T @ sums))
            )
            stayed = step.stay * float(np.sum(rows * step.columns * sums))
            found.append(np.concatenate([lost[:0:-1], [stayed], gained[1:]]))
            if cell == 0:
                break
            after = step.gain.T @ columns + rows @ step.loss + step.stay * rows * step.columns
            # What no sum reaches has no part in it, and may be no double.
            after[sums <= _SMALLEST] = 0.0
        return found[::-1]

    def draw(self, limits: Integers, rng: np.random.Generator) -> Integers:
        """One table for each limit of the norm, shape `(draws, d)`."""
        some = max(_AT_ONCE // self.logs.shape[1], 1)
        parts = []
        for part in np.split(limits, range(some, len(limits), some)):
            below = np.log1p(-rng.random(len(part))) + self.log_inside[part]
            last = np.searchsorted(self._norms, part, side="right") - 1
            parts.append(self._draw(np.minimum(np.searchsorted(self._log_sums, below), last), rng))
        return self.noisy + np.concatenate(parts)

    def _draw(self, ends: Integers, rng: np.random.Generator) -> Integers:
        """The changes of all cells, from the last to the first."""
        s, steps = self._reach, np.arange(1, self._reach + 1)
        _, gains, losses = (of[ends] for of in self._ends)
        changes = np.zeros((len(ends), len(self.alpha)), dtype=np.int64)
        for cell in range(len(self.alpha) - 1, 0, -1):
            step, sums = self._step(cell), self._before[cell].sums
            less, fewer = (np.maximum(of[:, None] - steps, 0) for of in (gains, losses))
            up = step.gain[gains[:, None], less] * sums[less, losses[:, None]] * step.columns[losses, None]
            down = step.loss[losses[:, None], fewer] * sums[gains[:, None], fewer] * step.rows[gains, None]
            same = step.stay * step.rows[gains] * step.columns[losses] * sums[gains, losses]
            up[steps > gains[:, None]], down[steps > losses[:, None]] = 0.0, 0.0
            change = _chosen(np.concatenate([down[:, ::-1], same[:, None], up], axis=1), rng) - s
            gains, losses = gains - np.maximum(change, 0), losses - np.maximum(-change, 0)
            changes[:, cell] = change
        changes[:, 0] = gains - losses
        return changes


@final
@dataclass(frozen=True, eq=False)
class _PairShells(Shells):
    """Two cells whose noise adds up to 0: what one gains the other loses, so ends are changes 0, 1, -1, ... of one."""

    most_norm: ClassVar[int] = 2**20

    @cached_property
    def _of_first(self) -> Integers:
        norms = np.arange(2 * self._reach + 1)
        return (norms + 1) // 2 * np.where(norms % 2, 1, -1)

    @property
    @override
    def _norms(self) -> Integers:
        return np.abs(self._of_first)

    @property
    @override
    def _changes(self) -> Integers:
        return np.zeros_like(self._of_first)

    @cached_property
    @override
    def _log_prior(self) -> Array:
        s, at = self._reach, self._of_first
        return np.asarray(self.logs[0, s + at] + self.logs[1, s - at] + self.log_totals[s])

    @override
    def _marginals(self, weights: Array) -> list[Array]:
        found = np.zeros(2 * self._reach + 1)
        found[self._reach + self._of_first] = weights
        return [found, found[::-1]]

    @override
    def _draw(self, ends: Integers, rng: np.random.Generator) -> Integers:
        change = self._of_first[ends]
        return np.stack([change, -change], axis=-1)


def _later(values: Array) -> Array:
    """A square with these values on the diagonals below the main one, and nothing elsewhere."""
    s = len(values)
    all_diagonals = np.concatenate([np.full(s + 1, -np.inf), values])
    return np.lib.stride_tricks.sliding_window_view(all_diagonals, s + 1)[:, ::-1]


def _diagonals(square: Array) -> Array:
    """Sums of the main diagonal and of each one below it."""
    return np.array([np.trace(square, -k) for k in range(len(square))])


def _chosen(weights: Array, rng: np.random.Generator) -> Integers:
    """A column of each row, with a probability in proportion to its weight."""
    sums = np.cumsum(weights, axis=1)
    return np.sum(sums < (1 - rng.random((len(sums), 1))) * sums[:, -1:], axis=1)
