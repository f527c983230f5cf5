"""Results of audits, and comparisons of privacy curves with the exact distributions of outputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, final, override

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrik

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.intervals import Counts, Measure, guaranteed_orders, lower_limit, measures, parts
from pymc_dirdp.checks import at_least, integer, open_unit_interval
from pymc_dirdp.display import TabularResult
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.signatures import user_facing


@final
@dataclass(frozen=True)
class CurvePoint:
    """One number of a curve or of a claim, and the loss between two neighbours."""

    measure: str
    stated: float  # The value that the curve or the claim states.
    lost: float  # A lower bound on the loss between the two distributions.

    @property
    def shortfall(self) -> float:
        """Relative excess of the loss over the stated value; negative if the statement holds."""
        # Absolute rounding error of a sum of thousands of probabilities, which is not an error of the curve.
        loss = max(self.lost - 1e-15, 0.0)
        if self.stated > 0:
            return loss / self.stated - 1
        return math.inf if loss > 0 else 0.0

    @property
    def exceeded(self) -> bool:
        """Whether the loss exceeds the stated value, beyond relative rounding."""
        return self.shortfall > 1e-9


@final
@dataclass(frozen=True, repr=False)
class CurveCheck(TabularResult):
    """A curve and a claim, compared with the distributions of the output at two neighbours. No random numbers are used.

    Attributes
    ----------
    mechanism : str
        The name of its class.
    points : tuple of CurvePoint
        Each `measure` with the `stated` value, a lower bound `lost` on the loss, and the relative `shortfall`.
    """

    mechanism: str
    points: tuple[CurvePoint, ...]

    @property
    def verdict(self) -> str:
        """`"refuted"` if any loss exceeds its stated value, else `"consistent"`."""
        return "refuted" if any(point.exceeded for point in self.points) else "consistent"

    @property
    def shortfall(self) -> float:
        """The largest relative shortfall. If it is just below 0, the curve is exact and this pair attains it."""
        return max(point.shortfall for point in self.points)

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        title = f"{self.mechanism}: {self.verdict}; largest shortfall {self.shortfall:.3g}"
        return [title], [asdict(point) | {"shortfall": point.shortfall} for point in self.points], []


@user_facing
def check_curve(
    mechanism: Mechanism,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    claim: Guarantee | None = None,
    epsilons: Sequence[float] | None = None,
    orders: Sequence[float] = (1.0, 1.25, 2.0, 4.0, 8.0, 16.0),
) -> CurveCheck:
    """Compare a mechanism's curve, and a claim, with the distributions of its output at two neighbours.

    The distributions are cut into cells and summed. The result is a lower bound of the loss, so a curve that is below
    it is wrong. `audit` draws from the mechanism instead.

    Parameters
    ----------
    mechanism : Mechanism
        A mechanism of this library.
    pair : tuple of two arrays, optional
        Artificial neighbouring data sets. By default the worst ones.
    claim : Guarantee, optional
        The claim about the mechanism, for example the guarantee that it was calibrated for.
    epsilons : sequence of float, optional
        The points at which `delta` is compared, each >= 0. By default nine, from 0 to where delta is 1e-8.
    orders : sequence of float
        The orders at which the Rényi divergence is compared, each >= 1.

    Returns
    -------
    result : CurveCheck

    References
    ----------
    Theory, section 2 to 5.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import DirichletMechanism
    >>> result = check_curve(DirichletMechanism([1, 1, 1], 0.2))
    >>> result.verdict
    'consistent'
    """
    mechanism = Mechanism.required(mechanism)
    x, y = mechanism.worst_neighbours() if pair is None else (np.asarray(data, dtype=np.float64) for data in pair)
    distributions = mechanism.output_distributions(x, y)
    points = []
    if claim is not None:
        allowed = Guarantee.checked(claim=claim).allowed
        points.append(CurvePoint(str(claim), allowed, claim.loss(_Lost(distributions))))
    try:
        if epsilons is None:
            epsilons = np.linspace(0.0, mechanism.epsilon(1e-8), 9).tolist()
        for epsilon in epsilons:
            e = at_least(0, epsilon=epsilon)
            points.append(CurvePoint(f"delta at epsilon {e:.4g}", mechanism.delta(e), distributions.delta(e)))
        for order in orders:
            claimed = mechanism.renyi(order)
            # If the divergence is infinite, nothing is guaranteed.
            if math.isfinite(claimed):
                points.append(CurvePoint(f"Rényi divergence of order {order:g}", claimed, distributions.renyi(order)))
        if math.isfinite(mechanism.pure_epsilon):
            points.append(CurvePoint("largest loss", mechanism.pure_epsilon, distributions.pure_epsilon))
    except UnattainableError:
        # A mechanism that states nothing is compared with the claim alone.
        if claim is None:
            raise
    return CurveCheck(type(mechanism).__name__, tuple(points))


@dataclass(frozen=True)
class _Lost:
    """Lower bounds on the loss between two distributions, in every measure."""

    distributions: FiniteDistributions

    def renyi(self, order: float) -> float:
        return self.distributions.renyi(order)

    def rho(self, omega: float) -> float:
        # The distributions' own `rho` is an upper bound.
        orders: list[float] = guaranteed_orders(omega).tolist()
        return max(self.distributions.renyi(order) / order for order in orders)

    def delta(self, epsilon: float) -> float:
        return self.distributions.delta(epsilon)

    @property
    def pure_epsilon(self) -> float:
        return self.distributions.pure_epsilon


# The power of an audit, which gives the verdict "consistent" its meaning.

CHANCE = 0.9


@final
@dataclass(frozen=True)
class Family:
    """A family of alternatives to a statement, with increasing loss."""

    name: str
    # The curves and the two distributions of the output for a factor. The loss increases with the factor.
    at: Callable[[float], tuple[PrivacyCurves, FiniteDistributions]]


def family_of(mechanism: Mechanism | None, x: Array, y: Array, measure: Measure) -> Family:
    """Alternatives to a statement: the same mechanism with a larger loss, or simple noise if none is known."""
    if mechanism is not None:
        try:
            if (stronger := mechanism.stronger(1.0)) is not None and math.isfinite(measure.of_curves(mechanism)):
                family = Family(stronger[0], partial(_scaled, mechanism, x, y))
                family.at(1.0)
                return family
        except (ArgumentError, UnattainableError):
            # The distribution is not known for these data, or nothing is guaranteed.
            pass
    with_record, without_record = np.array([1.0, 0.0]), np.zeros(2)
    gaussian = DiscreteGaussianMechanism(np.ones(2), 1.0, adjacency="add-remove")
    bounded = not math.isfinite(measure.of_curves(gaussian))
    simple = GeometricMechanism(np.ones(2), 1.0, adjacency="add-remove") if bounded else gaussian
    return Family(
        f"{simple.kind} noise, distinguished by its likelihood ratio",
        partial(_scaled, simple, with_record, without_record),
    )


def _scaled(mechanism: Mechanism, x: Array, y: Array, factor: float) -> tuple[PrivacyCurves, FiniteDistributions]:
    stronger = mechanism.stronger(factor)
    assert stronger is not None
    # More than 1,000 cells would change the figures by less than a hundredth.
    return stronger[1], stronger[1].output_distributions(x, y, 1_000)


def refutable(family: Family, measure: Measure, trials: int, level: float, *, doublings: int = 100) -> float:
    """The smallest true value of the measure, within a family, at which 9 of 10 audits refute the stated value.

    It assumes that the audit counts the best event, in `trials` outputs of each data set. It is `inf` if no member of
    the family is refuted so often, and `nan` if nothing is stated. The search uses up to `doublings` factors of two,
    and then 7 bisections.
    """
    if math.isnan(measure.stated):
        return math.nan
    if measure.most_shown(trials, trials, trials, level) <= measure.stated:
        return math.inf
    low, high = 1.0, 1.0
    for _ in range(doublings):
        if _refutes(family.at(high)[1], measure, trials, level):
            break
        low, high = high, 2 * high
    else:
        return math.inf
    for _ in range(doublings):
        if low < high or not _refutes(family.at(low)[1], measure, trials, level):
            break
        low /= 2
    for _ in range(7):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _refutes(family.at(middle)[1], measure, trials, level) else (middle, high)
    return measure.of_curves(family.at(high)[0])


def rarest_event(measure: Measure, trials: int, level: float) -> float:
    """The smallest probability of an event that refutes a statement in 9 of 10 audits.

    The event is impossible for the other data set. Rarer events refute nothing. The result is `nan` if nothing is
    stated, and `inf` if no event is enough.
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


