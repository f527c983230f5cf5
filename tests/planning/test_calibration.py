"""Calibration keeps the guarantee, wastes nothing, and says why where it cannot."""

import itertools
import math
import re

import mpmath
import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import ApproxDP, DirdpError, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, calibrate
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import STRATEGIES, Dirichlet
from pymc_dirdp.planning.calibration import p1_theorem_1_concentration
from pymc_dirdp.planning.expected_kl import PriorExpectedKL, a_priori_kl
from pymc_dirdp.privacy.people import Contribution
from tests.planned import one_row, planned_sample

BOTH = ["gaussian", "geometric"]
UNBOUNDED = {PureDP(epsilon=1): BOTH[1:], ZeroCDP(rho=1): BOTH, TruncatedCDP(rho=1, omega=math.inf): BOTH}
OF_SIX = ("posterior", [0.78, 8.39, 8.06, 17.07, 0.99, 2.13])


@pytest.mark.parametrize("seed", range(12))
def test_every_strategy_is_safe_and_tight_and_the_optimal_one_is_the_best(seed):
    """Whatever is asked for; an error that is none of the library's is a failure."""
    rng = np.random.default_rng(seed)
    amount, delta, order = 10 ** rng.uniform([-4, -15, 0.001], [3, -0.05, 2.7])
    approximate = ApproxDP(epsilon=rng.uniform(0, 20), delta=delta)
    target = (approximate, RenyiDP(order=order, epsilon=amount), TruncatedCDP(rho=amount, omega=order))[seed % 3]
    prior = 10 ** rng.uniform(-2, 2.5, [2, 3, 5, (2, 2)][rng.integers(4)])
    options = {"n_records": [1, 30, 2000], "objective": ["posterior", "estimate"], "min_count": [0.0, 2.0]}
    options |= {"adjacency": ["replace-one", "add-remove"], "contribution": [1, 3]}
    options = {name: values[rng.integers(len(values))] for name, values in options.items()}
    facts = {name: options[name] for name in ("adjacency", "min_count", "contribution")}
    capped, errors = options["objective"] == "posterior", {}
    for strategy in ("optimal", "temper", "inflate"):
        try:
            found = calibrate(target, prior=prior, mechanism=Dirichlet(strategy=strategy), **options)
        except DirdpError:
            continue
        assert found.satisfies(target)
        assert (found.adjacency, found.min_count, found.contribution.records) == tuple(facts.values())
        s = float((found.alpha - prior).flat[0])
        assert s >= 0
        np.testing.assert_allclose(found.alpha - prior, s, atol=1e-9 * found.alpha.max())
        assert found.r <= 1 or strategy == "temper" or not capped
        # Only the posterior itself may have room left, and only where the prior needs nothing added.
        if found.r != 1:
            assert not DirichletMechanism(found.alpha, found.r * (1 + 1e-8), **facts).satisfies(target)
        elif s > 1e-9 * found.alpha.flat[0]:
            assert not DirichletMechanism(prior + s * (1 - 1e-6), 1.0, **facts).satisfies(target)
        r = min(found.r, 1.0) if capped else found.r
        errors[strategy] = getattr(PriorExpectedKL(prior, options["n_records"]), options["objective"])(r, s)
    # The search ends at 10**4 times the r of tempering, where the error hardly falls any more.
    assert errors.get("optimal", 0) <= min(errors.values(), default=0) * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize(("objective", "prior"), [OF_SIX, ("estimate", [[1.0, 20.0, 5.0], [2.0, 1.0, 9.0]])])
def test_the_number_that_is_added_is_the_best_of_a_fine_grid(objective, prior):
    target, prior, n = ApproxDP(epsilon=5, delta=1e-6), np.array(prior), 300
    loss = getattr(PriorExpectedKL(prior, n), objective)

    def error(amount):
        """Tempering with the raised prior is independent of the search for the number."""
        r = calibrate(target, prior=prior + amount, mechanism=Dirichlet(strategy="temper")).r
        return loss(min(r, 1.0) if objective == "posterior" else r, amount)

    found = calibrate(target, prior=prior, n_records=n, objective=objective)
    reached = loss(found.r, float((found.alpha - prior).flat[0]))
    assert reached <= min(map(error, [0.0, *np.geomspace(1e-3, 1e3, 40)])) * (1 + 1e-6)
    assert getattr(a_priori_kl(found, prior, n), objective) == pytest.approx(reached, rel=1e-9)


