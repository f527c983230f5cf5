"""P1's statements as printed: bounds, numbers of records and baselines, and exact expectations beside them."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, rel_entr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, open_unit_interval, positive, positive_array
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.noisy_counts import frequencies, postprocessed
from pymc_dirdp.numerics.quadrature import _beta_binomial
from pymc_dirdp.numerics.roots import last_safe, log_ratio_to_budget
from pymc_dirdp.papers import p1_theorem_1_concentration

# P1's proof uses log(x - 1/2) < psi(x) and then drops (alpha - 1/2) / p, which must not be negative (ERRATA P1.1).
# Theorem 2 gives more away than its equation 22, and holds for smaller priors (docs/proofs/divergence_tail.md).
_LEAST_ALPHA = 0.2983


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
        An upper bound. It is derived from :func:`pymc_dirdp.papers.p1_equation_22`, which is tighter.

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
        In nats. :func:`unknown_shares_kl` has the exact expectation of what it bounds.

    Examples
    --------
    >>> round(p1_equation_4(p=[0.5, 0.5], frequencies=[0.6, 0.4], y=[0.55, 0.45]), 4)  # KL(p || y) is 0.0050
    0.0463
    """
    first, second = probabilities("p", positive_array(p=p)), probabilities("y", positive_array(y=y))
    f = numbers_or_none(frequencies)
    if f is None or not first.shape == second.shape == f.shape:
        raise ArgumentError("Expected p, frequencies and y to be vectors of one length.")
    if not np.all(np.isfinite(f) & (f >= 0)) or abs(float(f.sum()) - 1) > 1e-9:
        raise DataError("Expected frequencies to be at least 0, with sum 1.")
    ratio = float(np.abs(np.log(first / second)).max())
    return float(rel_entr(f, second).sum() + rel_entr(f, first).sum() + ratio * np.abs(f - first).sum())


def p1_sample_size(*, eta: float, probability: float, order: float, epsilon: float, d: int) -> int:
    """The number of records from which on Algorithm 1 exceeds an error of `eta` with at most this probability.

    It is the sample complexity of P1 section 4 with its constants, by P1 Theorem 2.

    Parameters
    ----------
    eta : float
        In nats, positive.
    probability : float
        In (0, 1).
    order, epsilon : float
        The Rényi target of Algorithm 1.
    d : int
        Number of categories, at least 2.

    Examples
    --------
    >>> p1_sample_size(eta=0.1, probability=0.05, order=5, epsilon=0.1, d=4)
    19492
    """
    eta, probability, d = positive(eta=eta), open_unit_interval(probability=probability), integer(2, d=d)
    r = p1_theorem_1_concentration(order=order, epsilon=epsilon)
    alpha = 1 + 4 * (order - 1) * r
    beta = max(d * alpha / math.expm1(eta / 2), -math.log(probability) * 2 * (2 + eta) * (4 + 3 * eta) / eta**2)
    return math.ceil(beta / r)


def probabilities(name: str, vector: Array) -> Array:
    """A vector of positive numbers that add up to 1."""
    if vector.ndim != 1:
        raise ArgumentError(f"Expected {name} to be a vector, got shape {vector.shape}.")
    if abs(float(vector.sum()) - 1) > 1e-9:
        raise DataError(f"Expected {name} to add up to 1.")
    return vector


# P1's baselines of section 5: noise on counts, and the maximum likelihood of what comes out.
#
# The noise is right for its guarantee, or larger than needed. What makes P1's baselines look poor is the clipping at
# 1e-6, after which an empty cell has next to no probability: see :func:`pymc_dirdp.compare`.


def p1_equation_12(noisy_counts: ArrayLike) -> Array:
    """Noisy maximum likelihood: noisy counts, clipped at 1e-6, over the totals of their rows.

    Equation 12 has no clipping, and a negative count would give it a negative probability. P1 clips at 1e-6 (ERRATA
    P1.6).

    Parameters
    ----------
    noisy_counts : array_like, shape (..., d)
        Finite numbers.

    Returns
    -------
    shares : array, shape (..., d)
        Each row adds up to 1.

    Examples
    --------
    >>> p1_equation_12([3.2, -0.7, 0.8]).tolist()
    [0.79999..., 2.49999...e-07, 0.19999...]
    """
    noisy = numbers_or_none(noisy_counts)
    if noisy is None or noisy.ndim == 0 or noisy.size == 0:
        raise ArgumentError("Expected noisy_counts to be an array of numbers with the categories in its last axis.")
    if not np.all(np.isfinite(noisy)):
        raise DataError("Expected all noisy_counts to be finite.")
    return frequencies(postprocessed(noisy, "clip", noise=0.0))


