"""What an audit says that it would have refuted, it refutes as often as it says."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.intervals import Counts, measures, parts
from pymc_dirdp.auditing.result import chance_to_refute, family_of, rarest_event, refutable


@pytest.mark.thorough
def test_chances_are_those_of_repeating():
    """A claim that is refuted about every second time; 40 repeats, at thresholds of 1e-6."""
    mechanism, claim, n = dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(2), 2.0), dirdp.PureDP(epsilon=0.7), 4_000
    chance = chance_to_refute(mechanism, claim, n=n)
    assert 0.1 < chance < 0.9
    hits = sum(audit(mechanism, claim=claim, n=n, random_seed=seed).bounds[0].exceeded for seed in range(40))
    # Choosing the event from data costs some of the chance, so this is one-sided above and loose below.
    assert hits <= binom.isf(1e-6, 40, chance)
    assert hits >= binom.isf(1 - 1e-6, 40, chance / 3)


SUBJECTS = {
    "Dirichlet": (dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.3), "r", 1.0),
    "Geometric": (dirdp.mechanisms.GeometricMechanism(np.ones(3), 2.0), "scale", -1.0),
    "Gaussian": (dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(3), 2.0), "sigma", -1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_true_value_that_is_named_is_refuted_nine_times_in_ten(name):
    """20 repeats with the distribution of the family at that value: the claim of the honest mechanism is refuted."""
    mechanism, field, power = SUBJECTS[name]
    n, delta = 20_000, 1e-3
    claim = dirdp.ApproxDP(epsilon=mechanism.epsilon(delta), delta=delta)
    said = audit(mechanism, sampler="fast", claim=claim, delta=delta, n=n, random_seed=1).bounds[0]
    assert said.stated < said.refutable < math.inf

    def at(factor):
        return dataclasses.replace(mechanism, **{field: getattr(mechanism, field) * factor**power})

    # The member of the family whose epsilon it is.
    low, high = 1.0, 32.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle).epsilon(delta) < said.refutable else (low, middle)
    repeats = 20
    refuted = sum(
        audit(at(high), sampler="fast", claim=claim, delta=delta, n=n, random_seed=seed).bounds[0].exceeded
        for seed in range(repeats)
    )
    assert refuted >= binom.isf(1 - 1e-6, repeats, 0.9)
    # And it is no understatement: what is half as far from the claim is not refuted as often.
    closer = at(math.sqrt(high)).epsilon(delta)
    assert closer < said.refutable
    missed = sum(
        not audit(at(math.sqrt(high)), sampler="fast", claim=claim, delta=delta, n=n, random_seed=seed)
        .bounds[0]
        .exceeded
        for seed in range(5)
    )
    assert missed >= 3


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


def test_parts_are_all_of_the_outputs():
    for size in (100, 101, 99_999):
        for likelihood in (True, False):
            split = parts(size, likelihood=likelihood)
            assert split.learned + split.chosen + split.counted == size
            assert split.counted > size / 2
