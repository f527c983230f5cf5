"""P3's simplex mechanism: its exact curve, calibration and draws."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import dirichlet

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers import p3_problem_14, p3_theorem_1_corrected
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP


def domain(m=2, eta=0.05, etabar=0.05, b=0.4, **options):
    return SimplexDomain(m, eta=eta, etabar=etabar, b=b, **options)


@pytest.mark.parametrize(("k", "printed", "exact"), [(3, 2.30, 10.8200), (24, 8.53, 19.1335)])
def test_the_exact_epsilon_of_p3s_identity_query(k, printed, exact):
    """ERRATA P3.1: the printed epsilons at delta = .05 are false claims; the exact curve gives these."""
    mechanism = SimplexMechanism(k, domain())
    assert mechanism.epsilon(0.05) == pytest.approx(exact, abs=5e-5)
    assert mechanism.delta(printed) > 0.4
    assert mechanism.epsilon(0.05) < p3_theorem_1_corrected(domain(), k, p3_problem_14(domain(), k, 0.05))


@pytest.mark.parametrize(
    "guarantee",
    [ApproxDP(epsilon=6, delta=0.01), RenyiDP(order=1.5, epsilon=3), TruncatedCDP(rho=3.0, omega=1.5)],
)
def test_calibration_is_safe_and_tight(guarantee):
    mechanism = SimplexMechanism.for_guarantee(guarantee, domain(b=0.1))
    assert mechanism.satisfies(guarantee)
    assert not SimplexMechanism(mechanism.k * (1 + 1e-8), domain(b=0.1)).satisfies(guarantee)


def test_what_cannot_be_reached_and_domains_that_hold_nothing():
    with pytest.raises(ArgumentError, match="leave no room for a change"):
        domain(5, 0.19, 0.05)
    with pytest.raises(ArgumentError, match="at most 1"):
        domain(b=1.5)
    with pytest.raises(UnattainableError, match="Raise eta, or lower b"):
        SimplexMechanism.for_guarantee(ApproxDP(epsilon=0.1, delta=1e-6), domain())
    for guarantee in (PureDP(epsilon=2.0), ZeroCDP(rho=0.5)):
        with pytest.raises(UnattainableError, match=r"No continuous Dirichlet draw satisfies|unbounded"):
            SimplexMechanism.for_guarantee(guarantee, domain(b=0.1))
    with pytest.raises(UnattainableError, match="so loose"):
        SimplexMechanism.for_guarantee(RenyiDP(order=1, epsilon=1e300), domain())


@pytest.mark.parametrize(
    ("p", "protected", "error", "message"),
    [
        ([0.2, 0.3, 0.4], [0, 1], DataError, "add up to 1"),
        ([0.04, 0.36, 0.6], [0, 1], DataError, "floor eta"),
        ([0.48, 0.48, 0.04], [0, 1], DataError, "floor etabar"),
        ([0.2, 0.3, 0.5], [0], ArgumentError, "2 protected"),
        ([0.2, 0.3, 0.5], [0, 3], ArgumentError, "positions"),
        ([0.4, 0.6], [0, 1], ArgumentError, "and others"),
        ([0.2, math.nan, 0.5], [0, 2], DataError, "positive numbers"),
        (["a", "b", "c"], [0, 1], DataError, "vector of probabilities"),
    ],
)
def test_inputs_outside_of_the_guarantee(p, protected, error, message):
    with pytest.raises(error, match=message) as caught:
        SimplexMechanism(24, domain()).sample(p, protected=protected)
    assert "0.36" not in str(caught.value)


@pytest.mark.parametrize("miss", [9e-10, 1e-14, -9e-10])
def test_a_sum_that_misses_1_by_more_than_rounding_is_refused(miss):
    """Such inputs passed for neighbours that lose 1e-9 more in one entry than they gain in the other, times k."""
    tiny = SimplexMechanism(1e12, SimplexDomain(2, eta=0.05, etabar=0.05, b=1e-12))
    p = np.array([0.3, 0.2, 0.5])
    assert tiny.sample(p, protected=[0, 1], sampler="fast", random_seed=1).shape == (1, 3)
    neighbour = p + [5e-13, -5e-13 + miss, 0]
    with pytest.raises(DataError, match=r"Pass p / p.sum\(\)") as raised:
        tiny.sample(neighbour, protected=[0, 1])
    assert "0.3" not in str(raised.value)
    # What it hid: a loss of a thousand records, where the mechanism guarantees about half of one.
    draws = tiny.sample(p, protected=[0, 1], released_draws=9, sampler="fast", random_seed=2)
    ratio = tiny.log_likelihood_ratio(draws, p, p + [5e-13, -5e-13 + 9e-10, 0])
    assert np.abs(ratio).max() > 3 * tiny.epsilon(1e-6)


def test_exact_draws_have_the_moments_and_every_output_is_positive():
    mechanism = SimplexMechanism(24, domain())
    draws = mechanism.sample([0.2, 0.3, 0.5], protected=[0, 1], released_draws=2000, steps=400, random_seed=7)
    np.testing.assert_allclose(draws.sum(axis=1), 1)
    # The grid is (2 count + 1) / (2 steps + 3), for any secret.
    odd = draws * (2 * 400 + 3)
    np.testing.assert_allclose(odd, np.round(odd), atol=1e-9)
    assert np.all(np.round(odd) % 2 == 1)
    for i, p in enumerate((0.2, 0.3, 0.5)):
        assert draws[:, i].mean() == pytest.approx(p, abs=0.012)
        assert draws[:, i].var() == pytest.approx(mechanism.variance(p) * (1 + 24 / 400), rel=0.15)
        assert draws[:, i].var() != pytest.approx(1.5 * mechanism.variance(p), rel=0.15)
    # ERRATA P3.4: the printed k lacks the two sides of each of n entries, whose tails are subgaussian.
    k = SimplexMechanism.concentration_for_accuracy(0.08, 0.726, 6)
    assert 2 * 6 * math.exp(-2 * (k + 1) * 0.08**2) == pytest.approx(0.726)
    with pytest.raises(ArgumentError, match="does not draw from an urn"):
        mechanism.sample([0.2, 0.3, 0.5], protected=[0, 1], sampler="fast", steps=3)


@pytest.mark.parametrize(
    ("m", "eta", "etabar"),
    [(5, 0.1319656930344403, 0.3401715348277984), (4, 0.17891472413262877, 0.28434110346948466), (2, 0.3, 0.35)],
)
def test_the_step_of_a_small_domain_is_not_rounded_down(m, eta, etabar):
    """Where little is left to move, a difference of doubles was too small by a third, and all curves with it."""
    step = SimplexDomain(m, eta=eta, etabar=etabar, b=0.5).largest_step
    exact = min(Fraction(1, 4), 1 - Fraction(etabar) - m * Fraction(eta))
    assert exact <= Fraction(step) <= exact + m * Fraction(1, 2**51)


def test_calibration_leaves_a_marginal_for_rounding():
    """Without one, some calibrations broke their guarantee by 1e-15 when it was computed with 40 digits."""
    for k in np.geomspace(1, 1e4, 20).tolist():
        box = SimplexDomain(2, eta=0.06 + 1e-5 * k, etabar=0.2, b=0.06)
        target = RenyiDP(order=2, epsilon=SimplexMechanism(k, box).renyi(2.0))
        mechanism = SimplexMechanism.for_guarantee(target, box)
        with mp.workdps(40):
            a, r = mp.mpf(mechanism.k) * mp.mpf(box.eta), mp.mpf(mechanism.k) * mp.mpf(box.b) / 2
            exact = mp.loggamma(a + 2 * r) + mp.loggamma(a - r) - mp.loggamma(a + r) - mp.loggamma(a)
        assert exact <= target.epsilon


def test_the_likelihood_of_several_vectors_is_that_of_each():
    """Oracle: the density of a Dirichlet distribution in SciPy, for pairs of an output and a vector."""
    mechanism = SimplexMechanism(24, domain())
    vectors, outputs = (
        [[0.25, 0.05, 0.7], [0.05, 0.25, 0.7], [0.1, 0.1, 0.8]],
        [[0.2, 0.1, 0.7], [0.1, 0.3, 0.6], [0.2, 0.2, 0.6]],
    )
    expected = [dirichlet.logpdf(y, 24 * np.array(p)) for y, p in zip(outputs, vectors, strict=True)]
    np.testing.assert_allclose(mechanism.log_likelihood(outputs, vectors), expected, rtol=1e-10)