def p1_gaussian_sigma(*, order: float, epsilon: float, tables: int = 1) -> float:
    """The standard deviation of P1's Gaussian baseline, `sqrt(order * tables / epsilon)`.

    With it each of the tables has an equal part of `(order, epsilon)`-Rényi differential privacy, for counts under
    replace-one. It is exact.

    Parameters
    ----------
    order : float
        Rényi order, at least 1.
    epsilon : float
        Of all tables together, in nats, positive.
    tables : int, default 1
        P1's K nodes, or `K + 1` for naive Bayes.

    Examples
    --------
    >>> p1_gaussian_sigma(order=5, epsilon=0.2, tables=10) ** 2
    250.0...
    """
    return math.sqrt(at_least(1, order=order) * integer(1, tables=tables) / positive(epsilon=epsilon))


def p1_laplace_renyi(*, order: float, scale: float, sensitivity: float = 2.0) -> float:
    """The Rényi divergence of Laplace noise on one number (Mironov 2017, Corollary 2).

    Parameters
    ----------
    order : float
        At least 1.
    scale : float
        Of the noise, positive.
    sensitivity : float, default 2
        P1 takes the l1 sensitivity of counts under replace-one, as if one number changed by 2. Two numbers that change
        by 1 lose twice what this function gives for `sensitivity=1`, which is less (ERRATA P1.11).

    Examples
    --------
    >>> one_number = p1_laplace_renyi(order=5, scale=10.0)
    >>> two_numbers = 2 * p1_laplace_renyi(order=5, scale=10.0, sensitivity=1.0)
    >>> round(one_number, 4), round(two_numbers, 4)
    (0.0841, 0.0469)
    """
    u, order = positive(sensitivity=sensitivity) / positive(scale=scale), at_least(1, order=order)
    # exp((order - 1) D) is [order exp((order - 1) u) + (order - 1) exp(-order u)] / (2 order - 1).
    if order == math.inf:
        return u
    if order == 1:
        return _second_order(-u)
    if order * u > 1:
        # The larger term is taken out.
        return u + math.log1p((order - 1) / (2 * order - 1) * math.expm1(-(2 * order - 1) * u)) / (order - 1)
    # The constant and linear terms of both exponentials cancel; what is left of them is positive.
    more = order * _second_order((order - 1) * u) + (order - 1) * _second_order(-order * u)
    return math.log1p(more / (2 * order - 1)) / (order - 1)


def _second_order(x: float) -> float:
    """`exp(x) - 1 - x`, without cancellation."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    return math.fsum(x**k / math.factorial(k) for k in range(2, 18))


def p1_laplace_scale(*, order: float, epsilon: float, tables: int = 1, sensitivity: float = 2.0) -> float:
    """The scale of P1's Laplace baseline: the least with which each table has its part of the Rényi guarantee.

    Parameters
    ----------
    order, epsilon, tables
        Same as in :func:`p1_gaussian_sigma`. P1 says `tables = K` for naive Bayes here, and `K + 1` for the other
        mechanisms (ERRATA P1.3).
    sensitivity : float, default 2
        Same as in :func:`p1_laplace_renyi`.

    Examples
    --------
    >>> round(p1_laplace_scale(order=5, epsilon=0.2, tables=10), 3)
    21.736
    """
    part = positive(epsilon=epsilon) / integer(1, tables=tables)

    def excess(scale: float) -> float:
        return log_ratio_to_budget(p1_laplace_renyi(order=order, scale=scale, sensitivity=sensitivity), part)

    # The loss is at most sensitivity / scale, and it falls as the scale grows.
    return last_safe(excess, start=positive(sensitivity=sensitivity) / part, factor=0.5)


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
        One that draws from a tempered posterior, for a table of the shape of the prior.
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
