"""P3, Figure 3: outputs for two neighbours, 200 for each, and what the printed epsilons are worth.

`uv run examples/experiments/p3_figure_3.py --out DIR [--quick]`. The epsilons are exact; the outputs have a fixed seed.
"""

import numpy as np
import pandas as pd
from common import SEED, Experiment, Verdict, legend, panels
from p3_figure_1 import corners, places

import pymc_dirdp as dirdp

PAIR = {"p": np.array([0.2, 0.3, 0.5]), "q": np.array([0.2, 0.5, 0.3])}
PRINTED = {24: 8.53, 10: 4.40, 3: 2.30}


def compute(given):
    domain, rows, rng = dirdp.papers.SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), [], np.random.default_rng(SEED)
    for k, printed in PRINTED.items():
        mechanism = dirdp.papers.SimplexMechanism(k, domain)
        gamma = dirdp.papers.p3_problem_14(domain, k, 0.05)
        found = {
            "printed": printed,
            "corrected": dirdp.papers.p3_theorem_1_corrected(domain, k, gamma),
            "exact": mechanism.epsilon(0.05),
            "true delta": mechanism.delta(printed),
        }
        rows += [{"k": k, "kind": name, "value": value} for name, value in found.items()]
        for name, vector in PAIR.items():
            drawn = mechanism.sample(vector, protected=(1, 2), released_draws=200, sampler="fast", random_seed=rng)
            rows += [{"k": k, "kind": name, "x": y[0], "y": y[1]} for y in drawn]
    return pd.DataFrame(rows)


def draw(table):
    figure, axes = panels(1, 3, width=3.4, height=3.4, legend=0.9)
    for ax, k in zip(axes.flat, PRINTED, strict=True):
        rows = table[table["k"] == k]
        corners(ax)
        for name, marker, color in (("p", "o", "#0b4f8a"), ("q", "^", "#e69f00")):
            points = rows[rows["kind"] == name]
            look = {"s": 14, "marker": marker, "color": color, "alpha": 0.55, "linewidths": 0}
            ax.scatter(
                *places(points["x"], points["y"]), label=f"outputs of {name} = {tuple(PAIR[name].tolist())}", **look
            )
        value = rows.set_index("kind")["value"]
        ax.set_title(f"k = {k}: epsilon {value['printed']:.2f} printed,\n{value['exact']:.2f} exact, at delta 0.05")
    legend(figure, axes[0, 0])
    return figure


def judge(table):
    at = table[table["value"].notna()].pivot(index="k", columns="kind", values="value").loc[[3, 10, 24]]

    def listed(name, digits=2):
        return ", ".join(f"{value:.{digits}f}" for value in at[name])

    return Verdict(
        "corrected",
        f"The epsilons {listed('printed')} for k = 3, 10 and 24 follow from no theorem. Theorem 1 gives "
        f"{listed('corrected')}, and the exact ones are {listed('exact')}. At the printed ones delta is "
        f"{listed('true delta')} and not 0.05.",
        {f"k {k}, {name}": at.loc[k, name] for k in at.index for name in ("corrected", "exact", "true delta")},
    )


EXPERIMENT = Experiment("P3", "Figure 3", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
