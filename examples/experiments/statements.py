"""A number for each statement of the papers that has one: by the library, and by NumPy and SciPy alone.

`NUMBERS` maps the beginning of a statement, as the table of `docs/papers.md` words it, to what the number is, the
library's function and the other computation. What is refused, and what is not about a number, has none.
"""

import math

import numpy as np
import outside
import p3_figure_1
import printed_p1
import printed_p2
import printed_p3
import printed_p4
from outside import below, renyi, theorem_1
from scipy import integrate, optimize, stats
from scipy.special import digamma, zeta

import pymc_dirdp as dirdp
from pymc_dirdp.planning.allocation import composed

papers, DirichletMechanism = dirdp.papers, dirdp.mechanisms.DirichletMechanism
PAIR, AVERAGE = (
    papers.SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4),
    papers.SimplexDomain(2, eta=0.05, etabar=0.05, b=1.0, weight=0.01),
)
WIDE = papers.SimplexDomain(2, eta=0.3, etabar=0.1999, b=1.0)


def all_moves(alpha, r, order, n=5):
    """The largest divergence of all neighbours of n records in three cells."""
    sets = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    pairs = [(x, y) for x in sets for y in sets if sum(map(abs, np.subtract(x, y))) == 2]
    return max(renyi(order, r * np.array(x) + alpha, r * np.array(y) + alpha) for x, y in pairs)


def of_density(function, log_density):
    """The mean of a function of a number in (0, 1)."""
    parts = [
        integrate.quad(lambda u, f=f: f(u) * math.exp(log_density(u)), 0, 1, epsabs=0)[0]
        for f in (function, lambda u: 1)
    ]
    return parts[0] / parts[1]


def unknown_shares(alpha, r, n=20):
    """E KL(p || y) of two cells: p given x is Beta, and so is y."""
    found = 0.0
    for x in range(n + 1):
        p, a, b = stats.beta(x + 1, n - x + 1), r * x + alpha, r * (n - x) + alpha
        entropy = p.expect(lambda u: u * np.log(u) + (1 - u) * np.log1p(-u))
        logs = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        found += (entropy - p.mean() * logs[0] - (1 - p.mean()) * logs[1]) / (n + 1)
    return found


def tail(p, u, eta, draws=1_000_000):
    y = np.random.default_rng(1).dirichlet(u, draws)
    return float(np.mean((p * np.log(p / y)).sum(axis=1) > eta))


def equation_22(eta, beta, total):
    w = optimize.brentq(lambda w: w * math.exp(w) - math.exp(1 + eta) * beta / (beta + total), 1e-9, 50)
    return math.exp(-beta * (1 - 1 / w) * (w - 1))


def laplace_divergence(order, scale, shift):
    def density(u, at):
        return math.exp(-abs(u - at) / scale) / (2 * scale)

    moment = integrate.quad(
        lambda u: density(u, shift) ** order / density(u, 0) ** (order - 1), -40 * scale, 40 * scale, points=[0, shift]
    )
    return math.log(moment[0]) / (order - 1)


def normal_divergence(order, sigma):
    """Of two counts that move by 1."""

    def integrand(u):
        return math.exp(order * stats.norm.logpdf(u, 1, sigma) + (1 - order) * stats.norm.logpdf(u, 0, sigma))

    moment = integrate.quad(integrand, -30 * sigma, 30 * sigma, points=[order])
    return 2 * math.log(moment[0]) / (order - 1)


def converted(rho, omega, delta):
    orders = np.linspace(1, omega, 2_000_001)[1:]
    return float((rho * orders - math.log(delta) / (orders - 1)).min())


def theorem_2_of_p2(delta, prior):
    def bound(gamma):
        return zeta(2, prior - gamma) * (gamma + 1) - math.log(delta) / gamma

    return float(
        optimize.minimize_scalar(bound, bounds=(1e-6, prior - 1e-6), method="bounded", options={"xatol": 1e-9}).fun
    )


def prior_of_p2(rho, gamma):
    return gamma + optimize.brentq(lambda a: zeta(2, a) - rho, 1e-3, 1e4, xtol=1e-12)


def largest_error(n, d, total, probability=0.05):
    return math.sqrt(math.log(2 * d / probability) / (2 * (n + total + 1))) + total / (n + total)


def enough_records(accuracy, d, rho, gamma):
    total = d * prior_of_p2(rho, gamma)
    return next(n for n in range(1, 100_000) if largest_error(n, d, total) <= accuracy)


def noise_of_frequencies(n, d, rho, probability=0.05):
    return math.sqrt(2 * math.log(2 * d / probability) / rho) / n


