"""P3's simplex mechanism: its printed statements, their corrections, and the exact curve."""

import json
import math
import pickle
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.special import betainc, betaln, gammaln

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.simplex_domain import SimplexDomain
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP


def domain(m=2, eta=0.05, etabar=0.05, b=0.4, **options):
    return SimplexDomain(m, eta=eta, etabar=etabar, b=b, **options)


GAMMA = {k: domain().gamma(k, 0.05) for k in (3, 10, 24)}

# Values of 30 digits and more, from papers.json of the reference; the comment says what P3 prints.
REFERENCE = {
    "G01": (lambda: domain().delta(24, 0.002), 0.04336593975320487),
    "G03": (lambda: domain().delta(3, 1e-11), 0.054117022864683803),
    "G05": (lambda: domain(5).delta(24, 0.002), 0.10511764093825955),
    "G07": (lambda: domain(4, 0.1).delta(100, 0.05), 0.10324658249513985),
    "G09": (lambda: domain(5, 0.028).delta(171.87, 1e-3), 9.5853271896766145e-6),
    "G11": (lambda: domain(5, 0.028).delta(171.87, 1e-6), 4.0186283899955103e-20),
    "G20": (lambda: GAMMA[3], 5.8591697263055327e-12),
    "G21": (lambda: domain().epsilon(3, GAMMA[3]), 17.531723564275852),  # printed 2.30
    "G24": (lambda: GAMMA[10], 5.4395368131688025e-5),
    "G25": (lambda: domain().epsilon(10, GAMMA[10]), 23.951388074222654),  # printed 4.40
    "G28": (lambda: GAMMA[24], 0.0022607306785700363),
    "G29": (lambda: domain().epsilon(24, GAMMA[24]), 38.402444086238575),  # printed 8.53
    "G32": (lambda: domain().epsilon_corollary(24, GAMMA[24]), 71.831058810533331),
    "G33": (lambda: domain(b=1, weight=0.01).epsilon_printed(24, GAMMA[24], theorem=2), 1.1223179133143422),
    "G34": (lambda: domain(b=1).epsilon_printed(24, GAMMA[24], theorem=3, alpha=0.01), 13.129682913085593),
    "G36": (lambda: domain(3).gamma(24, 0.05), 0.0016075059278105724),
    "G38": (lambda: domain(3, b=0.1).epsilon(24, 0.0016075059278105724), 10.965655119045653),
    "G40": (lambda: domain(2, 0.3, 0.1999, 1.0).epsilon(4, 0.01), 3.6779339280477258),
    "G42": (
        lambda: domain(2, 0.3, 0.1999, 1.0).epsilon_printed(4, 0.01, theorem=3, alpha=0.1),
        -6.9523569335979534,
    ),
    "G46": (lambda: domain(5, 0.028).gamma(171.87, 1e-5), 0.0010091008985721756),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_values(name):
    value, expected = REFERENCE[name]
    assert value() == pytest.approx(expected, rel=1e-10)


def test_the_values_typed_here_are_those_of_the_reference():
    path = Path(__file__).parents[1] / "reference" / "papers.json"
    stored = {value["id"]: float(value["value"]) for value in json.loads(path.read_text())["values"]}
    for name, (_, typed) in REFERENCE.items():
        assert stored[name] == typed


@pytest.mark.parametrize("m", [2, 3, 10, 50])
@pytest.mark.parametrize("k", [3.0, 24.0, 900.0])
@pytest.mark.parametrize("share", [1e-6, 0.01, 0.3])
def test_delta_lies_between_its_elementary_bounds(m, k, share):
    """`1 - prod(1 - I) <= delta <= sum I`, I the probability of one entry."""
    eta = 0.9 / m * 0.5
    gamma = share * eta
    one = float(betainc(k * eta, k - k * eta, gamma))
    if one < 1e-20:
        return  # Below what the contour resolves.
    delta = domain(m, eta).delta(k, gamma)
    assert -math.expm1(m * math.log1p(-one)) * (1 - 1e-9) <= delta <= m * one * (1 + 1e-9)


def test_delta_has_a_closed_form_for_exponential_entries():
    """With k eta = 1 it is 1 - (1 - m gamma)**(k - 1)."""
    for m, k in ((2, 20.0), (7, 40.0)):
        for gamma in (1e-8, 0.001, 0.5 / m):
            exact = -math.expm1((k - 1) * math.log1p(-m * gamma))
            assert domain(m, 1 / k).delta(k, gamma) == pytest.approx(exact, rel=1e-10)


def test_the_worst_input_has_all_protected_entries_at_their_floor():
    """ERRATA P3.5, by simulation: other inputs fall below gamma less often."""
    rng = np.random.default_rng(0)
    exact = domain(3).delta(24, 0.01)
    for p in ([0.05, 0.05, 0.05, 0.85], [0.05, 0.05, 0.3, 0.6], [0.2, 0.2, 0.2, 0.4]):
        missed = np.mean(np.any(rng.dirichlet(24 * np.array(p), 200_000)[:, :3] < 0.01, axis=1))
        assert missed <= exact + 5 * math.sqrt(exact / 200_000)
        if p[2] == 0.05:
            assert missed == pytest.approx(exact, abs=5 * math.sqrt(exact / 200_000))


def test_theorem_1_is_too_small_for_large_steps():
    """ERRATA P3.2: printed .3958, true 3.6779, by brute force over pairs of inputs and the corners of outputs."""
    there = domain(2, 0.3, 0.1999, 1.0)
    assert there.epsilon_printed(4, 0.01) == pytest.approx(0.3958, abs=5e-5)
    grid = np.linspace(0.3, 1 - 0.1999 - 0.3, 60)
    worst = 0.0
    for c in np.linspace(0.6, 1 - 0.1999, 25):
        for p in grid[grid <= c - 0.3]:
            q = grid[grid <= c - 0.3]
            ratio = gammaln(4 * q) + gammaln(4 * (c - q)) - gammaln(4 * p) - gammaln(4 * (c - p))
            worst = max(worst, float(np.max(ratio + 4 * np.abs(p - q) * math.log(0.99 / 0.01))))
    assert worst <= there.epsilon(4, 0.01) * (1 + 1e-12)
    assert worst == pytest.approx(there.epsilon(4, 0.01), rel=1e-3)


def test_the_largest_loss_may_come_before_the_largest_step():
    """With gamma near 1 / m the loss of large steps falls again. Oracle: a grid of steps."""
    there = domain(2, 0.05, 0.05, 1.0)
    steps = np.linspace(0, there.largest_step, 20_001)
    inside = 0
    for k, gamma in ((30.0, 0.3), (30.0, 0.45), (5.0, 0.4), (24.0, 0.002)):
        ratio = math.log((1 - gamma) / gamma)
        start = betaln(k * 0.05, k * 0.9)
        losses = start - betaln(k * (0.05 + steps), k * (0.9 - steps)) + k * steps * ratio
        assert there.epsilon(k, gamma) == pytest.approx(losses.max(), rel=1e-6)
        assert there.epsilon(k, gamma) >= losses.max() * (1 - 1e-12)
        inside += losses.argmax() < len(steps) - 1
    assert inside >= 1


@pytest.mark.parametrize(("k", "printed", "exact"), [(3, 2.30, 10.8200), (10, 4.40, 13.2035), (24, 8.53, 19.1335)])
def test_the_exact_epsilon_of_p3s_identity_query(k, printed, exact):
    """ERRATA P3.1: the printed epsilons at delta = .05 are false claims; the exact curve gives these."""
    mechanism = SimplexMechanism(k, domain())
    assert mechanism.epsilon(0.05) == pytest.approx(exact, abs=5e-5)
    assert mechanism.delta(printed) > 0.4
    # Oracle: the delta of the pair (.25, .05, .7), (.05, .25, .7) at the printed epsilon, by simulation.
    rng = np.random.default_rng(1)
    p, q = np.array([0.25, 0.05, 0.7]), np.array([0.05, 0.25, 0.7])
    x = rng.dirichlet(k * p, 400_000)
    # The constants of the two densities are equal, because the entries are the same.
    loss = k * (p - q)[0] * np.log(x[:, 0] / x[:, 1])
    sampled = np.mean(np.maximum(-np.expm1(printed - loss), 0))
    assert mechanism.delta(printed) == pytest.approx(sampled, abs=0.005)
    assert mechanism.epsilon(0.05) < domain().epsilon(k, domain().gamma(k, 0.05))


def test_the_exact_epsilon_of_the_average_query():
    """ERRATA P3.1: printed 1.18, Theorem 2 gives 1.1223, exact 0.0508."""
    assert SimplexMechanism(24, domain(b=1, weight=0.01)).epsilon(0.05) == pytest.approx(0.0508, abs=5e-5)


@pytest.mark.parametrize(
    "guarantee",
    [ApproxDP(epsilon=6, delta=0.01), RenyiDP(order=1.5, epsilon=3), TruncatedCDP(rho=3.0, omega=1.5)],
)
def test_calibration_is_safe_and_tight(guarantee):
    mechanism = SimplexMechanism.for_guarantee(guarantee, domain(b=0.1))
    assert mechanism.satisfies(guarantee)
    assert not SimplexMechanism(mechanism.k * (1 + 1e-8), domain(b=0.1)).satisfies(guarantee)


def test_what_cannot_be_reached():
    with pytest.raises(UnattainableError, match="Raise eta, lower b"):
        SimplexMechanism.for_guarantee(ApproxDP(epsilon=0.1, delta=1e-6), domain())
    with pytest.raises(UnattainableError, match="unbounded"):
        SimplexMechanism.for_guarantee(PureDP(epsilon=1.0), domain())
    with pytest.raises(UnattainableError, match="so loose"):
        SimplexMechanism.for_guarantee(RenyiDP(order=1, epsilon=1e300), domain())


def test_moments_are_those_of_proposition_1():
    mechanism = SimplexMechanism(24, domain())
    draws = mechanism.sample([0.2, 0.3, 0.5], protected=[0, 1], draws=100_000, sampler="fast", random_seed=7)
    np.testing.assert_allclose(draws.mean(axis=0), [0.2, 0.3, 0.5], atol=0.002)
    for i, p in enumerate((0.2, 0.3, 0.5)):
        assert draws[:, i].var() == pytest.approx(mechanism.variance(p), rel=0.03)


def test_accuracy_theorem_with_its_correction():
    """ERRATA P3.4: the printed k lacks 2 n. By simulation, the corrected one keeps its promise; the printed fails."""
    corrected = SimplexMechanism.concentration_for_accuracy(0.08, 0.726, 6)
    printed = math.log(1 / 0.726) / (2 * 0.08**2) - 1
    rng = np.random.default_rng(2)

    def missed(k):
        return np.mean(np.abs(rng.dirichlet(np.full(6, k / 6), 100_000) - 1 / 6).max(axis=1) > 0.08)

    assert missed(corrected) <= 0.726
    assert missed(printed) == pytest.approx(0.836, abs=0.01)


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
def test_inputs_outside_of_the_promise(p, protected, error, message):
    with pytest.raises(error, match=message) as caught:
        SimplexMechanism(24, domain()).sample(p, protected=protected)
    assert "0.36" not in str(caught.value)


def test_empty_domains_and_wrong_gammas():
    with pytest.raises(ArgumentError, match="leave nothing to move"):
        domain(5, 0.19, 0.05)
    with pytest.raises(ArgumentError, match="gamma < 1 / n_protected"):
        domain().delta(24, 0.5)
    with pytest.raises(ArgumentError, match="at most 1"):
        domain(b=1.5)
    with pytest.raises(ArgumentError, match="1, 2 and 3"):
        domain().epsilon_printed(24, 0.01, theorem=4)
    with pytest.raises(ArgumentError, match="alpha"):
        domain().epsilon_printed(24, 0.01, theorem=3)


def test_objects_are_frozen_and_pickle():
    mechanism = SimplexMechanism(24, domain())
    assert mechanism.epsilon(0.05) > 0
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    with pytest.raises(ArgumentError, match="SimplexDomain"):
        SimplexMechanism(24, 0.05)


def test_exact_draws_have_the_moments_and_every_output_is_positive():
    mechanism = SimplexMechanism(24, domain())
    draws = mechanism.sample([0.2, 0.3, 0.5], protected=[0, 1], draws=4000, steps=400, random_seed=7)
    np.testing.assert_allclose(draws.sum(axis=1), 1)
    # The grid is (2 count + 1) / (2 steps + 3), for any secret.
    odd = draws * (2 * 400 + 3)
    np.testing.assert_allclose(odd, np.round(odd), atol=1e-9)
    assert np.all(np.round(odd) % 2 == 1)
    for i, p in enumerate((0.2, 0.3, 0.5)):
        assert draws[:, i].mean() == pytest.approx(p, abs=0.01)
        assert draws[:, i].var() == pytest.approx(mechanism.variance(p) * (1 + 24 / 400), rel=0.12)
        assert draws[:, i].var() != pytest.approx(1.5 * mechanism.variance(p), rel=0.12)
    assert mechanism.sample([0.2, 0.3, 0.5], protected=[0, 1]).shape == (1, 3)
    with pytest.raises(ArgumentError, match="steps is for"):
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


def test_calibration_leaves_a_margin_for_rounding():
    """Without one, some calibrations broke their promise by 1e-15 when it was computed with 40 digits."""
    for k in np.geomspace(1, 1e4, 40).tolist():
        box = SimplexDomain(2, eta=0.06 + 1e-5 * k, etabar=0.2, b=0.06)
        target = RenyiDP(order=2, epsilon=SimplexMechanism(k, box).renyi(2.0))
        mechanism = SimplexMechanism.for_guarantee(target, box)
        with mp.workdps(40):
            a, r = mp.mpf(mechanism.k) * mp.mpf(box.eta), mp.mpf(mechanism.k) * mp.mpf(box.b) / 2
            exact = mp.loggamma(a + 2 * r) + mp.loggamma(a - r) - mp.loggamma(a + r) - mp.loggamma(a)
        assert exact <= target.epsilon