def _refutes(
    distributions: FiniteDistributions, measure: Measure, trials: int, level: float, *, tail: float = 0.05
) -> bool:
    """Whether some event refutes the statement with probability at least CHANCE.

    Each of the two counts is worse than its quantile with probability `tail`, so both are better with at least CHANCE.
    """
    for p, q in _events(distributions, trials):
        counts = Counts(_quantile(tail, trials, p), trials, _quantile(1 - tail, trials, q), trials)
        if any(np.any(measure.lower(counts, method, level) > measure.stated) for method in measure.methods):
            return True
    return False


def _events(distributions: FiniteDistributions, trials: int) -> list[tuple[Array, Array]]:
    """Probabilities of the events that the likelihood ratio reaches a threshold, for both directions."""
    events = []
    for log_p, log_q in ((distributions.log_p, distributions.log_q), (distributions.log_q, distributions.log_p)):
        with np.errstate(invalid="ignore"):
            order = np.argsort(np.nan_to_num(log_q - log_p), kind="stable")
        p, q = (np.minimum(np.cumsum(np.exp(distribution[order])), 1.0) for distribution in (log_p, log_q))
        # Candidates for the best event: half of them rare, half of them common.
        rare = np.geomspace(0.1 / trials, 0.5, 60)
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
    prob: float = 1 - 1e-6,
) -> float:
    """Probability that `audit(mechanism, claim=claim, n=n)` says "refuted", if it chooses the best event.

    Parameters
    ----------
    mechanism : Mechanism
        A mechanism of this library, with its true distribution.
    claim : Guarantee
        The claim about it, true or false.
    pair, n, prob
        The arguments of `audit`, with one `delta`.

    Returns
    -------
    chance : float
        The probability from the two binomial distributions of the counts, for the better of the two directions.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> from pymc_dirdp.mechanisms import DirichletMechanism
    >>> chance_to_refute(DirichletMechanism([1, 1, 1], 0.5), PureDP(epsilon=0.5), n=20_000)
    0.99...
    """
    size, doubt = integer(100, n=n), 1 - open_unit_interval(prob=prob)
    x, y = mechanism.worst_neighbours() if pair is None else (np.asarray(data, dtype=np.float64) for data in pair)
    all_measures = measures(mechanism, claim, 1e-5)
    trials, level = parts(size, likelihood=True).counted, doubt / len(all_measures)
    events = _events(mechanism.output_distributions(x, y), trials)
    measure = all_measures[0]
    return max(_chance(p, q, measure, method, trials, level) for p, q in events for method in measure.methods)


