"""Draws for promises that only the counts of an urn keep."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln

import pymc_dirdp as dirdp
from pymc_dirdp import PureDP, TruncatedCDP, UnattainableError, ZeroCDP
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.planning.simulated import a_priori_kl, predicted_data, simulated_draw_kl
from pymc_dirdp.planning.urn_steps import needs_urn
from pymc_dirdp.privacy.contribution import Contribution

TARGETS = [PureDP(epsilon=1.0), PureDP(epsilon=0.1), ZeroCDP(rho=0.05), TruncatedCDP(rho=0.3, omega=math.inf)]


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("strategy", ["optimal", "temper", "inflate"])
def test_the_promise_holds_and_little_is_wasted(target, adjacency, strategy):
    for prior in ([1.0, 1.0, 1.0, 1.0], [[0.5, 2.0], [1.0, 3.0]]):
        options = {"prior": prior, "n_records": 300, "adjacency": adjacency, "strategy": strategy}
        chosen = calibrate(target, **options)
        assert chosen.satisfies(target)
        assert math.log2(chosen.urn_steps) % 1 == 0
        loss, allowed = chosen.loss(target)
        # A zCDP of an inflated prior, and of several rows, is that of a bound.
        assert loss >= 0.9 * allowed
        wider = DirichletMechanism(chosen.alpha, chosen.r * 1.001, adjacency=adjacency, urn_steps=chosen.urn_steps)
        assert not wider.satisfies(target) or chosen.r == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_random_pure_targets_hold_with_40_digits(seed):
    rng = np.random.default_rng(seed)
    prior, epsilon = 10 ** rng.uniform(-3, 1.5, rng.integers(2, 6)), float(10 ** rng.uniform(-2, 1))
    n = int(10 ** rng.uniform(0, 6))
    chosen = calibrate(PureDP(epsilon=epsilon), prior=prior, n_records=n)
    with mpmath.workdps(40):
        a, r, m = mpmath.mpf(float(chosen.alpha.min())), mpmath.mpf(chosen.r), chosen.urn_steps
        loss = mpmath.loggamma(a + r + m) - mpmath.loggamma(a + r) - mpmath.loggamma(a + m) + mpmath.loggamma(a)
        assert loss <= mpmath.mpf(epsilon)
        assert loss >= epsilon * (1 - 1e-8) or chosen.r == 1.0


def test_no_other_number_of_steps_is_much_better():
    prior, target, n = np.ones(4), PureDP(epsilon=1.0), 592
    best = calibrate(target, prior=prior, n_records=n, objective="estimate")
    data = predicted_data(prior, n)
    errors = {}
    for steps in (best.urn_steps // 8, best.urn_steps // 2, best.urn_steps, best.urn_steps * 2, best.urn_steps * 8):
        errors[steps] = min(simulated_draw_kl(_at(prior + s, steps, target), data) for s in (0.0, 0.25, 0.5, 1.0, 2.0))
    found = simulated_draw_kl(best, data)
    assert found <= 1.03 * min(errors.values())
    assert found < 0.9 * errors[best.urn_steps // 8]
    assert a_priori_kl(best, prior, n).estimate == pytest.approx(found, rel=0.03)


def _at(alpha, steps, target):
    """The mechanism with the largest r."""
    low, high = 1e-6, 100.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        keeps = DirichletMechanism(alpha, middle, urn_steps=steps).satisfies(target)
        low, high = (middle, high) if keeps else (low, middle)
    return DirichletMechanism(alpha, low, urn_steps=steps)


def test_a_loose_guarantee_gives_back_the_posterior():
    chosen = calibrate(PureDP(epsilon=30.0), prior=[1.0, 2.0], n_records=50)
    assert chosen.r == 1.0
    assert chosen.alpha.tolist() == [1.0, 2.0]


def test_people_with_several_records_and_blocks():
    for contribution in (3, Contribution(1, ("each",)), Contribution(2, ("own",))):
        chosen = calibrate(
            PureDP(epsilon=1.0), prior=np.ones((5, 3)), n_records=500, contribution=contribution, min_count=1
        )
        assert chosen.satisfies(PureDP(epsilon=1.0))
        assert chosen.min_count == 1
        assert chosen.contributed == Contribution.of(contribution).fitted((5, 3))


def test_a_public_row_of_two_cells():
    chosen = calibrate(ZeroCDP(rho=0.05), prior=[1, 1], n_records=200, public_totals=True)
    assert chosen.n_records == 200
    assert chosen.satisfies(ZeroCDP(rho=0.05))


def test_tables_and_draws_share_a_pure_guarantee():
    plan = dirdp.plan(PureDP(epsilon=2.0), _two_tables(), mechanism="dirichlet")
    losses = [part.mechanism.pure_epsilon for part in plan.parts]
    assert math.fsum(losses) <= 2.0
    assert math.fsum(losses) > 1.999
    assert plan.composition.satisfies(PureDP(epsilon=2.0))
    with pytest.warns(dirdp.ManyDrawsWarning):
        several = dirdp.plan(PureDP(epsilon=1.0), _two_tables(), mechanism="dirichlet", draws=4)
    assert several.composition.satisfies(PureDP(epsilon=1.0))


def _two_tables():
    import pymc as pm

    with pm.Model() as model:
        p, q = pm.Dirichlet("p", a=np.ones(3)), pm.Beta("q", 1, 1)
        pm.Multinomial("x", n=90, p=p, observed=[20, 30, 40])
        pm.Binomial("y", n=90, p=q, observed=60)
    return model


FINITE = [
    dirdp.ApproxDP(epsilon=1.0, delta=1e-6),
    dirdp.ApproxDP(epsilon=0.1, delta=1e-3),
    dirdp.RenyiDP(order=8, epsilon=0.5),
    pytest.param(TruncatedCDP(rho=0.05, omega=20), marks=pytest.mark.slow),
]


@pytest.mark.thorough
@pytest.mark.parametrize("target", FINITE, ids=str)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("prior", [np.full(6, 0.1), np.ones(4), np.full((3, 2), 0.2)], ids=["sparse", "flat", "rows"])
def test_the_best_number_of_steps_for_other_promises(target, adjacency, prior):
    options = {"prior": prior, "n_records": 1000, "adjacency": adjacency, "objective": "estimate"}
    drawn, chosen = (calibrate(target, **options, strategy=strategy) for strategy in ("optimal", "urn"))
    assert chosen.satisfies(target)
    # Where no number of steps is better it is the continuous draw, which has no number.
    assert chosen == drawn or chosen.urn_steps is not None
    data = predicted_data(prior, 1000, n_cells=50_000)
    errors = {name: simulated_draw_kl(one, data) for name, one in (("drawn", drawn), ("urn", chosen))}
    assert errors["urn"] <= 1.02 * errors["drawn"]
    if np.all(prior == 0.1) and target == FINITE[0]:
        assert errors["urn"] < 0.7 * errors["drawn"]
    if chosen.urn_steps is not None:
        loss, allowed = chosen.loss(target)
        # A delta may be 0 right below the epsilon at which nothing tells more.
        assert loss > 0.9 * allowed or chosen.pure_epsilon > 0.99 * target.budget


def test_posteriors_of_sparse_tables_are_closer_too():
    target, prior = FINITE[0], np.full(50, 0.2)
    drawn, chosen = (calibrate(target, prior=prior, n_records=2000, strategy=name) for name in ("optimal", "urn"))
    assert chosen.r <= 1
    assert a_priori_kl(chosen, prior, 2000).posterior < 0.7 * a_priori_kl(drawn, prior, 2000).posterior


def test_a_loose_promise_takes_the_posterior_itself():
    chosen = calibrate(dirdp.ApproxDP(epsilon=50.0, delta=1e-3), prior=[2.0, 3.0], n_records=50, strategy="urn")
    assert (chosen.r, chosen.urn_steps) == (1.0, None)


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.4, 1.5])
def test_no_neighbours_of_few_records_lose_more_than_is_promised(epsilon):
    """All tables of up to four records, and all outputs, from the law of the urn itself."""
    target = dirdp.ApproxDP(epsilon=epsilon, delta=1e-4)
    chosen = calibrate(target, prior=[0.2, 0.3, 0.5], n_records=40, strategy="urn", objective="estimate")
    assert chosen.urn_steps is not None
    m = chosen.urn_steps
    outputs = np.array([(i, j, m - i - j) for i in range(m + 1) for j in range(m + 1 - i)], dtype=float)

    def law(counts):
        u = chosen.alpha + chosen.r * np.array(counts, dtype=float)
        logs = gammaln(u + outputs) - gammaln(u) - gammaln(outputs + 1)
        return np.exp(logs.sum(axis=1) + gammaln(m + 1) + gammaln(u.sum()) - gammaln(u.sum() + m))

    worst = 0.0
    for n in range(1, 5):
        tables = [c for c in itertools.product(range(n + 1), repeat=3) if sum(c) == n]
        for x, y in itertools.permutations(tables, 2):
            if np.abs(np.subtract(x, y)).sum() == 2:
                worst = max(worst, float(np.maximum(law(x) - math.exp(epsilon) * law(y), 0).sum()))
    assert worst <= target.delta
    # Most of what is allowed is used up: one record in an empty table is the worst.
    assert worst > 0.2 * target.delta or 0.99 * epsilon < chosen.pure_epsilon <= epsilon


@pytest.mark.thorough
def test_a_release_of_the_best_number_of_steps():
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    plan = dirdp.plan(target, _sparse(), strategy="urn", objective="estimate")
    assert plan.parts[0].mechanism.urn_steps is not None
    release = dirdp.sample(plan, _sparse())
    text = str(dirdp.report(release, full=True))
    assert "urn, for the estimate" in text
    assert dirdp.verify(release)
    with pytest.raises(ArgumentError, match="leave urn_steps and strategy='urn' out"):
        dirdp.sample(plan, _sparse(), sampler="fast")


def _sparse():
    import pymc as pm

    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.full(6, 0.1))
        pm.Multinomial("x", n=1283, p=p, observed=[1000, 250, 33, 0, 0, 0])
    return model


def test_who_needs_an_urn():
    assert all(map(needs_urn, TARGETS))
    others = (dirdp.ApproxDP(epsilon=1, delta=1e-6), TruncatedCDP(rho=1, omega=9), dirdp.RenyiDP(order=50, epsilon=1))
    assert not any(map(needs_urn, others))
    assert calibrate(others[0], prior=[1, 1], n_records=9).urn_steps is None


def test_refusals():
    with pytest.raises(UnattainableError, match="RenyiDP targets"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=9, strategy="algorithm-1")
    with pytest.raises(ArgumentError, match="n_records=0"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=0, objective="estimate")
    with pytest.raises(ArgumentError, match="n_records"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=-1)
    assert calibrate(TARGETS[0], prior=[1, 1], n_records=0).satisfies(TARGETS[0])
    with pytest.raises(ArgumentError, match="n_records="):
        calibrate(FINITE[0], prior=[1, 1], strategy="urn")


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [[1e-3, 1e-3], np.full(1000, 0.5), [1e3, 1.0]])
def test_extreme_tables(prior):
    for n in (1, 10**7):
        for target in TARGETS:
            assert calibrate(target, prior=prior, n_records=n).satisfies(target)
