"""P4, Figure 1: the local, the smooth and the global sensitivity of the Hellinger distance.

`uv run examples/experiments/p4_figure_1.py --out DIR [--quick]`. Nothing is random. P4 does not print its number of
records; here it is 100, with a prior of Beta(1, 1).
"""

import numpy as np
import pandas as pd
import printed_p4
from common import Experiment, Verdict, legend, panels, plot

N, FLAT = 100, [1, 1]


def compute(given):
    rows = []
    for x in sorted({0, 1, 10, 50, 90, 99, 100} if given.quick else range(N + 1)):
        counts = [x, N - x]
        local = printed_p4.p4_local_sensitivity(counts, prior=FLAT)
        smooth = printed_p4.p4_smooth_sensitivity(counts, prior=FLAT, smoothness=1.0)
        slow = printed_p4.p4_smooth_sensitivity(counts, prior=FLAT, smoothness=0.1)
        rows.append((x, local, smooth, slow, printed_p4.p4_global_sensitivity(prior=FLAT, n_records=N)))
    return pd.DataFrame(rows, columns=["x", "local", "smooth, gamma 1", "smooth, gamma 0.1", "global"])


def draw(table):
    figure, axes = panels(1, 1, width=6)
    lines = {
        "global": "nothing known",
        "smooth, gamma 1": "printed",
        "smooth, gamma 0.1": "corrected",
        "local": "exact",
    }
    for column, line in lines.items():
        plot(axes[0, 0], table["x"], table[column], line, label=column, markevery=10)
    axes[0, 0].set(xlabel=f"records of {N} in the first category", ylabel="sensitivity", ylim=(0, None))
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table.set_index("x")
    # Replacing one record of (50, 50), by quadrature of the two densities.
    grid = (np.arange(200_000) + 0.5) / 200_000
    logs = [a * np.log(grid) + b * np.log1p(-grid) for a, b in ((50, 50), (51, 49))]
    densities = [np.exp(log - log.max()) for log in logs]
    first, second = (density / density.sum() for density in densities)
    quadrature = float(np.sqrt(1 - np.sqrt(first * second).sum()))
    holds = (
        np.isclose(at.loc[50, "local"], quadrature, rtol=1e-4)
        and (table["local"] <= table["global"] * (1 + 1e-6)).all()
    )
    return Verdict(
        "agrees" if holds else "differs",
        f"With 100 records and Beta(1, 1) the local sensitivity is {at.loc[50, 'local']:.4f} for balanced data and "
        f"{at.loc[0, 'local']:.4f} at the ends, where it is the global one ({at.loc[0, 'global']:.4f}). The "
        f"smooth one of balanced data is {at.loc[50, 'smooth, gamma 1']:.4f} at gamma 1, and "
        f"{at.loc[50, 'smooth, gamma 0.1']:.4f} at 0.1.",
        {f"{column}, {x} of 100": at.loc[x, column] for x in (0, 50) for column in at.columns},
    )


EXPERIMENT = Experiment("P4", "Figure 1", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
