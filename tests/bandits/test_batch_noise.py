"""The loss of a whole run is that of one noisy sum: every transcript of short runs is enumerated."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.beliefs import Belief, best_probabilities
from pymc_dirdp.bandits.store import OpenBatch
from pymc_dirdp.sampling.bits import Bits

LABELS = "abc"
GUARANTEE = dirdp.PureDP(epsilon=1.0)


class Recorded(dirdp.ThompsonSampler):
    """The sampler itself, but its sums are written down and not released."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.totals = []
        self._run._closed = self._note_if_full

    def _note_if_full(self, state, arm):
        batch = state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in state.released[arm]))
        if self._ends(batch, size):
            self.totals.append((arm, self._total(arm, batch), batch.pulls))
            state.released[arm] = [*state.released[arm], (batch.pulls, batch.counts[1])]
            state.open[arm] = OpenBatch()
        return []

    def _ends(self, batch, size):
        return batch.pulls >= size

    def _total(self, arm, batch):
        return batch.counts[1]


class EndsOnSuccess(Recorded):
    def _ends(self, batch, size):
        return batch.pulls >= size or batch.counts[1] > 0


class Cumulative(Recorded):
    def _total(self, arm, batch):
        return batch.counts[1] + sum(total for _, total in self._run.state.released[arm])


def test_the_recorder_ends_batches_where_the_sampler_does():
    """What is enumerated below is the rule of the real class; that of a mutant is another one."""
    sizes = {}
    for kind in (dirdp.ThompsonSampler, Recorded, EndsOnSuccess):
        bandit = kind(["a", "b"], GUARANTEE, first_batch=2)
        for arm, reward in zip("aababbaaaa", [0, 1, 1, 0, 1, 1, 0, 1, 0, 1], strict=True):
            bandit.update(arm, reward)
        sizes[kind] = [[size for size, _ in batches] for batches in bandit._run.state.released]
    assert sizes[dirdp.ThompsonSampler] == sizes[Recorded] == [[2, 2], [2]]
    assert sizes[EndsOnSuccess] != sizes[Recorded]


def classes(size):
    """Outputs from -1 to size + 1; those beyond have the same ratio and the same posterior."""
    return range(-1, size + 2)


def log_output(z, total, size, noise):
    """Logarithm of the probability of an output, the ends taking all beyond. Oracle: sums of geometric masses."""
    q = math.exp(-1 / noise.scale)
    if z == -1:
        return (total + 1) * math.log(q) - math.log1p(q)
    if z == size + 1:
        return (size + 1 - total) * math.log(q) - math.log1p(q)
    return math.log((1 - q) / (1 + q)) + abs(z - total) * math.log(q)


@cache
def weights(noise, history):
    return Belief((1.0, 1.0), noise, history).weights


@cache
def chances(noise, histories):
    """The probability of each arm given what was released."""
    return best_probabilities(np.stack([weights(noise, one) for one in histories]))


def distribution_of_releases(kind, actions, rewards, arms, first_batch):
    """The joint log-probability of these actions and all releases, if these are the rewards of the chosen arms."""
    bandit, ends, distribution = kind(list(LABELS[:arms]), GUARANTEE, first_batch=first_batch), [], {}
    for arm, reward in zip(actions, rewards, strict=True):
        bandit.totals = []
        bandit.update(LABELS[arm], reward)
        ends.append(tuple(bandit.totals))
    most, noise = len(actions) if kind is Cumulative else None, bandit.design.mechanism
    spans = [classes(most or size) for one in ends for *_, size in one]
    for outputs in itertools.product(*spans):
        log_p, histories, left = 0.0, [()] * arms, list(outputs)
        for arm, released in zip(actions, ends, strict=True):
            log_p += math.log(chances(noise, tuple(histories))[arm])
            for k, total, size in released:
                z = left.pop(0)
                log_p += log_output(z, total, most or size, noise)
                histories[k] = (*histories[k], (size, min(max(z, -1), size + 1)))
        distribution[tuple(len(one) for one in ends), outputs] = log_p
    return distribution


