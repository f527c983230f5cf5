"""Privacy loss distributions on a grid, for the composition of hockey-stick curves.

A pair of distributions with hockey-stick curve `delta(epsilon)` over all real epsilon is as far apart as, or less than,
the discrete pair that agrees with the curve on a grid of epsilons and is linear in `exp(epsilon)` between ("connect the
dots"). Losses of independent pairs add, so discrete pairs are composed by convolution (Theory, section 7). Every step
errs towards more loss, and a bound of the rounding error is added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Self, final, override

import numpy as np
import scipy
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.numerics.roots import raised
from pymc_dirdp.privacy.curves import LossCurves, rho_from_above

# At most this share of a tilted distribution lies outside of the window; it is added to the result.
_OUTSIDE = 1e-13


@final
@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A privacy loss that takes multiples of `step` nats, or infinity.

    Attributes
    ----------
    step : float
        Distance of the grid, in nats.
    masses : array, shape (2 n - 1,)
        Probabilities, under the first distribution, of the losses `step * (-n + 1), ..., step * (n - 1)`.
    infinite : float
        Probability of an infinite loss.
    """

    step: float
    masses: Array
    infinite: float


def discretise(step: float, forward: Array, backward: Array, *, slack: float = 1e-10) -> LossDistribution:
    """The least discrete loss on a grid of this step whose hockey-stick curve is nowhere below the exact one.

    Parameters
    ----------
    forward, backward : array, shape (n,)
        Hockey-stick divergences of the first distribution from the second and of the second from the first, at epsilon
        `0, step, ..., step * (n - 1)`. Convex and falling in `exp(epsilon)`.
    slack : float, default 1e-10
        Covers the rounding of curves that do not include it, which is about 1e-11 relative.

    References
    ----------
    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Connect the dots, https://doi.org/10.56553/popets-2022-0122.
    """
    above, infinite = _positive_masses(step, forward * (1 + slack))
    below, _ = _positive_masses(step, backward * (1 + slack))
    # A loss of -l has exp(-l) times the probability that the other distribution gives to it.
    below = below * np.exp(-step * np.arange(1, len(backward)))
    rest = 1.0 - math.fsum([infinite, *above, *below])
    return LossDistribution(step, np.concatenate([below[::-1], [max(rest, 0.0)], above]), infinite)


def _positive_masses(step: float, deltas: Array) -> tuple[Array, float]:
    """Masses at `step, 2 step, ...` and at infinity: those whose curve connects the dots and is flat beyond them."""
    falls = np.append(deltas[:-1] - deltas[1:], 0.0)
    # The slope in exp(epsilon) jumps at each dot by the mass there over exp(epsilon). Both sides are divided by
    # exp(step), which may be beyond the largest double.
    masses = (falls[:-1] - math.exp(-step) * falls[1:]) / -math.expm1(-step)
    return np.maximum(masses, 0.0), float(deltas[-1])


