"""The tail of a Dirichlet draw's divergence: against Beta laws, a double integral and other probabilities."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import betainc, expit, log_expit, xlogy
from scipy.stats import beta

from pymc_dirdp.planning.divergence_tail import divergence_tail


def outside(p, u, eta):
    """`P[KL > eta]` for two categories: the draw is below one number or above another."""

    def excess(z):
        return float(xlogy(p, p).sum() - p[0] * log_expit(z) - p[1] * log_expit(-z)) - eta

    middle = math.log(p[0] / p[1])
    low = brentq(excess, middle - 1e4, middle, xtol=1e-14)
    high = brentq(excess, middle, middle + 1e4, xtol=1e-14)
    return float(betainc(u[0], u[1], expit(low)) + betainc(u[1], u[0], expit(-high)))


@pytest.mark.parametrize("seed", range(5))
def test_two_categories_are_a_beta_law(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        p = rng.dirichlet([1, 1])
        near = p * 10 ** rng.uniform(0, 6) + 10 ** rng.uniform(-2, 1, 2)
        u = near if rng.random() < 0.5 else 10 ** rng.uniform(-2, 4, 2)
        eta = 10 ** rng.uniform(-6, 1)
        truth = outside(p, u, eta)
        if truth > 1e-250:
            assert divergence_tail(p, u, eta) == pytest.approx(truth, rel=max(1e-9, 1e-13 * u.sum()))


@pytest.mark.parametrize(
    ("p", "u"),
    [([0.5, 0.3, 0.2], [54.0, 34.0, 24.0]), ([0.6, 0.4, 0.0], [2.0, 1.5, 0.7]), ([0.1, 0.1, 0.8], [0.6, 3.0, 1.0])],
)
def test_three_categories_are_a_double_integral(p, u):
    """The first share, and what the second one has of the rest, are independent Beta variables."""
    p, u = np.array(p), np.array(u)
    for eta in (0.003, 0.03, 0.3):
        # The first share is the quantile of a uniform number; Gauss rules on parts of (0, 1).
        edges = np.concatenate([[0], np.geomspace(1e-12, 0.5, 120), 1 - np.geomspace(0.5, 1e-12, 120)[1:], [1]])
        nodes, weights = np.polynomial.legendre.leggauss(12)
        half = np.diff(edges)[:, None] / 2
        q, weights = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
        y = beta.ppf(q, u[0], u[1:].sum())
        rest = p[1:] / p[1:].sum()
        own = p[0] * np.log(p[0] / y) + (1 - p[0]) * np.log((1 - p[0]) / (1 - y))
        left = (eta - own) / (1 - p[0])
        inner = [1.0 if x <= 0 else _second(rest, u[1:], x) for x in left.tolist()]
        assert divergence_tail(p, u, eta) == pytest.approx(float(weights @ inner), rel=2e-3)


def _second(rest, u, eta):
    if rest[1] == 0:
        return float(betainc(u[0], u[1], math.exp(-eta)))
    return outside(rest, u, eta)


@pytest.mark.parametrize("eta", [1e-9, 0.01, 1.0, 30.0])
def test_one_category_that_holds_all_records(eta):
    """`KL = -log y` with a Beta variable y."""
    p, u = np.array([0.0, 1.0, 0.0]), np.array([0.5, 7.0, 1.0])
    assert divergence_tail(p, u, eta) == pytest.approx(float(betainc(7.0, 1.5, math.exp(-eta))), rel=1e-9)


def test_extremes():
    p = np.array([0.7, 0.3])
    assert divergence_tail(p, np.array([1e5, 1e5]), 1e-12) == pytest.approx(1.0, abs=1e-12)
    assert divergence_tail(p, np.array([7e3, 3e3]), 5.0) == 0.0
    assert divergence_tail(p, np.array([1e-100, 1e-100]), 10.0) == pytest.approx(1.0, rel=1e-9)
    many = divergence_tail(np.full(1000, 1e-3), np.full(1000, 3.0), 0.175)
    assert 0.1 < many < 0.9
