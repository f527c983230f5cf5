"""Counts of events in the outputs of two data sets, and the bounds on a privacy loss that they prove."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, betainccinv, betaincinv, expit

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee


def lower_limit(hits: ArrayLike, n: int, level: float) -> Array:
    """Clopper and Pearson's lower confidence limit of a probability.

    Parameters
    ----------
    hits : array_like of int
        The number of independent trials in which the event happened.
    n : int
        The number of all trials.
    level : float
        The limit is above the truth with at most this probability, for every truth.

    Returns
    -------
    limit : array, shape of `hits`

    References
    ----------
    Clopper and Pearson (1934), https://doi.org/10.1093/biomet/26.4.404.
    """
    k = np.asarray(hits, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, level), 0.0)


def upper_limit(hits: ArrayLike, n: int, level: float) -> Array:
    """Clopper and Pearson's upper confidence limit; the arguments are those of :func:`lower_limit`."""
    k = np.asarray(hits, dtype=np.float64)
    return np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), level), 1.0)


def epsilon_of(p: ArrayLike, q: ArrayLike, delta: float) -> Array:
    """The least epsilon of (epsilon, delta)-differential privacy, if an event has probabilities `p` and `q`.

    This is `log((p - delta) / q)`, which may be negative. It grows with p and falls with q, so limits may replace both.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(np.asarray(p) - delta, 0.0)) - np.log(q))


def epsilon_from_shares(hits_p: ArrayLike, hits_q: ArrayLike, trials: int, delta: float, level: float) -> Array:
    """The least epsilon, from the numbers of outputs with an event that came from either data set.

    A fair coin must decide from which data set each of the `trials` outputs comes. If (epsilon, delta) holds, the
    first distribution is the sum of a part of at most `exp(epsilon)` times the second, and a rest of probability at
    most delta. Each output with the event that is not in the rest then comes from the first data set independently,
    with probability at most `1 / (1 + exp(-epsilon))`. This is sharper than two limits if the event is rare, because
    the two counts share one error.

    Parameters
    ----------
    hits_p, hits_q : array_like of int
        Number of events for the first and for the second data set.
    trials : int
        The number of all outputs.
    delta : float
        A number in [0, 1).
    level : float
        The result is above the truth with at most this probability.

    Returns
    -------
    epsilon : array
        Minus infinity if the counts prove nothing.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run, section 4: the same argument for
    one run.
    """
    p, q = np.asarray(hits_p, dtype=np.float64), np.asarray(hits_q, dtype=np.float64)
    leak = 0
    if delta > 0:
        # The rest has more outputs with probability level / 2. The limit below uses the other half of the level.
        level /= 2
        leak = _quantile_above(trials, delta / 2, level)
    x_excess = np.maximum(p - leak, 0.0)
    share = np.where(x_excess > 0, betaincinv(np.maximum(x_excess, 1), q + 1, level), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(share) - np.log1p(-share))


def _quantile_above(n: int, p: float, level: float) -> int:
    """The least k with `P[Binomial(n, p) > k] <= level`, by bisection."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle, n, p) <= level else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class EventLoss:
    """Lower bounds on the loss, in every measure, from an event with probabilities `p` and `q`.

    By data processing, two distributions are at least as far apart as those of the indicator of the event. Each measure
    grows with p and falls with q if `p > q`, and is at most 0 otherwise. `guarantee.loss` selects the measure of a
    guarantee.
    """

    p: Array
    q: Array

    def renyi(self, order: float) -> Array:
        """Rényi divergence of the two distributions of the indicator; 0 where `p <= q`."""
        p, q = self.p, self.q
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p, log_q, not_p, not_q = np.log(p), np.log(q), np.log1p(-p), np.log1p(-q)
            if order == 1:
                # 0 log 0 is 0.
                divergence = p * (log_p - log_q) + np.where(p < 1, (1 - p) * (not_p - not_q), 0.0)
            else:
                first, second = order * log_p + (1 - order) * log_q, order * not_p + (1 - order) * not_q
                divergence = np.logaddexp(first, np.where(p < 1, second, -np.inf)) / (order - 1)
        return np.asarray(np.where(p > q, divergence, 0.0))

    def rho(self, omega: float) -> Array:
        """The largest ratio of a divergence to its order, over a grid of orders in `(1, omega]`."""
        return np.asarray(np.max([self.renyi(order) / order for order in guaranteed_orders(omega).tolist()], axis=0))

    def delta(self, epsilon: float) -> Array:
        """Hockey-stick divergence of the two distributions; negative where the event proves nothing."""
        return np.asarray(self.p - np.exp(epsilon) * self.q)

    @property
    def pure_epsilon(self) -> Array:
        """The privacy loss of the event itself."""
        return epsilon_of(self.p, self.q, 0.0)


