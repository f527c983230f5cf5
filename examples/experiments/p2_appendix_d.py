"""P2, Appendix D: the balance between the concentration r and the prior, at one guarantee.

`uv run examples/experiments/p2_appendix_d.py --out DIR [--quick]` goes along the boundary of (rho, 3)-tCDP and computes
the expected divergence of the private posterior of 1000 records in ten categories. Nothing is random.
"""

import math

import numpy as np
import pandas as pd
from common import Experiment, Verdict, legend, panels, plot
from scipy.optimize import brentq
from scipy.special import polygamma

import pymc_dirdp as dirdp
from pymc_dirdp.planning.expected_kl import PriorExpectedKL

D, N, OMEGA, RHOS = 10, 1000, 3.0, (0.01, 0.1, 1.0)


def printed_prior(r, rho):
    """The least prior of P2's Theorem 1: rho is r**2 psi'(prior - 2 r) for counts of which two move by 1."""
    top = 10 + 10 * r * r / rho
    return 2 * r + brentq(lambda rest: r * r * float(polygamma(1, rest)) - rho, 1e-9, top)


def exact_prior(r, rho):
    def excess(log_alpha):
        return dirdp.mechanisms.DirichletMechanism(np.full(2, math.exp(log_alpha)), r).rho(OMEGA) / rho - 1

    # The divergence of order omega is infinite below this.
    return math.exp(brentq(excess, math.log((OMEGA - 1) * r * (1 + 1e-9)), math.log(100 + 100 * r * r / rho)))


def compute(given):
    errors, rows = PriorExpectedKL(np.ones(D), n_records=N), []
    for rho in RHOS:
        for r in np.geomspace(0.02, 1, 21 if given.quick else 81):
            for line, least in (("printed", printed_prior), ("exact", exact_prior)):
                alpha = max(1.0, least(r, rho))
                rows.append((rho, r, line, alpha, errors.posterior(r, alpha - 1)))
        best = dirdp.calibrate(dirdp.TruncatedCDP(rho=rho, omega=OMEGA), prior=np.ones(D), n_records=N)
        alpha = float(best.alpha[0])
        rows.append((rho, best.r, "optimal", alpha, errors.posterior(best.r, alpha - 1)))
    return pd.DataFrame(rows, columns=["rho", "r", "line", "alpha", "kl"])


def draw(table):
    figure, axes = panels(2, 3, width=3.2, sharex=True)
    for column, (rho, rows) in zip(axes.T, table.groupby("rho"), strict=True):
        for line in ("printed", "exact"):
            own = rows[rows["line"] == line]
            for ax, value in zip(column, ("alpha", "kl"), strict=True):
                plot(ax, own["r"], own[value], line, markevery=10)
        best = rows[rows["line"] == "optimal"].iloc[0]
        for ax, value in zip(column, ("alpha", "kl"), strict=True):
            ax.plot(best["r"], best[value], "k*", markersize=13, label='chosen by strategy="optimal"')
            ax.set(xscale="log", yscale="log")
        column[0].set_title(f"rho {rho:g}")
        column[1].set_xlabel("concentration r")
    axes[0, 0].set_ylabel("least prior")
    axes[1, 0].set_ylabel("expected KL (nats)")
    legend(figure, axes[0, 0], columns=3)
    return figure


def judge(table):
    best = table[table["line"] == "optimal"].set_index("rho")
    least = table[table["line"] == "exact"].groupby("rho")["kl"].min()
    one = table[(table["line"] == "exact") & np.isclose(table["r"], 1)].set_index("rho")
    found = (best["kl"] <= least * (1 + 1e-6)).all()
    return Verdict(
        "agrees" if found else "differs",
        "There is a balance, and it is worth looking for. With 1000 records in ten categories the best r is "
        f"{', '.join(f'{best.loc[rho, "r"]:.3f}' for rho in RHOS)} at rho 0.01, 0.1 and 1, with a prior of "
        f"{', '.join(f'{best.loc[rho, "alpha"]:.2f}' for rho in RHOS)}. The divergence is then "
        f"{', '.join(f'{best.loc[rho, "kl"]:.2f}' for rho in RHOS)}, where r = 1 has "
        f"{', '.join(f'{one.loc[rho, "kl"]:.2f}' for rho in RHOS)}.",
        {f"{name}, rho {rho:g}": best.loc[rho, name] for name in ("r", "alpha", "kl") for rho in RHOS},
    )


EXPERIMENT = Experiment("P2", "Appendix D", compute, draw, judge)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
