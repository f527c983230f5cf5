"""How often intervals of a wide table cover: shares of the population that records are from, and counts of the records.

`uv run -m benchmarks.wide_intervals --folder DIR` takes tables of `wide_sources.py`, whose files DIR has, as
populations, and mixtures that are drawn from the model's own prior. From each N records are drawn, all columns and
pairs are measured under add-remove at delta 1e-6, and intervals of 95 % of all cells of all pairs are compared with
what is true. `wide_intervals.csv` has, for each setting, the share of cells that are covered: of shares and of counts,
of all cells and of those that hold records, and of single columns; and the length of intervals of shares beside those
of noisy counts alone.
"""

import argparse
import csv
import itertools
import math
from pathlib import Path

import numpy as np

import pymc_dirdp as dirdp
from benchmarks.wide_sources import SOURCES
from pymc_dirdp.inference.mixture import COMMON_SD, COMPONENTS, RANK, SLOPE_SD, Mixture
from pymc_dirdp.inference.mixture_intervals import FitErrors
from pymc_dirdp.releases.opened import content_of

HERE = Path(__file__).parent
SIZES, EPSILONS = (500, 5000, 50_000), (0.1, 0.3, 1.0, 3.0)
PRIOR = "prior"
COLUMNS = 8
"""Of each table the first ones with at most forty categories, and as many of a mixture from the prior."""
HEADING = ("data", "records", "epsilon", "releases", "shares", "counts", "occupied", "columns", "length")


def population(folder, data, rng):
    """Records that any number can be drawn from, and the lengths of their columns."""
    if data == PRIOR:
        lengths = tuple(int(length) for length in rng.integers(2, 9, size=COLUMNS))
        logits = rng.standard_normal((COMPONENTS, RANK)) @ (SLOPE_SD * rng.standard_normal((RANK, sum(lengths))))
        weights = np.exp(logits + COMMON_SD * rng.standard_normal(sum(lengths)))
        parts = np.split(weights, np.cumsum(lengths)[:-1], axis=1)
        mixture = Mixture(lengths, np.concatenate([p / p.sum(axis=1, keepdims=True) for p in parts], axis=1))
        component = rng.integers(COMPONENTS, size=400_000)
        u = rng.random((len(lengths), len(component), 1))
        drawn = [(u[i] > np.cumsum(p, axis=1)[component, :-1]).sum(axis=1) for i, p in enumerate(mixture.by_column)]
        return np.stack(drawn, axis=1), lengths
    frame, categories = SOURCES[data](folder)
    chosen = [name for name, labels in categories.items() if len(labels) <= 40][:COLUMNS]
    return frame[chosen].to_numpy(), tuple(len(categories[name]) for name in chosen)


def covered(records, lengths, n, epsilon, seed):
    """Sums over cells of pairs, and of columns, of one release."""
    rng = np.random.default_rng([seed, n])
    drawn = records[rng.integers(len(records), size=n)]
    frame = {f"q{i}": drawn[:, i] for i in range(len(lengths))}
    categories = {f"q{i}": list(range(length)) for i, length in enumerate(lengths)}
    model = dirdp.latent_class(frame, categories=categories)
    guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    release = content_of(dirdp.sample(guarantee, model, adjacency="add-remove", progressbar=False))
    errors = FitErrors.of(release.noisy, release.mixture(), 0)
    found = {1: [], 2: []}
    for order in found:
        for columns in itertools.combinations(range(len(lengths)), order):
            shape = [lengths[i] for i in columns]
            if 1 in shape:
                continue
            estimate = errors.estimate(columns, [0.95])
            low, high = estimate.share_intervals[0].reshape(-1, 2).T
            truth, counts = (
                np.bincount(np.ravel_multi_index(one[:, columns].T, shape), minlength=math.prod(shape))
                for one in (records, drawn)
            )
            share = truth / len(records)
            ends = estimate.count_intervals[0].reshape(-1, 2).T
            alone = 2 * 1.96 * np.sqrt(release.noisy.variance + n * share * (1 - share)) / n
            in_shares, in_counts = (low <= share) & (share <= high), (ends[0] <= counts) & (counts <= ends[1])
            found[order] += [*zip(in_shares, in_counts, counts > 0, (high - low) / alone, strict=True)]
    pairs, columns = np.array(found[2], dtype=float), np.array(found[1], dtype=float)
    occupied = pairs[pairs[:, 2] > 0]
    return pairs[:, 0].mean(), pairs[:, 1].mean(), occupied[:, 0].mean(), columns[:, 0].mean(), pairs[:, 3].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--releases", type=int, default=4)
    asked = parser.parse_args()
    path = HERE / "wide_intervals.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADING)
        for n, data, epsilon in itertools.product(SIZES, (*SOURCES, PRIOR), EPSILONS):
            rows = []
            for seed in range(asked.releases):
                records, lengths = population(asked.folder, data, np.random.default_rng(seed))
                rows.append(covered(records, lengths, n, epsilon, seed))
            row = [data, n, epsilon, asked.releases, *(f"{value:.3f}" for value in np.mean(rows, axis=0))]
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()
