"""P2, Figure 2: the largest error of a frequency, by the number of records, for 10, 100 and 1000 categories.

`uv run examples/experiments/p2_figure_2.py --out DIR [--quick]` makes 200 tables for each setting, as P2 does, and
60 for estimated noise. P2 shows the draw and Gaussian noise as it comes. Without privacy the error would be 0.
"""

import math

import numpy as np
import pandas as pd
import printed_p2
from common import SEED, Experiment, Verdict, legend, panels, plot_lines, spread
from rivals import estimated_tables, shares_of

import pymc_dirdp as dirdp

SETTINGS = {(10, 0.1), (10, 1.0), (100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0)}


def compute(given):
    rows, times = [], 200
    for d, rho in ((10, 1.0), (1000, 0.1)) if given.quick else sorted(SETTINGS):
        guarantee = dirdp.TruncatedCDP(rho=rho, omega=2.0)
        alpha = printed_p2.p2_theorem_1_prior(rho=rho, gamma=1.0)
        noise = dirdp.mechanisms.GeometricMechanism.for_guarantee(dirdp.ZeroCDP(rho=rho), prior=np.full(d, 5.0))
        for n in (100,) if given.quick else (30, 100, 1000, 10_000):
            rng = np.random.default_rng(SEED)
            counts = rng.multinomial(n, rng.dirichlet(np.full(d, 5.0), size=times)).astype(float)
            exact = dirdp.calibrate(guarantee, prior=np.full(d, 5.0), n_records=n, objective="estimate")
            noisy = counts + rng.normal(0.0, 1 / math.sqrt(rho), counts.shape)
            clipped = np.maximum(noisy, 0)
            shares = estimated_tables(noise, np.full(d, 5.0), counts, rng)
            outputs = {
                "printed": shares_of(counts + alpha, rng),
                "exact": shares_of(exact.r * counts + exact.alpha[0], rng),
                # The expected counts over n: the expected shares are drawn towards the prior.
                "geometric noise, estimated": (shares * (n + 5 * d) - 5) / n,
                "Gaussian noise": noisy / n,
                "Gaussian noise, smoothed": clipped / clipped.sum(axis=1, keepdims=True),
                "nothing known": np.full(counts.shape, 1 / d),
            }
            for line, y in outputs.items():
                rows.append(
                    {"d": d, "rho": rho, "n": n, "line": line} | spread(np.abs(y - counts[: len(y)] / n).max(axis=1))
                )
    return pd.DataFrame(rows)


def draw(table):
    cases = list(table.groupby(["d", "rho"]))
    figure, axes = panels(math.ceil(len(cases) / 2), 2, height=2.9, legend=1, sharex=True)
    for ax, ((d, rho), rows) in zip(axes.flat, cases, strict=True):
        plot_lines(ax, rows, "n")
        ax.set(xscale="log", yscale="log", title=f"{d:g} categories, rho {rho:g}", ylabel="largest error")
    for ax in axes[-1]:
        ax.set_xlabel("records")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table[table["n"] == 100].pivot(index=["d", "rho"], columns="line", values="mean")
    one = at.loc[(1000, 0.1)]
    few = at.loc[(10, 1.0)]
    return Verdict(
        "misleading",
        f"With 1000 categories, 100 records and rho 0.1 the error is {one['printed']:.3f} for the draw and "
        f"{one['Gaussian noise']:.3f} for noise as it comes, so the draw wins. But clipped and normalised the "
        f"same noise has {one['Gaussian noise, smoothed']:.3f}, and the uniform distribution, which knows no data, "
        f"{one['nothing known']:.3f}. With 10 categories and rho 1 it is {few['printed']:.3f} for the draw, "
        f"{few['Gaussian noise']:.3f} for noise as it comes and {few['geometric noise, estimated']:.3f} for "
        "estimated noise.",
        {
            f"1000 categories, {line}": one[line]
            for line in ("printed", "exact", "Gaussian noise", "Gaussian noise, smoothed")
        }
        | {f"10 categories, {line}": few[line] for line in ("printed", "Gaussian noise", "geometric noise, estimated")},
    )


EXPERIMENT = Experiment("P2", "Figure 2", compute, draw, judge, tolerance=0.02)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
