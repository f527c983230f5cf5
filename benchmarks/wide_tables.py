"""A wide table: how near synthetic records are to the real ones at each epsilon, and what columns cost.

`uv run -m benchmarks.wide_tables --folder DIR` reads the files of `wide_sources.py` from DIR, releases all pairs
of the columns under add-remove at delta 1e-6, and writes as many synthetic records as there are. Errors are total
variation between synthetic and real records: means over all pairs, over all triples, and over triples of up to 10,000
cells. Rows of this library in `wide_tables.csv` are written again, and those of others stay: AIM was implemented again
in NumPy from its paper (McKenna, Mullins, Sheldon and Miklau 2022) with a workload of all pairs and a model of up to
2 MB, and so was MST (McKenna, Miklau and Sheldon 2021). `wide_pair.csv` has one pair of
the first seed, true and private.

`--costs` measures made-up tables of 14, 58, 100 and 200 columns instead, each in a process of its own, and writes
`wide_costs.csv`.
"""

import argparse
import csv
import itertools
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import pymc_dirdp as dirdp
from benchmarks.wide_sources import SOURCES

HERE = Path(__file__).parent
OURS = "latent_class"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
HEADING = ("data", "epsilon", "seed", "method", "pairs", "triples", "small_triples", "seconds")
PAIR = ("education-num", "income>50K")
SIZES = ((14, 10), (58, 5), (100, 5), (200, 4))
"""Columns, and the categories of each."""


def shares(codes, lengths, columns):
    cells = np.ravel_multi_index([codes[i] for i in columns], [lengths[i] for i in columns])
    return np.bincount(cells, minlength=math.prod(lengths[i] for i in columns)) / len(cells)


def errors(records, synthetic, lengths):
    """Mean total variation of pairs, of triples, and of triples of up to 10,000 cells."""
    found = {}
    for k in (2, 3):
        for columns in itertools.combinations(range(len(lengths)), k):
            distance = np.abs(shares(records, lengths, columns) - shares(synthetic, lengths, columns)).sum() / 2
            found[columns] = distance, math.prod(lengths[i] for i in columns)
    pairs, triples = ([value for columns, value in found.items() if len(columns) == k] for k in (2, 3))
    means = [np.mean([distance for distance, _ in some]) for some in (pairs, triples)]
    return [*means, np.mean([distance for distance, cells in triples if cells <= 10_000])]


def accuracy(folder, data, seeds, epsilons):
    frame, categories = SOURCES[data](folder)
    lengths = list(map(len, categories.values()))
    records = frame.to_numpy().T
    model = dirdp.latent_class(frame, categories=categories)
    rows, pair = [], {"true": frame.groupby(PAIR[0])[PAIR[1]].mean()} if data == "adult" else {}
    rng = np.random.default_rng(0)
    again = records[:, rng.integers(len(frame), size=len(frame))]
    for name, other in (("bootstrap", again), ("independent", np.stack([rng.permutation(c) for c in records]))):
        rows.append([data, "", "", name, *errors(records, other, lengths), 0.0])
    for epsilon, seed in itertools.product(epsilons, seeds):
        started = time.process_time()
        guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
        release = dirdp.sample(guarantee, model, adjacency="add-remove", progressbar=False)
        fit = dirdp.fit(release, random_seed=seed, progressbar=False)
        synthetic = dirdp.synthetic(fit, len(frame), random_seed=seed)
        seconds = time.process_time() - started
        rows.append([data, epsilon, seed, OURS, *errors(records, synthetic.to_numpy().T, lengths), seconds])
        print(*rows[-1], flush=True)
        if pair and seed == seeds[0]:
            pair[f"{epsilon:g}"] = synthetic.groupby(PAIR[0])[PAIR[1]].mean()
    _write(data, rows)
    if pair:
        pd.DataFrame(pair).round(5).to_csv(HERE / "wide_pair.csv")


def _write(data, rows):
    path, others = HERE / "wide_tables.csv", []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            mine = {(data, method) for method in (OURS, "bootstrap", "independent")}
            others = [row for row in list(csv.reader(file))[1:] if (row[0], row[3]) not in mine]
    rounded = [[*row[:4], *(f"{value:.5f}" for value in row[4:7]), f"{row[7]:.1f}"] for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADING, *rounded, *others])


def made_up(columns, categories, n=20_000):
    """Records of a few types, which answer alike."""
    rng = np.random.default_rng(columns)
    types = rng.integers(5, size=n)
    favourite = rng.integers(categories, size=(5, columns))
    codes = np.where(rng.random((n, columns)) < 0.5, favourite[types], rng.integers(categories, size=(n, columns)))
    return {f"q{i}": codes[:, i] for i in range(columns)}


def cost(columns, categories):
    """Seconds of a processor for each step, the size of the file and the memory at its peak, as one line."""
    frame, seconds = made_up(columns, categories), []

    def timed(function, *args, **keywords):
        started = time.process_time()
        answer = function(*args, **keywords)
        seconds.append(time.process_time() - started)
        return answer

    labels = {name: list(range(categories)) for name in frame}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = timed(dirdp.latent_class, frame, categories=labels)
    plan = timed(dirdp.plan, dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model, progressbar=False)
    release = timed(dirdp.sample, plan, model, progressbar=False)
    fit = timed(dirdp.fit, release, progressbar=False)
    timed(dirdp.synthetic, fit, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "release.json")
        dirdp.save(release, path)
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pairs, cells = columns * (columns - 1) // 2, columns * (columns - 1) // 2 * categories**2
    sizes = columns, categories, pairs, cells, *(f"{t:.1f}" for t in seconds)
    print(*sizes, f"{size / 1e6:.1f}", f"{(peak - before) / 1024:.0f}", sep=",")


def costs():
    lines = ["columns,categories,pairs,cells,model,plan,sample,fit,synthetic,file_mb,memory_mb"]
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.wide_tables", "--cost", *map(str, size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines.append(done.stdout.strip().splitlines()[-1])
        print(lines[-1], flush=True)
        (HERE / "wide_costs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--data", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--cost", type=int, nargs=2)
    asked = parser.parse_args()
    if asked.cost:
        cost(*asked.cost)
    elif asked.costs:
        costs()
    else:
        for data in asked.data:
            accuracy(asked.folder, data, asked.seeds, asked.epsilons)


if __name__ == "__main__":
    main()
