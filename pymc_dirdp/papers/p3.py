"""P3's statements about private vectors of shares, with corrections."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma, expm1, gammaln, log1p

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import numbers_or_none, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.numerics.roots import last_safe, log_ratio_to_budget
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain

# P3's statements about its simplex mechanism, with the corrections of Theory, section 12.
#
# :class:`pymc_dirdp.papers.SimplexMechanism` has the exact curve, with a smaller epsilon than the corrected theorem.
# All functions take a :class:`pymc_dirdp.papers.SimplexDomain` and a concentration `k`. Most take a `gamma` in
# (0, 1 / m). Outputs with a protected entry below gamma are excluded, and their probability is the failure probability.


Complex = NDArray[np.complex128]

_LEAST_LEFT = 0.1
_HUGE = 40.0


def p3_lemma_1(domain: SimplexDomain, k: float, gamma: float, p: ArrayLike | None = None) -> float:
    """The exact probability that a protected entry of the output is below `gamma`, for the worst or a given input.

    The worst input has all protected entries at `eta` (ERRATA P3.5). The probability is a contour integral of the
    Gamma form of the Dirichlet distribution, by the midpoint rule on the path of steepest descent.

    Parameters
    ----------
    domain : SimplexDomain
        The possible inputs.
    k : float
        Concentration, positive.
    gamma : float
        In (0, 1 / m), with `k (1 - m gamma)` of at least 0.1.
    p : array_like, shape (m,), optional
        The protected entries of an input in the domain, by default of the worst. The result is **secret** if `p` is.

    Returns
    -------
    delta : float
        For `m` up to 50 and delta down to 1e-20, the relative error is below 1e-10 for k up to 1e4, and below 1e-8 for
        k up to 1e6, with about `3 k gamma` terms of a series.

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
    # The integrand decreases like exp(z left), so the path is long for a small `k left`.
    left = 1 - domain.n_protected * gamma
    if k * left < _LEAST_LEFT:
        raise ArgumentError(
            f"Expected k (1 - n_protected gamma) >= {_LEAST_LEFT:g} for numerical integration, got {k * left:g} "
            f"with gamma={gamma:g}. Lower gamma, or raise k."
        )
    # The integrand has the width 1 / sqrt(k), and the error of the midpoint rule decreases like exp(-2 nodes**2 / k).
    nodes = math.ceil(max(256, 6 * math.sqrt(k), 500 / (k * left)))
    t = np.pi * (np.arange(nodes) + 0.5) / nodes
    # The path is z = k (t / tan(t) + i t), with modulus k t / sin(t) and angle t.
    along, stretch = t / np.tan(t), np.log(t / np.sin(t))
    size = k * (along * left - stretch)
    # The contour ends where the integrand is exp(-50) = 2e-22 of its maximum.
    near = size > size.max() - 50.0
    t, along, stretch = t[near], along[near], stretch[near]
    z: Complex = np.asarray(k * (along + 1j * t), dtype=np.complex128)
    slope = k * (1 / np.tan(t) - t / np.sin(t) ** 2 + 1j)
    # The logarithm of prod (1 - P_i), where P_i is the regularised lower incomplete gamma function at gamma z.
    exponent = np.zeros_like(z)
    for entry, count in zip(inputs, multiplicity, strict=True):
        exponent += count * _log_upper(k * entry, gamma * z)
    # exp(z) z**-k Gamma(k), whose phase is 0 along the path.
    log_kernel = k * (along - 1 - stretch) + _above_stirling(k) - math.log(k)
    huge = exponent.real > _HUGE
    missed = np.where(huge, np.exp(log_kernel + exponent), np.exp(log_kernel) * expm1(np.where(huge, 0, exponent)))
    return -float(np.sum((missed * slope).imag) / nodes)


def p3_theorem_1_corrected(domain: SimplexDomain, k: float, gamma: float) -> float:
    """The exact maximum loss over outputs whose protected entries are all at least `gamma`.

    With delta from :func:`p3_lemma_1`, which has the same arguments, this is probabilistic differential privacy.

    References
    ----------
    P3 Theorem 1, with steps that end at the boundary of the domain (ERRATA P3.2 and P3.6).

    Examples
    --------
    >>> domain = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4)
    >>> p3_theorem_1_corrected(domain, 24, p3_problem_14(domain, 24, 0.05))
    38.40...
    """
    k, gamma = _checked(domain, k, gamma)
    ratio = _log_ratio(domain, gamma)

    def slope(t: float) -> float:
        digamma_below = digamma(k * (domain.eta + t))
        return ratio + float(digamma(k * (domain.span - domain.eta - t)) - digamma_below)

    t = domain.largest_step
    if slope(t) < 0:
        # The loss is concave in the step, so its maximum is where the slope vanishes.
        from scipy.optimize import brentq

        t = float(brentq(slope, 0.0, t))
    start = betaln(k * domain.eta, k * (domain.span - domain.eta))
    return float(start - betaln(k * (domain.eta + t), k * (domain.span - domain.eta - t))) + k * t * ratio


