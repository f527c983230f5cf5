"""Moments and tails of a draw's loss: against mpmath, Monte Carlo and each other."""

import itertools
import json
import math
from contextlib import suppress
from pathlib import Path

import mpmath as mp
import numpy as np
import printed_p1
import pytest
from scipy.optimize import brentq
from scipy.special import betainc, expit, log_expit, polygamma, xlogy

import pymc_dirdp as dirdp
from pymc_dirdp.curator.realised import by_size, frequencies
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.planning.draw_error import DrawError, divergence_tail, draw_share_error, expected_kl, smallest_share
from pymc_dirdp.planning.expected_kl import PriorExpectedKL, dirichlet_kl_rows

CASES = {
    "flat": ([0.25, 0.25, 0.25, 0.25], [31.0, 31, 31, 31]),
    "skewed": ([0.9, 0.09, 0.01], [91.0, 10, 2]),
    "empty cell": ([0.7, 0.3, 0.0], [8.0, 4, 0.5]),
    "two": ([0.5, 0.5], [0.7, 3.0]),
}


@pytest.fixture(params=CASES)
def case(request):
    p, u = map(np.array, CASES[request.param])
    return p, u, DrawError(p, u)


def test_tails_are_those_of_draws(case):
    """Within five standard errors; the tail is below Chernoff's bound, and that below the best of a grid of t."""
    p, u, loss = case
    y = np.random.default_rng(1).dirichlet(u, 20_000)
    kl, worst = xlogy(p, p / y).sum(axis=1), np.abs(y - p).max(axis=1)
    hellinger = 1 - np.sqrt(p * y).sum(axis=1)
    assert loss.squared_hellinger == pytest.approx(hellinger.mean(), abs=5 * hellinger.std() / math.sqrt(len(y)))
    assert loss.log_mgf(loss.greatest_t) == math.inf
    grid = np.linspace(0, loss.greatest_t, 1000)[:-1].tolist()
    for eta in (loss.mean / 2, loss.mean * 1.5, loss.mean * 3, loss.mean + 6 * math.sqrt(loss.variance)):
        assert loss.tail(eta) == pytest.approx((kl > eta).mean(), abs=2.5 / math.sqrt(len(y)))
        best = min(math.exp(min(loss.log_mgf(t) - t * eta, 0)) for t in grid)
        assert loss.tail(eta) <= loss.chernoff(eta) <= best * (1 + 1e-6)
    assert loss.chernoff(loss.mean * 0.9) == 1.0
    for probability in (0.99, 0.3, 1e-6):
        eta = loss.quantile(probability)
        assert loss.tail(eta) <= probability < loss.tail(eta * (1 - 1e-5))
    # The largest error has a sum over cells as its bound.
    for t in np.quantile(worst, [0.5, 0.99]).tolist():
        truth = (worst > t).mean()
        error = 5 * math.sqrt(truth / len(worst))
        assert truth - error <= loss.largest_error_tail(t) <= min(1, len(p) * (truth + 2 * error))


def test_moments_against_30_digits(case):
    p, u, loss = case
    with mp.workdps(30):
        t = min(v / x for x, v in zip(p, u, strict=True) if x) / 3
        cells = [(mp.mpf(float(x)), mp.mpf(float(v))) for x, v in zip(p, u, strict=True)]
        total, entropy = mp.fsum(v for _, v in cells), mp.fsum(x * mp.log(x) for x, _ in cells if x)
        mean = entropy - mp.fsum(x * mp.digamma(v) for x, v in cells) + mp.digamma(total)
        variance = mp.fsum(x**2 * mp.psi(1, v) for x, v in cells) - mp.psi(1, total)
        mgf = t * entropy + mp.loggamma(total) - mp.loggamma(total - t)
        mgf += mp.fsum(mp.loggamma(v - t * x) - mp.loggamma(v) for x, v in cells)
    assert loss.mean == pytest.approx(float(mean), rel=1e-6)
    assert loss.variance == pytest.approx(float(variance), rel=1e-5)
    assert loss.log_mgf(t) == pytest.approx(float(mgf), rel=1e-6, abs=1e-9)


