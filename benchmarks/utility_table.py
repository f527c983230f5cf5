"""Expected KL of shares from one release at equal guarantee, a priori: `uv run benchmarks/utility_table.py`.

Rows: kind of data, categories, records, epsilon. Columns: a Dirichlet draw that is read as the shares,
and geometric noise that is clipped, smoothed and treated as the data; what `dirdp.estimate` says of the shares, for
each mechanism and for what `auto` takes; and the posterior means without privacy. It ends with how far `auto` is from
the best of the others, at most. The errors are simulated with more and other tables than those by which `auto` chooses.
"""

import math

import numpy as np
from scipy.special import digamma

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import noises
from pymc_dirdp.planning import estimate_error as module
from pymc_dirdp.planning.choosing import TableFacts, Terms, choose

DELTA = 1e-6
RECORDS = (10**2, 10**3, 10**4, 10**5, 10**6)
CATEGORIES = (2, 10, 100, 1000)
EPSILONS = (0.1, 1.0, 5.0)
PRIORS = {"flat": 1.0, "sparse": 0.1}
READ = ("Dirichlet draw", "geometric clipped")
ESTIMATED = ("Dirichlet", "gaussian", "geometric")
COLUMNS = (*READ, *ESTIMATED, "auto", "posterior")
# Simulated cells and tables: four times as many as to choose.
CELLS, TABLES = 8_000, 4_000


def read_as_shares(prior, n, dirichlet, geometric):
    """Expected KL from the shares of a draw, of clipped and smoothed noise, and of the means of the posterior."""
    rng = np.random.default_rng(3)
    tables = max(10, CELLS // len(prior))
    x = rng.multinomial(n, rng.dirichlet(prior, tables)).astype(float)
    parameters, size = prior + x, n + prior.sum()
    mean = parameters / size
    of_shares = (mean * (digamma(parameters + 1) - digamma(size + 1))).sum(axis=1)
    u = dirichlet.posterior_parameters(x, rng)
    v = geometric.posterior_parameters(x, rng)
    logs = (
        digamma(u) - digamma(u.sum(axis=1, keepdims=True)),
        np.log(v / v.sum(axis=1, keepdims=True)),
        np.log(mean),
    )
    return [float((of_shares - (mean * log).sum(axis=1)).mean()) for log in logs]


def row(kind, d, n, epsilon):
    prior, target = np.full(d, PRIORS[kind]), dirdp.ApproxDP(epsilon=epsilon, delta=DELTA)
    dirichlet = dirdp.calibrate(target, prior=prior, n_records=n)
    _, choices = choose(target, {"p": TableFacts(prior, n)}, Terms(groups=[("p",)], public_totals=True))
    exact = noises(public_totals=True)
    mechanisms = {"Dirichlet": dirichlet} | {
        name: noise.for_guarantee(target, prior=prior) for name, noise in exact.items()
    }
    defaults = module._Rows.simulated.__func__.__kwdefaults__
    chosen_with = dict(defaults)
    defaults.update(cells=CELLS, most=TABLES)
    module._estimate_error.cache_clear()
    try:
        scores = {name: module.estimate_error(each, prior, n).kl for name, each in mechanisms.items()}
    finally:
        defaults.update(chosen_with)
        module._estimate_error.cache_clear()
    scores["auto"] = scores["Dirichlet" if choices["p"].best == "dirichlet" else choices["p"].best]
    others = read_as_shares(prior, n, dirichlet, mechanisms["geometric"])
    return scores | dict(zip((*READ, "posterior"), others, strict=True))


def main():
    print("| data | d | N | epsilon | " + " | ".join(COLUMNS) + " |")
    print("|---|---|---|---|" + "---|" * len(COLUMNS))
    worst, best = 0.0, dict.fromkeys(ESTIMATED, 0)
    for kind in PRIORS:
        for d in CATEGORIES:
            for n in RECORDS:
                for epsilon in EPSILONS:
                    scores = row(kind, d, n, epsilon)
                    worst = max(worst, scores["auto"] / min(scores[name] for name in ESTIMATED) - 1)
                    best[min(best, key=scores.__getitem__)] += 1
                    cells = " | ".join(f"{scores[name]:.3g}" for name in COLUMNS)
                    print(f"| {kind} | {d} | 1e{round(math.log10(n))} | {epsilon:g} | {cells} |", flush=True)
    print(f"\n`auto` exceeds the best of the others by {100 * worst:.1f} % at most. Least error: {best}.")


if __name__ == "__main__":
    main()
