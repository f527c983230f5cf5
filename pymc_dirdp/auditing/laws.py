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

__all__ = ["BinnedLaws", "binned_laws", "gaussian_laws", "laplace_laws"]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Cells of one changed part of the output, and how many times fewer of each of several: products are summed over.
_CELLS, _FEWER_OF_SEVERAL = 6_000, 10
# So many standard deviations of normal noise get all the cells that are asked for; more get more, up to a limit.
_PER_REACH = 12
_MOST_CELLS = 400_000
# Between the centres of two Laplace laws.
_BETWEEN = 300
# What is left out has a probability of about exp(-80).
_REACH = 80.0
# The same for normal noise.
_REACH_IN_SIGMAS = 13.0
# Cells that are kept of the product of two laws.
_KEPT = 1_500
# Of a cell, when cells are put in order.
_LARGEST_LOSS = 700.0


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

    def merged(self, cells: int) -> Self:
        """Cells with nearly the same loss as one cell: post-processing, so nothing is gained by it."""
        if len(self.log_p) <= cells:
            return self
        possible = (self.log_p > -np.inf) | (self.log_q > -np.inf)
        log_p, log_q = self.log_p[possible], self.log_q[possible]
        # Where one of the two is impossible the loss is infinite, and those cells stay apart from others.
        loss = np.clip(log_p - log_q, -_LARGEST_LOSS, _LARGEST_LOSS)
        order = np.argsort(loss, kind="stable")
        # Narrow where the probability is, and as narrow in the loss itself far out.
        weight = np.cumsum(np.exp(np.logaddexp(log_p, log_q)[order])) / 2
        rank = weight / weight[-1] + np.arcsinh(loss[order])
        rank = (rank - rank[0]) / max(rank[-1] - rank[0], 1e-300)
        starts = np.flatnonzero(np.diff(np.floor(rank * (cells - 1)), prepend=-1.0))
        return type(self)(*(np.logaddexp.reduceat(law[order], starts) for law in (log_p, log_q)))

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


def binned_laws(mechanism: Mechanism, x: Array, y: Array, cells: int = _CELLS) -> BinnedLaws:
    """The laws of a mechanism's output at two data sets.

    Parameters
    ----------
    mechanism : Mechanism
        Of this library.
    x, y : array
        Made-up data sets. For a `DirichletMechanism` they differ in one cell of a row, or records move in it from one
        cell to another, in any number of rows.
    cells : int
        Into how many cells the law of a Dirichlet row is cut, about; a tenth of them if several rows change.

    Raises
    ------
    ArgumentError
        If the laws are not known, or differ in more cells.
    """
    match mechanism:
        case DirichletMechanism():
            return _dirichlet(mechanism.concentration(x), mechanism.concentration(y), cells)
        case SimplexMechanism():
            return _dirichlet(mechanism.k * x, mechanism.k * y, cells)
        case GaussianMechanism(sigma=sigma):
            return gaussian_laws(math.sqrt(float(np.sum((x - y) ** 2))) / sigma, cells)
        case LaplaceMechanism(scale=scale):
            shifts = np.abs(x - y)[x != y]
            return _product([laplace_laws(float(shift) / scale) for shift in shifts])
        case GeometricMechanism(scale=scale):
            return _product([_geometric(round(float(shift)), scale) for shift in np.abs(x - y)[x != y]])
        case DiscreteGaussianMechanism(variance=variance):
            return _discrete_gaussian((x - y)[x != y], math.sqrt(variance))
        case WholePosterior():
            _, p, q = aggregated_laws(mechanism, x, y)
            with np.errstate(divide="ignore"):
                return BinnedLaws(np.log(p), np.log(q))
    raise ArgumentError(f"The law of a {type(mechanism).__name__} is not known here. Use audit, which draws from it.")


def _product(parts: list[BinnedLaws]) -> BinnedLaws:
    if not parts:
        raise ArgumentError("Expected two data sets that differ.")
    # A product of two is small enough to be kept as it is.
    return parts[0] if len(parts) == 1 else reduce(lambda law, part: law.merged(_KEPT).times(part), parts[1:], parts[0])


