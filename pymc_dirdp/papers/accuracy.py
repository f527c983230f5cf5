"""P1's bound of the error of a draw, and the exact error of each cell."""

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

# The published bound of the error of a Dirichlet draw, for comparison and teaching.
# :mod:`pymc_dirdp.planning.draw_error` has exact expectations and tighter tail bounds.


def p1_equation_22(*, eta: float, beta: float, total_alpha: float, least_alpha: float = 1.0) -> float:
    """Upper bound of `P[KL(p || q) > eta]` for any eta, from P1's proof of Theorem 2, with Lambert's W.

    `exp(-beta (1 - 1 / W) (W - 1))` with `W = W(beta exp(1 + eta) / (beta + total_alpha))`, and 1 where `W <= 1`.

    Parameters
    ----------
    eta : float
        In nats, positive.
    beta : float
        Concentration of the data, `r N`, positive.
    total_alpha : float
        Sum of the prior parameters, `d alpha` in P1.
    least_alpha : float, default 1
        The smallest prior parameter, at least 1/2, as the proof requires.

    Examples
    --------
    >>> round(p1_equation_22(eta=0.2, beta=1000.0, total_alpha=40.0), 4)
    0.002
    """
    eta, beta, total_alpha = positive(eta=eta), positive(beta=beta), positive(total_alpha=total_alpha)
    # The proof of P1's equation 22 uses log(x - 1/2) < psi(x) and then drops (alpha - 1/2) / p, which must not be
    # negative (ERRATA P1.1).
    at_least(0.5, least_alpha=least_alpha)
    # exp(1 + eta) overflows for large eta. The bound at a smaller eta also holds there.
    w = float(lambertw(math.exp(min(1 + eta, 700.0)) * beta / (beta + total_alpha)).real)
    return math.exp(-beta * (1 - 1 / w) * (w - 1)) if w > 1 else 1.0


# Bias and error of each cell of a draw for assumed counts, such as those of a small group.


@final
@dataclass(frozen=True, eq=False, repr=False)
class CellErrors:
    """Errors of the shares of a draw as estimates of the frequencies. All arrays have the shape of the table.

    Attributes
    ----------
    bias : array
        The mean of the drawn share minus the frequency. P1 equation 3 is its absolute value.
    sd : array
        The standard deviation of the drawn share.
    relative_bias : array
        The bias over the frequency, infinite for a count of 0. With 1 the expected share is twice the frequency.
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
    """Expected errors of a cell with this count, wherever the other records of its row are.

    The mean and the variance of a cell depend only on its count and on the total of its row. So one count gives the
    errors of every group of this size, in each cell of the table.

    Parameters
    ----------
    mechanism : Mechanism
        A mechanism that draws from a tempered posterior.
    counts : array_like
        **Assumed** counts. With private counts the whole result is confidential. A number, or an array that broadcasts
        to the table, between 0 and `row_records`. Each cell is evaluated on its own, so counts need not add up.
    row_records : int
        Number of records of a row, at least 1.

    Raises
    ------
    ArgumentError
        If the mechanism does not draw from a tempered posterior. Noise on counts has no bias.

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
    posterior = getattr(mechanism, "tempered", None)
    if posterior is None:
        raise ArgumentError(
            f"{type_name(mechanism)} does not draw from a tempered posterior. Pass a mechanism that does, such as "
            "DirichletMechanism."
        )
    n = integer(1, row_records=row_records)
    numbers = numbers_or_none(counts)
    if numbers is None or not np.all((numbers >= 0) & (numbers <= n)):
        raise ArgumentError("Expected counts to be numbers between 0 and row_records.")
    alpha, r = posterior.alpha, posterior.r
    try:
        x = np.broadcast_to(numbers, alpha.shape)
    except ValueError:
        x = None
    if x is None:
        raise ArgumentError(f"Expected counts to fit a table of shape {alpha.shape}, got {numbers.shape}.")
    total = alpha.sum(axis=-1, keepdims=True)
    concentration = r * n + total
    mean = (r * x + alpha) / concentration
    bias = (alpha / n - x / n * (total / n)) / (concentration / n)
    variance = mean * (1 - mean) / (concentration + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(x > 0, bias / (x / n), np.inf)
    return CellErrors(bias, np.sqrt(variance), relative)