def guaranteed_orders(omega: float) -> Array:
    """Orders in `(1, omega]`, denser near 1. A divergence at any of them may refute the guarantee."""
    # Truncated and zero-concentrated guarantees hold at every order. 40 orders are checked.
    return 1 + np.geomspace(1e-3 * min(1.0, omega - 1), min(omega, 1e4) - 1, 40)


# How a bound is computed from two counts: from limits of both probabilities, or from the share of one data set.
LIMITS, SHARES = "limits", "shares"


@final
@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of events, one entry for each event: `hits_p` of `trials_p` for one data set, `hits_q` of `trials_q`."""

    hits_p: Array
    trials_p: int
    hits_q: Array
    trials_q: int


@final
@dataclass(frozen=True, eq=False)
class Measure:
    """A measure of privacy loss."""

    name: str
    stated: float  # The stated value; `nan` if none is stated.
    delta: float | None  # The delta if the measure is an epsilon; None for other measures.
    # The value that an event with probabilities p and q proves; it grows with p and falls with q.
    of_event: Callable[[ArrayLike, ArrayLike], Array]
    of_curves: Callable[[PrivacyCurves], float]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods by which it can be bounded."""
        return (LIMITS,) if self.delta is None else (LIMITS, SHARES)

    def lower(self, counts: Counts, method: str, level: float) -> Array:
        """Lower bounds, each above the truth with probability at most `level`."""
        if method == SHARES and self.delta is not None:
            trials = counts.trials_p + counts.trials_q
            return epsilon_from_shares(counts.hits_p, counts.hits_q, trials, self.delta, level)
        return self.of_event(
            lower_limit(counts.hits_p, counts.trials_p, level / 2),
            upper_limit(counts.hits_q, counts.trials_q, level / 2),
        )

    def most_shown(self, hits: int, trials_p: int, trials_q: int, level: float) -> float:
        """The best lower bound from an event with `hits` for one data set and none for the other."""
        counts = Counts(np.array([float(hits)]), trials_p, np.array([0.0]), trials_q)
        return max(float(self.lower(counts, method, level)[0]) for method in self.methods)


