"""Two-sided geometric noise on counts: whole numbers, and nothing is wasted."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import positive
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.roots import least_epsilon

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
        return 1 / (math.sqrt(2) * math.sinh(1 / (2 * self.scale)))

    @override
    def _noise(self, rng: np.random.Generator) -> Array:
        # The difference of two geometric variables; with p = 1 - exp(-1 / scale) each.
        p = -math.expm1(-1 / self.scale)
        shape = self.prior.shape
        return (rng.geometric(p, size=shape) - rng.geometric(p, size=shape)).astype(np.float64)

    @property
    def _cells(self) -> int:
        """How many cells one record changes."""
        return round(self._relation.delta_1)

    @property
    @override
    def pure_epsilon(self) -> float:
        """One over the scale, for each cell that a record changes."""
        return self._cells / self.scale

    @override
    def _renyi(self, order: float) -> float:
        return self._cells * _renyi(1 / self.scale, order)

    @override
    def _rho(self, omega: float) -> float:
        # D_order / order falls with the order (Theory, Theorem 7).
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        return _delta(1 / self.scale, self._cells, epsilon)

    @override
    def _epsilon(self, delta: float) -> float:
        return least_epsilon(self._delta, delta)


def _renyi(u: float, order: float) -> float:
    """Divergence of one cell: the logarithm of `cosh((order - 1/2) u) / cosh(u / 2)` over `order - 1`."""
    if order == math.inf:
        return u
    if order == 1:
        return u * math.tanh(u / 2)
    s, half = (order - 0.5) * u, u / 2
    if s < 1:
        # cosh(s) / cosh(half) - 1 = 2 sinh((s + half) / 2) sinh((s - half) / 2) / cosh(half), without cancellation.
        more = 2 * math.sinh(order * u / 2) * math.sinh((order - 1) * u / 2) / math.cosh(half)
        return math.log1p(more) / (order - 1)
    return u + (math.log1p(math.exp(-2 * s)) - math.log1p(math.exp(-u))) / (order - 1)


def _delta(u: float, cells: int, epsilon: float) -> float:
    """Hockey-stick divergence at epsilon >= 0: only the largest loss, `cells * u`, is above epsilon."""
    if epsilon >= cells * u:
        return 0.0
    return -math.expm1(epsilon - cells * u) / (1 + math.exp(-u)) ** cells
