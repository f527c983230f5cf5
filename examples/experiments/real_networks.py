"""Bayesian networks on real data at many guarantees: held-out log-likelihood of what each release is worth.

`uv run examples/experiments/real_networks.py --data DIR --out DIR [--quick] [--only NAME]` reads `networks.json`,
`german_credit.csv.gz` and `adult.csv.gz` from one folder and writes `real_networks.csv` and `real_networks.png` to
another. The data are those of `declared_data.py`, which stands beside it.

`networks.json` maps each data set to a structure, a mapping of each variable to its parents. Seven tenths of the
records train and the rest tests; the measured likelihood is not covered by any guarantee.
"""

import csv
import json
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from common import write_releases
from real_classifiers import records

import pymc_dirdp as dirdp

DATA = ("german_credit", "adult")
EPSILONS, QUICK = (0.001, 0.01, 0.1, 1.0, 10.0), (0.1, 1.0)
DRAWS = 300  # of each analysis
MECHANISMS = ("dirichlet", "geometric", "gaussian", "auto", "marginals")
READINGS = {
    "dirichlet, treated as the data": "tab:orange",
    "dirichlet, given the release": "tab:blue",
    "geometric, given the release": "tab:green",
    "geometric, fitted jointly": "tab:olive",
    "gaussian, given the release": "tab:cyan",
    "auto, given the release": "black",
    "marginals, fitted table by table": "tab:pink",
    "marginals, fitted jointly": "tab:red",
}


class Network:
    """One data set with its structure, and how likely each estimate makes its test records."""

    def __init__(self, folder, name):
        structure = json.loads((folder / "networks.json").read_text())[name]
        train, self.test, categories, _ = records(folder, name)
        declared = {variable: categories[variable] for variable in structure}
        self.model = dirdp.bayesian_network(train, structure, categories=declared)
        self.plain = self.not_private(train, structure, declared)

    def not_private(self, train, structure, declared):
        """The posterior means from the counts themselves."""
        codes = {
            name: np.array([list(labels).index(value) for value in self.test[name]])
            for name, labels in declared.items()
        }
        found = 0.0
        for variable, parents in structure.items():
            counts = dirdp.count(train, [*parents, variable], categories=declared) + 1
            shares = counts / counts.sum(axis=-1, keepdims=True)
            found += np.log(shares[tuple(codes[name] for name in (*parents, variable))]).mean()
        return found

    def readings(self, plan, mechanism):
        """Every reading of one release, with the mean log-likelihood of a test record in nats."""
        release = dirdp.sample(plan, self.model)
        if mechanism == "marginals":
            yield "marginals, fitted table by table", dirdp.log_likelihood(release, self.test).mean()
        else:
            given = dirdp.log_likelihood(release, self.test, draws=DRAWS)
            yield f"{mechanism}, given the release", given.mean()
        if mechanism == "dirichlet":
            yield "dirichlet, treated as the data", dirdp.log_likelihood(release, self.test, draws="released").mean()
        if mechanism in ("geometric", "marginals"):
            yield f"{mechanism}, fitted jointly", dirdp.log_likelihood(dirdp.fit(release), self.test).mean()


def run(arguments):
    path = arguments.out / "real_networks.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["data", "epsilon", "reading", "release", "log_likelihood"])
        writer.writeheader()
        for name in arguments.only:
            network = Network(arguments.data, name)
            plain = {"data": name, "epsilon": np.inf, "reading": "no privacy", "release": 0}
            writer.writerow(plain | {"log_likelihood": network.plain})
            # Planning reads no data, so one plan serves all releases.
            plans = {
                (epsilon, mechanism): dirdp.plan(
                    dirdp.ApproxDP(epsilon=epsilon, delta=1e-6),
                    network.model,
                    mechanism=mechanism,
                    # Exact draws take minutes where the prior counts a million records in each of hundreds of rows.
                    sampler="fast" if mechanism == "dirichlet" else "exact",
                )
                for epsilon in (QUICK if arguments.quick else EPSILONS)
                for mechanism in MECHANISMS
            }
            for number in range(2 if arguments.quick else arguments.releases):
                for (epsilon, mechanism), plan in plans.items():
                    for reading, found in network.readings(plan, mechanism):
                        row = {"data": name, "epsilon": epsilon, "reading": reading, "release": number}
                        writer.writerow(row | {"log_likelihood": found})
                    file.flush()
    return path


def figure(path):
    """The mean of the releases, and a band that leaves out the lowest and the highest tenth of them."""
    rows = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows[row["data"], row["reading"], float(row["epsilon"])].append(float(row["log_likelihood"]))
    names = [name for name in DATA if any(key[0] == name for key in rows)]
    size = (max(6, 5 * len(names)), 5.5)
    fig, axes = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        for reading, color in READINGS.items():
            epsilons = sorted(epsilon for data, read, epsilon in rows if (data, read) == (name, reading))
            values = [np.array(rows[name, reading, epsilon]) for epsilon in epsilons]
            axis.plot(epsilons, [v.mean() for v in values], color=color, label=reading, marker=".")
            low, high = ([np.quantile(v, q) for v in values] for q in (0.1, 0.9))
            axis.fill_between(epsilons, low, high, color=color, alpha=0.15, lw=0)
        axis.axhline(rows[name, "no privacy", np.inf][0], color="gray", ls="--", label="no privacy")
        axis.set(xscale="log", title=name, xlabel="epsilon, with delta = 1e-6", ylabel="log-likelihood of a record")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    fig.savefig(path.with_suffix(".png"), dpi=120)


def main():
    write_releases(__file__, __doc__, DATA, run, figure, needs=("networks",))


if __name__ == "__main__":
    main()
