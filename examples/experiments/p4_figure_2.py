"""P4, Figure 2: at which posterior the distance to it changes most between neighbours.

`uv run examples/experiments/p4_figure_2.py --out DIR [--quick]` computes the change at every candidate. Nothing is
random. The data are 20 balanced records, because P4 does not print its own, and the prior is Beta(1, 1).
"""

import numpy as np
import pandas as pd
import printed_p4
from common import Experiment, Verdict, panels, plot

from pymc_dirdp.papers.hellinger_distributions import hellinger_distance

N = 20


def compute(given):
    posteriors = np.stack([np.arange(N + 1), N - np.arange(N + 1)], axis=1) + 1
    x = N // 2
    change = [
        max(
            abs(hellinger_distance(posteriors[other], r) - hellinger_distance(posteriors[x], r))
            for other in (x - 1, x + 1)
        )
        for r in posteriors
    ]
    return pd.DataFrame({"candidate": np.arange(N + 1), "change": change})


def draw(table):
    figure, axes = panels(1, 1, width=5.5, legend=0)
    plot(axes[0, 0], table["candidate"], table["change"], "exact")
    axes[0, 0].axvline(N // 2, color="0.6", linestyle=":")
    axes[0, 0].set(
        xlabel="candidate: records in the first category", ylabel="largest change of the distance", ylim=(0, None)
    )
    return figure


def judge(table):
    local = printed_p4.p4_local_sensitivity([N // 2, N // 2], prior=[1, 1])
    largest, there = table["change"].max(), table.set_index("candidate")["change"]
    holds = np.isclose(largest, local, rtol=1e-5) and np.isclose(there[N // 2], largest, rtol=1e-5)
    return Verdict(
        "corrected" if holds else "differs",
        f"The change is largest at the posterior of the data, {there[N // 2]:.4f}, and there it is the distance to the "
        "neighbour, as the triangle inequality says; at the neighbours it is the same. The formula in print "
        "compares a data set with itself, which gives 0.",
        {"largest change": largest, "change at the posterior": there[N // 2], "local sensitivity": local},
    )


EXPERIMENT = Experiment("P4", "Figure 2", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
