"""The mechanisms of P1's experiments, for models of many tables: what each publishes of the shares of a table.

A publisher takes a table of counts, with one row of values for each class or each configuration of parents, a generator
and a number of releases, and gives shares of the shape (releases, rows, values).
"""

import math
from functools import lru_cache

import numpy as np
import printed_p1
import printed_p3
from scipy.optimize import brentq

import pymc_dirdp as dirdp
from pymc_dirdp.papers import SimplexDomain
from pymc_dirdp.planning.allocation import allocate
from pymc_dirdp.planning.estimate_error import estimated_shares

papers = dirdp.papers
# The prior of everything that is not printed, and the order that P1 takes.
ORDER, DELTA = 5.0, 1e-5
# Cells of simulated releases that are estimated together.
MAX_CELLS = 5_000
ORDERS = (2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 400, 800, 1600, 3200, 6400)


def shares_of(parameters, rng):
    """Rows of a Dirichlet draw, also where a parameter is so small that all Gamma variables of a row underflow."""
    drawn = rng.standard_gamma(parameters) + 1e-300
    return drawn / drawn.sum(axis=-1, keepdims=True)


def repeated(counts, times):
    return np.broadcast_to(counts, (times, *counts.shape))


def dirichlet_draw(r, alpha):
    return lambda counts, rng, times: shares_of(r * repeated(counts, times) + alpha, rng)


def calibrated(mechanisms):
    """The draw of the mechanism that was calibrated for the shape of the table."""

    def publish(counts, rng, times):
        mechanism = mechanisms[counts.shape]
        return dirichlet_draw(mechanism.r, mechanism.alpha)(counts, rng, times)

    return publish


def across_classes(r, alpha):
    """P1's section 5.1 as printed: one draw over the classes for each value of a feature."""
    draw = dirichlet_draw(r, alpha)

    def publish(counts, rng, times):
        # The table of the classes themselves has one row.
        return draw(counts.T, rng, times).swapaxes(1, 2) if len(counts) > 1 else draw(counts, rng, times)

    return publish


def noisy(kind, width):
    """P1's rivals, with their counts clipped at 1e-6."""

    def publish(counts, rng, times):
        return printed_p1.p1_equation_12(counts + getattr(rng, kind)(0.0, width, (times, *counts.shape)))

    return publish


def smoothed(kind, width):
    """The same noise, where negative counts become 0 and every cell gets a quarter of the noise's deviation."""
    deviation = width * (math.sqrt(2) if kind == "laplace" else 1)

    def publish(counts, rng, times):
        clipped = np.maximum(counts + getattr(rng, kind)(0.0, width, (times, *counts.shape)), 0) + deviation / 4
        return clipped / clipped.sum(axis=-1, keepdims=True)

    return publish


