"""Exact draws against data augmentation, effective draws a second.

`uv run python -m tests.benchmarks.data_augmentation` prints the table.

Data augmentation draws the records given the shares and the shares given the records, in turn, as the R package dapper
does (Ju, Awan, Gong and Rao, 2022, Data augmentation MCMC for Bayesian inference from privatized data): every record is
proposed from the shares, and accepted with the ratio of the likelihoods of the release. Beside it stands its best case,
which draws all records of a sweep at once and exactly; its chain forgets as slowly, because the shares and the records
hold each other fast. One sweep of records is compiled here. Times are those of one process on a machine that does
other things too; the ratios are what matters.
"""

import time

import numpy as np
from arviz_stats.base import array_stats
from numba import njit
from scipy.special import gammaln
from tests.inference.distributions import dirichlet, draw, simulated

from pymc_dirdp.inference.numbers import Distributions
from pymc_dirdp.inference.rows import RowPosterior, draw_counts, solved

DRAWS = 4000
CASES = [(4, 1000, 1.0), (4, 1000, 0.1), (10, 10_000, 0.02)]
# Seconds of the exact updates of all records, which take far longer than they are worth.
PATIENCE = 20.0


@njit
def sweep_of_records(categories, counts, shares, logs, uniform):
    """Propose every record's category from the shares; accept by what the release says of the two cells that change."""
    edges = np.cumsum(shares)
    for record, old in enumerate(categories):
        new = min(np.searchsorted(edges, uniform[record, 0]), len(shares) - 1)
        if new != old:
            ratio = logs[old, counts[old] - 1] - logs[old, counts[old]]
            ratio += logs[new, counts[new] + 1] - logs[new, counts[new]]
            if np.log(uniform[record, 1]) < ratio:
                counts[old] -= 1
                counts[new] += 1
                categories[record] = new


def record_by_record(likelihood, d, total, draws, rng):
    x = np.arange(total + 1.0)
    logs = np.stack([likelihood(x, np.full(len(x), i)) for i in range(d)])
    shares = np.full(d, 1 / d)
    categories = rng.integers(0, d, total)
    counts = np.bincount(categories, minlength=d)
    found = np.empty((draws, d))
    for i in range(draws):
        sweep_of_records(categories, counts, shares, logs, rng.random((total, 2)))
        shares = rng.dirichlet(counts + 1.0)
        found[i] = shares
    return found


def all_records_at_once(likelihood, d, total, rng):
    shares, found, start = np.full(d, 1 / d), [], time.process_time()
    while time.process_time() - start < PATIENCE:
        logs = np.log(shares)
        cells = Distributions(lambda x, i, logs=logs: x * logs[i] - gammaln(x + 1) + likelihood(x, i), d, 0, total)
        counts = draw_counts(solved(cells, total), np.array([total]), rng)[0][0]
        shares = rng.dirichlet(counts + 1.0)
        found.append(shares)
    return np.array(found)


def effective(found):
    """The least number of independent draws that the draws of a share are worth, the first tenth left out."""
    later = found[len(found) // 10 :]
    return min(float(array_stats.ess(share[None], chain_axis=0, draw_axis=1)) for share in later.T)


def timed(call):
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def main():
    print("| cells | N | r | exact, a second | record by record | effective of 4000 | ratio | all at once | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for d, total, r in CASES:
        rng = np.random.default_rng(20261122)
        _, x = simulated(d, total, 1.0, rng)
        likelihood = dirichlet(np.maximum(rng.dirichlet(r * x + 1), 1e-300), r, np.ones(d))
        record_by_record(likelihood, d, total, 2, rng)  # This compiles.

        def exact(likelihood=likelihood, d=d, total=total, rng=rng):
            return draw(RowPosterior(alpha=np.ones(d), total=total, log_likelihood=likelihood), DRAWS, rng)

        speed = DRAWS / min(timed(exact)[1] for _ in range(3))
        chain, seconds = timed(lambda d=d, n=total, of=likelihood, rng=rng: record_by_record(of, d, n, DRAWS, rng))
        worth = effective(chain)
        block, took = timed(lambda d=d, n=total, of=likelihood, rng=rng: all_records_at_once(of, d, n, rng))
        both = worth / seconds, effective(block) / took
        parts = (f"{both[0]:.3g}", f"{worth:.0f}", f"{speed / both[0]:.2g}", f"{both[1]:.3g}", f"{speed / both[1]:.2g}")
        print(f"| {d} | {total} | {r:g} | {speed:.3g} |", " | ".join(parts), "|", flush=True)


if __name__ == "__main__":
    main()
