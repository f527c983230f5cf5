"""Expected KL of one private draw at equal guarantee, a priori: `uv run tests/benchmarks/utility_table.py`.

Rows: kind of data, categories, records, epsilon. Columns: the mechanisms, what `auto` takes, and one draw from the
posterior without privacy. It ends with how far `auto` is from the best of the others, at most.
"""

import argparse
import math

import numpy as np

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.known import noises
from pymc_dirdp.planning.choosing import rank
from pymc_dirdp.privacy.conversion import epsilon_at
from pymc_dirdp.utility.expected_kl import PriorExpectedKL
from pymc_dirdp.utility.simulated import predicted_data, simulated_kl

DELTA = 1e-6
RECORDS = (10**2, 10**3, 10**4, 10**5, 10**6)
CATEGORIES = (2, 10, 100, 1000)
EPSILONS = (0.1, 1.0, 5.0)
PRIORS = {"flat": 1.0, "sparse": 0.1}
COLUMNS = ("Algorithm 1", "optimal", "gaussian", "laplace", "geometric", "auto", "posterior")
NOISES = {kind: noise for kind, noise in noises(public_totals=True).items() if kind in COLUMNS}


def of_dirichlet(expected, mechanism, prior, objective):
    return getattr(expected, objective)(mechanism.r, float(mechanism.alpha.flat[0]), keep=0.0)


def algorithm_1(epsilon, prior, expected, objective):
    """P1's Algorithm 1 with its own bound and Lemma 3's conversion, at the order that loses least."""
    found = math.inf
    for order in np.geomspace(1.5, 400, 25).tolist():
        budget = epsilon - epsilon_at(order, 0.0, DELTA)
        if budget > 0:
            made = dirdp.calibrate(dirdp.RenyiDP(order=order, epsilon=budget), prior=prior, strategy="algorithm-1")
            found = min(found, of_dirichlet(expected, made, prior, objective))
    return found


def row(kind, d, n, epsilon, objective):
    prior, target = np.full(d, PRIORS[kind]), dirdp.ApproxDP(epsilon=epsilon, delta=DELTA)
    expected = PriorExpectedKL(prior, n)
    optimal = dirdp.calibrate(target, prior=prior, n_records=n, objective=objective)
    data = predicted_data(prior, n)
    scores = {
        "Algorithm 1": algorithm_1(epsilon, prior, expected, objective),
        "optimal": of_dirichlet(expected, optimal, prior, objective),
    }
    for name, noise in NOISES.items():
        scores[name] = getattr(simulated_kl(noise.for_guarantee(target, prior=prior), prior, data), objective)
    public = {"n_records": n, "adjacency": "replace-one", "public_totals": True}
    choice = rank(optimal, target, prior=prior, objective=objective, **public)
    scores["auto"] = scores["optimal" if choice.best == "dirichlet" else choice.best]
    scores["posterior"] = getattr(expected, objective)(1.0)
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objective", choices=("estimate", "posterior"), default="estimate")
    objective = parser.parse_args().objective
    print("| data | d | N | epsilon | " + " | ".join(COLUMNS) + " |")
    print("|---|---|---|---|" + "---|" * len(COLUMNS))
    worst = 0.0
    for kind in PRIORS:
        for d in CATEGORIES:
            for n in RECORDS:
                for epsilon in EPSILONS:
                    scores = row(kind, d, n, epsilon, objective)
                    others = [scores[name] for name in ("Algorithm 1", "optimal", *NOISES)]
                    worst = max(worst, scores["auto"] / max(min(others), 1e-300) - 1)
                    cells = " | ".join(f"{scores[name]:.3g}" for name in COLUMNS)
                    print(f"| {kind} | {d} | 1e{round(math.log10(n))} | {epsilon:g} | {cells} |", flush=True)
    print(f"\n`auto` exceeds the best of the others by {100 * worst:.1f} % at most.")


if __name__ == "__main__":
    main()