def test_the_tails_are_in_order():
    """The exact one, and the published bounds; P1's f(t) = -t eta + t log((beta + total) / (beta - t)) on a grid."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        d, eta, beta, alpha = rng.integers(2, 9), rng.uniform(0.02, 4), 10 ** rng.uniform(0, 4), rng.uniform(0.5, 20)
        p = rng.dirichlet(np.full(d, 0.5)) * np.append(rng.integers(0, 2, d - 1), 1)
        p /= p.sum()
        error = DrawError(p, beta * p + alpha)
        exact = error.chernoff(eta)
        assert error.tail(eta) <= exact * (1 + 1e-9)
        lambert = dirdp.papers.p1_equation_22(eta=eta, beta=beta, total_alpha=d * alpha, least_alpha=alpha)
        assert exact <= lambert * (1 + 1e-9)
        t = np.linspace(0, beta, 20_001)[:-1]
        least = np.exp(np.min(-t * eta + t * np.log((beta + d * alpha) / (beta - t))))
        assert lambert == pytest.approx(least, rel=1e-4, abs=1e-100)
        with suppress(ArgumentError):
            assert lambert <= printed_p1.p1_theorem_2(eta=eta, beta=beta, alpha=alpha, d=d) * (1 + 1e-9)


def test_two_categories_are_a_beta_distribution():
    """Where the draw is below one number or above another."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        p = rng.dirichlet([1, 1])
        near = p * 10 ** rng.uniform(0, 6) + 10 ** rng.uniform(-2, 1, 2)
        u = near if rng.random() < 0.5 else 10 ** rng.uniform(-2, 4, 2)
        eta = 10 ** rng.uniform(-6, 1)

        def excess(z, p=p, eta=eta):
            return float(xlogy(p, p).sum() - p[0] * log_expit(z) - p[1] * log_expit(-z)) - eta

        middle = math.log(p[0] / p[1])
        low, high = (brentq(excess, *sorted([middle, middle + far]), xtol=1e-14) for far in (-1e4, 1e4))
        truth = float(betainc(u[0], u[1], expit(low)) + betainc(u[1], u[0], expit(-high)))
        if truth > 1e-250:
            assert divergence_tail(p, u, eta) == pytest.approx(truth, rel=max(1e-9, 1e-13 * u.sum()))


def test_one_category_that_has_all_records_and_extremes():
    """`KL = -log y` with a Beta variable y."""
    with pytest.raises(DataError, match="frequencies"):
        DrawError([0.5, 0.6], [1, 1])
    with pytest.raises(ArgumentError, match="least_alpha"):
        dirdp.papers.p1_equation_22(eta=1.0, beta=100.0, total_alpha=100.0, least_alpha=0.1)
    with pytest.raises(ArgumentError, match="one shape"):
        DrawError([0.5, 0.5], [1, 1, 1])
    assert "0.5" not in repr(DrawError([0.5, 0.5], [1, 1]))
    p, u = np.array([0.0, 1.0, 0.0]), np.array([0.5, 7.0, 1.0])
    for eta in (1e-9, 0.01, 30.0):
        assert divergence_tail(p, u, eta) == pytest.approx(float(betainc(7.0, 1.5, math.exp(-eta))), rel=1e-9)
    p = np.array([0.7, 0.3])
    assert divergence_tail(p, np.array([1e5, 1e5]), 1e-12) == pytest.approx(1.0, abs=1e-12)
    assert divergence_tail(p, np.array([7e3, 3e3]), 5.0) == 0.0
    assert divergence_tail(p, np.array([1e-100, 1e-100]), 10.0) == pytest.approx(1.0, rel=1e-9)
    assert 0.1 < divergence_tail(np.full(1000, 1e-3), np.full(1000, 3.0), 0.175) < 0.9


HAIR = (np.full(4, 2.677), 0.2028, 592)
SHARES = {
    "hair": (np.ones(4), *HAIR),
    "one record": (np.ones(3), np.full(3, 0.1), 1e-4, 1),
    "sharper than the posterior": (np.ones(3), np.full(3, 9.0), 10.0, 300),
    "rows of different priors": (np.array([[1, 2, 0.5], [3, 1, 1]]), np.array([[1.5, 2.5, 1], [3.5, 2, 2]]), 0.3, 2000),
}


@pytest.mark.parametrize("share", SHARES)
def test_the_error_is_that_of_simulated_draws(share):
    """Within six standard errors, which an error of a fifth would exceed; rows share the records evenly at random."""
    prior, alpha, r, n_records = SHARES[share]
    found = draw_share_error(DirichletMechanism(alpha, r), prior, n_records) ** 2
    rng, k = np.random.default_rng(9), 40_000
    rows = list(zip(np.atleast_2d(prior), np.atleast_2d(alpha), strict=True))
    sizes, squares = rng.multinomial(n_records, rng.dirichlet(np.ones(len(rows)), k)), np.zeros(k)
    for row, (a, added) in enumerate(rows):
        p = rng.dirichlet(a, k)
        drawn = rng.standard_gamma(r * rng.multinomial(sizes[:, row], p) + added)
        y = drawn / drawn.sum(axis=1, keepdims=True)
        squares += ((y - p) ** 2).mean(axis=1) / len(rows)
    error = squares.std() / math.sqrt(k)
    assert abs(found - squares.mean()) < 6 * error < abs(1.2 * found - squares.mean())