@final
@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """The sum of independent losses on one grid, or several such sums, the worst of which counts.

    The hockey-stick divergence at epsilon is an expectation of the far tail of the sum. It is taken under an
    exponentially tilted distribution, for which that tail is the bulk, so that the rounding of the fast Fourier
    transform stays small against the result however small that is.

    Parameters
    ----------
    parts : sequence of (LossDistribution, int or sequence of int)
        Each loss, and the number of its independent copies in each of the sums. All losses have
        the same step.
    """

    parts: Sequence[tuple[LossDistribution, int | Sequence[int]]]

    @property
    def step(self) -> float:
        """Distance of the grid, in nats."""
        return self.parts[0][0].step

    @cached_property
    def infinite(self) -> float:
        """The largest probability of an infinite loss: no delta is below that of its sum."""
        return float(np.max(self._infinite))

    @cached_property
    def _infinite(self) -> Array:
        finite = np.array([math.log1p(-part.infinite) if part.infinite < 1 else -math.inf for part, _ in self.parts])
        # No copy of a loss that is always infinite adds nothing.
        logs = np.multiply(self._times, finite, out=np.zeros(self._times.shape), where=self._times > 0)
        return np.asarray(np.minimum(raised(-np.expm1(np.add.reduce(logs, axis=1)), 16), 1.0))

    def delta(self, epsilon: float) -> float:
        """An upper bound on the hockey-stick divergence at any real `epsilon`, tight up to the grid."""
        if any(not part.masses.any() for part, _ in self.parts):
            # Some loss has no mass on the grid, so all of it may be infinite.
            return 1.0
        # Any tilt is valid for any of the sums.
        tilt = _lowest(lambda tilt: float(np.max(self._log_moments_at(tilt))) - tilt * epsilon, self._tilts)
        if tilt not in self._bulks:
            self._bulks[tilt] = self._bulk(tilt)
        losses, masses, errors, ulps = self._bulks[tilt]
        excess = losses - epsilon
        is_above = excess > 0
        # Each factor is at most 1, so the error of the masses is the error of the sum.
        factors = np.exp(-tilt * excess[is_above]) * -np.expm1(-excess[is_above])
        tails = np.add.reduce(masses[:, is_above] * factors, axis=1) + errors
        log_moments, shift = self._log_moments_at(tilt), min(tilt * epsilon, 1e300)
        rounding = 2.0**-50 * (np.abs(log_moments) + abs(shift))
        scales = np.exp(np.minimum(log_moments - shift + rounding, 700.0))
        return min(1.0, raised(float(np.max(self._infinite + scales * tails)), ulps))

    @cached_property
    def _bulks(self) -> dict[float, tuple[Array, Array, Array, float]]:
        """A cache of the tilted sums, by tilt."""
        return {}

    @cached_property
    def _tilts(self) -> list[float]:
        """The tilts that are used: powers of 2 over the standard deviation of the composed loss."""
        tilts: list[float] = (np.exp2(np.arange(-4.0, 11.0)) / self._spread(self._points.tilted_masses(0.0))).tolist()
        return tilts

    @cached_property
    def _points(self) -> "_Points":
        return _Points.of([part for part, _ in self.parts])

    @cached_property
    def _times(self) -> Array:
        """The number of copies of each loss in each sum, with one row for each sum."""
        return np.array([np.atleast_1d(times) for _, times in self.parts], dtype=np.float64).T

    def _sums(self, of_losses: Array) -> Array:
        """Sum values over the losses of each sum."""
        # A matrix product would wake the threads of a BLAS library, which is slower for so few products.
        return np.asarray(np.add.reduce(self._times * of_losses, axis=1))

    def _log_moments_at(self, tilt: float) -> Array:
        """Logarithms of the expectations of `exp(tilt * loss)` over finite losses."""
        return self._sums(self._points.log_moments(tilt))

    def _spread(self, weights: Array) -> float:
        """The largest standard deviation of the tilted sums, at least one step; `weights` are the tilted masses."""
        return math.sqrt(self.step**2 + float(np.max(self._sums(self._points.variances(weights)))))

    def _bulk(self, tilt: float) -> tuple[Array, Array, Array, float]:
        """Losses and masses of the tilted sums in a window with nearly all of the mass, and errors of the masses.

        The last number is the relative rounding error of the masses, in units of the last place: each copy of a loss
        multiplies by a tilted mass, whose logarithm was rounded a few times.
        """
        weights = self._points.tilted_masses(tilt)
        low, high = self._window(tilt, self._spread(weights))
        size = int(scipy.fft.next_fast_len(high - low + 1, real=True))
        spectra = np.ones((len(self._times), size // 2 + 1), dtype=np.complex128)
        norms = np.ones(len(self._times))
        for times, places, masses in zip(self._times.T, *self._points.split(weights), strict=True):
            # The transform wraps around: mass outside of the window falls somewhere into it, and is accounted for.
            circle = np.bincount(places % size, weights=masses, minlength=size)
            transformed = scipy.fft.rfft(circle)
            for copies in set(times.tolist()) - {0.0}:
                # A power of 1 would take longer than the transform.
                spectra[times == copies] *= transformed if copies == 1 else transformed**copies
            norms += times * math.sqrt(inner(circle, circle))
        circles = scipy.fft.irfft(spectra, n=size, axis=1)
        index = np.arange(low, low + size)
        losses = self.step * index.astype(np.float64)
        # The rounding error of a transform of length n is below `1e-15 * log2(n)` relative, in the l2 norm.
        errors = _OUTSIDE + 1e-15 * math.log2(size + 1) * norms * math.sqrt(size)
        ulps = 64 + 4 * float(np.max(self._sums(self._points.mean_sizes(weights, tilt))))
        return losses, np.maximum(circles[:, index % size], 0.0), errors, ulps

    def _window(self, tilt: float, spread: float) -> tuple[int, int]:
        """Indices outside of which each tilted sum has a probability below `_OUTSIDE`, by Chernoff's bound."""
        log_moments = self._log_moments_at(tilt)

        def end(extra_tilt: float) -> float:
            """A bound of the sum, or of the sum with its sign reversed."""
            log_ratio = float(np.max(self._log_moments_at(tilt + extra_tilt) - log_moments))
            return (log_ratio - math.log(_OUTSIDE / 2)) / abs(extra_tilt)

        lowest, highest = (end(_lowest(end, (np.exp2(np.arange(5.0)) * sign / spread).tolist())) for sign in (-1, 1))
        furthest = int(np.max(self._sums(np.array([len(part.masses) // 2 for part, _ in self.parts], dtype=float))))
        low, high = math.floor(-lowest / self.step), math.ceil(highest / self.step)
        return max(low, -furthest), min(high, furthest)


@final
@dataclass(frozen=True, eq=False)
class _Points:
    """All positive masses of some losses, one loss after the other, so that one pass over them serves all losses.

    Attributes
    ----------
    places : array of int
        The losses in steps.
    losses, log_masses : array
        The losses in nats, and the logarithms of their masses.
    starts : array of int
        Where each of the distributions begins.
    """

    places: Integers
    losses: Array
    log_masses: Array
    starts: Integers

    @classmethod
    def of(cls, parts: Sequence[LossDistribution]) -> Self:
        """The points of these losses, each of which has a positive mass."""
        support = [np.flatnonzero(part.masses > 0) for part in parts]
        starts = np.cumsum([0, *map(len, support[:-1])])
        places = np.concatenate([where - len(part.masses) // 2 for part, where in zip(parts, support, strict=True)])
        masses = np.concatenate([part.masses[where] for part, where in zip(parts, support, strict=True)])
        return cls(places, parts[0].step * places.astype(np.float64), np.log(masses), starts)

    def log_moments(self, tilt: float) -> Array:
        """Logarithms of the expectations of `exp(tilt * loss)`, for each loss."""
        if tilt not in self._log_moments:
            exponents = self.log_masses + tilt * self.losses
            top: Array = np.maximum.reduceat(exponents, self.starts)
            exponents -= self._repeat(top)
            self._log_moments[tilt] = top + np.log(np.add.reduceat(np.exp(exponents, out=exponents), self.starts))
        return self._log_moments[tilt]

    @cached_property
    def _log_moments(self) -> dict[float, Array]:
        """A cache by tilt."""
        return {}

    def tilted_masses(self, tilt: float) -> Array:
        """The masses times `exp(tilt * loss)`, normalised for each loss."""
        exponents = self.log_masses + tilt * self.losses
        exponents -= self._repeat(self.log_moments(tilt))
        return np.exp(exponents, out=exponents)

    def split(self, weights: Array) -> tuple[list[Integers], list[Array]]:
        """The places and the tilted masses of each loss."""
        return np.split(self.places, self.starts[1:]), np.split(weights, self.starts[1:])

    def variances(self, weights: Array) -> Array:
        """Variance of each loss; `weights` are the tilted masses."""
        means: Array = np.add.reduceat(weights * self.losses, self.starts)
        variances: Array = np.add.reduceat(weights * (self.losses - self._repeat(means)) ** 2, self.starts)
        return variances

    def mean_sizes(self, weights: Array, tilt: float) -> Array:
        """The mean sizes of the terms of the logarithms of the tilted masses, for each loss."""
        sizes = np.abs(self.log_masses) + np.abs(tilt * self.losses) + np.abs(self._repeat(self.log_moments(tilt)))
        return np.asarray(np.add.reduceat(weights * sizes, self.starts))

    def _repeat(self, of_losses: Array) -> Array:
        return np.repeat(of_losses, np.diff(self.starts, append=len(self.places)))


def _lowest(f: Callable[[float], float], points: Sequence[float]) -> float:
    """The point with the lowest value of a function that first falls and then rises. Another point is valid, too."""
    i = len(points) // 2
    for step in (-1, 1):
        while 0 <= i + step < len(points) and f(points[i + step]) < f(points[i]):
            i += step
    return points[i]


# Two distributions over finitely many outcomes: those of a finite mechanism, or densities that are cut into cells.
#
# Cutting the outputs into cells is post-processing. So the divergences of the cells' probabilities are lower bounds of
# those of the outputs, however wide the cells are.


@final
@dataclass(frozen=True, eq=False)
class FiniteDistributions(LossCurves):
    """Logarithms of the probabilities of outcomes, given the first data set and given the second.

    Each curve is the larger one of both directions.

    Attributes
    ----------
    log_p, log_q : array, shape (m,)
        Minus infinity where an outcome is impossible.

    Examples
    --------
    >>> distributions = FiniteDistributions(np.log([0.75, 0.25]), np.log([0.25, 0.75]))
    >>> distributions.delta(0.0), distributions.pure_epsilon
    (0.5, 1.098...)
    """

    log_p: Array
    log_q: Array

    def times(self, other: Self) -> Self:
        """The distributions of two independent parts."""
        return type(self)(np.add.outer(self.log_p, other.log_p).ravel(), np.add.outer(self.log_q, other.log_q).ravel())

    def merged(self, cells: int, *, largest: float = 700.0) -> Self:
        """The distributions after merging outcomes of nearly equal loss. As post-processing it raises no divergence."""
        if len(self.log_p) <= cells:
            return self
        is_possible = (self.log_p > -np.inf) | (self.log_q > -np.inf)
        log_p, log_q = self.log_p[is_possible], self.log_q[is_possible]
        # Where one of the two distributions is 0 the loss is infinite, and these cells are not merged with others.
        loss = np.clip(log_p - log_q, -largest, largest)
        order = np.argsort(loss, kind="stable")
        # Cells are narrow where the probability is large, and in the tails as narrow in the loss itself.
        weight = np.cumsum(np.exp(np.logaddexp(log_p, log_q)[order])) / 2
        rank = weight / weight[-1] + np.arcsinh(loss[order])
        rank = (rank - rank[0]) / max(rank[-1] - rank[0], 1e-300)
        starts = np.flatnonzero(np.diff(np.floor(rank * (cells - 1)), prepend=-1.0))
        return type(self)(*(np.logaddexp.reduceat(distribution[order], starts) for distribution in (log_p, log_q)))

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an outcome, `inf` where an outcome is possible under one distribution only."""
        return max(float(np.max(p[p > -np.inf] - q[p > -np.inf], initial=0.0)) for p, q in self._directions)

    @override
    def _delta(self, epsilon: float) -> float:
        return max(_hockey_stick(*pair, epsilon) for pair in self._directions)

    @override
    def _renyi(self, order: float) -> float:
        if order == math.inf:
            return self.pure_epsilon
        return max(_renyi(*pair, order) for pair in self._directions)

    @override
    def _rho(self, omega: float) -> float:
        return rho_from_above(self._renyi, omega) if math.isfinite(self.pure_epsilon) else math.inf

    @property
    def _directions(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return (self.log_p, self.log_q), (self.log_q, self.log_p)


def product_of(parts: list[FiniteDistributions], *, cells: int = 1_500) -> FiniteDistributions:
    """The joint distributions of independent parts; outcomes of nearly equal loss are merged if there are many."""
    if not parts:
        raise ArgumentError("Expected two data sets that differ.")
    return reduce(lambda distribution, part: distribution.merged(cells).times(part), parts)


def _hockey_stick(log_p: Array, log_q: Array, epsilon: float) -> float:
    is_possible = log_p > -np.inf
    excess = log_p[is_possible] - log_q[is_possible] - epsilon
    return float(np.sum(np.exp(log_p[is_possible]) * -np.expm1(-np.maximum(excess, 0.0))))


def _renyi(log_p: Array, log_q: Array, order: float) -> float:
    is_possible = log_p > -np.inf
    p, loss = log_p[is_possible], log_p[is_possible] - log_q[is_possible]
    if order == 1:
        # No term of p log(p / q) - p + q is negative.
        return float(np.sum(np.exp(p) * (loss + np.expm1(-loss))))
    tilt = (order - 1) * loss
    if tilt.max() == math.inf:
        # Only one of the two distributions has this outcome.
        return math.inf
    if tilt.max() > 30:
        return float(logsumexp(p + tilt)) / (order - 1)
    # The sum is near 1, so its difference from 1 is summed. Its linear terms are left out: they add
    # up to the sum of q - p, which is 0 unless the other direction is infinite.
    return math.log1p(float(np.sum(np.exp(p) * (np.expm1(tilt) + (order - 1) * np.expm1(-loss))))) / (order - 1)
