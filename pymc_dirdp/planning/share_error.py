"""How far the shares of a draw are from the true ones, and the smallest share that is told from none."""

import math

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["draw_share_error", "smallest_share"]

# At so many totals a row is looked at, where the records divide among several rows.
_LEVELS = 400


def draw_share_error(mechanism: Mechanism, prior: Array, n_records: int) -> float | None:
    """The root mean square error of one share of a released draw; None if the draw is no release, or without records.

    The shares come from the prior, the counts from the shares, and the draw from the counts. All of this is summed in
    closed form: means and variances of the Dirichlet-multinomial distribution. The records of a table divide among its
    rows in any way, each as likely as another, as in :func:`pymc_dirdp.planning.estimate_error.estimate_error`; their
    totals are taken for continuous there, and the mean over them is that of 400 quantiles.

    Parameters
    ----------
    mechanism : Mechanism
        That draws from a tempered posterior; any other gives None.
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        The public number of records, or the size to plan for.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> round(draw_share_error(DirichletMechanism(np.full(4, 2.677), 0.2028), np.ones(4), 592), 3)
    0.041
    """
    drawn = mechanism.tempered
    if drawn is None or n_records == 0:
        return None
    drawn = drawn.matched(n_records)
    d = prior.shape[-1]
    a, alpha = prior.reshape(-1, d), drawn.alpha.reshape(-1, d)
    n = _totals(n_records, len(a))[:, None, None]
    size, total = a.sum(axis=-1, keepdims=True), alpha.sum(axis=-1, keepdims=True)
    share = a / size
    count, variance = n * share, n * share * (1 - share) * (n + size) / (size + 1)
    # The mean of the draw and that of the posterior are both linear in the count.
    of_draw, of_posterior = drawn.r / (drawn.r * n + total), 1 / (n + size)
    mean = of_draw * count + alpha / (drawn.r * n + total)
    spread_of_draw = (mean * (1 - mean) - of_draw**2 * variance) / (drawn.r * n + total + 1)
    spread_of_share = (share * (1 - share) - of_posterior**2 * variance) / (n + size + 1)
    between = (of_draw - of_posterior) ** 2 * variance + (mean - share) ** 2
    return math.sqrt(float(np.mean(spread_of_draw + spread_of_share + between)))


def _totals(n_records: int, n_rows: int) -> Array:
    """Totals of a row that are as likely as one another."""
    if n_rows == 1:
        return np.array([float(n_records)])
    level = (np.arange(_LEVELS) + 0.5) / _LEVELS
    return np.asarray(n_records * -np.expm1(np.log1p(-level) / (n_rows - 1)))


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
