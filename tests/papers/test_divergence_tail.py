"""P1's Theorem 2 from a prior of 0.2983 on, and its failure below (docs/proofs/divergence_tail.md)."""

import numpy as np
import printed_p1
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import digamma, gammaln

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


def test_the_theorem_holds_in_draws_of_the_tilted_distribution_and_fails_below():
    eta, d = 0.494, 400
    bound = printed_p1.p1_theorem_2(eta=eta, beta=d * ALPHA / np.expm1(eta / 2) * (1 + 1e-12), alpha=ALPHA, d=d)
    found, error = tilted(ALPHA, eta, d, 4000)
    assert found - 5 * error < np.log(bound)
    # A counterexample below.
    found, error = tilted(0.29, 0.46, 4000, 2000)
    bound = -4000 * 0.29 / np.expm1(0.23) * 0.46**2 / (2 * 2.46 * 5.38)
    assert found - 10 * error > bound + 5
    with pytest.raises(dirdp.errors.ArgumentError, match="alpha"):
        printed_p1.p1_theorem_2(eta=0.46, beta=5000.0, alpha=0.29, d=4000)
