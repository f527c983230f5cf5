"""Discrete Gaussian noise on counts: whole numbers, drawn and accounted without rounding on the secret's path."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import discrete_gaussian_curve as curve
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.whole_noise import gaussian_deviation, gaussian_noise
from pymc_dirdp.numerics.roots import largest_safe, least_epsilon
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian
from pymc_dirdp.sampling.rationals import dyadic_above

__all__ = ["DiscreteGaussianMechanism"]

Array = NDArray[np.float64]

# The variance has to be a double, with room for its square.
_LEAST, _MOST = 2.0**-200, 2.0**200
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
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells by 1, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How noisy counts are made nonnegative.
    contribution : int or Contribution, default 1
        What one person adds to the table; all of that person's records may change together.

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

    prior: Array
    sigma: float
    _: KW_ONLY
    adjacency: str = "replace-one"
    postprocess: str = "clip-and-smooth"
    contribution: Contribution | int = 1

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "sigma", positive(sigma=self.sigma))
        if not _LEAST <= self.sigma <= _MOST:
            raise ArgumentError(f"Expected sigma between 2**-200 and 2**200, got sigma={self.sigma:g}.")

    @cached_property
    def variance(self) -> Fraction:
        """The parameter that is really used: the square of `sigma`, rounded up by 2**-40 at most, relative."""
        return dyadic_above(Fraction(self.sigma) ** 2)

    @property
    @override
    def noise(self) -> float:
        return gaussian_deviation(float(self.variance))

    @property
    @override
    def parameter(self) -> float:
        return self.sigma

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return gaussian_noise(float(self.variance), shape, rng)

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

    @override
    def _epsilon(self, delta: float) -> float:
        return least_epsilon(self._delta, delta)

    @classmethod
    @override
    def _least(cls, excess: Callable[[float], float]) -> float:
        """From a sigma that is safe down to the first that is not, because below that one others may be safe again."""

        def at(sigma: float) -> float:
            if sigma > _MOST:
                raise UnattainableError("The guarantee is so tight that no sigma up to 2**200 keeps it; relax it.")
            return excess(sigma) if sigma >= _LEAST else math.inf

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
