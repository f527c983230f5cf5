"""P3's simplex mechanism: its exact curve, calibration and draws, and P3's statements on it."""

import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from printed_p3 import p3_corollary, p3_theorem
from scipy.special import betaln, gammaln
from scipy.stats import dirichlet

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers.p3 import p3_lemma_1, p3_problem_14, p3_theorem_1_corrected
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


# P3's statements, as printed and corrected: reference values, bounds, brute force.

GAMMA = {k: p3_problem_14(domain(), k, 0.05) for k in (3, 24)}

# Values of 30 digits and more, from papers.json of the reference; the comment says what P3 prints.
REFERENCE = {
    "G01": (lambda: p3_lemma_1(domain(), 24, 0.002), 0.04336593975320487),
    "G09": (lambda: p3_lemma_1(domain(5, 0.028), 171.87, 1e-3), 9.5853271896766145e-6),
    "G11": (lambda: p3_lemma_1(domain(5, 0.028), 171.87, 1e-6), 4.0186283899955103e-20),
    "G21": (lambda: p3_theorem_1_corrected(domain(), 3, GAMMA[3]), 17.531723564275852),  # printed 2.30
    "G32": (lambda: p3_corollary(domain(), 24, GAMMA[24]), 71.831058810533331),
    "G33": (lambda: p3_theorem(domain(b=1, weight=0.01), 24, GAMMA[24], number=2), 1.1223179133143422),
    "G34": (lambda: p3_theorem(domain(b=1), 24, GAMMA[24], number=3, alpha=0.01), 13.129682913085593),
    "G38": (lambda: p3_theorem_1_corrected(domain(3, b=0.1), 24, 0.0016075059278105724), 10.965655119045653),
    "G42": (lambda: p3_theorem(domain(2, 0.3, 0.1999, 1.0), 4, 0.01, number=3, alpha=0.1), -6.9523569335979534),
}


def test_reference_values():
    path = Path(__file__).parents[1] / "reference" / "papers.json"
    stored = {value["id"]: float(value["value"]) for value in json.loads(path.read_text())["values"]}
    for name, (value, expected) in REFERENCE.items():
        assert stored[name] == expected
        assert value() == pytest.approx(expected, rel=1e-10), name


LARGE = ((2, 20.0), (7, 40.0), (2, 1e4), (7, 3e4), (7, 1e5), (2, 1e6))
SMALL = ((2, 2.2), (2, 5.0), (5, 7.0), (2, 24.0), (2, 900.0), (5, 60.0), (2, 5e3))


def test_delta_has_a_closed_form_for_exponential_entries():
    """1 - (1 - m gamma)**(k - 1) if k eta = 1. From k = 1e4 on, a fixed number of nodes gave wrong digits.

    Far along the path one series loses all digits.
    """
    small = [(m, k, m * gamma) for m, k in LARGE for gamma in (1e-8, 0.001, 0.5 / m) if k * gamma <= 3000]
    near = [(m, k, share) for m, k in SMALL for share in (0.9, 0.95, 0.98, 0.9999) if k * (1 - share) >= 0.1]
    for m, k, share in small + near:
        there = domain(m, 1 / k, *((1e-4, 0.1) if share >= 0.9 else ()))
        exact = -math.expm1((k - 1) * math.log1p(-share))
        assert p3_lemma_1(there, k, share / m) == pytest.approx(exact, rel=1e-10 if k <= 1e4 else 1e-9)
    with pytest.raises(ArgumentError, match="for numerical integration"):
        p3_lemma_1(domain(), 3, 0.49)
    assert p3_lemma_1(domain(2, 0.01), 24, 0.49) == pytest.approx(1.0, abs=1e-11)


def test_theorem_1_is_too_small_for_large_steps():
    """ERRATA P3.2: printed .3958, true 3.6779, by brute force over pairs of inputs and the corners of outputs."""
    there = domain(2, 0.3, 0.1999, 1.0)
    assert p3_theorem(there, 4, 0.01) == pytest.approx(0.3958, abs=5e-5)
    grid = np.linspace(0.3, 1 - 0.1999 - 0.3, 60)
    worst = 0.0
    for c in np.linspace(0.6, 1 - 0.1999, 25):
        for p in grid[grid <= c - 0.3]:
            q = grid[grid <= c - 0.3]
            ratio = gammaln(4 * q) + gammaln(4 * (c - q)) - gammaln(4 * p) - gammaln(4 * (c - p))
            worst = max(worst, float(np.max(ratio + 4 * np.abs(p - q) * math.log(0.99 / 0.01))))
    assert worst <= p3_theorem_1_corrected(there, 4, 0.01) * (1 + 1e-12)
    assert worst == pytest.approx(p3_theorem_1_corrected(there, 4, 0.01), rel=1e-3)


def test_the_largest_loss_may_come_before_the_largest_step():
    """With gamma near 1 / m the loss of large steps falls again. Oracle: a grid of steps."""
    there = domain(2, 0.05, 0.05, 1.0)
    steps = np.linspace(0, there.largest_step, 20_001)
    inside = 0
    for k, gamma in ((30.0, 0.3), (30.0, 0.45), (5.0, 0.4), (24.0, 0.002)):
        ratio = math.log((1 - gamma) / gamma)
        start = betaln(k * 0.05, k * 0.9)
        losses = start - betaln(k * (0.05 + steps), k * (0.9 - steps)) + k * steps * ratio
        assert p3_theorem_1_corrected(there, k, gamma) == pytest.approx(losses.max(), rel=1e-6)
        assert p3_theorem_1_corrected(there, k, gamma) >= losses.max() * (1 - 1e-12)
        inside += losses.argmax() < len(steps) - 1
    assert inside >= 1


def test_a_given_input_and_other_arguments_are_checked():
    assert p3_lemma_1(domain(), 24, 0.002, p=[0.05, 0.05]) == p3_lemma_1(domain(), 24, 0.002)
    # The worst input is at the floors (ERRATA P3.5).
    assert p3_lemma_1(domain(), 24, 0.002, p=[0.2, 0.3]) < p3_lemma_1(domain(), 24, 0.002)
    for wrong in ([0.2], [[0.2, 0.3]], "p"):
        with pytest.raises(ArgumentError, match="protected entries"):
            p3_lemma_1(domain(), 24, 0.002, p=wrong)
    for wrong in ([0.04, 0.3], [0.5, 0.4500001], [math.nan, 0.3]):
        with pytest.raises(DataError) as caught:
            p3_lemma_1(domain(), 24, 0.002, p=wrong)
        assert "0.04" not in str(caught.value)
    for number, message in ((4, "1, 2 and 3"), (3, "alpha")):
        with pytest.raises(ArgumentError, match=message):
            p3_theorem(domain(), 24, 0.01, number=number)
    with pytest.raises(ArgumentError, match="gamma < 1 / n_protected"):
        p3_lemma_1(domain(), 24, 0.5)
    with pytest.raises(UnattainableError, match="Raise k or eta"):
        p3_problem_14(domain(), 1e-3, 1e-6)