def largest_losses(kind, rounds, first_batch, arms=2):
    """The largest loss of actions and releases together, and that of actions alone, over all tables of rewards.

    What the arms that are not chosen would have given changes nothing. So to go over the rewards of all chosen arms,
    for all actions, is to go over all tables.
    """
    worst, worst_of_actions, masses = 0.0, 0.0, {}
    for actions in itertools.product(range(arms), repeat=rounds):
        distributions = {
            rewards: distribution_of_releases(kind, actions, rewards, arms, first_batch)
            for rewards in itertools.product((0, 1), repeat=rounds)
        }
        for rewards, p in distributions.items():
            of_action = math.fsum(map(math.exp, p.values()))
            # The table in which all arms have these rewards.
            masses[rewards] = masses.get(rewards, 0.0) + of_action
            for t in np.flatnonzero(np.array(rewards) == 0):
                q = distributions[(*rewards[:t], 1, *rewards[t + 1 :])]
                if p.keys() != q.keys():
                    return math.inf, math.inf
                worst = max(worst, max(abs(p[key] - q[key]) for key in p))
                other = math.fsum(map(math.exp, q.values()))
                worst_of_actions = max(worst_of_actions, abs(math.log(of_action / other)))
    assert list(masses.values()) == pytest.approx([1] * 2**rounds, abs=1e-12)
    return worst, worst_of_actions


@pytest.mark.parametrize(("rounds", "arms", "first_batch"), [(3, 2, 1), (3, 2, 2)])
def test_a_whole_run_loses_what_one_release_loses(rounds, arms, first_batch):
    all_of_it, actions = largest_losses(Recorded, rounds, first_batch, arms)
    loss = BatchNoise.for_guarantee(GUARANTEE).pure_epsilon
    assert all_of_it == pytest.approx(loss, abs=1e-12)
    assert 0 < actions <= loss


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "arms", "first_batch"), [(4, 2, 1), (4, 2, 2), (5, 2, 1), (5, 2, 2), (4, 3, 1)])
def test_more_rounds_or_arms_lose_no_more(rounds, arms, first_batch):
    test_a_whole_run_loses_what_one_release_loses(rounds, arms, first_batch)


@pytest.mark.parametrize("mutant", [EndsOnSuccess, Cumulative])
def test_other_rules_lose_more(mutant):
    assert largest_losses(mutant, 3, 2 if mutant is EndsOnSuccess else 1)[0] > 1.5


def test_the_noise_is_the_least_that_keeps_the_guarantee():
    for guarantee in (
        dirdp.PureDP(epsilon=0.5),
        dirdp.ApproxDP(epsilon=0.5, delta=1e-6),
        dirdp.RenyiDP(epsilon=0.1, order=4),
        dirdp.ZeroCDP(rho=0.1),
    ):
        noise = BatchNoise.for_guarantee(guarantee)
        assert noise.satisfies(guarantee)
        assert not BatchNoise(noise.scale * (1 - 1e-9)).satisfies(guarantee)
        assert BatchNoise.for_guarantee(guarantee, rewards=3).satisfies(guarantee)
    assert BatchNoise.for_guarantee(dirdp.PureDP(epsilon=0.5)).scale == pytest.approx(2, rel=1e-9)
    assert BatchNoise.for_guarantee(dirdp.PureDP(epsilon=0.5), rewards=3).scale == pytest.approx(6, rel=1e-9)


REACH = 12
DRAWS = 12_000


def misfit(noise, scale):
    """The p-value of the distribution of geometric noise of a scale for many noises, by a chi-square test."""
    q = math.exp(-1 / scale)
    inside = [(1 - q) / (1 + q) * q ** abs(g) for g in range(-REACH, REACH + 1)]
    beyond = q ** (REACH + 1) / (1 + q)
    distribution = np.array([beyond, *inside, beyond])
    seen = np.bincount(np.clip(noise, -REACH - 1, REACH + 1) + REACH + 1, minlength=2 * REACH + 3)
    return stats.chisquare(seen, distribution * len(noise)).pvalue


def test_the_noise_has_its_scale_and_no_other():
    bits, noise = Bits(), BatchNoise(2.0)
    drawn = np.array([noise.release((5, 5), bits) for _ in range(DRAWS)]) - 5
    # By chance this fails once in a million runs, and scales that are wrong by 30 per cent are always found.
    assert misfit(drawn, 2.0) > 1e-6
    assert misfit(drawn, 1.4) < 1e-6
    assert misfit(drawn, 2.6) < 1e-6
    simulated = np.array([noise.simulated((5, 5), np.random.default_rng(k)) for k in range(DRAWS)]) - 5
    assert misfit(simulated, 2.0) > 1e-6
    assert misfit(simulated, 1.4) < 1e-6
    assert misfit(simulated, 2.6) < 1e-6


