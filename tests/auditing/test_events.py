"""Events are chosen by what they guarantee, and counted as they are defined."""

import numpy as np

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.intervals import LIMITS, SHARES, Event, chosen, counted, measures

X, Y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])


def test_events_are_counted_in_both_directions():
    there = counted(Event(0, 0.5, False, LIMITS), X, Y)
    assert (there.hits_p[0], there.trials_p, there.hits_q[0], there.trials_q) == (3, 4, 1, 3)
    back = counted(Event(0, 0.5, True, LIMITS), X, Y)
    assert (back.hits_p[0], back.trials_p, back.hits_q[0], back.trials_q) == (2, 3, 1, 4)


def test_the_statistic_that_tells_most_is_chosen():
    rng = np.random.default_rng(1)
    noise = tuple(np.sort(rng.normal(size=2_000)) for _ in range(2))
    telling = np.sort(rng.normal(1.0, size=2_000)), np.sort(rng.normal(size=2_000))
    measure = measures(None, dirdp.PureDP(epsilon=1), 1e-3)
    for event in chosen([noise, telling, noise], measure, 10_000, 1e-6):
        assert event.which == 1
        assert event.method in (LIMITS, SHARES)


def test_a_few_lucky_hits_are_not_preferred():
    """Three hits against none look like an infinite loss; a common event with a clear ratio guarantees more."""
    common = np.sort(np.repeat([1.0, 0.0], [1_000, 1_000])), np.sort(np.repeat([1.0, 0.0], [250, 1_750]))
    lucky = np.sort(np.repeat([1.0, 0.0], [3, 1_997])), np.zeros(2_000)
    (event,) = chosen([lucky, common], measures(None, None, 1e-3), 4_000, 1e-6)
    assert event.which == 1
