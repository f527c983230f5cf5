"""Rewards of one to five stars: the regret of a coin beside that of released counts, at the same guarantees.

`uv run python -m benchmarks.star_rewards > benchmarks/star_rewards.csv` computes the file in a
quarter of an hour.
"""

import argparse
import csv
import itertools
import sys

import numpy as np

import pymc_dirdp as dirdp

SEED, HORIZON = 20261126, 10**5
STARS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
# The best arm has a mean of 3.75 stars; the other one of what its name says.
BEST = (0.05, 0.10, 0.20, 0.35, 0.30)
OTHERS = {"3.35": (0.10, 0.15, 0.25, 0.30, 0.20), "3.58": (0.07, 0.12, 0.22, 0.34, 0.25)}
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
COLUMNS = ("other", "epsilon", "reward", "runs", *QUANTILES, "mean")


def row(other, epsilon, reward, n_runs):
    """Quantiles of the regret at the horizon, in the difference of one and five stars."""
    options = {} if reward == "coin" else {"mechanism": reward}
    policy = dirdp.ThompsonSampler(["best", "other"], dirdp.PureDP(epsilon=epsilon), utilities=STARS, **options)
    arms = [BEST, OTHERS[other]]
    runs = dirdp.simulate_bandit(policy, arms, HORIZON, n_runs, random_seed=SEED, progressbar=False)
    last = runs.regret[:, -1]
    numbers = (*np.quantile(last, list(QUANTILES.values())), last.mean())
    return other, epsilon, reward, n_runs, *(f"{number:.1f}" for number in numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    chosen = parser.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for setting in itertools.product(OTHERS, chosen.epsilons, ("coin", "counts")):
        writer.writerow(row(*setting, chosen.runs))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
