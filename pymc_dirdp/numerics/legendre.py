"""Legendre polynomials beyond 1: how often integers with two-sided geometric distributions add up to 0.

Let z be a list of n integers that add up to 0. The sum of `exp(-(u / 2) sum |z|)` over all of them is
`P_{n-1}(coth(u / 2))`, by Laplace's second integral (https://dlmf.nist.gov/14.12.E8).
"""

import itertools
import math
from collections.abc import Iterator

__all__ = ["coth_excess", "legendre_excess", "log_legendre"]

# A recurrence forgets where it started: so many steps are enough.
_STEPS = 10_000


def coth_excess(u: float) -> float:
    """`coth(u / 2) - 1` for positive u, without cancellation."""
    return 2 * math.exp(-u) / -math.expm1(-u)


def legendre_excess(n: int, u: float) -> float:
    """`P_n(x) / P_{n-1}(x) - 1` at `x = coth(u / 2)`, for n of at least 1; from below where n is above 10,000.

    The ratio rises with n, by the inequality of Cauchy and Schwarz for Laplace's integral, and the recurrence is
    increasing. So it may start from `x`, the first ratio, at any n, and stays below the truth.

    Examples
    --------
    >>> legendre_excess(1, 2.0) == coth_excess(2.0)
    True
    """
    first = max(1, n - _STEPS)
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
    """The ratios less 1, as if the one at `first` were that at 1. Only positive terms are added."""
    x = coth_excess(u)
    excess = x
    for n in itertools.count(first + 1):
        yield excess
        excess = ((2 * n - 1) * x + (n - 1) * (excess / (1 + excess))) / n
