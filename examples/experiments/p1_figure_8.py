"""P1, Figure 8: what Algorithm 1 guarantees as (epsilon, 1e-5), as a function of its concentration r.

`uv run examples/experiments/p1_figure_8.py --out DIR [--quick]` sets equation 14 beside the exact epsilon of the same
draw, `Dirichlet(r x + 1 + 4 (order - 1) r)`. Nothing is random.
"""

import math

import numpy as np
import pandas as pd
from common import Experiment, Verdict, legend, panels, plot_lines
from scipy.special import polygamma

import pymc_dirdp as dirdp

ORDERS, DELTA = (2, 10, 50, 200), 1e-5


def equation_14(r, order):
    renyi = 0.5 * order * r**2 * 2 * float(polygamma(1, 1 + 3 * (order - 1) * r))
    return renyi + math.log(order - 1) - (math.log(DELTA) + order * math.log(order)) / (order - 1)


def compute(given):
    rows = []
    for order in ORDERS:
        for r in np.geomspace(1e-3, 10, 9 if given.quick else 41):
            mechanism = dirdp.mechanisms.DirichletMechanism(np.full(2, 1 + 4 * (order - 1) * r), r)
            rows.append({"order": order, "r": r, "line": "printed", "epsilon": equation_14(r, order)})
            rows.append({"order": order, "r": r, "line": "exact", "epsilon": mechanism.epsilon(DELTA)})
    return pd.DataFrame(rows)


def draw(table):
    figure, axes = panels(2, 2, sharex=True)
    for ax, (order, rows) in zip(axes.flat, table.groupby("order"), strict=True):
        plot_lines(ax, rows[rows["epsilon"] > 0], "r", y="epsilon", markevery=5)
        ax.set(xscale="log", yscale="log", title=f"order {order}", ylabel="epsilon at delta 1e-5")
    for ax in axes[-1]:
        ax.set_xlabel("concentration r")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    pairs = table.pivot(index=["order", "r"], columns="line", values="epsilon").reset_index()
    at = pairs[np.isclose(pairs["r"], 0.1)].set_index("order")
    least = pairs.loc[pairs["r"].idxmin(), "r"]
    start = pairs[pairs["r"] == least].set_index("order")["printed"]
    numbers = {
        f"{line}, order {order}, r 0.1": at.loc[order, line] for order in ORDERS for line in ("printed", "exact")
    }
    numbers["printed, order 2, r 0.001"] = start[2]
    ratios = at["printed"] / at["exact"]
    return Verdict(
        "agrees",
        f"It is a bound, and the draw loses {ratios.min():.1f} to {ratios.max():.0f} times less. At r = 0.1 and the "
        f"orders 2, 10, 50 and 200 it gives {', '.join(f'{at.loc[o, "printed"]:.3f}' for o in ORDERS)}, where "
        f"{', '.join(f'{at.loc[o, "exact"]:.3f}' for o in ORDERS)} are lost. At the order 2 it never says less than "
        f"{start[2]:.2f}, whatever r is.",
        numbers,
    )


EXPERIMENT = Experiment("P1", "Figure 8", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
