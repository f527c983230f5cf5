"""Networks of the literature beside ours: private-PGM, PrivBayes and MST at the same guarantee, held out.

`uv run --with mbi==2.0.0 --with datasynthesizer==0.1.13 -m benchmarks.network_rivals --data DIR` reads
`adult.csv.gz`, `german_credit.csv.gz` and `networks.json` from DIR and appends to `network_rivals.csv` what it does not
hold yet. 70 % of the records are released, with replace-one, delta 1e-5 and a public number of records, and 30 % are
held out. A row has the mean logarithm of the likelihood of a held-out record, in nats, and the mean total variation
between the pairs of variables of 150 000 synthetic records and those held out.

- private-PGM is `mbi`, with mirror descent and its default settings, on *the same noisy counts* as our fit. Its own
  estimate has shares that are nearly 0, so there are two more, with 1 record and with a quarter of a standard deviation
  of the noise added to each cell of each family.
- PrivBayes is the noise of `DataSynthesizer` on the family of each variable, with its own way to clip and normalise.
  Its scale is that of records that are replaced. It gets the same structure, and spends nothing on choosing one.
- MST chooses its own tree: `benchmarks/network_mst.py`, which runs with Python 3.11.
"""

import argparse
import csv
import io
import itertools
import json
import subprocess
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd

import pymc_dirdp as dirdp
from benchmarks.networks import EPSILONS, RECORDS, pairs_off
from examples.experiments.declared_data import read, train_and_test
from pymc_dirdp.networks.fitting import measurements_of

FIGURES = Path(__file__).with_name("network_rivals.csv")
COLUMNS = ("data", "epsilon", "split", "method", "log_likelihood", "pairs")
DELTA = 1e-5
# No share counts as smaller, so that one cell that was taken for empty does not decide a whole figure.
FLOOR = 1e-12
PGM = ("private-PGM", "private-PGM, 1 record more", "private-PGM, .25 sd more")
WAYS = {
    "ours": ("marginals, fitted together", "marginals, table by table"),
    "pgm": PGM,
    "privbayes": ("PrivBayes", "PrivBayes, 1 record more"),
    "mst": ("MST",),
}


def codes_of(frame, categories):
    """The records as positions in the declared categories."""
    return pd.DataFrame(
        {
            name: frame[name].map(str).map({str(label): i for i, label in enumerate(labels)})
            for name, labels in categories
        }
    )


def released(train, structure, categories, epsilon, split):
    """Noisy marginals, the same ones each time."""
    model = dirdp.bayesian_network(train, structure, categories=categories)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        return dirdp.sample(
            dirdp.ApproxDP(epsilon=epsilon, delta=DELTA),
            model,
            mechanism="marginals",
            random_seed=split,
            progressbar=False,
        )


def score(tables, families, held_out):
    """The mean log-likelihood of records given by codes, from tables of shares with the variable last."""
    total = np.zeros(len(held_out))
    for axes, table in zip(families, tables, strict=True):
        shares = np.maximum(table, FLOOR)
        shares = shares / shares.sum(axis=-1, keepdims=True)
        total += np.log(shares[tuple(held_out[axis].to_numpy() for axis in axes)])
    return total.mean()


def conditional(counts):
    """Rows that add up to 1; a row without any count is even."""
    totals = counts.sum(axis=-1, keepdims=True)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1), 1 / counts.shape[-1])


def records_of(tables, families, sizes, rng):
    """Independent records along a network, as codes."""
    drawn = {}
    for axes, table in zip(families, tables, strict=True):
        rows = table[tuple(drawn[parent] for parent in axes[:-1])] if len(axes) > 1 else np.tile(table, (RECORDS, 1))
        drawn[axes[-1]] = np.minimum((rows.cumsum(-1) < rng.random((RECORDS, 1))).sum(-1), sizes[axes[-1]] - 1)
    return pd.DataFrame(drawn)


def ours(release, held_out, labelled, categories):
    for way, consistency in zip(WAYS["ours"], ("joint", "tables"), strict=True):
        estimate = dirdp.fit(release, consistency, progressbar=False)
        frame = codes_of(dirdp.synthetic(estimate, RECORDS, random_seed=1), categories)
        yield way, dirdp.log_likelihood(estimate, labelled).mean(), off(frame, held_out, categories)


def off(frame, held_out, categories):
    return pairs_off(frame, held_out, [(name, range(len(labels))) for name, labels in categories])


