"""The two laws of the output at two data sets, cut into cells: a lower bound of every divergence, without chance.

Cutting the outputs into cells is post-processing, so the divergences of the cells' probabilities are never above those
of the outputs, however wide the cells. Nothing here comes from the privacy curves: only densities are integrated.
"""

import math
from dataclasses import dataclass
from functools import reduce
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, logsumexp

from pymc_dirdp.auditing.neighbours import aggregated_laws
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior

__all__ = ["BinnedLaws", "binned_laws"]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Cells of one changed part of the output, and of each of two: their products are all summed over.
_CELLS, _CELLS_OF_TWO = 6_000, 600
# Between the centres of two Laplace laws.
_BETWEEN = 300
# What is left out has a probability of about exp(-80).
_REACH = 80.0


@final
@dataclass(frozen=True, eq=False)
class BinnedLaws:
    """Logarithms of the probabilities of cells, given the first data set and given the second.

    Attributes
    ----------
    log_p, log_q : array, shape (m,)
        Minus infinity where a cell is impossible.
    """

    log_p: Array
    log_q: Array

    def times(self, other: Self) -> Self:
        """The laws of two independent parts."""
        return type(self)(np.add.outer(self.log_p, other.log_p).ravel(), np.add.outer(self.log_q, other.log_q).ravel())

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence, the larger direction."""
        return max(_hockey_stick(*pair, epsilon) for pair in self._directions)

    def renyi(self, order: float) -> float:
        """Rényi divergence of order >= 1, the larger direction."""
        return max(_renyi(*pair, order) for pair in self._directions)

    @property
    def largest_loss(self) -> float:
        """The pure epsilon of the cells."""
        return max(float(np.max((p - q)[p > -np.inf], initial=0.0)) for p, q in self._directions)

    @property
    def _directions(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return (self.log_p, self.log_q), (self.log_q, self.log_p)


def _hockey_stick(log_p: Array, log_q: Array, epsilon: float) -> float:
    possible = log_p > -np.inf
    excess = log_p[possible] - log_q[possible] - epsilon
    return float(np.sum(np.exp(log_p[possible]) * -np.expm1(-np.maximum(excess, 0.0))))


def _renyi(log_p: Array, log_q: Array, order: float) -> float:
    possible = log_p > -np.inf
    p, loss = log_p[possible], log_p[possible] - log_q[possible]
    if order == 1:
        # Of p log(p / q) - p + q no term is negative.
        return float(np.sum(np.exp(p) * (loss + np.expm1(-loss))))
    tilt = (order - 1) * loss
    if tilt.max() > 30:
        return float(logsumexp(p + tilt)) / (order - 1)
    # The sum is near 1; what differs from 1 is summed, without the linear term, which belongs to the sum of q - p.
    return math.log1p(float(np.sum(np.exp(p) * (np.expm1(tilt) + (order - 1) * np.expm1(-loss))))) / (order - 1)


def binned_laws(mechanism: Mechanism, x: Array, y: Array) -> BinnedLaws:
    """The laws of a mechanism's output at two data sets.

    Parameters
    ----------
    mechanism : Mechanism
        Of this library.
    x, y : array
        Made-up data sets that differ in one or two cells; any for normal noise and for finitely many outputs.

    Raises
    ------
    ArgumentError
        If the laws are not known, or differ in more cells.
    """
    match mechanism:
        case DirichletMechanism():
            return _dirichlet(mechanism.concentration(x), mechanism.concentration(y))
        case SimplexMechanism():
            return _dirichlet(mechanism.k * x, mechanism.k * y)
        case GaussianMechanism(sigma=sigma):
            return _gaussian(math.sqrt(float(np.sum((x - y) ** 2))) / sigma)
        case LaplaceMechanism(scale=scale):
            shifts = np.abs(x - y)[x != y]
            return _product([_laplace(float(shift) / scale) for shift in shifts])
        case GeometricMechanism(scale=scale):
            return _product([_geometric(round(float(shift)), scale) for shift in np.abs(x - y)[x != y]])
        case DiscreteGaussianMechanism(variance=variance):
            return _product([_discrete_gaussian(round(float(x)), float(variance)) for x in np.abs(x - y)[x != y]])
        case WholePosterior():
            _, p, q = aggregated_laws(mechanism, x, y)
            with np.errstate(divide="ignore"):
                return BinnedLaws(np.log(p), np.log(q))
    raise ArgumentError(f"The law of a {type(mechanism).__name__} is not known here. Use audit, which draws from it.")


def _product(parts: list[BinnedLaws]) -> BinnedLaws:
    if not 1 <= len(parts) <= 2:
        raise ArgumentError(f"Expected data sets that differ in one or two cells, got {len(parts)}.")
    return reduce(BinnedLaws.times, parts)


def _dirichlet(u: Array, v: Array) -> BinnedLaws:
    """Rows are independent, and in a row the likelihood ratio depends on one Beta variable.

    It is the share of the cell that changes in its row, or that of one of two cells in the two.
    """
    changes = [(p, q, np.flatnonzero(p != q)) for p, q in zip(np.atleast_2d(u), np.atleast_2d(v), strict=True)]
    parts = []
    cells = _CELLS if sum(changed.size > 0 for *_, changed in changes) == 1 else _CELLS_OF_TWO
    for p, q, changed in changes:
        if changed.size == 0:
            continue
        i, j = changed[0], changed[-1]
        if changed.size > 2 or (changed.size == 2 and not math.isclose(p[i] + p[j], q[i] + q[j], rel_tol=1e-12)):
            raise ArgumentError("Expected data sets between which one cell of a row changes, or a record moves in it.")
        rest = math.fsum(np.delete(p, i)) if changed.size == 1 else 0.0
        first, second = ((p[i], rest), (q[i], rest)) if changed.size == 1 else ((p[i], p[j]), (q[i], q[j]))
        parts.append(_beta(first, second, cells))
    return _product(parts)


def _beta(u: tuple[float, float], v: tuple[float, float], cells: int) -> BinnedLaws:
    """The logit of a Beta variable under two laws. Cells are narrow around both centres and widen outwards."""
    edges = np.union1d(_logit_edges(*u, u, v, cells // 2), _logit_edges(*v, u, v, cells // 2))
    return BinnedLaws(_integrated(edges, *u), _integrated(edges, *v))


def _logit_edges(a: float, b: float, u: tuple[float, float], v: tuple[float, float], cells: int) -> Array:
    centre, spread = math.log(a / b), math.sqrt(1 / a + 1 / b)
    left = (_REACH / min(u[0], v[0]) + 15) / spread
    right = (_REACH / min(u[1], v[1]) + 15) / spread
    return np.asarray(centre + spread * np.sinh(np.linspace(-math.asinh(left), math.asinh(right), cells)))


def _integrated(edges: Array, a: float, b: float) -> Array:
    """Logarithms of the probabilities of cells under the law of the logit of a Beta(a, b) variable."""
    half = np.diff(edges) / 2
    z = edges[:-1, None] + half[:, None] * (1 + _NODES)
    log_density = a * z - (a + b) * np.logaddexp(0, z) - float(betaln(a, b))
    return np.asarray(logsumexp(log_density, b=_WEIGHTS, axis=1) + np.log(half))


def _gaussian(ratio: float) -> BinnedLaws:
    """Only the direction from one data set to the other matters: Normal(ratio, 1) and Normal(0, 1)."""
    reach = 13 + 35 * ratio
    edges = np.linspace(-reach, ratio + reach, max(_CELLS, round(500 * reach)))
    half = np.diff(edges) / 2
    z = edges[:-1, None] + half[:, None] * (1 + _NODES)

    def law(mean: float) -> Array:
        log_density = -((z - mean) ** 2) / 2 - math.log(2 * math.pi) / 2
        return np.asarray(logsumexp(log_density, b=_WEIGHTS, axis=1) + np.log(half))

    return BinnedLaws(law(ratio), law(0.0))


def _laplace(shift: float) -> BinnedLaws:
    """Centres `shift` scales apart. Outside of the two centres the loss is constant, so that is one cell each."""
    edges = np.linspace(0.0, shift, _BETWEEN)
    # P[a < Z < b] = exp(-a) (1 - exp(a - b)) / 2 for 0 <= a.
    width = math.log(-math.expm1(-float(edges[1]))) - math.log(2)
    falling = np.concatenate([[-math.log(2)], width - edges[:-1], [-shift - math.log(2)]])
    return BinnedLaws(falling, falling[::-1])


def _discrete_gaussian(shift: int, variance: float) -> BinnedLaws:
    """Whole numbers around both centres, summed over explicitly; a wide law is cut into blocks of them."""
    reach = math.ceil(math.sqrt(2 * _REACH * variance)) + 2
    g = np.arange(-reach, reach + shift + 1)
    log_mass = -(g**2) / (2 * variance)
    log_mass -= logsumexp(log_mass)
    width = -(-len(g) // _CELLS_OF_TWO)
    padding = np.full(-len(g) % width, -np.inf)
    law, other = (logsumexp(np.append(one, padding).reshape(-1, width), axis=1) for one in (log_mass, log_mass[::-1]))
    return BinnedLaws(law, other)


def _geometric(shift: int, scale: float) -> BinnedLaws:
    """Whole numbers from one centre to the other, and all beyond in one cell each: summed over explicitly."""
    reach = math.ceil(_REACH * scale) + 2
    g = np.arange(-reach, reach + shift + 1)
    log_mass = -np.abs(g) / scale
    log_mass -= logsumexp(log_mass)
    inner = log_mass[(g > 0) & (g < shift)]
    law = np.concatenate([[logsumexp(log_mass[g <= 0])], inner, [logsumexp(log_mass[g >= shift])]])
    return BinnedLaws(law, law[::-1])
