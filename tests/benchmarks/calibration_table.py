"""Are the intervals of inferences as right as they say? `uv run python -m tests.benchmarks.calibration_table [sets]`.

Each line is many data sets from the prior, one output of the mechanism for each, and the truth among draws given it.
Coverage of central intervals at 50, 80 and 95 % is that of the shares, by the exact reading and by a naive one, which
treats the output as the data. Below are the p-values of the ranks: of the exact reading, which should be those of
chance, and of readings that should be rejected: the naive one, r (or one over the scale of the noise) taken 20 % too
large, and the number of records taken 5 % too large.
"""

import sys

import numpy as np

from tests.inference.calibration import CASES, LEVELS, Case, coverage, p_value, rank, ranks_of

COLUMNS = ("exact", "naive", "largest error", "p shares", "p counts", "p naive", "p r + 20 %", "p N + 5 %")


def line(case, sets, rng):
    shares, counts, naive = ranks_of(case, sets, rng)
    covered = [" ".join(f"{value:.3f}" for value, _ in coverage(ranks)) for ranks in (shares, naive)]
    errors = [
        abs(value - prob) / max(se, 1 / sets)
        for ranks in (shares, counts)
        for prob, (value, se) in zip(LEVELS, coverage(ranks), strict=True)
    ]
    tested = [p_value(ranks) for ranks in (shares, counts, naive)]
    tested += [min(map(p_value, ranks_of(case, sets, rng, **m)[:2])) for m in ({"r": 1.2}, {"total": 1.05})]
    return [*covered, f"{max(errors):.1f}", *(f"{p:.2g}" for p in tested)]


def main():
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(20261122)
    print("| case |", " | ".join(COLUMNS), "|")
    print("|---|" + "---|" * len(COLUMNS))
    for name, case in CASES.items():
        print("|", name, "|", " | ".join(line(case, sets, rng)), "|", flush=True)
    print("\nCounts taken for any numbers that add up to the total:")
    for d, alpha in ((2, 0.1), (4, 0.1), (4, 1.0)):
        case = Case("dirichlet", d, 1000, 0.1, alpha)
        ranks = np.array([rank(*case.relaxed(rng), rng) for _ in range(sets)])
        print(d, "cells, prior", alpha, [f"{value:.3f}" for value, _ in coverage(ranks)], f"p {p_value(ranks):.2g}")


if __name__ == "__main__":
    main()
