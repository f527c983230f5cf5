"""The distributions of the privacy loss of zero-sum noise between two given tables, for audits."""

import math

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.finite_laws import FiniteLaws

__all__ = ["block_laws"]

# The characteristic function is taken at so many points for each standard deviation of a sum, and so many in all.
_REACH, _MOST_POINTS = 80.0, 2_000_000


def block_laws(scale: float, cells: int, shifts: Array) -> FiniteLaws:
    """The distributions of the loss of noise that adds up to 0 over one block, cut into cells of equal loss.

    Parameters
    ----------
    scale : float
    cells : int
        How many cells the block has.
    shifts : array, shape (c,)
        By how much the counts of those cells differ that do; integers that add up to 0.

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
    points = math.ceil(_REACH * spread * math.sqrt(cells)) + 2 * round(float(np.abs(shifts).sum())) + 1
    losses = round(float(np.abs(shifts).sum())) + 1
    if points * losses > _MOST_POINTS:
        raise ArgumentError(f"The law of noise of scale {scale:.4g} has too many cells to be summed over.")
    turn = np.exp(2j * np.pi * np.arange(points) / points)
    q = math.exp(-1 / scale)
    each = -math.expm1(-2 / scale) / ((1 - q * turn) * (1 - q / turn))
    # Relative to independent noise, so that no power is large.
    share = math.tanh(1 / (2 * scale))
    law = [(share * each) ** (cells - len(shifts))]
    for shift in shifts.tolist():
        law = _times(law, [share * part for part in _by_loss(abs(round(shift)), turn if shift > 0 else 1 / turn, q)])
    masses = np.array([part.mean().real for part in law])
    masses = np.maximum(masses / masses.sum(), 0.0)
    loss = (2 * np.arange(len(law)) - (len(law) - 1)) / scale
    possible = masses > 0
    log = np.log(masses[possible])
    return FiniteLaws(log, log - loss[possible])


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
