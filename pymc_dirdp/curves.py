"""The dominating pairs of the Dirichlet mechanism and their exact privacy curves.

For every pair of neighbouring data sets and every f-divergence, the output laws are no further apart than one fixed
pair of laws, which depends only on the two smallest prior parameters and on `r` (Theory, section 2). A pair knows its
curves; a mechanism asks its pair. The proofs are in the documentation under "Theory".
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import final, override

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, polygamma

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.quadrature import graded_breaks, integrate
from pymc_dirdp.roots import log_excess, safe_root
from pymc_dirdp.tails import gamma_lower, gamma_upper, logit_beta_upper, mean_digamma

__all__ = ["AddRemovePair", "DominatingPair", "ReplaceOnePair", "dominating_pair"]

Array = NDArray[np.float64]

# A closed form is trusted while its rounding error, estimated from its terms, stays below this share of the result.
_TRUSTED = 2e-12
# Tail differences are trusted while they keep this share of their larger term; below it, the loss is integrated.
_CANCELLED = 2e-4
# exp(-46) = 1e-20: what an integral with this decay leaves out.
_NEGLIGIBLE = 46.0


class DominatingPair(abc.ABC):
    """Two laws, of which no neighbouring output laws are further apart.

    All curves are exact for the pair, so they are upper bounds for every pair of neighbouring data sets and the
    suprema over them. They rise with `r` and fall as the prior parameters rise.
    """

    @abc.abstractmethod
    def renyi(self, order: float) -> float:
        """Rényi divergence of order `order >= 1` in nats, the larger direction; `inf` where it diverges."""

    @abc.abstractmethod
    def rho(self, omega: float) -> float:
        """Least `rho` with divergence at most `order * rho` for all orders in `(1, omega)`; may be `inf`."""

    @abc.abstractmethod
    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at `epsilon >= 0`, the larger direction; in `[0, 1]`."""

    def epsilon(self, delta: float) -> float:
        """Least `epsilon >= 0` (from above, within 1e-9 relative) with `self.delta(epsilon) <= delta`."""
        if self.delta(0.0) <= delta:
            return 0.0

        def excess(epsilon: float) -> float:
            return log_excess(self.delta(epsilon), delta)

        high = 1.0
        while excess(high) > 0:
            high *= 2.0
        low = high / 2.0
        while excess(low) <= 0 and low > 1e-300:
            low /= 2.0
        return safe_root(excess, safe=high, unsafe=low)


