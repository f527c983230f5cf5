"""P1, Figure 11: the log-likelihood of test records in Bayesian networks under (epsilon, 1e-5)-differential privacy.

`uv run examples/experiments/p1_figure_11.py --data DIR --out DIR [--quick]` is `p1_figure_7.py` under approximate
privacy, with the mechanism of Gohari et al. (P3) besides.
"""

import numpy as np
from common import Experiment, Verdict
from p1_figure_7 import compute as computed
from p1_figure_7 import draw
from rivals import under_approx


def compute(given):
    return computed(given, under_approx)


def judge(table):
    at = table[np.isclose(table["epsilon"], 1.0)].pivot(index="data", columns="line", values="mean")
    name = "german_credit" if "german_credit" in at.index else at.index[0]
    one = at.loc[name]
    return Verdict(
        "misleading",
        "At epsilon 1 Algorithm 1 is better than Gohari et al. in "
        f"{int((at['printed'] > at['Gohari et al.']).sum())} of {len(at)} networks. Estimated noise, composed "
        "exactly, is better than both in "
        f"{int((at['geometric noise, estimated'] > at[['printed', 'Gohari et al.']].max(axis=1)).sum())}. On "
        f"{name} the log-likelihood is {one['printed']:.2f} for the draw, {one['exact']:.2f} for the draw "
        f"composed exactly, {one['Gohari et al.']:.2f} for Gohari et al., {one['Laplace noise']:.2f} for clipped "
        f"Laplace noise and {one['geometric noise, estimated']:.2f} for estimated noise.",
        {f"{name}, {line}": one[line] for line in ("printed", "exact", "Gohari et al.", "geometric noise, estimated")},
    )


EXPERIMENT = Experiment(
    "P1", "Figure 11", compute, lambda table: draw(table, "at delta 1e-5"), judge, tolerance=0.1, data=True
)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
