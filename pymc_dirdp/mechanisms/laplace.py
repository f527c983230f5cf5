"""Laplace noise on counts."""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import positive, within
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.privacy.randomised_response import RandomisedResponse
from pymc_dirdp.sampling.grid import on_grid

__all__ = ["LaplaceMechanism"]

Array = NDArray[np.float64]

# As for Gaussian noise.
_LEAST, _MOST = 2.0**-200, 2.0**200

# To so many decimals a likelihood ratio is the law's.
_DECIMALS = 9
# Cells between the centres of two Laplace laws.
_BETWEEN = 300


@final
@dataclass(frozen=True, eq=False)
class LaplaceMechanism(CurvesOf, NoisyCounts):
    """Release `counts + Laplace(scale)`, independent in every cell, on a fine grid: the papers' baseline.

    Continuous noise cannot be drawn exactly, so a release takes `sampler="fast"`. For data use
    :class:`pymc_dirdp.mechanisms.GeometricMechanism`, its discrete form, which is less noisy at the same promise.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, between 2**-200 and 2**200; its standard deviation is `sqrt(2) * scale`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells by 1, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How noisy counts are made nonnegative.
    contribution : int or Contribution, default 1
        What one person adds to the table; all of that person's records may change together.

    Notes
    -----
    All curves are exact for the ideal law; with one record in each of several blocks the hockey stick is that of a
    composition, on a grid that errs towards more loss, and with m records in a block all curves are those of
    randomised response at `m / scale`, as for :class:`pymc_dirdp.mechanisms.GeometricMechanism`. The noise is rounded
    to a grid that holds all whole numbers, so the last bits of a sum tell nothing (:mod:`pymc_dirdp.sampling.grid`).
    Under replace-one the loss is the sum of the losses of two cells, so its Rényi divergence is twice the scalar
    one at sensitivity 1, not the scalar one at sensitivity 2 (ERRATA P1.11).

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
    contribution: Contribution | int = 1

    kind: ClassVar[str] = "laplace"
    smooth_noise: ClassVar[bool] = True
    samplers: ClassVar[tuple[str, ...]] = ("fast",)
    exact_form: ClassVar[str] = "GeometricMechanism"

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "scale", positive(scale=self.scale))
        within(_LEAST, _MOST, scale=self.scale)

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
        # Where it is constant, the last bits would tell how the noise was added, and not what the law says.
        return np.round(super().log_likelihood_ratio(outputs, x, y), _DECIMALS)

    @override
    def _cell_laws(self, shift: float, cells: int | None) -> FiniteLaws:
        """Beyond the two counts the loss is constant: one cell each."""
        edges = np.linspace(0.0, shift / self.scale, _BETWEEN)
        # P[a < Z < b] = exp(-a) (1 - exp(a - b)) / 2 for 0 <= a.
        width = math.log(-math.expm1(-float(edges[1]))) - math.log(2)
        last = -shift / self.scale - math.log(2)
        falling = np.concatenate([[-math.log(2)], width - edges[:-1], [last]])
        return FiniteLaws(falling, falling[::-1])

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        # One over the scale is rounded up: near the largest loss, delta is a difference from it.
        u = not_below(self._records / Fraction(self.scale))
        if self._records > 1:
            return RandomisedResponse(u, self._groups)
        if self._groups <= 2:
            return _Block(u, self._groups)
        return Composition(((_Block(u, round(self._relation.delta_1)), self._blocks),))

    @property
    @override
    def pure_epsilon(self) -> float:
        """The records of one person over the scale, for each group of cells that they change."""
        return not_below(self._groups * self._records / Fraction(self.scale))


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
        return self.cells * _renyi(self.u, order)

    @override
    def _rho(self, omega: float) -> float:
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        return _delta(self.u, self.cells, epsilon)


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
