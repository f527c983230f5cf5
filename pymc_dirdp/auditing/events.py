"""Choosing the event that tells two data sets apart, and counting it in outputs that had no part in the choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import expit

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.intervals import lower_limit, upper_limit
from pymc_dirdp.auditing.measures import LIMITS, Counts, Measure

__all__ = ["Event", "Parts", "Scores", "chosen", "counted", "parts"]

# One statistic of the outputs of one data set and of the other, both sorted.
Scores = tuple[Array, Array]

# The number of thresholds from which one is chosen.
_THRESHOLDS = 400
# Frequencies among so few outputs look better than they are. This is one standard deviation on the safe side.
_DOUBT_OF_CHOICE = 0.16
# The share of the outputs that statistics are learned from, and the share that an event is chosen on. What is learned
# matters less where the likelihood ratio is known.
_LEARNED, _LEARNED_BESIDE, _CHOSEN = 0.25, 0.1, 0.125


@final
@dataclass(frozen=True)
class Parts:
    """How many outputs of each data set serve to learn statistics, to choose an event, and to count it."""

    learned: int
    chosen: int
    counted: int


def parts(size: int, *, likelihood: bool) -> Parts:
    """The parts of so many outputs, if the likelihood ratio is known or if everything has to be learned."""
    learned = round(size * (_LEARNED_BESIDE if likelihood else _LEARNED))
    chosen_on = round(size * _CHOSEN)
    return Parts(learned, chosen_on, size - learned - chosen_on)


@final
@dataclass(frozen=True)
class Event:
    """A statistic that reaches a threshold; or, if `flip`, that does not, which the second data set makes likelier."""

    which: int  # The position of the statistic.
    threshold: float
    flip: bool
    method: str  # How the bound is computed from the counts.


def chosen(scores: Sequence[Scores], measures: Sequence[Measure], trials: int, level: float) -> list[Event]:
    """For each measure the event with the best bound, if other outputs have the same two frequencies.

    There is a pair of scores for each statistic. About so many `trials` of each data set are going to be counted, and
    the bounds are going to be computed at this `level`.
    """
    best = [(-math.inf, Event(0, 0.0, False, LIMITS)) for _ in measures]
    for which, (x, y) in enumerate(scores):
        thresholds = _thresholds(x, y)
        for flip in (False, True):
            hits_p, hits_q = _hits(x, y, thresholds, flip)
            p, q = lower_limit(hits_p, len(x), _DOUBT_OF_CHOICE), upper_limit(hits_q, len(y), _DOUBT_OF_CHOICE)
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
    """How often an event happened, from the sorted values of its statistic; first for the data set that it favours."""
    hits_p, hits_q = _hits(x, y, np.array([event.threshold]), event.flip)
    first, second = (y, x) if event.flip else (x, y)
    return Counts(hits_p, len(first), hits_q, len(second))


def _hits(x: Array, y: Array, thresholds: Array, flip: bool) -> tuple[Array, Array]:
    """How often a sorted statistic reaches thresholds, for x and y; if `flip`, how often it does not, for y and x."""
    below_x, below_y = (np.searchsorted(values, thresholds).astype(np.float64) for values in (x, y))
    return (below_y, below_x) if flip else (len(x) - below_x, len(y) - below_y)


def _thresholds(x: Array, y: Array) -> Array:
    """Thresholds half-way between values of the statistic, denser in rank towards both ends."""
    values = np.unique(np.concatenate([x, y]))
    # A threshold that is itself a value would lose outputs that are only just beyond it.
    values = np.concatenate([values[:1], (values[:-1] + values[1:]) / 2])
    ranks = (len(values) - 1) * expit(np.linspace(-math.log(len(values) + 1), math.log(len(values) + 1), _THRESHOLDS))
    return np.asarray(values[np.unique(np.round(ranks).astype(int))])