def estimated(scale):
    """Geometric noise, and the means of the shares given what was released; the number of all records is public."""

    def publish(counts, rng, times):
        prior = np.ones(counts.shape if len(counts) > 1 else counts.shape[1])
        mechanism = dirdp.mechanisms.GeometricMechanism(prior, scale)
        together = max(1, MAX_CELLS // counts.size)
        found = [
            estimated_shares(mechanism, prior, counts, public=True, rng=rng, times=min(together, times - done))
            for done in range(0, times, together)
        ]
        return np.concatenate(found).reshape(times, *counts.shape)

    return publish


def estimated_tables(mechanism, prior, tables, rng):
    """The same for one release of each of many tables with one row, shape (tables, d), whose sizes are public.

    Estimating takes longer than anything else, so the first 60 tables are enough.
    """
    return np.array([estimated_shares(mechanism, prior, counts, public=True, rng=rng) for counts in tables[:60]])


def frequencies(counts, rng, times):
    """No privacy: posterior means, because a cell that is 0 would leave a record of the test impossible."""
    return repeated((counts + 1) / (counts + 1).sum(axis=-1, keepdims=True), times)


def uniform(counts, rng, times):
    return np.full((times, *counts.shape), 1 / counts.shape[-1])


@lru_cache
def under_renyi(epsilon, shapes, n_records):
    """All publishers under (5, epsilon)-Rényi privacy of tables of these shapes, as in P1's Figures 4, 5 and 7."""
    tables = len(shapes)
    part = dirdp.RenyiDP(order=ORDER, epsilon=epsilon / tables)
    printed = dirdp.calibrate(part, prior=np.ones(2), mechanism=dirdp.mechanisms.Dirichlet(strategy="algorithm-1"))
    exact = {shape: own_draw(part, shape, n_records) for shape in set(shapes)}
    geometric = dirdp.mechanisms.GeometricMechanism.for_guarantee(part, prior=np.ones(2))
    sigma = printed_p1.p1_gaussian_sigma(order=ORDER, epsilon=epsilon, tables=tables)
    # P1 divides by one table less where it adds Laplace noise to naive Bayes; here all have equal parts.
    scale = printed_p1.p1_laplace_scale(order=ORDER, epsilon=epsilon, tables=tables)
    return _publishers(printed.r, printed.alpha[0], exact, geometric.scale, sigma, scale)


@lru_cache
def under_approx(epsilon, shapes, n_records):
    """All publishers under (epsilon, 1e-5)-privacy, as in P1's Figures 9 to 11; None where P1's way finds nothing."""
    whole, tables = dirdp.ApproxDP(epsilon=epsilon, delta=DELTA), len(shapes)
    named = {f"t{i}": shape for i, shape in enumerate(shapes)}

    # All tables have the same share, so the noise is calibrated once.
    @lru_cache
    def noise(part):
        return dirdp.mechanisms.GeometricMechanism.for_guarantee(part, prior=np.ones(2))

    shared = {"weights": dict.fromkeys(named, 1.0), "groups": [tuple(named)], "draws": 1}
    draws = allocate(whole, lambda name, part: own_draw(part, named[name], n_records), **shared)
    exact = {named[name]: mechanism for name, mechanism in draws.items()}
    geometric = allocate(whole, lambda name, part: noise(part), **shared)["t0"]

    r, alpha = converted(epsilon, tables)
    sigma = math.sqrt(2) * math.sqrt(2 * math.log(1.25 * tables / DELTA)) * tables / epsilon
    made = _publishers(r, alpha, exact, geometric.scale, sigma, 2 * tables / epsilon)
    # One concentration for all tables, of the size that is in the middle.
    cells = int(np.median([shape[1] for shape in shapes]))
    gohari = of_gohari(epsilon / tables, DELTA / tables, n_records, cells)
    return made | {"Gohari et al.": dirichlet_draw(gohari, 1 + 4 * (ORDER - 1) * gohari)}


@lru_cache
def own_draw(part, shape, n_records):
    """The Dirichlet mechanism that is calibrated for a table of this shape, with a prior of 1."""
    return dirdp.calibrate(part, prior=np.ones(shape), n_records=n_records, objective="estimate")


def converted(epsilon, tables):
    """Algorithm 1 by way of the conversion of P1's Lemma 3, at the order that leaves the largest r for its prior."""
    found = []
    for order in ORDERS:
        renyi = epsilon - math.log(order - 1) + (math.log(DELTA) + order * math.log(order)) / (order - 1)
        if renyi > 0:
            r = papers.p1_theorem_1_concentration(order=order, epsilon=renyi / tables)
            found.append((r, 1 + 4 * (order - 1) * r))
    return max(found, key=lambda pair: pair[0] / pair[1]) if found else (None, None)


@lru_cache
def of_gohari(epsilon, delta, n_records, cells, order=ORDER):
    """The concentration for which Theorem 1 of Gohari et al. (P3) guarantees this, with P1's prior.

    A record moves between two cells, so two entries are protected. They are the smallest ones that could occur. P3
    wants an entry besides that is not protected, so a table of two cells gets the concentration of one of three.
    """
    cells = max(cells, 3)

    def excess(log_r):
        r = math.exp(log_r)
        alpha = 1 + 4 * (order - 1) * r
        k = r * n_records + cells * alpha
        domain = SimplexDomain(2, eta=alpha / k, etabar=(cells - 2) * alpha / k, b=min(2 * r / k, 1.0))
        gamma = papers.p3_problem_14(domain, k, delta)
        return math.log(printed_p3.p3_theorem(domain, k, gamma) / epsilon)

    # From below in small steps, because delta is computed for concentrations that are not huge.
    top = math.log(epsilon) - 8
    while excess(top) < 0:
        top += 0.5
    return math.exp(brentq(excess, top - 0.5, top, xtol=1e-6))


def _publishers(r, alpha, exact, geometric, sigma, scale):
    made = {
        "exact": calibrated(exact),
        "geometric noise, estimated": estimated(geometric),
        "Gaussian noise": noisy("normal", sigma),
        "Laplace noise": noisy("laplace", scale),
        "Gaussian noise, smoothed": smoothed("normal", sigma),
        "no privacy": frequencies,
        "nothing known": uniform,
    }
    if r is not None:
        made |= {"printed": across_classes(r, alpha), "corrected": dirichlet_draw(r, alpha)}
    return made
