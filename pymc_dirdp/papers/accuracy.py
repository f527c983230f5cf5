"""Printed bounds on the errors of draws and of histograms, and exact errors beside them."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, lambertw, rel_entr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, open_unit_interval, positive, positive_array
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.quadrature import _beta_binomial
from pymc_dirdp.papers.privacy import p2_theorem_1_prior

__all__ = [
    "CellErrors",
    "UnknownSharesKL",
    "cell_errors",
    "p1_equation_4",
    "p1_equation_22",
    "p1_theorem_2",
    "p2_equation_14",
    "p2_equation_16",
    "p2_equation_16_sample_size",
    "p2_sample_size",
    "p2_theorem_3",
    "p2_theorem_4",
    "unknown_shares_kl",
]

# The published bounds on how accurate a Dirichlet draw is, by paper and theorem.
#
# They serve for comparison and for teaching. :mod:`pymc_dirdp.planning.draw_error` has exact expectations and tighter
# tails.


# P1's proof uses log(x - 1/2) < psi(x) and then drops (alpha - 1/2) / p, which must not be negative (ERRATA P1.1). Its
# equation 22 rests on that. Theorem 2 gives more away, and holds for smaller priors (docs/proofs/divergence_tail.md).
_LEAST_ALPHA, _LEAST_OF_THEOREM_2 = 0.5, 0.2983


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
        Prior parameter of every cell, at least 0.2983. P1 states the bound for smaller ones too; below 0.2982 it is
        false for uniform probabilities of many cells.
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
    alpha = at_least(_LEAST_OF_THEOREM_2, alpha=alpha)
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
        The smallest of them; at least 1/2, for which it is proved.

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


# P2 section 4.2: the largest error of a published histogram, for a Dirichlet draw and for Gaussian noise.
#
# The bounds hold. What P2 infers from them, that the draw wins where there are no more records than categories, is
# true of Gaussian noise as it comes only: `examples/experiments/p2_figure_2.py` has the comparison with noise that is
# clipped and normalised, and with no data at all.


def p2_sample_size(
    *, accuracy: float, probability: float, rho: float, gamma: float, d: int, delta_2_squared: float = 2.0
) -> int:
    """The number of records from which on P2 Theorem 4 guarantees this accuracy, with its constants.

    The prior is flat, and P2's own for `rho` (:func:`pymc_dirdp.papers.p2_theorem_1_prior`, with `r = 1`). Equations
    14 and 15 give the order of this number (:func:`p2_equation_14`).

    Parameters
    ----------
    accuracy : float
        The largest error of a frequency, in (0, 1).
    probability : float
        That of a larger error, in (0, 1).
    rho, gamma : float
        Positive.
    d : int
        Number of categories, at least 2.
    delta_2_squared : float
        Squared l2 sensitivity; 2 for counts under replace-one.

    Examples
    --------
    >>> p2_sample_size(accuracy=0.05, probability=0.05, rho=0.1, gamma=1.0, d=10)
    4547
    """
    accuracy, probability = open_unit_interval(accuracy=accuracy), open_unit_interval(probability=probability)
    alpha = np.full(integer(2, d=d), p2_theorem_1_prior(rho=rho, gamma=gamma, delta_2_squared=delta_2_squared))

    def enough(n: int) -> bool:
        return p2_theorem_4(probability=probability, effective_records=n, alpha=alpha) <= accuracy

    most = 1
    while not enough(most):
        most *= 2
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most


def p2_equation_14(
    *, accuracy: float, probability: float, rho: float, gamma: float, d: int, delta_2_squared: float = 2.0
) -> float:
    """What stands inside the order symbol of P2's equations 14 and 15.

    `log(2 d / probability) / accuracy**2 + d / accuracy * (spread + gamma)`, where the spread is
    `delta_2_squared / (2 rho)` if P2's prior exceeds gamma by more than 1 (equation 14), and its root if not (15). The
    arguments are the same as in :func:`p2_sample_size`, which is at most 4 times as large.

    Examples
    --------
    >>> round(p2_equation_14(accuracy=0.05, probability=0.05, rho=0.1, gamma=1.0, d=10))
    4597
    """
    accuracy = open_unit_interval(accuracy=accuracy)
    high = p2_theorem_1_prior(rho=rho, gamma=gamma, delta_2_squared=delta_2_squared) - gamma > 1
    spread = delta_2_squared / (2 * rho)
    categories = integer(2, d=d)
    noise = math.log(2 * categories / open_unit_interval(probability=probability)) / accuracy**2
    return noise + categories / accuracy * ((spread if high else math.sqrt(spread)) + gamma)


def p2_equation_16(*, probability: float, n_records: int, rho: float, d: int, delta_2_squared: float = 2.0) -> float:
    """The error that Gaussian noise on frequencies exceeds somewhere with at most this probability.

    `sqrt(log(2 d / probability) delta_2_squared / rho) / n_records`, for noise that keeps `rho`-zCDP.

    Parameters
    ----------
    probability : float
        In (0, 1).
    n_records : int
        At least 1.
    rho : float
        Positive.
    d : int
        Number of categories, at least 2.
    delta_2_squared : float
        Squared l2 sensitivity; 2 for counts under replace-one.

    Examples
    --------
    >>> round(p2_equation_16(probability=0.05, n_records=1000, rho=0.1, d=10), 4)
    0.0109
    """
    logarithm = math.log(2 * integer(2, d=d) / open_unit_interval(probability=probability))
    return math.sqrt(logarithm * positive(delta_2_squared=delta_2_squared) / positive(rho=rho)) / integer(
        1, n_records=n_records
    )


def p2_equation_16_sample_size(
    *, accuracy: float, probability: float, rho: float, d: int, delta_2_squared: float = 2.0
) -> int:
    """The number of records from which on :func:`p2_equation_16` is at most `accuracy`.

    P2's equation 17 says that it is smaller than what a Dirichlet draw needs. It compares two upper bounds.

    Examples
    --------
    >>> p2_equation_16_sample_size(accuracy=0.05, probability=0.05, rho=0.1, d=10)
    219
    """
    of_one = p2_equation_16(probability=probability, n_records=1, rho=rho, d=d, delta_2_squared=delta_2_squared)
    return math.ceil(of_one / open_unit_interval(accuracy=accuracy))


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
    if drawn.steps is not None:
        variance = variance * (1 + concentration / drawn.steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(x > 0, bias / (x / n), np.inf)
    return CellErrors(bias, np.sqrt(variance), relative)


# Expected divergences between a draw and the unknown shares that made the data, in both directions.


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
