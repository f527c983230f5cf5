"""What a structure with up to two parents for each variable would bring over a tree, on German credit.

`uv run -m tests.benchmarks.two_parents --data DIR` reads `german_credit.csv.gz` and `networks.json` from DIR.
Structures are grown as PrivBayes grows them (Zhang et al. 2017, https://doi.org/10.1145/3134428): the next variable and
its parents, which are among those before, have the best score. There are none, one or two parents at most:

- "not paid for" takes the mutual information of the records themselves, less a penalty for each free share. Of three
  penalties the one that is best for the held-out records counts, so it says more than any private choice could bring.
- "private" is the exponential mechanism with the score R of PrivBayes, whose sensitivity is 3 + 2 / n records. It takes
  half of epsilon, and the release has 87 % of it: the squares add up to the whole, as variances of losses do.

The numbers are means over splits of the logarithm of the likelihood of a held-out record in nats.
"""

import argparse
import itertools
import json
import math
import warnings
from pathlib import Path

import numpy as np

import pymc_dirdp as dirdp
from examples.experiments.declared_data import read, train_and_test
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition

DELTA, PENALTIES, SHARE = 1e-5, (1.0, 4.0, 16.0), 0.25


def joint(codes, sizes, axes):
    """The counts of the records by some variables; the last one is the last axis, and the others are the rows."""
    cell = np.ravel_multi_index([codes[axis] for axis in axes], [sizes[axis] for axis in axes])
    counts = np.bincount(cell, minlength=math.prod(sizes[axis] for axis in axes))
    return counts.reshape(-1, sizes[axes[-1]]).astype(float)


def information(table):
    """Records times mutual information in nats."""
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    here = table > 0
    return float(np.sum(table[here] * np.log(table[here] / expected[here])))


def distance(table):
    """Half the l1 distance from independence, less its mean for independent variables of equal shares."""
    n = table.sum()
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / n
    return 0.5 * float(np.abs(table - expected).sum() - math.sqrt(2 / math.pi * n * table.size))


def grown(codes, sizes, most, score, choose):
    """The parents of each variable, at most so many."""
    first = min(sizes, key=lambda name: -sizes[name])
    parents = {first: ()}
    tables = {}
    while len(parents) < len(sizes):
        candidates = [
            (*chosen, name)
            for name in sizes
            if name not in parents
            for many in range(most + 1)
            for chosen in itertools.combinations(parents, many)
        ]
        for axes in candidates:
            if axes not in tables:
                tables[axes] = score(joint(codes, sizes, axes), axes) if len(axes) > 1 else 0.0
        axes = candidates[choose(np.array([tables[axes] for axes in candidates]))]
        parents[axes[-1]] = axes[:-1]
    return parents


def not_paid(codes, sizes, most, penalty):
    half = 0.5 * math.log(len(next(iter(codes.values()))))

    def score(table, axes):
        return information(table) - penalty * half * (table.shape[0] - 1) * (table.shape[1] - 1)

    return grown(codes, sizes, most, score, np.argmax)


def private(codes, sizes, most, guarantee, rng):
    n = len(next(iter(codes.values())))
    part = guarantee.with_budget(guarantee.budget * math.sqrt(SHARE))

    def choice(inverse):
        return Composition(((BoundedRange(inverse), len(sizes) - 1),))

    width = largest_satisfying(lambda inverse: log_ratio_to_budget(*choice(inverse).loss(part)), rtol=1e-4)
    scale = 2 * (3 + 2 / n) / width

    def choose(scores):
        return int(np.argmax(scores / scale + rng.gumbel(size=scores.shape)))

    return grown(codes, sizes, most, lambda table, axes: distance(table), choose)


def worth(train, held_out, structure, categories, guarantee):
    ordered = {name: structure[name] for name in categories}
    model = dirdp.bayesian_network(train, ordered, categories=categories)
    release = dirdp.sample(guarantee, model, mechanism="marginals", progressbar=False)
    return dirdp.log_likelihood(release, held_out).mean()


def one_split(frame, categories, epsilon, split):
    rng = np.random.default_rng(split)
    train, held_out = train_and_test(frame, rng)
    guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=DELTA)
    sizes = {name: len(values) for name, values in categories.items()}
    codes = {
        name: np.array([categories[name].index(value) for value in np.asarray(train[name])]) for name in categories
    }
    rest = guarantee.with_budget(epsilon * math.sqrt(1 - SHARE))
    found = {"no edges": worth(train, held_out, dict.fromkeys(sizes, ()), categories, guarantee)}
    for most in (1, 2):
        unpaid = [not_paid(codes, sizes, most, penalty) for penalty in PENALTIES]
        found[f"{most}, not paid for"] = max(worth(train, held_out, one, categories, guarantee) for one in unpaid)
        chosen = private(codes, sizes, most, guarantee, rng)
        found[f"{most}, private"] = worth(train, held_out, chosen, categories, rest)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--name", default="german_credit", choices=("german_credit", "adult"))
    parser.add_argument("--epsilon", type=float, action="append", help="all four if none is given")
    given = parser.parse_args()
    # Every release here is of the same people, and none is published.
    warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
    network = json.loads((given.data / "networks.json").read_text())[given.name]
    frame, known, _ = read(given.data, given.name)
    categories = {variable: list(known[variable]) for variable in network}
    for epsilon in given.epsilon or (0.1, 0.3, 1.0, 3.0):
        rows = [one_split(frame[list(network)], categories, epsilon, split) for split in range(given.splits)]
        for way in rows[0]:
            values = np.array([row[way] for row in rows])
            error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            print(f"{epsilon:>5g} {way:<20} {values.mean():>8.3f} ± {error:.3f}", flush=True)
