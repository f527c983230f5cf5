"""Two-sided geometric noise on counts: integers, and nothing is wasted."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.whole_noise import geometric_noise, used_scale
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.curves import CurvesOf
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.privacy.randomised_response import RandomisedResponse
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace

__all__ = ["GeometricMechanism"]


@final
@dataclass(frozen=True, eq=False)
class GeometricMechanism(CurvesOf, NoisyCounts):
    """Release `counts + G`, with `P[G = g]` proportional to `exp(-|g| / scale)`, independent in every cell.

    It is for a private number of records. Where that is public, a release takes
    :class:`pymc_dirdp.mechanisms.ZeroSumGeometricMechanism`, which is less noisy at the same guarantee.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive: that of the Laplace distribution of which this is the discrete form. It is rounded
        up to 41 binary digits, and the attribute is the number that is used.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    The noise consists of integers and is drawn as such (`sampler="exact"`), for scales of any size. The loss of
    one cell is `1 / scale` or `-1 / scale`, as that of randomised response. With one record in each of R blocks the
    curves are exact. With m records in a block the counts that grow, wherever they lie, keep `m / scale`-differential
    privacy, and so do those that fall: the curves are those of randomised response at `m / scale`, of which no pair
    with that guarantee is worse. The pure epsilon is exact in all cases.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2. Kairouz, Oh and
    Viswanath (2015), Theorem 3.3. Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing
    privacy mechanisms, https://doi.org/10.1137/09076828X. Theory, section 13.

    Examples
    --------
    >>> mechanism = GeometricMechanism([1, 1, 1, 1], 2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> mechanism.release([108, 286, 71, 127]).shape
    (4,)
    """

    scale: float

    kind: ClassVar[str] = "geometric"
    smooth_noise: ClassVar[bool] = True
    noise_family: ClassVar[str] = "laplace"

    @override
    def _checked_parameter(self, value: float) -> float:
        return used_scale(value)

    @property
    @override
    def noise_sd(self) -> float:
        u = 1 / self.scale
        return math.sqrt(2) * math.exp(-u / 2) / -math.expm1(-u)

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return geometric_noise(self.scale, shape, rng)

    @override
    def log_noise(self, noise: Array) -> Array:
        u = 1 / self.scale
        return math.log(-math.expm1(-u)) - math.log1p(math.exp(-u)) - np.abs(noise) * u

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        return discrete_laplace(Fraction(self.scale), shape, bits)

    @cached_property
    @override
    def _curves(self) -> RandomisedResponse:
        """One answer for each group of cells that changes; one over the scale and the largest loss are rounded up."""
        each = self._records / Fraction(self.scale)
        return RandomisedResponse(not_below(each), self._groups, not_below(self._groups * each))

    @override
    def _cell_laws(self, shift: float, cells: int | None) -> FiniteLaws:
        """Integers between the two counts, and all beyond in one cell each: there the loss is constant."""
        u, between = 1 / self.scale, round(shift)
        # P[G <= 0] = 1 / (1 + q), P[G = g] = (1 - q) / (1 + q) q^|g| and P[G >= g] = q^g / (1 + q), with q = exp(-u).
        total = math.log1p(math.exp(-u))
        g = np.arange(1, between)
        law = np.concatenate([[-total], math.log(-math.expm1(-u)) - total - u * g, [-u * between - total]])
        return FiniteLaws(law, law[::-1])
