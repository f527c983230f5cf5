"""Expected divergences between a draw and the unknown shares that made the data, in both directions."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma

from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.beta_binomial import _beta_binomial

__all__ = ["UnknownSharesKL", "unknown_shares_kl"]


@final
@dataclass(frozen=True)
class UnknownSharesKL:
    """Expected divergences in nats, averaged over rows, before any data are seen.

    Attributes
    ----------
    forward : float
        `E KL(p || y)`: what is lost by coding records of the population with the draw y.
    reverse : float
        `E KL(y || p)`: what is lost by taking records that are made of the draw for records of the population.
    """

    forward: float
    reverse: float


def unknown_shares_kl(mechanism: Mechanism, *, prior: ArrayLike, n_records: int) -> UnknownSharesKL:
    """The expected divergence of one draw from the unknown shares p, and of p from the draw.

    The shares come from the prior, the counts from the shares, and the draw from the counts. Given the counts, p and
    the draw are independent, and p is a draw from the posterior; what is left is a sum over one Beta-binomial count for
    each cell. The divergence of the draw from the *frequencies* of the data in the reverse order, `KL(y || x / N)`, is
    infinite as soon as a cell may be empty, so it is not offered.

    Parameters
    ----------
    mechanism : Mechanism
        One that draws from a tempered posterior, for a table of the shape of the prior. The counts of an urn are taken
        for a Dirichlet draw of the same variance.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int
        The public number of records, or the size to plan for; at least 0. Rows hold an equal share.

    Raises
    ------
    ArgumentError
        If the mechanism draws from no tempered posterior.

    Notes
    -----
    No objective of :func:`pymc_dirdp.calibrate` plans for these, because `objective="estimate"` nearly does: in six
    settings it came within 0.1 % of the least forward divergence, and within 3 % of the least reverse one. The
    objective `"posterior"` missed the first by 8 to 130 %.

    References
    ----------
    P1 equation 4 and the remark below it, which bound what is computed here.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> unknown_shares_kl(DirichletMechanism(np.full(4, 2.677), 0.2028), prior=np.ones(4), n_records=592)
    UnknownSharesKL(forward=0.0169..., reverse=0.0202...)
    """
    a = positive_array(prior=prior)
    drawn, n = getattr(mechanism, "tempered", None), integer(0, n_records=n_records)
    if drawn is None:
        raise ArgumentError(
            f"{type_name(mechanism)} draws from no tempered posterior. Expected a mechanism that does, such as "
            "DirichletMechanism."
        )
    if drawn.alpha.shape != a.shape:
        raise ArgumentError(f"Expected a prior of the mechanism's shape {drawn.alpha.shape}, got {a.shape}.")
    drawn = drawn.matched(n)
    n_rows = math.prod(a.shape[:-1])
    # Rows are planned as in :class:`pymc_dirdp.planning.expected_kl.PriorExpectedKL`.
    size = 0 if n == 0 else max(1, round(n / n_rows))
    columns = [a, a.sum(axis=-1, keepdims=True), drawn.alpha, drawn.alpha.sum(axis=-1, keepdims=True)]
    cells = np.stack([np.broadcast_to(column, a.shape).ravel() for column in columns], axis=1)
    distinct, multiplicity = np.unique(cells, axis=0, return_counts=True)
    found = np.array([_of_cell(size, drawn.r, *cell) for cell in distinct.tolist()])
    # Rounding can leave a divergence that is nearly 0 slightly below it.
    forward, reverse = np.maximum(multiplicity @ found / n_rows, 0.0).tolist()
    return UnknownSharesKL(forward, reverse)


def _of_cell(size: int, r: float, a: float, row: float, alpha: float, drawn_row: float) -> tuple[float, float]:
    """The cell's part of both sums: a and alpha are its own parameters, `row` and `drawn_row` the sums of its row."""
    x, weights = _beta_binomial(size, a, row - a)
    u, of_draw = r * x + alpha, r * size + drawn_row
    mean = (x + a) / (size + row)
    entropy = a / row * (digamma(a + 1) - digamma(row + 1))
    forward = entropy - weights @ (mean * (digamma(u) - digamma(of_draw)))
    logs = digamma(u + 1) - digamma(of_draw + 1) - (digamma(x + a) - digamma(size + row))
    return float(forward), float(weights @ (u / of_draw * logs))
