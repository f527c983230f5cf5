"""What an audit says that it would have refuted, it refutes as often as it says; and it says what it cannot see."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.intervals import Counts, measures
from pymc_dirdp.auditing.result import chance_to_refute, family_of, rarest_event, refutable


def test_chances_are_those_of_repeating():
    """A claim that is refuted about every second time, and those that are refuted always and never."""
    mechanism, n = dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(2), 2.0), 4_000
    chances = [chance_to_refute(mechanism, dirdp.PureDP(epsilon=epsilon), n=n) for epsilon in (0.4, 0.7, 1.2)]
    assert chances[0] > 0.999 > 0.9 > chances[1] > 0.1 > 1e-3 > chances[2]
    for epsilon, refuted in ((0.4, True), (1.2, False)):
        found = audit(mechanism, claim=dirdp.PureDP(epsilon=epsilon), n=n, random_seed=1)
        assert found.bounds[0].exceeded is refuted


def test_more_draws_and_less_confidence_refute_more():
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.3)
    pair = mechanism.worst_neighbours()
    measure = measures(mechanism, None, 1e-3)[0]
    family = family_of(mechanism, *pair, measure)
    assert family.name == "the same mechanism with a larger r"
    by_draws = [refutable(family, measure, trials, 1e-6) for trials in (3_000, 30_000, 300_000)]
    assert by_draws == sorted(by_draws, reverse=True)
    assert refutable(family, measure, 30_000, 1e-2) < by_draws[1]
    assert by_draws[-1] > measure.stated


def test_what_has_no_distribution_here_is_compared_with_simple_noise():
    measure = measures(None, dirdp.ApproxDP(epsilon=1, delta=1e-3), 1e-3)[0]
    family = family_of(None, np.zeros(2), np.ones(2), measure)
    assert family.name.startswith("gaussian noise")
    pure = measures(None, dirdp.PureDP(epsilon=1), 1e-3)[0]
    assert family_of(None, np.zeros(2), np.ones(2), pure).name.startswith("geometric noise")
    # A Dirichlet distribution guarantees no pure epsilon, so its own family says nothing about one.
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.3)
    assert family_of(mechanism, *mechanism.worst_neighbours(), pure).name.startswith("geometric noise")


@pytest.mark.parametrize("trials", [1_000, 100_000])
def test_an_event_that_is_rarer_refutes_nothing(trials):
    """Oracle: the binomial distribution of its hits, and the bound at each of them."""
    measure, level = measures(None, dirdp.ApproxDP(epsilon=1, delta=1e-5), 1e-5)[0], 1e-6
    rarest = rarest_event(measure, trials, level)

    def refutes(hits):
        counts = Counts(np.array([float(hits)]), trials, np.array([0.0]), trials)
        return any(measure.lower(counts, method, level)[0] > measure.stated for method in measure.methods)

    least = next(hits for hits in range(1, trials) if refutes(hits))
    assert binom.sf(least - 1, trials, rarest) == pytest.approx(0.9, rel=1e-6)
    assert rarest_event(measures(None, dirdp.PureDP(epsilon=100), 0.0)[0], trials, level) == math.inf


def test_a_result_says_what_was_found_what_could_have_been_found_and_what_cannot_be_seen():
    mechanism, claim = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.1), dirdp.ApproxDP(epsilon=1.0, delta=1e-3)
    found = audit(mechanism, sampler="fast", claim=claim, delta=[1e-5, 1e-3], n=4_000, random_seed=1)
    rows = ["claimed epsilon at delta 0.001", "epsilon at delta 1e-05", "epsilon at delta 0.001", "delta at epsilon 0"]
    assert list(found.frame().index) == rows
    claimed, rarest = found.bounds[0], min(bound.rarest for bound in found.bounds)
    assert found.frame()["refutable"].iloc[0] == claimed.refutable > 1
    for text in (
        "DirichletMechanism, sampler fast: consistent; 4000 draws from each data set, false alarm below 1e-06",
        f"{rows[0]}: stated 1; a true value of {claimed.refutable:.3g} or more would have been refuted with "
        "probability 0.9 (in the same mechanism with a larger r).",
        f"in an event of probability below {rarest:.2g}, or in a pattern that none of its statistics covers, or the "
        "last bits of the numbers (pass last_bits=True).",
    ):
        assert text in str(found)
    assert "last bits" not in audit(mechanism, sampler="fast", last_bits=True, n=1_000, random_seed=1).blind_spots
    worse = dirdp.mechanisms.DirichletMechanism(np.ones(4), 3.0)
    refuted = audit(worse, sampler="fast", claim=dirdp.PureDP(epsilon=0.1), n=2_000, random_seed=1)
    assert refuted.verdict == "refuted"
    assert "already exceeds the stated value" in str(refuted)
