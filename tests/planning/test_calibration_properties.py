"""Properties of the optimal calibration, over random priors, targets and settings."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pymc_dirdp import ApproxDP, DirdpError, RenyiDP, TruncatedCDP, calibrate
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.calibration import Boundary
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.privacy.people import Contribution

few = settings(max_examples=20)

powers = st.floats(-4, 3).map(lambda x: 10.0**x)
TARGETS = st.one_of(
    st.builds(ApproxDP, epsilon=st.floats(0, 10), delta=st.floats(-15, -0.1).map(lambda x: 10.0**x)),
    st.builds(RenyiDP, order=st.floats(1, 200), epsilon=powers),
    st.builds(TruncatedCDP, rho=powers, omega=st.floats(1.01, 200)),
)
PRIORS = st.lists(st.floats(-2, 2).map(lambda x: 10.0**x), min_size=2, max_size=5)
SETTINGS = st.fixed_dictionaries(
    {
        "n_records": st.sampled_from([1, 30, 2000]),
        "adjacency": st.sampled_from(["replace-one", "add-remove"]),
        "objective": st.sampled_from(["posterior", "estimate"]),
        "min_count": st.sampled_from([0.0, 2.0]),
        "contribution": st.sampled_from([1, 3]),
    }
)


def calibrated(target, prior, **options):
    """A mechanism, or nothing where the library says why there is none; any other error is a failure."""
    try:
        return calibrate(target, prior=prior, **options)
    except DirdpError:
        return None


def public(options):
    return {name: options[name] for name in ("adjacency", "min_count", "contribution")}


def raised(mechanism, prior):
    """What was added to each prior parameter, or to which level small ones were raised."""
    added = mechanism.alpha - prior
    if np.ptp(added) <= 1e-9 * mechanism.alpha.max():
        return {"s": float(added[0])}
    return {"level": float(mechanism.alpha.min())}


@few
@given(TARGETS, PRIORS, SETTINGS)
def test_optimal_keeps_the_target_and_only_raises_the_prior(target, prior, options):
    mechanism = calibrated(target, prior, **options)
    assume(mechanism is not None)
    assert mechanism.satisfies(target)
    assert np.all(mechanism.alpha >= prior)
    ((way, amount),) = raised(mechanism, prior).items()
    alpha = np.array(prior) + amount if way == "s" else np.maximum(prior, amount)
    np.testing.assert_allclose(mechanism.alpha, alpha, rtol=1e-9)
    assert options["objective"] == "estimate" or mechanism.r <= 1
    assert (mechanism.adjacency, mechanism.min_count, mechanism.contribution.records) == tuple(public(options).values())


@few
@given(TARGETS, PRIORS, SETTINGS)
def test_optimal_wastes_nothing(target, prior, options):
    mechanism = calibrated(target, prior, **options)
    assume(mechanism is not None)
    # Only the posterior itself may have room left, and only where the prior needs nothing added.
    whole = options["objective"] == "posterior" and mechanism.r == 1
    if not whole:
        assert not DirichletMechanism(mechanism.alpha, mechanism.r * (1 + 1e-8), **public(options)).satisfies(target)
    elif mechanism.alpha[0] - prior[0] > 1e-9 * mechanism.alpha[0]:
        less = np.array(prior) + (mechanism.alpha - prior) * (1 - 1e-6)
        assert not DirichletMechanism(less, 1.0, **public(options)).satisfies(target)


@few
@given(TARGETS, PRIORS, SETTINGS)
def test_optimal_is_no_worse_than_the_other_strategies(target, prior, options):
    best = calibrated(target, prior, **options)
    assume(best is not None)
    loss = getattr(PriorExpectedKL(np.array(prior), options["n_records"]), options["objective"])

    def lost(mechanism):
        r = min(mechanism.r, 1.0) if options["objective"] == "posterior" else mechanism.r
        return loss(r, **raised(mechanism, prior))

    for strategy in ("temper", "inflate"):
        other = calibrated(target, prior, mechanism=Dirichlet(strategy=strategy), **options)
        if other is not None:
            # The search ends at 10**4 times the r of tempering, where the error hardly falls any more.
            assert lost(best) <= lost(other) * (1 + 1e-5) + 1e-9


@settings(few, max_examples=12)
@given(TARGETS, PRIORS, SETTINGS, st.randoms(use_true_random=False))
def test_the_order_of_cells_does_not_matter(target, prior, options, random):
    first = calibrated(target, prior, **options)
    order = list(range(len(prior)))
    random.shuffle(order)
    second = calibrated(target, [prior[i] for i in order], **options)
    assert (first is None) == (second is None)
    if first is not None:
        # A minimum is flat, so it is found less exactly than the boundary.
        np.testing.assert_allclose(second.alpha, first.alpha[order], rtol=1e-3)
        assert second.r == pytest.approx(first.r, rel=1e-3)


@settings(few, max_examples=12)
@given(
    epsilon=st.floats(0.05, 5),
    delta=st.floats(-10, -2).map(lambda x: 10.0**x),
    more=st.floats(1.0, 2.0),
    prior=PRIORS,
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    objective=st.sampled_from(["posterior", "estimate"]),
)
def test_a_looser_guarantee_costs_no_more(epsilon, delta, more, prior, adjacency, objective):
    loss = getattr(PriorExpectedKL(np.array(prior), 100), objective)
    tight, loose = (
        calibrate(target, prior=prior, n_records=100, adjacency=adjacency, objective=objective)
        for target in (ApproxDP(epsilon=epsilon, delta=delta), ApproxDP(epsilon=epsilon * more, delta=delta * more))
    )
    lost = [loss(m.r, **raised(m, prior)) for m in (tight, loose)]
    # A level has to be better by a per cent to be chosen.
    assert lost[1] <= lost[0] * (1.01 + 1e-6) + 1e-9
    assert all(math.isfinite(value) for value in lost)


@pytest.mark.parametrize(
    ("target", "prior", "adjacency"),
    [
        (ApproxDP(epsilon=2.77842, delta=0.000347991), [2.69, 0.12], "add-remove"),
        (ApproxDP(epsilon=6.68873, delta=0.00252689), [17.27, 0.24], "replace-one"),
    ],
)
def test_ten_records_of_a_person_that_lose_more_when_they_are_spread(target, prior, adjacency):
    """The largest step where all are in one cell keeps less than the guarantee; that of all ways is safe and tight."""
    facts = {"adjacency": adjacency, "contribution": Contribution(10)}
    found = calibrate(target, prior=prior, n_records=500, mechanism=Dirichlet(strategy="temper"), **facts)
    together = Boundary(target, np.array(prior), min_count=0.0, **facts).largest_r(0.0)
    assert not DirichletMechanism(prior, together, **facts).satisfies(target)
    assert found.satisfies(target)
    assert not DirichletMechanism(prior, found.r * (1 + 1e-6), **facts).satisfies(target)
