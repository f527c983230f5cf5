"""P2, Figure 1: truncated concentrated and approximate privacy of a posterior draw, for a record more or less.

`uv run examples/experiments/p2_figure_1.py --out DIR [--quick]`. Nothing is random.
"""

import numpy as np
import pandas as pd
from common import Experiment, Verdict, legend, panels, plot
from p1_figure_3 import renyi

import pymc_dirdp as dirdp

X, Y = np.array([11.0, 8, 65, 25, 38, 0]), np.array([11.0, 8, 65, 25, 38, 1])


def drawn(alpha):
    return dirdp.mechanisms.DirichletMechanism(np.full(6, alpha), 1.0, adjacency="add-remove")


def compute(given):
    rows = []
    for alpha in (
        (1.5, 2.0, 5.0, 20.0) if given.quick else sorted({1.5, 2.0, 5.0, *np.geomspace(1.25, 20, 25).round(3)})
    ):
        pair = max(renyi(2, X + alpha, Y + alpha), renyi(2, Y + alpha, X + alpha)) / 2
        bound = dirdp.papers.p2_theorem_1(gamma=1.0, alpha_min=alpha, delta_2_squared=1.0).rho
        rows += [("left", alpha, "printed", bound), ("left", alpha, "these two", pair)]
        rows.append(("left", alpha, "exact", drawn(alpha).rho(2.0)))
    for delta in (1e-6,) if given.quick else np.geomspace(1e-8, 1e-1, 8):
        for alpha in (2.0, 5.0, 20.0):
            bound = dirdp.papers.p2_theorem_2(delta=delta, alpha_min=alpha, delta_2_squared=1.0).epsilon
            rows += [
                (f"prior {alpha:g}", delta, "printed", bound),
                (f"prior {alpha:g}", delta, "exact", drawn(alpha).epsilon(delta)),
            ]
    return pd.DataFrame(rows, columns=["part", "x", "line", "value"])


def draw(table):
    figure, axes = panels(2, 2)
    for ax, (part, rows) in zip(axes.flat, table.groupby("part", sort=False), strict=True):
        left = part == "left"
        for line, label in (
            ("printed", "bound"),
            ("these two", "the two data sets of P2"),
            ("exact", "exact, all data sets"),
        ):
            own = rows[rows["line"] == line].sort_values("x")
            if len(own):
                style = "corrected" if line == "these two" else line
                plot(ax, own["x"], own["value"], style, label=label, markevery=4 if left else 1)
        ax.set(xscale="log", yscale="log", title="rho at omega 2" if left else part)
        ax.set(xlabel="prior of every cell" if left else "delta", ylabel="rho" if left else "epsilon")
    # The names of the minor ticks would lie upon each other.
    axes[0, 0].set_xticks([], minor=True)
    axes[0, 0].set_xticks([1.5, 3, 6, 12], ["1.5", "3", "6", "12"])
    legend(figure, axes[0, 0], columns=3)
    return figure


def judge(table):
    left = table[table["part"] == "left"].pivot(index="x", columns="line", values="value")
    right = table[(table["part"] != "left") & np.isclose(table["x"], 1e-6)].pivot(
        index="part", columns="line", values="value"
    )
    return Verdict(
        "misleading",
        f"The bound is said to be a close approximation. At a prior of 1.5 it is {left.loc[1.5, 'printed']:.3f}, where "
        f"{left.loc[1.5, 'exact']:.3f} is lost and the two data sets of P2 lose {left.loc[1.5, 'these two']:.3f}; "
        f"at 20 it is {left.loc[20, 'printed']:.4f} for {left.loc[20, 'exact']:.4f}. Of the epsilon at delta 1e-6 "
        f"it is {(right['printed'] / right['exact']).min():.1f} to {(right['printed'] / right['exact']).max():.1f} "
        "times the exact one.",
        {
            "bound, prior 1.5": left.loc[1.5, "printed"],
            "exact, prior 1.5": left.loc[1.5, "exact"],
            "two data sets, prior 1.5": left.loc[1.5, "these two"],
            "exact epsilon, prior 5, delta 1e-6": right.loc["prior 5", "exact"],
        },
    )


EXPERIMENT = Experiment("P2", "Figure 1", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
