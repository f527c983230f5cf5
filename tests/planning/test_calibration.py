"""Calibration keeps the guarantee, wastes nothing, and says why where it cannot."""

import itertools
import math
import re

import mpmath
import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp import ApproxDP, DirdpError, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, calibrate
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import STRATEGIES, Dirichlet
from pymc_dirdp.planning.calibration import p1_theorem_1_concentration
from pymc_dirdp.planning.expected_kl import PriorExpectedKL, a_priori_kl
from tests.planned import planned_sample

TARGETS = [
    ApproxDP(epsilon=1.0, delta=1e-6),
    ApproxDP(epsilon=0.0, delta=1e-2),
    RenyiDP(order=5, epsilon=0.1),
    RenyiDP(order=1, epsilon=0.2),
    TruncatedCDP(rho=0.01, omega=20),
]
PRIORS = [np.array([0.5, 2.0, 3.0]), np.full((3, 2), 0.01), np.full(5, 300.0)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("prior", PRIORS, ids=["uneven", "sparse", "large"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("strategy", "objective"),
    [("optimal", "posterior"), ("optimal", "estimate"), ("temper", "posterior"), ("inflate", "posterior")],
)
@pytest.mark.parametrize("min_count", [0.0, 3.0])
def test_calibration_is_safe_and_tight(target, prior, adjacency, strategy, objective, min_count):
    setting = {"adjacency": adjacency, "min_count": min_count}
    mechanism = calibrate(
        target, prior=prior, n_records=300, mechanism=Dirichlet(strategy=strategy), objective=objective, **setting
    )
    assert mechanism.satisfies(target)
    np.testing.assert_allclose(mechanism.alpha - prior, (mechanism.alpha - prior).flat[0], atol=1e-9 * prior.max())
    untouched = mechanism.r == 1 and np.array_equal(mechanism.alpha, prior)
    if not untouched:
        assert not DirichletMechanism(mechanism.alpha, mechanism.r * (1 + 1e-9), **setting).satisfies(target)


@pytest.mark.parametrize("objective", ["posterior", "estimate"])
@pytest.mark.parametrize("target", TARGETS[:3], ids=str)
def test_optimal_beats_every_point_of_a_fine_grid(target, objective):
    prior, n = np.array([1.0, 2.0, 0.5]), 400
    loss = getattr(PriorExpectedKL(prior, n), objective)
    best = calibrate(target, prior=prior, n_records=n, objective=objective)
    reached = loss(best.r, float((best.alpha - prior)[0]))
    for s in [0.0, *np.geomspace(1e-3, 1e3, 150)]:
        # Independent of the calibration's own root: tempering with the inflated prior.
        r = calibrate(target, prior=prior + s, mechanism=Dirichlet(strategy="temper")).r
        r = min(r, 1.0) if objective == "posterior" else r
        assert reached <= loss(r, s) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("objective", "prior"),
    [
        ("posterior", [0.78, 8.39, 8.06, 17.07, 0.99, 2.13]),
        ("estimate", [0.88, 0.06, 1.38, 18.38, 1.54]),
        ("estimate", [[1.0, 20.0, 5.0], [2.0, 1.0, 9.0]]),
        ("posterior", [1.0, 2.0, 3.0]),
    ],
)
def test_the_number_that_is_added_is_the_best(objective, prior):
    target, prior, n = ApproxDP(epsilon=5, delta=1e-6), np.array(prior), 300
    loss = getattr(PriorExpectedKL(prior, n), objective)

    def least(amount):
        """Tempering with the raised prior is independent of the search for the number."""
        r = calibrate(target, prior=prior + amount, mechanism=Dirichlet(strategy="temper")).r
        return loss(min(r, 1.0) if objective == "posterior" else r, amount)

    mechanism = calibrate(target, prior=prior, n_records=n, objective=objective)
    assert mechanism.satisfies(target)
    added = float((mechanism.alpha - prior).flat[0])
    np.testing.assert_allclose(mechanism.alpha, prior + added, rtol=1e-12)
    assert loss(mechanism.r, added) == pytest.approx(min(map(least, np.geomspace(1e-3, 1e2, 300))), rel=2e-3)
    assert getattr(a_priori_kl(mechanism, prior, n), objective) == pytest.approx(loss(mechanism.r, added), rel=1e-9)


def test_a_loose_guarantee_returns_the_posterior_unchanged():
    mechanism = calibrate(RenyiDP(order=1.5, epsilon=50), prior=[1, 2, 3], n_records=10)
    assert mechanism.r == 1.0
    np.testing.assert_array_equal(mechanism.alpha, [1, 2, 3])


def test_algorithm_1_is_p1s():
    target = RenyiDP(order=3, epsilon=0.2)
    mechanism = calibrate(target, prior=[7, 7], mechanism=Dirichlet(strategy="algorithm-1"))
    np.testing.assert_allclose(mechanism.alpha, 1 + 8 * mechanism.r)
    assert mechanism.satisfies(target)
    # P1's setters used alpha = prior + (order - 1) r: that breaks the guarantee, and the exact curve sees it.
    assert not DirichletMechanism(np.full(2, 1 + 2 * mechanism.r), mechanism.r).satisfies(target)
    with pytest.raises(UnattainableError, match="RenyiDP targets"):
        calibrate(TARGETS[0], prior=[1, 1], mechanism=Dirichlet(strategy="algorithm-1"))


@pytest.mark.parametrize("min_count", [0, 3, 1e10])
@pytest.mark.parametrize("epsilon", [1e-300, 1e-6, 1.0, 1e6, 1e200])
@pytest.mark.parametrize("order", [1, 1 + 1e-15, 2, 1e6, 1e300])
def test_the_bound_of_algorithm_1_at_its_root(order, epsilon, min_count):
    """By mpmath: the bound is at most epsilon, and reaches it; the product of its factors may be no double."""
    r = p1_theorem_1_concentration(order=order, epsilon=epsilon, min_count=min_count)
    with mpmath.workdps(40):
        x = 1 + mpmath.mpf(r) * (min_count + 3 * (mpmath.mpf(order) - 1))
        trigamma = mpmath.zeta(2, x) if x < 1e8 else 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3)
        assert 1 - 1e-9 < mpmath.mpf(order) * mpmath.mpf(r) ** 2 * trigamma / epsilon <= 1