@final
@dataclass(frozen=True)
class ReplaceOnePair(DominatingPair):
    """`Gamma(a + r) x Gamma(b)` from `Gamma(a) x Gamma(b + r)`, in both orders of `a` and `b`.

    Parameters
    ----------
    a, b : float
        The two smallest prior parameters, positive.
    r : float
        The concentration, positive.

    References
    ----------
    Theory, section 2 to 5.
    """

    a: float
    b: float
    r: float

    @property
    def _orders(self) -> tuple[tuple[float, float], ...]:
        return ((self.a, self.b),) if self.a == self.b else ((self.a, self.b), (self.b, self.a))

    @override
    def renyi(self, order: float) -> float:
        return max(_renyi_add(order, a, self.r) + _renyi_remove(order, b, self.r) for a, b in self._orders)

    @override
    def rho(self, omega: float) -> float:
        # Divergence over order is convex in the order for each of the two directions (Theory, section 5).
        return max(self.renyi(1.0), self.renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def delta(self, epsilon: float) -> float:
        return max(self._delta(epsilon, a, b) for a, b in self._orders)

    def _delta(self, epsilon: float, a: float, b: float) -> float:
        """The loss is `r * (logit(w) - t) + epsilon` with `w ~ Beta(a + r, b)` under the first law."""
        r = self.r
        t = epsilon / r + (mean_digamma(a, r) - mean_digamma(b, r) if a != b else 0.0)
        if not math.isfinite(t):
            return 0.0
        first = logit_beta_upper(t, a + r, b)
        if epsilon < 600:
            delta = first - math.exp(epsilon) * logit_beta_upper(t, a, b + r)
            if delta > _CANCELLED * first:
                return delta
        spread = math.sqrt(float(polygamma(1, a + r) + polygamma(1, b)))
        return _mean_excess(
            lambda v: logit_beta_upper(v, a + r, b), t, r, centre=math.log((a + r) / b), spread=spread, rate=b
        )


@final
@dataclass(frozen=True)
class AddRemovePair(DominatingPair):
    """`Gamma(a + r)` from `Gamma(a)` and back: a record appears or disappears.

    Parameters
    ----------
    a : float
        The smallest prior parameter, positive.
    r : float
        The concentration, positive.

    References
    ----------
    Theory, section 2 to 5.
    """

    a: float
    r: float

    @override
    def renyi(self, order: float) -> float:
        # Removing loses more: the hat kernel has more weight where its argument is the smaller one.
        return max(_renyi_add(order, self.a, self.r), _renyi_remove(order, self.a, self.r))

    @override
    def rho(self, omega: float) -> float:
        return max(self.renyi(1.0), self.renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def delta(self, epsilon: float) -> float:
        return max(self._adding(epsilon), self._removing(epsilon))

    def _adding(self, epsilon: float) -> float:
        """The loss is `r * (log G - g) + epsilon` with `G ~ Gamma(a + r)` under the first law."""
        a, r = self.a, self.r
        g = epsilon / r + mean_digamma(a, r)
        if g > 700:
            return 0.0  # The upper tail is below exp(-exp(700)).
        first = gamma_upper(g, a + r)
        if epsilon < 600:
            delta = first - math.exp(epsilon) * gamma_upper(g, a)
            if delta > _CANCELLED * first:
                return delta
        # The upper tail of log G falls like exp(-G): its scale is at most 1 / G once G exceeds its mean.
        spread = math.sqrt(float(polygamma(1, a + r)))
        return _mean_excess(
            lambda v: gamma_upper(v, a + r), g, r, centre=math.log(a + r), spread=spread, rate=max(1.0, a + r)
        )

    def _removing(self, epsilon: float) -> float:
        """The loss is `r * (g - log G) + epsilon` with `G ~ Gamma(a)` under the first law."""
        a, r = self.a, self.r
        g = mean_digamma(a, r) - epsilon / r
        if not math.isfinite(g):
            return 0.0
        first = gamma_lower(g, a)
        if epsilon < 600:
            delta = first - math.exp(epsilon) * gamma_lower(g, a + r)
            if delta > _CANCELLED * first:
                return delta
        spread = math.sqrt(float(polygamma(1, a)))
        return _mean_excess(lambda v: gamma_lower(-v, a), -g, r, centre=-math.log(a), spread=spread, rate=a)


def dominating_pair(alpha: Array, r: float, adjacency: str, min_count: float = 0.0) -> DominatingPair:
    """The dominating pair of the Dirichlet mechanism over a whole table.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive. Rows of a table compose in parallel at no cost.
    r : float
        The concentration, positive.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    min_count : float
        The public promise that every cell of every possible data set holds at least this many records.
    """
    smallest, second = (np.partition(alpha, 1, axis=None)[:2] + r * min_count).tolist()
    if adjacency_named(adjacency).name == "replace-one":
        return ReplaceOnePair(smallest, second, r)
    return AddRemovePair(smallest, r)


def _renyi_add(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a + r)` from `Gamma(a)`, Theory, section 3."""
    terms = (order - 1, a), (-order, a + r), (1, a + order * r)
    closed = _closed_form(order, terms)
    return _kernel_form(order, a, a + r, a + order * r, r) if closed is None else closed


def _renyi_remove(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a)` from `Gamma(a + r)`, Theory, section 3; infinite for `(order - 1) * r >= a`."""
    end = _gap(order, a, r)
    if end <= 0:
        return math.inf
    closed = _closed_form(order, ((order - 1, a + r), (-order, a), (1, end)))
    return _kernel_form(order, a + r, a, end, r) if closed is None else closed


def _gap(order: float, a: float, r: float) -> float:
    """`a - (order - 1) * r`, rounded once: its sign decides whether a divergence is finite."""
    if not math.isfinite(order):
        return -math.inf
    rough = a - (order - 1) * r
    return rough if abs(rough) > 1e-3 * a else float(Fraction(a) - (Fraction(order) - 1) * Fraction(r))


def _closed_form(order: float, terms: tuple[tuple[float, float], ...]) -> float | None:
    """Sum of `weight * log Gamma(x)` over `order - 1`, or None where cancellation spoils it."""
    if order == 1:
        return None
    values = [weight * float(gammaln(x)) for weight, x in terms]
    # Each argument is itself rounded, which moves its log Gamma by about eps * x * |digamma(x)| <= eps * (1 + x log x).
    error = 2.2e-16 * sum(
        abs(value) + abs(weight) * (1 + x * abs(math.log(x))) for value, (weight, x) in zip(values, terms, strict=True)
    )
    total = math.fsum(values)
    return total / (order - 1) if error < _TRUSTED * abs(total) else None


def _kernel_form(order: float, start: float, middle: float, end: float, r: float) -> float:
    """`r**2 * integral of K(s) psi'(x(s))` with x running from `start` over `middle` (s = 1) to `end` (s = order).

    Every term is positive, so nothing cancels. `K` is the hat of Theory, section 3: s on [0, 1], then
    `(order - s) / (order - 1)`. Both legs are integrated over the distance u from the foot of the hat.
    """
    upwards = 1.0 if middle > start else -1.0
    total = _leg(r, near=min(start, middle), foot=start, sign=upwards)
    if order > 1:
        total += _leg((order - 1) * r, near=min(middle, end), foot=end, sign=-upwards) / (order - 1)
    return total


def _leg(length: float, *, near: float, foot: float, sign: float) -> float:
    """Integral of `u * psi'(foot + sign * u)` over `u` in `[0, length]`; `near` is the argument closest to the pole."""
    breaks = graded_breaks(near, length)
    if sign < 0:
        # The pole lies beyond the far end: grade towards that end.
        breaks = length - breaks[::-1]
    return integrate(lambda u: u * polygamma(1, foot + sign * u), breaks)


def _mean_excess(
    upper: Callable[[Array], Array], t: float, r: float, *, centre: float, spread: float, rate: float
) -> float:
    """`delta = r * integral_0^inf exp(-r v) P[V > t + v] dv`, for a loss `r * (V - t) + epsilon`.

    This is `E[1 - exp(-(loss - epsilon))]_+` after one integration by parts. Every term is positive.

    Parameters
    ----------
    upper : callable
        `P[V > v]`, log-concave.
    centre, spread : float
        About where the bulk of V lies.
    rate : float
        The upper tail falls at least like `exp(-rate * v)` beyond the bulk.
    """
    end = t + min(_NEGLIGIBLE / r, max(0.0, centre - t) + 50 * spread + 50 / rate)
    doubling = np.exp2(np.arange(-2.0, 1 + max(1, math.ceil(math.log2(1 + abs(t) + end - t)))))
    scales = np.concatenate([[0.25, 0.5], np.arange(1.0, 12.0), np.arange(12.0, 51.0, 3.0)])
    edges: list[Array] = [np.array([t, end, 0.0, centre]), doubling, -doubling, t + scales / r, t + scales / rate]
    edges += [centre - scales * spread, centre + scales * spread]
    breaks = np.concatenate(edges)
    breaks = np.unique(breaks[(breaks >= t) & (breaks <= end)])
    if breaks.size < 2:
        return 0.0
    return r * integrate(lambda v: np.exp(-r * (v - t)) * upper(v), breaks)
