"""Naive Bayes on real data at many guarantees: what a release is worth, read in several ways.

`uv run examples/experiments/real_classifiers.py --data DIR --out DIR [--quick]` reads `german_credit.csv.gz`,
`nursery.csv.gz`, `adult.csv.gz`, `credit_card.csv.gz` and `digit.csv.gz` from one folder and writes
`real_classifiers.csv` and `real_classifiers.png` to another. `declared_data.py` says which data these are, and declares
their categories and bins.

Seven tenths of the records train and the rest tests; the measured accuracy is not covered by any guarantee.
"""

import csv
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from common import write_releases
from declared_data import read, train_and_test
from scipy.special import log_softmax

import pymc_dirdp as dirdp

# How many records train at most: wide noise on more than these takes minutes a release.
MOST = {"german_credit": 700, "nursery": 4000, "adult": 4000, "credit_card": 4000, "digit": 3933}
EPSILONS, QUICK = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 10.0)
# P1's guarantee stands where an epsilon of 0 would.
GUARANTEES = {0.0: dirdp.RenyiDP(order=5, epsilon=0.01)} | {
    epsilon: dirdp.ApproxDP(epsilon=epsilon, delta=1e-6) for epsilon in EPSILONS
}
MECHANISMS = {
    **{kind: kind for kind in ("dirichlet", "geometric", "gaussian", "marginals", "auto")},
    "Algorithm 1": dirdp.mechanisms.Dirichlet(strategy="algorithm-1"),
}
READINGS = {
    "dirichlet, treated as the data": "tab:orange",
    "dirichlet, given the release": "tab:blue",
    "geometric, clipped and smoothed": "tab:pink",
    "geometric, given the release": "tab:green",
    "gaussian, clipped and smoothed": "tab:olive",
    "gaussian, given the release": "tab:cyan",
    "marginals, given the release": "tab:red",
    "auto, given the release": "black",
    "Algorithm 1, treated as the data": "tab:brown",
    "class alone": "tab:gray",
}


def records(folder, name):
    """The records that train and those that test, the declared categories, and the class."""
    frame, categories, target = read(folder, name)
    train, test = train_and_test(frame, np.random.default_rng(1))
    return train.iloc[: MOST[name]], test, categories, target


class Classifier:
    """One data set, and how well each set of tables predicts its test records."""

    def __init__(self, folder, name):
        train, self.test, categories, self.target = records(folder, name)
        self.categories = {column: list(labels) for column, labels in categories.items()}
        self.train = train
        self.model = dirdp.naive_bayes(train, train[self.target], categories=categories, target=self.target)
        self.alone = dirdp.bayesian_network(train, {self.target: []}, categories={self.target: categories[self.target]})
        position = {label: i for i, label in enumerate(self.categories[self.target])}
        self.right = np.array([position[value] for value in self.test[self.target]])
        self.codes = {
            column: np.array([labels.index(value) for value in self.test[column]])
            for column, labels in self.categories.items()
        }

    def quality(self, log_proba):
        loss = -log_proba[np.arange(len(self.right)), self.right].mean()
        return {"cross_entropy": loss, "accuracy": np.mean(log_proba.argmax(axis=1) == self.right)}

    def with_shares(self, shares):
        """From one table for each variable."""
        joint = np.log(shares[self.target])[None]
        for column, table in shares.items():
            if column != self.target:
                joint = joint + np.log(table[:, self.codes[column]]).T
        return self.quality(log_softmax(joint, axis=1))

    def not_private(self):
        """The posterior mean from the counts themselves."""
        shares = {}
        for column in self.categories:
            variables = [column] if column == self.target else [self.target, column]
            counts = dirdp.count(self.train, variables, categories=self.categories) + 1
            shares[column] = counts / counts.sum(axis=-1, keepdims=True)
        return self.with_shares(shares)

    def clipped(self, release, rng):
        """One draw from the noisy counts as if they were data, after they were clipped and smoothed."""
        shares = {}
        for name, node in release["mechanism"].children.items():
            table = node.to_dataset()
            kind = getattr(dirdp.mechanisms, table.attrs["mechanism"])
            mechanism = kind(table["prior"].values, float(table["noise_parameter"]))
            alpha = mechanism.postprocessed(table["noisy_counts"].values) + mechanism.prior
            drawn = np.array([rng.dirichlet(row) for row in alpha.reshape(-1, alpha.shape[-1])])
            shares[name.removeprefix("p_")] = np.maximum(drawn.reshape(alpha.shape), 1e-300)
        return self.with_shares(shares)

    def predictions(self, release, **options):
        return self.quality(dirdp.predict_log_proba(release, self.test, target=self.target, **options).values)


