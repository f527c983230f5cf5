"""A private draw in every round: its guarantee for the horizon, what it costs, and the sampler that plays it."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.design import EveryRound
from pymc_dirdp.sampling.bits import Bits
from tests.oracles import dirichlet_renyi

GUARANTEE = dirdp.RenyiDP(epsilon=0.5, order=2)
APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
EVERY = {"schedule": "every-round"}


def divergence_of_a_run(policy, rounds):
    """Rényi divergence of all draws of one arm: the first reward is 0 or 1, and all others are 1. Oracle."""
    r, prior = policy.mechanism.r, np.array(policy.prior)
    # The draws before a round are made of the rewards of all earlier ones.
    counts = [(np.array([n, 0]), np.array([n - 1, 1])) for n in range(1, rounds)]
    return sum(dirichlet_renyi(2, r * x + prior, r * y + prior) for x, y in counts)


def test_all_rounds_together_keep_the_guarantee_and_without_composition_they_do_not():
    policy = EveryRound(GUARANTEE, horizon=8)
    assert policy.privacy.satisfies(GUARANTEE)
    assert divergence_of_a_run(policy, 8) <= 0.5
    alone = EveryRound(GUARANTEE, horizon=1)
    assert divergence_of_a_run(alone, 2) <= 0.5
    assert divergence_of_a_run(alone, 8) > 0.5


def test_a_draw_has_the_distribution_that_the_report_states():
    policy, bits = EveryRound(GUARANTEE, horizon=4, prior=(2.0, 1.0)), Bits(np.random.SeedSequence(5))
    draws = [policy.draw((10, 30), bits) for _ in range(200)]
    r = policy.mechanism.r
    assert stats.kstest(draws, stats.beta(30 * r + 2, 10 * r + 1).cdf).pvalue > 1e-3
    assert stats.kstest(draws, stats.beta(10 * r + 1, 30 * r + 2).cdf).pvalue < 1e-9


def test_it_is_for_one_horizon_and_has_no_pure_privacy():
    policy = EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=50)
    runs = dirdp.simulate_bandit(policy, [0.9, 0.1], 50, 30, random_seed=1, progressbar=False)
    assert (runs.pulls.sum(axis=1) == 50).all()
    assert (np.diff(runs.regret, axis=1) >= 0).all()
    for refused, message in (
        (lambda: dirdp.simulate_bandit(policy, [0.9, 0.1], 51, 2), "longer horizon"),
        (lambda: EveryRound(dirdp.PureDP(epsilon=1), horizon=10), "unbounded"),
        (lambda: EveryRound(GUARANTEE, 10, prior=(0, 1)), "prior"),
    ):
        with pytest.raises(dirdp.DirdpError, match=message):
            refused()
    assert math.isinf(EveryRound(GUARANTEE, 10).epsilon)


def test_it_plays_as_many_rounds_as_its_guarantee_is_for():
    ledger = dirdp.Ledger(APPROX, unit="reward")
    bandit = dirdp.ThompsonSampler(["a", "b"], APPROX, **EVERY, horizon=20, ledger=ledger)
    assert len(ledger.entries()) == 1
    assert bandit.privacy.satisfies(APPROX)
    chosen = []
    for _ in range(15):
        chosen.append(bandit.select())
        bandit.update(chosen[-1], int(chosen[-1] == "a"))
    chosen += bandit.select(size=4)
    with pytest.raises(dirdp.errors.ArgumentError, match="and 1 are left"):
        bandit.select(size=2)
    chosen.append(bandit.select())
    with pytest.raises(dirdp.errors.ArgumentError, match="for 20 rounds, and 0 are left"):
        bandit.select()
    released = bandit.released
    assert dict(released.sizes) == {"round": 20, "arm": 2}
    draws = released["draw"].values
    assert ((draws > 0) & (draws < 1)).all()
    # Draws are on a grid, so two may be equal.
    assert [draws[t, bandit.arms.index(arm)] for t, arm in enumerate(chosen)] == draws.max(axis=1).tolist()
    # Rewards that come late cost nothing, and the arms of a guarantee for a horizon stay.
    bandit.update("b", 0.5)
    with pytest.raises(dirdp.errors.ArgumentError, match="the arms cannot change"):
        bandit.add_arm("c")


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_draws_that_are_equal_choose_every_arm_as_often(monkeypatch):
    """A choice of the first of them would be another distribution than that of Thompson sampling."""
    for values, arms in (([0.5, 0.5, 0.5], "abc"), ([0.7, 0.2, 0.7], "ac")):
        draws = itertools.cycle(values)
        bandit = dirdp.ThompsonSampler(["a", "b", "c"], APPROX, **EVERY, horizon=300, random_seed=3)
        monkeypatch.setattr(type(bandit.design), "draw", lambda design, counts, bits, draws=draws: next(draws))
        chosen = bandit.select(size=300)
        assert set(chosen) == set(arms)
        assert all(abs(chosen.count(arm) - 300 / len(arms)) < 45 for arm in arms)


def test_its_report_says_what_it_costs_and_it_has_no_posterior_and_no_file(tmp_path):
    bandit = dirdp.ThompsonSampler(["a"], APPROX, **EVERY, horizon=100)
    bandit.update(["a"] * 3, [1, 1, 1])
    bandit.select()
    report = " ".join(str(dirdp.report(bandit, full=True)).split())
    width = f"as wide as a posterior of {bandit.design.mechanism.r:.3g} n rewards"
    for said in ("a run of at most 100 rounds", "100 draws share the guarantee", width, "1 of 100 are over"):
        assert said in report
    assert "any length" not in report
    assert "3" not in repr(vars(bandit._run)["state"])
    path, ledger = tmp_path / "bandit.db", dirdp.Ledger(APPROX)
    for refused, message in (
        (bandit.posterior, "no posterior"),
        (bandit.model, "no posterior"),
        (lambda: bandit.release_logp(None), "no posterior"),
        (bandit.transcript, "every-round"),
        (lambda: dirdp.ThompsonSampler(["a"], APPROX, **EVERY, horizon=9, path=path, ledger=ledger), "has no file"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            refused()
    assert ledger.entries() == ()
    assert not path.exists()


def test_options_that_do_not_go_together():
    of_batches = {"mechanism": "geometric", "first_batch": 4, "growth": 2.0, "contribution": 1}
    for options, message in (
        ({"schedule": "always"}, "schedule 'always'"),
        (EVERY, "Pass horizon="),
        (EVERY | {"horizon": 0}, "horizon"),
        ({"horizon": 10}, "horizon= is for schedule='every-round'"),
        *((EVERY | {"horizon": 3, name: value}, f"{name}= is for batches") for name, value in of_batches.items()),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.ThompsonSampler(["a"], APPROX, **options)