UNBOUNDED = {
    PureDP(epsilon=1): ["geometric"],
    ZeroCDP(rho=1): ["gaussian", "geometric"],
    TruncatedCDP(rho=1, omega=math.inf): ["gaussian", "geometric"],
}


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.RepeatedReleaseWarning")
@pytest.mark.parametrize("target", UNBOUNDED, ids=str)
def test_what_no_draw_keeps_is_refused_before_any_count_is_read_with_noise_as_the_way_out(target, monkeypatch):
    """The advice of every refusal runs when it is copied."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=[1, 1, 1])
        pm.Multinomial("x", n=9, p=p, observed=[2, 3, 4])
    asked = [
        lambda **noise: dirdp.plan(target, model, **noise),
        lambda **noise: planned_sample(target, model, **noise),
        *(
            lambda how=how, **noise: calibrate(target, prior=[1, 1, 1], n_records=9, **({"mechanism": how} | noise))
            for how in (Dirichlet(strategy=strategy) for strategy in STRATEGIES)
        ),
    ]
    monkeypatch.setattr("pymc_dirdp.releases.release._read", lambda *_: pytest.fail("counts were read"))
    for ask in asked:
        with pytest.raises(UnattainableError, match="its loss is unbounded") as refusal:
            ask()
        advised = re.findall(r"mechanism='(\w+)'", str(refusal.value))
        assert advised == UNBOUNDED[target]
    monkeypatch.undo()
    for ask, noise in itertools.product(asked, UNBOUNDED[target]):
        assert ask(mechanism=noise)
    assert dirdp.plan(target, model, mechanism="auto").parts[0].mechanism.kind in UNBOUNDED[target]
    compared = dirdp.compare(target, prior=[1, 1, 1], n_records=9, simulations=5, progressbar=False)
    assert {"Dirichlet, optimal for the estimate", "Dirichlet, temper"} <= set(compared.unattainable)
    scored = {score.mechanism.split(",")[0] for score in compared.scores}
    assert {noise.capitalize() for noise in UNBOUNDED[target]} <= scored
    assert not DirichletMechanism([100, 100], 1e-6).satisfies(target)


def test_bad_arguments():
    target = TARGETS[0]
    with pytest.raises(ArgumentError, match="n_records="):
        calibrate(target, prior=[1, 1])
    with pytest.raises(ArgumentError, match="Did you mean 'inflate'"):
        calibrate(target, prior=[1, 1], n_records=5, mechanism=Dirichlet(strategy="inflated"))
    with pytest.raises(ArgumentError, match="Did you mean 'add-remove'"):
        calibrate(target, prior=[1, 1], n_records=5, adjacency="add_remove")
    with pytest.raises(ArgumentError, match="two categories"):
        calibrate(target, prior=[1], n_records=5)
    with pytest.raises(ArgumentError, match="n_records=0"):
        calibrate(target, prior=[1, 1], n_records=0, objective="estimate")
    for prior in ([0, 1], [-1, 1], [np.nan, 1], [np.inf, 1]):
        with pytest.raises(ArgumentError, match="prior"):
            calibrate(target, prior=prior, n_records=5)


positive = st.floats(1e-4, 1e3)


@settings(max_examples=30)
@given(
    target=st.one_of(
        st.builds(ApproxDP, epsilon=st.floats(0, 20), delta=st.floats(1e-15, 0.9)),
        st.builds(RenyiDP, order=st.floats(1, 500), epsilon=positive),
        st.builds(TruncatedCDP, rho=positive, omega=st.floats(1.001, 500)),
    ),
    prior=st.lists(st.floats(1e-2, 1e3), min_size=2, max_size=4),
    strategy=st.sampled_from(["temper", "inflate", "optimal"]),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    min_count=st.sampled_from([0.0, 1.0]),
)
def test_no_target_gives_an_unsafe_mechanism_or_a_foreign_error(target, prior, strategy, adjacency, min_count):
    try:
        mechanism = calibrate(
            target,
            prior=prior,
            n_records=50,
            mechanism=Dirichlet(strategy=strategy),
            adjacency=adjacency,
            min_count=min_count,
        )
    except DirdpError:
        return
    assert mechanism.satisfies(target)
    assert np.all(np.isfinite(mechanism.alpha))