def test_ten_records_of_a_person_that_lose_more_when_they_are_spread():
    """The largest step where all are in one cell keeps less than the guarantee; that of all ways is safe and tight."""
    for target, prior, adjacency in (
        (ApproxDP(epsilon=2.77842, delta=0.000347991), [2.69, 0.12], "add-remove"),
        (ApproxDP(epsilon=6.68873, delta=0.00252689), [17.27, 0.24], "replace-one"),
    ):
        facts = {"adjacency": adjacency, "contribution": Contribution(10)}
        found = calibrate(target, prior=prior, n_records=500, mechanism=Dirichlet(strategy="temper"), **facts)
        assert found.satisfies(target)
        assert not DirichletMechanism(prior, found.r * (1 + 1e-6), **facts).satisfies(target)


def test_a_loose_guarantee_returns_the_posterior_unchanged_and_algorithm_1_is_p1s():
    mechanism = calibrate(RenyiDP(order=1.5, epsilon=50), prior=[1, 2, 3], n_records=10)
    assert (mechanism.r, mechanism.alpha.tolist()) == (1.0, [1, 2, 3])
    target = RenyiDP(order=3, epsilon=0.2)
    mechanism = calibrate(target, prior=[7, 7], mechanism=Dirichlet(strategy="algorithm-1"))
    np.testing.assert_allclose(mechanism.alpha, 1 + 8 * mechanism.r)
    assert mechanism.satisfies(target)
    # P1's setters used alpha = prior + (order - 1) r: that breaks the guarantee, and the exact curve sees it.
    assert not DirichletMechanism(np.full(2, 1 + 2 * mechanism.r), mechanism.r).satisfies(target)
    with pytest.raises(UnattainableError, match="RenyiDP targets"):
        calibrate(ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1], mechanism=Dirichlet(strategy="algorithm-1"))


@pytest.mark.parametrize("order", [1, 1 + 1e-15, 2, 1e6, 1e300])
def test_the_bound_of_algorithm_1_at_its_root(order):
    """By mpmath: the bound is at most epsilon, and reaches it; the product of its factors may be no double."""
    for epsilon, min_count in itertools.product([1e-300, 1.0, 1e200], [0, 3, 1e10]):
        r = p1_theorem_1_concentration(order=order, epsilon=epsilon, min_count=min_count)
        with mpmath.workdps(40):
            x = 1 + mpmath.mpf(r) * (min_count + 3 * (mpmath.mpf(order) - 1))
            trigamma = mpmath.zeta(2, x) if x < 1e8 else 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3)
            assert 1 - 1e-9 < mpmath.mpf(order) * mpmath.mpf(r) ** 2 * trigamma / epsilon <= 1


@pytest.mark.parametrize("target", UNBOUNDED, ids=str)
def test_what_no_draw_keeps_is_refused_before_any_count_is_read_with_noise_as_the_way_out(target, monkeypatch):
    """The advice of every refusal runs when it is copied."""
    model = one_row((2, 3, 4))
    table = {"prior": [1, 1, 1], "n_records": 9}
    asked = [lambda **noise: dirdp.plan(target, model, **noise), lambda **noise: planned_sample(target, model, **noise)]
    for how in STRATEGIES:
        drawn = {"mechanism": Dirichlet(strategy=how)}
        asked.append(lambda drawn=drawn, **noise: calibrate(target, **table, **(drawn | noise)))
    monkeypatch.setattr("pymc_dirdp.releases.release.count_readings", lambda *_: pytest.fail("counts were read"))
    for ask in asked:
        with pytest.raises(UnattainableError, match="its loss is unbounded") as refusal:
            ask()
        assert re.findall(r"mechanism='(\w+)'", str(refusal.value)) == UNBOUNDED[target]
    monkeypatch.undo()
    for ask, noise in itertools.product(asked[:3], UNBOUNDED[target]):
        assert ask(mechanism=noise)
    assert not DirichletMechanism([100, 100], 1e-6).satisfies(target)


def test_bad_arguments():
    for message, options in (
        ("n_records=", {"n_records": None}),
        ("Did you mean 'add-remove'", {"adjacency": "add_remove"}),
        ("two categories", {"prior": [1]}),
        ("n_records=0", {"n_records": 0, "objective": "estimate"}),
        ("prior", {"prior": [0, 1]}),
    ):
        with pytest.raises(ArgumentError, match=message):
            calibrate(ApproxDP(epsilon=1, delta=1e-6), **({"prior": [1, 1], "n_records": 5} | options))
    with pytest.raises(ArgumentError, match="Did you mean 'inflate'"):
        Dirichlet(strategy="inflated")
