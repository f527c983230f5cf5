"""What an audit could have refuted, and so what a verdict of "consistent" is worth."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrik

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.events import parts
from pymc_dirdp.auditing.intervals import lower_limit
from pymc_dirdp.auditing.measures import Counts, Measure, measures
from pymc_dirdp.checks import integer, open_unit_interval
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["CHANCE", "Family", "chance_to_refute", "family_of", "rarest_event", "refutable"]

CHANCE = 0.9
# Each of the two counts is worse than its quantile with this probability, so both are better with more than CHANCE.
_TAIL = 0.05
# How many events the best one is taken from: half of them rare, half of them common.
_EVENTS = 60
# The number of cells of a law. More would change the figures by less than a hundredth.
_CELLS = 1_000
# The sum over a count covers so many standard deviations, in so many steps at most.
_SPREAD, _STEPS = 9.0, 2_000
# Alternatives are sought over so many factors of two, and then by so many halvings.
_DOUBLINGS, _HALVINGS = 100, 7


@final
@dataclass(frozen=True)
class Family:
    """Distributions that lose more and more, which are tried as the truth behind a statement."""

    name: str
    # The curves and the two laws of the output for a factor; the larger the factor, the more is lost.
    at: Callable[[float], tuple[PrivacyCurves, FiniteLaws]]


def family_of(mechanism: Mechanism | None, x: Array, y: Array, measure: Measure) -> Family:
    """Alternatives to a statement: the same mechanism with a larger loss, or simple noise if that is not known."""
    if mechanism is not None:
        try:
            if (named := mechanism.stronger(1.0)) is not None and math.isfinite(measure.of_curves(mechanism)):
                own = Family(named[0], partial(_scaled, mechanism, x, y))
                own.at(1.0)
                return own
        except (ArgumentError, UnattainableError):
            # The law is not known for these data, or nothing is promised.
            pass
    one, none = np.array([1.0, 0.0]), np.zeros(2)
    normal, laplace = (kind(np.ones(2), 1.0, adjacency="add-remove") for kind in (GaussianMechanism, LaplaceMechanism))
    bounded = not math.isfinite(measure.of_curves(normal))
    name, simple = ("Laplace", laplace) if bounded else ("normal", normal)
    return Family(f"{name} noise, told apart by its likelihood ratio", partial(_scaled, simple, one, none))


def _scaled(mechanism: Mechanism, x: Array, y: Array, factor: float) -> tuple[PrivacyCurves, FiniteLaws]:
    stronger = mechanism.stronger(factor)
    assert stronger is not None
    return stronger[1], stronger[1].output_laws(x, y, _CELLS)


def refutable(family: Family, measure: Measure, trials: int, level: float) -> float:
    """The least true value of the measure, within a family, at which 9 of 10 audits refute what is stated.

    It assumes that the best event is counted, in so many `trials` of each data set. It is `inf` if no member of the
    family is refuted so often, and `nan` if nothing is stated.
    """
    if math.isnan(measure.stated):
        return math.nan
    if measure.most_shown(trials, trials, trials, level) <= measure.stated:
        return math.inf
    low, high = 1.0, 1.0
    for _ in range(_DOUBLINGS):
        if _refutes(family.at(high)[1], measure, trials, level):
            break
        low, high = high, 2 * high
    else:
        return math.inf
    for _ in range(_DOUBLINGS):
        if low < high or not _refutes(family.at(low)[1], measure, trials, level):
            break
        low /= 2
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _refutes(family.at(middle)[1], measure, trials, level) else (middle, high)
    return measure.of_curves(family.at(high)[0])


def rarest_event(measure: Measure, trials: int, level: float) -> float:
    """The probability that an event needs at least, to refute a statement in 9 of 10 audits.

    The event never happens for the other data set. Rarer events refute nothing, however much they tell. The result is
    `nan` if nothing is stated, and `inf` if no event is enough.
    """
    if math.isnan(measure.stated):
        return math.nan
    low, high = 0, trials + 1
    while high - low > 1:
        middle = (low + high) // 2
        enough = measure.most_shown(middle, trials, trials, level) > measure.stated
        low, high = (low, middle) if enough else (middle, high)
    # With this probability of the event, `high` hits or more have probability CHANCE.
    return float(lower_limit(high, trials, CHANCE)) if high <= trials else math.inf


def _refutes(laws: FiniteLaws, measure: Measure, trials: int, level: float) -> bool:
    """Whether some event refutes the statement with probability CHANCE at least."""
    for p, q in _events(laws, trials):
        counts = Counts(_quantile(_TAIL, trials, p), trials, _quantile(1 - _TAIL, trials, q), trials)
        if any(np.any(measure.lower(counts, method, level) > measure.stated) for method in measure.methods):
            return True
    return False


def _events(laws: FiniteLaws, trials: int) -> list[tuple[Array, Array]]:
    """Probabilities of the events "the likelihood ratio is at least so large", for both directions."""
    events = []
    for log_p, log_q in ((laws.log_p, laws.log_q), (laws.log_q, laws.log_p)):
        with np.errstate(invalid="ignore"):
            order = np.argsort(np.nan_to_num(log_q - log_p), kind="stable")
        p, q = (np.minimum(np.cumsum(np.exp(law[order])), 1.0) for law in (log_p, log_q))
        rare = np.geomspace(0.1 / trials, 0.5, _EVENTS)
        chosen = np.unique(np.minimum(np.searchsorted(p, np.concatenate([rare, 1 - rare])), len(p) - 1))
        events.append((p[chosen], q[chosen]))
    return events


def _quantile(level: float, trials: int, p: Array) -> Array:
    """The least k with `P[Binomial(trials, p) <= k] >= level`."""
    inner = np.clip(p, 1e-300, 1 - 1e-15)
    hits = np.ceil(np.maximum(bdtrik(level, trials, inner), 0.0))
    # Where the probability is nearly 0 or 1, the inverse is not a number.
    fallback = np.where(inner < 0.5, 0.0, float(trials))
    return np.where(np.isnan(hits), fallback, np.minimum(hits, trials))


def chance_to_refute(
    mechanism: Mechanism,
    claim: Guarantee,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    n: int = 100_000,
    confidence: float = 1 - 1e-6,
) -> float:
    """Probability that `audit(mechanism, claim=claim, n=n)` says "refuted", if it chooses the best event.

    Parameters
    ----------
    mechanism : Mechanism
        Of this library, with its true distribution.
    claim : Guarantee
        What is said of it, right or wrong.
    pair, n, confidence
        The arguments of `audit`, which has one `delta`.

    Returns
    -------
    chance : float
        It follows from the two binomial distributions of the counts, for the better of the two directions.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> from pymc_dirdp.mechanisms import DirichletMechanism
    >>> chance_to_refute(DirichletMechanism([1, 1, 1], 0.5), PureDP(epsilon=0.5), n=20_000)
    0.99...
    """
    size, doubt = integer(100, n=n), 1 - open_unit_interval(confidence=confidence)
    x, y = mechanism.worst_pair() if pair is None else (np.asarray(data, dtype=np.float64) for data in pair)
    of_all = measures(mechanism, claim, 1e-5)
    trials, level = parts(size, likelihood=True).counted, doubt / len(of_all)
    events = _events(mechanism.output_laws(x, y), trials)
    measure = of_all[0]
    return max(_chance(p, q, measure, method, trials, level) for p, q in events for method in measure.methods)


def _chance(p: Array, q: Array, measure: Measure, method: str, trials: int, level: float) -> float:
    best = int(np.argmax(measure.lower(Counts(p * trials, trials, q * trials, trials), method, level)))
    middle, sd = trials * p[best], np.sqrt(trials * p[best] * (1 - p[best])) + 1
    hits = np.unique(np.clip(np.round(np.linspace(middle - _SPREAD * sd, middle + _SPREAD * sd, _STEPS)), 0, trials))
    # Each step counts as its least number of hits, so the chance is not overstated.
    below = np.where(hits > 0, bdtr(np.maximum(hits - 1, 0), trials, p[best]), 0.0)
    masses = np.diff(below, append=1.0)
    most = _most_hits(measure, method, hits, trials, level)
    return float(np.sum(masses * np.where(most >= 0, bdtr(np.maximum(most, 0), trials, q[best]), 0.0)))


def _most_hits(measure: Measure, method: str, hits: Array, trials: int, level: float) -> Array:
    """The most hits on the less likely side with which the claim is still refuted; -1 where it never is."""
    refuted, not_refuted = np.full(len(hits), -1.0), np.full(len(hits), trials + 1.0)
    while np.any(not_refuted - refuted > 1):
        middle = np.floor((refuted + not_refuted) / 2)
        yes = measure.lower(Counts(hits, trials, middle, trials), method, level) > measure.stated
        refuted, not_refuted = np.where(yes, middle, refuted), np.where(yes, not_refuted, middle)
    return refuted
