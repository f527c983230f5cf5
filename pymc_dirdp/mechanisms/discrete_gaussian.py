"""Discrete Gaussian noise on counts: integers, drawn and accounted without rounding on the secret's path."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import discrete_gaussian_curve as curve
from pymc_dirdp.mechanisms.noisy_counts import LEAST, MOST, NoisyCounts
from pymc_dirdp.mechanisms.whole_noise import gaussian_deviation, gaussian_noise
from pymc_dirdp.numerics.roots import largest_safe
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian
from pymc_dirdp.sampling.rationals import dyadic_above

__all__ = ["DiscreteGaussianMechanism"]

# Up to this variance the normaliser is a sum of so many terms.
_WIDE, _TERMS = 2.0, 80
# Audits sum over so many sigmas, and over so many cells at most.
_REACH, _MOST_CELLS = 13.0, 400_000
# The search for the least noise goes down by this factor until a promise breaks, and then bisects.
_STEP = 0.98
_BISECTIONS = 32
# Above this sigma the lattice is too fine for delta to rise with it.
_FINE = 8.0


@final
@dataclass(frozen=True, eq=False)
class DiscreteGaussianMechanism(NoisyCounts):
    """Release `counts + K`, with `P[K = k]` proportional to `exp(-k**2 / (2 sigma**2))`, independent in every cell.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    sigma : float
        Parameter of the noise, between 2**-200 and 2**200; above 1 it is nearly its standard deviation. Its square is
        rounded up to a rational number, see `variance`.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    All curves are those of the rational variance that is drawn with. `rho` is `Delta_2**2 / (2 variance)` for every
    omega, as for continuous noise, with `Delta_2**2` equal to m**2 times the groups of cells that change; Rényi
    divergences are equal to those of continuous noise at whole orders and below them between. The hockey-stick
    divergence is not below the continuous one, so it has its own sums. With one record in each of several blocks it is
    exact; with m records in a block it is the larger of that of all m in one cell, exact, and of what the Rényi
    divergences of everything else imply.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    https://doi.org/10.48550/arXiv.2004.00010, Algorithm 3 and Theorem 7. Theory, Exact noise.

    Examples
    --------
    >>> mechanism = DiscreteGaussianMechanism([1, 1, 1, 1], 5.0)
    >>> mechanism.rho(8)
    0.04
    >>> mechanism.epsilon(1e-6)
    1.2...
    >>> mechanism.release([108, 286, 71, 127]).shape
    (4,)
    """

    sigma: float

    kind: ClassVar[str] = "gaussian"
    smooth_noise: ClassVar[bool] = True

    @cached_property
    def variance(self) -> Fraction:
        """The parameter that is really used: the square of `sigma`, rounded up by 2**-40 at most, relative."""
        return dyadic_above(Fraction(self.sigma) ** 2)

    @property
    @override
    def noise_sd(self) -> float:
        return gaussian_deviation(float(self.variance))

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return gaussian_noise(float(self.variance), shape, rng)

    @override
    def log_noise(self, noise: Array) -> Array:
        variance = float(self.variance)
        return -(noise**2) / (2 * variance) - _log_normaliser(variance)

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        return discrete_gaussian(self.variance, shape, bits)

    @override
    def _renyi(self, order: float) -> float:
        if self._records == 1 or order == math.inf:
            return curve.renyi(self.variance, self._groups, order)
        return not_below(Fraction(order) * self._slope)

    @override
    def _rho(self, omega: float) -> float:
        return not_below(self._slope)

    @property
    def _slope(self) -> Fraction:
        """Half of the squared l2 distance of neighbours over the variance."""
        return self._groups * self._records**2 / (2 * self.variance)

    @override
    def _delta(self, epsilon: float) -> float:
        together = curve.delta(float(self.variance), self._groups, self._records, epsilon)
        if self._records == 1 or together == 1:
            return together
        # If the m records of some group are not all in one cell, its squares add up to (m - 1)**2 + 1 at most.
        spread = self._slope - (self._records - 1) / self.variance
        return max(together, curve.converted(not_below(spread), epsilon))

    @classmethod
    @override
    def _least(cls, excess: Callable[[float], float]) -> float:
        """The search goes down to the first sigma that is not safe, because smaller ones may be safe again."""

        def at(sigma: float) -> float:
            if sigma > MOST:
                raise UnattainableError("The guarantee is so tight that no sigma up to 2**200 keeps it; relax it.")
            return excess(sigma) if sigma >= LEAST else math.inf

        safe = 1 / largest_safe(lambda inverse: at(1 / inverse))
        if safe > _FINE:
            return safe
        safe *= 2
        while at(safe) > 0:
            safe *= 2
        unsafe = _STEP * safe
        while at(unsafe) <= 0:
            safe, unsafe = unsafe, _STEP * unsafe
        for _ in range(_BISECTIONS):
            middle = (safe + unsafe) / 2
            safe, unsafe = (middle, unsafe) if at(middle) <= 0 else (safe, middle)
        return safe

    @override
    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> FiniteLaws:
        """The likelihood ratio depends on `(x - y) @ noise` alone, so the distribution of that is convolved."""
        shifts = [round(float(shift)) for shift in (x - y)[x != y]]
        if not shifts:
            raise ArgumentError("Expected two data sets that differ.")
        reach = math.ceil(_REACH * math.sqrt(self.variance)) + max(map(abs, shifts)) + 2
        if 2 * reach * sum(map(abs, shifts)) > _MOST_CELLS:
            raise ArgumentError(f"The law of noise with sigma={self.sigma:g} has too many cells to be summed over.")
        g = np.arange(-reach, reach + 1, dtype=np.float64)

        def cell(centre: int, shift: int) -> Array:
            """Probabilities of `shift * (centre + noise)`, in rising order. No other multiples are possible."""
            spread = np.zeros((len(g) - 1) * abs(shift) + 1)
            spread[:: abs(shift)] = np.exp(self.log_noise(g - centre))
            return spread if shift > 0 else spread[::-1]

        def law(centres: list[int]) -> Array:
            return reduce(np.convolve, [cell(c, s) for c, s in zip(centres, shifts, strict=True)])

        with np.errstate(divide="ignore"):
            return FiniteLaws(np.log(law(shifts)), np.log(law([0] * len(shifts))))


def _log_normaliser(variance: float) -> float:
    """Logarithm of the sum of `exp(-k**2 / (2 variance))` over all integers k."""
    if variance > _WIDE:
        # This is Poisson's summation formula; the next term is below 1e-60.
        return math.log(2 * math.pi * variance) / 2 + math.log1p(2 * math.exp(-2 * math.pi**2 * variance))
    return math.log1p(2 * math.fsum(math.exp(-(k**2) / (2 * variance)) for k in range(1, _TERMS)))
