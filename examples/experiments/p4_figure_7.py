"""P4, Figure 7: what the mechanisms lose at a nominal epsilon of 1, over all neighbours and outputs.

`uv run examples/experiments/p4_figure_7.py --out DIR [--quick]`. Nothing is random. P4 looks at the neighbours of
balanced data only.
"""

import pandas as pd
import printed_p4
from common import Experiment, Verdict, legend, panels, plot
from hellinger_rivals import LABELS, rivals

PRIORS = (1.0, 0.1)


def compute(given):
    rows = []
    for prior in PRIORS:
        for n in (10, 300) if given.quick else (5, 10, 20, 40, 100, 300):
            for line, mechanism in rivals([prior, prior], n, 1.0, smoothness=0.4).items():
                rows.append((prior, n, line, mechanism.pure_epsilon))
            local = printed_p4.p4_local_loss(prior=[prior, prior], n_records=n, exponent=0.5)
            rows.append((prior, n, "local", local))
    return pd.DataFrame(rows, columns=["prior", "n", "line", "epsilon"])


def draw(table):
    figure, axes = panels(1, 2, height=3.8, legend=1, sharey=True)
    for ax, prior in zip(axes.flat, PRIORS, strict=True):
        rows = table[table["prior"] == prior]
        for line, label in (LABELS | {"Gaussian noise, smoothed": "local sensitivity (not private)"}).items():
            own = rows[rows["line"] == ("local" if line == "Gaussian noise, smoothed" else line)]
            plot(ax, own["n"], own["epsilon"], line, label=label)
        ax.axhline(1, color="0.5", linewidth=0.8)
        ax.set(xscale="log", title=f"Beta({prior:g}, {prior:g})", xlabel="records", ylim=(0, 1.15))
    axes[0, 0].set_ylabel("epsilon that is lost")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table[table["n"].isin((10, 300))].pivot(index=["prior", "n"], columns="line", values="epsilon")
    lost = at.loc[1.0]
    return Verdict(
        "agrees",
        f"At a nominal 1 Definition 4 loses {lost.loc[10, 'printed']:.3f} with 10 records and "
        f"{lost.loc[300, 'printed']:.3f} with 300 for Beta(1, 1), and lapMech "
        f"{lost.loc[300, 'Laplace noise']:.2f}: less than stated, as P4 says. For Beta(0.1, 0.1) and 300 records "
        f"the mechanism with the local sensitivity loses {at.loc[(0.1, 300), 'local']:.3f}, which P4's figure "
        "does not show; calibrated exactly, all is spent.",
        {
            f"prior {p:g}, {n} records, {line}": at.loc[(p, n), line]
            for p, n in at.index
            for line in ("printed", "exact", "local")
        },
    )


EXPERIMENT = Experiment("P4", "Figure 7", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
