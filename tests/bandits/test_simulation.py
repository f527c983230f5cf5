"""Policies of one's own, and what cannot be simulated."""

import numpy as np
import pytest

import pymc_dirdp as dirdp

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


def test_a_sampler_is_not_changed_and_what_it_learned_not_used():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE)
    bandit.update(["a"] * 100, [1] * 100)
    before = bandit.released
    common = {"horizon": 300, "n_runs": 10, "random_seed": 1, "progressbar": False}
    learned = dirdp.simulate_bandit(bandit, [0.5, 0.4], **common)
    fresh = dirdp.simulate_bandit(dirdp.ThompsonSampler(["a", "b"], GUARANTEE), [0.5, 0.4], **common)
    assert np.array_equal(learned.regret, fresh.regret)
    assert bandit.released.equals(before)
