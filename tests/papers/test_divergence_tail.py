"""P1's Theorem 2 from a prior of 0.2983 on, and its failure below (docs/proofs/divergence_tail.md)."""

import numpy as np
import printed_p1
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import digamma, gammaln, polygamma

import pymc_dirdp as dirdp

ALPHA = 0.2983


def h(c, alpha):
    return np.log(c) - digamma(c + alpha)


def top(alpha):
    """Where h is largest, and how large it is."""
    found = minimize_scalar(lambda c: -h(c, alpha), bounds=(0.05, 1), method="bounded", options={"xatol": 1e-12})
    return found.x, -found.fun


def integral_of_l(u, z, alpha):
    """From u to z of log(1 + alpha / z), and of h, which is replaced by its maximum to the left of that."""

    def of_log(x):
        return (x + alpha) * np.log(x + alpha) - x * np.log(x)

    def of_h(c):
        return c * np.log(c) - c - gammaln(c + alpha)

    place, most = top(alpha)
    low, high = np.maximum(u, place), np.maximum(z, place)
    return of_log(z) - of_log(u) + np.maximum(np.minimum(z, place) - u, 0) * most + of_h(high) - of_h(low)


def least_ratio(alpha, cells=400_000):
    """The least integral of a cell over the largest exponent of the theorem in it, and the least slack of the slope."""
    place, most = top(alpha)
    eta = np.geomspace(0.1, 3.1, cells + 1)
    z0, rate = alpha / np.expm1(eta / 2), eta**2 / (2 * (2 + eta) * (4 + 3 * eta))
    low, high = np.full(cells + 1, -40.0), np.log(z0)
    for _ in range(50):
        middle = (low + high) / 2
        z = np.exp(middle)
        larger = np.log1p(alpha / z) + np.where(z > place, h(np.maximum(z, place), alpha), most) > eta
        low, high = np.where(larger, middle, low), np.where(larger, high, middle)
    # Any beginning of the integral is allowed, so its rounding is harmless.
    u = np.exp(high)[:-1]
    integral = (z0[1:] - u) * eta[:-1] - integral_of_l(u, z0[:-1], alpha)
    ratio = integral / (z0[:-1] * rate[1:])
    slope = eta / 2 - np.where(z0 > place, h(np.maximum(z0, place), alpha), most) - rate
    return ratio.min(), eta[ratio.argmin()], slope.min()


def test_the_inequality_holds_at_0_2983_and_fails_below():
    ratio, eta, slope = least_ratio(ALPHA)
    assert ratio > 1.0005
    assert eta == pytest.approx(0.494, abs=0.002)
    assert slope > 0.01
    ratio, eta, _ = least_ratio(0.2982)
    assert ratio < 0.998
    # There the maximum of h, which is used below its place, plays no part: the exponent is that of uniform p.
    z0 = 0.2982 / np.expm1(eta / 2)
    place, _ = top(0.2982)
    assert brentq(lambda z: np.log1p(0.2982 / z) + h(z, 0.2982) - eta, place, z0) > place


def test_the_ends_of_the_range_by_hand():
    x = 4 * ALPHA * 0.05 / np.expm1(0.05)
    assert x > 1.16
    assert (x - 1 - np.log(x)) / 2 > 0.0058 > 0.0038 > 4 * ALPHA * 0.1 / 32
    assert top(ALPHA)[1] < 0.37
    assert 3.1 / 2 - 1.37 > 1 / 6


def test_the_signs_of_the_brackets_and_what_follows():
    t = np.geomspace(1e-2, 60, 20_001)
    f = np.exp(-ALPHA * t) / -np.expm1(-t)
    slope = -ALPHA * f - np.exp(-(1 + ALPHA) * t) / np.expm1(-t) ** 2
    for bracket in (1 - t * f, 1 + t**2 * slope):
        assert np.count_nonzero(np.diff(np.sign(bracket))) == 1
        assert bracket[0] < 0 < bracket[-1]
    assert (f - 1 / t <= 0.5 - ALPHA).all()
    # At 0 by their series: (alpha - 1/2) t and (alpha ** 2 - alpha + 1 / 6) t ** 2 / 2.
    assert ALPHA**2 - ALPHA + 1 / 6 < 0
    c = np.geomspace(top(ALPHA)[0], 1e4, 10_001)
    assert (1 / c - c * polygamma(2, c + ALPHA) - 2 * polygamma(1, c + ALPHA) < 0).all()
    assert (h(c, ALPHA) <= (0.5 - ALPHA) / c).all()


@pytest.mark.parametrize("p", [np.full(4, 0.25), np.array([0.7, 0.2, 0.1, 0.0])])
def test_the_exponent_by_simulation(p):
    """The moments by the integral of the mean; with another prior it is seen that they are not."""
    alpha, beta, s, rng = 0.5, 6.0, 2.0, np.random.default_rng(20261122)
    x = np.linspace(beta - s, beta, 4001)[:, None]
    mean = digamma(x[:, 0] + 4 * alpha) - np.log(x[:, 0])
    mean += sum(share * h(x[:, 0] * share, alpha) for share in p if share > 0)
    log_moment = np.trapezoid(mean, x[:, 0])
    q = rng.dirichlet(beta * p + alpha, 40_000)
    kl = sum(share * np.log(share / q[:, i]) for i, share in enumerate(p) if share > 0)
    weights = np.exp(s * kl)
    error = weights.std() / np.sqrt(len(kl))
    assert abs(weights.mean() - np.exp(log_moment)) < 5 * error
    assert abs(weights.mean() - np.exp(log_moment + 0.1)) > 5 * error


@pytest.mark.parametrize(("alpha", "eta", "d"), [(ALPHA, 0.494, 400), (0.3, 0.6, 12)])
def test_the_theorem_holds_in_draws_of_the_tilted_distribution(alpha, eta, d):
    beta = d * alpha / np.expm1(eta / 2) * (1 + 1e-12)
    bound = printed_p1.p1_theorem_2(eta=eta, beta=beta, alpha=alpha, d=d)
    found, error = tilted(alpha, eta, d, 4000)
    assert found - 5 * error < np.log(bound)


def tilted(alpha, eta, d, draws):
    """Logarithm of the probability of a divergence above eta, for uniform p and the least beta, and its error."""
    beta, rng = d * alpha / np.expm1(eta / 2), np.random.default_rng(20261122)
    x = brentq(lambda x: digamma(x + d * alpha) - np.log(x) + h(x / d, alpha) - eta, 1e-6 * beta, beta)
    moment = -(beta - x) * np.log(d) + gammaln(beta + d * alpha) - gammaln(x + d * alpha)
    moment += d * (gammaln(x / d + alpha) - gammaln(beta / d + alpha))
    gammas = rng.standard_gamma(x / d + alpha, (draws, d))
    kl = np.log(gammas.sum(axis=1)) - np.log(d) - np.log(gammas).mean(axis=1)
    weights = np.where(kl > eta, np.exp((x - beta) * (kl - eta)), 0)
    return moment + (x - beta) * eta + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(draws)


def test_a_counterexample_below():
    found, error = tilted(0.29, 0.46, 4000, 2000)
    bound = -4000 * 0.29 / np.expm1(0.23) * 0.46**2 / (2 * 2.46 * 5.38)
    assert found - 10 * error > bound + 5
    with pytest.raises(dirdp.errors.ArgumentError, match="alpha"):
        printed_p1.p1_theorem_2(eta=0.46, beta=5000.0, alpha=0.29, d=4000)
