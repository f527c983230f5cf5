"""P2, Figure 3 (Appendix C): the divergence of a private posterior from the posterior, by the number of records.

`uv run examples/experiments/p2_figure_3.py --out DIR [--quick]` makes 200 tables of ten categories for each setting
(60 for estimated noise; P2 does not say how many categories it has). Without privacy the divergence is 0.
"""

import math

import numpy as np
import pandas as pd
import printed_p2
from common import SEED, Experiment, Verdict, legend, panels, plot_lines, spread
from rivals import estimated_tables

import pymc_dirdp as dirdp
from pymc_dirdp.planning.expected_kl import dirichlet_kl_rows

D = 10


def compute(given):
    rows, times, flat = [], 200, np.ones(D)
    for rho in (0.1,) if given.quick else (0.01, 0.1, 1.0):
        # P2's calibration at gamma 2 bounds the orders up to 3.
        guarantee = dirdp.TruncatedCDP(rho=rho, omega=3.0)
        printed = printed_p2.p2_theorem_1_prior(rho=rho, gamma=2.0)
        inflated = dirdp.calibrate(guarantee, prior=flat, mechanism=dirdp.mechanisms.Dirichlet(strategy="inflate"))
        noise = dirdp.mechanisms.GeometricMechanism.for_guarantee(dirdp.ZeroCDP(rho=rho), prior=flat)
        for n in (1000,) if given.quick else (10, 100, 1000, 10_000):
            optimal = dirdp.calibrate(guarantee, prior=flat, n_records=n)
            for eta in (0.1, 10.0) if given.quick else (0.1, 1.0, 10.0):
                rng = np.random.default_rng(SEED)
                q = np.array([rng.dirichlet(np.full(D, eta)) for _ in range(times)])
                x = rng.multinomial(n, q / q.sum(axis=1, keepdims=True)).astype(float)
                noisy = np.maximum(x + rng.normal(0, 1 / math.sqrt(rho), x.shape), 0)
                private = {
                    "printed": x + printed,
                    "corrected": x + inflated.alpha[0],
                    "exact": optimal.r * x + optimal.alpha[0],
                    "Gaussian noise": noisy + 1,
                    # The posterior that the expected counts would have.
                    "geometric noise, estimated": estimated_tables(noise, flat, x, rng) * (n + D),
                }
                for line, parameters in private.items():
                    kl = dirichlet_kl_rows(x[: len(parameters)] + 1, parameters)
                    rows.append({"rho": rho, "eta": eta, "n": n, "line": line} | spread(kl))
    return pd.DataFrame(rows)


def draw(table):
    figure, axes = panels(3, 3, width=3.2, height=2.7, legend=0.9, sharex=True, sharey=True)
    for ax, ((rho, eta), rows) in zip(axes.flat, table.groupby(["rho", "eta"]), strict=False):
        plot_lines(ax, rows, "n")
        ax.set(xscale="log", yscale="log", title=f"rho {rho:g}, eta {eta:g}")
    for ax in axes[-1]:
        ax.set_xlabel("records")
    for ax in axes[:, 0]:
        ax.set_ylabel("KL (nats)")
    legend(figure, axes[0, 0], columns=3)
    return figure


def judge(table):
    at = table[np.isclose(table["rho"], 0.1) & (table["n"] == 1000)].pivot(index="eta", columns="line", values="mean")
    one, even = at.loc[0.1], at.loc[10.0]
    return Verdict(
        "agrees",
        "P2 finds its draw almost always inferior to Gaussian noise, closer where the data are even. With 1000 "
        f"records and rho 0.1 the divergence is {one['printed']:.2f} for P2's prior and "
        f"{one['Gaussian noise']:.2f} for the noise at eta 0.1, and {even['printed']:.3f} and "
        f"{even['Gaussian noise']:.3f} at eta 10. The least prior that the exact curve allows has "
        f"{one['corrected']:.2f} and {even['corrected']:.3f}, the pair of r and prior that is best on average over the "
        f"model's prior {one['exact']:.2f} and {even['exact']:.3f}, which P2's own prior beats "
        f"where data are even, and estimated noise {one['geometric noise, estimated']:.2f} and "
        f"{even['geometric noise, estimated']:.3f}.",
        {f"eta {eta:g}, {line}": at.loc[eta, line] for eta in (0.1, 10.0) for line in at.columns},
    )


EXPERIMENT = Experiment("P2", "Figure 3", compute, draw, judge, tolerance=0.02)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
