"""Curves hold against the distributions of the output, and audits have the power that they state."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.intervals import Counts, measures
from pymc_dirdp.auditing.result import chance_to_refute, check_curve, family_of, rarest_event, refutable


def test_curves_hold_against_the_distributions_of_the_output(subject):
    mechanism, _ = subject
    result = check_curve(mechanism)
    assert result.verdict == "consistent"
    # The pair attains the curve somewhere: an attack on others would have less power.
    assert -1e-2 < result.shortfall <= 1e-9


@pytest.mark.parametrize("name", ["Dirichlet", "Dirichlet, two rows", "Dirichlet, add-remove", "Gaussian", "Simplex"])
def test_exact_curves_are_attained_everywhere(name, named):
    """So the audit by quadrature is as sharp as the curve: one that is 1 % too low would be refuted."""
    for point in check_curve(named(name)).points:
        # Two rows are 360,000 products of two cells.
        assert point.lost == pytest.approx(point.stated, rel=1e-2 if "rows" in name else 2e-4)


def test_both_directions_are_looked_at(named):
    mechanism = named("Dirichlet, add-remove")
    (x, y), result = mechanism.worst_neighbours(), check_curve(mechanism)
    for there, back in zip(result.points, check_curve(mechanism, pair=(y, x)).points, strict=True):
        assert back.lost == pytest.approx(there.lost, rel=1e-9)
    assert "DirichletMechanism: consistent" in str(result)
    orders = [f"Rényi divergence of order {order:g}" for order in (1, 1.25, 2)]
    assert list(result.frame().index) == [point.measure for point in result.points]
    assert [point.measure for point in result.points[9:]] == orders


def test_ten_counts_that_change_at_once_have_probabilities_below_all_doubles():
    """Oracle: each of them adds `order / (2 sigma**2)`, which the loss reaches for a sigma of 8."""
    in_each = dirdp.privacy.people.Contribution(1, ("each",))
    mechanism = dirdp.mechanisms.DiscreteGaussianMechanism(np.ones((5, 2)), 8.0, contribution=in_each)
    result = check_curve(mechanism, orders=(1.0, 4.0))
    assert result.verdict == "consistent"
    for order in (1.0, 4.0):
        (point,) = (point for point in result.points if point.measure.endswith(f"order {order:g}"))
        assert point.lost == pytest.approx(10 * order / (2 * 8.0**2), rel=1e-9)
    less = dataclasses.replace(mechanism, sigma=7.99)
    assert check_curve(less, claim=dirdp.RenyiDP(order=4, epsilon=mechanism.renyi(4))).verdict == "refuted"


def test_a_rho_that_is_too_low_by_a_per_cent_is_refuted():
    """Under geometric noise the divergence over its order falls with the order."""
    mechanism = dirdp.mechanisms.GeometricMechanism(np.ones(2), 2.0)
    for part, verdict in ((1.0, "consistent"), (0.99, "refuted")):
        claim = dirdp.TruncatedCDP(rho=part * mechanism.rho(8.0), omega=8.0)
        assert check_curve(mechanism, claim=claim).verdict == verdict


def test_what_is_no_mechanism_is_refused_with_where_those_of_a_release_are():
    for attack in (check_curve, dirdp.audit):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"verify\(release\)\.mechanisms"):
            attack("hair.json")


def test_a_mechanism_without_a_guarantee_is_compared_with_the_claim_alone(monkeypatch):
    def refuse(*_):
        raise dirdp.errors.UnattainableError("It keeps no guarantee.")

    mechanism = dirdp.papers.HellingerMechanism([0.1, 0.1], 10, 1.0)
    for curve in ("_renyi", "_rho", "_delta", "_epsilon"):
        monkeypatch.setattr(type(mechanism._curves), curve, refuse)
    assert check_curve(mechanism, claim=dirdp.PureDP(epsilon=0.1)).verdict == "refuted"
    with pytest.raises(dirdp.errors.UnattainableError):
        check_curve(mechanism)
    found = dirdp.audit(mechanism, n=200, random_seed=4)
    assert found.verdict == "nothing stated"
    assert "No value was stated" in str(found)


# What an audit says that it would have refuted, it refutes as often as it says.


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
    pure = dirdp.PureDP(epsilon=1)
    for claim, name in ((dirdp.ApproxDP(epsilon=1, delta=1e-3), "gaussian noise"), (pure, "geometric noise")):
        family = family_of(None, np.zeros(2), np.ones(2), measures(None, claim, 1e-3)[0])
        assert family.name.startswith(name)
        # What is said to be lost is what the two distributions lose.
        curves, distributions = family.at(1.5)
        assert curves.renyi(2.0) == pytest.approx(distributions.renyi(2.0), rel=1e-2)
    pure = measures(None, pure, 1e-3)[0]
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
