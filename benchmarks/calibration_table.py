"""Are the intervals of inferences as right as they say? `uv run python -m benchmarks.calibration_table [row]`.

Each line is many data sets from the prior, one output of the mechanism for each, and the truth among draws given it.
Coverage of central intervals at 50, 80 and 95 % is that of the shares, by the exact reading and by a naive one, which
treats the output as the data. Below are the p-values of the ranks: of the exact reading, which should be those of
chance, and of readings that should be rejected: the naive one, r (or one over the scale of the noise) taken 20 % too
large, and the number of records taken 5 % too large. Each row has its own seed; `row` is the
number of the only one to make.
"""

import sys

import numpy as np

from pymc_dirdp.inference.estimates import draw_shares
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
from tests.inference.test_calibration import CASES, DRAWS, Case, coverage, output_of, p_value, rank, ranks_of

SEED = 20261122
# Continuous counts are looked at in so many steps for each record.
FINE = 8
COLUMNS = ("case", "data sets", "exact", "naive", "p shares", "p counts", "p naive", "p r + 20 %", "p N + 5 %")
RIGHT = {"data sets", *(name for name in COLUMNS if name.startswith("p "))}


def written(p):
    """A p-value as the page has it: 0 below 1e-99, and one digit where it is tiny."""
    return "0" if p < 1e-99 else f"{p:.2g}" if p > 1e-4 else f"{p:.0e}".replace("e-0", "e-")


def line(case, rng):
    shares, counts, naive = ranks_of(case, case.sets, rng)
    covered = [" ".join(f"{value:.3f}" for value, _ in coverage(ranks)) for ranks in (shares, naive)]
    tested = [p_value(ranks) for ranks in (shares, counts, naive)]
    tested += [min(map(p_value, ranks_of(case, case.sets, rng, **m)[:2])) for m in ({"r": 1.2}, {"total": 1.05})]
    return [str(case.sets), *covered, *map(written, tested)]


def relaxed(case, rng):
    """Shares, and the draws of a reader for whom counts are any numbers that add up to the total."""
    (p,), (x,) = case.data(rng)
    likelihood = output_of(case.kind, x, case.r, rng)[0](case.r)
    alpha = np.full(case.d, case.alpha)

    def log_likelihood(k, i):
        return likelihood(k / FINE, i) + _log_gamma_ratio(k / FINE, alpha[i]) - _log_gamma_ratio(k, alpha[i])

    posterior = RowPosterior(alpha=alpha, total=case.total * FINE, log_likelihood=log_likelihood)
    return p, draw_shares(posterior.batch.draw(DRAWS, rng)[:, 0] / FINE, alpha, rng)


def main():
    asked = [int(argument) for argument in sys.argv[1:]] or range(1, len(CASES) + 1)
    print("|", " | ".join(COLUMNS), "|")
    print("|" + "|".join("---:" if name in RIGHT else "---" for name in COLUMNS) + "|")
    for number, (name, case) in enumerate(CASES.items(), 1):
        if number in asked:
            rng = np.random.default_rng([SEED, number])
            print("|", " | ".join([name, *line(case, rng)]), "|", flush=True)
    if len(sys.argv) > 1:
        return
    rng = np.random.default_rng(SEED)
    print("\nCounts taken for any numbers that add up to the total:")
    for d, alpha in ((2, 0.1), (4, 0.1), (4, 1.0)):
        case = Case("dirichlet", d, 1000, 0.1, alpha)
        ranks = np.array([rank(*relaxed(case, rng), rng) for _ in range(case.sets)])
        print(d, "cells, prior", alpha, [f"{value:.3f}" for value, _ in coverage(ranks)], f"p {p_value(ranks):.2g}")


if __name__ == "__main__":
    main()
