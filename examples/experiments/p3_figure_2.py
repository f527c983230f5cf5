"""P3, Figure 2: Theorem 1 and its corollary beside what is lost, for three protected entries and b = 0.1.

`uv run examples/experiments/p3_figure_2.py --out DIR [--quick]`. Nothing is random. P3 does not print the floors and
concentrations of its three examples, so three are chosen here.
"""

import numpy as np
import pandas as pd
import printed_p3
from common import Experiment, Verdict, legend, panels, plot

import pymc_dirdp as dirdp

papers, mechanisms = dirdp.papers, dirdp.mechanisms
CASES = ((0.05, 0.05, 24), (0.1, 0.1, 24), (0.1, 0.1, 60))
LABELS = {
    "Gaussian noise": "Corollary 1, as printed",
    "printed": "Theorem 1, as printed",
    "corrected": "largest loss above gamma",
    "exact": "exact epsilon",
}


def compute(given):
    rows = []
    for eta, etabar, k in CASES:
        domain = papers.SimplexDomain(3, eta=eta, etabar=etabar, b=0.1)
        for delta in (0.01, 0.05) if given.quick else sorted({0.05, *np.geomspace(1e-3, 0.3, 13)}):
            gamma = papers.p3_problem_14(domain, k, delta)
            found = {
                "Gaussian noise": printed_p3.p3_corollary(domain, k, gamma),
                "printed": printed_p3.p3_theorem(domain, k, gamma),
                "corrected": papers.p3_theorem_1_corrected(domain, k, gamma),
                "exact": papers.SimplexMechanism(k, domain).epsilon(delta),
            }
            rows += [(eta, k, delta, line, value) for line, value in found.items()]
    return pd.DataFrame(rows, columns=["eta", "k", "delta", "line", "epsilon"])


def draw(table):
    figure, axes = panels(1, 3, width=3.4, height=3.8, legend=0.8)
    for ax, ((eta, k), rows) in zip(axes.flat, table.groupby(["eta", "k"]), strict=True):
        for line, label in LABELS.items():
            own = rows[rows["line"] == line]
            plot(ax, own["delta"], own["epsilon"], line, label=label, markevery=3)
        ax.set(xscale="log", yscale="log", title=f"floor {eta:g}, k = {k:g}", xlabel="delta", ylabel="epsilon")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table[np.isclose(table["delta"], 0.05)].pivot(index=["eta", "k"], columns="line", values="epsilon")
    one = at.loc[(0.05, 24)]
    ratio = at["printed"] / at["exact"]
    return Verdict(
        "agrees",
        "For b = 0.1 Theorem 1 is a bound: at delta 0.05, a floor of 0.05 and k = 24 it gives "
        f"{one['printed']:.3f}, and the largest loss above gamma is {one['corrected']:.3f}. But that is "
        f"probabilistic privacy. The exact epsilon is {one['exact']:.3f}, and Theorem 1 is {ratio.min():.1f} to "
        f"{ratio.max():.1f} times as large in the three cases.",
        {
            f"floor {eta:g}, k {k:g}, {line}": row[line]
            for (eta, k), row in at.iterrows()
            for line in ("printed", "exact")
        },
    )


EXPERIMENT = Experiment("P3", "Figure 2", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
