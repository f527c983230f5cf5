"""Expected errors of mechanisms for a table of two cells and a public size: `uv run docs/best_possible.py`.

The error is `KL(x/N || y)` in nats, of the output from the frequencies, averaged over data sets that the prior
predicts. Every number is a sum over all counts and all outputs, or an integral; nothing is simulated. The page that
shows them reads `figures/best_possible.csv`, which this script writes in half a minute; `tests/test_least_error.py`
computes some of the numbers again.
"""

import csv
import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import betaln, digamma, entr, xlogy

import pymc_dirdp as dirdp

sys.path.append(str(Path(__file__).parents[1] / "examples" / "experiments"))

from least_error import least_error

FILE = Path(__file__).parent / "figures" / "best_possible.csv"
TABLES = {
    "10 records, prior 1": ([1, 1], 10),
    "20 records, prior 0.2": ([0.2, 0.2], 20),
    "40 records, prior 1": ([1, 1], 40),
}
EPSILONS = (0.1, 0.2, 0.5, 1, 2, 5)
DELTA = 1e-6
ORDERS = 1 + np.geomspace(1, 3000, 120)
STYLES = {
    "P1's Algorithm 1": {"color": "#8a8a8a", "marker": "v", "linestyle": ":"},
    "Dirichlet draw": {"color": "#c8452d", "marker": "o", "linestyle": "--"},
    "posterior draw given zero-sum noise": {"color": "#2a8c82", "marker": "^", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    "independent noise, estimated": {"color": "#5070b0", "marker": "x", "linestyle": "--"},
    "zero-sum noise, estimated": {"color": "#0b1f4d", "marker": "s", "linestyle": "none", "markerfacecolor": "none"},
    "optimum of all mechanisms": {"color": "black", "linewidth": 1.6},
    "posterior draw, not private": {"color": "0.4", "linestyle": ":"},
}


class Table:
    """One row of two cells."""

    def __init__(self, prior, n_records):
        self.n_records, self.prior = n_records, np.array(prior, dtype=float)
        x = np.arange(n_records + 1)
        self.counts = np.stack([x, n_records - x], axis=-1)
        self.shares = self.counts / n_records
        logs = betaln(*(self.counts + self.prior).T) - betaln(*(self.counts + 1).T)
        self.weights = np.exp(logs) / np.exp(logs).sum()

    def errors(self, epsilon):
        """The error of each mechanism at (epsilon, delta), by name."""
        guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=DELTA)
        known = {"prior": self.prior, "n_records": self.n_records}
        dirichlet = dirdp.calibrate(guarantee, **known, objective="estimate", public=["n_records"])
        independent = dirdp.mechanisms.GeometricMechanism.for_guarantee(guarantee, prior=self.prior)
        summed = dirdp.mechanisms.ZeroSumGeometricMechanism.for_guarantee(guarantee, prior=self.prior)
        # Two cells whose noise is z and -z: both say the same, and the noise costs twice.
        noisy, first = self.noisy_count(summed.scale / 2), self.noisy_count(independent.scale)
        pairs = (first[:, :, None] * first[::-1, None, :]).reshape(len(first), -1)
        errors = (
            self.algorithm_1(epsilon),
            self.of_draw(dirichlet.alpha, dirichlet.r),
            self.of_posterior_draw(noisy),
            self.of_estimate(pairs),
            self.of_estimate(noisy),
            least_error(epsilon, DELTA, self.prior, self.n_records),
            self.of_draw(self.prior, 1.0),
        )
        return dict(zip(STYLES, errors, strict=True))

    def divergences(self, parameters):
        """The error of `y ~ Dirichlet(parameters)`: a row for each count, a column for each row of the parameters."""
        entropy = xlogy(self.shares, self.shares).sum(axis=-1)[:, None]
        return entropy - self.shares @ digamma(parameters).T + digamma(parameters.sum(axis=-1))

    def of_draw(self, alpha, r):
        """A draw from `Dirichlet(r x + alpha)`."""
        return self.weights @ np.diag(self.divergences(r * self.counts + alpha))

    def of_urn(self, mechanism):
        """The same draw by the exact sampler, `(2 c + 1) / (2 m + 2)` for c of the m steps of an urn."""
        steps = mechanism.default_steps(self.n_records)
        c = np.arange(steps + 1)
        first, last = (mechanism.r * self.counts + mechanism.alpha).T[:, :, None]
        distribution = betaln(first + c, last + steps - c) - betaln(c + 1, steps - c + 1)
        distribution = np.exp(distribution - distribution.max(axis=-1, keepdims=True))
        distribution /= distribution.sum(axis=-1, keepdims=True)
        y = np.stack([2 * c + 1, 2 * (steps - c) + 1]) / (2 * steps + 2)
        return self.weights @ (xlogy(self.shares, self.shares) - self.shares * (distribution @ np.log(y).T)).sum(
            axis=-1
        )

    def algorithm_1(self, epsilon):
        """The best order: P1 turns an (order, e) into an (e + log(1/delta) / (order - 1), delta)."""
        found = []
        for order in ORDERS:
            budget = epsilon + math.log(DELTA) / (order - 1)
            if budget > 0:
                guarantee = dirdp.RenyiDP(order=order, epsilon=budget)
                mechanism = dirdp.calibrate(
                    guarantee, prior=self.prior, mechanism=dirdp.mechanisms.Dirichlet(strategy="algorithm-1")
                )
                found.append(self.of_draw(mechanism.alpha, mechanism.r))
        return min(found)

    def noisy_count(self, scale):
        """The distribution of a count with geometric noise.

        It is clipped to 0 and N. Nothing is lost by that: how far an output is outside says nothing of the count.
        """
        q, x = math.exp(-1 / scale), np.arange(self.n_records + 1)
        distribution = (1 - q) / (1 + q) * q ** np.abs(x - x[:, None])
        distribution[:, [0, -1]] /= 1 - q
        return distribution

    def of_estimate(self, distribution):
        """The expected frequency given an output, from the distribution of the output for each count."""
        joint = self.weights[:, None] * distribution
        mean = self.shares.T @ joint / joint.sum(axis=0)
        return joint.sum(axis=0) @ entr(mean).sum(axis=0) - self.weights @ entr(self.shares).sum(axis=-1)

    def of_posterior_draw(self, distribution):
        """A draw from the posterior of the shares given an output."""
        joint = self.weights[:, None] * distribution
        return (self.divergences(self.counts + self.prior) * (joint @ (joint / joint.sum(axis=0)).T)).sum()


