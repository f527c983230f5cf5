"""P3's theorems and corollaries as printed, and its average and linear queries."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.numerics.roots import round_up
from pymc_dirdp.papers import SimplexDomain
from pymc_dirdp.papers.p3 import _checked, _log_ratio
from pymc_dirdp.sampling.exact import over_one_power


def p3_theorem(domain: SimplexDomain, k: float, gamma: float, *, number: int = 1, alpha: float | None = None) -> float:
    """The epsilon that P3's Theorems 1 to 3 print. It is not a bound where ERRATA P3.2 and P3.3 apply.

    Parameters
    ----------
    domain, k, gamma
        Same as in :func:`pymc_dirdp.papers.p3_lemma_1`.
    number : {1, 2, 3}
        1: identity queries; too small for large b. 2: averages, with `weight = 1 / N` in the domain. 3: linear queries
        that are `alpha`-bounded; wrong, it can even be negative (ERRATA P3.2 and P3.3).
    alpha : float, optional
        At least 0; for theorem 3 only.

    Examples
    --------
    >>> p3_theorem(SimplexDomain(2, eta=0.3, etabar=0.1999, b=1), 4, 0.01)  # the largest loss is 3.68
    0.3958...
    """
    tail = _printed_tail(domain, k, gamma, number, alpha)
    step = domain.b / 2 * (domain.weight if number == 2 else 1.0)
    whole = 1 - domain.etabar - domain.eta
    beta = float(betaln(k * domain.eta, k * whole) - betaln(k * (domain.eta + step), k * (whole - step)))
    return beta + tail


def p3_corollary(
    domain: SimplexDomain, k: float, gamma: float, *, number: int = 1, alpha: float | None = None
) -> float:
    """P3's Corollaries 1 to 3 as printed: the beta terms of the theorems replaced by `2 k (1 - etabar) - 3`.

    The arguments are the same as in :func:`p3_theorem`.

    Examples
    --------
    >>> from pymc_dirdp.papers import SimplexDomain
    >>> round(p3_corollary(SimplexDomain(2, eta=0.1, etabar=0.1, b=0.1), k=5.0, gamma=0.2), 4)
    6.3466
    """
    return 2 * k * (1 - domain.etabar) - 3 + _printed_tail(domain, k, gamma, number, alpha)


def _printed_tail(domain: SimplexDomain, k: float, gamma: float, number: int, alpha: float | None) -> float:
    k, gamma = _checked(domain, k, gamma)
    if number not in (1, 2, 3):
        raise ArgumentError(f"P3 has Theorems and Corollaries 1, 2 and 3, got number={number}.")
    if number == 3:
        return k * domain.b * at_least(0, alpha=alpha) * abs(math.log(gamma))
    return k * domain.b / 2 * (domain.weight if number == 2 else 1.0) * _log_ratio(domain, gamma)


# P3's average and linear queries: their value, and the domain for which its mechanism is private.


# Each entry of a query is rounded once, by 2**-54 at most, so that of two neighbours moves by this much more.
_ROUNDING = Fraction(1, 2**53)


def p3_query(
    vectors: ArrayLike, *, domain: SimplexDomain, protected: Sequence[int], weights: ArrayLike | None = None
) -> tuple[Array, SimplexDomain]:
    """An average or a weighted average of people's vectors, and the domain with the weight of one person.

    Parameters
    ----------
    vectors : array_like, shape (N, n)
        One vector of probabilities for each person, in the domain. **Secret.**
    domain : SimplexDomain
        Floors and `b` of one person's vector. Its `weight` is not used.
    protected : sequence of int
        Positions of the protected entries; public.
    weights : array_like, shape (N,), optional
        Public weights: at least 0; they are divided by their sum. By default the average.

    Returns
    -------
    value : array, shape (n,)
        **Secret**: what :meth:`SimplexMechanism.sample <pymc_dirdp.papers.SimplexMechanism.sample>` takes. Each
        entry is computed exactly and rounded once.
    domain : SimplexDomain
        Public: the same floors, with the largest share of one person as its `weight`, rounded up.

    Raises
    ------
    DataError
        If some vector is not in the domain.

    Notes
    -----
    P3's Lemma 6 says that a query whose values are in the simplex has weights of at least 0. With floors that does not
    follow: `1.01 p - 0.01 q` stays in the simplex if all entries are at least 0.05. Negative weights are refused all
    the same, because the floors of the result would be others.

    References
    ----------
    P3 sections IV and V, Definitions 3 and 5.

    Examples
    --------
    >>> domain = SimplexDomain(2, eta=0.05, etabar=0.05, b=1.0)
    >>> people = [[0.25, 0.25, 0.5], [0.5, 0.125, 0.375]]
    >>> value, average = p3_query(people, domain=domain, protected=[0, 1])
    >>> value.tolist(), round(average.weight, 9)
    ([0.375, 0.1875, 0.4375], 0.5)
    """
    positions = sorted({integer(0, protected=position) for position in protected})
    if len(positions) != domain.n_protected:
        raise ArgumentError(f"Expected {domain.n_protected} protected positions, got {len(positions)}.")
    people = _queries_checked(vectors, domain, positions)
    parts = _shares(weights, len(people))
    total = sum(parts)
    if max(parts) == total:
        # It is an identity query.
        return people[parts.index(total)], replace(domain, weight=1.0)
    value = []
    for column in people.T.tolist():
        numerators, digits = over_one_power(column)
        exact = sum(part * numerator for part, numerator in zip(parts, numerators, strict=True))
        value.append(float(Fraction(exact, total << digits)))
    largest = Fraction(max(parts), total) + 2 * _ROUNDING / Fraction(domain.b)
    return np.array(value), replace(domain, weight=round_up(largest))


def _queries_checked(vectors: ArrayLike, domain: SimplexDomain, positions: list[int]) -> Array:
    people = numbers_or_none(vectors)
    if people is None or people.ndim != 2 or not len(people) or people.shape[1] <= max(positions[-1], len(positions)):
        raise ArgumentError(
            f"Expected vectors to be an array with one row for each person, which holds the positions {positions} and "
            "others."
        )
    if not np.all(np.isfinite(people) & (people > 0)) or np.any(abs(people.sum(axis=1) - 1) > 1e-9):
        raise DataError("The rows of vectors are not positive numbers that add up to 1.")
    inner = people[:, positions]
    if np.any(inner < domain.eta) or np.any(inner.sum(axis=1) > 1 - domain.etabar):
        raise DataError("Some row of vectors is below the floors eta and etabar that were guaranteed.")
    return people


def _shares(weights: ArrayLike | None, n: int) -> list[int]:
    """The weights as integers, up to a common factor."""
    if weights is None:
        return [1] * n
    given = numbers_or_none(weights)
    if given is None or given.shape != (n,):
        raise ArgumentError(f"Expected weights to be {n} numbers, one for each person.")
    if not np.all(np.isfinite(given) & (given >= 0)) or not given.any():
        raise ArgumentError("Expected weights to be finite, at least 0 and not all 0.")
    return over_one_power(given.tolist())[0]
