"""The published bounds on how accurate a Dirichlet draw is, by paper and theorem.

They serve for comparison and for teaching. :mod:`pymc_dirdp.planning.draw_error` has exact expectations and tighter
tails.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw, rel_entr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, open_unit_interval, positive, positive_array
from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["p1_equation_4", "p1_equation_22", "p1_theorem_2", "p2_theorem_3", "p2_theorem_4"]

# P1's proof uses log(x - 1/2) < psi(x) and then drops (alpha - 1/2) / p, which must not be negative (ERRATA P1.1).
_LEAST_ALPHA = 0.5


def p1_theorem_2(*, eta: float, beta: float, alpha: float, d: int) -> float:
    """Bound of `P[KL(p || q) > eta]` for `q ~ Dirichlet(beta p + alpha)` and any probabilities p (P1 Theorem 2).

    `exp(-beta eta**2 / (2 (2 + eta) (4 + 3 eta)))`.

    Parameters
    ----------
    eta : float
        In nats, positive.
    beta : float
        Concentration of the data, `r N`; at least `d alpha / (exp(eta / 2) - 1)`.
    alpha : float
        Prior parameter of every cell, at least 1/2, for which the bound is proved. P1 states it for smaller ones too:
        up to about 1/4 it is false for some shares and sizes, and between 1/4 and 1/2 it is open.
    d : int
        Number of categories, at least 2.

    Returns
    -------
    probability : float
        An upper bound. It is derived from :func:`p1_equation_22`, which is tighter.

    Examples
    --------
    >>> round(p1_theorem_2(eta=0.3, beta=1000.0, alpha=1.0, d=4), 4)
    0.0184
    """
    eta, beta, d = positive(eta=eta), positive(beta=beta), integer(2, d=d)
    alpha = at_least(_LEAST_ALPHA, alpha=alpha)
    least = d * alpha / math.expm1(eta / 2)
    if beta < least:
        raise ArgumentError(
            f"P1 Theorem 2 needs beta >= d alpha / (exp(eta / 2) - 1) = {least:g}, got beta={beta:g}. "
            "Raise beta or eta."
        )
    return math.exp(-beta * eta**2 / (2 * (2 + eta) * (4 + 3 * eta)))


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
        The smallest of them; at least 1/2, see :func:`p1_theorem_2`.

    Examples
    --------
    >>> round(p1_equation_22(eta=0.2, beta=1000.0, total_alpha=40.0), 4)
    0.002
    """
    eta, beta, total_alpha = positive(eta=eta), positive(beta=beta), positive(total_alpha=total_alpha)
    at_least(_LEAST_ALPHA, least_alpha=least_alpha)
    # exp(1 + eta) overflows for a large eta, for which the bound at a smaller eta holds too.
    w = float(lambertw(math.exp(min(1 + eta, 700.0)) * beta / (beta + total_alpha)).real)
    return math.exp(-beta * (1 - 1 / w) * (w - 1)) if w > 1 else 1.0


def p1_equation_4(*, p: ArrayLike, frequencies: ArrayLike, y: ArrayLike) -> float:
    """P1's bound on `KL(p || y)`, the error of a draw y for the unknown shares p that made the data.

    `KL(f || y) + KL(f || p) + max |log(p / y)| * sum |f - p|`, f the frequencies of the data (equation 4).

    Parameters
    ----------
    p, y : array_like, shape (d,)
        Probabilities, positive, with sum 1.
    frequencies : array_like, shape (d,)
        At least 0, with sum 1.

    Returns
    -------
    bound : float
        In nats. :func:`pymc_dirdp.papers.unknown_shares_kl` has the exact expectation of what it bounds.

    Examples
    --------
    >>> round(p1_equation_4(p=[0.5, 0.5], frequencies=[0.6, 0.4], y=[0.55, 0.45]), 4)  # KL(p || y) is 0.0050
    0.0463
    """
    first, second = _probabilities("p", positive_array(p=p)), _probabilities("y", positive_array(y=y))
    f = numbers_or_none(frequencies)
    if f is None or not first.shape == second.shape == f.shape:
        raise ArgumentError("Expected p, frequencies and y to be vectors of one length.")
    if not np.all(np.isfinite(f) & (f >= 0)) or abs(float(f.sum()) - 1) > 1e-9:
        raise DataError("Expected frequencies to be at least 0, with sum 1.")
    ratio = float(np.abs(np.log(first / second)).max())
    return float(rel_entr(f, second).sum() + rel_entr(f, first).sum() + ratio * np.abs(f - first).sum())


def p2_theorem_3(*, p: ArrayLike, n_records: int, alpha: ArrayLike, inflated: ArrayLike) -> float:
    """Bound of the expected `KL(Dirichlet(x + alpha) || Dirichlet(x + inflated))` over `x ~ Multinomial(n_records, p)`.

    `sum (inflated - alpha)**2 / p / (n_records + 1)` (P2 Theorem 3), in nats.

    Parameters
    ----------
    p : array_like, shape (d,)
        True probabilities, positive, with sum 1.
    n_records : int
        At least 0.
    alpha, inflated : array_like, shape (d,)
        `inflated >= alpha >= 1`.

    Examples
    --------
    >>> round(p2_theorem_3(p=[0.2, 0.3, 0.5], n_records=1000, alpha=[1, 1, 1], inflated=[9, 9, 9]), 4)
    0.6607
    """
    probabilities = _probabilities("p", positive_array(p=p))
    first, second = positive_array(alpha=alpha), positive_array(inflated=inflated)
    if not first.shape == second.shape == probabilities.shape:
        raise ArgumentError(
            f"Expected p, alpha and inflated of equal shape, got {probabilities.shape}, {first.shape} "
            f"and {second.shape}."
        )
    if np.any(first < 1) or np.any(second < first):
        raise ArgumentError("P2 Theorem 3 needs inflated >= alpha >= 1 in every cell.")
    return float(((second - first) ** 2 / probabilities).sum() / (integer(0, n_records=n_records) + 1))


def p2_theorem_4(*, probability: float, effective_records: float, alpha: ArrayLike) -> float:
    """The error that the largest error of a frequency exceeds with at most this probability (P2 Theorem 4).

    `sqrt(log(2 d / probability) / (2 (n + a + 1))) + a / (n + a)` with n the effective sample size and a the sum of
    alpha.

    Parameters
    ----------
    probability : float
        In (0, 1).
    effective_records : float
        Number of records, times `r` if the mechanism has one; positive.
    alpha : array_like, shape (d,)
        Prior parameters of the mechanism.

    Examples
    --------
    >>> round(p2_theorem_4(probability=0.05, effective_records=1000, alpha=[1, 1, 1]), 4)
    0.0518
    """
    n, total = positive(effective_records=effective_records), float(positive_array(alpha=alpha).sum())
    spread = math.log(2 * np.size(alpha) / open_unit_interval(probability=probability)) / (2 * (n + total + 1))
    return math.sqrt(spread) + total / (n + total)


def _probabilities(name: str, vector: Array) -> Array:
    """A vector of positive numbers that add up to 1."""
    if vector.ndim != 1:
        raise ArgumentError(f"Expected {name} to be a vector, got shape {vector.shape}.")
    if abs(float(vector.sum()) - 1) > 1e-9:
        raise DataError(f"Expected {name} to add up to 1.")
    return vector