def private_pgm(release, held_out, families, categories):
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi

    _, measured, n_records = measurements_of(release)
    domain = mbi.Domain([name for name, _ in categories], [len(labels) for _, labels in categories])
    given = [mbi.LinearMeasurement(one.noisy.ravel(), one.axes, stddev=one.variance**0.5) for one in measured]
    model = mbi.estimation.MirrorDescent().estimate(domain, given, known_total=n_records)
    found = [np.asarray(model.project(axes).values) for axes in families]
    sds = {frozenset(one.axes): one.variance**0.5 for one in measured}
    more = (0.0, 1.0, None)
    np.random.seed(1)  # noqa: NPY002 - what mbi draws from
    drawn = model.synthetic_data(RECORDS).to_dict()
    frame = pd.DataFrame({name: np.asarray(values) for name, values in drawn.items()})
    pairs = off(frame.astype(int), held_out, categories)
    for way, extra in zip(PGM, more, strict=True):
        tables = [
            conditional(np.maximum(counts, 0) + (0.25 * sds[frozenset(axes)] if extra is None else extra))
            for axes, counts in zip(families, found, strict=True)
        ]
        # What is synthesised is the estimate itself.
        yield way, score(tables, families, held_out), pairs if extra == 0 else np.nan


def privbayes(train, epsilon, held_out, families, categories, split):
    from DataSynthesizer.lib.PrivBayes import get_noisy_distribution_of_attributes
    from DataSynthesizer.lib.utils import normalize_given_distribution

    sizes = {name: len(labels) for name, labels in categories}
    np.random.seed(split)  # noqa: NPY002 - what DataSynthesizer draws from
    tables, smoothed = [], []
    for axes in families:
        # It adds noise of scale (variables - parents) / epsilon. A record that is replaced changes each of the tables
        # of all variables by 2, so the scale has to be 2 * variables / epsilon.
        asked = epsilon * (len(sizes) - len(axes) + 1) / (2 * len(sizes))
        noisy = get_noisy_distribution_of_attributes(list(axes), train[list(sizes)], asked)
        counts = np.zeros([sizes[axis] for axis in axes])
        counts[tuple(noisy[axis].astype(int) for axis in axes)] = noisy["count"]
        rows = [normalize_given_distribution(row) for row in counts.reshape(-1, counts.shape[-1])]
        tables.append(np.reshape(rows, counts.shape))
        smoothed.append(conditional(counts + 1))
    for way, one in zip(WAYS["privbayes"], (tables, smoothed), strict=True):
        frame = records_of(one, families, sizes, np.random.default_rng(split))
        yield way, score(one, families, held_out), off(frame, held_out, categories)


def mst(train, epsilon, held_out, categories, split):
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("train.csv", "held_out.csv", "sizes.json", "records.csv")]
        train.to_csv(paths[0], index=False)
        held_out.to_csv(paths[1], index=False)
        paths[2].write_text(json.dumps({name: len(labels) for name, labels in categories}), encoding="utf-8")
        script = Path(__file__).with_name("network_mst.py")
        asked = [*paths, epsilon, DELTA, split, RECORDS]
        done = subprocess.run(["uv", "run", str(script), *map(str, asked)], check=True, capture_output=True, text=True)
        yield "MST", float(done.stdout.split()[-1]), off(pd.read_csv(paths[3]), held_out, categories)


def rows_of(kind, folder, name, epsilon, split):
    structure = json.loads((folder / "networks.json").read_text())[name]
    frame, declared, _ = read(folder, name)
    categories = [(variable, declared[variable]) for variable in structure]
    families = [(*parents, variable) for variable, parents in structure.items()]
    train, held_out = train_and_test(frame, np.random.default_rng(split))
    test_codes = codes_of(held_out, categories)
    if kind == "privbayes":
        return privbayes(codes_of(train, categories), epsilon, test_codes, families, categories, split)
    if kind == "mst":
        return mst(codes_of(train, categories), epsilon, test_codes, categories, split)
    release = released(train, structure, declared, epsilon, split)
    if kind == "ours":
        return ours(release, test_codes, held_out, categories)
    return private_pgm(release, test_codes, families, categories)


def saved(path):
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run(folder, kinds, names, splits, path):
    done = {(row["data"], row["epsilon"], row["split"], row["method"]) for row in saved(path)}
    if not done:
        path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    for split, name, epsilon, kind in itertools.product(range(splits), names, EPSILONS, kinds):
        if all((name, f"{epsilon:g}", str(split), way) in done for way in WAYS[kind]):
            continue
        with redirect_stdout(io.StringIO()):
            rows = list(rows_of(kind, folder, name, epsilon, split))
        with path.open("a", encoding="utf-8", newline="") as file:
            for way, likelihood, pairs in rows:
                shown = "" if np.isnan(pairs) else f"{pairs:.4f}"
                csv.writer(file, lineterminator="\n").writerow(
                    (name, f"{epsilon:g}", split, way, f"{likelihood:.4f}", shown)
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--name", choices=["german_credit", "adult"], action="append", help="one of the data sets")
    parser.add_argument("--kind", choices=[*WAYS], action="append", help="one of the estimators")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="the file with the rows")
    given = parser.parse_args()
    names = given.name or ["german_credit", "adult"]
    run(given.data, given.kind or [*WAYS], names, given.splits, given.figures)
