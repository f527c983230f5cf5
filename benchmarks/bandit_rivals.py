"""Private bandits of the literature beside ours.

`uv run python -m benchmarks.bandit_rivals > benchmarks/bandit_rivals.csv` computes the table in the
documentation, in half an hour; the same seed for all policies.

Each rival pulls one arm for a whole phase, so a run is simulated phase by phase, with the distribution of its rounds.
AdaP-KLUCB follows Azize and Basu (2022), DP-SE Sajed and Sheffet (2019), Lazy-DP-TS the description of Hu and Hegde
(2022). DP-KLUCB and DP-IMED are reconstructions from the abstract of Azize, Wu, Honda, Orabona, Ito and Basu (2025),
whose algorithms were not at hand.
"""

import argparse
import csv
import itertools
import math
import sys
from dataclasses import dataclass

import numpy as np

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.simulation import BatchSimulation, divergence

SEED = 20261121
COLUMNS = ("horizon", "means", "epsilon", "policy", "median", "trimmed_mean", "q05", "q95", "lower_bound")
MEANS = {"A": (0.75, 0.625, 0.5, 0.375, 0.25), "B": (0.75, 0.7, 0.7, 0.7, 0.7)}


def kl(x, y):
    x, y = np.clip(x, 1e-12, 1 - 1e-12), np.clip(y, 1e-12, 1 - 1e-12)
    return x * np.log(x / y) + (1 - x) * np.log((1 - x) / (1 - y))


def highest(means, level, information):
    """For each arm the largest q at or above its mean whose information is at most the level, by bisection."""
    low, high = np.clip(means, 0.0, 1.0), np.ones(len(means))
    for _ in range(50):
        middle = (low + high) / 2
        inside = information(means, middle) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


class Phases:
    """A policy that pulls one arm for a phase, and knows the noisy sum of each phase."""

    first = 1
    forgets = True

    def __init__(self, epsilon):
        self.epsilon = epsilon

    def play(self, means, checkpoints, n_runs, rng, *, progressbar):
        gaps, horizon = means.max() - means, int(checkpoints[-1])
        regret, pulls = np.zeros((n_runs, len(checkpoints))), np.zeros((n_runs, len(means)), dtype=np.int64)
        for run in range(n_runs):
            rounds, lost = [0.0], [0.0]
            for arm, length in self.phases(means, horizon, rng):
                length = min(length, horizon - int(rounds[-1]))
                pulls[run, arm] += length
                rounds.append(rounds[-1] + length)
                lost.append(lost[-1] + length * gaps[arm])
                if rounds[-1] >= horizon:
                    break
            regret[run] = np.interp(checkpoints, rounds, lost)
        return regret, pulls

    def noisy_sum(self, mean, length, rng):
        q = math.exp(-self.epsilon)
        return rng.binomial(length, mean) + int(rng.geometric(1 - q)) - int(rng.geometric(1 - q))

    def phases(self, means, horizon, rng):
        arms = len(means)
        sums, sizes, done = np.zeros(arms), np.zeros(arms), 0
        for arm in range(arms):
            sums[arm], sizes[arm] = self.noisy_sum(means[arm], self.first, rng), self.first
            done += self.first
            yield arm, self.first
        while True:
            arm = int(np.argmax(self.index(sums / sizes, sizes, done, rng)))
            length = int(2 * sizes[arm] if self.forgets else sizes[arm])
            total = self.noisy_sum(means[arm], length, rng)
            if self.forgets:
                sums[arm], sizes[arm] = total, length
            else:
                sums[arm], sizes[arm] = sums[arm] + total, sizes[arm] + length
            done += length
            yield arm, length


class AdaP(Phases):
    name = "AdaP-KLUCB"

    def index(self, means, sizes, done, rng):
        level = 3.1 * math.log(done)
        return highest(np.clip(means + level / (self.epsilon * sizes), 0, 1), level / sizes, kl)


