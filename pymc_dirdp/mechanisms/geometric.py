"""Two-sided geometric noise on counts: whole numbers, and nothing is wasted."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import positive
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.randomised_response import RandomisedResponse

__all__ = ["GeometricMechanism"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class GeometricMechanism(NoisyCounts):
    """Release `counts + G`, with `P[G = g]` proportional to `exp(-|g| / scale)`, independent in every cell.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive: that of the Laplace law of which this is the discrete form.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells by 1, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How noisy counts are made nonnegative.

    Notes
    -----
    The noise consists of whole numbers, so floating point leaks nothing through it. The loss of one cell is
    `1 / scale` or `-1 / scale`, as that of randomised response; all curves are exact.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing privacy mechanisms,
    https://doi.org/10.1137/09076828X. Theory, section 13.

    Examples
    --------
    >>> mechanism = GeometricMechanism([1, 1, 1, 1], 2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> mechanism.release([108, 286, 71, 127]).shape
    (4,)
    """

    prior: Array
    scale: float
    _: KW_ONLY
    adjacency: str = "replace-one"
    postprocess: str = "clip-and-smooth"

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "scale", positive(scale=self.scale))

    @property
    @override
    def noise(self) -> float:
        u = 1 / self.scale
        return math.sqrt(2) * math.exp(-u / 2) / -math.expm1(-u)

    @property
    @override
    def parameter(self) -> float:
        return self.scale

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        # The difference of two geometric variables; with p = 1 - exp(-1 / scale) each.
        p = -math.expm1(-1 / self.scale)
        return (rng.geometric(p, size=shape) - rng.geometric(p, size=shape)).astype(np.float64)

    @property
    def _response(self) -> RandomisedResponse:
        """As many answers as one record changes cells."""
        return RandomisedResponse(1 / self.scale, round(self._relation.delta_1))

    @property
    @override
    def pure_epsilon(self) -> float:
        """One over the scale, for each cell that a record changes."""
        return self._response.pure_epsilon

    @override
    def _renyi(self, order: float) -> float:
        return self._response.renyi(order)

    @override
    def _rho(self, omega: float) -> float:
        return self._response.rho()

    @override
    def _delta(self, epsilon: float) -> float:
        return self._response.delta(epsilon)

    @override
    def _epsilon(self, delta: float) -> float:
        return self._response.epsilon(delta)