def planned(classifier, guarantee, mechanism):
    """The plan, or None where Algorithm 1 has no bound."""
    if mechanism == "class alone":
        return dirdp.plan(guarantee, classifier.alone, mechanism="geometric")
    if mechanism == "Algorithm 1" and not isinstance(guarantee, dirdp.RenyiDP):
        return None
    return dirdp.plan(guarantee, classifier.model, mechanism=MECHANISMS[mechanism])


def measured(classifier, plan, mechanism, rng):
    """Every reading of one release."""
    if mechanism == "class alone":
        yield mechanism, classifier.predictions(dirdp.sample(plan, classifier.alone))
        return
    release = dirdp.sample(plan, classifier.model)
    if mechanism == "Algorithm 1":
        yield "Algorithm 1, treated as the data", classifier.predictions(release, draws="released")
        return
    if mechanism in ("marginals", "auto"):
        yield f"{mechanism}, given the release", classifier.predictions(release)
        return
    yield f"{mechanism}, given the release", classifier.predictions(release, draws=1000)
    if mechanism == "dirichlet":
        yield "dirichlet, treated as the data", classifier.predictions(release, draws="released")
    else:
        yield f"{mechanism}, clipped and smoothed", classifier.clipped(release, rng)


def run(arguments):
    rng = np.random.default_rng()
    path = arguments.out / "real_classifiers.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        fields = ["data", "epsilon", "reading", "release", "cross_entropy", "accuracy"]
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for name in arguments.only:
            classifier = Classifier(arguments.data, name)
            plain = {"data": name, "epsilon": np.inf, "reading": "no privacy", "release": 0}
            writer.writerow(plain | classifier.not_private())
            # Planning takes longer than a release, and reads no data.
            plans = {
                (epsilon, mechanism): planned(classifier, guarantee, mechanism)
                for epsilon, guarantee in GUARANTEES.items()
                for mechanism in (*MECHANISMS, "class alone")
                if not arguments.quick or epsilon in QUICK
            }
            for number in range(2 if arguments.quick else arguments.releases):
                for (epsilon, mechanism), plan in plans.items():
                    if plan is None:
                        continue
                    for reading, found in measured(classifier, plan, mechanism, rng):
                        row = {"data": name, "epsilon": epsilon, "reading": reading, "release": number}
                        writer.writerow(row | found)
                    file.flush()
    return path


def figure(path):
    """The mean of the releases, and a band that leaves out the lowest and the highest tenth of them."""
    rows = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = float(row["cross_entropy"]), float(row["accuracy"])
            rows[row["data"], row["reading"], float(row["epsilon"])].append(values)
    names = [name for name in MOST if any(key[0] == name for key in rows)]
    size = (max(6, 4.6 * len(names)), 8)
    fig, axes = plt.subplots(2, len(names), figsize=size, squeeze=False, sharex=True, layout="constrained")
    for column, name in enumerate(names):
        for which, (axis, label) in enumerate(
            zip(axes[:, column], ("held-out cross-entropy", "accuracy"), strict=True)
        ):
            for reading, color in READINGS.items():
                found = {epsilon for data, read, epsilon in rows if (data, read) == (name, reading)}
                epsilons = sorted(found - {0.0})
                values = [np.array(rows[name, reading, epsilon])[:, which] for epsilon in epsilons]
                axis.plot(epsilons, [v.mean() for v in values], color=color, label=reading, marker=".")
                low, high = ([np.quantile(v, q) for v in values] for q in (0.1, 0.9))
                axis.fill_between(epsilons, low, high, color=color, alpha=0.15, lw=0)
            axis.axhline(rows[name, "no privacy", np.inf][0][which], color="gray", ls="--", label="no privacy")
            axis.set(xscale="log", ylabel=label)
        axes[0, column].set(title=name, yscale="log")
        axes[1, column].set_xlabel("epsilon, with delta = 1e-6")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    fig.savefig(path.with_suffix(".png"), dpi=120)


def main():
    write_releases(__file__, __doc__, MOST, run, figure)


if __name__ == "__main__":
    main()
