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
import pandas as pd

import pymc_dirdp as dirdp

ADULT = {
    "age": [25, 30, 35, 40, 45, 50, 55, 60, 65],
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college",
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married "
    "Separated Widowed",
    "occupation": "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
    "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
    "Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "capital-gain": [1, 2500, 5000, 7500, 10000, 20000],
    "capital-loss": [1, 1500, 1750, 2000, 2500],
    "hours-per-week": [20, 30, 35, 40, 41, 45, 50, 60],
    "income": "<=50K >50K",
}
GERMAN = {
    "duration": [6, 9, 12, 15, 18, 24, 30, 36, 48],
    "amount": [1000, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10000],
    "age": [25, 30, 35, 40, 45, 50, 55, 60, 65],
    **{name: range(1, 5) for name in ("status", "installment_rate", "personal_status_sex", "present_residence")},
    **{name: range(1, 5) for name in ("property", "number_credits", "job")},
    **{name: range(1, 6) for name in ("savings", "employment_duration")},
    **{name: range(1, 4) for name in ("other_debtors", "other_installment_plans", "housing")},
    **{name: range(1, 3) for name in ("people_liable", "telephone", "foreign_worker")},
    "credit_history": range(5),
    "purpose": range(11),
    "credit_risk": range(2),
}
DIGIT = {**{f"X{i}": [1, 3, 5, 7, 9, 11, 13, 15, 16] for i in range(1, 65)}, "class": range(10)}
DATA = {"adult": (ADULT, "income"), "german_credit": (GERMAN, "credit_risk"), "digit": (DIGIT, "class")}


def from_openml(name):
    from sklearn.datasets import fetch_openml

    if name == "adult":
        frame = fetch_openml("adult", version=2, as_frame=True).frame.rename(columns={"class": "income"})
        texts = frame.select_dtypes("category").columns
        return frame.astype(dict.fromkeys(texts, str)).replace("nan", "?")
    frame = fetch_openml("optdigits", version=1, as_frame=True).frame
    return frame.rename(columns=lambda column: column.replace("input", "X")).astype(int)


def read(folder, name):
    """The records with binned numbers, and the declared categories."""
    declared, target = DATA[name]
    frame = from_openml(name) if folder is None else pd.read_csv(folder / f"{name}.csv.gz")
    categories = {}
    for column, domain in declared.items():
        if isinstance(domain, list):
            frame[column] = np.searchsorted(domain, frame[column], side="right")
            categories[column] = range(len(domain) + 1)
        else:
            categories[column] = domain.split() if isinstance(domain, str) else domain
    return frame[list(declared)], categories, target


def halves(frame, rng):
    order = rng.permutation(len(frame))
    cut = int(0.7 * len(frame))
    return frame.iloc[order[:cut]], frame.iloc[order[cut:]]


def targets():
    for epsilon in (1e-3, 1e-2, 1e-1, 1.0, 10.0):
        yield f"(5, {epsilon:g})-RDP", dirdp.RenyiDP(order=5, epsilon=epsilon)
    for epsilon in (0.1, 1.0, 10.0):
        yield f"({epsilon:g}, 1e-5)-DP", dirdp.ApproxDP(epsilon=epsilon, delta=1e-5)
    # As the non-private model: one draw of the posterior itself.
    yield "posterior", dirdp.RenyiDP(order=1, epsilon=1e6)


def naive_bayes(folder, name, rng):
    frame, categories, target = read(folder, name)
    train, test = halves(frame, rng)
    model = dirdp.naive_bayes(train, train[target], categories=categories, target=target)
    right = [list(categories[target]).index(value) for value in test[target]]
    for label, guarantee in targets():
        release = dirdp.sample(guarantee, model, objective="estimate" if label != "posterior" else "posterior")
        log_proba = dirdp.predict_log_proba(release, test, target=target, draws="released")
        loss = -log_proba[np.arange(len(right)), right].mean()
        accuracy = np.mean(log_proba.argmax(axis=1) == right)
        print(f"{name:<14} naive Bayes {label:<16} cross-entropy {loss:8.3f}   accuracy {accuracy:.3f}", flush=True)


def network(folder, name, structure, rng):
    frame, categories, _ = read(folder, name)
    train, test = halves(frame, rng)
    model = dirdp.bayesian_network(train, structure, categories=categories)
    for label, guarantee in targets():
        release = dirdp.sample(guarantee, model, objective="estimate" if label != "posterior" else "posterior")
        found = dirdp.log_likelihood(release, test, draws="released").mean()
        print(f"{name:<14} network     {label:<16} log-likelihood {found:8.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the data sets; fetched from OpenML otherwise")
    folder = parser.parse_args().data
    rng = np.random.default_rng(0)
    for name in DATA if folder is not None else ("adult", "digit"):
        naive_bayes(folder, name, rng)
    if folder is not None:
        for name, structure in json.loads((folder / "networks.json").read_text()).items():
            network(folder, name, structure, rng)
