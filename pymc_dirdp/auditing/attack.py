"""Attack a mechanism: draw outputs for two neighbours, count, and see how large its privacy loss is at least."""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pymc_dirdp.auditing.intervals import allowed, epsilon_of, loss_of, lower_limit, upper_limit
from pymc_dirdp.auditing.neighbours import worst_pair
from pymc_dirdp.auditing.outputs import BlackBox, Outputs, releases
from pymc_dirdp.auditing.statistics import Statistic, learned, likelihood_ratio
from pymc_dirdp.checks import at_least, fraction, integer
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["Audit", "Bound", "audit"]

Array = NDArray[np.float64]
Hits = NDArray[Any]
# A lower bound from limits of the probabilities of an event, p from below and q from above.
Measure = Callable[[Array, Array], Array]

# Thresholds among which one is chosen.
_THRESHOLDS = 400


@final
@dataclass(frozen=True)
class Bound:
    """A lower bound of the privacy loss, beside what is stated.

    Attributes
    ----------
    measure : str
        What is bounded, in words.
    lower : float
        The loss is at least this, with the confidence of the audit.
    stated : float
        What the claim allows or the curve says; `nan` if neither does.
    ceiling : float
        The largest lower bound that so many outputs can give: a larger loss cannot be seen.
    hits_p, trials_p : int
        How often the event happened where it is the likelier, and of how many outputs.
    hits_q, trials_q : int
        The same where it is the less likely.
    """

    measure: str
    lower: float
    stated: float
    ceiling: float
    hits_p: int
    trials_p: int
    hits_q: int
    trials_q: int

    @property
    def exceeded(self) -> bool:
        """Whether more is lost than stated."""
        return self.lower > self.stated


@final
@dataclass(frozen=True)
class Audit:
    """What an attack found. `print` it, or let a notebook show it.

    Attributes
    ----------
    mechanism : str
        Its name.
    n : int
        Number of outputs for each data set.
    confidence : float
        All bounds hold at once with this probability at least, over the outputs.
    claim : Guarantee or None
        What was said of the mechanism.
    bounds : tuple of Bound
        The first is about the claim, if there is one; then an epsilon for each delta.
    """

    mechanism: str
    n: int
    confidence: float
    claim: Guarantee | None
    bounds: tuple[Bound, ...]

    @property
    def verdict(self) -> str:
        """`"refuted"`, `"consistent"`, or `"nothing stated"`. Consistent is not a proof: this attack found no more."""
        if any(bound.exceeded for bound in self.bounds):
            return "refuted"
        return "nothing stated" if all(math.isnan(bound.stated) for bound in self.bounds) else "consistent"

    def frame(self) -> Any:
        """The bounds as a `pandas.DataFrame`, a row for each."""
        import pandas as pd

        return pd.DataFrame([asdict(bound) for bound in self.bounds]).set_index("measure")

    def __str__(self) -> str:
        rows = list(self._rows())
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._title, *lines, self._meaning])

    def _repr_html_(self) -> str:
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self._rows())
        return f"<h4>{html.escape(self._title)}</h4><table>{rows}</table><p>{html.escape(self._meaning)}</p>"

    @property
    def _title(self) -> str:
        return f"{self.mechanism}: {self.verdict}; {self.n} outputs each, false alarm below {1 - self.confidence:.2g}"

    @property
    def _meaning(self) -> str:
        match self.verdict:
            case "refuted":
                return "More is lost than stated, between the data sets of this attack already."
            case "consistent":
                return (
                    "Consistent is not a proof: this attack found no more. It would have refuted a statement below "
                    "`lower`, and no attack with so many outputs refutes one above `ceiling`."
                )
        return "At least `lower` is lost. Nothing was stated to hold against it."

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield tuple(field.name for field in fields(Bound))
        for bound in self.bounds:
            values = asdict(bound).values()
            yield tuple(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)


