"""Gaussian noise on counts."""

import math
from dataclasses import dataclass
from typing import ClassVar, final, override

import numpy as np
from scipy.special import log_ndtr

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.cut_densities import CELLS, normal_laws
from pymc_dirdp.mechanisms.gaussian_excess import gaussian_excess
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.sampling.grid import on_grid

__all__ = ["GaussianMechanism"]

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
    grid that holds all integers, so the last bits of a sum tell nothing (:mod:`pymc_dirdp.sampling.grid`).

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
    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> FiniteLaws:
        """Only the direction from one data set to the other matters."""
        return normal_laws(math.sqrt(float(np.sum((x - y) ** 2))) / self.sigma, cells or CELLS)

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
