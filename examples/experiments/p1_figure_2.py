"""P1, Figure 2: the delta of Gohari et al. (P3) as a function of their gamma, which P1 says cannot go below 2.1e-4.

`uv run examples/experiments/p1_figure_2.py --out DIR [--quick]`. Nothing is random. The concentration 171.87 and the
floor 0.028 are P1's. P1 does not say how many entries are protected; a record moves between two.
"""

import numpy as np
import pandas as pd
from common import Experiment, Verdict, legend, panels, plot

import pymc_dirdp as dirdp

PRINTED, PROTECTED = 2.1e-4, (2, 3, 5)
LINES = dict(zip(PROTECTED, ("exact", "geometric noise, estimated", "corrected"), strict=True))


def compute(given):
    rows = []
    for m in PROTECTED:
        domain = dirdp.papers.SimplexDomain(m, eta=0.028, etabar=0.114, b=0.1)
        for gamma in np.geomspace(1e-6, 2e-2, 9 if given.quick else 33):
            rows.append((m, gamma, dirdp.papers.p3_lemma_1(domain, 171.87, gamma)))
        rows.append((m, 1e-3, dirdp.papers.p3_lemma_1(domain, 171.87, 1e-3)))
    return pd.DataFrame(rows, columns=["protected", "gamma", "delta"]).sort_values(["protected", "gamma"])


def draw(table):
    figure, axes = panels(1, 1, width=5.5)
    ax = axes[0, 0]
    for m, rows in table.groupby("protected"):
        plot(ax, rows["gamma"], rows["delta"], LINES[m], label=f"exact, {m} protected entries", markevery=4)
    plot(ax, table["gamma"].agg(["min", "max"]), [PRINTED] * 2, "printed", label="least delta that P1 finds", marker="")
    ax.set(xscale="log", yscale="log", xlabel="gamma", ylabel="delta", ylim=(1e-22, 2))
    legend(figure, ax)
    return figure


def judge(table):
    at = {g: table[np.isclose(table["gamma"], g)].set_index("protected")["delta"] for g in (1e-3, 1e-6)}
    return Verdict(
        "corrected",
        f"The floor of 2.1e-4 is an artefact of the integration. At gamma 1e-3 delta is {at[1e-3][2]:.1e}, "
        f"{at[1e-3][3]:.1e} and {at[1e-3][5]:.1e} for 2, 3 and 5 protected entries, and at 1e-6 it is "
        f"{at[1e-6][5]:.1e} for 5: it falls as far as one likes.",
        {f"delta, {m} entries, gamma {g:g}": values[m] for g, values in at.items() for m in PROTECTED},
    )


EXPERIMENT = Experiment("P1", "Figure 2", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