def measures(
    subject: PrivacyCurves | None, claim: Guarantee | PrivacyCurves | None, delta: float | Sequence[float]
) -> list[Measure]:
    """The measures of an audit: the claim, if it is a guarantee, then epsilon at each delta, then delta at epsilon 0.

    The subject is the audited mechanism, if it has curves. A claim that consists of curves replaces them.
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
        delta_at = at_least(0, delta=value)
        if delta_at >= 1:
            raise ArgumentError(f"Expected delta in [0, 1), got delta={delta_at:g}.")
        yield _epsilon_at(
            delta_at, f"epsilon at delta {delta_at:g}", _curve_value(curves, partial(_epsilon, delta=delta_at))
        )
    if curves is not None:
        claimed = _curve_value(curves, _total_variation)
        # Small changes of a distribution are visible here long before they are at a small delta.
        yield Measure("delta at epsilon 0", claimed, None, lambda p, q: np.subtract(p, q), _total_variation)


def _epsilon_at(delta: float, name: str, claimed: float) -> Measure:
    return Measure(name, claimed, delta, partial(epsilon_of, delta=delta), partial(_epsilon, delta=delta))


def _epsilon(curves: PrivacyCurves, delta: float) -> float:
    return curves.epsilon(delta) if delta > 0 else curves.pure_epsilon


def _total_variation(curves: PrivacyCurves) -> float:
    return curves.delta(0.0)


def _curve_value(curves: PrivacyCurves | None, value_of: Callable[[PrivacyCurves], float]) -> float:
    try:
        return math.nan if curves is None else value_of(curves)
    except UnattainableError:
        return math.nan


# One statistic of the outputs of one data set and of the other, both sorted.
Scores = tuple[Array, Array]


@final
@dataclass(frozen=True)
class Parts:
    """Numbers of outputs of each data set to learn statistics, to choose an event, and to count it."""

    learned: int
    chosen: int
    counted: int


def parts(size: int, *, likelihood: bool) -> Parts:
    """The parts of `size` outputs, if the likelihood ratio is known or if all statistics have to be learned."""
    # Learned statistics matter less if the likelihood ratio is known.
    learned = round(size * (0.1 if likelihood else 0.25))
    chosen_on = round(size * 0.125)
    return Parts(learned, chosen_on, size - learned - chosen_on)


@final
@dataclass(frozen=True)
class Event:
    """A statistic reaches a threshold; or, if `flip`, it does not, which is likelier for the second data set."""

    which: int  # The position of the statistic.
    threshold: float
    flip: bool
    method: str  # How the bound is computed from the counts.


def chosen(
    scores: Sequence[Scores], measures: Sequence[Measure], trials: int, level: float, *, doubt: float = 0.16
) -> list[Event]:
    """For each measure the event with the best expected bound.

    There is a pair of scores for each statistic. About `trials` outputs of each data set will be counted, and bounds
    will be computed at this `level`. Frequencies among few outputs are optimistic, so they are corrected by a limit at
    the level `doubt`, by default about one standard deviation.
    """
    best = [(-math.inf, Event(0, 0.0, False, LIMITS)) for _ in measures]
    for which, (x, y) in enumerate(scores):
        thresholds = _thresholds(x, y)
        for flip in (False, True):
            hits_p, hits_q = _hits(x, y, thresholds, flip)
            p, q = lower_limit(hits_p, len(x), doubt), upper_limit(hits_q, len(y), doubt)
            expected = Counts(np.floor(p * trials), trials, np.ceil(q * trials), trials)
            for i, measure in enumerate(measures):
                for method in measure.methods:
                    bounds = measure.lower(expected, method, level)
                    j = int(np.argmax(bounds))
                    # On ties, keep the first statistic, which is the simplest.
                    if bounds[j] > best[i][0]:
                        best[i] = (float(bounds[j]), Event(which, float(thresholds[j]), flip, method))
    return [event for _, event in best]


def counted(event: Event, x: Array, y: Array) -> Counts:
    """Counts of an event, from the sorted values of its statistic; first for the data set that it favours."""
    hits_p, hits_q = _hits(x, y, np.array([event.threshold]), event.flip)
    first, second = (y, x) if event.flip else (x, y)
    return Counts(hits_p, len(first), hits_q, len(second))


def _hits(x: Array, y: Array, thresholds: Array, flip: bool) -> tuple[Array, Array]:
    """Numbers of values that reach thresholds, for x and y; if `flip`, of those that do not, for y and x."""
    below_x, below_y = (np.searchsorted(values, thresholds).astype(np.float64) for values in (x, y))
    return (below_y, below_x) if flip else (len(x) - below_x, len(y) - below_y)


def _thresholds(x: Array, y: Array) -> Array:
    """Thresholds half-way between values of the statistic, denser in rank towards both ends."""
    values = np.unique(np.concatenate([x, y]))
    # A threshold that equals a value would lose outputs just beyond it.
    values = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2])
    # 400 thresholds, from which one is chosen.
    ranks = (len(values) - 1) * expit(np.linspace(-math.log(len(values) + 1), math.log(len(values) + 1), 400))
    return np.asarray(values[np.unique(np.round(ranks).astype(int))])