class LazyTS(Phases):
    name = "Lazy-DP-TS"

    def index(self, means, sizes, done, rng):
        raised = np.clip(means + 3 * math.log(done) / (self.epsilon * sizes), 0, 1)
        return rng.beta(raised * sizes + 1, (1 - raised) * sizes + 1)


class KLUCB(Phases):
    name = "DP-KLUCB (reconstruction)"
    forgets = False

    def __init__(self, epsilon):
        super().__init__(epsilon)
        self.first = math.ceil(1 / epsilon)

    def index(self, means, sizes, done, rng):
        clipped = np.clip(means, 1e-9, 1 - 1e-9)

        def information(x, y):
            return divergence(x, np.minimum(y, 1 - 1e-12), self.epsilon)

        return highest(clipped, math.log(done) / sizes, information)


class IMED(KLUCB):
    name = "DP-IMED (reconstruction)"

    def index(self, means, sizes, done, rng):
        clipped = np.clip(means, 1e-9, 1 - 1e-9)
        return -(sizes * divergence(clipped, float(clipped.max()), self.epsilon) + np.log(sizes))


class Elimination(Phases):
    name = "DP-SE"

    def phases(self, means, horizon, rng):
        left, phase = list(range(len(means))), 0
        while True:
            phase += 1
            gap = 2.0**-phase
            if len(left) == 1:
                yield left[0], horizon
                continue
            log = math.log(8 * len(left) * phase**2 * horizon)
            log_noise = math.log(4 * len(left) * phase**2 * horizon)
            length = math.ceil(max(32 * log / gap**2, 8 * log_noise / (self.epsilon * gap))) + 1
            seen = []
            for arm in left:
                seen.append(self.noisy_sum(means[arm], length, rng) / length)
                yield arm, length
            width = math.sqrt(log / (2 * length)) + log_noise / (length * self.epsilon)
            left = [arm for arm, mean in zip(left, seen, strict=True) if max(seen) - mean <= 2 * width]


@dataclass(frozen=True)
class Ignoring:
    """Noise on each sum that the posterior knows nothing about."""

    noise: BatchNoise
    name = "noise ignored"
    worths = (0.0, 1.0)

    @property
    def largest_batch(self):
        return self.noise.largest_batch

    @property
    def pure_epsilon(self):
        return self.noise.pure_epsilon

    def simulated(self, counts, rng):
        return min(max(self.noise.simulated(counts, rng), 0), sum(counts))

    def log_likelihood(self, released, size, means):
        return released * np.log(means) + (size - released) * np.log1p(-means)


def policies(epsilon):
    noise = BatchNoise.for_guarantee(dirdp.PureDP(epsilon=epsilon))
    ours = Design(mechanism=noise, first_batch=noise.first_batch)
    ignoring = BatchSimulation(Design(mechanism=Ignoring(noise), first_batch=noise.first_batch))
    ignoring.name = "ours, noise ignored"
    return [ours, ignoring, *(kind(epsilon) for kind in (KLUCB, IMED, LazyTS, AdaP, Elimination))]


def row(policy, horizon, setting, epsilon, n_runs):
    """The regret of a policy at the horizon, over many runs."""
    means = MEANS[setting]
    runs = dirdp.simulate_bandit(policy, means, horizon, n_runs, random_seed=SEED, progressbar=False)
    last = np.sort(runs.regret[:, -1])
    cut = len(last) // 20
    bound = dirdp.bandits.bandit_lower_bound(means, epsilon) * math.log(horizon)
    numbers = (np.median(last), last[cut : len(last) - cut].mean(), *np.quantile(last, [0.05, 0.95]), bound)
    return horizon, setting, epsilon, runs.name, *(f"{number:.0f}" for number in numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--horizons", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.5, 1.0, 4.0, 10.0])
    chosen = parser.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for horizon, setting, epsilon in itertools.product(chosen.horizons, MEANS, chosen.epsilons):
        for policy in policies(epsilon):
            writer.writerow(row(policy, horizon, setting, epsilon, chosen.runs))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
