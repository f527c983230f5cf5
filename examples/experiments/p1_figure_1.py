"""P1, Figure 1: the trigamma function and the bounds of equation 6.

`uv run examples/experiments/p1_figure_1.py --out DIR [--quick]`. Nothing is random.
"""

import numpy as np
import pandas as pd
from common import Experiment, Verdict, legend, panels, plot
from scipy.special import polygamma


def compute(given):
    x = np.geomspace(0.05, 50, 61)
    bounds = {"lower": 1 / x + 1 / (2 * x**2), "upper": 1 / x + 1 / x**2}
    return pd.DataFrame({"x": x, "trigamma": polygamma(1, x)} | bounds)


def draw(table):
    figure, axes = panels(1, 1, width=5.5)
    for column, line in (("upper", "printed"), ("lower", "corrected"), ("trigamma", "exact")):
        label = "trigamma" if column == "trigamma" else f"{column} bound of equation 6"
        plot(axes[0, 0], table["x"], table[column], line, label=label, markevery=10)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="x")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    inside = ((table["lower"] < table["trigamma"]) & (table["trigamma"] < table["upper"])).all()
    low, high = table["lower"] / table["trigamma"], table["upper"] / table["trigamma"]
    return Verdict(
        "agrees" if inside else "differs",
        f"The function falls, and lies between the bounds of equation 6: they are at most {1 - low.min():.0%} "
        f"below it and {high.max() - 1:.0%} above it.",
        {"least lower bound over value": low.min(), "largest upper bound over value": high.max()},
    )


EXPERIMENT = Experiment("P1", "Figure 1", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
