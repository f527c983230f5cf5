"""Policies of one's own, and what cannot be simulated."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.beliefs import Grid, best_probabilities
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.simulation import BatchSimulation, _subsample

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


@pytest.mark.parametrize(
    ("policy", "means", "options", "message"),
    [
        ("thompson", [0.5, 0.4], {}, "ThompsonSampler"),
        (None, [0.5, 0.4, 0.3], {}, "one mean for each of 2 arms"),
        (None, [0.5, 1.5], {}, "means"),
        (None, [0.5, 0.4], {"horizon": 0}, "horizon"),
        (None, [0.5, 0.4], {"n_runs": 0}, "n_runs"),
        (None, [0.5, 0.4], {"checkpoints": [0]}, "checkpoints"),
        (None, [0.5, 0.4], {"checkpoints": [1000]}, "up to the horizon"),
    ],
)
def test_what_cannot_be_simulated(policy, means, options, message):
    policy = policy or dirdp.ThompsonSampler(["a", "b"], GUARANTEE)
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.simulate_bandit(policy, means, **({"horizon": 10, "n_runs": 2, "progressbar": False} | options))


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


@pytest.mark.parametrize(
    "n_runs", [pytest.param(200, marks=pytest.mark.thorough), pytest.param(1500, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("means", "scale", "horizon", "growth"), [((0.9, 0.5, 0.2), 2.0, 40, 2.0), ((0.7, 0.2), 0.5, 30, 0.5)]
)
def test_runs_have_the_distribution_of_single_rounds(means, scale, horizon, growth, n_runs):
    """1500 runs show a distribution function of the pulls that is off by .06; 200, by .15."""
    design = Design(mechanism=BatchNoise(scale), first_batch=3, growth=growth)
    slow = round_by_round(design, means, horizon, n_runs, np.random.default_rng(4))
    quick = BatchSimulation(design).play(
        np.array(means), np.array([horizon // 2, horizon]), 2000, np.random.default_rng(5), progressbar=False
    )[1]
    assert (quick.sum(axis=1) == horizon).all()
    for arm in range(len(means)):
        assert stats.ks_2samp(slow[:, arm], quick[:, arm]).pvalue > 1e-3


def test_the_first_pulls_of_many_are_hypergeometric(monkeypatch):
    rng, distribution = np.random.default_rng(1), stats.hypergeom(10, 5, 4)
    for _ in range(2):
        drawn = np.array([_subsample(np.array([5, 0, 3, 2]), 4, rng) for _ in range(4000)])
        assert (drawn.sum(axis=1) == 4).all()
        assert drawn.mean(axis=0) == pytest.approx([2, 0, 1.2, 0.8], abs=0.06)
        seen = np.bincount(drawn[:, 0], minlength=5)
        assert stats.chisquare(seen[:5], 4000 * distribution.pmf(np.arange(5))).pvalue > 1e-6
        # Very many are drawn in another way.
        monkeypatch.setitem(_subsample.__kwdefaults__, "max_count", 4)


@pytest.mark.parametrize(
    ("means", "horizon", "options"),
    [
        ([0.5, 0.4], 1000, {"first_batch": 10**18}),
        ([0.5, 0.4], 1000, {"growth": 1e300}),
        ([0.2, 0.9], 1, {}),
        ([0.0, 1.0], 2000, {}),
        ([1.0, 1.0], 2000, {}),
        ([0.004, 0.005], 2000, {}),
    ],
)
def test_batches_that_never_end_and_odd_means(means, horizon, options):
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, **options)
    runs = dirdp.simulate_bandit(bandit, means, horizon, 60, random_seed=2, progressbar=False)
    assert (runs.pulls.sum(axis=1) == horizon).all()
    assert np.isfinite(runs.regret).all()
    if options or horizon == 1:
        # Nothing is learned, so no arm is preferred.
        assert runs.pulls[:, 0].mean() / horizon == pytest.approx(0.5, abs=0.25 if horizon == 1 else 0.1)


def test_regret_is_within_a_third_of_the_lower_bound():
    """In the table of the documentation."""
    path = Path(__file__).parents[1] / "benchmarks" / "bandit_rivals.csv"
    table = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    ours = [one for one in table if one["policy"] == "private Thompson sampling (geometric)"]
    assert len(ours) == 30
    assert len(table) == 30 * 7
    assert max(float(one["median"]) / float(one["lower_bound"]) for one in ours) < 1.3


@pytest.mark.thorough
def test_a_row_of_the_table_is_what_the_simulation_gives():
    """The first means of the table at epsilon 1, in a million rounds."""
    path = Path(__file__).parents[1] / "benchmarks" / "bandit_rivals.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    (stored,) = [
        one
        for one in rows
        if (one["policy"], one["horizon"], one["means"]) == ("private Thompson sampling (geometric)", "1000000", "A")
        and float(one["epsilon"]) == 1.0
    ]
    bandit = dirdp.ThompsonSampler(range(5), GUARANTEE)
    means = [0.75, 0.625, 0.5, 0.375, 0.25]
    runs = dirdp.simulate_bandit(bandit, means, 10**6, 100, random_seed=1, progressbar=False)
    assert np.median(runs.regret[:, -1]) == pytest.approx(float(stored["median"]), rel=0.15)
