"""P1's bound on the error of a draw, and the exact error of each cell."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, positive
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.mechanisms.base import Mechanism

# The published bound on how accurate a Dirichlet draw is. It serves for comparison and for teaching.
# :mod:`pymc_dirdp.planning.draw_error` has exact expectations and tighter tails.


def p1_equation_22(*, eta: float, beta: float, total_alpha: float, least_alpha: float = 1.0) -> float:
    """Bound of `P[KL(p || q) > eta]` for any eta, from P1's proof of Theorem 2, with Lambert's W.

    `exp(-beta (1 - 1 / W) (W - 1))` with `W = W(beta exp(1 + eta) / (beta + total_alpha))`, and 1 where `W <= 1`.

    Parameters
    ----------
    eta : float
        In nats, positive.
    beta : float
        Concentration of the data, `r N`, positive.
    total_alpha : float
        Sum of the prior parameters, P1's `d alpha`.
    least_alpha : float, default 1
        The smallest of them; at least 1/2, for which it is proved.

    Examples
    --------
    >>> round(p1_equation_22(eta=0.2, beta=1000.0, total_alpha=40.0), 4)
    0.002
    """
    eta, beta, total_alpha = positive(eta=eta), positive(beta=beta), positive(total_alpha=total_alpha)
    # P1's proof uses log(x - 1/2) < psi(x) and then drops (alpha - 1/2) / p, which must not be negative (ERRATA P1.1).
    # Its equation 22 rests on that.
    at_least(0.5, least_alpha=least_alpha)
    # exp(1 + eta) overflows for a large eta, for which the bound at a smaller eta holds too.
    w = float(lambertw(math.exp(min(1 + eta, 700.0)) * beta / (beta + total_alpha)).real)
    return math.exp(-beta * (1 - 1 / w) * (w - 1)) if w > 1 else 1.0


# Bias and error of each cell of a draw, for made-up counts: what a small group has to expect.


@final
@dataclass(frozen=True, eq=False, repr=False)
class CellErrors:
    """Errors of the shares of a draw, as estimates of the frequencies. All arrays have the shape of the table.

    Attributes
    ----------
    bias : array
        The mean of the drawn share less the frequency. P1 equation 3 is its size.
    sd : array
        The standard deviation of the drawn share.
    relative_bias : array
        The bias over the frequency: 1 means that a group is expected to look twice as large. Infinite for a count of 0.
    """

    bias: Array
    sd: Array
    relative_bias: Array

    @property
    def error(self) -> Array:
        """The root mean square of the error."""
        return np.hypot(self.bias, self.sd)

    def __repr__(self) -> str:
        return f"CellErrors of a table of shape {self.bias.shape}"


def cell_errors(mechanism: Mechanism, counts: ArrayLike, *, row_records: int) -> CellErrors:
    """What is expected of a cell that holds so many of the records of its row, wherever the others are.

    The mean of a cell and its variance depend on its own count and on the total of its row alone. So one number says
    what every group of this size has to expect, in each cell of the table.

    Parameters
    ----------
    mechanism : Mechanism
        One that draws from a tempered posterior.
    counts : array_like
        **Made up**: with private counts every number of the result is confidential. A number, or an array that fits the
        table by NumPy's rules of shapes; between 0 and `row_records`. The counts need not add up to anything.
    row_records : int
        Number of records of a row, at least 1.

    Raises
    ------
    ArgumentError
        If the mechanism draws from no tempered posterior. Noise on counts has no bias before it is read.

    References
    ----------
    P1 equation 3 and the variance below it; P2, "Potential negative societal impacts".

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> errors = cell_errors(DirichletMechanism(np.ones(6), 0.1), 10, row_records=1000)
    >>> np.round(errors.relative_bias, 3)
    array([0.887, 0.887, 0.887, 0.887, 0.887, 0.887])
    """
    drawn = getattr(mechanism, "tempered", None)
    if drawn is None:
        raise ArgumentError(
            f"{type_name(mechanism)} draws from no tempered posterior. Expected a mechanism that does, such as "
            "DirichletMechanism."
        )
    n = integer(1, row_records=row_records)
    made_up = numbers_or_none(counts)
    if made_up is None or not np.all((made_up >= 0) & (made_up <= n)):
        raise ArgumentError("Expected counts to be numbers between 0 and row_records.")
    try:
        x = np.broadcast_to(made_up, drawn.alpha.shape)
    except ValueError:
        x = None
    if x is None:
        raise ArgumentError(f"Expected counts to fit a table of shape {drawn.alpha.shape}, got {made_up.shape}.")
    total = drawn.alpha.sum(axis=-1, keepdims=True)
    concentration = drawn.r * n + total
    mean = (drawn.r * x + drawn.alpha) / concentration
    bias = (drawn.alpha / n - x / n * (total / n)) / (concentration / n)
    variance = mean * (1 - mean) / (concentration + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(x > 0, bias / (x / n), np.inf)
    return CellErrors(bias, np.sqrt(variance), relative)