def _chance(
    p: Array, q: Array, measure: Measure, method: str, trials: int, level: float, *, spread: float = 9.0
) -> float:
    """The probability that the event with the best bound refutes the claim.

    The sum over a count covers `spread` standard deviations, in at most 2,000 steps.
    """
    best = int(np.argmax(measure.lower(Counts(p * trials, trials, q * trials, trials), method, level)))
    middle, sd = trials * p[best], np.sqrt(trials * p[best] * (1 - p[best])) + 1
    hits = np.unique(np.clip(np.round(np.linspace(middle - spread * sd, middle + spread * sd, 2_000)), 0, trials))
    # Each step stands for its smallest number of hits, so the probability is not overstated.
    below = np.where(hits > 0, bdtr(np.maximum(hits - 1, 0), trials, p[best]), 0.0)
    masses = np.diff(below, append=1.0)
    max_hits = _max_hits(measure, method, hits, trials, level)
    return float(np.sum(masses * np.where(max_hits >= 0, bdtr(np.maximum(max_hits, 0), trials, q[best]), 0.0)))


def _max_hits(measure: Measure, method: str, hits: Array, trials: int, level: float) -> Array:
    """The maximum number of hits for the other data set with which the claim is still refuted; -1 if it never is."""
    refuted, not_refuted = np.full(len(hits), -1.0), np.full(len(hits), trials + 1.0)
    while np.any(not_refuted - refuted > 1):
        middle = np.floor((refuted + not_refuted) / 2)
        yes = measure.lower(Counts(hits, trials, middle, trials), method, level) > measure.stated
        refuted, not_refuted = np.where(yes, middle, refuted), np.where(yes, not_refuted, middle)
    return refuted


