"""P3, Figure 1: vectors of the simplex after Gaussian noise and projection.

`uv run examples/experiments/p3_figure_1.py --out DIR [--quick]` perturbs 1000 vectors with the noise that P3 takes, of
the theorem that it cites, and the least that keeps (1, 0.01)-differential privacy; 200 times each.
"""

import numpy as np
import pandas as pd
from common import SEED, Experiment, Verdict, panels, spread
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_dirdp.mechanisms.noisy_counts import postprocessed
from pymc_dirdp.privacy.gaussian_loss import gaussian_excess

DISTANCE, EPSILON, DELTA = 0.1, 1.0, 0.01


def least_deviation():
    """The least standard deviation that keeps (EPSILON, DELTA) if a vector moves by the distance."""

    def excess(ratio):
        return gaussian_excess(ratio, np.array([EPSILON / ratio - ratio / 2]))[0].item() - DELTA

    return DISTANCE / brentq(excess, 0.01, 10.0, xtol=1e-14)


def deviations():
    k = norm.isf(DELTA)
    cited = DISTANCE / (2 * EPSILON) * (k + np.sqrt(k**2 + 2 * EPSILON))
    return {"printed": 0.5, "corrected": cited, "exact": least_deviation()}


def compute(given):
    rng, rows = np.random.default_rng(SEED), []
    for line, sigma in deviations().items():
        shares, errors = [], []
        for _ in range(50 if given.quick else 200):
            p = rng.dirichlet(np.ones(3), size=1000)
            noisy = p + rng.normal(0, sigma, p.shape)
            # The nearest point of the simplex: noise along its normal changes nothing.
            projected = postprocessed(noisy + (1 - noisy.sum(axis=1, keepdims=True)) / 3, "project", noise=0.0)
            shares.append((projected <= 1e-12).any(axis=1).mean())
            errors.append(np.abs(projected - p).max(axis=1).mean())
        if line == "printed":
            rows += [{"line": line, "kind": "original", "x": y[0], "y": y[1]} for y in p[:150]]
            inside = noisy + (1 - noisy.sum(axis=1, keepdims=True)) / 3
            rows += [{"line": line, "kind": "noisy", "x": y[0], "y": y[1]} for y in inside[:150]]
        rows.append({"line": line, "sigma": sigma, "kind": "at the border"} | spread(shares))
        rows.append({"line": line, "sigma": sigma, "kind": "largest error"} | spread(errors))
        rows += [{"line": line, "sigma": sigma, "kind": "point", "x": y[0], "y": y[1]} for y in projected[:150]]
    return pd.DataFrame(rows)


def corners(ax):
    """A triangle whose corners are the three categories."""
    ax.plot([0, 1, 0.5, 0], [0, 0, np.sqrt(0.75), 0], color="black", linewidth=0.8)
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)


def places(first, second):
    """Where a vector of three shares lies in the triangle."""
    return second + (1 - first - second) / 2, (1 - first - second) * np.sqrt(0.75)


def draw(table):
    figure, axes = panels(2, 3, width=3.4, height=3.3, legend=0)
    at_border = table[table["kind"] == "at the border"].set_index("line")
    names = {"printed": "P3", "corrected": "the cited theorem", "exact": "least that is private"}
    titles = {
        ("original", "printed"): "150 of the vectors",
        ("noisy", "printed"): "with P3's noise, in their plane",
    } | {
        (
            "point",
            line,
        ): f"{name}: deviation {at_border.loc[line, 'sigma']:.3f}\n{at_border.loc[line, 'mean']:.0%} at the border"
        for line, name in names.items()
    }
    axes[0, 2].remove()
    for ax, ((kind, line), title) in zip([*axes[0, :2], *axes[1]], titles.items(), strict=True):
        points = table[(table["kind"] == kind) & (table["line"] == line)]
        corners(ax)
        ax.scatter(*places(points["x"], points["y"]), s=12, color="#0b4f8a", alpha=0.5, linewidths=0)
        ax.set_title(title)
    return figure


def judge(table):
    at = table[table["mean"].notna()].pivot(index="line", columns="kind", values="mean")
    sigma = table.dropna(subset="mean").drop_duplicates("line").set_index("line")["sigma"]
    return Verdict(
        "misleading",
        f"P3 takes {sigma['printed']:g} for the standard deviation, where the theorem that it cites needs "
        f"{sigma['corrected']:.4f} and the exact curve {sigma['exact']:.4f}. After projection "
        f"{at.loc['printed', 'at the border']:.0%}, {at.loc['corrected', 'at the border']:.0%} and "
        f"{at.loc['exact', 'at the border']:.0%} of the vectors lie at the border. So points do pile up there, "
        "about half as many as in print.",
        {f"share at the border, {line}": at.loc[line, "at the border"] for line in at.index}
        | {f"deviation, {line}": sigma[line] for line in ("corrected", "exact")},
    )


EXPERIMENT = Experiment("P3", "Figure 1", compute, draw, judge, tolerance=0.02)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
