"""Simulated runs: policies of one's own, their distribution, what cannot be simulated, and the lower bound."""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.beliefs import Grid, best_probabilities
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.simulation import BatchSimulation, _subsample, divergence

GUARANTEE = dirdp.PureDP(epsilon=1.0)


class Uniform:
    """Pull every arm in turn."""

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


def round_by_round(design, means, horizon, n_runs, rng):
    """The pulls of each arm, one visitor after the other. Oracle."""
    arms, noise, grid = len(means), design.mechanism, Grid()
    prior = grid.log_prior(design.prior)

    @cache
    def log_likelihood(size, z):
        return noise.log_likelihood(z, size, grid.means)

    @cache
    def chances(histories):
        logs = np.stack([sum((log_likelihood(*one) for one in history), start=prior) for history in histories])
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return best_probabilities(weights / weights.sum(axis=1, keepdims=True))

    pulls = np.zeros((n_runs, arms), dtype=int)
    for run in range(n_runs):
        histories = [()] * arms
        open_pulls, sums = np.zeros(arms, dtype=int), np.zeros(arms, dtype=int)
        for _ in range(horizon):
            arm = int(rng.choice(arms, p=chances(tuple(histories))))
            pulls[run, arm] += 1
            open_pulls[arm] += 1
            sums[arm] += rng.random() < means[arm]
            size = design.next_size(sum(n for n, _ in histories[arm]))
            if open_pulls[arm] == size:
                # Two geometric variables, as the definition has it.
                q = np.exp(-1 / noise.scale)
                z = int(sums[arm] + rng.geometric(1 - q) - rng.geometric(1 - q))
                histories[arm] = (*histories[arm], (size, min(max(z, -1), size + 1)))
                open_pulls[arm] = sums[arm] = 0
    return pulls


@pytest.mark.thorough
def test_runs_have_the_distribution_of_single_rounds():
    """200 runs show a distribution function of the pulls that is off by .15."""
    means, horizon, design = (0.9, 0.5, 0.2), 40, Design(mechanism=BatchNoise(1.0), first_batch=3, growth=1.5)
    slow = round_by_round(design, means, horizon, 200, np.random.default_rng(4))
    quick = BatchSimulation(design).play(
        np.array(means), np.array([horizon // 2, horizon]), 2000, np.random.default_rng(5), progressbar=False
    )[1]
    assert (quick.sum(axis=1) == horizon).all()
    for arm in range(len(means)):
        assert stats.ks_2samp(slow[:, arm], quick[:, arm]).pvalue > 1e-3


def test_the_first_pulls_of_many_are_hypergeometric(monkeypatch):
    rng, distribution = np.random.default_rng(1), stats.hypergeom(10, 5, 4)
    for _ in range(2):
        drawn = np.array([_subsample(np.array([5, 0, 3, 2]), 4, rng) for _ in range(1500)])
        assert (drawn.sum(axis=1) == 4).all()
        assert drawn.mean(axis=0) == pytest.approx([2, 0, 1.2, 0.8], abs=0.1)
        seen = np.bincount(drawn[:, 0], minlength=5)
        assert stats.chisquare(seen[:5], 1500 * distribution.pmf(np.arange(5))).pvalue > 1e-6
        # Very many are drawn in another way.
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


# The constant of the lower bound.


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
