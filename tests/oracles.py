"""Brute force for all rooms: divergences by their definitions, and every small data set with its neighbours."""

import itertools
import math

import mpmath as mp
import numpy as np
from scipy.special import betaln, digamma, gammaln

# A privacy loss is a list of (probability under the first data set, loss); the digits are those of `mp.workdps`.


def losses_of(p, q):
    """The losses of two finite distributions, given as sequences of probabilities."""
    return [(mp.mpf(x), mp.log(mp.mpf(x) / mp.mpf(y)) if y else mp.inf) for x, y in zip(p, q, strict=True) if x]


def sum_of(*losses):
    """The sum of independent losses; sums that are the same double are merged."""
    total = [(mp.mpf(1), mp.mpf(0))]
    for loss in losses:
        found = {}
        for (mass, old), (p, new) in itertools.product(total, loss):
            before, place = found.get(float(old + new), (0, old + new))
            found[float(old + new)] = before + mass * p, place
        total = list(found.values())
    return total


def hockey_stick(loss, epsilon):
    """The hockey-stick divergence of a loss at epsilon."""
    return mp.fsum(p * -mp.expm1(epsilon - value) for p, value in loss if value > epsilon)


def renyi_divergence(loss, order):
    """The Rényi divergence of a loss at an order; 1 and infinity are the limits."""
    if order == math.inf:
        return max(value for _, value in loss)
    if order == 1:
        return mp.fsum(p * value for p, value in loss)
    order = mp.mpf(order)
    return mp.log(mp.fsum(p * mp.exp((order - 1) * value) for p, value in loss)) / (order - 1)


def normal_hockey_stick(mu, epsilon):
    """The hockey-stick divergence of two normal distributions that are `mu` standard deviations apart."""
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


# Dirichlet distributions: u and v are parameters, shape (..., d), with one distribution in each row.


def dirichlet_renyi(order, u, v):
    """The Rényi divergence of independent Dirichlet distributions by Beta functions; infinite where it diverges."""
    if order == 1:
        rows, others = u.sum(axis=-1), v.sum(axis=-1)
        cells = gammaln(v) - gammaln(u) + (u - v) * digamma(u)
        totals = gammaln(rows) - gammaln(others) - (rows - others) * digamma(rows)
        return math.fsum(np.ravel(cells)) + math.fsum(np.ravel(totals))
    w = order * u + (1 - order) * v
    if np.any(w <= 0):
        return math.inf
    log_b = [(gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))).sum() for x in (w, u, v)]
    return (log_b[0] - order * log_b[1] - (1 - order) * log_b[2]) / (order - 1)


def log_logit_density(x, a, b):
    """The logarithm of the density of the logit of a Beta variable."""
    return a * x - (a + b) * np.logaddexp(0, x) - betaln(a, b)


def beta_hockey_stick(epsilon, first, second):
    """The hockey-stick divergence of Beta distributions with equal sums of parameters, by a double exponential rule.

    The likelihood ratio rises or falls with the logit, so the integrand vanishes on one side of a crossing.
    """
    (a, b), (c, d) = first, second
    crossing = (epsilon + betaln(a, b) - betaln(c, d)) / (a - c)
    s = np.linspace(-4.5, 4.5, 1201)
    distance = np.exp(np.pi / 2 * np.sinh(s))
    x = crossing + np.sign(a - c) * distance
    with np.errstate(over="ignore"):
        excess = np.exp(log_logit_density(x, a, b)) - np.exp(epsilon + log_logit_density(x, c, d))
    return float(np.sum(np.maximum(excess, 0) * distance * np.cosh(s)) * np.pi / 2 * (s[1] - s[0]))


# Small data sets, as tables of counts.


def tables_of(shape, n):
    """Every table of this shape with n records."""
    cells = math.prod(shape)
    for chosen in itertools.combinations_with_replacement(range(cells), n):
        yield np.bincount(chosen, minlength=cells).reshape(shape)


def neighbours(table, adjacency):
    """Every table in which one record of this one is elsewhere (replace-one), or missing (add-remove)."""
    for cell in zip(*np.nonzero(table), strict=True):
        without = table.copy()
        without[cell] -= 1
        if adjacency == "add-remove":
            yield without
            continue
        for other in np.ndindex(table.shape):
            if other != cell:
                neighbour = without.copy()
                neighbour[other] += 1
                yield neighbour
