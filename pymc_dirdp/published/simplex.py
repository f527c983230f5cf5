"""P3's statements about its simplex mechanism, as printed and with the corrections of Theory, section 12.

:class:`pymc_dirdp.mechanisms.SimplexMechanism` has the exact curve, whose epsilon is smaller than that of the corrected
theorem. All functions take a :class:`pymc_dirdp.mechanisms.SimplexDomain` and a concentration `k`. Most take a `gamma`
in (0, 1 / m): outputs with a protected entry below it are left out and count as the failure probability.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma, expm1, gammaln, log1p

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, numbers_or_none, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.simplex_domain import SimplexDomain
from pymc_dirdp.numerics.roots import last_safe, log_excess

__all__ = ["p3_corollary", "p3_lemma_1", "p3_problem_14", "p3_theorem", "p3_theorem_1_corrected"]

Complex = NDArray[np.complex128]

# The midpoint rule on the contour needs 32 nodes for k = 24, and 256 for k = 1e4.
_NODES = 256
# The contour ends where its integrand has fallen to exp(-50) = 2e-22 of its largest value.
_NEGLIGIBLE = 50.0


def p3_lemma_1(domain: SimplexDomain, k: float, gamma: float, p: ArrayLike | None = None) -> float:
    """The exact probability that a protected entry of the output is below `gamma`, at the worst or at a given input.

    The worst input has all protected entries at `eta` (ERRATA P3.5). The probability is a contour integral of the
    Gamma form of the Dirichlet law, by the midpoint rule on the path of steepest descent.

    Parameters
    ----------
    domain : SimplexDomain
        The inputs that could occur.
    k : float
        Concentration, positive.
    gamma : float
        In (0, 1 / m).
    p : array_like, shape (m,), optional
        The protected entries of an input in the domain; the result is as **secret** as they are. By default the worst.

    Returns
    -------
    delta : float
        Relative error below 1e-10 for `m` up to 50 and delta down to 1e-20.

    References
    ----------
    P3 Lemma 1 and equation (7); Theory, section 12.

    Examples
    --------
    >>> p3_lemma_1(SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), 24, 0.002)
    0.0433...
    >>> p3_lemma_1(SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), 24, 0.002, p=[0.2, 0.3])
    2.82...e-09
    """
    k, gamma = _checked(domain, k, gamma)
    inputs, multiplicity = np.unique(_protected(domain, p), return_counts=True)
    m = domain.n_protected
    t = np.pi * (np.arange(_NODES) + 0.5) / _NODES
    z: Complex = np.asarray(k * (t / np.tan(t) + 1j * t), dtype=np.complex128)
    slope = k * (1 / np.tan(t) - t / np.sin(t) ** 2 + 1j)
    # Far out the integrand falls like exp(z (1 - m gamma)) while its factors over- and underflow.
    size = (z * (1 - m * gamma) - k * np.log(z)).real
    near = size > size.max() - _NEGLIGIBLE
    z, slope = z[near], slope[near]
    # This is 1 - prod (1 - P_i), where P_i is the regularised lower incomplete gamma function at gamma z.
    kept = sum(many * log1p(-_lower(k * entry, gamma * z)) for entry, many in zip(inputs, multiplicity, strict=True))
    missed = -expm1(kept)
    kernel = np.exp(z - k * np.log(z) + gammaln(k))
    return float(np.sum((kernel * missed * slope).imag) / _NODES)


def p3_theorem_1_corrected(domain: SimplexDomain, k: float, gamma: float) -> float:
    """The exact largest loss over outputs whose protected entries are all at least `gamma`.

    With delta from :func:`p3_lemma_1` this is probabilistic differential privacy. The arguments are the same.

    References
    ----------
    P3 Theorem 1, corrected: the step ends at the border of the domain (ERRATA P3.2 and P3.6).

    Examples
    --------
    >>> domain = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4)
    >>> p3_theorem_1_corrected(domain, 24, p3_problem_14(domain, 24, 0.05))
    38.40...
    """
    k, gamma = _checked(domain, k, gamma)
    ratio = _log_ratio(domain, gamma)

    def slope(t: float) -> float:
        there = digamma(k * (domain.eta + t))
        return ratio + float(digamma(k * (domain.span - domain.eta - t)) - there)

    t = domain.largest_step
    if slope(t) < 0:
        # The loss is concave in the step, so its maximum is where the slope vanishes.
        from scipy.optimize import brentq

        t = float(brentq(slope, 0.0, t))
    start = betaln(k * domain.eta, k * (domain.span - domain.eta))
    return float(start - betaln(k * (domain.eta + t), k * (domain.span - domain.eta - t))) + k * t * ratio


def p3_theorem(domain: SimplexDomain, k: float, gamma: float, *, number: int = 1, alpha: float | None = None) -> float:
    """The epsilon that P3's Theorems 1 to 3 print. It is not a bound where ERRATA P3.2 and P3.3 apply.

    Parameters
    ----------
    domain, k, gamma
        Same as in :func:`p3_lemma_1`.
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
    >>> from pymc_dirdp.mechanisms import SimplexDomain
    >>> round(p3_corollary(SimplexDomain(2, eta=0.1, etabar=0.1, b=0.1), k=5.0, gamma=0.2), 4)
    6.3466
    """
    return 2 * k * (1 - domain.etabar) - 3 + _printed_tail(domain, k, gamma, number, alpha)


def p3_problem_14(domain: SimplexDomain, k: float, delta: float) -> float:
    """P3's problem (14): the largest `gamma` for which :func:`p3_lemma_1` is at most `delta`.

    Raises
    ------
    UnattainableError
        If no `gamma` has so small a probability, because `k eta` is too small.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import SimplexDomain
    >>> round(p3_problem_14(SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1), k=20.0, delta=0.05), 4)
    0.0606
    """
    k, delta = positive(k=k), open_unit_interval(delta=delta)

    def excess(gamma: float) -> float:
        # Not all m entries can be above 1 / m, so the probability is 1 there.
        return log_excess(max(p3_lemma_1(domain, k, gamma), 0.0), delta) if gamma < most else 1.0

    most = 1.0 / domain.n_protected
    tight = f"No gamma keeps delta below {delta:g}: k eta is too small. Raise k or eta."
    return last_safe(excess, start=most / 2, factor=4, least=1e-280, most=most, tight=tight)


def _protected(domain: SimplexDomain, p: ArrayLike | None) -> Array:
    """The protected entries of an input of the domain; by default of the worst one."""
    m = domain.n_protected
    if p is None:
        return np.full(m, domain.eta)
    entries = numbers_or_none(p)
    if entries is None or entries.shape != (m,):
        raise ArgumentError(f"Expected p to hold the {m} protected entries of an input.")
    if not np.all(entries >= domain.eta) or not float(entries.sum()) <= 1 - domain.etabar:
        raise DataError(
            "Expected p to be in the domain: some entry is below its floor, or they leave less than etabar."
        )
    return entries


def _checked(domain: SimplexDomain, k: float, gamma: float) -> tuple[float, float]:
    value = positive(gamma=gamma)
    if value >= 1 / domain.n_protected:
        raise ArgumentError(f"Expected gamma < 1 / n_protected = {1 / domain.n_protected:g}, got gamma={value:g}.")
    return positive(k=k), value


def _log_ratio(domain: SimplexDomain, gamma: float) -> float:
    """The logarithm of the largest ratio of two protected entries of an output."""
    return math.log((1 - (domain.n_protected - 1) * gamma) / gamma)


def _printed_tail(domain: SimplexDomain, k: float, gamma: float, number: int, alpha: float | None) -> float:
    k, gamma = _checked(domain, k, gamma)
    if number not in (1, 2, 3):
        raise ArgumentError(f"P3 has Theorems and Corollaries 1, 2 and 3, got number={number}.")
    if number == 3:
        return k * domain.b * at_least(0, alpha=alpha) * abs(math.log(gamma))
    return k * domain.b / 2 * (domain.weight if number == 2 else 1.0) * _log_ratio(domain, gamma)


def _lower(a: float, z: Complex) -> Complex:
    """Regularised lower incomplete gamma function at complex `z`, by its series, which needs about `3 |z|` terms."""
    term = np.ones_like(z)
    total = np.ones_like(z)
    n = 0
    while np.any(np.abs(term) > 1e-17 * np.abs(total)):
        n += 1
        term = term * z / (a + n)
        total = total + term
    lower: Complex = np.exp(a * np.log(z) - z - gammaln(a + 1)) * total
    return lower
