"""The worst neighbours of an urn with one row, under replace-one, and their curves."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final, override

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.numerics.second_order import expm1_less
from pymc_dirdp.numerics.tails import mean_digamma
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.tcdp import rho_from_above

__all__ = ["MOST_STEPS", "UrnPair", "largest_urn_loss"]

# All counts of two cells are listed: so many steps at most, and so many where some steps may hit other cells.
MOST_STEPS, _MOST_MIXED = 16_384, 64
# Up to so many steps their losses are added one by one.
_ADDED = 1_000
# Relative rounding errors: of a parameter, of r and of a sum of positive terms; and of a mean of digamma.
_RAISED, _ROUNDING = 1 + 4e-15, 4e-15
# A double rounds by this share of a number; a curve is raised by more than its sums are rounded.
_EPS, _UP = 2.3e-16, 1 + 1e-12
# Exponentials of larger numbers are left as logarithms.
_LARGE = 30.0


def largest_urn_loss(a: float, r: float, steps: int) -> float:
    """The loss of an urn all of whose steps hit one cell, where the cell's parameter may be `a + r` or `a`.

    It is `L(a + r + m) - L(a + r) - L(a + m) + L(a)` with `L = log Gamma` and m the number of steps, that is the sum of
    `log(1 + r / (a + j))` over the steps `j = 0, ..., m - 1`. It rises with `r` and m and falls with `a`.

    Parameters
    ----------
    a : float
        The parameter of the cell without the record, positive.
    r : float
        What the record adds to it, positive.
    steps : int
        At least 1.

    Returns
    -------
    loss : float
        In nats, rounded up.

    Examples
    --------
    One step that hits a cell of parameter 1, or 2 with the record, is twice as likely with it:

    >>> round(largest_urn_loss(1.0, 1.0, 1) / math.log(2), 6)
    1.0
    """
    if steps <= _ADDED:
        return math.fsum(np.log1p(r / (a + np.arange(steps, dtype=np.float64))).tolist()) * _RAISED
    last, first = mean_digamma(a + steps, r), mean_digamma(a, r)
    # Where `a` is far larger than the number of steps, the difference is rounded more than the bound is loose.
    return min(r * (last - first + _ROUNDING * (abs(last) + abs(first))), steps * math.log1p(r / a)) * _RAISED


@final
@dataclass(frozen=True)
class UrnPair(PrivacyCurves):
    """Counts of an urn with parameters `(high + r, low, rest)` from one with `(high, low + r, rest)`, and back.

    No two neighbours in one row of any size are further apart, and a table of one record attains it. The curves are
    exact up to their rounding, which is upwards, for `rest = 0` and for up to 64 steps. For more steps `rest` is taken
    for 0, which can only raise the curves.

    Parameters
    ----------
    low, high : float
        The two smallest prior parameters, positive.
    rest : float
        The sum of the others.
    r : float
        What one record counts, positive.
    steps : int
        From 1 to 16,384.

    References
    ----------
    The page of proofs "urn", statements 2, 4 and 5.

    Examples
    --------
    One step of a flat urn of two cells is an answer that is right with probability 2/3:

    >>> pair = UrnPair(1.0, 1.0, 0.0, 1.0, 1)
    >>> round(pair.delta(0.0), 9), round(pair.pure_epsilon, 9)
    (0.333333333, 0.693147181)
    """

    low: float
    high: float
    rest: float
    r: float
    steps: int

    @cached_property
    def _outcomes(self) -> tuple[Array, Array, float]:
        """Log probabilities under the first distribution, the losses, and the largest error of the former."""
        a, b, m = self.high, self.low, self.steps
        gained, lost = (_rising(x, self.r, m) for x in (a, b))
        mixed = self.rest > 0 and m <= _MOST_MIXED
        # So many steps hit one of the two cells; their number has the same law at both data sets.
        hits = np.arange(m + 1) if mixed else np.array([m])
        first = np.concatenate([np.arange(n + 1) for n in hits])
        second = np.concatenate([n - np.arange(n + 1) for n in hits])
        cells = [(a + self.r, first), (b, second)]
        if mixed:
            cells.append((self.rest, m - first - second))
        terms = [part for x, counts in cells for part in (gammaln(x + counts), -gammaln(counts + 1.0))]
        logs = np.sum(terms, axis=0)
        logs -= np.logaddexp.reduce(logs)
        error = 4 * _EPS * float(np.sum(np.abs(terms), axis=0).max() + len(logs))
        return logs, gained[first] - lost[second], error

    @cached_property
    def _directions(self) -> tuple["_Direction", "_Direction"]:
        logs, losses, error = self._outcomes
        # No probability is above 1, however much is lost to rounding where a parameter is huge.
        first, second = (np.minimum(one, 0.0) for one in (logs + error, logs - losses + error + self._slack))
        return _Direction(first, losses, self._slack), _Direction(second, -losses, self._slack)

    @property
    def _slack(self) -> float:
        """By so much rounding may have moved a loss."""
        return _EPS * (self.steps + 4) * self.pure_epsilon

    @cached_property
    @override
    def pure_epsilon(self) -> float:
        return largest_urn_loss(self.low, self.r, self.steps)

    @override
    def _delta(self, epsilon: float) -> float:
        if epsilon >= self.pure_epsilon:
            return 0.0
        return min(1.0, _UP * max(one.hockey_stick(epsilon) for one in self._directions))

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        epsilons = step * np.arange(points, dtype=np.float64)
        there, back = (one.hockey_sticks(epsilons) for one in self._directions)
        larger = np.minimum(np.maximum(there, back), 1.0)
        deltas: Array = np.where(epsilons >= self.pure_epsilon, 0.0, larger)
        return deltas, deltas

    @override
    def _epsilon(self, delta: float) -> float:
        return min(super()._epsilon(delta), self.pure_epsilon)

    @override
    def _renyi(self, order: float) -> float:
        if order == math.inf:
            return self.pure_epsilon
        return min(_UP * max(one.renyi(order) for one in self._directions), self.pure_epsilon)

    @override
    def _rho(self, omega: float) -> float:
        return rho_from_above(self._renyi, omega) * _UP


def _rising(a: float, r: float, steps: int) -> Array:
    """The loss of so many hits of a cell, from 0 to `steps`."""
    return np.concatenate([[0.0], np.cumsum(np.log1p(r / (a + np.arange(steps))))])


@final
@dataclass(frozen=True, eq=False)
class _Direction:
    """One of the two distributions from the other, with what does not depend on the order or on epsilon.

    Attributes
    ----------
    logs, losses : array
        Probabilities as logarithms, from above, and losses.
    slack : float
        By so much rounding may have moved a loss. The curves are for all losses within it.
    """

    logs: Array
    losses: Array
    slack: float

    @cached_property
    def _masses(self) -> Array:
        return np.exp(self.logs)

    @cached_property
    def _further(self) -> Array:
        """The losses that are furthest from 0."""
        return self.losses + np.copysign(self.slack, self.losses)

    @cached_property
    def _divergence(self) -> float:
        """The sum of `p (exp(-loss) - 1 + loss)`, of which large negative losses leave the other probability."""
        rare = self._further < -_LARGE
        near = np.where(rare, 0.0, self._further)
        far = np.minimum((self.logs - self._further)[rare], 0.0)
        return inner(self._masses, expm1_less(-near)) + float(np.exp(far).sum())

    def renyi(self, order: float) -> float:
        """From above.

        The linear terms of the exponentials sum to 0, so they are left out. Then no term is negative, and each grows
        with the distance of its loss from 0.
        """
        if order == 1:
            return self._divergence
        tilt = (order - 1) * self._further
        if tilt.max() > _LARGE:
            return max(float(np.logaddexp.reduce(self.logs + tilt)) / (order - 1) + 2 * self.slack, 0.0)
        return math.log1p(inner(self._masses, expm1_less(tilt)) + (order - 1) * self._divergence) / (order - 1)

    def hockey_stick(self, epsilon: float) -> float:
        """At one epsilon: a sum in which no term is negative."""
        excess = epsilon - self.slack
        above = self.losses > excess
        return inner(self._masses[above], -np.expm1(excess - self.losses[above]))

    def hockey_sticks(self, epsilons: Array) -> Array:
        """At many epsilons at once, from above: sums over all larger losses. Their rounding is added."""
        excess = epsilons - self.slack
        order = np.argsort(-self.losses)
        first, falling = self._masses[order], -self.losses[order]
        sums = (np.concatenate([[0.0], np.cumsum(law)]) for law in (first, first * np.exp(falling)))
        larger, other = (total[np.searchsorted(falling, -excess)] for total in sums)
        return np.asarray(larger * _UP - np.exp(excess) * other * (2 - _UP))