def audit(
    mechanism: Mechanism | BlackBox,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    claim: Guarantee | None = None,
    delta: float | Sequence[float] = 1e-5,
    n: int = 100_000,
    confidence: float = 1 - 1e-6,
    last_bits: bool = False,
    random_seed: Seed = None,
) -> Audit:
    """Lower bounds on the privacy loss of a mechanism, from its outputs for two neighbouring data sets.

    For a mechanism of this library the outputs are told apart by their exact likelihood ratio; for a black box by
    discriminants that are learned from a quarter of the outputs. A second quarter, or the first, chooses the event for
    each bound. It is counted in the others, which nothing was learned or chosen from, and limits of Clopper and
    Pearson on its two probabilities give the bound.

    Parameters
    ----------
    mechanism : Mechanism or callable
        A callable takes the counts, brings its own randomness, and returns an array of any shape.
    pair : tuple of two arrays, optional
        Made-up neighbours: no bound is a promise about them. That they are neighbours is for you to see to. None takes
        the worst ones that are known for the mechanism; a black box needs a pair.
    claim : Guarantee, optional
        What is said of the mechanism; it is attacked in its own measure.
    delta : float or sequence of float, default 1e-5
        Where epsilon is bounded, each in [0, 1); 0 is pure differential privacy.
    n : int, default 100_000
        Outputs for each of the two data sets, at least 100.
    confidence : float, default 1 - 1e-6
        Of all bounds together. They are valid for every mechanism and every n.
    last_bits : bool, default False
        Attack the floating-point numbers too, and not only the law that they stand for: which of their last bits are
        zero tells how a sum was rounded, and with it what was added. Noise in floating point does not survive it.
    random_seed : int, SeedSequence, Generator or None
        For mechanisms of this library. There are no real data here, so it is harmless.

    Returns
    -------
    result : Audit

    References
    ----------
    Jagielski, Ullman and Oprea (2020), Auditing differentially private machine learning, section 4. Clopper and
    Pearson (1934).

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP, DirichletMechanism
    >>> mechanism = DirichletMechanism([1, 1, 1], 0.5)
    >>> audit(mechanism, n=20_000, random_seed=1).verdict
    'consistent'
    >>> audit(mechanism, claim=ApproxDP(epsilon=0.5, delta=1e-5), n=20_000, random_seed=1).verdict
    'refuted'
    """
    size, doubt = integer(100, n=n), 1 - fraction(confidence=confidence)
    x, y = _neighbours(mechanism, pair)
    rng = generator(random_seed)
    from_x, from_y = releases(mechanism, x, size, rng), releases(mechanism, y, size, rng)
    exact = likelihood_ratio(mechanism, x, y) if isinstance(mechanism, Mechanism) else None
    quarter = size // 4
    statistics = [] if exact is None else [exact]
    used = 0
    if exact is None or last_bits:
        used = quarter
        statistics += learned(from_x[:used], from_y[:used])
    if last_bits:
        statistics += learned(from_x[:used], from_y[:used], last_bits=True)
    chosen_on, counted_on = slice(used, used + quarter), slice(used + quarter, size)
    measures = list(_measures(mechanism, claim, delta))
    # Two directions and two limits for each bound: together they are wrong with probability `doubt` at most.
    level = doubt / (4 * len(measures))
    attack = _Attack(statistics, from_x, from_y, chosen_on, counted_on, level)
    name = type(mechanism).__name__ if isinstance(mechanism, Mechanism) else "black box"
    return Audit(name, size, 1 - doubt, claim, tuple(attack.bound(*measure) for measure in measures))


def _neighbours(mechanism: Mechanism | BlackBox, pair: tuple[ArrayLike, ArrayLike] | None) -> tuple[Array, Array]:
    if pair is not None:
        x, y = (np.asarray(data, dtype=np.float64) for data in pair)
        return x, y
    if not isinstance(mechanism, Mechanism):
        raise ArgumentError("A black box needs pair=(x, y): two neighbouring data sets that it can take.")
    return worst_pair(mechanism)


