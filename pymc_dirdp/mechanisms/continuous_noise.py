"""Continuous Gaussian and Laplace noise: baselines, for sampler='fast' alone."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final, override

import numpy as np
from scipy.special import log_ndtr

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.audit_distributions import CELLS, normal_distributions
from pymc_dirdp.mechanisms.discrete_gaussian import gaussian_excess
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.roots import round_up
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.fast import on_grid

__all__ = ["GaussianMechanism", "LaplaceMechanism"]

# Gaussian noise on counts.


# Where two logarithms are this close their difference has lost digits, and an integral is used in its place.
_CLOSE = 0.1
# A delta is raised by more than its rounding, and epsilon is lowered by that of the standardised distances.
_UP, _ROUNDING = 1 + 1e-11, 1e-15


@final
@dataclass(frozen=True, eq=False)
class GaussianMechanism(NoisyCounts):
    """Release `counts + Normal(0, sigma**2)`, independent in every cell, on a fine grid: the papers' baseline.

    Continuous noise cannot be drawn exactly, so a release takes `sampler="fast"`. For data use
    :class:`pymc_dirdp.mechanisms.discrete_gaussian.DiscreteGaussianMechanism`.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    sigma : float
        Standard deviation of the noise, between 2**-200 and 2**200.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    All curves are exact for the ideal distribution. The loss is normal with standard deviation `Delta_2 / sigma`. With
    m records in each of R blocks `Delta_2**2` is `2 R m**2` under replace-one and `R m**2` under add-remove, because
    the squares of integers that add up to m are largest in sum where all m are in one cell. The noise is rounded to a
    grid that holds all integers, so the last bits of a sum tell nothing (:mod:`pymc_dirdp.sampling.fast`).

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism, Theorem 8. P1 section 5, P2 Appendix C.

    Examples
    --------
    >>> mechanism = GaussianMechanism([1, 1, 1, 1], 5.0)
    >>> mechanism.epsilon(1e-6)
    1.2...
    """

    sigma: float

    kind: ClassVar[str] = "continuous-gaussian"
    smooth_noise: ClassVar[bool] = True
    samplers: ClassVar[tuple[str, ...]] = ("fast",)
    exact_form: ClassVar[str] = "DiscreteGaussianMechanism"

    @property
    @override
    def noise_sd(self) -> float:
        return self.sigma

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return on_grid(rng.normal(0.0, self.sigma, size=shape), self.noise_sd)

    @override
    def log_noise(self, noise: Array) -> Array:
        return -((noise / self.sigma) ** 2) / 2 - math.log(2 * math.pi) / 2 - math.log(self.sigma)

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        """Only the direction from one data set to the other matters."""
        return normal_distributions(math.sqrt(float(np.sum((x - y) ** 2))) / self.sigma, cells or CELLS)

    @property
    def _ratio(self) -> float:
        """The standard deviation of the privacy loss, whose distribution is `Normal(ratio**2 / 2, ratio**2)`."""
        return self._records * math.sqrt(self._groups) / self.sigma

    @override
    def _renyi(self, order: float) -> float:
        return order * self._ratio**2 / 2

    @override
    def _rho(self, omega: float) -> float:
        return self._ratio**2 / 2

    @override
    def _delta(self, epsilon: float) -> float:
        ratio = self._ratio
        epsilon -= _ROUNDING * (epsilon + ratio * ratio / 2)
        first = float(log_ndtr(ratio / 2 - epsilon / ratio))
        second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
        if first - second < _CLOSE:
            return min(1.0, gaussian_excess(ratio, epsilon / ratio - ratio / 2)[0] * _UP)
        # This is exp(first) - exp(second), with second < first, without cancellation.
        return min(1.0, math.exp(first) * -math.expm1(second - first) * _UP)


# Laplace noise on counts.


# A likelihood ratio agrees with that of the distribution to so many decimals.
_DECIMALS = 9
# Cells between the centres of two Laplace distributions.
_BETWEEN = 300


@final
@dataclass(frozen=True, eq=False)
class LaplaceMechanism(CurvesOf, NoisyCounts):
    """Release `counts + Laplace(scale)`, independent in every cell, on a fine grid: the papers' baseline.

    Continuous noise cannot be drawn exactly, so a release takes `sampler="fast"`. For data use
    :class:`pymc_dirdp.mechanisms.GeometricMechanism`, its discrete form, which is less noisy at the same guarantee.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, between 2**-200 and 2**200; its standard deviation is `sqrt(2) * scale`.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    All curves are exact for the ideal distribution; with one record in each of several blocks the hockey stick is that
    of a composition, on a grid that errs towards more loss, and with m records in a block all curves are those of
    randomised response at `m / scale`, as for :class:`pymc_dirdp.mechanisms.GeometricMechanism`. The noise is rounded
    to a grid that holds all integers, so the last bits of a sum tell nothing (:mod:`pymc_dirdp.sampling.fast`). Under
    replace-one the loss is the sum of the losses of two cells, so its Rényi divergence is twice the scalar one at
    sensitivity 1, not the scalar one at sensitivity 2 (ERRATA P1.11).

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), https://doi.org/10.1007/11681878_14. Mironov (2017), Table II.

    Examples
    --------
    >>> mechanism = LaplaceMechanism([1, 1, 1, 1], 2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> mechanism.epsilon(0.01)
    0.95...
    """

    scale: float

    kind: ClassVar[str] = "laplace"
    smooth_noise: ClassVar[bool] = True
    noise_family: ClassVar[str] = "laplace"
    samplers: ClassVar[tuple[str, ...]] = ("fast",)
    exact_form: ClassVar[str] = "GeometricMechanism"

    @property
    @override
    def noise_sd(self) -> float:
        return math.sqrt(2) * self.scale

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return on_grid(rng.laplace(0.0, self.scale, size=shape), self.noise_sd)

    @override
    def log_noise(self, noise: Array) -> Array:
        return -np.abs(noise) / self.scale - math.log(2 * self.scale)

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # Where the ratio is constant, its last bits would tell how the noise was added.
        return np.round(super().log_likelihood_ratio(outputs, x, y), _DECIMALS)

    @override
    def _cell_distributions(self, shift: float, cells: int | None) -> FiniteDistributions:
        """The loss is constant beyond the two counts, so one cell is enough on either side."""
        edges = np.linspace(0.0, shift / self.scale, _BETWEEN)
        # P[a < Z < b] = exp(-a) (1 - exp(a - b)) / 2 for 0 <= a.
        width = math.log(-math.expm1(-float(edges[1]))) - math.log(2)
        last = -shift / self.scale - math.log(2)
        falling = np.concatenate([[-math.log(2)], width - edges[:-1], [last]])
        return FiniteDistributions(falling, falling[::-1])

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        # One over the scale is rounded up: near the largest loss, delta is a difference from it.
        u = round_up(self._records / Fraction(self.scale))
        if self._records > 1:
            return RandomisedResponse(u, self._groups)
        if self._groups <= 2:
            return _Block(u, self._groups)
        return Composition(((_Block(u, round(self._relation.delta_1)), self._blocks),))


@final
@dataclass(frozen=True)
class _Block(PrivacyCurves):
    """Noise of scale `1 / u` on one count or two that move by 1."""

    u: float
    cells: int

    @property
    @override
    def pure_epsilon(self) -> float:
        return self.cells * self.u

    @override
    def _renyi(self, order: float) -> float:
        """The divergence at one count is exact (Mironov 2017, Table II).

        There `exp((order - 1) D)` is `[order exp((order - 1) u) + (order - 1) exp(-order u)] / (2 order - 1)`.
        """
        u = self.u
        if order == math.inf:
            return self.pure_epsilon
        if order == 1:
            return self.cells * _second_order(-u)
        if order * u > 1:
            # The larger term is taken out.
            log = math.log1p((order - 1) / (2 * order - 1) * math.expm1(-(2 * order - 1) * u))
            return self.cells * (u + log / (order - 1))
        # The constant and linear terms of both exponentials cancel; what is left of them is positive.
        more = order * _second_order((order - 1) * u) + (order - 1) * _second_order(-order * u)
        return self.cells * (math.log1p(more / (2 * order - 1)) / (order - 1))

    @override
    def _rho(self, omega: float) -> float:
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        """In closed form, with x half the distance from epsilon to the largest loss.

        The loss of one count is `u` with probability 1/2, `-u` with probability `exp(-u) / 2`, and has density
        `exp((loss - u) / 2) / 4` between.
        """
        x = (self.cells * self.u - epsilon) / 2
        if x <= 0:
            return 0.0
        return -math.expm1(-x) - (x / 2 * math.exp(-x) if self.cells == 2 else 0.0)


def _second_order(x: float) -> float:
    """`exp(x) - 1 - x`, without cancellation."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    return math.fsum(x**k / math.factorial(k) for k in range(2, 18))
