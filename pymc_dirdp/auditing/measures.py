"""The measures in which an audit bounds the loss: from counts of an event, and from curves that state it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.intervals import EventLoss, epsilon_from_shares, epsilon_of, lower_limit, upper_limit
from pymc_dirdp.checks import at_least
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["LIMITS", "SHARES", "Counts", "Measure", "measures"]

# How a bound is computed from two counts: from limits of both probabilities, or from the share of one of them.
LIMITS, SHARES = "limits", "shares"


@final
@dataclass(frozen=True, eq=False)
class Counts:
    """How often events happened: `hits_p` of `trials_p` outputs of one data set, `hits_q` of `trials_q` of the other.

    The arrays hold an entry for each event.
    """

    hits_p: Array
    trials_p: int
    hits_q: Array
    trials_q: int


@final
@dataclass(frozen=True, eq=False)
class Measure:
    """One number that says how large the loss is."""

    name: str
    stated: float  # What is stated about it; `nan` if nothing is.
    delta: float | None  # The delta if this is an epsilon at it; None for other measures.
    # The value that an event with probabilities p and q proves; it grows with p and falls with q.
    of_event: Callable[[ArrayLike, ArrayLike], Array]
    of_curves: Callable[[PrivacyCurves], float]

    @property
    def methods(self) -> tuple[str, ...]:
        """The ways in which it can be bounded."""
        return (LIMITS,) if self.delta is None else (LIMITS, SHARES)

    def lower(self, counts: Counts, method: str, level: float) -> Array:
        """Lower bounds, each of which is above the truth with probability `level` at most."""
        if method == SHARES and self.delta is not None:
            trials = counts.trials_p + counts.trials_q
            return epsilon_from_shares(counts.hits_p, counts.hits_q, trials, self.delta, level)
        return self.of_event(
            lower_limit(counts.hits_p, counts.trials_p, level / 2),
            upper_limit(counts.hits_q, counts.trials_q, level / 2),
        )

    def most_shown(self, hits: int, trials_p: int, trials_q: int, level: float) -> float:
        """The best lower bound from an event with so many hits for one data set and none for the other."""
        counts = Counts(np.array([float(hits)]), trials_p, np.array([0.0]), trials_q)
        return max(float(self.lower(counts, method, level)[0]) for method in self.methods)


def measures(
    subject: PrivacyCurves | None, claim: Guarantee | PrivacyCurves | None, delta: float | Sequence[float]
) -> list[Measure]:
    """All that an audit bounds: the claim first, if it is a guarantee, then epsilon at each delta, then delta at 0.

    The subject is what is audited, if it states curves; a claim that is curves replaces them.
    """
    curves = claim if isinstance(claim, PrivacyCurves) else subject
    return [*_claimed(claim), *_on_curves(curves, delta)]


def _claimed(claim: Guarantee | PrivacyCurves | None) -> Iterator[Measure]:
    if claim is None or isinstance(claim, PrivacyCurves):
        return
    if Guarantee.checked(claim=claim).adds_up:
        yield Measure(f"loss, of {claim}", claim.allowed, None, partial(_of_event, claim), claim.loss)
    else:
        yield _epsilon_at(claim.allowed, f"claimed epsilon at delta {claim.allowed:g}", claim.budget)


def _of_event(claim: Guarantee, p: ArrayLike, q: ArrayLike) -> Array:
    return claim.loss(EventLoss(np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)))


def _on_curves(curves: PrivacyCurves | None, delta: float | Sequence[float]) -> Iterator[Measure]:
    for value in np.atleast_1d(delta).tolist():
        at = at_least(0, delta=value)
        if at >= 1:
            raise ArgumentError(f"Expected delta in [0, 1), got delta={at:g}.")
        yield _epsilon_at(at, f"epsilon at delta {at:g}", _stated(curves, partial(_epsilon, delta=at)))
    if curves is not None:
        stated = _stated(curves, _total_variation)
        # Small changes of a law show here long before they show at a small delta.
        yield Measure("delta at epsilon 0", stated, None, lambda p, q: np.subtract(p, q), _total_variation)


def _epsilon_at(delta: float, name: str, stated: float) -> Measure:
    return Measure(name, stated, delta, partial(epsilon_of, delta=delta), partial(_epsilon, delta=delta))


def _epsilon(curves: PrivacyCurves, delta: float) -> float:
    return curves.epsilon(delta) if delta > 0 else curves.pure_epsilon


def _total_variation(curves: PrivacyCurves) -> float:
    return curves.delta(0.0)


def _stated(curves: PrivacyCurves | None, of_curves: Callable[[PrivacyCurves], float]) -> float:
    try:
        return math.nan if curves is None else of_curves(curves)
    except UnattainableError:
        return math.nan