def _dirichlet(u: Array, v: Array, cells: int) -> BinnedLaws:
    """Rows are independent, and in a row the likelihood ratio depends on one Beta variable.

    It is the share of the cell that changes in its row, or that of one of two cells in the two.
    """
    changes = [(p, q, np.flatnonzero(p != q)) for p, q in zip(np.atleast_2d(u), np.atleast_2d(v), strict=True)]
    parts = []
    if sum(changed.size > 0 for *_, changed in changes) > 1:
        cells //= _FEWER_OF_SEVERAL
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


def gaussian_laws(ratio: float, cells: int = _CELLS) -> BinnedLaws:
    """Normal(ratio, 1) and Normal(0, 1): only the direction from one data set to the other matters."""
    reach = 13 + 35 * ratio
    edges = np.linspace(-reach, ratio + reach, min(round(cells * reach / _PER_REACH), _MOST_CELLS))
    half = np.diff(edges) / 2
    z = edges[:-1, None] + half[:, None] * (1 + _NODES)

    def law(mean: float) -> Array:
        log_density = -((z - mean) ** 2) / 2 - math.log(2 * math.pi) / 2
        return np.asarray(logsumexp(log_density, b=_WEIGHTS, axis=1) + np.log(half))

    return BinnedLaws(law(ratio), law(0.0))


def laplace_laws(shift: float) -> BinnedLaws:
    """Laplace laws with centres `shift` scales apart. Beyond the two centres the loss is constant: one cell each."""
    edges = np.linspace(0.0, shift, _BETWEEN)
    # P[a < Z < b] = exp(-a) (1 - exp(a - b)) / 2 for 0 <= a.
    width = math.log(-math.expm1(-float(edges[1]))) - math.log(2)
    falling = np.concatenate([[-math.log(2)], width - edges[:-1], [-shift - math.log(2)]])
    return BinnedLaws(falling, falling[::-1])


def _geometric(shift: int, scale: float) -> BinnedLaws:
    """Two-sided geometric laws: whole numbers between the centres, and all beyond in one cell each."""
    u = 1 / scale
    # P[G <= 0] = 1 / (1 + q), P[G = g] = (1 - q) / (1 + q) q^|g| and P[G >= g] = q^g / (1 + q), with q = exp(-u).
    total = math.log1p(math.exp(-u))
    g = np.arange(1, shift)
    law = np.concatenate([[-total], math.log(-math.expm1(-u)) - total - u * g, [-u * shift - total]])
    return BinnedLaws(law, law[::-1])


def _discrete_gaussian(shifts: Array, sigma: float) -> BinnedLaws:
    """Normal noise on whole numbers: the ratio depends on `shifts @ noise` alone, so its law is convolved."""
    reach = math.ceil(_REACH_IN_SIGMAS * sigma) + int(np.abs(shifts).max()) + 2
    if 2 * reach * float(np.abs(shifts).sum()) > _MOST_CELLS:
        raise ArgumentError(f"The law of noise with sigma={sigma:g} has too many cells to be summed over.")
    g = np.arange(-reach, reach + 1)

    def cell(centre: int, shift: int) -> Array:
        """Probabilities of `shift * (centre + noise)`, in rising order. What is between two multiples is impossible."""
        law = np.exp(-((g - centre) ** 2) / (2 * sigma**2))
        spread = np.zeros((len(g) - 1) * abs(shift) + 1)
        spread[:: abs(shift)] = law / law.sum()
        return spread if shift > 0 else spread[::-1]

    def law(centres: list[int]) -> Array:
        return reduce(np.convolve, [cell(c, s) for c, s in zip(centres, whole, strict=True)])

    whole = [round(float(shift)) for shift in shifts]
    p, q = law(whole), law([0] * len(whole))
    with np.errstate(divide="ignore"):
        return BinnedLaws(np.log(p), np.log(q))
