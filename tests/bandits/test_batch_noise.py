"""The loss of a whole run is that of one noisy sum: every transcript of short runs is enumerated."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import betaln

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_noise import BatchNoise
from pymc_dirdp.bandits.beliefs import Belief, best_probabilities
from pymc_dirdp.bandits.store import OpenBatch

LABELS = "abc"
PROMISE = dirdp.PureDP(epsilon=1.0)


class Recorded(dirdp.ThompsonSampler):
    """The sampler itself, but its sums are written down and not released."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.totals = []
        self._run._close_if_full = self._note_if_full

    def _note_if_full(self, arm):
        state = self._run.state
        batch = state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in state.released[arm]))
        if self._ends(batch, size):
            self.totals.append((arm, self._total(arm, batch), batch.pulls))
            state.released[arm].append((batch.pulls, batch.sum))
            state.open[arm] = OpenBatch()

    def _ends(self, batch, size):
        return batch.pulls >= size

    def _total(self, arm, batch):
        return batch.sum


class EndsOnSuccess(Recorded):
    def _ends(self, batch, size):
        return batch.pulls >= size or batch.sum > 0


class Cumulative(Recorded):
    def _total(self, arm, batch):
        return batch.sum + sum(total for _, total in self._run.state.released[arm])


def test_the_recorder_ends_batches_where_the_sampler_does():
    """What is enumerated below is the rule of the real class; that of a mutant is another one."""
    sizes = {}
    for kind in (dirdp.ThompsonSampler, Recorded, EndsOnSuccess):
        bandit = kind(["a", "b"], PROMISE, first_batch=2)
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


def transcripts(kind, table, first_batch):
    """The probability of all actions and releases for one table of rewards, shape (rounds, arms)."""
    law = {}
    arms = len(table[0])
    for actions in itertools.product(range(arms), repeat=len(table)):
        bandit = kind(list(LABELS[:arms]), PROMISE, first_batch=first_batch)
        noise, ends = bandit.design.mechanism, []
        for t, arm in enumerate(actions):
            bandit.totals = []
            bandit.update(LABELS[arm], table[t][arm])
            ends.append(tuple(bandit.totals))
        spans = [classes(size if kind is not Cumulative else len(table)) for one in ends for *_, size in one]
        for outputs in itertools.product(*spans):
            log_p, histories, left = 0.0, [()] * arms, list(outputs)
            for arm, released in zip(actions, ends, strict=True):
                log_p += math.log(chances(noise, tuple(histories))[arm])
                for k, total, size in released:
                    z = left.pop(0)
                    log_p += log_output(z, total, size if kind is not Cumulative else len(table), noise)
                    histories[k] = (*histories[k], (size, min(max(z, -1), size + 1)))
            law[actions, tuple(len(one) for one in ends), outputs] = log_p
    return law


def neighbours(rounds, arms=2, bases=None):
    """Pairs of tables that differ in the rewards of one round: all pairs, or those of some random tables."""
    rows = list(itertools.product((0, 1), repeat=arms))
    tables = itertools.product(rows, repeat=rounds)
    if bases is not None:
        rng = np.random.default_rng(3)
        tables = [tuple(rows[i] for i in rng.integers(len(rows), size=rounds)) for _ in range(bases)]
    for table in tables:
        for t, row in itertools.product(range(rounds), rows):
            if row > table[t] or (bases is not None and row != table[t]):
                yield table, (*table[:t], row, *table[t + 1 :])