@final
@dataclass(frozen=True)
class Bound:
    """A lower bound on the privacy loss, and the stated value.

    Attributes
    ----------
    measure : str
        The name of the measure.
    lower : float
        The loss is at least this, with the confidence of the audit.
    stated : float
        The value that the claim allows or the curve states; `nan` if there is none.
    refutable : float
        The smallest true value for which an audit refutes the stated value with probability 0.9, if the truth is one
        of the distributions of `alternative`, for the data sets of the audit. It is computed from the ideal
        distribution of a sampler, without the grid of an exact one. It is `nan` if nothing is stated.
    alternative : str
        The alternatives for `refutable`.
    rarest : float
        The smallest probability of an event of one data set, impossible for the other, that refutes the stated value in
        nine of ten audits. It is `nan` if nothing is stated.
    ceiling : float
        The largest lower bound that this number of outputs can give. The audit cannot detect a larger loss.
    hits_p, trials_p : int
        Number of events and of outputs for the data set that makes the event likelier.
    hits_q, trials_q : int
        Number of events and of outputs for the other data set.
    """

    measure: str
    lower: float
    stated: float
    refutable: float
    alternative: str
    rarest: float
    ceiling: float
    hits_p: int
    trials_p: int
    hits_q: int
    trials_q: int

    @property
    def exceeded(self) -> bool:
        """Whether the loss exceeds the stated value."""
        return self.lower > self.stated


@final
@dataclass(frozen=True, repr=False)
class Audit(TabularResult):
    """The result of an attack. `print` it, or display it in a notebook.

    Attributes
    ----------
    mechanism : str
        The name of its class.
    sampler : str
        The sampler that the outputs come from, with the number of steps if it was given; `"black box"` for a function.
    n : int
        Number of outputs for each data set. Fair coins decide which data set the counted outputs come from.
    prob : float
        All bounds hold at once with at least this probability, over the outputs.
    claim : Guarantee, PrivacyCurves or None
        The claim about the mechanism.
    last_bits : bool
        Whether the last bits of floating-point numbers were attacked.
    bounds : tuple of Bound
        The bound on the claim, if that is a guarantee; then one on epsilon for each delta, and one on delta at 0.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> mechanism = dirdp.mechanisms.GeometricMechanism([1, 1], 2.0)
    >>> found = dirdp.audit(mechanism, n=2000, random_seed=1)
    >>> found.n
    2000
    """

    mechanism: str
    sampler: str
    n: int
    prob: float
    claim: Guarantee | PrivacyCurves | None
    last_bits: bool
    bounds: tuple[Bound, ...]

    _columns = tuple(field.name for field in fields(Bound) if field.name != "alternative")

    @property
    def verdict(self) -> str:
        """`"refuted"`, `"consistent"`, or `"nothing stated"`. Consistent is no proof: another attack may find more."""
        if any(bound.exceeded for bound in self.bounds):
            return "refuted"
        return "nothing stated" if all(math.isnan(bound.stated) for bound in self.bounds) else "consistent"

    @property
    def power(self) -> str:
        """What this audit would have refuted, in words; empty if nothing was stated."""
        sentences = [
            f"{bound.measure}: stated {bound.stated:.4g}; {_would_have(bound)}"
            for bound in self.bounds
            if not math.isnan(bound.stated)
        ]
        if not sentences:
            return ""
        return "\n".join(
            [f"With {self.n} draws from each of the two data sets:", *(f"  {sentence}" for sentence in sentences)]
        )

    @property
    def blind_spots(self) -> str:
        """What this audit cannot detect, in words."""
        rarest = min((bound.rarest for bound in self.bounds if not math.isnan(bound.rarest)), default=math.inf)
        rare = f"an event of probability below {rarest:.2g}" if rarest < 1 else "an event too rare to be counted"
        bits = "" if self.last_bits else ", or the last bits of the numbers (pass last_bits=True)"
        return (
            f"It cannot detect a loss that occurs only between other data sets than these two, in {rare}, or in a "
            f"pattern that none of its statistics covers{bits}."
        )

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        sampler = "" if self.sampler == self.mechanism else f", sampler {self.sampler}"
        title = (
            f"{self.mechanism}{sampler}: {self.verdict}; {self.n} draws from each data set, false alarm below "
            f"{1 - self.prob:.2g}"
        )
        return [title], [asdict(bound) for bound in self.bounds], self._meaning

    @property
    def _meaning(self) -> list[str]:
        match self.verdict:
            case "refuted":
                return ["The loss between the two data sets of this attack already exceeds the stated value."]
            case "consistent":
                return ["Consistent is not a proof.", *self.power.split("\n"), self.blind_spots]
        return ["The loss is at least `lower`. No value was stated to compare it with.", self.blind_spots]


def _would_have(bound: Bound) -> str:
    if math.isinf(bound.refutable):
        return "no true value would have been refuted with so few draws."
    return (
        f"a true value of {bound.refutable:.3g} or more would have been refuted with probability {CHANCE:g} "
        f"(in {bound.alternative})."
    )