def p3_problem_14(domain: SimplexDomain, k: float, delta: float) -> float:
    """The solution of P3's problem (14): the largest `gamma` for which :func:`p3_lemma_1` is at most `delta`.

    Raises
    ------
    UnattainableError
        If no `gamma` has such a small probability, because `k eta` is too small.

    Examples
    --------
    >>> from pymc_dirdp.papers import SimplexDomain
    >>> round(p3_problem_14(SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1), k=20.0, delta=0.05), 4)
    0.0606
    """
    k, delta = positive(k=k), open_unit_interval(delta=delta)

    def excess(gamma: float) -> float:
        return log_ratio_to_budget(max(p3_lemma_1(domain, k, gamma), 0.0), delta) if gamma < most else 1.0

    # Above this gamma, the probability is not resolved; at 1 / m it is 1.
    most = max(1 - _LEAST_LEFT / k, 0.0) / domain.n_protected
    if most == 0:
        raise UnattainableError(f"Expected k above {_LEAST_LEFT:g}, got k={k:g}. Raise k or eta.")
    tight = f"No gamma has a delta below {delta:g}, because k eta is too small. Raise k or eta."
    return last_safe(excess, start=most / 2, factor=4, least=1e-280, most=most, tight=tight)


def _protected(domain: SimplexDomain, p: ArrayLike | None) -> Array:
    """The protected entries of an input in the domain, by default of the worst one."""
    m = domain.n_protected
    if p is None:
        return np.full(m, domain.eta)
    entries = numbers_or_none(p)
    if entries is None or entries.shape != (m,):
        raise ArgumentError(f"Expected p to have the {m} protected entries of an input.")
    if not np.all(entries >= domain.eta) or not float(entries.sum()) <= 1 - domain.etabar:
        raise DataError(
            "Expected p to be in the domain, but an entry is below its floor, or the entries leave less than etabar."
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


def _log_upper(a: float, z: Complex) -> Complex:
    """The logarithm of the regularised upper incomplete gamma function at complex `z`.

    It uses the series of the lower function that loses fewer digits, with about `3 |z|` terms. The sum grows like
    `exp(|z|)` and is rescaled.
    """
    right = z.real >= 0
    ahead, offset = np.where(right, z, -z), np.where(right, a, 0.0)
    term, total, log_size = np.ones_like(z), np.ones_like(z), np.zeros(z.shape)
    n = 0
    while np.any(np.abs(term) > 1e-17 * np.abs(total)):
        n += 1
        term = term * ahead / (offset + n)
        total = total + term * np.where(right, 1.0, a / (a + n))
        # Each term is below `|z| / n` times the previous term, so eight terms do not overflow.
        if n % 8 == 0:
            size = np.abs(total)
            term, total, log_size = term / size, total / size, log_size + np.log(size)
    # The powers and the factorial are nearly equal and huge, so their common factor is left out.
    common = a * np.log(z / a) + a - _above_stirling(a)
    log_lower = common - np.where(right, z, 0) + log_size + np.log(total)
    # Far to the left the lower function is huge, and the upper function is minus the lower one.
    huge = log_lower.real > _HUGE
    lower = np.exp(np.where(huge, 0, log_lower))
    # If the upper function is 0, its logarithm is replaced by a large negative number.
    gone = ~huge & (lower == 1)
    upper: Complex = np.where(gone, -1e3, log1p(-np.where(gone | huge, 0, lower)))
    return np.where(huge, log_lower + np.pi * 1j, upper)


def _above_stirling(a: float) -> float:
    """`log Gamma(a + 1) - a log(a) + a` without cancellation for large `a`."""
    # Above this limit the first terms of Stirling's series are exact to rounding.
    if a < 1e3:
        return float(gammaln(a + 1)) - a * math.log(a) + a
    return math.log(2 * math.pi * a) / 2 + 1 / (12 * a) - 1 / (360 * a**3)
