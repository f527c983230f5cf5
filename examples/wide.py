"""A wide table: all pairs of ten columns of made-up answers are released, and synthetic records follow from them.

Run it with `uv run examples/wide.py`. The records need no file: all that they say follows from a stage of life, which
is no column, so that every pair of columns depends. The verbs are those of any other release: `plan` costs nothing,
`sample` is charged to a ledger, and everything after it reads the release alone.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import pymc_dirdp as dirdp

# All values that each column could take. They are public, and are written down before anybody looks at the records.
CATEGORIES = {
    "age": ["under 30", "30 to 49", "50 to 64", "65 and over"],
    "home": ["rented", "owned"],
    "household": ["alone", "couple", "children"],
    "work": ["study", "full time", "part time", "retired"],
    "commute": ["none", "bicycle", "bus", "car"],
    "internet": ["daily", "weekly", "never"],
    "sport": ["often", "sometimes", "never"],
    "doctor": ["no visit", "one", "several"],
    "savings": ["none", "some", "much"],
    "vote": ["left", "centre", "right"],
}


def made_up(n: int) -> pd.DataFrame:
    """People of four stages of life; each answers at random, with probabilities of the stage."""
    rng = np.random.default_rng(20)
    stage = rng.choice(4, size=n, p=[0.2, 0.35, 0.25, 0.2])
    answers = {}
    for name, labels in CATEGORIES.items():
        shares = rng.dirichlet(np.full(len(labels), 0.6), size=4)
        drawn = (rng.random((n, 1)) > np.cumsum(shares, axis=1)[stage][:, :-1]).sum(axis=1)
        answers[name] = np.array(labels)[drawn]
    return pd.DataFrame(answers)


def table(records: pd.DataFrame) -> pd.DataFrame:
    """The shares of one pair of columns."""
    return pd.crosstab(records["age"], records["work"], normalize=True).reindex(CATEGORIES["age"]).round(3)


def main() -> None:
    """Plan, release, check, and make synthetic records."""
    records = made_up(20_000)
    model = dirdp.latent_class(records, categories=CATEGORIES)

    # What will be measured, and with how much noise. No record is counted for this.
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model, progressbar=False)
    print(plan)

    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5))
    release = dirdp.sample(plan, model, ledger=ledger, progressbar=False)
    print(ledger)

    # From here on the file is enough, and nothing costs more of the guarantee.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "survey.json")
        dirdp.save(release, path)
        print(f"the file has {path.stat().st_size / 1e3:.0f} kB")
        release = dirdp.load(path)
    print(dirdp.verify(release))

    fit = dirdp.fit(release, progressbar=False)
    synthetic = dirdp.synthetic(fit, random_seed=1)
    print(f"{len(synthetic)} synthetic records, of which the first are\n{synthetic.head(3).to_string()}")
    print(f"age and work in the records\n{table(records)}\nand in the synthetic ones\n{table(synthetic)}")

    # Shares of the people that the records are from, with intervals that know of the noise and of the fit's error.
    print(dirdp.estimate(release, columns=["home", "savings"], progressbar=False))

    # Any column is predicted by all others.
    people = records[:1000]
    log_proba = dirdp.predict_log_proba(fit, people.drop(columns="vote"), target="vote")
    right = log_proba["vote"].values[log_proba.argmax("vote")] == people["vote"].to_numpy()
    print(f"{right.mean():.0%} of 1000 votes are predicted by the nine other answers")


if __name__ == "__main__":
    main()
