"""The smallest share that can be told from none: a cell of a smaller one shows the prior more than its records."""

import math

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["smallest_share"]

# The probability of either mistake: to take an empty cell for one of this share, and the reverse.
_MISTAKE = 0.05
_STEPS = 50


def smallest_share(mechanism: Mechanism, shape: tuple[int, ...], n_records: float) -> float | None:
    """The least share of a row's records that is told from an empty cell, with mistakes of 5 % either way.

    P1 equation 3 says how far the mean of a draw is from a cell's frequency: as far as the prior counts weigh against
    `r` times the records. A cell of a small share shows mostly the prior. The rows hold equal numbers of records here.

    Parameters
    ----------
    mechanism : Mechanism
        That draws from a tempered posterior, or adds noise to counts; any other gives None.
    shape : tuple of int
        The shape of the table.
    n_records : float
        The number of records of the table; 0 gives None.

    Returns
    -------
    share : float or None
        The largest over all cells; 1 if not even a cell with all records of its row is told. For noise the normal
        approximation is used.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> round(smallest_share(DirichletMechanism(np.full(4, 2.677), 0.2028), (4,), 592), 3)
    0.063
    """
    n = n_records / math.prod(shape[:-1])
    if not n > 0 or shape[-1] < 2:
        return None
    if mechanism.noise_sd is not None:
        return min(1.0, -2.0 * float(ndtri(_MISTAKE)) * mechanism.noise_sd / n)
    drawn = mechanism.tempered
    if drawn is None:
        return None
    drawn = drawn.matched(n_records)
    of_rows = np.broadcast_to(drawn.alpha.sum(axis=-1, keepdims=True), drawn.alpha.shape)
    of_cell, of_row = np.unique(np.stack([drawn.alpha.ravel(), of_rows.ravel()], axis=1), axis=0).T
    rest, weight = of_row - of_cell, drawn.r * n
    looks_empty = betaincinv(of_cell, rest + weight, 1 - _MISTAKE)
    low, high = np.zeros(of_cell.shape), np.ones(of_cell.shape)
    for _ in range(_STEPS):
        share: Array = (low + high) / 2
        told = betainc(of_cell + weight * share, rest + weight * (1 - share), looks_empty) <= _MISTAKE
        low, high = np.where(told, low, share), np.where(told, share, high)
    return float(high.max())
