"""Releases at random, and the distributions of their shares as sums over all counts and totals.

Nothing of the library is used but the likelihood of the output: weights of all counts, convolved directly.
"""

from functools import reduce

import numpy as np
from scipy.special import betainc, betaincc, gammaln, logsumexp

import pymc_dirdp as dirdp

from .posteriors import log_convolved

KINDS = ("dirichlet", "urn", "geometric", "discrete", "truncated", "zero-sum")
# What is so many nats below the largest does not matter.
NOTHING = 42.0


def output_of(kind, counts, scale, prior, rng, *, private=False):
    ones, options = np.ones(counts.shape), {"adjacency": "add-remove"} if private else {}
    known, n = {} if private else {"n_records": int(counts.sum())}, int(counts.sum())
    match kind:
        case "dirichlet" | "urn":
            mechanism = dirdp.mechanisms.DirichletMechanism(ones, 1 / scale, **options)
            known["sampler"] = "fast" if kind == "dirichlet" else "exact"
        case "geometric":
            mechanism = dirdp.mechanisms.GeometricMechanism(ones, scale, **options)
        case "discrete":
            mechanism = dirdp.mechanisms.DiscreteGaussianMechanism(ones, scale, **options)
        case "truncated":
            mechanism = dirdp.papers.TruncatedNoiseMechanism(ones, n, scale)
        case _:
            mechanism = dirdp.mechanisms.ZeroSumGeometricMechanism(ones, scale)
    values = mechanism.releases(counts, 1, random_seed=rng, sampler=known.get("sampler", "fast"))[0]
    if kind == "dirichlet":
        values = np.maximum(values, 1e-300)
    return dirdp.mechanisms.MechanismOutput(mechanism, values, prior=prior, **known)


def random_output(rng, most_records, most_rows):
    """What a mechanism released of random counts, and the largest private number of records; None if it is public."""
    kind = rng.choice(KINDS)
    rows = 1 if kind == "truncated" else int(rng.integers(1, most_rows + 1))
    d = int(rng.integers(2, 6))
    shape = (rows, d) if rows > 1 else (d,)
    n = int(rng.choice([0, 1, int(10 ** rng.uniform(0, np.log10(most_records)))], p=[0.05, 0.05, 0.9]))
    n = max(n, 1) if kind == "truncated" else n
    prior = 10 ** rng.uniform(np.log10(0.05), np.log10(50), shape if rng.random() < 0.7 else 1) * np.ones(shape)
    counts, scale = rng.multinomial(n, rng.dirichlet(prior.ravel())).reshape(shape), 10 ** rng.uniform(-0.5, 1.5)
    public = kind in ("truncated", "zero-sum") or rng.random() < 0.5
    output = output_of(kind, counts, scale, prior, rng, private=not public)
    return output, None if public else n + 10 + int(rng.integers(n + 50))


def share_distributions(output, most):
    """For each row and cell the parameters of Beta distributions and their masses, over counts of the cell and the row.

    With one block all rows share the records, and all divisions of the records are as likely as one another.
    """
    prior, found = output.prior.reshape(-1, output.prior.shape[-1]), {}
    output = output.observed_table
    said, top = output.row_likelihoods(), output.n_records if most is None else most
    for rows, total in output.blocks if len(output.blocks) > 1 else [(np.arange(len(prior)), top)]:
        x, number = np.arange(total + 1.0), np.arange(total + 1)
        cells, factors = {}, {}
        for r in rows.tolist():
            cells[r] = [gammaln(x + a) - gammaln(x + 1) - gammaln(a) for a in prior[r]]
            cells[r] = [
                c + sum(s.cell_loglik(x, np.full(total + 1, i)) for s in said[r]) for i, c in enumerate(cells[r])
            ]
            factors[r] = gammaln(x + 1) - gammaln(x + prior[r].sum()) + sum(s.total_loglik(x) for s in said[r])
        # The number of records of the rows together: any up to the total if it is private.
        log_number = np.where((most is not None) | (x == total), gammaln(x + 1) - gammaln(x + len(rows)), -np.inf)
        for r in rows.tolist():
            others = [reduce(log_convolved, cells[s]) + factors[s] for s in rows.tolist() if s != r]
            elsewhere = reduce(log_convolved, others, np.where(x == 0, 0.0, -np.inf))
            of_row = [logsumexp(log_number[n:] + elsewhere[: total + 1 - n]) for n in range(total + 1)] + factors[r]
            for i, own in enumerate(cells[r]):
                rest = reduce(log_convolved, (c for j, c in enumerate(cells[r]) if j != i))
                less = number - number[:, None]
                logs = np.where(less >= 0, own[:, None] + rest[np.maximum(less, 0)] + of_row, -np.inf)
                count, n = np.nonzero(logs > logs.max() - NOTHING)
                masses = np.exp(logs[count, n] - logs.max())
                first, second = prior[r, i] + count, np.delete(prior[r], i).sum() + n - count
                found[r, i] = first, second, masses / masses.sum()
    return found


def below(mixture, share):
    first, second, masses = mixture
    if not 0 < share < 1:
        return float(share >= 1)
    return float(masses @ (betainc(first, second, share) if share <= 0.5 else betaincc(second, first, 1 - share)))


def off(mixture, share, level, allowed):
    """How far the share is from its level; 0 if more than is allowed, but the next double with all its digits."""
    error = abs(below(mixture, share) - level)
    if error <= allowed:
        return error
    around = below(mixture, np.nextafter(share, -1)) <= level <= below(mixture, np.nextafter(max(share, 4e-308), 2))
    return 0.0 if around else error