def lines() -> dict[str, dict[str, list[float]]]:
    """The errors at all epsilons, by the title of a table and the name of a mechanism, as they are in the file."""
    found: dict[str, dict[str, list[float]]] = {title: {name: [] for name in STYLES} for title in TABLES}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["table"]][row["mechanism"]].append(float(row["error"]))
    return found


def picture():
    """A panel for each table, with a line for each mechanism."""
    tables = lines()
    figure, axes = plt.subplots(1, len(tables), figsize=(10, 4.6), sharey=True, layout="constrained")
    for ax, (title, errors) in zip(axes, tables.items(), strict=True):
        for name, style in STYLES.items():
            ax.plot(EPSILONS, errors[name], label=name, markersize=5, **style)
        ax.set(xscale="log", yscale="log", title=title, xlabel="epsilon, at delta 1e-6", xticks=EPSILONS)
        ax.set_xticklabels([f"{epsilon:g}" for epsilon in EPSILONS])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("expected KL from the frequencies (nats)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)


def main() -> None:
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["table", "epsilon", "mechanism", "error"])
        for title, (prior, n_records) in TABLES.items():
            table = Table(prior, n_records)
            for epsilon in EPSILONS:
                for name, error in table.errors(epsilon).items():
                    writer.writerow([title, epsilon, name, f"{error:.8g}"])


if __name__ == "__main__":
    main()
