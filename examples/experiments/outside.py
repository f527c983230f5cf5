"""Numbers of the figures once more, by NumPy and SciPy alone: nothing here imports the library.

`VALUES` has a function for each number of a record that can be had in another way: a closed form, quadrature, an
enumeration of all data sets, or a simulation. `TOLERANCE` says how near both have to be, by default `NEAR`.
"""

import itertools
import math
from functools import cache, partial

import numpy as np
from scipy import integrate, optimize, stats
from scipy.special import betaln, digamma, gammaln, polygamma

NEAR, SIMULATED = 1e-5, 0.04  # a record has six digits


def log_beta(parameters):
    return gammaln(parameters).sum(axis=-1) - gammaln(parameters.sum(axis=-1))


def renyi(order, u, v):
    """Of two Dirichlet distributions."""
    u, v = np.asarray(u, dtype=float), np.asarray(v, dtype=float)
    return (log_beta(order * u - (order - 1) * v) - order * log_beta(u) + (order - 1) * log_beta(v)) / (order - 1)


def crossing(delta_at, delta, high=100.0):
    return optimize.brentq(lambda epsilon: delta_at(epsilon) - delta, 1e-9, high, xtol=1e-10)


def delta_of_shares(epsilon, first, second):
    """Beta(first, second) against Beta(second, first): the ratio is (u / (1 - u)) ** (first - second)."""
    at = 1 / (1 + math.exp(-epsilon / (first - second)))
    return stats.beta(first, second).sf(at) - math.exp(epsilon) * stats.beta(second, first).sf(at)


def equation_14(order, r, delta=1e-5):
    bound = order * r**2 * float(polygamma(1, 1 + 3 * (order - 1) * r))
    return bound + math.log(order - 1) - (math.log(delta) + order * math.log(order)) / (order - 1)


def exact_of_figure_8(order, r, delta=1e-5):
    prior = 1 + 4 * (order - 1) * r
    return crossing(lambda epsilon: delta_of_shares(epsilon, prior + r, prior), delta)


def one_more_record(prior, delta):
    """Gamma(prior) against Gamma(prior + 1), in both directions: the ratio is u / prior or prior / u."""

    def delta_at(epsilon):
        low, high = stats.gamma(prior), stats.gamma(prior + 1)
        least, most = prior * math.exp(-epsilon), prior * math.exp(epsilon)
        return max(
            low.cdf(least) - math.exp(epsilon) * high.cdf(least), high.sf(most) - math.exp(epsilon) * low.sf(most)
        )

    return crossing(delta_at, delta)


@cache
def below(entries, k, eta, gamma):
    """The probability that one of the entries at the floor is below gamma: singles less pairs, by quadrature."""
    one, rest = stats.beta(k * eta, k * (1 - eta)), stats.beta(k * eta, k * (1 - 2 * eta))
    # In x = gamma s ** (1 / (k eta)) the density at 0 has no singularity.
    power = 1 / (k * eta)
    both, _ = integrate.quad(
        lambda s: (
            one.pdf(gamma * s**power) * gamma * power * s ** (power - 1) * rest.cdf(gamma / (1 - gamma * s**power))
        ),
        0,
        1,
        epsabs=0,
        epsrel=1e-9,
    )
    return entries * one.cdf(gamma) - math.comb(entries, 2) * both


@cache
def largest_gamma(k, delta=0.05, eta=0.05):
    return math.exp(optimize.brentq(lambda t: below(2, k, eta, math.exp(t)) - delta, -60, math.log(0.2), xtol=1e-12))


def theorem_1(k, b=0.4, eta=0.05, etabar=0.05, weight=1.0):
    """P3's epsilon at its best gamma."""
    gamma, t, whole = largest_gamma(k), weight * b / 2, 1 - etabar - eta
    beta = betaln(k * eta, k * whole) - betaln(k * (eta + t), k * (whole - t))
    return beta + k * t * math.log((1 - gamma) / gamma)


