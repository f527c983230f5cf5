"""Releases at random, and the distribution functions of their shares as sums over all counts and totals.

Nothing of the library is used but the likelihood of the output: weights of all counts, convolved directly.
"""

import numpy as np
from scipy.special import betainc, betaincc, gammaln

import pymc_dirdp as dirdp

KINDS = ("dirichlet", "urn", "geometric", "discrete", "truncated", "zero-sum")
# Weights that are so many nats below the largest are left out; doubles hold a few more.
CUT = 650.0
# What is so many nats below the largest does not matter.
NOTHING = 42.0


def random_output(rng, most_records=10_000, most_rows=6):
    """What a mechanism released of random counts, and the largest private number of records; None if it is public."""
    kind = rng.choice(KINDS)
    rows = 1 if kind == "truncated" else int(rng.integers(1, most_rows + 1))
    d = int(rng.integers(2, 6))
    shape = (rows, d) if rows > 1 else (d,)
    n = int(rng.choice([0, 1, int(10 ** rng.uniform(0, np.log10(most_records)))], p=[0.05, 0.05, 0.9]))
    if kind == "truncated":
        n = max(n, 1)
    prior = 10 ** rng.uniform(np.log10(0.05), np.log10(50), shape if rng.random() < 0.7 else 1) * np.ones(shape)
    counts = rng.multinomial(n, rng.dirichlet(prior.ravel())).reshape(shape)
    scale, ones = 10 ** rng.uniform(-0.5, 1.5), np.ones(shape)
    public = kind in ("truncated", "zero-sum") or rng.random() < 0.5
    options = {} if public else {"adjacency": "add-remove"}
    match kind:
        case "dirichlet" | "urn":
            mechanism = dirdp.mechanisms.DirichletMechanism(ones, 1 / scale, **options)
        case "geometric":
            mechanism = dirdp.mechanisms.GeometricMechanism(ones, scale, **options)
        case "discrete":
            mechanism = dirdp.mechanisms.DiscreteGaussianMechanism(ones, scale, **options)
        case "truncated":
            mechanism = dirdp.papers.TruncatedNoiseMechanism(ones, n, scale)
        case _:
            mechanism = dirdp.mechanisms.ZeroSumGeometricMechanism(ones, scale)
    sampler = {"urn": "exact", "dirichlet": "fast"}.get(kind)
    values = mechanism.releases(counts, 1, random_seed=rng, sampler=sampler or "fast")[0]
    if kind == "dirichlet":
        values = np.maximum(values, 1e-300)
    output = dirdp.mechanisms.MechanismOutput(
        mechanism, values, prior=prior, n_records=n if public else None, **({"sampler": sampler} if sampler else {})
    )
    return output, None if public else n + 10 + int(rng.integers(n + 50))


def share_distributions(output, most, means):
    """For each row and cell the parameters of Beta distributions and their masses.

    Over all counts of the cell and the row.

    The expected counts `means` say where weights are large; what is found does not depend on them. It is None if
    doubles do not hold the weights of all totals that matter at once.
    """
    prior = output.prior.reshape(-1, output.prior.shape[-1])
    output = output.observed_table
    said, means = output.row_likelihoods(), means.reshape(prior.shape)
    top = output.n_records if most is None else most
    # With one block all rows share the records.
    blocks = output.blocks if len(output.blocks) > 1 else [(np.arange(len(prior)), top)]
    found = {}
    for rows, total in blocks:
        each = [_row(prior[r], said[r], means[r].sum(), total) for r in rows]
        for k, r in enumerate(rows.tolist()):
            elsewhere = _product([_trimmed(row.sum_logs) for j, row in enumerate(each) if j != k])
            log_total = each[k].log_factor + _of_others(elsewhere, total, len(rows), private=most is not None)
            if each[k].is_cut(log_total):
                return None
            for i in range(prior.shape[1]):
                found[r, i] = _joint(prior[r], each[k].cells, i, log_total)
    return found


