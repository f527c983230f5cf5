"""Product distributions for the tests, with the same written down by brute force."""

import itertools

import numpy as np
from scipy.special import gammaln, logsumexp

from pymc_dirdp.inference.estimates import Draws, KnownRows, draw_shares, estimate_of_rows
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tree import Cells, Group, Node, Root

ALPHA = np.array([1.0, 0.5, 0.01])
Y = np.array([0.5, 0.3, 0.2])
Z = np.array([3.0, 18.0, -1.0])
PRIOR = np.array([0.7, 1.0, 2.0])


def dirichlet(y, r, prior):
    y, prior = np.log(y), np.asarray(prior)
    return lambda x, i: (r * x + prior[i] - 1) * y[i] - gammaln(r * x + prior[i])


def urn(seen, r, prior):
    seen, prior = np.asarray(seen), np.asarray(prior)
    return lambda x, i: gammaln(seen[i] + r * x + prior[i]) - gammaln(r * x + prior[i])


def geometric(z, scale):
    z = np.asarray(z)
    return lambda x, i: -np.abs(z[i] - x) / scale


def gaussian(z, sigma):
    return lambda x, i: -((z[i] - x) ** 2) / (2 * sigma**2)


def truncated(z, scale, total):
    """Noise of a distribution of two geometric sides that is bounded by what the count leaves.

    Its normaliser depends on it.
    """

    def log_likelihood(x, i):
        q = np.exp(-1 / scale)
        return -np.abs(z[i] - x) / scale - np.log((1 + q - q ** (x + 1) - q ** (total - x + 1)) / (1 - q))

    return log_likelihood


def together(*parts):
    return lambda x, i: sum(part(x, i) for part in parts)


LIKELIHOODS = {
    "dirichlet": dirichlet(Y, 0.3, PRIOR),
    "two draws": together(dirichlet(Y, 0.3, PRIOR), dirichlet(Y[::-1], 0.3, PRIOR)),
    "urn": urn([20, 0, 4], 0.3, PRIOR),
    "geometric": geometric(Z, 2.0),
    "gaussian": gaussian(Z + 0.3, 3.0),
    "truncated": truncated(np.clip(Z, 0, 12), 2.0, 12),
    "pooled": together(dirichlet(Y, 0.3, PRIOR), geometric(Z, 2.0)),
    "sharp": gaussian(np.array([4.0, 5.0, 3.0]), 0.05),
    "far away": geometric(np.array([-900.0, 1400.0, 50.0]), 2.0),
}


def estimate(posterior, prob=(0.5, 0.8, 0.95)):
    """That of a row with a public total."""
    [(_, counts)] = posterior.batch.marginals
    known = posterior.batch
    row = KnownRows(known.alpha, known.totals, counts, known.units)
    return estimate_of_rows([row], prob, posterior.log_evidence)


def row(name, total=12, least=0, alpha=ALPHA, **options):
    return RowPosterior(alpha=alpha, total=total, log_likelihood=LIKELIHOODS[name], least=least, **options)


def brute_force(posterior, total=None):
    """All tables, their log-probabilities given the output, and the log-evidence, without any of the library's sums."""
    total, d = posterior.total if total is None else total, len(posterior.alpha)
    tables = np.array([x for x in itertools.product(range(total + 1), repeat=d) if sum(x) == total])
    tables = tables[tables.min(axis=1) >= posterior.least]
    a0 = posterior.alpha.sum()
    logs = gammaln(total + 1) + gammaln(a0) - gammaln(total + a0) + np.zeros(len(tables))
    for i in range(d):
        x = tables[:, i].astype(float)
        logs += gammaln(x + posterior.alpha[i]) - gammaln(x + 1) - gammaln(posterior.alpha[i])
        logs += posterior.log_likelihood(x, np.full(len(x), i))
    return tables, logs - logsumexp(logs), float(logsumexp(logs))


def simulated(d, total, alpha, rng):
    """Shares and counts from the prior."""
    p = rng.dirichlet(np.full(d, alpha))
    return p, rng.multinomial(total, p)


def released(d, total, r, alpha, seed):
    """A row given a Dirichlet draw of it."""
    rng = np.random.default_rng(seed)
    _, x = simulated(d, total, alpha, rng)
    y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
    return RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(d)))


def nothing(totals):
    return 0 * totals


def of_private_total(posterior, log_prior=nothing, log_factor=nothing):
    """The root of the tree of one row whose total is private."""

    def log_weight(n):
        return log_prior(n) + posterior.log_normaliser(n) + log_factor(n)

    return Root(Group(Cells(posterior)), log_weight, most=posterior.total)


def of_rows(rows, total, row_prior=None, log_factors=None):
    """The root of the tree of rows that share a total, and the cells of each row."""
    above = RowPosterior(
        alpha=np.ones(len(rows)) if row_prior is None else row_prior,
        total=total,
        log_likelihood=lambda counts, cells: np.zeros(np.broadcast_shapes(np.shape(counts), np.shape(cells))),
    )
    groups, factors = [Group(Cells(posterior)) for posterior in rows], log_factors or [nothing] * len(rows)

    def node(i):
        def log_weight(n):
            return above.log_weight(n, np.full(n.shape, i)) + rows[i].log_normaliser(n) + factors[i](n)

        return Node([groups[i]], log_weight)

    return Root(Group([node(i) for i in range(len(rows))]), above.log_normaliser, total=total), groups


def drawn(root, groups, draws, rng):
    """A table for each row, of shape (draws, d)."""
    totals = root.draw_below(draws, rng)
    return [group.draw(totals[:, i], rng) for i, group in enumerate(groups)]


def tabulated(log_likelihood):
    """A table of log-likelihoods, shape (d, N + 1), as a function of counts and cells."""
    table = np.asarray(log_likelihood, dtype=np.float64)
    return lambda counts, cells: table[cells, np.asarray(counts, dtype=np.int64)]


def draw(posterior, draws, rng):
    """Draws of counts and shares of one row with a known total."""
    counts = posterior.batch.draw(draws, rng)[:, 0]
    return Draws(counts, draw_shares(counts, posterior.alpha, rng))


def log_sum_of_products(posterior):
    """Logarithm of the sum, over all tables, of the products of the weights of their cells."""
    return posterior.log_evidence - posterior.log_factor - float(posterior.log_normaliser(posterior.total))


def log_probability(posterior, counts):
    """Logarithm of the probability of whole rows of counts given the output."""
    weights = posterior.log_weight(np.asarray(counts, dtype=np.float64), np.arange(len(posterior.alpha)))
    return weights.sum(axis=-1) - log_sum_of_products(posterior)


def log_convolved(first, second):
    """Logarithms of the sums of products, each number by itself."""
    return np.array([np.logaddexp.reduce(first[: n + 1] + second[n::-1]) for n in range(len(first))])
