"""Brute force for all rooms: divergences by their definitions, and every small data set with its neighbours."""

import heapq
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import mpmath as mp
import numpy as np
from scipy.special import betaln, digamma, gammaln
from scipy.stats import chi2

from pymc_dirdp.sampling.bits import Bits

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


def gamma_hockey_stick(removed, added, epsilon):
    """The hockey-stick divergence at epsilon of Gamma variables: cells (a, r) lose records, and others gain.

    The moment generating function of the loss, a ratio of Gamma functions, is inverted on a line through its saddle
    point with 130 digits.
    `E[1 - exp(epsilon - L)]_+` is the integral of `E exp(z L) exp(-z epsilon) / (z (z + 1))` over a line, by 2 pi i.
    """
    with mp.workdps(130):
        losing, gaining = ([(mp.mpf(a), mp.mpf(r)) for a, r in cells] for cells in (removed, added))

        def log_moment(z):
            ratio = mp.fsum(z * (mp.loggamma(a + r) - mp.loggamma(a)) for a, r in losing)
            ratio -= mp.fsum(z * (mp.loggamma(a + r) - mp.loggamma(a)) for a, r in gaining)
            ratio += mp.fsum(mp.loggamma(a - r * z) - mp.loggamma(a) for a, r in losing)
            return ratio + mp.fsum(mp.loggamma(a + r + r * z) - mp.loggamma(a + r) for a, r in gaining)

        def rises(z):
            slope = mp.fsum(mp.loggamma(a + r) - mp.loggamma(a) - r * mp.digamma(a - r * z) for a, r in losing)
            slope += mp.fsum(mp.loggamma(a) - mp.loggamma(a + r) + r * mp.digamma(a + r + r * z) for a, r in gaining)
            return slope - epsilon - 1 / z - 1 / (1 + z) > 0

        low, high = mp.mpf("1e-40"), min([a / r for a, r in losing] or [mp.mpf("1e40")])
        for _ in range(200):
            middle = mp.sqrt(low * high)
            low, high = (low, middle) if rises(middle) else (middle, high)
        bend = mp.fsum(r**2 * mp.psi(1, a - r * low) for a, r in losing)
        bend += mp.fsum(r**2 * mp.psi(1, a + r + r * low) for a, r in gaining)
        step = 1 / (4 * mp.sqrt(bend + low**-2 + (1 + low) ** -2))
        at_saddle = log_moment(low) - low * epsilon

        def term(k):
            z = mp.mpc(low, k * step)
            return (mp.exp(log_moment(z) - z * epsilon - at_saddle) / (z * (1 + z))).real

        total, first, k = term(0) / 2, abs(term(0)), 1
        while k < 20 or max(abs(term(k)), abs(term(k + 3))) > 1e-18 * first:
            total, k = total + term(k), k + 1
            assert k < 2000
        return float(total * step / mp.pi * mp.exp(at_saddle))


def tables_of(shape, n):
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


def drawn_p_value(drawn, tables, probabilities):
    """The p-value of drawn tables, given all tables and the probability of each; neighbours in the list are pooled."""
    place = {tuple(np.ravel(table).tolist()): i for i, table in enumerate(tables)}
    seen = np.bincount([place[tuple(np.ravel(one).tolist())] for one in drawn], minlength=len(tables))
    expected = np.asarray(probabilities) * len(drawn)
    if np.any(seen[expected == 0]):
        return 0.0
    group = (np.cumsum(expected) // 10).astype(int)
    seen, expected = (np.bincount(group, weights=values) for values in (seen, expected))
    likely = expected > 0
    return chi2.sf(np.sum((seen - expected)[likely] ** 2 / expected[likely]), max(likely.sum() - 1, 1))


# Samplers, by all the answers of their source of random bits.


class OutOfChoicesError(Exception):
    """The choices that were made before do not suffice. Holds the probabilities of the next one."""


class AgainError(Exception):
    """A proposal was rejected, after which the draw starts again."""


class Tape(Bits):
    def __init__(self, choices):
        super().__init__(0)
        self._choices = list(choices)

    def choose(self, probabilities):
        if not self._choices:
            raise OutOfChoicesError(probabilities)
        return self._choices.pop(0)

    def uniform(self, n):
        return self.choose([Fraction(1, n)] * n)

    def uniforms(self, limits):
        return np.array([self.uniform(n) for n in limits.tolist()], dtype=np.int64)

    def coin(self, p):
        return self.choose([1 - p, p]) == 1


def distribution(run, tape=Tape, left=Fraction(1, 100)):
    """The probability of each answer of `run(tape)`, and what is left in branches that were not followed.

    Where `AgainError` ends it, the answer is "again".
    """
    heap, order, found, undecided = [(-Fraction(1), 0, ())], itertools.count(1), defaultdict(Fraction), Fraction(1)
    while heap and undecided > left:
        minus, _, choices = heapq.heappop(heap)
        try:
            answer = run(tape(choices))
        except OutOfChoicesError as more:
            for choice, p in enumerate(*more.args):
                if p:
                    heapq.heappush(heap, (minus * p, next(order), (*choices, choice)))
            continue
        except AgainError:
            answer = "again"
        found[answer] -= minus
        undecided += minus
    return found, undecided


def agrees(run, exact, tape=Tape, left=Fraction(1, 100), *, others=False):
    """Whether the enumerated probabilities can be the exact ones: each lies within what was not followed, above it.

    With `others` there may be more answers than those of `exact`.
    """
    found, undecided = distribution(run, tape, left)
    assert undecided <= left
    # Exact probabilities may be doubles.
    rounding = Fraction(1, 10**12)
    fits = all(found[answer] - rounding <= p <= found[answer] + undecided + rounding for answer, p in exact.items())
    return fits and (others or set(found) <= set(exact))


def dirichlet_multinomial(parameters, steps):
    """The probability of each table of so many steps that has one, as a fraction; the parameters are fractions."""
    exact = {}

    def rising(x, n):
        return math.prod((x + i for i in range(n)), start=Fraction(1))

    for table in itertools.product(range(steps + 1), repeat=len(parameters)):
        if sum(table) == steps:
            ways = math.factorial(steps) / math.prod(map(Fraction, map(math.factorial, table)))
            masses = (rising(a, n) for a, n in zip(parameters, table, strict=True))
            if p := ways * math.prod(masses) / rising(sum(parameters), steps):
                exact[table] = p
    return exact
