"""Simulated runs: policies of one's own, their distribution, what cannot be simulated, and the lower bound."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.simulation import _subsample, divergence

GUARANTEE = dirdp.PureDP(epsilon=1.0)
LEARNS = dirdp.ApproxDP(epsilon=50, delta=1e-2), {"schedule": "every-round", "horizon": 12}
STARS = {"utilities": {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}, "mechanism": "counts"}


class Uniform:
    name = "in turn"

    def play(self, means, checkpoints, n_runs, rng, *, progressbar):
        pulls = np.array([(checkpoints[-1] + len(means) - 1 - k) // len(means) for k in range(len(means))])
        return np.outer(np.ones(n_runs), checkpoints * (means.max() - means).mean()), np.tile(pulls, (n_runs, 1))


def test_a_policy_of_ones_own():
    runs = dirdp.simulate_bandit(Uniform(), [0.5, 0.3], 100, 3, checkpoints=[10, 50], progressbar=False)
    assert runs.checkpoints.tolist() == [10, 50, 100]
    assert runs.regret[:, -1] == pytest.approx(10)
    assert runs.epsilon == np.inf
    assert isinstance(Uniform(), dirdp.bandits.Policy)


def test_what_cannot_be_simulated():
    right = {"policy": dirdp.ThompsonSampler(["a", "b"], GUARANTEE), "means": [0.5, 0.4], "horizon": 10, "n_runs": 2}
    for options, message in (
        ({"policy": "thompson"}, "ThompsonSampler"),
        ({"means": [0.5, 0.4, 0.3]}, "one mean for each of 2 arms"),
        ({"means": [0.5, 1.5]}, "means"),
        ({"horizon": 0}, "horizon"),
        ({"checkpoints": [0]}, "checkpoints"),
        ({"checkpoints": [1000]}, "up to the horizon"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.simulate_bandit(**right | options)


def test_a_simulation_starts_anew_and_its_regret_is_that_of_the_pulls():
    bandit = dirdp.ThompsonSampler(list("abc"), GUARANTEE)
    bandit.update(["a"] * 100, [1] * 100)
    before, means = bandit.released, np.array([0.6, 0.5, 0.1])
    learned, fresh = (
        dirdp.simulate_bandit(one, means, 600, 30, random_seed=1, progressbar=False)
        for one in (bandit, dirdp.ThompsonSampler(list("abc"), GUARANTEE))
    )
    assert np.array_equal(learned.regret, fresh.regret)
    assert bandit.released.equals(before)
    assert fresh.regret[:, -1] == pytest.approx(fresh.pulls @ (0.6 - means))
    assert (np.diff(fresh.regret, axis=1) >= -1e-9).all()
    assert fresh.checkpoints[-1] == 600
    assert (fresh.pulls.sum(axis=1) == 600).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("guarantee", "options", "shares", "rounds", "times", "n_runs"),
    [
        (GUARANTEE, {"first_batch": 3, "growth": 20.0}, [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]], 40, 100, 2000),
        (GUARANTEE, STARS, [[0, 0, 0.1, 0.3, 0.6], [0.5, 0.3, 0.2, 0, 0]], 50, 12, 40),
        (*LEARNS, [[0.1, 0.9], [0.9, 0.1]], 12, 20, 2000),
    ],
    ids=["batches", "counts", "every round"],
)
def test_the_simulation_is_the_sampler(guarantee, options, shares, rounds, times, n_runs):
    """Numbers of pulls, round by round with the sampler itself; a policy that learns nothing has others."""
    rng, labels, arms = np.random.default_rng(3), list(options.get("utilities", (0, 1))), range(len(shares))
    played = np.zeros((times, len(shares)), dtype=int)
    for pulls in played:
        bandit = dirdp.ThompsonSampler(list(arms), guarantee, **options)
        for _ in range(rounds):
            arm = bandit.select()
            pulls[arm] += 1
            bandit.update(arm, labels[rng.choice(len(labels), p=shares[arm])])
    means = shares if "utilities" in options else [share[1] for share in shares]
    runs = dirdp.simulate_bandit(bandit, means, rounds, n_runs, random_seed=4, progressbar=False)
    assert runs.means == pytest.approx(np.array(shares) @ np.linspace(0, 1, len(labels)))
    assert (runs.pulls.sum(axis=1) == rounds).all()
    for arm in arms:
        assert stats.ks_2samp(played[:, arm], runs.pulls[:, arm]).pvalue > 1e-4
    assert stats.ks_2samp(played[:, 0], rng.binomial(rounds, 1 / len(shares), size=4000)).pvalue < 1e-6


def test_the_first_pulls_of_many_are_hypergeometric(monkeypatch):
    rng, distribution = np.random.default_rng(1), stats.hypergeom(10, 5, 4)
    for _ in range(2):
        drawn = np.array([_subsample(np.array([5, 0, 3, 2]), 4, rng) for _ in range(1500)])
        assert (drawn.sum(axis=1) == 4).all()
        assert drawn.mean(axis=0) == pytest.approx([2, 0, 1.2, 0.8], abs=0.1)
        seen = np.bincount(drawn[:, 0], minlength=5)
        assert stats.chisquare(seen[:5], 1500 * distribution.pmf(np.arange(5))).pvalue > 1e-6
        monkeypatch.setitem(_subsample.__kwdefaults__, "max_count", 4)


def test_batches_that_never_end_and_odd_means():
    for means, horizon, options, off in (
        # Nothing is learned, so no arm is preferred.
        ([0.5, 0.4], 1000, {"first_batch": 10**18}, 0.1),
        ([0.5, 0.4], 1000, {"growth": 1e300}, 0.1),
        ([0.2, 0.9], 1, {}, 0.25),
        ([0.0, 1.0], 2000, {}, 1),
        ([1.0, 1.0], 2000, {}, 1),
        ([0.004, 0.005], 2000, {}, 1),
    ):
        bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, **options)
        runs = dirdp.simulate_bandit(bandit, means, horizon, 60, random_seed=2, progressbar=False)
        assert (runs.pulls.sum(axis=1) == horizon).all()
        assert np.isfinite(runs.regret).all()
        assert abs(runs.pulls[:, 0].mean() / horizon - 0.5) < off


def kl(z, y):
    return z * np.log(z / y) + (1 - z) * np.log((1 - z) / (1 - y))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
def test_the_divergence_is_the_least_of_all_means_between_two(epsilon):
    for x, y in ((0.2, 0.3), (0.05, 0.9), (0.49, 0.5), (1e-4, 0.01)):
        found = minimize_scalar(lambda z, x=x, y=y: epsilon * abs(z - x) + kl(z, y), bounds=(x, y), method="bounded")
        assert divergence(np.array([x]), y, epsilon)[0] == pytest.approx(min(found.fun, kl(x, y)), rel=1e-6)


def test_the_bound_is_that_of_lai_and_robbins_without_privacy_and_that_of_the_specification_with_it():
    means = [0.75, 0.5, 0.6]
    expected = sum((0.75 - mu) / kl(mu, 0.75) for mu in means[1:])
    for epsilon in (np.inf, 50.0):
        assert dirdp.bandits.bandit_lower_bound(means, epsilon) == pytest.approx(expected)
    for means, value in (([0.75, 0.625, 0.5, 0.375, 0.25], 576), ([0.75, 0.7, 0.7, 0.7, 0.7], 683)):
        assert dirdp.bandits.bandit_lower_bound(means, 0.1) * np.log(1e6) == pytest.approx(value, abs=0.6)
    assert dirdp.bandits.bandit_lower_bound([0.5, 0.5], 1.0) == 0
    assert dirdp.bandits.bandit_lower_bound([0.5, 0.4], 0.0) == np.inf
    for wrong in ([], [0.5], [0.0, 0.5], [1.0, 0.5], [0.5, np.nan], "ab", [[0.1, 0.2]]):
        with pytest.raises(dirdp.errors.ArgumentError, match="mean"):
            dirdp.bandits.bandit_lower_bound(wrong, 1.0)