def dependence(sums):
    """The p-value of independence of the noise of neighbouring batches, by a table of signs."""
    signs = np.sign(sums) + 1
    table = np.zeros((3, 3))
    np.add.at(table, (signs[:-1:2], signs[1::2]), 1)
    return stats.chi2_contingency(table).pvalue


def sums_of_batches(first_batch=1, batches=4000):
    """Released sums of batches of a single reward 0: their noise alone."""
    bandit = dirdp.ThompsonSampler(["a"], dirdp.PureDP(epsilon=0.5), first_batch=first_batch, growth=1e-9)
    bandit.update(["a"] * batches, [0] * batches)
    return bandit.released["noisy_sum"].values


@pytest.mark.thorough
def test_no_noise_is_used_twice(monkeypatch):
    """A mutant that puts one noise on two batches gives away the difference of their sums."""
    sums = sums_of_batches()
    assert misfit(sums, 2.0) > 1e-6
    assert dependence(sums) > 1e-6
    real, earlier = BatchNoise.release, []

    def reused(self, counts, bits):
        if earlier:
            return counts[1] + earlier.pop()
        earlier.append(real(self, (0, 0), bits))
        return counts[1] + earlier[-1]

    monkeypatch.setattr(BatchNoise, "release", reused)
    sums = sums_of_batches()
    assert misfit(sums[::2], 2.0) > 1e-6
    assert dependence(sums) < 1e-6
    # With rewards 1 and 0 in neighbouring batches the difference is 1 in every pair: the loss is infinite.
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=1, growth=1e-9)
    bandit.update(["a"] * 20, [1, 0] * 10)
    assert (np.diff(bandit.released["noisy_sum"].values)[::2] == -1).all()


def test_its_curves_are_those_of_one_cell_of_geometric_noise():
    noise, q = BatchNoise(2.0), math.exp(-0.5)
    g = np.arange(-200, 201)
    p = (1 - q) / (1 + q) * q ** np.abs(g)
    shifted = (1 - q) / (1 + q) * q ** np.abs(g - 1)
    for epsilon in (0.0, 0.2, 0.4):
        assert noise.delta(epsilon) == pytest.approx(np.maximum(p - math.exp(epsilon) * shifted, 0).sum(), rel=1e-12)
    assert noise.renyi(3) == pytest.approx(np.log((p**3 / shifted**2).sum()) / 2, rel=1e-12)


def neighbours(rounds):
    """All pairs of tables of two arms that differ in the rewards of one round."""
    rows = list(itertools.product((0, 1), repeat=2))
    for table in itertools.product(rows, repeat=rounds):
        for t, row in itertools.product(range(rounds), rows):
            if row > table[t]:
                yield table, (*table[:t], row, *table[t + 1 :])


@pytest.mark.parametrize(("rounds", "printed"), [(2, 0.69), (3, 1.79), (4, 3.18), (5, 4.79)])
@pytest.mark.thorough
def test_sampling_without_noise_loses_more_with_every_round(rounds, printed):
    """The exact loss of plain Thompson sampling with two arms, over all tables of rewards; no noise is added at all."""

    @cache
    def first_is_chosen(a, b, c, d):
        # P[Beta(a, b) > Beta(c, d)] for whole parameters, as a sum.
        i = np.arange(a)
        return float(np.exp(betaln(c + i, b + d) - np.log(b + i) - betaln(1 + i, b) - betaln(c, d)).sum())

    def log_distribution(table):
        distribution = {}
        for actions in itertools.product((0, 1), repeat=rounds):
            seen, log_p = [[1, 1], [1, 1]], 0.0
            for row, arm in zip(table, actions, strict=True):
                # Arm 0 beats arm 1.
                first = 1 - first_is_chosen(*seen[1], *seen[0])
                log_p += math.log(first if arm == 0 else 1 - first)
                seen[arm][1 - row[arm]] += 1
            distribution[actions] = log_p
        return distribution

    distributions = {}
    worst = 0.0
    for x, y in neighbours(rounds):
        p, q = (distributions.setdefault(table, log_distribution(table)) for table in (x, y))
        worst = max(worst, max(abs(p[actions] - q[actions]) for actions in p))
    assert worst == pytest.approx(printed, abs=0.006)
