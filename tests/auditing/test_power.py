"""What an audit says that it would have refuted, it refutes as often as it says; and it says what it cannot see."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.intervals import Counts, measures
from pymc_dirdp.auditing.result import chance_to_refute, family_of, rarest_event, refutable


@pytest.mark.thorough
def test_chances_are_those_of_repeating():
    """A claim that is refuted about every second time; 20 repeats, at thresholds of 1e-6."""
    mechanism, claim, n = dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(2), 2.0), dirdp.PureDP(epsilon=0.7), 4_000
    chance = chance_to_refute(mechanism, claim, n=n)
    assert 0.1 < chance < 0.9
    hits = sum(audit(mechanism, claim=claim, n=n, random_seed=seed).bounds[0].exceeded for seed in range(20))
    # Choosing the event from data costs some of the chance, so this is one-sided above and loose below.
    assert hits <= binom.isf(1e-6, 20, chance)
    assert hits >= binom.isf(1 - 1e-6, 20, chance / 3)


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


@pytest.mark.slow
def test_the_true_value_that_is_named_is_refuted_nine_times_in_ten():
    """20 repeats with the distribution of the family at that value: the claim of the honest mechanism is refuted."""
    mechanism, n, delta = dirdp.mechanisms.GeometricMechanism(np.ones(3), 2.0), 20_000, 1e-3
    claim = dirdp.ApproxDP(epsilon=mechanism.epsilon(delta), delta=delta)
    said = audit(mechanism, sampler="fast", claim=claim, delta=delta, n=n, random_seed=1).bounds[0]
    assert said.stated < said.refutable < math.inf
    family = (dataclasses.replace(mechanism, scale=2 / factor) for factor in np.geomspace(1, 4, 400))
    at = next(member for member in family if member.epsilon(delta) > said.refutable)
    # What is half as far from the claim is not refuted as often.
    closer = dataclasses.replace(mechanism, scale=math.sqrt(2.0 * at.scale))

    def refuted(subject, repeats):
        options = {"sampler": "fast", "claim": claim, "delta": delta, "n": n}
        return sum(audit(subject, **options, random_seed=seed).bounds[0].exceeded for seed in range(repeats))

    assert refuted(at, 20) >= binom.isf(1 - 1e-6, 20, 0.9)
    assert refuted(closer, 5) <= 2


def test_a_result_says_what_was_found_what_could_have_been_found_and_what_cannot_be_seen():
    mechanism, claim = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.1), dirdp.ApproxDP(epsilon=1.0, delta=1e-3)
    options = {"sampler": "fast", "claim": claim, "delta": [1e-5, 1e-3], "n": 4_000, "random_seed": 1}
    found = audit(mechanism, **options)
    assert audit(mechanism, **options) == found
    assert str(found).startswith(
        "DirichletMechanism, sampler fast: consistent; 4000 draws from each data set, false alarm below 1e-06"
    )
    assert "<table>" in found._repr_html_()
    assert list(found.frame().index) == [
        "claimed epsilon at delta 0.001",
        "epsilon at delta 1e-05",
        "epsilon at delta 0.001",
        "delta at epsilon 0",
    ]
    claimed, rarest = found.bounds[0], min(bound.rarest for bound in found.bounds)
    assert found.frame()["refutable"].iloc[0] == claimed.refutable > 1
    for text in (
        "Consistent is not a proof",
        f"claimed epsilon at delta 0.001: stated 1; a true value of {claimed.refutable:.3g} or more would have been "
        "refuted with probability 0.9 (in the same mechanism with a larger r).",
        "With 4000 draws from each of the two data sets:",
        "It cannot detect a loss that occurs only between other data sets than these two, in an event of probability "
        f"below {rarest:.2g}, or in a pattern that none of its statistics covers, or the last bits of the numbers "
        "(pass last_bits=True).",
    ):
        assert text in str(found)
    assert "last bits" not in audit(mechanism, sampler="fast", last_bits=True, n=1_000, random_seed=1).blind_spots
    worse = dirdp.mechanisms.DirichletMechanism(np.ones(4), 3.0)
    refuted = audit(worse, sampler="fast", claim=dirdp.PureDP(epsilon=0.1), n=2_000, random_seed=1)
    assert refuted.verdict == "refuted"
    assert "already exceeds the stated value" in str(refuted)
    assert "would have been refuted" not in str(refuted)


def test_a_black_box_says_that_it_needs_a_pair_and_why():
    with pytest.raises(dirdp.errors.ArgumentError, match="an audit compares the outputs of a black box on these two"):
        audit(lambda counts: counts, n=100)
    # The way out that the error names.
    mechanism, rng = dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1), np.random.default_rng(1)
    release = lambda counts: mechanism.sample(counts, sampler="fast", random_seed=rng)[0]  # noqa: E731
    assert audit(release, claim=mechanism, n=200, random_seed=1).verdict == "consistent"
