"""Divergences of Gamma and Beta distributions: Rényi and hockey sticks."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.special import gammaln, zeta

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.gamma import (
    digamma_less_log,
    expm1_less,
    gamma_lower,
    gamma_upper,
    log1p_less,
    logit_beta_upper,
    mean_digamma,
    stirling_remainder,
)
from pymc_dirdp.numerics.quadrature import graded_breaks, integrate, nodes
from pymc_dirdp.numerics.roots import raised

ULPS = 2.0**17
"""Every divergence of this file is raised by this many units of its last place, 3e-11 of it.

That is more than the rounding error of an integral and of its density, and of a closed form that is trusted.
"""
# Tails and densities that are 0 in doubles, or have lost their digits there, add less than this to a divergence.
_LEAST_DELTA = 1e-305

# Rényi divergences of `Gamma(a + r)` from `Gamma(a)` and back (Theory, section 3).


def renyi_add(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a + r)` from `Gamma(a)` (Theory, section 3), from above."""
    terms = (order - 1, a), (-order, a + r), (1, a + order * r)
    if (divergence := _closed_form(order, terms)) is None:
        divergence = _kernel_form(order, a, a + r, a + order * r, r, upwards=True)
    return raised(divergence, ULPS)


def renyi_remove(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a)` from `Gamma(a + r)`, from above; infinite for `(order - 1) * r >= a`."""
    end = _gap(order, a, r)
    if end <= 0:
        return math.inf
    if (divergence := _closed_form(order, ((order - 1, a + r), (-order, a), (1, end)))) is None:
        divergence = _kernel_form(order, a + r, a, end, r, upwards=False)
    return raised(divergence, ULPS)


def _gap(order: float, a: float, r: float) -> float:
    """`a - (order - 1) * r`, rounded once: its sign decides whether a divergence is finite."""
    if not math.isfinite(order):
        return -math.inf
    rough = a - (order - 1) * r
    return rough if abs(rough) > 1e-3 * a else float(Fraction(a) - (Fraction(order) - 1) * Fraction(r))


def _closed_form(order: float, terms: tuple[tuple[float, float], ...], *, trusted: float = 2e-12) -> float | None:
    """Sum of `weight * log Gamma(x)` over `order - 1`, or None if cancellation makes it inaccurate.

    It is trusted if its rounding error, estimated from its terms, is below this share of the result.
    """
    # The divergence is about order * r**2 / x. Where that is small, it is lost among terms of size log Gamma(x).
    (_, middle), (_, end) = terms[1:]
    # At order 1 it is 0 over 0, and the last two arguments are equal.
    if abs(middle - end) < 1e-2 * min(middle, end):
        return None
    values = [weight * float(gammaln(x)) for weight, x in terms]
    if not all(map(math.isfinite, values)):
        # Beyond the largest double a difference of infinities would be NaN, which no comparison detects.
        return math.inf
    # Each argument is itself rounded, which moves its log Gamma by about eps * x * |digamma(x)| <= eps * (1 + x log x).
    error = 2.2e-16 * sum(
        abs(value) + abs(weight) * (1 + x * abs(math.log(x))) for value, (weight, x) in zip(values, terms, strict=True)
    )
    total = math.fsum(values)
    return total / (order - 1) if error < trusted * abs(total) else None


def _kernel_form(order: float, start: float, middle: float, end: float, r: float, *, upwards: bool) -> float:
    """`r**2 * integral of K(s) psi'(x(s))` with x running from `start` over `middle` (s = 1) to `end` (s = order).

    Every term is positive, so nothing cancels. `K` is the hat of Theory, section 3: s on [0, 1], then
    `(order - s) / (order - 1)`. Both legs of the hat are integrated over the distance u from their foot. `upwards` says
    whether x rises with s; where r is lost against the parameters, `start` and `middle` do not show it.
    """
    total = _leg(r, near=min(start, middle), from_foot=upwards)
    if order > 1:
        total += _leg((order - 1) * r, near=min(middle, end), from_foot=not upwards) / (order - 1)
    return total


def _trigamma_square(x: Array) -> Array:
    """`x**2 psi'(x)`, which is a double wherever x is."""
    # zeta(2, x) is psi'(x); `polygamma` would also prepare for other orders.
    trigamma, below = zeta(2.0, np.where(x < 1, x + 1, x)), np.minimum(x, 1.0)
    return np.asarray(np.where(x < 1, 1 + below * below * trigamma, x * (x * trigamma)))


def _leg(length: float, *, near: float, from_foot: bool) -> float:
    """The integral of `u * psi'(x)` over a leg of this length; u is 0 at its foot.

    `near` is the argument at the end closest to the pole, which is the foot or the other end.
    """
    distance, weights = nodes(graded_breaks(near, length))
    x = near + distance
    u = distance if from_foot else length - distance
    # In this order no product over- or underflows before the result does.
    return float(np.sum(u / x * _trigamma_square(x) * (weights / x)))


# Hockey-stick divergences as sums or integrals of positive terms.


def delta_grid(excess: Array, masses: Array, starts: Integers, steps: Array) -> Array:
    """The sums of `masses * (1 - exp(epsilon - loss))` over all losses above epsilon, at ascending epsilons.

    Between two epsilons lies a panel of losses. From the last panel to the first, over a step of h, each sum is

        sum of the panel + (1 - exp(-h)) * (masses above the next epsilon) + exp(-h) * (the sum at the next epsilon).

    No term is negative, so nothing cancels, and all sums together take one pass over the losses.

    Parameters
    ----------
    excess : array, shape (n,)
        The losses in ascending order, each minus the epsilon at which its panel starts.
    masses : array, shape (n,)
        Their probabilities, or the weights of an integral times a density.
    starts : array of int, shape (points,)
        The start of the panel of each epsilon. Losses before the first one are in no sum.
    steps : array, shape (points - 1,)
        The differences of consecutive epsilons.
    """
    sums, weights = np.zeros(len(starts)), np.zeros(len(starts))
    is_start = starts < np.append(starts[1:], len(masses))
    if not is_start.any():
        return sums
    panels, first = starts[is_start] - starts[is_start][0], starts[is_start][0]
    sums[is_start] = np.add.reduceat(masses[first:] * -np.expm1(-excess[first:]), panels)
    weights[is_start] = np.add.reduceat(masses[first:], panels)
    sums[:-1] += -np.expm1(-steps) * np.cumsum(weights[:0:-1])[::-1]
    factors, sums_list, total = [*np.exp(-steps).tolist(), 0.0], sums.tolist(), 0.0
    for i in range(len(sums_list) - 1, -1, -1):
        sums_list[i] = total = sums_list[i] + factors[i] * total
    return np.array(sums_list)


@final
@dataclass(frozen=True)
class LogitLoss:
    """A privacy loss `r * (X - shift)`, where X is the logit of a Beta variable under the first of two distributions.

    It is the loss of `Gamma(loses) x Gamma(gains + r)` from `Gamma(loses + r) x Gamma(gains)`. Where one parameter is
    infinite, X is the logarithm of a Gamma variable, or that with its sign reversed.

    Attributes
    ----------
    loses, gains, r : float
        Positive.
    """

    loses: float
    gains: float
    r: float

    @cached_property
    def _shift(self) -> float:
        up, down = (mean_digamma(a, self.r) if math.isfinite(a) else 0.0 for a in (self.gains, self.loses))
        return up - down

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at one `epsilon >= 0`, from above; see :meth:`deltas`."""
        with np.errstate(over="ignore"):
            delta, trusted = self._difference(epsilon, math.exp(min(epsilon, 600.0)))
        return max(float(delta if trusted else self._integrate(np.array([epsilon]))[0]), _LEAST_DELTA)

    def deltas(self, epsilons: Array) -> Array:
        """Hockey-stick divergences at ascending epsilons >= 0, from above.

        Each is a difference of two tails, raised by more than the errors of both. If the difference is small, or the
        tails have lost digits, the loss is integrated, which takes about eight times as long.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            deltas, trusted = self._difference(epsilons, np.exp(np.minimum(epsilons, 600.0)))
        deltas = deltas if np.all(trusted) else np.where(trusted, deltas, self._integrate(epsilons))
        return np.maximum(deltas, _LEAST_DELTA)

    def _difference(
        self, epsilons: Any, factors: Any, *, large: float = 1e4, least: float = 1e-290, share: float = 1e-3
    ) -> tuple[Any, Any]:
        """The difference of the tails at one or more epsilons, and whether it has enough digits."""
        if min(self.loses, self.gains) >= large:
            return epsilons, epsilons < 0
        # Beyond the largest double the divergence at a smaller epsilon is used, which is larger.
        t = np.minimum(epsilons / self.r + self._shift, sys.float_info.max)
        first = _tail(t, self.gains + self.r, self.loses)
        other = _tail(t, self.gains, self.loses + self.r)
        deltas = first - factors * other
        trusted = (deltas > share * first) & (epsilons < 600) & (other > least)
        bounds = raised(np.maximum(deltas + 1e-12 * first, 0.0), ULPS)
        return np.minimum(bounds, 1.0), trusted | (first == 0)

    # The integral of the density: everything is measured from its mode, because the distribution of a large parameter
    # is so narrow that a double does not hold its places; that of a small one has tails as long as one over it.

    @property
    def _parameters(self) -> tuple[float, float]:
        """X has tails like `exp(a * x)` below and `exp(-b * x)` above."""
        return self.gains + self.r, self.loses

    def _integrate(self, epsilons: Array) -> Array:
        deltas, r = np.zeros(len(epsilons)), self.r
        up, down = (
            _mean_digamma_less_log(self.gains, r, at_end=True),
            _mean_digamma_less_log(self.loses, r, at_end=False),
        )
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            above = epsilons / r
            # Rounding may have raised the thresholds, so a bound of that is subtracted.
            t = above + (up - down) - 2e-15 * (above + abs(up) + abs(down))
            logs = self._log_density(np.maximum(t, 0.0))
            # Beyond these the density is below the smallest double.
            t = t[logs > -744]
            if not len(t):
                return deltas
            breaks = self._breaks(t)
            x, weights = nodes(breaks)
            # Everything is relative to the density at the first threshold, if that is in the upper tail.
            masses = np.exp(self._log_density(x) - logs[0]) * weights
            starts = np.searchsorted(breaks, np.maximum(t, breaks[0])) * (len(x) // (len(breaks) - 1))
            excess = r * (x - np.repeat(t, np.diff(starts, append=len(x))))
        sums = delta_grid(excess, masses, starts, np.diff(epsilons[: len(t)]))
        deltas[: len(t)] = np.minimum(raised(sums * math.exp(logs[0] + self._log_height), ULPS), 1.0)
        return deltas

    def _breaks(self, t: Array, *, nats: float = 4.0) -> Array:
        """Panels from the first threshold to beyond the last one, in which the integrand is smooth."""
        first, last = float(t[0]), max(float(t[-1]), 0.0)
        down = [*self._panels(0.0, -1.0, first)] if first < 0 else []
        breaks = np.array([*reversed(down), max(first, 0.0), *self._panels(max(first, 0.0), 1.0, last)])
        # The loss rises from 0 at each threshold, over one nat.
        long_gaps = np.flatnonzero(np.diff(t, append=breaks[-1]) > nats / self.r)
        ends = np.append(t[1:], breaks[-1])
        candidates = [
            t,
            *(
                t[i] + nats / self.r * 2.0 ** np.arange(-1.0, np.log2((ends[i] - t[i]) * self.r / nats))
                for i in long_gaps
            ),
        ]
        return np.unique(
            np.concatenate([breaks, *(points[(points > breaks[0]) & (points < breaks[-1])] for points in candidates)])
        )

    def _panels(
        self, x: float, sign: float, end: float, *, below: float = 60.0, above: float = 45.0
    ) -> Iterator[float]:
        """Breakpoints from x on, between which the density is smooth: down to an end, or up and beyond it.

        They stop where the density is below exp(-below) of its largest value, or exp(-above) of that at the end.
        """
        a, b = sorted(self._parameters)
        # Here the slope changes from one tail to the other, over a length of 1.
        corner = min(max(-math.log(a), 0.0), math.log(b / a)) * (1 if a == self._parameters[0] else -1)
        fallen = 0.0
        while fallen < (below if sign < 0 else above):
            slope, curvature = self._slopes(x)
            length = 1 / (abs(slope) / 7 + math.sqrt(curvature) / 2 + 1 / (2 + abs(x - corner) / 2))
            if sign < 0 or x >= end:
                # The logarithm of the density is concave.
                fallen += abs(slope) * length
            x += sign * length
            if sign < 0 and x <= end:
                yield end
                return
            yield x

    def _slopes(self, x: float) -> tuple[float, float]:
        """The slope of the logarithm of the density, and less its second derivative."""
        a, b = self._parameters
        a, b, sign = (a, b, 1.0) if a <= b else (b, a, -1.0)
        x = min(sign * x, 700.0)
        exp_minus_1, share = math.expm1(x), a / (a + b)
        denominator, a = 1 + share * exp_minus_1, a * (1 - share)
        return -sign * a * exp_minus_1 / denominator, a * (1 + exp_minus_1) / denominator / denominator

    def _log_density(self, x: Array) -> Array:
        """The logarithm of the density of X over that at 0, its mode; concave."""
        a, b = self._parameters
        a, b, x = (a, b, x) if a <= b else (b, a, -x)
        share = a / (a + b)
        if share == 0:
            return -a * expm1_less(x)
        raised = share * np.expm1(np.minimum(x, 700.0))
        fall = (np.log1p(raised) - share * x) / share
        # An exponential that is beyond the doubles leaves a straight line.
        far = x > 700
        if far.any():
            fall[far] = (math.log(share) + x[far] * (1 - share)) / share
        if a > 10:
            # The leading terms cancel near the mode, and there is nothing else where the distribution is narrow.
            near = np.abs(x) < 1
            fall[near] = log1p_less(raised[near]) / share + expm1_less(x[near])
        return -a * fall

    @property
    def _log_height(self) -> float:
        """The logarithm of the density at its mode."""
        a, b = self._parameters
        spread = math.log(1 / a + 1 / b) + math.log(2 * math.pi)
        return stirling_remainder(a + b) - stirling_remainder(a) - stirling_remainder(b) - spread / 2


def _mean_digamma_less_log(a: float, r: float, *, at_end: bool) -> float:
    """The mean of digamma over `[a, a + r]` less the logarithm of one end, without cancellation."""
    if a == math.inf:
        return 0.0
    end = a + r

    def difference(u: Array) -> Array:
        x = a + u
        if not at_end:
            return digamma_less_log(x) + np.log1p(u / a)
        # Each form keeps the digits that the other one loses.
        return digamma_less_log(x) + (np.log(x / end) if r > a else np.log1p((u - r) / end))

    return integrate(difference, graded_breaks(a, r)) / r


def _tail(x: Array, a: float, b: float) -> Array:
    """The probability that X exceeds a number: the logit of `Beta(a, b)`, or the limit if one is infinite."""
    if math.isfinite(a):
        return logit_beta_upper(x, a, b) if math.isfinite(b) else gamma_upper(x, a)
    return gamma_lower(-x, b)