def test_extreme_sizes_give_a_share_and_nothing_is_said_without_records_or_of_noise():
    for n, d, (r, alpha) in itertools.product([1, 10**7], [2, 1000], [(1e-4, 1e-3), (10.0, 1e3)]):
        mechanism = DirichletMechanism(np.full(d, alpha), r)
        assert 0 < draw_share_error(mechanism, np.ones(d), n) < 1
        assert 0 < smallest_share(mechanism, (d,), n) <= 1
    assert draw_share_error(GeometricMechanism(np.ones(3), 1.0), np.ones(3), 10) is None
    assert draw_share_error(DirichletMechanism(np.ones(3), 1.0), np.ones(3), 0) is None
    mechanism = DirichletMechanism(np.full((2, 3), 2.0), 0.3)
    many, few, *others = (smallest_share(mechanism, (2, 3), n) for n in (1000, 100, 1, 0, math.nan))
    assert 0 < many < few < 1
    assert others == [1.0, None, None]


@pytest.mark.parametrize(("alpha", "r", "n"), [HAIR, (np.array([0.5, 3.0]), 2.0, 20), (np.ones((3, 2)), 0.1, 900)])
def test_a_cell_of_this_share_and_an_empty_one_are_mistaken_in_a_twentieth_of_draws(alpha, r, n):
    """Oracle: draws of both. The largest share over all cells is looked for."""
    found = smallest_share(DirichletMechanism(alpha, r), alpha.shape, n)
    rng, records, mistakes = np.random.default_rng(5), r * n / (alpha.size / alpha.shape[-1]), []
    for own, row in zip(alpha.ravel(), np.repeat(alpha.sum(axis=-1), alpha.shape[-1]), strict=True):
        limit = np.quantile(rng.beta(own, row - own + records, 60_000), 0.95)
        drawn = rng.beta(own + records * found, row - own + records * (1 - found), 60_000)
        mistakes.append(np.mean(drawn <= limit))
    assert max(mistakes) == pytest.approx(0.05, abs=0.006)


def test_noise_hides_a_share_of_its_own_width():
    """Oracle: draws of the noise itself, of two cells; the approximation is within a tenth."""
    mechanism = GeometricMechanism(np.ones(4), 20.0)
    noise = mechanism.noise.fast((100_000, 4), np.random.default_rng(1)).ravel()
    share = smallest_share(mechanism, (4,), 2000)
    assert 2 * np.quantile(noise, 0.95) == pytest.approx(2000 * share, rel=0.1)
    assert smallest_share(mechanism, (4,), 1) == 1.0


def test_reference_values_of_expected_divergences():
    """`E KL(x/N || y)` over `y ~ Dirichlet(r x + alpha)`, averaged over rows by size; and between Dirichlets."""
    reference = json.loads((Path(__file__).parents[1] / "reference" / "curves.json").read_text())
    for case in reference["expected_kl"]:
        x, alpha = np.array(case["counts"]), np.array(case["alpha"])
        value = by_size(x, expected_kl(frequencies(x), case["r"] * x + alpha))
        assert value == pytest.approx(float(case["value"]), rel=1e-10)
    for case in reference["dirichlet_kl"]:
        value = dirichlet_kl_rows(np.array(case["u"]), np.array(case["v"])).sum()
        assert value == pytest.approx(float(case["value"]), rel=1e-9)
    assert np.isnan(by_size(0 * x, expected_kl(frequencies(0 * x), alpha)))
    assert PriorExpectedKL([1, 1], 0).posterior(0.1) == 0
    with pytest.raises(ArgumentError, match="n_records"):
        PriorExpectedKL(np.ones(2), -1)


def test_dirichlet_kl_of_equal_distributions_is_zero_and_of_near_ones_does_not_cancel():
    u = np.array([3.0, 5.0])
    assert dirichlet_kl_rows(u, u) == 0
    # Second order: the Fisher information times half the squared step.
    step = 1e-7
    expected = step**2 / 2 * (polygamma(1, 3.0) - polygamma(1, 8.0))
    assert dirichlet_kl_rows(u, u + [step, 0]) == pytest.approx(expected, rel=1e-5)


def test_rows_are_planned_with_an_equal_share_each():
    """Oracle: two tables of one row each, with half of the records."""
    prior = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 1.0]])
    both = PriorExpectedKL(prior, 60)
    rows = [PriorExpectedKL(row, 30) for row in prior]
    for how in ({"s": 1.5}, {"keep": 0.5}):
        assert both.posterior(0.3, **how) == pytest.approx(sum(row.posterior(0.3, **how) for row in rows), rel=1e-12)
        # The loss of the draw is an average over rows, that of posteriors a sum.
        assert both.estimate(0.3, **how) == pytest.approx(sum(row.estimate(0.3, **how) for row in rows) / 2, rel=1e-12)