def largest_losses(kind, rounds, first_batch, **chosen):
    laws = {}
    worst, worst_of_actions = 0.0, 0.0
    for x, y in neighbours(rounds, **chosen):
        for table in (x, y):
            if table not in laws:
                laws[table] = transcripts(kind, table, first_batch)
                assert math.fsum(map(math.exp, laws[table].values())) == pytest.approx(1, abs=1e-12)
        p, q = laws[x], laws[y]
        if p.keys() != q.keys():
            return math.inf, math.inf
        worst = max(worst, max(abs(p[key] - q[key]) for key in p))
        of_actions = [{}, {}]
        for law, sums in zip((p, q), of_actions, strict=True):
            for (actions, *_), log_p in law.items():
                sums[actions] = sums.get(actions, 0.0) + math.exp(log_p)
        first, second = of_actions
        worst_of_actions = max(worst_of_actions, max(abs(math.log(first[a] / second[a])) for a in first))
    return worst, worst_of_actions


@pytest.mark.parametrize("first_batch", [1, 2])
def test_a_whole_run_loses_what_one_release_loses(first_batch):
    all_of_it, actions = largest_losses(Recorded, 3, first_batch)
    loss = BatchNoise.for_guarantee(PROMISE).pure_epsilon
    assert all_of_it == pytest.approx(loss, abs=1e-12)
    assert actions <= loss


@pytest.mark.thorough
@pytest.mark.parametrize("first_batch", [1, 2])
def test_four_rounds_lose_no_more_than_three(first_batch):
    all_of_it, actions = largest_losses(Recorded, 4, first_batch)
    loss = BatchNoise.for_guarantee(PROMISE).pure_epsilon
    assert all_of_it == pytest.approx(loss, abs=1e-12)
    assert actions <= loss


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "arms", "bases"), [(5, 2, 1), (4, 3, 1)])
def test_more_rounds_or_arms_lose_no_more(rounds, arms, bases):
    all_of_it, actions = largest_losses(Recorded, rounds, 1, arms=arms, bases=bases)
    loss = BatchNoise.for_guarantee(PROMISE).pure_epsilon
    assert all_of_it == pytest.approx(loss, abs=1e-12)
    assert actions <= loss


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


def test_its_curves_are_those_of_one_cell_of_geometric_noise():
    noise, q = BatchNoise(2.0), math.exp(-0.5)
    g = np.arange(-200, 201)
    p = (1 - q) / (1 + q) * q ** np.abs(g)
    shifted = (1 - q) / (1 + q) * q ** np.abs(g - 1)
    for epsilon in (0.0, 0.2, 0.4):
        assert noise.delta(epsilon) == pytest.approx(np.maximum(p - math.exp(epsilon) * shifted, 0).sum(), rel=1e-12)
    assert noise.renyi(3) == pytest.approx(np.log((p**3 / shifted**2).sum()) / 2, rel=1e-12)


@pytest.mark.parametrize(("rounds", "printed"), [(2, 0.69), (3, 1.79), (4, 3.18), (5, 4.79)])
def test_sampling_without_noise_loses_more_with_every_round(rounds, printed):
    """The exact loss of plain Thompson sampling with two arms, over all tables of rewards; no noise is added at all."""

    @cache
    def first_is_chosen(a, b, c, d):
        # P[Beta(a, b) > Beta(c, d)] for whole parameters, as a sum.
        i = np.arange(a)
        return float(np.exp(betaln(c + i, b + d) - np.log(b + i) - betaln(1 + i, b) - betaln(c, d)).sum())

    def log_law(table):
        law = {}
        for actions in itertools.product((0, 1), repeat=rounds):
            seen, log_p = [[1, 1], [1, 1]], 0.0
            for row, arm in zip(table, actions, strict=True):
                # Arm 0 beats arm 1.
                first = 1 - first_is_chosen(*seen[1], *seen[0])
                log_p += math.log(first if arm == 0 else 1 - first)
                seen[arm][1 - row[arm]] += 1
            law[actions] = log_p
        return law

    laws = {}
    worst = 0.0
    for x, y in neighbours(rounds):
        p, q = (laws.setdefault(table, log_law(table)) for table in (x, y))
        worst = max(worst, max(abs(p[actions] - q[actions]) for actions in p))
    assert worst == pytest.approx(printed, abs=0.006)
