"""Privacy loss distributions on a grid, which lead from hockey-stick curves to the curve of their composition.

A pair of laws with hockey-stick curve `delta(epsilon)` over all real epsilon is as far apart as, or less than, the
discrete pair that agrees with the curve on a grid of epsilons and is linear in `exp(epsilon)` between ("connect the
dots"). Losses of independent pairs add, so discrete pairs are composed by convolution (Theory, section 7). Every step
errs towards more loss, and a bound of the rounding error is added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from pymc_dirdp.arrays import Array, Integers

__all__ = ["ComposedLoss", "LossDistribution", "discretised"]

# This margin covers the rounding of the curves themselves, which is about 1e-11 relative.
_MARGIN = 1e-10
# At most this share of a tilted law lies outside of the window; it is added to the result.
_OUTSIDE = 1e-13
# The tilts are in units of one over the standard deviation of the composed loss.
_TILTS = np.exp2(np.arange(-4.0, 11.0))
# The rounding error of a transform of length n is below `_ROUNDING * log2(n)` relative, in the l2 norm.
_ROUNDING = 1e-15


@final
@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A privacy loss that takes multiples of `step` nats, or infinity.

    Attributes
    ----------
    step : float
        Distance of the grid, in nats.
    masses : array, shape (2 n - 1,)
        Probabilities, under the first law, of the losses `step * (-n + 1), ..., step * (n - 1)`.
    infinite : float
        Probability of an infinite loss.
    """

    step: float
    masses: Array
    infinite: float

    @cached_property
    def losses(self) -> Array:
        """The losses that belong to `masses`, in nats."""
        n = len(self.masses) // 2
        return self.step * np.arange(-n, n + 1, dtype=np.float64)


def discretised(step: float, forward: Array, backward: Array) -> LossDistribution:
    """The least discrete loss on a grid of this step whose hockey-stick curve lies nowhere below the given one.

    Parameters
    ----------
    forward, backward : array, shape (n,)
        Hockey-stick divergences of the first law from the second and of the second from the first, at epsilon
        `0, step, ..., step * (n - 1)`. Convex and falling in `exp(epsilon)`.

    References
    ----------
    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Connect the dots, https://doi.org/10.56553/popets-2022-0122.
    """
    above, infinite = _positive_masses(step, forward * (1 + _MARGIN))
    below, _ = _positive_masses(step, backward * (1 + _MARGIN))
    # A loss of -l has exp(-l) times the probability that the other law gives to it.
    below = below * np.exp(-step * np.arange(1, len(backward)))
    rest = 1.0 - math.fsum([infinite, *above, *below])
    return LossDistribution(step, np.concatenate([below[::-1], [max(rest, 0.0)], above]), infinite)


def _positive_masses(step: float, deltas: Array) -> tuple[Array, float]:
    """Masses at `step, 2 step, ...` and at infinity: the law whose curve joins the dots and is flat beyond them."""
    falls = np.append(deltas[:-1] - deltas[1:], 0.0)
    # The slope in exp(epsilon) jumps at each dot by the mass there over exp(epsilon). Both sides are divided by
    # exp(step), which may be beyond the largest double.
    masses = (falls[:-1] - math.exp(-step) * falls[1:]) / -math.expm1(-step)
    return np.maximum(masses, 0.0), float(deltas[-1])


