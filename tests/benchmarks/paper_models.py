"""P1's applications on its data: naive Bayes and Bayesian networks, held out, at many guarantees.

`uv run tests/benchmarks/paper_models.py --data DIR` reads `adult.csv.gz`, `german_credit.csv.gz`, `digit.csv.gz` and
`networks.json` from DIR. Without `--data`, Adult and Digit are fetched by name from OpenML, which needs scikit-learn:
`uv run --with scikit-learn tests/benchmarks/paper_models.py`.

Numbers are binned at public edges, and texts have the categories of the code books at UCI; P1 takes
quantiles and categories from the data, which are not covered by any guarantee. A draw is read as P1 reads it.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import pymc_dirdp as dirdp
from examples.experiments import declared_data
from tests.planned import planned_sample

NAMES = ("adult", "german_credit", "digit")


def from_openml(name):
    from sklearn.datasets import fetch_openml

    if name == "adult":
        frame = fetch_openml("adult", version=2, as_frame=True).frame.rename(columns={"class": "income"})
        texts = frame.select_dtypes("category").columns
        return frame.astype(dict.fromkeys(texts, str)).replace("nan", "?")
    frame = fetch_openml("optdigits", version=1, as_frame=True).frame
    return frame.rename(columns=lambda column: column.replace("input", "X")).astype(int)


def read(folder, name):
    """The records with binned numbers, the declared categories, and the class."""
    return declared_data.read(folder, name) if folder is not None else declared_data.cut(from_openml(name), name)


def targets():
    for epsilon in (1e-3, 1e-2, 1e-1, 1.0, 10.0):
        yield f"(5, {epsilon:g})-RDP", dirdp.RenyiDP(order=5, epsilon=epsilon)
    for epsilon in (0.1, 1.0, 10.0):
        yield f"({epsilon:g}, 1e-5)-DP", dirdp.ApproxDP(epsilon=epsilon, delta=1e-5)
    # As the non-private model: one draw of the posterior itself.
    yield "posterior", dirdp.RenyiDP(order=1, epsilon=1e6)


def naive_bayes(folder, name, rng):
    frame, categories, target = read(folder, name)
    train, test = declared_data.train_and_test(frame, rng)
    model = dirdp.naive_bayes(train, train[target], categories=categories, target=target)
    right = [list(categories[target]).index(value) for value in test[target]]
    for label, guarantee in targets():
        release = planned_sample(guarantee, model, objective="estimate" if label != "posterior" else "posterior")
        log_proba = dirdp.predict_log_proba(release, test, target=target, draws="released").values
        loss = -log_proba[np.arange(len(right)), right].mean()
        accuracy = np.mean(log_proba.argmax(axis=1) == right)
        print(f"{name:<14} naive Bayes {label:<16} cross-entropy {loss:8.3f}   accuracy {accuracy:.3f}", flush=True)


def network(folder, name, structure, rng):
    frame, categories, _ = read(folder, name)
    train, test = declared_data.train_and_test(frame, rng)
    model = dirdp.bayesian_network(train, structure, categories=categories)
    for label, guarantee in targets():
        release = planned_sample(guarantee, model, objective="estimate" if label != "posterior" else "posterior")
        found = dirdp.log_likelihood(release, test, draws="released").mean()
        print(f"{name:<14} network     {label:<16} log-likelihood {found:8.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the data sets; fetched from OpenML otherwise")
    folder = parser.parse_args().data
    rng = np.random.default_rng(0)
    for name in NAMES if folder is not None else ("adult", "digit"):
        naive_bayes(folder, name, rng)
    if folder is not None:
        for name, structure in json.loads((folder / "networks.json").read_text()).items():
            network(folder, name, structure, rng)