class _Row:
    def __init__(self, cells, log_factor, total):
        self.cells, self.log_factor = cells, log_factor
        start, values = _product(cells)
        self.logs = np.full(total + 1, -np.inf)
        reached = np.arange(start, min(start + len(values), total + 1))
        with np.errstate(divide="ignore"):
            self.logs[reached] = np.log(values[: len(reached)])
        self.sum_logs = self.logs + log_factor
        self.ends = (start, 0), (start + len(values) - 1, total)

    def is_cut(self, log_total):
        logs = self.logs + log_total
        return any(end != last and logs[end] > logs.max() - NOTHING for end, last in self.ends if end < len(logs))


def _row(alpha, said, mean, total):
    """Tilted weights of the counts of each cell, and the factor of the row's total that makes up for the tilt."""
    x = np.arange(total + 1.0)
    logs = np.array(
        [
            gammaln(x + a) - gammaln(x + 1) - gammaln(a) + sum(one.cell_loglik(x, np.full(len(x), i)) for one in said)
            for i, a in enumerate(alpha)
        ]
    )
    low, high = -60.0, 60.0
    for _ in range(60):
        tilt = (low + high) / 2
        weights = np.exp(logs + tilt * x - (logs + tilt * x).max(axis=1, keepdims=True))
        below = (weights @ x / weights.sum(axis=1)).sum() < mean
        low, high = (tilt, high) if below else (low, tilt)
    factor = gammaln(x + 1) - gammaln(x + alpha.sum()) - tilt * x + sum(one.total_loglik(x) for one in said)
    return _Row([_trimmed(one) for one in logs + tilt * x], factor, total)


def _trimmed(logs):
    """The first number that matters, and the weights from there, up to a factor."""
    inside = np.flatnonzero(logs > logs.max() - CUT)
    return inside[0], np.exp(logs[inside[0] : inside[-1] + 1] - logs.max())


def _product(parts):
    """The weights of the sum of independent numbers."""
    start, values = 0, np.ones(1)
    for first, more in parts:
        with np.errstate(divide="ignore"):
            offset, values = _trimmed(np.log(np.convolve(values, more)))
        start += first + offset
    return start, values


def _of_others(elsewhere, total, rows, *, private):
    """What the other rows say of the total of one: all divisions of the records are as likely as one another."""
    start, values = elsewhere
    own, rest = np.arange(total + 1)[:, None], start + np.arange(len(values))
    whole = own + rest
    prior = np.where((whole <= total) if private else (whole == total), 1.0, 0.0)
    if private:
        prior *= np.exp(gammaln(whole + 1.0) + gammaln(rows) - gammaln(whole + float(rows)))
    with np.errstate(divide="ignore"):
        return np.log(prior @ values)


def _joint(alpha, cells, i, log_total):
    x = cells[i][0] + np.arange(len(cells[i][1]))
    first, values = _product([cell for j, cell in enumerate(cells) if j != i])
    rest = first + np.arange(len(values))
    with np.errstate(divide="ignore"):
        logs = np.log(cells[i][1])[:, None] + np.log(values)
        whole = x[:, None] + rest
        logs += np.where(whole < len(log_total), log_total[np.minimum(whole, len(log_total) - 1)], -np.inf)
    a, b = np.nonzero(logs > logs.max() - NOTHING)
    masses = np.exp(logs[a, b] - logs.max())
    return alpha[i] + x[a], np.delete(alpha, i).sum() + rest[b], masses / masses.sum()


def below(mixture, share):
    """The probability of at most this share."""
    first, second, masses = mixture
    if not 0 < share < 1:
        return float(share >= 1)
    return float(masses @ (betainc(first, second, share) if share <= 0.5 else betaincc(second, first, 1 - share)))


def off(mixture, share, level):
    """How far the share is from its level; 0 if it is the next double with all its digits."""
    error = abs(below(mixture, share) - level)
    around = below(mixture, np.nextafter(share, -1)) <= level <= below(mixture, np.nextafter(max(share, 4e-308), 2))
    return 0.0 if error > 1e-9 and around else error
