"""Discretised distributions of the output at two data sets, for audits."""

import math

import numpy as np
from scipy.special import betaln, logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def dirichlet_distributions(
    u: Array, v: Array, cells: int | None = None, *, default_cells: int = 6_000, fewer: int = 10
) -> FiniteDistributions:
    """Two tables of Dirichlet distributions, with parameters u and v of shape (..., d).

    Each distribution has about `cells` cells. If several parts of the output change, the number is divided by `fewer`,
    because the sum runs over products of cells. Rows are independent. In a row the likelihood ratio depends on one Beta
    variable: the share of the changed cell in its row, or the share of the first of two changed cells in their sum.

    Raises
    ------
    ArgumentError
        If nothing changes, or if a row changes in another way.
    """
    changes = [(p, q, np.flatnonzero(p != q)) for p, q in zip(np.atleast_2d(u), np.atleast_2d(v), strict=True)]
    several = sum(changed.size > 0 for *_, changed in changes) > 1
    cells = (cells or default_cells) // (fewer if several else 1)
    parts = []
    for p, q, changed in changes:
        if changed.size == 0:
            continue
        i, j = changed[0], changed[-1]
        if changed.size > 2 or (changed.size == 2 and not math.isclose(p[i] + p[j], q[i] + q[j], rel_tol=1e-12)):
            raise ArgumentError(
                "Expected data sets that differ in one cell of a row, or by one record that changes its cell within a "
                "row."
            )
        rest = math.fsum(np.delete(p, i)) if changed.size == 1 else 0.0
        first, second = ((p[i], rest), (q[i], rest)) if changed.size == 1 else ((p[i], p[j]), (q[i], q[j]))
        parts.append(_beta_distributions(first, second, cells))
    return product_of(parts)


def _beta_distributions(u: tuple[float, float], v: tuple[float, float], cells: int) -> FiniteDistributions:
    """The logit of a Beta variable under two distributions. Cells are narrow around both centres and wider outside."""
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
    """Edges around the centre of one distribution; the tails beyond have a probability of about exp(-reach)."""
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
        Number of cells of the block.
    shifts : array, shape (c,)
        Differences of the counts, for the cells that differ; integers that add up to 0.
    reach : float
        Number of points of the characteristic function per standard deviation of a sum.
    most_points : int
        Maximum number of points in total.

    Raises
    ------
    ArgumentError
        If the distribution has too many cells.

    Notes
    -----
    The loss of a cell follows from its own noise. For noise k with weight `exp(-|k| / scale)`, the sum of the weights
    of each loss, times `exp(i k t)`, is a geometric series. The product over cells is the characteristic function of
    the sum of all noise, and its average over t keeps the noise that adds up to 0.
    """
    # The noise is at most as wide as independent noise; sums beyond the number of points are negligible.
    spread = math.sqrt(2) * (scale + 1)
    points = math.ceil(reach * spread * math.sqrt(cells)) + 2 * round(float(np.abs(shifts).sum())) + 1
    losses = round(float(np.abs(shifts).sum())) + 1
    if points * losses > most_points:
        raise ArgumentError(f"The distribution of noise of scale {scale:.4g} has too many cells to sum over.")
    waves = np.exp(2j * np.pi * np.arange(points) / points)
    q = math.exp(-1 / scale)
    cell_transform = -math.expm1(-2 / scale) / ((1 - q * waves) * (1 - q / waves))
    # Relative to independent noise, so that no power is large.
    share = math.tanh(1 / (2 * scale))
    distribution = [(share * cell_transform) ** (cells - len(shifts))]
    for shift in shifts.tolist():
        distribution = _times(
            distribution, [share * part for part in _by_loss(abs(round(shift)), waves if shift > 0 else 1 / waves, q)]
        )
    masses = np.array([part.mean().real for part in distribution])
    masses = np.maximum(masses / masses.sum(), 0.0)
    loss = (2 * np.arange(len(distribution)) - (len(distribution) - 1)) / scale
    support = masses > 0
    log = np.log(masses[support])
    return FiniteDistributions(log, log - loss[support])


def _by_loss(shift: int, waves: Array, q: float) -> list[Array]:
    """The series of the noise k of one cell for each loss `|k + shift| - |k|`: -shift, -shift + 2, ..., shift."""
    below = (q / waves) ** shift / (1 - q / waves)
    between = [(q / waves) ** k for k in range(shift - 1, 0, -1)]
    return [below, *between, 1 / (1 - q * waves)]


def _times(first: list[Array], second: list[Array]) -> list[Array]:
    product = [np.zeros_like(first[0]) for _ in range(len(first) + len(second) - 1)]
    for i, x in enumerate(first):
        for j, y in enumerate(second):
            product[i + j] = product[i + j] + x * y
    return product