def simplex(k, step, delta=0.05, eta=0.05):
    """The exact epsilon: two entries at eta and eta + step change places, and only their ratio tells."""
    return crossing(lambda epsilon: delta_of_shares(epsilon, k * (eta + step), k * eta), delta)


def normal_delta(ratio, epsilon=1.0):
    return stats.norm.cdf(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * stats.norm.cdf(
        -ratio / 2 - epsilon / ratio
    )


def kl_of_dirichlets(u, v):
    total = u.sum(axis=1, keepdims=True)
    return log_beta(v) - log_beta(u) + ((u - v) * (digamma(u) - digamma(total))).sum(axis=1)


def appendix_c(eta, line, rho=0.1, n=1000, d=10):
    """P2's Figure 3 with other draws."""
    rng = np.random.default_rng(1)
    x = rng.multinomial(n, rng.dirichlet(np.full(d, eta), 20_000)).astype(float)
    if line == "printed":
        prior = 2 + optimize.brentq(lambda a: float(polygamma(1, a)) - rho, 1, 1000)
        return kl_of_dirichlets(x + 1, x + prior).mean()
    noisy = np.maximum(x + rng.normal(0, 1 / math.sqrt(rho), x.shape), 0)
    return kl_of_dirichlets(x + 1, noisy + 1).mean()


class Posteriors:
    """All data sets of n records in d categories, the distances of their posteriors, and P4's sensitivities."""

    def __init__(self, prior, n):
        d = len(prior)
        cuts = itertools.combinations(range(n + d - 1), d - 1)
        self.x = np.array([np.diff((-1, *cut, n + d - 1)) - 1 for cut in cuts])
        a = self.x + np.asarray(prior, dtype=float)
        affinity = log_beta((a[:, None] + a[None]) / 2) - (log_beta(a)[:, None] + log_beta(a)[None]) / 2
        self.distance = np.sqrt(np.maximum(-np.expm1(affinity), 0))
        self.moved = np.abs(self.x[:, None] - self.x[None]).sum(axis=2) // 2
        self.local = np.where(self.moved == 1, self.distance, 0).max(axis=1)

    def sensitivity(self, kind):
        if kind == "local":
            return self.local
        if kind == "global":
            return np.full(len(self.x), self.local.max())
        return 1 / (1 / self.local[None] + kind * self.moved).min(axis=1)

    def distribution(self, exponent, kind):
        weights = np.exp(-exponent * self.distance / self.sensitivity(kind)[:, None])
        return weights / weights.sum(axis=1, keepdims=True)

    def loss(self, exponent, kind):
        logs, (first, second) = np.log(self.distribution(exponent, kind)), np.nonzero(self.moved == 1)
        return float(np.abs(logs[first] - logs[second]).max())

    def at(self, counts):
        return int(np.flatnonzero((self.x == counts).all(axis=1))[0])


@cache
def posteriors(prior, n, d=2):
    return Posteriors([prior] * d, n)


def balanced(n, d):
    return [n // d] * (d - 1) + [n - (d - 1) * (n // d)]


def expected(n, exponent, kind, prior=1.0, d=2):
    all_sets, at = posteriors(prior, n, d), posteriors(prior, n, d).at(balanced(n, d))
    return float(all_sets.distribution(exponent, kind)[at] @ all_sets.distance[at])


def laplace(n, scale):
    """Half of n records with noise rounded down and clamped: the probability of each count."""
    ends = np.arange(1, n + 1) - n // 2
    return np.diff(stats.laplace(scale=scale).cdf(ends), prepend=0, append=1)


def noisy(n, scale, prior=1.0):
    all_sets, at = posteriors(prior, n), posteriors(prior, n).at(balanced(n, 2))
    return float(laplace(n, scale)[all_sets.x[:, 0]] @ all_sets.distance[at])


def nearer(epsilon, line, n=100, far=0.2):
    all_sets, at = posteriors(1.0, n), posteriors(1.0, n).at(balanced(n, 2))
    distribution = (
        all_sets.distribution(epsilon / 4, 1.0)[at] if line == "printed" else laplace(n, 2 / epsilon)[all_sets.x[:, 0]]
    )
    return float(distribution[all_sets.distance[at] <= far + 1e-12].sum())


def stays(n):
    all_sets, at = posteriors(1.0, n), posteriors(1.0, n).at(balanced(n, 2))
    return float(all_sets.distribution(0.25, 1.0)[at, at])


def crossing_point(step, theirs):
    """P4's section 6.3: the largest even number of records, of 40, at which Definition 4 has the larger probability."""
    best = 0
    for n in range(2, 42, 2):
        all_sets = posteriors(1.0, n)
        distribution = all_sets.distribution(0.25, 1.0)[all_sets.at(balanced(n, 2))]
        if distribution[all_sets.x[:, 0] == n // 2 + step].sum() > theirs:
            best = n
    return best


def local_nearer(epsilon, n=100, far=0.2):
    """The same as `nearer` for the mechanism with the local sensitivity."""
    all_sets, at = posteriors(1.0, n), posteriors(1.0, n).at(balanced(n, 2))
    return float(all_sets.distribution(epsilon / 2, "local")[at][all_sets.distance[at] <= far + 1e-12].sum())


def sensitivity_at(kind, count, n=100):
    all_sets = posteriors(1.0, n)
    return float(all_sets.sensitivity(kind)[all_sets.at([count, n - count])])


VALUES = {
    **{("p1_figure_8", f"printed, order {o}, r 0.1"): partial(equation_14, o, 0.1) for o in (2, 10, 50, 200)},
    **{("p1_figure_8", f"exact, order {o}, r 0.1"): partial(exact_of_figure_8, o, 0.1) for o in (2, 10, 50, 200)},
    ("p1_figure_8", "printed, order 2, r 0.001"): partial(equation_14, 2, 0.001),
    **{
        ("p1_figure_2", f"delta, {m} entries, gamma {gamma:g}"): partial(below, m, 171.87, 0.028, gamma)
        for m in (2, 3, 5)
        for gamma in (1e-3, 1e-6)
    },
    ("p1_figure_3", "bound, order 2, r 0.1"): lambda: 0.02 * float(polygamma(1, 1.3)),
    ("p1_figure_3", "exact, order 2, r 0.1"): lambda: renyi(2, [1.5, 1.4], [1.4, 1.5]),
    ("p2_figure_1", "bound, prior 1.5"): lambda: float(polygamma(1, 0.5)) / 2,
    ("p2_figure_1", "exact, prior 1.5"): lambda: (gammaln(0.5) - 2 * gammaln(1.5) + gammaln(2.5)) / 2,
    ("p2_figure_1", "two data sets, prior 1.5"): lambda: (
        renyi(2, np.array([11, 8, 65, 25, 38, 0]) + 1.5, np.array([11, 8, 65, 25, 38, 1]) + 1.5) / 2
    ),
    ("p2_figure_1", "exact epsilon, prior 5, delta 1e-6"): partial(one_more_record, 5.0, 1e-6),
    **{
        ("p2_figure_3", f"eta {eta:g}, {line}"): partial(appendix_c, eta, line)
        for eta in (10.0,)
        for line in ("printed", "Gaussian noise")
    },
    ("p3_figure_1", "deviation, corrected"): lambda: (
        0.05 * (stats.norm.isf(0.01) + math.sqrt(stats.norm.isf(0.01) ** 2 + 2))
    ),
    ("p3_figure_1", "deviation, exact"): lambda: (
        0.1 / optimize.brentq(lambda ratio: normal_delta(ratio) - 0.01, 0.05, 5)
    ),
    **{("p3_figure_3", f"k {k}, corrected"): partial(theorem_1, k) for k in (3, 10, 24)},
    **{("p3_figure_3", f"k {k}, exact"): partial(simplex, k, 0.2) for k in (3, 10, 24)},
    **{
        ("p3_figure_3", f"k {k}, true delta"): partial(delta_of_shares, printed, k * 0.25, k * 0.05)
        for k, printed in ((3, 2.30), (10, 4.40), (24, 8.53))
    },
    ("p3_table_1_figure_4", "sum of the printed averages"): lambda: 0.314923 + 0.315923 + 0.320923,
    ("p3_table_1_figure_4", "Theorem 2"): partial(theorem_1, 24, b=1.0, weight=0.01),
    ("p3_table_1_figure_4", "exact epsilon"): partial(simplex, 24, 0.005),
    **{
        ("p4_figure_1", f"{name}, {count} of 100"): partial(sensitivity_at, kind, count)
        for name, kind in (
            ("local", "local"),
            ("smooth, gamma 1", 1.0),
            ("smooth, gamma 0.1", 0.1),
            ("global", "global"),
        )
        for count in (0, 50)
    },
    **{
        ("p4_figure_5", f"{n} records, {line}"): value
        for n in (10, 300)
        for line, value in (
            ("printed", partial(expected, n, 0.25, 1.0)),
            ("not proved", partial(expected, n, 0.5, 1.0)),
            ("nothing known", partial(expected, n, 0.5, "global")),
            ("Laplace noise", partial(noisy, n, 2.0)),
            ("Gaussian noise", partial(noisy, n, 1.0)),
        )
    },
    ("p4_figure_6", "3 categories, 9, printed"): partial(expected, 9, 0.25, 1.0, d=3),
    ("p4_figure_6", "4 categories, 8, printed"): partial(expected, 8, 0.25, 1.0, d=4),
    ("p4_figure_6", "priors, 50, printed"): partial(expected, 100, 0.25, 1.0, prior=50.0),
    ("p4_figure_6", "priors, 50, Laplace noise"): partial(noisy, 100, 2.0, prior=50.0),
    **{
        ("p4_figure_7", f"prior {prior:g}, {n} records, {line}"): lambda prior=prior, n=n, c=c, kind=kind: posteriors(
            prior, n
        ).loss(c, kind)
        for prior in (0.1, 1.0)
        for n in (10, 300)
        for line, c, kind in (("printed", 0.25, 1.0), ("local", 0.5, "local"))
    },
    **{
        ("p4_figures_3_4", f"epsilon {epsilon}, {line}"): partial(nearer, epsilon, line)
        for epsilon in (1, 5)
        for line in ("printed", "Laplace noise")
    },
    **{("p4_figures_3_4", f"epsilon {epsilon}, not private"): partial(local_nearer, epsilon) for epsilon in (1, 5)},
    ("p4_tables_1_2", "crossing with lapMech, no step"): partial(crossing_point, 0, -0.5 * math.expm1(-0.5)),
    ("p4_tables_1_2", "crossing with ilapMech, no step"): partial(crossing_point, 0, -0.5 * math.expm1(-1)),
    ("p4_tables_1_2", "crossing with ilapMech, one step"): partial(
        crossing_point, 1, -0.5 * math.expm1(-1) * math.exp(-1)
    ),
    ("p4_tables_1_2", "crossing with lapMech, two steps"): partial(
        crossing_point, 2, -0.5 * math.expm1(-0.5) * math.exp(-1)
    ),
    **{("p4_tables_1_2", f"no step, {n} records, printed"): partial(stays, n) for n in (10, 1000)},
    **{("p4_tables_1_2", f"no step, {n} records, Laplace noise"): lambda: 0.5 * -math.expm1(-0.5) for n in (10, 1000)},
}
TOLERANCE = {key: SIMULATED for key in VALUES if key[0] == "p2_figure_3"}