def _measures(
    mechanism: Mechanism | BlackBox, claim: Guarantee | None, delta: float | Sequence[float]
) -> Iterator[tuple[str, Measure, float]]:
    """What is to be bounded: its name, the bound, and what is stated."""
    if claim is not None:
        yield f"loss, of {claim}", partial(loss_of, claim), allowed(claim)
    for value in np.atleast_1d(delta).tolist():
        at = at_least(0, delta=value)
        if at >= 1:
            raise ArgumentError(f"Expected delta in [0, 1), got delta={at:g}.")
        yield f"epsilon at delta {at:g}", partial(epsilon_of, delta=at), _stated_epsilon(mechanism, at)


def _stated_epsilon(mechanism: Mechanism | BlackBox, delta: float) -> float:
    if not isinstance(mechanism, Mechanism):
        return math.nan
    try:
        return mechanism.epsilon(delta) if delta > 0 else mechanism.pure_epsilon
    except UnattainableError:
        return math.nan


class _Attack:
    """Outputs, seen through statistics: sorted where events are chosen, and where they are counted."""

    def __init__(
        self,
        statistics: list[Statistic],
        from_x: Outputs,
        from_y: Outputs,
        chosen_on: slice,
        counted_on: slice,
        level: float,
    ) -> None:
        self._level = level
        self._trials = len(from_x[counted_on])
        self._chosen = [(np.sort(s(from_x[chosen_on])), np.sort(s(from_y[chosen_on]))) for s in statistics]
        self._counted = [(np.sort(s(from_x[counted_on])), np.sort(s(from_y[counted_on]))) for s in statistics]

    def bound(self, name: str, measure: Measure, stated: float) -> Bound:
        """The better of two directions, each with the event that looks best on the outputs set aside for that."""
        best: tuple[float, int, int] = (-math.inf, 0, 0)
        for flip in (False, True):
            which, threshold = self._event(measure, flip)
            hits_p, hits_q = _hits(*self._counted[which], np.array([threshold]), flip)
            lower = float(self._lower(measure, hits_p, hits_q, self._trials)[0])
            best = max(best, (lower, int(hits_p[0]), int(hits_q[0])))
        lower, p, q = best
        # Nobody loses less than nothing.
        ceiling = float(self._lower(measure, np.array([self._trials]), np.array([0]), self._trials)[0])
        return Bound(name, max(lower, 0.0), stated, max(ceiling, 0.0), p, self._trials, q, self._trials)

    def _event(self, measure: Measure, flip: bool) -> tuple[int, float]:
        """The statistic and threshold with the largest bound, were the frequencies those of the outputs to count."""
        best = (-math.inf, 0, 0.0)
        for which, (x, y) in enumerate(self._chosen):
            thresholds = _thresholds(x, y)
            scale = self._trials / len(x)
            hits_p, hits_q = (np.round(scale * hits) for hits in _hits(x, y, thresholds, flip))
            bounds = self._lower(measure, hits_p, hits_q, self._trials)
            i = int(np.argmax(bounds))
            # Of equals the first: patterns are the simplest.
            if bounds[i] > best[0]:
                best = (float(bounds[i]), which, float(thresholds[i]))
        return best[1], best[2]

    def _lower(self, measure: Measure, hits_p: Hits, hits_q: Hits, trials: int) -> Array:
        return measure(lower_limit(hits_p, trials, self._level), upper_limit(hits_q, trials, self._level))


def _hits(x: Array, y: Array, thresholds: Array, flip: bool) -> tuple[Hits, Hits]:
    """How often a sorted statistic reaches thresholds, for x and for y; or fails to, for y and for x."""
    below_x, below_y = np.searchsorted(x, thresholds), np.searchsorted(y, thresholds)
    return (below_y, below_x) if flip else (len(x) - below_x, len(y) - below_y)


def _thresholds(x: Array, y: Array) -> Array:
    """Half-way between values of the statistic, denser in rank towards both ends."""
    values = np.unique(np.concatenate([x, y]))
    # A threshold on a value would lose outputs that are only just beyond.
    values = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2])
    ranks = (len(values) - 1) * expit(np.linspace(-math.log(len(values) + 1), math.log(len(values) + 1), _THRESHOLDS))
    return np.asarray(values[np.unique(np.round(ranks).astype(int))])
