"""Distributions of outputs at two data sets, in finitely many cells: what audits need of them."""

import math

import numpy as np
from scipy.special import betaln, logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def dirichlet_distributions(
    u: Array, v: Array, cells: int | None = None, *, usual: int = 6_000, fewer: int = 10
) -> FiniteDistributions:
    """Two tables of Dirichlet distributions, with parameters u and v of shape (..., d).

    A distribution is cut into about so many cells, and into `fewer` times less if several parts of the output change,
    because their products are summed over. Rows are independent, and in a row the likelihood ratio depends on one Beta
    variable: the share of the cell that changes in its row, or that of one of two cells in the two.

    Raises
    ------
    ArgumentError
        If more than that changes in a row, or nothing changes.
    """
    changes = [(p, q, np.flatnonzero(p != q)) for p, q in zip(np.atleast_2d(u), np.atleast_2d(v), strict=True)]
    several = sum(changed.size > 0 for *_, changed in changes) > 1
    cells = (cells or usual) // (fewer if several else 1)
    parts = []
    for p, q, changed in changes:
        if changed.size == 0:
            continue
        i, j = changed[0], changed[-1]
        if changed.size > 2 or (changed.size == 2 and not math.isclose(p[i] + p[j], q[i] + q[j], rel_tol=1e-12)):
            raise ArgumentError("Expected data sets between which one cell of a row changes, or a record moves in it.")
        rest = math.fsum(np.delete(p, i)) if changed.size == 1 else 0.0
        first, second = ((p[i], rest), (q[i], rest)) if changed.size == 1 else ((p[i], p[j]), (q[i], q[j]))
        parts.append(_beta_distributions(first, second, cells))
    return product_of(parts)


def _beta_distributions(u: tuple[float, float], v: tuple[float, float], cells: int) -> FiniteDistributions:
    """The logit of a Beta variable under two distributions. Cells are narrow around both centres and widen outwards."""
    edges = np.union1d(_logit_edges(*u, u, v, cells // 2), _logit_edges(*v, u, v, cells // 2))

    half = np.diff(edges) / 2
    z = edges[:-1, None] + half[:, None] * (1 + _NODES)

    def distribution(a: float, b: float) -> Array:
        # Gauss quadrature of the density in each cell.
        log_density = a * z - (a + b) * np.logaddexp(0, z) - float(betaln(a, b))
        return np.asarray(logsumexp(log_density, b=_WEIGHTS, axis=1) + np.log(half))

    return FiniteDistributions(distribution(*u), distribution(*v))


def _logit_edges(
    a: float, b: float, u: tuple[float, float], v: tuple[float, float], cells: int, *, reach: float = 80.0
) -> Array:
    """Edges around the centre of one distribution; what is left out has a probability of about exp(-reach)."""
    centre, spread = math.log(a / b), math.sqrt(1 / a + 1 / b)
    left = (reach / min(u[0], v[0]) + 15) / spread
    right = (reach / min(u[1], v[1]) + 15) / spread
    return np.asarray(centre + spread * np.sinh(np.linspace(-math.asinh(left), math.asinh(right), cells)))


def block_distributions(
    scale: float, cells: int, shifts: Array, *, reach: float = 80.0, most_points: int = 2_000_000
) -> FiniteDistributions:
    """The distributions of the loss of noise that adds up to 0 over one block, cut into cells of equal loss.

    Parameters
    ----------
    scale : float
    cells : int
        How many cells the block has.
    shifts : array, shape (c,)
        By how much the counts of those cells differ that do; integers that add up to 0.
    reach, most_points : float
        The characteristic function is taken at so many points for each standard deviation of a sum, and so many in all.

    Raises
    ------
    ArgumentError
        If the distribution has too many cells to be summed over.

    Notes
    -----
    The loss of a cell follows from its own noise. For noise k with weight `exp(-|k| / scale)`, the sum of the weights
    of each loss, times `exp(i k t)`, is a geometric series. The product over cells is the characteristic function of
    the sum of all noise, and its average over t keeps the noise that adds up to 0.
    """
    # At most as wide as independent noise; all sums beyond the number of points are negligible.
    spread = math.sqrt(2) * (scale + 1)
    points = math.ceil(reach * spread * math.sqrt(cells)) + 2 * round(float(np.abs(shifts).sum())) + 1
    losses = round(float(np.abs(shifts).sum())) + 1
    if points * losses > most_points:
        raise ArgumentError(f"The distribution of noise of scale {scale:.4g} has too many cells to be summed over.")
    turn = np.exp(2j * np.pi * np.arange(points) / points)
    q = math.exp(-1 / scale)
    each = -math.expm1(-2 / scale) / ((1 - q * turn) * (1 - q / turn))
    # Relative to independent noise, so that no power is large.
    share = math.tanh(1 / (2 * scale))
    distribution = [(share * each) ** (cells - len(shifts))]
    for shift in shifts.tolist():
        distribution = _times(
            distribution, [share * part for part in _by_loss(abs(round(shift)), turn if shift > 0 else 1 / turn, q)]
        )
    masses = np.array([part.mean().real for part in distribution])
    masses = np.maximum(masses / masses.sum(), 0.0)
    loss = (2 * np.arange(len(distribution)) - (len(distribution) - 1)) / scale
    possible = masses > 0
    log = np.log(masses[possible])
    return FiniteDistributions(log, log - loss[possible])


def _by_loss(shift: int, turn: Array, q: float) -> list[Array]:
    """The series of noise k of one cell by its loss `|k + shift| - |k|`, which is -shift, -shift + 2, ..., shift."""
    below = (q / turn) ** shift / (1 - q / turn)
    between = [(q / turn) ** k for k in range(shift - 1, 0, -1)]
    return [below, *between, 1 / (1 - q * turn)]


def _times(first: list[Array], second: list[Array]) -> list[Array]:
    product = [np.zeros_like(first[0]) for _ in range(len(first) + len(second) - 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            product[i + j] = product[i + j] + one * other
    return product
