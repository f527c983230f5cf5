"""Laplace noise on counts."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import positive
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.roots import least_epsilon
from pymc_dirdp.sampling.grid import on_grid

__all__ = ["LaplaceMechanism"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class LaplaceMechanism(NoisyCounts):
    """Release `counts + Laplace(scale)`, independent in every cell, on a fine grid.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive; its standard deviation is `sqrt(2) * scale`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells by 1, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How noisy counts are made nonnegative.

    Notes
    -----
    All curves are exact for the ideal law. The noise is rounded to a grid that holds all whole numbers, so the last
    bits of a sum tell nothing (:mod:`pymc_dirdp.sampling.grid`). Under replace-one the loss is the sum of the losses of
    two cells, so its Rényi divergence is
    twice the scalar one at sensitivity 1, not the scalar one at sensitivity 2 (ERRATA P1.11).

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
        return math.sqrt(2) * self.scale

    @property
    @override
    def parameter(self) -> float:
        return self.scale

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return on_grid(rng.laplace(0.0, self.scale, size=shape), self.noise)

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
    """Divergence of two Laplace laws whose centres are `u` scales apart; exact (Mironov 2017, Table II).

    `exp((order - 1) D)` is `[order exp((order - 1) u) + (order - 1) exp(-order u)] / (2 order - 1)`.
    """
    if order == math.inf:
        return u
    if order == 1:
        return _second_order(-u)
    if order * u > 1:
        # The larger term taken out.
        return u + math.log1p((order - 1) / (2 * order - 1) * math.expm1(-(2 * order - 1) * u)) / (order - 1)
    # The constant and linear terms of both exponentials cancel; what is left of them is positive.
    more = order * _second_order((order - 1) * u) + (order - 1) * _second_order(-order * u)
    return math.log1p(more / (2 * order - 1)) / (order - 1)


def _second_order(x: float) -> float:
    """`exp(x) - 1 - x`, without cancellation."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    return math.fsum(x**k / math.factorial(k) for k in range(2, 18))


def _delta(u: float, cells: int, epsilon: float) -> float:
    """Hockey-stick divergence at epsilon >= 0 if `cells` counts, 1 or 2, move by `u` scales each; closed form.

    With `x = (cells * u - epsilon) / 2` half the distance to the largest loss: one loss is `u` with probability 1/2,
    `-u` with probability `exp(-u) / 2`, and has density `exp((l - u) / 2) / 4` between.
    """
    x = (cells * u - epsilon) / 2
    if x <= 0:
        return 0.0
    if cells == 1:
        return -math.expm1(-x)
    return -math.expm1(-x) - x / 2 * math.exp(-x)
