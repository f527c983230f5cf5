"""Coverage of the 95 % intervals of `dirdp.estimate` for releases of marginals, on 26 shapes of networks.

`uv run -m benchmarks.marginal_intervals [REPLICATES] [FIRST] [LAST]` prints two rows for each shape. Truths are
networks with the rows that the model declares, uniform a priori, and with effects that fall with the number of parents
(also with half and twice their size); records are drawn from them, and released with the noise that `plan` chose.
"""

import math
import sys
import time
from typing import Any

import numpy as np

import pymc_dirdp as dirdp
from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.inference.marginal_posterior import MarginalPosterior
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable
from pymc_dirdp.releases.draws import measurements_of_table
from pymc_dirdp.releases.predicting import simulated_network

CHAIN = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}
COLLIDER = {"a": [], "b": [], "c": ["a", "b"]}
CLASSIFIER = {"y": [], **{f"x{i}": ["y"] for i in range(8)}}
FULL = {"a": [], "b": ["a"], "c": ["a", "b"]}
ALONE = {"a": []}
PAIR = {"a": [], "b": ["a"]}
SCALES = (2.0, 0.5, 0.2, 0.1)

# Structure, numbers of values, records, guarantee, adjacency, and how much larger effects of several variables are.
APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
SHAPES: list[tuple[Any, ...]] = [
    (ALONE, (2,), 1000, APPROX, "replace-one", 1.0),
    (ALONE, (10,), 300, APPROX, "replace-one", 1.0),
    (ALONE, (40,), 5000, APPROX, "add-remove", 1.0),
    (CHAIN, (2, 2, 2, 2), 500, APPROX, "replace-one", 1.0),
    (CHAIN, (3, 4, 3, 2), 2000, APPROX, "replace-one", 1.0),
    (CHAIN, (2, 8, 2, 8), 2000, APPROX, "replace-one", 1.0),
    (CHAIN, (5, 2, 5, 2), 100000, dirdp.ApproxDP(epsilon=0.1, delta=1e-6), "replace-one", 1.0),
    (CHAIN, (6, 6, 6, 6), 20000, APPROX, "replace-one", 1.0),
    (CHAIN, (3, 3, 3, 3), 300, APPROX, "add-remove", 1.0),
    (COLLIDER, (2, 3, 2), 1000, APPROX, "replace-one", 1.0),
    (COLLIDER, (4, 4, 3), 10000, dirdp.ApproxDP(epsilon=3.0, delta=1e-6), "replace-one", 1.0),
    (COLLIDER, (3, 3, 2), 2000, APPROX, "add-remove", 1.0),
    (CLASSIFIER, (2,) + (3,) * 8, 2000, APPROX, "replace-one", 1.0),
    (CLASSIFIER, (3,) + (2,) * 8, 1000, dirdp.ApproxDP(epsilon=0.3, delta=1e-6), "replace-one", 1.0),
    (CLASSIFIER, (2,) + (4,) * 8, 20000, dirdp.ApproxDP(epsilon=0.1, delta=1e-6), "replace-one", 1.0),
    (FULL, (3, 3, 3), 3000, APPROX, "replace-one", 1.0),
    (FULL, (5, 4, 6), 5000, APPROX, "replace-one", 1.0),
    (FULL, (2, 2, 2), 300, dirdp.PureDP(epsilon=1.0), "replace-one", 1.0),
    (CHAIN, (3, 4, 3, 2), 2000, dirdp.PureDP(epsilon=1.0), "add-remove", 1.0),
    (COLLIDER, (3, 4, 3), 500, dirdp.ApproxDP(epsilon=10.0, delta=1e-6), "replace-one", 1.0),
    (COLLIDER, (3, 3, 3), 1000, dirdp.ApproxDP(epsilon=0.1, delta=1e-6), "replace-one", 1.0),
    (COLLIDER, (3, 3, 3), 1000, dirdp.ApproxDP(epsilon=0.5, delta=1e-6), "replace-one", 1.0),
    (COLLIDER, (3, 3, 3), 1000, dirdp.ApproxDP(epsilon=2.0, delta=1e-6), "replace-one", 1.0),
    (COLLIDER, (3, 3, 3), 10000, APPROX, "replace-one", 1.0),
    (PAIR, (4, 4), 500, dirdp.ApproxDP(epsilon=0.3, delta=1e-6), "replace-one", 1.0),
    (PAIR, (4, 4), 50000, dirdp.ApproxDP(epsilon=3.0, delta=1e-6), "replace-one", 1.0),
    # Effects of other sizes.
    (CHAIN, (3, 4, 3, 2), 2000, APPROX, "replace-one", 2.0),
    (CHAIN, (3, 4, 3, 2), 2000, APPROX, "replace-one", 0.5),
    (COLLIDER, (3, 3, 2), 2000, APPROX, "add-remove", 2.0),
]


