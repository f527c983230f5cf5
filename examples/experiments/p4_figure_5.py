"""P4, Figure 5: the expected distance of the released posterior, by the number of records.

`uv run examples/experiments/p4_figure_5.py --out DIR [--quick]` sums it exactly, for balanced data, Beta(1, 1) and
epsilon 1. P4 averages 1000 runs.
"""

import pandas as pd
from common import Experiment, Verdict, legend, panels, plot
from hellinger_rivals import LABELS, balanced, rivals

import pymc_dirdp as dirdp


def compute(given):
    rows = []
    for n in (10, 300) if given.quick else (4, 6, 10, 30, 100, 300, 1000, 3000, 15_000):
        made = rivals([1, 1], n, 1.0, smoothness=None if n <= 1000 else 0.05, exact=n <= 1000)
        made["not proved"] = dirdp.papers.HellingerMechanism([1, 1], n, 0.5)
        rows += [(n, line, mechanism.expected_distance(balanced(n, 2))) for line, mechanism in made.items()]
    return pd.DataFrame(rows, columns=["n", "line", "distance"])


def draw(table):
    figure, axes = panels(1, 1, width=6.5, height=4, legend=0.9)
    for line, label in LABELS.items():
        own = table[table["line"] == line]
        plot(axes[0, 0], own["n"], own["distance"], line, label=label)
    own = table[table["line"] == "not proved"]
    label = "epsilon / (2 S), not proved"
    plot(axes[0, 0], own["n"], own["distance"], "Gaussian noise, smoothed", label=label)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="records", ylabel="expected Hellinger distance")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table.pivot(index="n", columns="line", values="distance")
    one = at.loc[300]
    return Verdict(
        "corrected",
        "P4 says that its smooth mechanism is better than lapMech from 300 records on. There the expected "
        f"distances are {one['printed']:.4f} for Definition 4 and {one['Laplace noise']:.4f} for lapMech; the "
        f"claim fits half the noise that is proved ({one['not proved']:.4f}). Calibrated exactly it has "
        f"{one['exact']:.4f}, ilapMech {one['Gaussian noise']:.4f}, and truncated geometric noise "
        f"{one['geometric noise, estimated']:.4f}.",
        {f"{n} records, {line}": at.loc[n, line] for n in (10, 300) for line in at.columns},
    )


EXPERIMENT = Experiment("P4", "Figure 5", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
