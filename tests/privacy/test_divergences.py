"""Hockey-stick curves of distributions with large parameters, against integrals of 50 digits."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.divergences import LogitLoss
from pymc_dirdp.privacy.dominating_pairs import DominatingPair


def integrated(r, log_density, mode, spread, shift, epsilon):
    """The mean of `(1 - exp(epsilon - loss))_+` over the density, for a loss `r * (x - shift)`."""
    start = max(epsilon / r + shift, mode - 30 * spread)
    ends = sorted(
        {start, *(mode + k * spread for k in range(-30, 31, 3) if mode + k * spread > start), mode + 40 * spread}
    )
    return mp.quad(lambda x: mp.exp(log_density(x)) * -mp.expm1(epsilon - r * (x - shift)), ends)


def replacing(a, b, r, epsilon):
    """The loss is `r * logit(w)` and a constant, with `w` of Beta(a + r, b) under the first distribution."""
    norm = mp.loggamma(a + r + b) - mp.loggamma(a + r) - mp.loggamma(b)
    constant = mp.loggamma(a) + mp.loggamma(b + r) - mp.loggamma(a + r) - mp.loggamma(b)
    spread = mp.sqrt(mp.psi(1, a + r) + mp.psi(1, b))

    def log_density(x):
        return norm + (a + r) * x - (a + r + b) * mp.log1p(mp.exp(x))

    return integrated(r, log_density, mp.log((a + r) / b), spread, -constant / r, epsilon)


def removing(a, r, epsilon):
    """The loss is `-r * log(G)` and a constant, with `G` of Gamma(a) under the first distribution."""
    constant = mp.loggamma(a + r) - mp.loggamma(a)

    def log_density(x):
        return -a * x - mp.exp(-x) - mp.loggamma(a)

    return integrated(r, log_density, -mp.log(a), mp.sqrt(mp.psi(1, a)), -constant / r, epsilon)


@pytest.mark.parametrize("a", [3e3, 2e4, 1e7, 1e12])
@pytest.mark.parametrize("ratio", [0.3, 2.0])
@pytest.mark.parametrize("standard", [0.0, 1.5, 6.0])
@pytest.mark.thorough
def test_large_parameters_lose_what_an_integral_says(a, ratio, standard):
    """The loss is about normal with a standard deviation of `ratio`.

    50 digits do not mind that the distribution is narrow.
    """
    r = ratio * a**0.5
    epsilon = float(standard * ratio)
    with mp.workdps(50):
        two = replacing(*map(mp.mpf, (a, 1.5 * a, r, epsilon)))
        one = removing(*map(mp.mpf, (a, r, epsilon)))
        back = replacing(*map(mp.mpf, (1.5 * a, a, r, epsilon)))
    assert DominatingPair(a, 1.5 * a, r).delta(epsilon) == pytest.approx(float(max(two, back)), rel=1e-9)
    assert DominatingPair(a, math.inf, r).delta(epsilon) == pytest.approx(float(one), rel=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 12.0, 20.0])
def test_a_composition_counts_both_orders_in_its_far_tail(epsilon):
    """One part loses more one way and the other the other way; below the grid one order alone had counted."""
    together = Composition(((DominatingPair(50.0, math.inf, 0.01), 1), (DominatingPair(math.inf, 0.5, 0.1), 1)))
    assert together.delta(epsilon) >= DominatingPair(0.5, math.inf, 0.1).delta(epsilon)


@pytest.mark.parametrize("seed", range(4))
def test_tails_and_the_integral_of_the_density_agree(seed):
    """Two ways that share no formula, where a difference of tails keeps its digits; parameters from 1e-3 to 1e4."""
    rng = np.random.default_rng(seed)
    compared = 0
    for i in range(100):
        loses, gains = np.sort(10 ** rng.uniform(-3, 4, 2)).tolist()
        r = float(10 ** rng.uniform(-4, 3))
        loss = LogitLoss(*((loses, gains), (loses, math.inf), (math.inf, gains))[i % 3], r)
        epsilons = np.sort(np.append(0.0, r * 10 ** rng.uniform(-4, 1, 5) / min(loses, 1.0)))
        tails, trusted = loss._difference(epsilons, np.exp(np.minimum(epsilons, 600.0)))
        # Tails of SciPy have about 11 digits, of which a difference loses up to three.
        np.testing.assert_allclose(loss._integrate(epsilons)[trusted], tails[trusted], rtol=2e-8, atol=1e-290)
        compared += int(trusted.sum())
    assert compared > 150
