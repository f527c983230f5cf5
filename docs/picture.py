"""Draw the picture of the first page: `uv run docs/picture.py`."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy import stats

import pymc_dirdp as dirdp

COUNTS = np.array([108, 286, 71, 127])  # Snee (1974)

with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    pm.Multinomial("students", n=592, p=p, observed=COUNTS)

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), sharex=True, layout="constrained")
grid = np.linspace(0, 0.7, 500)
for epsilon, style in ((0.3, ":"), (1.0, "--"), (3.0, "-.")):
    mechanism = dirdp.plan(dirdp.ApproxDP(epsilon=epsilon, delta=1e-6), model).parts[0].mechanism
    u = mechanism.concentration(COUNTS)
    for axis, u_i in zip(axes, u, strict=True):
        axis.plot(
            grid, stats.beta(u_i, u.sum() - u_i).pdf(grid), style, color="0.25", label=f"$\\epsilon$ = {epsilon:g}"
        )
u = COUNTS + 1
for axis, u_i, colour in zip(axes, u, model.coords["hair"], strict=True):
    axis.plot(grid, stats.beta(u_i, u.sum() - u_i).pdf(grid), color="tab:orange", label="posterior")
    axis.set(title=colour, yticks=[], ylim=(0, None), xlabel="share")
    axis.spines[["left", "right", "top"]].set_visible(False)
axes[0].set_ylabel("density")
axes[0].legend(frameon=False, fontsize="small", loc="upper right", title="at $\\delta$ = 1e-6", title_fontsize="small")
figure.savefig(Path(__file__).parent / "_static" / "quickstart.png", dpi=150)
