"""Product distributions for the tests, with the same written down by brute force."""

import numpy as np
from scipy.special import betainc, gammaln, logsumexp

from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree
from tests.oracles import tables_of

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


def together(*parts):
    return lambda x, i: sum(part(x, i) for part in parts)


LIKELIHOODS = {
    "dirichlet": dirichlet(Y, 0.3, PRIOR),
    "two draws": together(dirichlet(Y, 0.3, PRIOR), dirichlet(Y[::-1], 0.3, PRIOR)),
    "urn": urn([20, 0, 4], 0.3, PRIOR),
    "geometric": geometric(Z, 2.0),
    "gaussian": gaussian(Z + 0.3, 3.0),
    "pooled": together(dirichlet(Y, 0.3, PRIOR), geometric(Z, 2.0)),
    "sharp": gaussian(np.array([4.0, 5.0, 3.0]), 0.05),
    "far away": geometric(np.array([-900.0, 1400.0, 50.0]), 2.0),
}


def row(name, total=12, least=0, alpha=ALPHA, **options):
    return RowPosterior(alpha=alpha, total=total, log_likelihood=LIKELIHOODS[name], least=least, **options)


def log_multinomial_dirichlet(x, prior):
    """The logarithm of the probability of rows of counts given their totals."""
    n, a = x.sum(axis=-1), prior.sum(axis=-1)
    each = gammaln(x + prior) - gammaln(x + 1) - gammaln(prior)
    return gammaln(n + 1) + gammaln(a) - gammaln(n + a) + each.sum(axis=-1)


def share_moments(probabilities, tables, prior):
    """Means and standard deviations of all shares, from the probabilities of tables of counts."""
    a = tables + prior
    size = a.sum(axis=-1, keepdims=True)
    powers = a / size, a * (a + 1) / (size * (size + 1))
    means, squares = (probabilities @ power.reshape(len(tables), -1) for power in powers)
    return means, np.sqrt(squares - means**2)


def check_estimate(found, probabilities, tables, prior):
    """Moments and 80 % intervals are those of tables of counts; with a caveat the ends for shares are of draws."""
    x, a = (of.reshape(len(tables), -1) for of in (tables, tables + prior))
    others = ((tables + prior).sum(axis=-1, keepdims=True) - tables - prior).reshape(a.shape)
    means, (shares, share_sds) = probabilities @ x, share_moments(probabilities, tables, prior)
    np.testing.assert_allclose(found.count_means, means, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.count_sds, np.sqrt(probabilities @ (x - means) ** 2), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.share_means, shares, rtol=1e-7)
    np.testing.assert_allclose(found.share_sds, share_sds, rtol=1e-6)
    off = 5 * np.sqrt(0.09 / 20_000) + 1e-3 if found.caveat else 1e-7
    for end, level in enumerate([0.1, 0.9]):
        below = betainc(a, others, found.share_intervals[0, :, end])
        np.testing.assert_allclose(probabilities @ below, level, atol=off)
        count = found.count_intervals[0, :, end]
        assert np.all(probabilities @ (x < count) - 1e-9 < level)
        assert np.all(probabilities @ (x <= count) + 1e-9 >= level)


def brute_force(posterior):
    """All tables, their log-probabilities given the output, and the log-evidence, without any of the library's sums."""
    d = len(posterior.alpha)
    tables = np.array([x for x in tables_of((d,), posterior.total) if x.min() >= posterior.least])
    seen = posterior.log_likelihood(tables.astype(float), np.broadcast_to(np.arange(d), tables.shape))
    logs = log_multinomial_dirichlet(tables, posterior.alpha) + seen.sum(axis=1)
    return tables, logs - logsumexp(logs), float(logsumexp(logs))


def simulated(d, total, alpha, rng):
    p = rng.dirichlet(np.full(d, alpha))
    return p, rng.multinomial(total, p)


def released(d, total, r, alpha, seed):
    rng = np.random.default_rng(seed)
    _, x = simulated(d, total, alpha, rng)
    y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
    return RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(d)))


def of_private_total(posterior, log_prior=np.zeros_like):
    return CountTree([posterior], [np.zeros_like], posterior.total, log_prior, None).root


def tabulated(log_likelihood):
    """A table of log-likelihoods, shape (d, N + 1), as a function of counts and cells."""
    table = np.asarray(log_likelihood, dtype=np.float64)
    return lambda counts, cells: table[cells, np.asarray(counts, dtype=np.int64)]


def log_convolved(first, second):
    """Logarithms of the sums of products, each number by itself."""
    return np.array([np.logaddexp.reduce(first[: n + 1] + second[n::-1]) for n in range(len(first))])


def with_means(log_sum, cells):
    """A sum over tables from logarithms of the weights of 0, 1, 2, ... records in each cell, and the means of cells."""
    means = np.empty(cells.shape[:-1])
    with np.errstate(divide="ignore"):
        log_x = np.log(np.arange(cells.shape[-1]))
    value = log_sum(cells)
    for place in np.ndindex(means.shape):
        marked = cells.copy()
        marked[place] += log_x
        means[place] = np.exp(log_sum(marked) - value)
    return value, means
