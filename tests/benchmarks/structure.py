"""What a structure that is chosen privately is worth: held-out records, at four guarantees, beside other structures.

`uv run -m tests.benchmarks.structure --data DIR` reads `adult.csv.gz`, `german_credit.csv.gz` and `networks.json` from
DIR. 70 % of the records are released as noisy marginals, fitted table by table, and 30 % are held out. The structures
are no edges at all, a tree that is chosen with a share of the same guarantee, the published network of P1 on the same
variables, and the best tree by the records themselves, which no guarantee covers. The numbers are means over splits of
the logarithm of the likelihood of a held-out record in nats, with their standard errors, and the mean number of edges.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np

import pymc_dirdp as dirdp
from examples.experiments.declared_data import read, train_and_test
from tests.planned import planned_sample

EPSILONS = (0.1, 0.3, 1.0, 3.0)
NAMES = ("german_credit", "adult")


def score(train, held_out, structure, categories, guarantee, after=None):
    model = dirdp.bayesian_network(train, structure, categories=categories)
    release = planned_sample(guarantee, model, mechanism="marginals", after=after, progressbar=False)
    edges = sum(map(len, dict(structure).values()))
    return dirdp.log_likelihood(release, held_out).mean(), edges


def one_split(train, held_out, network, categories, epsilon, shares):
    """A row for each structure: the log-likelihood, and the number of edges."""
    guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=1e-5)
    rows = {"no edges": score(train, held_out, dict.fromkeys(network, ()), categories, guarantee)}
    for share in shares:
        tree = dirdp.choose_structure(guarantee, train, categories=categories, share=share)
        rows[f"private tree, share {share:g}"] = score(train, held_out, tree, categories, guarantee, tree)
    rows["published network"] = score(train, held_out, network, categories, guarantee)
    best = dirdp.choose_structure(dirdp.PureDP(epsilon=1e4), train, categories=categories)
    rows["tree without privacy"] = score(train, held_out, dict(best), categories, guarantee)
    return rows


def run(folder, name, splits, shares, epsilons):
    network = json.loads((folder / "networks.json").read_text())[name]
    frame, categories, _ = read(folder, name)
    categories = {variable: list(categories[variable]) for variable in network}
    print(f"\n{name}, splits {splits[0]} to {splits[-1]}")
    print(f"{'epsilon':>7} {'structure':<25} {'log-likelihood':>15} {'edges':>6}")
    for epsilon in epsilons:
        found = []
        for split in splits:
            train, held_out = train_and_test(frame[list(network)], np.random.default_rng(split))
            found.append(one_split(train, held_out, network, categories, epsilon, shares))
        for way in found[0]:
            values = np.array([rows[way] for rows in found])
            mean, edges = values.mean(axis=0)
            error = values[:, 0].std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else np.nan
            print(f"{epsilon:>7g} {way:<25} {mean:>8.3f} ± {error:<4.3f} {edges:>6.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the number of the first split")
    parser.add_argument("--epsilon", type=float, action="append", help="all four if none is given")
    parser.add_argument("--name", choices=NAMES, action="append", help="one of the data sets")
    parser.add_argument("--share", type=float, action="append", help="of the structure; the default if none is given")
    given = parser.parse_args()
    # Every release here is of the same people, and none is published.
    warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
    for name in given.name or NAMES:
        splits = range(given.first, given.first + given.splits)
        run(given.data, name, splits, given.share or [0.25], given.epsilon or EPSILONS)
