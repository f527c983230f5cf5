"""Product laws for the tests, with the same written down by brute force."""

import itertools

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from pymc_dirdp.inference.product_law import ProductLaw

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
    return lambda x, i: -np.abs(z[i] - x) / scale


def gaussian(z, sigma):
    return lambda x, i: -((z[i] - x) ** 2) / (2 * sigma**2)


def floored(g, r, prior, floor):
    def log_likelihood(x, i):
        a = r * x + prior[i]
        # The tail of the Gamma law from the side where it is small.
        return (
            a * np.log(g[i])
            - gammaln(a)
            - np.where(a > floor, np.log1p(-gammainc(a, floor)), np.log(gammaincc(a, floor)))
        )

    return log_likelihood


def truncated(z, scale, total):
    """Noise of a law of two geometric sides that is bounded by what the count leaves: its normaliser depends on it."""

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
    "floored": floored(np.array([3.0, 1.5, 0.9]), 0.4, PRIOR, 0.8),
    "truncated": truncated(np.clip(Z, 0, 12), 2.0, 12),
    "pooled": together(dirichlet(Y, 0.3, PRIOR), geometric(Z, 2.0)),
    "sharp": gaussian(np.array([4.0, 5.0, 3.0]), 0.05),
    "far away": geometric(np.array([-900.0, 1400.0, 50.0]), 2.0),
}


def row(name, total=12, least=0, alpha=ALPHA, **options):
    return ProductLaw(alpha=alpha, total=total, log_likelihood=LIKELIHOODS[name], least=least, **options)


def brute_force(law, total=None):
    """All tables, their log-probabilities given the output, and the log-evidence, without any of the library's sums."""
    total, d = law.total if total is None else total, len(law.alpha)
    tables = np.array([x for x in itertools.product(range(total + 1), repeat=d) if sum(x) == total])
    tables = tables[tables.min(axis=1) >= law.least]
    a0 = law.alpha.sum()
    logs = gammaln(total + 1) + gammaln(a0) - gammaln(total + a0) + np.zeros(len(tables))
    for i in range(d):
        x = tables[:, i].astype(float)
        logs += gammaln(x + law.alpha[i]) - gammaln(x + 1) - gammaln(law.alpha[i])
        logs += law.log_likelihood(x, np.full(len(x), i))
    return tables, logs - logsumexp(logs), float(logsumexp(logs))


def simulated(d, total, alpha, rng):
    """Shares and counts from the prior."""
    p = rng.dirichlet(np.full(d, alpha))
    return p, rng.multinomial(total, p)