def relative_bias(x, n, r, alpha, d):
    return (r * x + alpha) / (r * n + d * alpha) * n / x - 1


def clamped_loss(n, scale):
    """The largest loss of a count with Laplace noise rounded down and cut at both ends."""
    shares = [
        np.diff(stats.laplace(count, scale).cdf(np.arange(1, n + 1)), prepend=0, append=1) for count in range(n + 1)
    ]
    return float(np.abs(np.diff(np.log(shares), axis=0)).max())


def hellinger(n, **options):
    return papers.HellingerMechanism([1, 1], n, 0.25, **options)


NUMBERS = {
    "P1 introduction, the opening example": (
        "divergence of the first vector over its sum",
        lambda: float(np.array([0.1, 0.9]) @ np.log(np.array([0.1, 0.9]) / printed_p1.p1_equation_12([0.01, 0.945]))),
        lambda: 0.1 * math.log(0.1 * 0.955 / 0.01) + 0.9 * math.log(0.9 * 0.955 / 0.945),
    ),
    "P1 2.1,": (
        "divergence at order 3, prior 2, r 0.3",
        lambda: DirichletMechanism(np.full(3, 2.0), 0.3).renyi(3),
        lambda: all_moves(2.0, 0.3, 3),
    ),
    "P1 Lemma 1": (
        "divergence of two draws at order 3",
        lambda: composed(
            {"a": DirichletMechanism([2, 2], 0.3), "b": DirichletMechanism([3, 3], 0.5)}, [("a", "b")], 1
        ).renyi(3),
        lambda: renyi(3, [2.3, 2], [2, 2.3]) + renyi(3, [3.5, 3], [3, 3.5]),
    ),
    "P1 2.2,": (
        "mean of a share, 3 of 10 records",
        lambda: 0.3 + float(papers.cell_errors(DirichletMechanism([2, 2], 0.4), [3, 7], row_records=10).bias[0]),
        # exp(-r n KL(x / n || y)) times the density of the prior
        lambda: of_density(lambda u: u, lambda u: 1.2 * math.log(u) + 2.8 * math.log1p(-u) + math.log(u * (1 - u))),
    ),
    "P1 equation 3": (
        "deviation of a share, 3 of 10 records",
        lambda: float(papers.cell_errors(DirichletMechanism([2, 2], 0.4), [3, 7], row_records=10).sd[0]),
        lambda: stats.beta(3.2, 4.8).std(),
    ),
    "P1 equation 4": (
        "E KL(p || y), 20 records of two cells",
        lambda: printed_p1.unknown_shares_kl(DirichletMechanism([2, 2], 0.4), prior=[1, 1], n_records=20).forward,
        lambda: unknown_shares(2.0, 0.4),
    ),
    "P1 section 2.4 and Figure 2": (
        "delta of five entries, gamma 1e-3",
        lambda: papers.p3_lemma_1(papers.SimplexDomain(5, eta=0.028, etabar=0.028, b=0.1), 171.87, 1e-3),
        lambda: below(5, 171.87, 0.028, 1e-3),
    ),
    "P1 3.1 and Theorem 1": (
        "bound at order 5, r 0.1, prior 3",
        lambda: papers.p1_theorem_1(order=5, r=0.1, alpha_min=3.0).epsilon,
        lambda: 0.05 * zeta(2, 2.6),
    ),
    "P1 Algorithm 1": (
        "r at (5, 0.1)-RDP",
        lambda: papers.p1_theorem_1_concentration(order=5, epsilon=0.1),
        lambda: outside.concentration(0.1, 5),
    ),
    "P1 Remark 1": (
        "bound at order 3, r 0.2, prior 7.5",
        lambda: papers.p1_theorem_1(order=3, r=0.2, alpha_min=7.5).epsilon,
        lambda: 0.12 * zeta(2, 7.1),
    ),
    "P1 Remark 2": (
        "divergence at order 3, each count at least 4",
        lambda: DirichletMechanism([1, 1], 0.5, min_count=4).renyi(3),
        lambda: renyi(3, [3.5, 3], [3, 3.5]),
    ),
    "P1 Figure 3 (top)": (
        "divergence at order 20, r 0.1",
        lambda: DirichletMechanism(np.full(6, 8.6), 0.1).renyi(20),
        lambda: renyi(20, [8.7, 8.6], [8.6, 8.7]),
    ),
    "P1 Theorem 2": (
        "exact tail of the divergence at 0.05",
        lambda: dirdp.planning.DrawError([0.5, 0.3, 0.2], [54.0, 34.0, 24.0]).tail(0.05),
        lambda: tail(np.array([0.5, 0.3, 0.2]), [54.0, 34.0, 24.0], 0.05),
    ),
    "P1 equation 22": (
        "bound at 0.2, beta 1000",
        lambda: papers.p1_equation_22(eta=0.2, beta=1000.0, total_alpha=40.0),
        lambda: equation_22(0.2, 1000, 40),
    ),
    "P1 section 4,": (
        "records for a divergence of 0.1",
        lambda: printed_p1.p1_sample_size(eta=0.1, probability=0.05, order=5, epsilon=0.1, d=4),
        lambda: math.ceil(
            max(
                4 * (1 + 16 * outside.concentration(0.1, 5)) / math.expm1(0.05),
                -math.log(0.05) * 2 * 2.1 * 4.3 / 0.01,
            )
            / outside.concentration(0.1, 5)
        ),
    ),
    "P1 section 5, Gaussian noise": (
        "deviation for ten tables at (5, 0.2)-RDP",
        lambda: printed_p1.p1_gaussian_sigma(order=5, epsilon=0.2, tables=10),
        lambda: optimize.brentq(lambda sigma: normal_divergence(5, sigma) - 0.02, 5, 50),
    ),
    "P1 section 5, Laplace noise": (
        "printed divergence at order 4, scale 5",
        lambda: printed_p1.p1_laplace_renyi(order=4, scale=5.0),
        lambda: laplace_divergence(4, 5.0, 2.0),
    ),
    "P1 equation 12": (
        "largest share of (3.2, -0.7, 0.8)",
        lambda: float(printed_p1.p1_equation_12([3.2, -0.7, 0.8])[0]),
        lambda: 3.2 / (4 + 1e-6),
    ),
    "P1 Proposition 3": (
        "pure epsilon of the draw",
        lambda: DirichletMechanism([2, 2], 0.3).pure_epsilon,
        # Of outputs that come nearer to 0 without end.
        lambda: -0.3 * -math.inf,
    ),
    "P1 Lemma 3": (
        "epsilon of (10, 0.1)-RDP at delta 1e-5",
        lambda: dirdp.privacy.convert(dirdp.RenyiDP(order=10, epsilon=0.1), dirdp.ApproxDP, delta=1e-5).epsilon,
        lambda: 0.1 + math.log(9) - (math.log(1e-5) + 10 * math.log(10)) / 9,
    ),
    "P2 Lemma 1": (
        "epsilon of (0.1, 20)-tCDP at delta 1e-6",
        lambda: printed_p2.p2_lemma_1(rho=0.1, omega=20.0, delta=1e-6).epsilon,
        lambda: converted(0.1, 20.0, 1e-6),
    ),
    "P2 Theorem 1": (
        "rho of prior 50, gamma 2",
        lambda: papers.p2_theorem_1(gamma=2.0, alpha_min=50.0).rho,
        lambda: zeta(2, 48),
    ),
    "P2 Figure 1 (left)": (
        "rho at a prior of 1.5, one record more",
        lambda: DirichletMechanism(np.full(2, 1.5), 1.0, adjacency="add-remove").rho(2.0),
        lambda: math.log(3) / 2,
    ),
    "P2 Theorem 2": (
        "epsilon of prior 50 at delta 1e-6",
        lambda: papers.p2_theorem_2(delta=1e-6, alpha_min=50.0).epsilon,
        lambda: theorem_2_of_p2(1e-6, 50.0),
    ),
    "P2 Theorem 3": (
        "bound on the divergence, 1000 records",
        lambda: printed_p2.p2_theorem_3(p=[0.2, 0.3, 0.5], n_records=1000, alpha=[1, 1, 1], inflated=[9, 9, 9]),
        lambda: 64 * (5 + 10 / 3 + 2) / 1001,
    ),
    "P2 section 4.1": (
        "prior for rho 0.1, gamma 2",
        lambda: printed_p2.p2_theorem_1_prior(rho=0.1, gamma=2.0),
        lambda: prior_of_p2(0.1, 2.0),
    ),
    "P2 Theorem 4": (
        "largest error, 1000 records",
        lambda: printed_p2.p2_theorem_4(probability=0.05, effective_records=1000, alpha=[1, 1, 1]),
        lambda: largest_error(1000, 3, 3),
    ),
    "P2 equation 12": (
        "divergence bound, 100,000 records, rho 0.1",
        lambda: printed_p2.p2_theorem_3(
            p=np.full(10, 0.1),
            n_records=100_000,
            alpha=np.ones(10),
            inflated=np.full(10, printed_p2.p2_theorem_1_prior(rho=0.1, gamma=1.0)),
        ),
        lambda: 100 * (prior_of_p2(0.1, 1.0) - 1) ** 2 / 100_001,
    ),
    "P2 equations 14 and 15": (
        "records for an error of 0.05",
        lambda: printed_p2.p2_sample_size(accuracy=0.05, probability=0.05, rho=0.1, gamma=1.0, d=10),
        lambda: enough_records(0.05, 10, 0.1, 1.0),
    ),
    "P2 equation 16": (
        "error of noise, 1000 records",
        lambda: printed_p2.p2_equation_16(probability=0.05, n_records=1000, rho=0.1, d=10),
        lambda: noise_of_frequencies(1000, 10, 0.1),
    ),
    "P2 equation 17": (
        "records that noise needs for 0.05",
        lambda: printed_p2.p2_equation_16_sample_size(accuracy=0.05, probability=0.05, rho=0.1, d=10),
        lambda: next(n for n in range(1, 10_000) if noise_of_frequencies(n, 10, 0.1) <= 0.05),
    ),
    "P2 section 4.2": (
        "error of the draw over that of noise, 100 records of 1000",
        lambda: (
            printed_p2.p2_theorem_4(
                probability=0.05,
                effective_records=100,
                alpha=np.full(1000, printed_p2.p2_theorem_1_prior(rho=0.1, gamma=1.0)),
            )
            / printed_p2.p2_equation_16(probability=0.05, n_records=100, rho=0.1, d=1000)
        ),
        lambda: largest_error(100, 1000, 1000 * prior_of_p2(0.1, 1.0)) / noise_of_frequencies(100, 1000, 0.1),
    ),
    "P2, societal impacts: small groups": (
        "relative bias of 10 in 1000",
        lambda: float(papers.cell_errors(DirichletMechanism(np.ones(6), 0.1), 10, row_records=1000).relative_bias[0]),
        lambda: relative_bias(10, 1000, 0.1, 1.0, 6),
    ),
    "P2, societal impacts: larger priors": (
        "relative bias of 20 in 1000 at P2's prior",
        lambda: float(
            papers.cell_errors(
                DirichletMechanism(np.full(5, printed_p2.p2_theorem_1_prior(rho=0.1, gamma=2.0)), 1.0),
                20,
                row_records=1000,
            ).relative_bias[0]
        ),
        lambda: relative_bias(20, 1000, 1.0, prior_of_p2(0.1, 2.0), 5),
    ),
    "P2 Appendix D": (
        "best r for 1000 records, rho 0.1",
        lambda: dirdp.calibrate(dirdp.TruncatedCDP(rho=0.1, omega=3.0), prior=np.ones(10), n_records=1000).r,
        lambda: outside.balance(0.1)[0],
    ),
    "P3 Lemma 1": (
        "delta, k 24, gamma 0.002",
        lambda: papers.p3_lemma_1(PAIR, 24, 0.002),
        lambda: below(2, 24, 0.05, 0.002),
    ),
    "P3 Lemma 2": (
        "delta of the input (0.2, 0.3, 0.5)",
        lambda: papers.p3_lemma_1(PAIR, 24, 0.002, p=[0.2, 0.3]),
        # Both at once have a probability of 1e-20.
        lambda: stats.beta(4.8, 19.2).cdf(0.002) + stats.beta(7.2, 16.8).cdf(0.002),
    ),
    "P3 Lemmas 3 and 4": (
        "epsilon of Theorem 1, k 24",
        lambda: printed_p3.p3_theorem(PAIR, 24, papers.p3_problem_14(PAIR, 24, 0.05)),
        lambda: theorem_1(24),
    ),
    "P3 section III": (
        "exact epsilon, k 24",
        lambda: papers.SimplexMechanism(24, PAIR).epsilon(0.05),
        lambda: outside.simplex(24, 0.2),
    ),
    "P3 Lemma 5": (
        "Corollary 1, k 5, gamma 0.2",
        lambda: printed_p3.p3_corollary(papers.SimplexDomain(2, eta=0.1, etabar=0.1, b=0.1), 5.0, 0.2),
        lambda: 2 * 5 * 0.9 - 3 + 5 * 0.05 * math.log(4),
    ),
    "P3 problem 14": (
        "largest gamma, k 24",
        lambda: papers.p3_problem_14(PAIR, 24, 0.05),
        lambda: outside.largest_gamma(24),
    ),
    "P3 Theorem 2": (
        "epsilon of an average of 100",
        lambda: printed_p3.p3_theorem(AVERAGE, 24, papers.p3_problem_14(AVERAGE, 24, 0.05), number=2),
        lambda: theorem_1(24, b=1.0, weight=0.01),
    ),
    "P3 Theorem 3": (
        "printed epsilon, alpha 0.1",
        lambda: printed_p3.p3_theorem(WIDE, 4, 0.01, number=3, alpha=0.1),
        lambda: (
            sum(sign * math.lgamma(each) for sign, each in ((1, 1.2), (1, 2.0004), (-1, 3.2), (-1, 0.0004)))
            + 0.4 * math.log(100)
        ),
    ),
    "P3 Proposition 1": (
        "variance of an entry of 0.2, k 24",
        lambda: papers.SimplexMechanism(24, PAIR).variance(0.2),
        lambda: stats.beta(4.8, 19.2).var(),
    ),
    "P3 Theorem 4": (
        "k for six entries within 0.08",
        lambda: papers.SimplexMechanism.concentration_for_accuracy(0.08, 0.726, 6),
        lambda: math.log(12 / 0.726) / 0.0128 - 1,
    ),
    "P3 Figure 1": (
        "least deviation for (1, 0.01)",
        p3_figure_1.least_deviation,
        outside.DEVIATION["exact"],
    ),
    "P4 section 2, adjacency": (
        "local sensitivity of (50, 50)",
        lambda: printed_p4.p4_local_sensitivity([50, 50], prior=[1, 1]),
        lambda: outside.sensitivity_at("local", 50),
    ),
    "P4 section 4.1.1": (
        "pure epsilon of lapMech",
        lambda: papers.p4_lap_mech(epsilon=1.0, prior=[1, 1], n_records=100).pure_epsilon,
        lambda: clamped_loss(20, 2.0),
    ),
    "P4 section 4.1.2": (
        "expected distance of ilapMech, 300 records",
        lambda: papers.p4_ilap_mech(epsilon=1.0, prior=[1, 1], n_records=300).expected_distance([150, 150]),
        lambda: outside.noisy(300, 1.0),
    ),
    "P4 section 4.2.1": (
        "global sensitivity, 100 records",
        lambda: printed_p4.p4_global_sensitivity(prior=[1, 1], n_records=100),
        lambda: outside.posteriors(1.0, 100).local.max(),
    ),
    "P4 section 4.2.2, local": (
        "local sensitivity of (0, 100)",
        lambda: printed_p4.p4_local_sensitivity([0, 100], prior=[1, 1]),
        lambda: outside.sensitivity_at("local", 0),
    ),
    "P4 section 4.2.2, the mechanism": (
        "what it loses, prior 0.1, 300 records",
        lambda: printed_p4.p4_local_loss(prior=[0.1, 0.1], n_records=300, exponent=0.5),
        lambda: outside.posteriors(0.1, 300).loss(0.5, "local"),
    ),
    "P4 Definition 3": (
        "smooth sensitivity of (50, 50), gamma 0.1",
        lambda: printed_p4.p4_smooth_sensitivity([50, 50], prior=[1, 1], smoothness=0.1),
        lambda: outside.sensitivity_at(0.1, 50),
    ),
    "P4 Definition 4": (
        "what it loses, 300 records",
        lambda: hellinger(300).pure_epsilon,
        lambda: outside.posteriors(1.0, 300).loss(0.25, 1.0),
    ),
    "P4 Tables 1 and 2": (
        "probability of no step, lapMech",
        lambda: float(
            np.exp(papers.p4_lap_mech(epsilon=1.0, prior=[1, 1], n_records=1000).log_likelihood([500, 500], [500, 500]))
        ),
        lambda: -0.5 * math.expm1(-0.5),
    ),
    "P4 section 6.3": (
        "probability of no step, 6 records",
        lambda: float(hellinger(6).distribution([3, 3])[1][3]),
        lambda: outside.stays(6),
    ),
    "P4 Figures 5 and 6": (
        "expected distance of Definition 4, 300 records",
        lambda: hellinger(300).expected_distance([150, 150]),
        lambda: outside.expected(300, 0.25, 1.0),
    ),
}
# A minimum is flat; a tail of 1,000,000 draws is simulated.
TOLERANCE = {"P2 Appendix D": 1e-4, "P1 Theorem 2": outside.SIMULATED}


def number_of(statement):
    """The key, what the number of a statement is, the library's and the other one; None if it has none."""
    found = [key for key in NUMBERS if statement.startswith(key)]
    return (found[0], *NUMBERS[found[0]]) if found else None
