"""P4, Figure 6: the expected distance for three and four categories, and for larger priors.

`uv run examples/experiments/p4_figure_6.py --out DIR [--quick]` sums it exactly, for balanced data and epsilon 1. The
exact calibration compares all neighbours, so it has fewer records; four categories are refused where there are many.
For larger priors boxes show the quartiles of the distance, and whiskers leave out the lowest and the highest 1 %.
"""

import numpy as np
import pandas as pd
from common import STYLES, Experiment, Verdict, legend, panels, plot
from hellinger_rivals import LABELS, balanced, rivals

from pymc_dirdp.papers.hellinger_distributions import hellinger_distance

SIZES = {3: (9, 30, 99, 150), 4: (8, 16, 28)}
COMPARED = ("printed", "exact", "Laplace noise", "geometric noise, estimated")
PRIORS = (1, 3, 10, 50, 200)
QUANTILES = {"whislo": 0.01, "q1": 0.25, "med": 0.5, "q3": 0.75, "whishi": 0.99}


def quantiles(mechanism, counts, prior):
    """Of the distance of the released posterior from the true one."""
    outcomes, distribution = mechanism.distribution(counts)
    distance = hellinger_distance(counts + prior, outcomes + prior)
    order = np.argsort(distance)
    reached = np.cumsum(distribution[order])
    # A half of the probability that is summed with an error of 1e-15 is a half.
    places = np.searchsorted(reached, np.array(list(QUANTILES.values())) - 1e-12)
    return distance[order][places]


def compute(given):
    rows = []
    for d, sizes in SIZES.items():
        for n in sizes[:1] if given.quick else sizes:
            for line, mechanism in rivals([1] * d, n, 1.0, smoothness=0.5, exact=n <= (30 if d == 3 else 8)).items():
                rows.append((f"{d} categories", n, line, mechanism.expected_distance(balanced(n, d)), *[np.nan] * 5))
    for prior in (1, 50) if given.quick else PRIORS:
        for line, mechanism in rivals([prior, prior], 100, 1.0).items():
            found = quantiles(mechanism, np.array([50, 50]), np.full(2, float(prior)))
            rows.append(("priors", prior, line, mechanism.expected_distance([50, 50]), *found))
    return pd.DataFrame(rows, columns=["part", "x", "line", "distance", *QUANTILES])


def draw_boxes(ax, rows):
    """A box for each of some mechanisms and each prior."""
    priors = sorted(set(rows["x"]))
    for i, line in enumerate(COMPARED):
        own = rows[rows["line"] == line].set_index("x")
        places = [place + 0.2 * (i - 1.5) for place, prior in enumerate(priors) if prior in own.index]
        stats = [own.loc[prior, list(QUANTILES)].to_dict() for prior in priors if prior in own.index]
        ax.bxp(
            stats,
            positions=places,
            widths=0.16,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": STYLES[line]["color"], "alpha": 0.6},
            medianprops={"color": "black"},
        )
    ax.set(title="50 of 100 records, larger priors", xlabel="prior of each category", ylabel="Hellinger distance")
    ax.set_xticks(range(len(priors)), [f"{prior:g}" for prior in priors])


def draw(table):
    figure, axes = panels(1, 3, width=3.5, height=3.8, legend=0.9)
    for ax, (part, rows) in zip(axes.flat, table.groupby("part", sort=False), strict=True):
        if part == "priors":
            draw_boxes(ax, rows)
            continue
        for line, label in LABELS.items():
            own = rows[rows["line"] == line]
            plot(ax, own["x"], own["distance"], line, label=label)
        ax.set(xscale="log", yscale="log", title=f"{part}, flat prior")
        ax.set(xlabel="records", ylabel="expected Hellinger distance")
        ax.minorticks_off()
        ax.set_xticks(sorted(set(rows["x"])), [f"{x:g}" for x in sorted(set(rows["x"]))])
    legend(figure, axes[0, 0], columns=3)
    return figure


def judge(table):
    at = table.pivot(index=["part", "x"], columns="line", values="distance")
    three, four, large = at.loc[("3 categories", 9)], at.loc[("4 categories", 8)], at.loc[("priors", 50)]

    def values_of(row):
        *first, last = (f"{row[line]:.3f}" for line in COMPARED)
        return f"{', '.join(first)} and {last}"

    return Verdict(
        "corrected",
        "The distances of Definition 4, the same calibrated exactly, lapMech and truncated geometric noise are "
        f"{values_of(three)} for nine records of three categories, {values_of(four)} for eight of four, and "
        f"{values_of(large)} for Beta(50, 50) and (50, 50). So for a few records of three or four categories "
        "Definition 4 beats lapMech, and is the best of all when it is calibrated exactly; for large priors lapMech "
        "beats it, and geometric noise all.",
        {
            f"{part}, {x:g}, {line}": at.loc[(part, x), line]
            for part, x in (("3 categories", 9), ("4 categories", 8), ("priors", 50))
            for line in COMPARED
        },
    )


EXPERIMENT = Experiment("P4", "Figure 6", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
