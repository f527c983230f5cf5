"""P1's and P2's bounds on the privacy loss of a draw, and the loss for real-valued statistics."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self, final, override

from scipy.special import polygamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, open_unit_interval, positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget, product_above, raised, round_down
from pymc_dirdp.privacy.curves import LossCurves, converted_delta, converted_deltas
from pymc_dirdp.privacy.divergences import renyi_remove
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, RenyiDP, TruncatedCDP

# The published closed-form bounds on the privacy loss, by paper and theorem.
#
# They hold for real-valued statistics with known sensitivities; :class:`pymc_dirdp.papers.RealValuedLoss` is a tighter
# bound. For counts they are looser than :mod:`pymc_dirdp.privacy.dominating_pairs`. P1 and P2 are listed under "Papers"
# in the documentation.


# The rounding error of a trigamma function and of a few products.
_ULPS = 2.0**10


def _trigamma(x: float) -> float:
    return float(polygamma(1, x))


def _subtract(x: float, *factors: float) -> float:
    """`x` minus a product, rounded down once: a trigamma function has a pole at 0."""
    return round_down(Fraction(x) - math.prod(map(Fraction, factors)))


def p1_theorem_1(
    *, order: float, r: float, alpha_min: float, delta_2_squared: float = 2.0, delta_inf: float = 1.0
) -> RenyiDP:
    """Rényi bound of the Dirichlet mechanism for a statistic with known sensitivities (P1 Theorem 1, Appendix E).

    `epsilon = order / 2 * r**2 * delta_2_squared * psi'(alpha_min - (order - 1) * r * delta_inf)`. It is the kernel
    form of the exact curve with `psi'` replaced by its maximum, so it is loose.

    Parameters
    ----------
    order : float
        Rényi order, at least 1.
    r : float
        Concentration, positive.
    alpha_min : float
        Smallest prior parameter, above `(order - 1) * r * delta_inf`. With the public guarantee that every entry of the
        statistic is at least `c`, pass `alpha_min + r * c` (P1 Remark 2).
    delta_2_squared : float
        Largest squared l2 distance of the statistic between neighbours; 2 for counts under replace-one.
    delta_inf : float
        Largest l-infinity distance; 1 for counts.

    Returns
    -------
    guarantee : RenyiDP
        The guarantee of the theorem.

    Raises
    ------
    ArgumentError
        If `(order - 1) * r * delta_inf >= alpha_min`, where the theorem does not hold.

    Examples
    --------
    >>> print(p1_theorem_1(order=5, r=0.1, alpha_min=3.0))
    (5, 0.0233904)-Rényi differential privacy
    """
    order, r, alpha_min = at_least(1, order=order), positive(r=r), positive(alpha_min=alpha_min)
    delta_2_squared, delta_inf = positive(delta_2_squared=delta_2_squared), positive(delta_inf=delta_inf)
    argument = _subtract(alpha_min, order - 1, r, delta_inf)
    if argument <= 0:
        raise ArgumentError(
            f"P1 Theorem 1 needs (order - 1) * r * delta_inf < alpha_min, got order={order:g}, r={r:g}, "
            f"delta_inf={delta_inf:g}, alpha_min={alpha_min:g}. Lower the order or r, or raise the prior."
        )
    return RenyiDP(order=order, epsilon=raised(order / 2 * r**2 * delta_2_squared * _trigamma(argument), _ULPS))


def p2_theorem_1(
    *, gamma: float, alpha_min: float, r: float = 1.0, delta_2_squared: float = 2.0, delta_inf: float = 1.0
) -> TruncatedCDP:
    """Truncated concentrated bound (P2 Theorem 1; with `r`, the remark before P2 section 3.2).

    `rho = r**2 * delta_2_squared * psi'(alpha_min - gamma) / 2` and `omega = gamma / (r * delta_inf) + 1`.

    Parameters
    ----------
    gamma : float
        In `(0, alpha_min)`. A larger gamma gives a larger `omega` and a larger `rho`.
    alpha_min : float
        Smallest prior parameter, positive.
    r : float
        Concentration, positive.
    delta_2_squared, delta_inf : float
        Sensitivities of the statistic; by default those of counts under replace-one.

    Returns
    -------
    guarantee : TruncatedCDP

    Examples
    --------
    >>> print(p2_theorem_1(gamma=2.0, alpha_min=50.0))
    (0.0210519, 3)-truncated concentrated differential privacy
    """
    gamma, alpha_min, r = positive(gamma=gamma), positive(alpha_min=alpha_min), positive(r=r)
    delta_2_squared, delta_inf = positive(delta_2_squared=delta_2_squared), positive(delta_inf=delta_inf)
    if gamma >= alpha_min:
        raise ArgumentError(f"P2 Theorem 1 needs gamma < alpha_min, got gamma={gamma:g}, alpha_min={alpha_min:g}.")
    rho = raised(r**2 * delta_2_squared * _trigamma(_subtract(alpha_min, gamma)) / 2, _ULPS)
    return TruncatedCDP(rho=rho, omega=round_down(Fraction(gamma) / (Fraction(r) * Fraction(delta_inf)) + 1))


def p2_theorem_2(
    *, delta: float, alpha_min: float, r: float = 1.0, delta_2_squared: float = 2.0, delta_inf: float = 1.0
) -> ApproxDP:
    """Approximate bound (P2 Theorem 2), from `p2_theorem_1` and P2 Lemma 1 at the best `gamma`.

    Parameters
    ----------
    delta : float
        In (0, 1).
    alpha_min, r, delta_2_squared, delta_inf
        As in :func:`p2_theorem_1`.

    Returns
    -------
    guarantee : ApproxDP
        The least `epsilon` of the theorem for this `delta`. For counts the exact curve has a smaller epsilon.

    Examples
    --------
    >>> print(p2_theorem_2(delta=1e-6, alpha_min=50.0))
    (1.36648, 1e-06)-differential privacy
    """
    from scipy.optimize import brentq, minimize_scalar  # Here, because it takes most of a second to import.

    delta, alpha_min, r = open_unit_interval(delta=delta), positive(alpha_min=alpha_min), positive(r=r)
    scaled_2, scaled_inf = r**2 * positive(delta_2_squared=delta_2_squared), r * positive(delta_inf=delta_inf)
    log_inverse = -math.log(delta)

    def rho(gamma: float) -> float:
        return scaled_2 * _trigamma(_subtract(alpha_min, gamma)) / 2

    def objective(gamma: float) -> float:
        return rho(gamma) * (gamma / scaled_inf + 1) + log_inverse * scaled_inf / gamma

    # gamma_M solves log(1/delta) = gamma**2 rho(gamma) / delta_inf**2, whose right side increases from 0 to infinity.
    ends = alpha_min * 1e-12, alpha_min * (1 - 1e-12)
    gamma_m = brentq(lambda gamma: gamma**2 * rho(gamma) / scaled_inf**2 - log_inverse, *ends)
    # The objective is convex. Every gamma in (0, gamma_M] gives a valid bound, so an inexact minimiser is safe.
    best = minimize_scalar(objective, bounds=(ends[0], gamma_m), method="bounded", options={"xatol": 1e-12 * alpha_min})
    return ApproxDP(epsilon=raised(min(float(best.fun), objective(gamma_m)), _ULPS), delta=delta)


# The loss of `Dirichlet(r * f + alpha)` for a real-valued statistic f with two known sensitivities.
#
# This is the setting of P1 Theorem 1 and P2 Theorem 1, with a tighter bound.


# Squares of products of two parameters must not overflow.
_LEAST, _MOST = 1e-60, 1e60


@final
@dataclass(frozen=True)
class RealValuedLoss(LossCurves):
    """Upper bounds on the loss of a draw from `Dirichlet(r * f + alpha)`, for any statistic `f >= 0` of the data.

    At Rényi orders of at least 2, the worst neighbours differ by `delta_inf` in `delta_2_squared / delta_inf**2` cells,
    which decrease to 0. If this number is an integer below `d`, the bound is tight. The bounds on delta are converted
    from the Rényi divergences.

    If one person only moves a weight of at most w from one cell to another, the *exact* curves are those of
    ``DirichletMechanism(alpha, r * w)``, also for non-integer weights. If one person only adds a weight of at most w to
    one cell, they are those with ``adjacency="add-remove"``.

    Parameters
    ----------
    r : float
        Concentration. All parameters are between 1e-60 and 1e60.
    alpha_min : float
        Smallest prior parameter. With the public guarantee that every entry of f is at least c, pass
        `alpha_min + r * c`.
    delta_2_squared : float
        Largest squared l2 distance of f between neighbours.
    delta_inf : float
        Largest change of one entry between neighbours.

    References
    ----------
    P1 section 3.1 and Theorem 1, P2 Theorem 1. The proof is on the page "Statistics with real values".

    Examples
    --------
    >>> from pymc_dirdp.papers import p1_theorem_1
    >>> known = {"r": 0.1, "alpha_min": 3.0, "delta_2_squared": 2.0, "delta_inf": 1.0}
    >>> p1_theorem_1(order=5, **known).epsilon, RealValuedLoss(**known).renyi(5)
    (0.0233..., 0.0205...)
    """

    r: float
    alpha_min: float
    delta_2_squared: float
    delta_inf: float
    uses_renyi_conversion: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("r", "alpha_min", "delta_2_squared", "delta_inf"):
            object.__setattr__(self, name, positive(**{name: getattr(self, name)}))
            within(_LEAST, _MOST, **{name: getattr(self, name)})

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, alpha_min: float, delta_2_squared: float, delta_inf: float) -> Self:
        """The loss with the largest `r` that satisfies a guarantee.

        Raises
        ------
        UnattainableError
            If no `r` satisfies it, such as for pure and zero-concentrated differential privacy.

        Examples
        --------
        >>> from pymc_dirdp import ApproxDP
        >>> known = {"alpha_min": 3.0, "delta_2_squared": 0.5, "delta_inf": 0.25}
        >>> round(RealValuedLoss.for_guarantee(ApproxDP(epsilon=1, delta=1e-6), **known).r, 3)
        0.417
        """
        if math.isinf(Guarantee.checked(guarantee=guarantee).largest_order):
            raise UnattainableError(
                f"No continuous Dirichlet draw satisfies {guarantee}: its loss is unbounded. Ask for ApproxDP, RenyiDP "
                "or TruncatedCDP."
            )

        def with_r(r: float) -> Self:
            return cls(r, alpha_min, delta_2_squared, delta_inf)

        # A start of the right order of magnitude, because r times the step is the change of a parameter.
        start = min(max(1 / positive(delta_inf=delta_inf), _LEAST), _MOST)
        return with_r(
            largest_satisfying(
                lambda r: log_ratio_to_budget(*with_r(r).loss(guarantee)), start=start, least=_LEAST, most=_MOST
            )
        )

    @property
    def _step(self) -> float:
        """The maximum change of one parameter of the draw, which is at most that of the whole vector."""
        change = min(self.delta_inf, math.nextafter(math.sqrt(self.delta_2_squared), math.inf))
        return product_above(self.r, change)

    @property
    def _small_steps(self) -> float:
        """The loss of many tiny steps at an order, divided by the order."""
        return raised(self.r**2 * self.delta_2_squared * _trigamma(self.alpha_min) / 2, _ULPS)

    def _large_steps(self, order: float) -> float:
        """The loss of steps of the largest size."""
        steps = self.r**2 * self.delta_2_squared / self._step**2
        return raised(steps * renyi_remove(order, self.alpha_min, self._step), _ULPS)

    @override
    def _renyi(self, order: float) -> float:
        large = self._large_steps(order)
        return large if order >= 2 else max(large, order * self._small_steps)

    @override
    def _rho(self, omega: float) -> float:
        return max(self._small_steps, self._large_steps(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        return converted_delta(self._renyi, epsilon)

    @override
    def _deltas(self, epsilons: Array) -> Array:
        return converted_deltas(self._renyi, epsilons)