@final
@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """The sum of independent losses on one grid.

    The hockey-stick divergence at epsilon is an expectation of the far tail of the sum. It is taken under an
    exponentially tilted law, for which that tail is the bulk, so that the rounding of the fast Fourier transform stays
    small against the result however small that is.

    Parameters
    ----------
    parts : sequence of (LossDistribution, int)
        Each loss, and how many independent copies of it are added. All have the same step.
    """

    parts: Sequence[tuple[LossDistribution, int]]

    @property
    def step(self) -> float:
        """Distance of the grid, in nats."""
        return self.parts[0][0].step

    @cached_property
    def infinite(self) -> float:
        """Probability of an infinite loss: no delta is below it."""
        if any(part.infinite >= 1 for part, _ in self.parts):
            return 1.0
        return -math.expm1(math.fsum(times * math.log1p(-part.infinite) for part, times in self.parts))

    def delta(self, epsilon: float) -> float:
        """An upper bound on the hockey-stick divergence at any real `epsilon`, tight up to the grid."""
        if any(not part.masses.any() for part, _ in self.parts):
            # Some loss has no mass on the grid, so all of it may be infinite.
            return 1.0
        tilt = min(self._log_moments, key=lambda tilt: self._log_moments[tilt] - tilt * epsilon)
        if tilt not in self._bulks:
            self._bulks[tilt] = self._bulk(tilt)
        losses, masses, error = self._bulks[tilt]
        excess = losses - epsilon
        above = excess > 0
        # Each factor is at most 1, so the error of the masses is the error of the sum.
        tail = float(masses[above] @ (np.exp(-tilt * excess[above]) * -np.expm1(-excess[above]))) + error
        scale = math.exp(min(self._log_moments[tilt] - tilt * epsilon, 700.0))
        return min(1.0, self.infinite + scale * tail)

    @cached_property
    def _bulks(self) -> dict[float, tuple[Array, Array, float]]:
        """A cache of the tilted sums, by tilt."""
        return {}

    @cached_property
    def _log_moments(self) -> dict[float, float]:
        """Logarithms of the moments, over the tilts that are used."""
        _, spread = self._location(0.0)
        return {tilt: self._log_moment(tilt) for tilt in (_TILTS / spread).tolist()}

    @cached_property
    def _points(self) -> "_Points":
        return _Points.of([part for part, _ in self.parts])

    @cached_property
    def _times(self) -> Array:
        return np.array([times for _, times in self.parts], dtype=np.float64)

    def _log_moment(self, tilt: float) -> float:
        """Logarithm of the expectation of `exp(tilt * loss)` over finite losses."""
        return math.fsum((self._times * self._points.log_moments(tilt)).tolist())

    def _location(self, tilt: float) -> tuple[float, float]:
        """Mean and standard deviation of the tilted sum; the latter at least one step."""
        means, variances = self._points.locations(tilt)
        return _inner(self._times, means), math.sqrt(self.step**2 + _inner(self._times, variances))

    def _bulk(self, tilt: float) -> tuple[Array, Array, float]:
        """Losses and masses of the tilted sum in a window that holds nearly all of it, and the error of the masses."""
        low, high = self._window(tilt)
        size = int(next_fast_len(high - low + 1, real=True))
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        norms = 1.0
        for (_, times), places, weights in zip(self.parts, *self._points.tilted_parts(tilt), strict=True):
            # The transform wraps around: mass outside of the window falls somewhere into it, and is accounted for.
            circle = np.bincount(places % size, weights=weights, minlength=size)
            transformed = rfft(circle)
            # A power of 1 would take longer than the transform.
            spectrum *= transformed if times == 1 else transformed**times
            norms += times * math.sqrt(_inner(circle, circle))
        circle = irfft(spectrum, n=size)
        index = np.arange(low, low + size)
        losses = self.step * index.astype(np.float64)
        error = _OUTSIDE + _ROUNDING * math.log2(size + 1) * norms * math.sqrt(size)
        return losses, np.maximum(circle[index % size], 0.0), error

    def _window(self, tilt: float) -> tuple[int, int]:
        """Indices outside of which the tilted sum has a probability below `_OUTSIDE`, by Chernoff's bound."""
        spread = self._location(tilt)[1]
        log_moment = self._log_moment(tilt)

        def end(sign: int) -> float:
            return min(
                (self._log_moment(tilt + sign * more) - log_moment - math.log(_OUTSIDE / 2)) / more
                for more in [share / spread for share in (1.0, 2.0, 4.0, 8.0, 16.0)]
            )

        furthest = sum(times * (len(part.masses) // 2) for part, times in self.parts)
        low, high = math.floor(-end(-1) / self.step), math.ceil(end(1) / self.step)
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
        Where each of the laws begins.
    """

    places: Integers
    losses: Array
    log_masses: Array
    starts: Integers

    @classmethod
    def of(cls, parts: Sequence[LossDistribution]) -> Self:
        """The points of these losses, each of which has a positive mass."""
        held = [np.flatnonzero(part.masses > 0) for part in parts]
        starts = np.cumsum([0, *map(len, held[:-1])])
        places = np.concatenate([where - len(part.masses) // 2 for part, where in zip(parts, held, strict=True)])
        masses = np.concatenate([part.masses[where] for part, where in zip(parts, held, strict=True)])
        return cls(places, parts[0].step * places.astype(np.float64), np.log(masses), starts)

    def log_moments(self, tilt: float) -> Array:
        """Logarithms of the expectations of `exp(tilt * loss)`, for each loss."""
        exponents = self.log_masses + tilt * self.losses
        top: Array = np.maximum.reduceat(exponents, self.starts)
        exponents -= self._spread_out(top)
        return top + np.log(np.add.reduceat(np.exp(exponents, out=exponents), self.starts))

    def tilted(self, tilt: float) -> Array:
        """The masses times `exp(tilt * loss)`, normalised for each loss."""
        exponents = self.log_masses + tilt * self.losses
        exponents -= self._spread_out(self.log_moments(tilt))
        return np.exp(exponents, out=exponents)

    def tilted_parts(self, tilt: float) -> tuple[list[Integers], list[Array]]:
        """The places and the tilted masses of each loss."""
        return np.split(self.places, self.starts[1:]), np.split(self.tilted(tilt), self.starts[1:])

    def locations(self, tilt: float) -> tuple[Array, Array]:
        """Mean and variance of each loss, tilted."""
        weights = self.tilted(tilt)
        means: Array = np.add.reduceat(weights * self.losses, self.starts)
        variances: Array = np.add.reduceat(weights * (self.losses - self._spread_out(means)) ** 2, self.starts)
        return means, variances

    def _spread_out(self, of_losses: Array) -> Array:
        return np.repeat(of_losses, np.diff(self.starts, append=len(self.places)))


def _inner(x: Array, y: Array) -> float:
    """The inner product. That of NumPy wakes the threads of a BLAS library, which takes longer than so few products."""
    return float(np.add.reduce(x * y))
