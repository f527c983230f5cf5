"""What a release of marginals of all 15 variables of Adult costs, in seconds of processor time.

`OMP_NUM_THREADS=1 uv run -m tests.benchmarks.network_cost --data DIR` reads `adult.csv.gz` and `networks.json` from
DIR. On a busy machine with two cores the model of 15 tables with 14 034 cells took 3.1 seconds, the plan 2.6, and the
release with its fit table by table 7.8: 13.5 together.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd

import pymc_dirdp as dirdp
from examples.experiments.declared_data import read

# The parents of the variables that the published network leaves out.
OTHERS = {
    "workclass": ["education", "occupation"],
    "marital-status": ["age", "sex"],
    "relationship": ["marital-status", "sex"],
    "native-country": [],
    "race": ["native-country"],
    "hours-per-week": ["occupation", "sex"],
    "fnlwgt": ["race"],
    "education-num": ["education"],
}
WEIGHTS = [100_000, 200_000, 300_000]


def run(folder):
    structure = json.loads((folder / "networks.json").read_text())["adult"] | OTHERS
    frame, declared, _ = read(folder, "adult")
    raw = pd.read_csv(folder / "adult.csv.gz")
    more = {
        "fnlwgt": (np.searchsorted(WEIGHTS, raw["fnlwgt"]), range(len(WEIGHTS) + 1)),
        "education-num": (raw["education-num"], range(1, 17)),
        "native-country": (raw["native-country"], sorted(raw["native-country"].unique())),
    }
    frame = frame.assign(**{name: values for name, (values, _) in more.items()})
    categories = declared | {name: labels for name, (_, labels) in more.items()}
    times = [time.process_time()]
    model = dirdp.bayesian_network(frame, structure, categories=categories)
    times.append(time.process_time())
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-5), model, mechanism="marginals")
    times.append(time.process_time())
    dirdp.sample(plan, model, progressbar=False)
    times.append(time.process_time())
    cells = sum(part.table.prior.size for part in plan.parts)
    spent = ", ".join(
        f"{name} {seconds:.1f}" for name, seconds in zip(("model", "plan", "release"), np.diff(times), strict=True)
    )
    print(f"{len(structure)} variables, {cells} cells; seconds: {spent}, together {times[-1] - times[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    run(parser.parse_args().data)