def declared_network(
    axes: dict[str, tuple[tuple[str, int], ...]], n: int, rng: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Shares with rows that are uniform a priori, parents first, and counts of records that are drawn with them."""
    codes: dict[str, Array] = {}
    shares, counts = {}, {}
    for name, own in axes.items():
        *parents, variable = (axis for axis, _ in own)
        lengths = tuple(length for _, length in own)
        shares[name] = rng.dirichlet(np.ones(lengths[-1]), lengths[:-1])
        rows = shares[name][tuple(codes[parent] for parent in parents)]
        codes[variable] = np.minimum((rows.cumsum(axis=-1) < rng.random((n, 1))).sum(axis=-1), lengths[-1] - 1)
        cells = np.ravel_multi_index(tuple(codes[axis] for axis in (*parents, variable)), lengths)
        counts[name] = np.bincount(cells, minlength=math.prod(lengths)).reshape(lengths)
    return shares, counts


def coverage(
    shape: tuple[Any, ...], replicates: int, *, declared: bool, seed: int = 1
) -> tuple[list[float], list[float], float, float, str]:
    """Coverage of shares and counts of each release, seconds of a processor, effective draws, and the kind of noise."""
    structure, sizes, n, guarantee, adjacency, larger = shape
    categories = {name: list(range(size)) for name, size in zip(structure, sizes, strict=True)}
    records = {name: np.resize(values, n) for name, values in categories.items()}
    model = dirdp.bayesian_network(records, structure, categories=categories)
    planned = dirdp.plan(guarantee, model, mechanism="marginals", adjacency=adjacency)
    axes = {f"p_{v}": tuple((p, len(categories[p])) for p in (*parents, v)) for v, parents in structure.items()}
    rng = np.random.default_rng(seed)
    scales = (SCALES[0], *(larger * scale for scale in SCALES[1:]))
    shares, counts, seconds, worth = [], [], 0.0, math.inf
    for _ in range(replicates):
        if declared:
            true_shares, true_counts = declared_network(axes, n, rng)
        else:
            made = simulated_network(axes, n, rng, scales)
            true_shares, true_counts = made.shares, made.counts
        measured: list[Measurement] = []
        for part in planned.parts:
            name = part.table.name
            output = part.mechanism.draw(true_counts[name], 1, sampler="fast", random_seed=rng)
            measured += measurements_of_table(name, tuple(axis for axis, _ in axes[name]), part.mechanism, output)[1]
        start, covered, covered_counts = time.process_time(), [], []
        for name, own in axes.items():
            prior = np.ones([size for _, size in own])
            labels = tuple((axis, None) for axis, _ in own)
            public = n if adjacency == "replace-one" else None
            table = ObservedTable(
                name=name,
                prior=prior,
                n_records=public,
                cell_labels=labels,
                share_labels=labels,
                mechanism_names=(),
                observed=(),
                row_likelihoods=list,
                damaged=ReleaseError,
                measurements=measured,
            )
            found = MarginalPosterior(table, Beliefs()).estimate([0.95])
            low, high = found.share_intervals[0].T
            covered += list((low <= true_shares[name].ravel()) & (true_shares[name].ravel() <= high))
            low, high = found.count_intervals[0].T
            covered_counts += list((low <= true_counts[name].ravel()) & (true_counts[name].ravel() <= high))
            worth = min(worth, float(found.caveat.split("worth ")[1].split(";")[0]))
        seconds = max(seconds, time.process_time() - start)
        shares.append(float(np.mean(covered)))
        counts.append(float(np.mean(covered_counts)))
    return shares, counts, seconds, worth, planned.parts[0].mechanism.summary


if __name__ == "__main__":
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    first, last = (int(one) for one in sys.argv[2:4]) if len(sys.argv) > 3 else (0, len(SHAPES))
    for number, shape in enumerate(SHAPES[first:last], first):
        for declared in (True, False) if shape[5] == 1.0 else (False,):
            shares, counts, seconds, worth, noise = coverage(shape, replicates, declared=declared)
            errors = [np.std(values) / len(values) ** 0.5 for values in (shares, counts)]
            truth = "declared" if declared else f"effects x{shape[5]}"
            print(
                f"{number:2} {shape[1]!s:28} n {shape[2]:6} {shape[3]!s:16} {shape[4]:12} {truth:12}  "
                f"shares {100 * np.mean(shares):.1f} ± {100 * errors[0]:.1f}  "
                f"counts {100 * np.mean(counts):.1f} ± {100 * errors[1]:.1f}  {seconds:.2f} s  {worth:.0f}  "
                f"{noise[:60]}",
                flush=True,
            )
