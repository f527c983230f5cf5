"""The domain of P3's simplex mechanism and what its printed theorems say, with the corrections (Theory, section 12)."""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, expm1, gammaln, log1p

from pymc_dirdp.checks import at_least, fraction, integer, positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.numerics.roots import log_excess, safe_root
from pymc_dirdp.numerics.rounding import not_below

__all__ = ["SimplexDomain"]

# Of one addition of probabilities.
_ROUNDING = Fraction(1, 2**52)

Complex = NDArray[np.complex128]

# Nodes of the midpoint rule on the contour; 32 suffice for k = 24, and 256 for k = 1e4.
_NODES = 256
# exp(-50) = 2e-22: what the contour leaves out, relative to its largest value.
_NEGLIGIBLE = 50.0


@final
@dataclass(frozen=True)
class SimplexDomain:
    """Vectors of the unit simplex with floors, and a neighbouring relation on them.

    Two vectors are neighbours if they differ in two protected entries, by at most `b / 2` in each.

    Parameters
    ----------
    n_protected : int
        How many entries are protected, `|W|`, at least 2.
    eta : float
        Every protected entry is at least this.
    etabar : float
        The entries that are not protected add up to at least this.
    b : float
        The l1 norm of what a neighbour changes, in (0, 1].
    weight : float, default 1.0
        How much one person's vector counts in what is released: 1 for an identity query, `1 / N` for an average,
        the largest `|l_j|` for a linear query.

    References
    ----------
    P3 Definitions 1 and 3, Assumption 1, with ERRATA P3.6 and P3.7.
    """

    n_protected: int
    _: KW_ONLY
    eta: float
    etabar: float
    b: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_protected", integer(2, n_protected=self.n_protected))
        for name in ("eta", "etabar"):
            object.__setattr__(self, name, fraction(**{name: getattr(self, name)}))
        object.__setattr__(self, "b", positive(b=self.b))
        object.__setattr__(self, "weight", positive(weight=self.weight))
        if self.b > 1 or self.weight > 1:
            raise ArgumentError(f"Expected b and weight to be at most 1, got b={self.b:g}, weight={self.weight:g}.")
        if self.span <= 2 * self.eta:
            raise ArgumentError(
                f"The domain holds one vector at most: {self.n_protected} entries of at least eta={self.eta:g} and the "
                f"rest of at least etabar={self.etabar:g} leave nothing to move. Lower eta or etabar."
            )

    @property
    def span(self) -> float:
        """`C = 1 - etabar - (m - 2) eta`, the largest sum of two protected entries."""
        return 1 - self.etabar - (self.n_protected - 2) * self.eta

    @property
    def largest_step(self) -> float:
        """How far one person can move an entry of what is released: `weight * min(b / 2, C - 2 eta)`, rounded up.

        With fractions, because little is left of the difference where the domain is small. An input is checked with a
        sum of doubles, whose rounding is added.
        """
        m = self.n_protected
        room = 1 - Fraction(self.etabar) - m * Fraction(self.eta) + m * _ROUNDING
        return not_below(Fraction(self.weight) * min(Fraction(self.b) / 2, room))

    def delta(self, k: float, gamma: float) -> float:
        """The probability that a protected entry of the output is below `gamma`, at the worst input; exact.

        The worst input has all protected entries at `eta` (ERRATA P3.5). The probability is a contour integral of the
        Gamma form of the Dirichlet law, by the midpoint rule on the path of steepest descent.

        Parameters
        ----------
        k : float
            Concentration, positive.
        gamma : float
            In (0, 1 / m).

        Returns
        -------
        delta : float
            Relative error below 1e-10 for `m` up to 50 and delta down to 1e-20.

        References
        ----------
        P3 Lemma 1 and equation (7); Theory, section 12.
        """
        k, gamma = positive(k=k), self._checked_gamma(gamma)
        a, m = k * self.eta, self.n_protected
        t = np.pi * (np.arange(_NODES) + 0.5) / _NODES
        z: Complex = np.asarray(k * (t / np.tan(t) + 1j * t), dtype=np.complex128)
        slope = k * (1 / np.tan(t) - t / np.sin(t) ** 2 + 1j)
        # Far out the integrand falls like exp(z (1 - m gamma)) while its factors over- and underflow.
        size = (z * (1 - m * gamma) - k * np.log(z)).real
        near = size > size.max() - _NEGLIGIBLE
        z, slope = z[near], slope[near]
        # 1 - (1 - P)**m, where P is the regularised lower incomplete gamma function at gamma z.
        missed = -expm1(m * log1p(-_lower(a, gamma * z)))
        kernel = np.exp(z - k * np.log(z) + gammaln(k))
        return float(np.sum((kernel * missed * slope).imag) / _NODES)

    def epsilon(self, k: float, gamma: float) -> float:
        """The largest loss over outputs whose protected entries are all at least `gamma`; exact.

        With :meth:`delta` this is probabilistic differential privacy. The approximate-DP curve of
        :class:`pymc_dirdp.mechanisms.SimplexMechanism` is smaller.

        References
        ----------
        P3 Theorem 1, corrected: the step ends at the border of the domain (ERRATA P3.2 and P3.6).
        """
        k, gamma = positive(k=k), self._checked_gamma(gamma)
        ratio = self._log_ratio(gamma)

        def slope(t: float) -> float:
            there = digamma(k * (self.eta + t))
            return ratio + float(digamma(k * (self.span - self.eta - t)) - there)

        t = self.largest_step
        if slope(t) < 0:
            # The loss is concave in the step, so its maximum is where the slope vanishes.
            from scipy.optimize import brentq

            t = float(brentq(slope, 0.0, t))
        start = betaln(k * self.eta, k * (self.span - self.eta))
        return float(start - betaln(k * (self.eta + t), k * (self.span - self.eta - t))) + k * t * ratio

    def epsilon_printed(self, k: float, gamma: float, *, theorem: int = 1, alpha: float | None = None) -> float:
        """What P3's theorems print, right or not.

        Parameters
        ----------
        k, gamma : float
            As for :meth:`epsilon`.
        theorem : {1, 2, 3}
            1: identity queries; too small for large b. 2: averages, with `weight = 1 / N`. 3: linear queries that are
            `alpha`-bounded; wrong, it can even be negative (ERRATA P3.2 and P3.3).
        alpha : float, optional
            For theorem 3.
        """
        step = self.b / 2 * (self.weight if integer(1, theorem=theorem) == 2 else 1.0)
        whole = 1 - self.etabar - self.eta
        beta = float(betaln(k * self.eta, k * whole) - betaln(k * (self.eta + step), k * (whole - step)))
        return beta + self._printed_tail(k, gamma, theorem, alpha)

    def epsilon_corollary(self, k: float, gamma: float, *, corollary: int = 1, alpha: float | None = None) -> float:
        """P3's Corollaries 1 to 3: the beta terms replaced by `2 k (1 - etabar) - 3`, printed form."""
        return 2 * k * (1 - self.etabar) - 3 + self._printed_tail(k, gamma, corollary, alpha)

    def gamma(self, k: float, delta: float) -> float:
        """P3's problem (14): the largest `gamma` for which :meth:`delta` is at most `delta`."""
        k, delta = positive(k=k), fraction(delta=delta)

        def excess(gamma: float) -> float:
            return log_excess(max(self.delta(k, gamma), 0.0), delta) if gamma * self.n_protected < 1 else 1.0

        # All entries can't be above 1 / m: delta is 1 there.
        unsafe, safe = 1.0 / self.n_protected, 0.5 / self.n_protected
        while excess(safe) > 0:
            safe, unsafe = safe / 4, safe
            if safe < 1e-280:
                raise UnattainableError(f"No gamma keeps delta below {delta:g}: k eta is too small. Raise k or eta.")
        return safe_root(excess, safe=safe, unsafe=unsafe)

    def _checked_gamma(self, gamma: float) -> float:
        value = positive(gamma=gamma)
        if value >= 1 / self.n_protected:
            raise ArgumentError(f"Expected gamma < 1 / n_protected = {1 / self.n_protected:g}, got gamma={value:g}.")
        return value

    def _log_ratio(self, gamma: float) -> float:
        """`R`: the logarithm of the largest ratio of two protected entries of an output."""
        return math.log((1 - (self.n_protected - 1) * gamma) / gamma)

    def _printed_tail(self, k: float, gamma: float, number: int, alpha: float | None) -> float:
        k, gamma = positive(k=k), self._checked_gamma(gamma)
        if number == 3:
            return k * self.b * at_least(0, alpha=alpha) * abs(math.log(gamma))
        if number not in (1, 2):
            raise ArgumentError(f"P3 has Theorems and Corollaries 1, 2 and 3, got {number}.")
        return k * self.b / 2 * (self.weight if number == 2 else 1.0) * self._log_ratio(gamma)


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
