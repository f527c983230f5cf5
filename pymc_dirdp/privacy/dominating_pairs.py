"""The dominating pairs of the Dirichlet mechanism and their exact privacy curves.

For every pair of neighbouring data sets and every f-divergence, the output distributions are no further apart than one
fixed pair of distributions, which depends only on the two smallest prior parameters and on `r` (Theory, section 2). A
pair knows its curves. :mod:`pymc_dirdp.privacy.unit` composes such pairs into what one person with many records can
change. The proofs are in the documentation under "Theory".
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final, override

from scipy.special import polygamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.gamma import gamma_lower, gamma_upper, logit_beta_upper, mean_digamma
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.divergences import LARGE, Loss, NarrowLoss, renyi_add, renyi_remove


class DominatingPair(PrivacyCurves):
    """Two distributions that are at least as far apart as the output distributions of any two neighbouring data sets.

    All curves are exact for the pair, so they are upper bounds for every pair of neighbouring data sets and the
    suprema over them. They rise with `r` and fall as the prior parameters rise. Where neighbours come in both orders,
    both directions have the larger curve.
    """

    @override
    def _rho(self, omega: float) -> float:
        # The divergence over its order is convex in the order (Theory, sections 5 and 6), so it is largest at an end.
        return max(self._renyi(1.0), self._renyi(omega) / omega) if math.isfinite(omega) else math.inf


@final
@dataclass(frozen=True)
class ReplaceOnePair(DominatingPair):
    """`Gamma(a + r) x Gamma(b)` from `Gamma(a) x Gamma(b + r)`, in both orders of `a` and `b`.

    The order with the larger prior as `a` loses more, at every Rényi order and every epsilon >= 0 (Theory, Theorem 2).

    Parameters
    ----------
    a, b : float
        The two smallest prior parameters, positive.
    r : float
        The concentration, positive.

    References
    ----------
    Theory, section 2 to 5.
    """

    a: float
    b: float
    r: float

    @override
    def _renyi(self, order: float) -> float:
        low, high = sorted((self.a, self.b))
        removing = renyi_remove(order, low, self.r)
        # Where this is infinite, the other term may be NaN.
        return removing if removing == math.inf else renyi_add(order, high, self.r) + removing

    @override
    def _delta(self, epsilon: float) -> float:
        return self._loss.delta(epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        # A record may move either way, so both directions have the larger curve.
        larger = self._loss.deltas(step, points)
        return larger, larger

    @cached_property
    def _loss(self) -> Loss | NarrowLoss:
        return _loss_of_move(max(self.a, self.b), min(self.a, self.b), self.r)


def _loss_of_move(a: float, b: float, r: float) -> Loss | NarrowLoss:
    """V is the logit of `w`, which is `Beta(a + r, b)` under P and `Beta(a, b + r)` under Q."""
    if min(a, b) >= LARGE:
        return NarrowLoss.of_beta(a, b, r)
    return Loss(
        r=r,
        shift=mean_digamma(a, r) - mean_digamma(b, r) if a != b else 0.0,
        upper=partial(logit_beta_upper, a=a + r, b=b),
        other=partial(logit_beta_upper, a=a, b=b + r),
        centre=math.log((a + r) / b),
        spread=math.sqrt(float(polygamma(1, a + r) + polygamma(1, b))),
        rate=b,
    )


@final
@dataclass(frozen=True)
class PublicRowPair(DominatingPair):
    """The worst neighbours in one row of two cells whose number of records is public.

    At no epsilon >= 0 and at no Rényi order are two neighbours further apart, in either order. For epsilon < 0 some
    are, so that a composition takes the larger curve on both sides (Theory, Theorem 14).

    Parameters
    ----------
    low : float
        The smaller prior parameter, positive.
    full : float
        The other prior parameter and `r` times all records that stay where they are; not below `low`.
    r : float
        The concentration, times the number of records that move; positive.

    References
    ----------
    Theory, sections 2 to 5.

    Examples
    --------
    >>> public, any_number = PublicRowPair(8.0, 8.0 + 0.3 * 999, 0.3), ReplaceOnePair(8.0, 8.0, 0.3)
    >>> public.epsilon(1e-6) / any_number.epsilon(1e-6)
    0.84...
    """

    low: float
    full: float
    r: float

    @cached_property
    def _worst(self) -> ReplaceOnePair:
        return ReplaceOnePair(self.full, self.low, self.r)

    @override
    def _renyi(self, order: float) -> float:
        return self._worst._renyi(order)

    @override
    def _delta(self, epsilon: float) -> float:
        return self._worst._delta(epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        return self._worst.hockey_sticks(step, points)


@final
@dataclass(frozen=True)
class AddRemovePair(DominatingPair):
    """`Gamma(a + r)` from `Gamma(a)` and back: a record appears or disappears.

    Removing loses more, at every Rényi order and every epsilon >= 0 (Theory, Theorem 2).

    Parameters
    ----------
    a : float
        The smallest prior parameter, positive.
    r : float
        The concentration, positive.

    References
    ----------
    Theory, section 2 to 5.
    """

    a: float
    r: float

    @override
    def _renyi(self, order: float) -> float:
        return renyi_remove(order, self.a, self.r)

    @override
    def _renyi_back(self, order: float) -> float:
        return renyi_add(order, self.a, self.r)

    @override
    def _delta(self, epsilon: float) -> float:
        return self._removing.delta(epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        return self._removing.deltas(step, points), self._adding.deltas(step, points)

    @cached_property
    def _adding(self) -> Loss | NarrowLoss:
        """V is `log G`, with `G ~ Gamma(a + r)` under the first distribution."""
        a, r = self.a, self.r
        if a >= LARGE:
            return NarrowLoss.of_gamma(a, r, removing=False)
        return Loss(
            r=r,
            shift=mean_digamma(a, r),
            upper=partial(gamma_upper, a=a + r),
            other=partial(gamma_upper, a=a),
            centre=math.log(a + r),
            spread=math.sqrt(float(polygamma(1, a + r))),
            # The upper tail of log G falls like exp(-G): its scale is at most 1 / G once G exceeds its mean.
            rate=max(1.0, a + r),
        )

    @cached_property
    def _removing(self) -> Loss | NarrowLoss:
        """V is `-log G`, with `G ~ Gamma(a)` under the first distribution."""
        a, r = self.a, self.r
        if a >= LARGE:
            return NarrowLoss.of_gamma(a, r, removing=True)
        return Loss(
            r=r,
            shift=-mean_digamma(a, r),
            upper=partial(_gamma_above_minus, a=a),
            other=partial(_gamma_above_minus, a=a + r),
            centre=-math.log(a),
            spread=math.sqrt(float(polygamma(1, a))),
            rate=a,
        )


@final
@dataclass(frozen=True)
class AppearingRecords(PrivacyCurves):
    """Records that appear, where it is known that none disappears: the smaller direction of an add-remove pair.

    In a composition they stand for cells that gain records while others lose some.

    Parameters
    ----------
    both : AddRemovePair
        The curves under add-remove.

    References
    ----------
    Theory, section 2 to 6.
    """

    both: AddRemovePair

    @override
    def _renyi(self, order: float) -> float:
        return self.both._renyi_back(order)

    @override
    def _renyi_back(self, order: float) -> float:
        return self.both._renyi(order)

    @override
    def _rho(self, omega: float) -> float:
        # The divergence over its order falls (Theory, section 5), and stays finite.
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        return self.both._adding.delta(epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        larger, smaller = self.both.hockey_sticks(step, points)
        return smaller, larger


def _gamma_above_minus[Real: (float, Array)](v: Real, a: float) -> Real:
    """`P[-log G_a > v]`. It is a named function, so that mechanisms can be pickled."""
    return gamma_lower(-v, a)
