"""Gauss-Legendre quadrature, and sums over Beta-binomial counts."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammaln

from pymc_dirdp.arrays import Array

# Legendre polynomials at arguments above 1, for probabilities that two-sided geometric integers add up to 0.
#
# The sum of `exp(-(u / 2) sum |z|)` over all lists z of n integers that add up to 0 is `P_{n-1}(coth(u / 2))`, by
# Laplace's second integral (https://dlmf.nist.gov/14.12.E8).


def coth_excess(u: float) -> float:
    """`coth(u / 2) - 1` for positive u, without cancellation."""
    return 2 * math.exp(-u) / -math.expm1(-u)


def legendre_excess(n: int, u: float, *, steps: int = 10_000) -> float:
    """`P_n(x) / P_{n-1}(x) - 1` at `x = coth(u / 2)`, for n of at least 1. A lower bound if n is above `steps`.

    The ratio increases with n, by the Cauchy-Schwarz inequality for Laplace's integral, and so does the recurrence.
    Started from the first ratio `x` at any n, it therefore gives a lower bound. The effect of the start vanishes
    quickly, so 10,000 steps are enough.

    Examples
    --------
    >>> legendre_excess(1, 2.0) == coth_excess(2.0)
    True
    """
    first = max(1, n - steps)
    return next(itertools.islice(_excesses(first, u), n - first, None))


def log_legendre(n: int, u: float) -> float:
    """Logarithm of `P_n(coth(u / 2))` for n of at least 0.

    Examples
    --------
    >>> math.exp(log_legendre(2, 2.0)), (3 / math.tanh(1.0) ** 2 - 1) / 2
    (2.086..., 2.086...)
    """
    return math.fsum(math.log1p(excess) for excess in itertools.islice(_excesses(1, u), n))


def _excesses(first: int, u: float) -> Iterator[float]:
    """The ratios minus 1, started at `first` with the ratio for 1. All terms are positive."""
    x = coth_excess(u)
    excess = x
    for n in itertools.count(first + 1):
        yield excess
        excess = ((2 * n - 1) * x + (n - 1) * (excess / (1 + excess))) / n


# Gauss-Legendre rules on graded panels, for integrands that are smooth between known breakpoints.


# With 14 nodes, and the nearest singularity one panel length away, the error is about 5.8**-28 = 4e-22.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(14)


def integrate(f: Callable[[Array], Array], breaks: Array) -> float:
    """Integral of `f` over `[breaks[0], breaks[-1]]`, with one Gauss-Legendre rule per panel. `f` is called once.

    Parameters
    ----------
    f : callable
        Takes and returns arrays of shape `(panels, nodes)`.
    breaks : array, shape (panels + 1,)
        Increasing. `f` is smooth in each panel, with singularities at least about one panel length away.
    """
    half = (breaks[1:, None] - breaks[:-1, None]) / 2
    # First the sum over each panel, so that small panels are not lost.
    return float(np.sum(np.sum(f(breaks[:-1, None] + half * (1 + _NODES)) * (half * _WEIGHTS), axis=1)))


def nodes(breaks: Array) -> tuple[Array, Array]:
    """Nodes and weights of the rules on all panels, each of shape `(panels * 14,)`."""
    half = (breaks[1:, None] - breaks[:-1, None]) / 2
    points: Array = breaks[:-1, None] + half * (1 + _NODES)
    weights: Array = half * _WEIGHTS
    return points.ravel(), weights.ravel()


def inner(values: Array, weights: Array) -> float:
    """The sum of products, in one thread.

    From about ten thousand numbers on, `@` starts the threads of a BLAS library. This takes longer than the sum, whose
    order would depend on the number of threads.
    """
    return float(np.add.reduce(values * weights))


def graded_breaks(gap: float, length: float) -> Array:
    """Breakpoints of `[0, length]` for an integrand with its nearest singularity at `-gap`.

    Each panel is at most as long as its distance from the singularity. The first and the last breakpoint are exactly 0
    and `length`, however small `length / gap` is.
    """
    if length <= gap:
        return np.array([0.0, length])
    panels = math.ceil(math.log2(1 + length / gap))
    breaks: Array = gap * np.expm1(math.log1p(length / gap) * (np.arange(panels + 1) / panels))
    breaks[0], breaks[-1] = 0.0, length
    return breaks


def bulk_breaks(gap: float, length: float, *, longest: float = 0.5) -> Array:
    """Breakpoints of `[0, length]` for a density in units of its standard deviation, graded towards 0.

    `gap` is the distance of the nearest singularity from 0, as in :func:`graded_breaks`.
    """
    if length <= longest:
        return graded_breaks(gap, length)
    return np.concatenate([graded_breaks(gap, longest), np.arange(2 * longest, length, longest), [length]])


# Expectations over an unobserved count, as Beta-binomial sums, exact or by quadrature.
#
# Under the prior of the model, a count in a row of `n` records is Beta-binomial. Plans and figures published before the
# draw are expectations under this distribution, because they must not depend on the data (Theory, section 8).


_BETA_BINOMIAL_NODES = 12


@dataclass(frozen=True)
class CountDistribution:
    """Nodes and weights with `E sum_i f(x_i, a_i) = sum(weights * f(counts, priors))` over the cells of a table.

    Attributes
    ----------
    counts, priors, weights : array, shape (nodes,)
        The weights of one row add up to its number of categories.
    row_size : int
        The assumed number of records of every row.
    row_totals : array, shape (n_rows,)
        The sum of the prior over each row.
    """

    counts: Array
    priors: Array
    weights: Array
    row_size: int
    row_totals: Array


def count_distribution(prior: Array, n_records: int, *, most_distinct: int = 64) -> CountDistribution:
    """The prior predictive distribution of the cells of a table with `n_records` records in all.

    Row sizes are data, so all rows are assumed to have the same size (rounded). With more than 64 distinct priors, the
    prior of each cell is replaced by a prior within a few per cent.

    Parameters
    ----------
    prior : array, shape (..., d)
        Positive.
    n_records : int
        Total number of records, at least 0.
    most_distinct : int, default 64
        If there are more distinct priors, priors that are close on a logarithmic scale are averaged.
    """
    rows = prior.reshape(-1, prior.shape[-1])
    totals = rows.sum(axis=1)
    size = 0 if n_records == 0 else max(1, round(n_records / rows.shape[0]))
    cells = np.stack([rows.ravel(), np.repeat(totals, rows.shape[1]) - rows.ravel()], axis=1, dtype=np.float64)
    # NumPy sorts complex numbers by real and then imaginary part, like rows, but in a tenth of the time.
    pairs, multiplicity = np.unique(cells.view(np.complex128), return_counts=True)
    distinct = pairs.view(np.float64).reshape(-1, 2)
    if len(distinct) > most_distinct:
        distinct, multiplicity = _coarsened(distinct, multiplicity, most_distinct)
    parts = [
        (*_beta_binomial(size, float(a), float(b)), a, m) for (a, b), m in zip(distinct, multiplicity, strict=True)
    ]
    return CountDistribution(
        counts=np.concatenate([x for x, _, _, _ in parts]),
        priors=np.concatenate([np.full(x.shape, a) for x, _, a, _ in parts]),
        weights=np.concatenate([w * m for _, w, _, m in parts]),
        row_size=size,
        row_totals=totals,
    )


def _coarsened(cells: Array, multiplicity: NDArray[np.int64], most: int) -> tuple[Array, NDArray[np.int64]]:
    logs = np.log(cells[:, 0])
    edges = np.linspace(logs[0], logs[-1], most + 1)[1:-1]
    group = np.searchsorted(edges, logs)
    members = [group == g for g in np.unique(group)]
    means = np.array([np.average(cells[member], axis=0, weights=multiplicity[member]) for member in members])
    return means, np.array([multiplicity[member].sum() for member in members])


@lru_cache(maxsize=256)
def _beta_binomial(n: int, a: float, b: float) -> tuple[Array, Array]:
    """Nodes and weights for `E f(x)` with `x ~ BetaBinomial(n, a, b)`, exact for `n` below 256."""
    x, block = _summation_rule(n, a, b)
    log_mass = _log_gamma_ratio(x, a) + _log_gamma_ratio(n - x, b)
    weights = block * np.exp(log_mass - log_mass.max())
    return x, weights / weights.sum()


def _summation_rule(n: int, a: float, b: float) -> tuple[Array, Array]:
    """Nodes and weights to sum a smooth function over 0..n, in blocks graded towards both ends and the bulk."""
    # Every count is a node for few records; otherwise Gauss rules replace blocks of counts.
    if n < 256:
        return np.arange(n + 1.0), np.ones(n + 1)
    mean = n * a / (a + b)
    sd = np.sqrt(mean * b / (a + b) * (a + b + n) / (a + b + 1))
    # Near 0 and n the mass varies like a power of the count, so every count is a node.
    ladder = _BETA_BINOMIAL_NODES * 2.0 ** np.arange(int(np.log2(n / (2 * _BETA_BINOMIAL_NODES))) + 1)
    bulk = sd * np.concatenate([np.arange(0.5, 8.0, 0.5), [8.0, 10.0, 14.0, 20.0, 30.0]])
    edges = np.concatenate([[0.0, n + 1.0], ladder, n + 1 - ladder, mean - bulk, [mean], mean + bulk])
    edges = np.unique(np.round(np.clip(edges, 0, n + 1)))
    rules = [_block_rule(int(length)) for length in np.diff(edges)]
    return (
        np.concatenate([start + offsets for start, (offsets, _) in zip(edges[:-1], rules, strict=True)]),
        np.concatenate([weights for _, weights in rules]),
    )


@lru_cache(maxsize=1024)
def _block_rule(length: int, most: int = _BETA_BINOMIAL_NODES) -> tuple[Array, Array]:
    """The Gauss rule for a sum over 0..length-1, from the Jacobi matrix of the Gram polynomials (Golub and Welsch)."""
    if length <= most:
        return np.arange(float(length)), np.ones(length)
    k = np.arange(1.0, most)
    off_diagonal = k / 2 * np.sqrt((float(length) ** 2 - k**2) / (4 * k**2 - 1))
    nodes, vectors = eigh_tridiagonal(np.full(most, (length - 1) / 2), off_diagonal)
    return nodes, length * vectors[0] ** 2


def _log_gamma_ratio(x: Array, a: float) -> Array:
    """`log Gamma(x + a) - log Gamma(x + 1)` without cancellation of the terms, which are of size x log x."""
    if np.all(np.asarray(a) == 1):
        # A shortcut for the uniform prior, which is frequent.
        return np.zeros(np.broadcast_shapes(np.shape(x), np.shape(a)))
    z, h = x + 1, a - 1
    # `x + a` and not `z + h`, which would lose a parameter below 1e-16 at x = 0.
    direct = gammaln(x + a) - gammaln(z)
    # Differences of the terms of Stirling's series, whose fourth term is below 1e-13 from 64 on.
    large = np.maximum(z, 64.0)
    top = np.maximum(z + h, 64.0)
    # `h` is the exact difference if the series is used; `top - large` would be rounded.
    series = (top - 0.5) * np.log1p(h / large) + h * (np.log(large) - 1)
    series += (1 / top - 1 / large) / 12 - (1 / top**3 - 1 / large**3) / 360 + (1 / top**5 - 1 / large**5) / 1260
    ratio: Array = np.where((z > 64) & (z + h > 64), series, direct)
    return ratio
