"""Draws for guarantees that only the counts of an urn keep."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import rel_entr

import pymc_dirdp as dirdp
from pymc_dirdp import PureDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.calibration import _downhill, needs_urn
from pymc_dirdp.planning.expected_kl import a_priori_kl, predicted_data
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.people import Contribution

TARGETS = [PureDP(epsilon=1.0), PureDP(epsilon=0.1), ZeroCDP(rho=0.05), TruncatedCDP(rho=0.3, omega=math.inf)]


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("strategy", ["optimal", "temper", "inflate"])
def test_the_guarantee_holds_and_little_is_wasted(target, adjacency, strategy):
    for prior in ([1.0, 1.0, 1.0, 1.0], [[0.5, 2.0], [1.0, 3.0]]):
        options = {"prior": prior, "n_records": 300, "adjacency": adjacency, "mechanism": Dirichlet(strategy=strategy)}
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
        errors[steps] = min(_draw_kl(_at(prior + s, steps, target), data) for s in (0.0, 0.25, 0.5, 1.0, 2.0))
    found = _draw_kl(best, data)
    assert found <= 1.03 * min(errors.values())
    assert found < 0.9 * errors[best.urn_steps // 8]
    assert a_priori_kl(best, prior, n).estimate == pytest.approx(found, rel=0.03)


def _draw_kl(mechanism, data):
    shares = mechanism.published_shares(data, np.random.default_rng(20261122))
    return rel_entr(data / data.sum(axis=-1, keepdims=True), shares).sum(axis=-1).mean()


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
    with pytest.warns(dirdp.errors.ManyDrawsWarning):
        several = dirdp.plan(PureDP(epsilon=1.0), _two_tables(), mechanism="dirichlet", draws=4)
    assert several.composition.satisfies(PureDP(epsilon=1.0))


def _two_tables():
    import pymc as pm

    with pm.Model() as model:
        p, q = pm.Dirichlet("p", a=np.ones(3)), pm.Beta("q", 1, 1)
        pm.Multinomial("x", n=90, p=p, observed=[20, 30, 40])
        pm.Binomial("y", n=90, p=q, observed=60)
    return model


def test_who_needs_an_urn():
    assert all(map(needs_urn, TARGETS))
    others = (dirdp.ApproxDP(epsilon=1, delta=1e-6), TruncatedCDP(rho=1, omega=9), dirdp.RenyiDP(order=50, epsilon=1))
    assert not any(map(needs_urn, others))
    assert calibrate(others[0], prior=[1, 1], n_records=9).urn_steps is None


def test_refusals():
    with pytest.raises(UnattainableError, match="RenyiDP targets"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=9, mechanism=Dirichlet(strategy="algorithm-1"))
    with pytest.raises(ArgumentError, match="n_records=0"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=0, objective="estimate")
    with pytest.raises(ArgumentError, match="n_records"):
        calibrate(TARGETS[0], prior=[1, 1], n_records=-1)
    assert calibrate(TARGETS[0], prior=[1, 1], n_records=0).satisfies(TARGETS[0])


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [[1e-3, 1e-3], np.full(1000, 0.5), [1e3, 1.0]])
def test_extreme_tables(prior):
    for n in (1, 10**7):
        for target in TARGETS:
            assert calibrate(target, prior=prior, n_records=n).satisfies(target)


def test_the_search_for_steps_goes_down_on_both_sides():
    """Oracle: the least of all powers of 2."""
    for least in range(4, 16):
        assert _downhill(lambda m, least=least: abs(math.log2(m) - least), 2**8, 2**14) == 2 ** min(least, 14)
