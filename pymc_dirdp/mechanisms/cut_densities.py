"""Densities on the line as probabilities of cells: what audits need of continuous distributions."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaln, logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.finite_laws import FiniteLaws, product_of

__all__ = ["CELLS", "cut", "dirichlet_laws", "normal_laws"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# A law is cut into about so many cells, and into so many times fewer if several parts of the output change, because
# their products are summed over.
CELLS, _FEWER_OF_SEVERAL = 6_000, 10
# A reach of so many standard deviations gets the cells that are asked for; a wider one gets more, up to a limit.
_PER_REACH = 12
_MOST_CELLS = 400_000
# What is left out has a probability of about exp(-80).
_REACH = 80.0


def cut(log_density: Callable[[Array], Array], edges: Array) -> Array:
    """Logarithms of the probabilities between the edges, by Gauss quadrature in each cell. Shape (m - 1,)."""
    half = np.diff(edges) / 2
    z = edges[:-1, None] + half[:, None] * (1 + _NODES)
    return np.asarray(logsumexp(log_density(z), b=_WEIGHTS, axis=1) + np.log(half))


def normal_laws(ratio: float, cells: int = CELLS) -> FiniteLaws:
    """The distributions Normal(ratio, 1) and Normal(0, 1), cut into cells."""
    reach = 13 + 35 * ratio
    edges = np.linspace(-reach, ratio + reach, min(round(cells * reach / _PER_REACH), _MOST_CELLS))

    def law(mean: float) -> Array:
        return cut(lambda z: -((z - mean) ** 2) / 2 - math.log(2 * math.pi) / 2, edges)

    return FiniteLaws(law(ratio), law(0.0))


def dirichlet_laws(u: Array, v: Array, cells: int = CELLS) -> FiniteLaws:
    """Two tables of Dirichlet distributions, with parameters u and v of shape (..., d).

    Rows are independent, and in a row the likelihood ratio depends on one Beta variable: the share of the cell that
    changes in its row, or that of one of two cells in the two.

    Raises
    ------
    ArgumentError
        If more than that changes in a row, or nothing changes.
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
        parts.append(_beta_laws(first, second, cells))
    return product_of(parts)


def _beta_laws(u: tuple[float, float], v: tuple[float, float], cells: int) -> FiniteLaws:
    """The logit of a Beta variable under two distributions. Cells are narrow around both centres and widen outwards."""
    edges = np.union1d(_logit_edges(*u, u, v, cells // 2), _logit_edges(*v, u, v, cells // 2))

    def law(a: float, b: float) -> Array:
        return cut(lambda z: a * z - (a + b) * np.logaddexp(0, z) - float(betaln(a, b)), edges)

    return FiniteLaws(law(*u), law(*v))


def _logit_edges(a: float, b: float, u: tuple[float, float], v: tuple[float, float], cells: int) -> Array:
    centre, spread = math.log(a / b), math.sqrt(1 / a + 1 / b)
    left = (_REACH / min(u[0], v[0]) + 15) / spread
    right = (_REACH / min(u[1], v[1]) + 15) / spread
    return np.asarray(centre + spread * np.sinh(np.linspace(-math.asinh(left), math.asinh(right), cells)))
