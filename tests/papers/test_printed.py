"""What the papers print and no release uses (`examples/experiments/printed_p*.py`), against independent sums."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from printed_p1 import (
    p1_equation_4,
    p1_equation_12,
    p1_gaussian_sigma,
    p1_laplace_renyi,
    p1_laplace_scale,
    p1_sample_size,
    p1_theorem_2,
    unknown_shares_kl,
)
from printed_p2 import (
    p2_equation_14,
    p2_equation_16,
    p2_equation_16_sample_size,
    p2_lemma_1,
    p2_sample_size,
    p2_theorem_1_prior,
    p2_theorem_4,
)
from printed_p3 import p3_query
from printed_p4 import (
    p4_global_sensitivity,
    p4_local_distance,
    p4_local_loss,
    p4_local_sensitivity,
    p4_smooth_sensitivity,
)
from scipy.special import ndtr, rel_entr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.papers import p2_theorem_1, p2_theorem_2, p4_ilap_mech, p4_lap_mech
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.hellinger_distributions import hellinger_distance
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.planning.draw_error import DrawError

# P1: noise, clipping, and expected divergences from unknown shares.


def test_equation_12_clips_and_divides_row_by_row():
    noisy = np.array([[3.0, -5.0, 0.0], [-1.0, -2.0, -3.0], [10.0, 20.0, 30.0]])
    clipped = np.maximum(noisy, 1e-6)
    np.testing.assert_allclose(p1_equation_12(noisy), clipped / clipped.sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("order", [1.0, 5.0, 200.0])
def test_noise_of_a_part_of_the_budget(order):
    sigma = p1_gaussian_sigma(order=order, epsilon=0.4, tables=13)
    assert dirdp.mechanisms.DiscreteGaussianMechanism([1, 1], sigma).renyi(order) == pytest.approx(0.4 / 13, rel=1e-9)
    scale = p1_laplace_scale(order=order, epsilon=0.3, tables=7)
    assert p1_laplace_renyi(order=order, scale=scale) <= 0.3 / 7
    assert p1_laplace_renyi(order=order, scale=scale * (1 - 1e-9)) > 0.3 / 7
    # ERRATA P1.11: what two counts that move by 1 really lose.
    assert 2 * p1_laplace_renyi(order=order, scale=scale, sensitivity=1.0) < 0.3 / 7


@pytest.mark.parametrize("u", [1e-9, 0.01, 3.0, 40.0])
@pytest.mark.parametrize("order", [1.0, 1 + 1e-6, 4.0, 300.0])
def test_the_laplace_divergence_with_fifty_digits(u, order):
    with mp.workdps(60):
        u_, o = mp.mpf(u), mp.mpf(order)
        inside = (o * mp.exp((o - 1) * u_) + (o - 1) * mp.exp(-o * u_)) / (2 * o - 1)
        exact = u_ + mp.expm1(-u_) if order == 1 else mp.log(inside) / (o - 1)
    assert p1_laplace_renyi(order=order, scale=1 / u, sensitivity=1.0) == pytest.approx(float(exact), rel=1e-9)


def test_expected_divergences_from_unknown_shares_by_simulation():
    rng = np.random.default_rng(11)
    prior, alpha = np.array([[1.0, 1.0, 4.0], [0.5, 2.0, 2.0]]), np.array([[2.0, 2.0, 3.0], [1.0, 1.5, 2.5]])
    r, n, many = 0.4, 60, 20_000
    found = unknown_shares_kl(DirichletMechanism(alpha, r), prior=prior, n_records=n)
    forward, reverse = np.zeros(many), np.zeros(many)
    for a, b in zip(prior, alpha, strict=True):
        p = rng.dirichlet(a, many)
        gamma = rng.gamma(r * rng.multinomial(n // 2, p) + b)
        y = gamma / gamma.sum(axis=1, keepdims=True)
        forward += rel_entr(p, y).sum(axis=1) / 2
        reverse += rel_entr(y, p).sum(axis=1) / 2
    for name, values in (("forward", forward), ("reverse", reverse)):
        assert abs(values.mean() - getattr(found, name)) < 5 * values.std() / np.sqrt(many)
    # An objective for estimates is nearly the best one for unknown shares too.
    objectives = ("estimate", "posterior")
    guarantee, flat = dirdp.ApproxDP(epsilon=1, delta=1e-6), np.ones(4)
    planned, other = (
        unknown_shares_kl(
            dirdp.calibrate(guarantee, prior=flat, n_records=592, objective=objective), prior=flat, n_records=592
        )
        for objective in objectives
    )
    assert other.forward > 1.1 * planned.forward


def test_equation_4_bounds_both_directions_draw_by_draw():
    rng = np.random.default_rng(5)
    for _ in range(100):
        p = rng.dirichlet([1.0, 2.0, 0.7])
        f = rng.multinomial(20, p) / 20
        y = rng.dirichlet(5 * f + 0.5)
        assert rel_entr(p, y).sum() <= p1_equation_4(p=p, frequencies=f, y=y) * (1 + 1e-12)
        if np.all(f > 0):
            assert rel_entr(y, p).sum() <= p1_equation_4(p=y, frequencies=f, y=p) * (1 + 1e-12)


# P2: conversion, its own calibration, and numbers of records.


@pytest.mark.parametrize("omega", [1.01, 50.0, math.inf])
@pytest.mark.parametrize(("rho", "delta"), [(1e-4, 0.9), (0.1, 1e-9), (3.0, 1e-2)])
def test_lemma_1_is_the_best_order_of_a_looser_lemma(rho, omega, delta):
    """`order * rho + log(1 / delta) / (order - 1)`, least over the orders that the guarantee covers."""
    epsilon = p2_lemma_1(rho=rho, omega=omega, delta=delta).epsilon
    orders = 1 + np.exp(np.linspace(-25, 25, 400_001))
    orders = np.append(orders[orders < omega], omega if math.isfinite(omega) else [])
    assert epsilon == pytest.approx(float(np.min(orders * rho - math.log(delta) / (orders - 1))), rel=1e-6)
    tighter = dirdp.privacy.convert(dirdp.TruncatedCDP(rho=rho, omega=omega), dirdp.ApproxDP, delta=delta).epsilon
    assert tighter <= epsilon * (1 + 1e-12)


def test_theorem_2_is_lemma_1_at_the_best_gamma():
    for alpha, delta in ((3.0, 1e-5), (50.0, 1e-6)):
        bounds = [p2_theorem_1(gamma=gamma, alpha_min=alpha) for gamma in np.linspace(0, alpha, 4001)[1:-1].tolist()]
        found = [p2_lemma_1(rho=bound.rho, omega=bound.omega, delta=delta).epsilon for bound in bounds]
        assert p2_theorem_2(delta=delta, alpha_min=alpha).epsilon == pytest.approx(min(found), rel=1e-5)


@pytest.mark.parametrize("rho", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize(("gamma", "r"), [(1e-3, 7.0), (1.0, 1e-3), (500.0, 1.0)])
def test_the_prior_is_the_least_that_the_theorem_accepts(rho, gamma, r):
    alpha = p2_theorem_1_prior(rho=rho, gamma=gamma, r=r)
    assert p2_theorem_1(gamma=gamma, alpha_min=alpha, r=r).rho <= rho
    above = alpha - gamma
    with mp.workdps(30):
        exact = float(mp.findroot(lambda x: mp.log(mp.psi(1, x)) - mp.log(rho / mp.mpf(r) ** 2), above))
    assert exact <= above + 1e-9 * alpha
    assert above <= exact * (1 + 1e-9) + 4 * math.ulp(alpha)


def test_the_numbers_of_appendix_c():
    """`rho` 0.01, 0.1 and 1 at `gamma = 2`, beside the smallest prior that is exactly enough."""
    for rho, bound, exact in ((0.01, 102.5, 100.01), (0.1, 12.49, 10.10), (1.0, 3.43, 2.03)):
        assert p2_theorem_1_prior(rho=rho, gamma=2.0) == pytest.approx(bound, abs=5.1e-3 * max(1, bound / 20))
        target = dirdp.TruncatedCDP(rho=rho, omega=3.0)
        least = dirdp.calibrate(target, prior=[1, 1], mechanism=Dirichlet(strategy="inflate")).alpha.min()
        assert least == pytest.approx(exact, abs=6e-3)


@pytest.mark.parametrize(("accuracy", "rho"), [(0.01, 30.0), (0.3, 0.01)])
@pytest.mark.parametrize("d", [2, 1000])
def test_sample_sizes_are_the_first_that_are_enough(accuracy, rho, d):
    n = p2_sample_size(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    alpha = np.full(d, p2_theorem_1_prior(rho=rho, gamma=1.0))
    assert p2_theorem_4(probability=0.05, effective_records=n, alpha=alpha) <= accuracy
    assert p2_theorem_4(probability=0.05, effective_records=n - 1, alpha=alpha) > accuracy
    # Equations 14 and 15 have the right order; by equation 17 Gaussian noise needs fewer records.
    order = p2_equation_14(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    assert 0.25 < n / order < 4
    assert p2_equation_16_sample_size(accuracy=accuracy, probability=0.05, rho=rho, d=d) < n
    bound = p2_equation_16(probability=0.05, n_records=200, rho=rho, d=d)
    exceeded = -math.expm1(d * math.log1p(-2 * float(ndtr(-bound * 200 * math.sqrt(rho)))))
    assert 0.05 / 20 < exceeded < 0.05


# P3: queries.


def test_an_average_is_rounded_once_and_no_neighbour_is_further_away_than_the_domain_says():
    """Definition 3: one person moves `b / 2` between two protected entries, exactly. Both values are rounded."""
    rng, domain, beyond = np.random.default_rng(2), SimplexDomain(2, eta=0.05, etabar=0.05, b=0.5), 0
    for n in (2, 3, 7, 100) * 25:
        people = 0.05 + 0.85 * rng.dirichlet([1.0, 1.0, 1.0], n)
        people = people / people.sum(axis=1, keepdims=True) * (1 - 1e-12)
        weights = rng.integers(1, 9, n) / 4
        value, of_weights = p3_query(people, domain=domain, protected=[0, 1], weights=weights)
        shares = [Fraction(w) / Fraction(weights.sum()) for w in weights.tolist()]
        exact = [
            sum(share * Fraction(x) for share, x in zip(shares, column, strict=True)) for column in people.T.tolist()
        ]
        assert value.tolist() == [float(one) for one in exact]
        assert Fraction(of_weights.weight) > max(shares)
        people[0] = [0.0625, 0.5, 0.4375]
        neighbour = people.copy()
        neighbour[0] = [0.3125, 0.25, 0.4375]
        (value, average), (other, _) = (p3_query(x, domain=domain, protected=[0, 1]) for x in (people, neighbour))
        steps = [abs(Fraction(a) - Fraction(b)) for a, b in zip(value.tolist()[:2], other.tolist()[:2], strict=True)]
        assert max(steps) <= Fraction(average.largest_step) < 1.001 * max(steps)
        beyond += max(steps) > Fraction(1, n) / 4
    # Without the rounding in the weight, some would be too far away.
    assert beyond > 10


def test_one_person_and_everybody_at_the_floor():
    domain, person = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), [0.05, 0.8, 0.15]
    value, heavy = p3_query([[0.1, 0.2, 0.7], person], domain=domain, protected=[0, 1], weights=[0, 5])
    assert (value.tolist(), heavy.weight) == (person, 1)
    # Sums of floors that are rounded would fall below the floor.
    for n in range(1, 40):
        value, average = p3_query([person] * n, domain=domain, protected=[0, 1])
        assert value.tolist() == person
        SimplexMechanism(5, average).sample(value, protected=[0, 1], random_seed=0)


# P4: sensitivities, and the mechanism of the local one.


@pytest.mark.parametrize(("prior", "n"), [([0.1, 2], 6), ([0.3, 1, 5], 4), ([1] * 4, 3)])
def test_all_three_sensitivities_are_their_definitions(prior, n):
    everything = [x for x in itertools.product(range(n + 1), repeat=len(prior)) if sum(x) == n]
    far = {(x, z): sum(abs(np.array(x) - z)) // 2 for x in everything for z in everything}
    to = {x: hellinger_distance(np.array(prior) + x, np.array(prior) + np.array(everything)) for x in everything}
    # P4 looks at the change of the distance to any third posterior.
    local = {x: max(np.abs(to[x] - to[z]).max() for z in everything if far[x, z] == 1) for x in everything}
    for x in everything:
        assert p4_local_sensitivity(x, prior=prior) == pytest.approx(local[x], rel=1e-7)
        for smoothness in (0.05, 1.0):
            smooth = max(1 / (1 / local[z] + smoothness * far[x, z]) for z in everything)
            assert p4_smooth_sensitivity(x, prior=prior, smoothness=smoothness) == pytest.approx(smooth, rel=1e-7)
    assert p4_global_sensitivity(prior=prior, n_records=n) == pytest.approx(max(local.values()), rel=1e-7)


def test_more_records_than_memory_lists_are_refused_before_it_is_asked_for():
    for n in (2**53, 10**8):
        with pytest.raises(UnattainableError, match="up to 10000000"):
            p4_global_sensitivity(prior=[1, 1], n_records=n)
        for counts in ([n - 5, 5], [n - 5, 2, 3]):
            with pytest.raises(UnattainableError, match="up to 10000000") as raised:
                p4_smooth_sensitivity(counts, prior=np.ones(len(counts)))
            assert str(n - 5) not in str(raised.value)
    with pytest.raises(UnattainableError, match="Raise the smoothness"):
        p4_smooth_sensitivity([1_000_000] * 3, prior=[1] * 3, smoothness=1e-3)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_scales_of_section_4_1(d):
    lap, ilap = (form(epsilon=0.5, prior=np.ones(d), n_records=9) for form in (p4_lap_mech, p4_ilap_mech))
    assert (lap.scale, ilap.scale) == (2 * d, 2 if d == 2 else 4)
    for mechanism in (lap, ilap):
        assert (mechanism.noise_kind, mechanism.total) == ("laplace", "printed")


@pytest.mark.parametrize("prior", [[0.1, 0.1], [2, 0.3]])
def test_the_local_mechanism_is_its_definition_and_guarantees_nothing(prior):
    n, exponent, distributions = 9, 0.7, []
    posteriors = np.array([[z + prior[0], n - z + prior[1]] for z in range(n + 1)])
    for x in range(n + 1):
        distances = hellinger_distance(posteriors[x], posteriors)
        local = max(distances[z] for z in (x - 1, x + 1) if 0 <= z <= n)
        weights = np.exp(-exponent * distances / local)
        distributions.append(weights / weights.sum())
        found = p4_local_distance([x, n - x], prior=prior, exponent=exponent)
        assert found == pytest.approx(float(distributions[-1] @ distances), rel=1e-11)
    losses = [np.abs(np.log(p / q)).max() for p, q in itertools.pairwise(distributions)]
    assert p4_local_loss(prior=prior, n_records=n, exponent=exponent) == pytest.approx(max(losses), rel=2e-10)
    # ERRATA P4.12: 1.037 at nominal 1. The global sensitivity keeps what it says.
    assert p4_local_loss(prior=[0.1, 0.1], n_records=300, exponent=0.5) == pytest.approx(1.037, abs=5e-4)
    assert HellingerMechanism([0.1, 0.1], 300, 0.5, sensitivity="global").pure_epsilon <= 1


DOMAIN, GOOD = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), [[0.2, 0.3, 0.5], [0.4, 0.1, 0.5]]
SIZE = {"accuracy": 0.05, "probability": 0.05, "rho": 0.1, "gamma": 1.0, "d": 10}
# A function, good arguments, and arguments of which each is refused by its name.
REFUSED = [
    (p1_gaussian_sigma, {"order": 5, "epsilon": 0.1}, {"order": 0.5, "epsilon": 0, "tables": 0}),
    (p1_laplace_scale, {"order": 5, "epsilon": 0.1}, {"order": 0.5, "epsilon": 0, "tables": 0}),
    (p2_theorem_1_prior, {"rho": 0.1, "gamma": 1.0}, {"rho": 0, "gamma": -1.0, "r": math.nan, "delta_inf": 0}),
    (p2_lemma_1, {"rho": 0.1, "omega": 5, "delta": 1e-6}, {"rho": 0, "omega": 1, "delta": 1}),
    (p2_sample_size, SIZE, {"accuracy": 1.0, "probability": 0, "rho": -1, "gamma": 0, "d": 1}),
    (p2_equation_14, SIZE, {"accuracy": 1.0, "probability": 0, "rho": -1, "gamma": 0, "d": 1}),
    (p3_query, {"vectors": GOOD, "domain": DOMAIN, "protected": [0, 1]}, {"vectors": GOOD[0], "weights": [0, 0]}),
    (p3_query, {"vectors": GOOD, "domain": DOMAIN, "protected": [0, 1]}, {"protected": [0], "weights": [1.01, -0.01]}),
    (p4_global_sensitivity, {"prior": [1, 1], "n_records": 4}, {"n_records": 0}),
    (p4_lap_mech, {"epsilon": 1, "prior": [1, 1], "n_records": 9}, {"epsilon": math.nan}),
    (p4_local_loss, {"prior": [1, 1], "n_records": 9, "exponent": 1}, {"exponent": -1.0}),
]


@pytest.mark.parametrize(("function", "good", "wrong"), REFUSED)
def test_arguments_are_refused_by_name_and_data_are_never_shown(function, good, wrong):
    function(**good)
    for name, value in wrong.items():
        with pytest.raises(ArgumentError, match=name):
            function(**(good | {name: value}))


def test_data_are_never_shown():
    for wrong in ([[0.04, 0.46, 0.5]], [[0.5, 0.46, 0.04]], [[0.2, 0.3, 0.6]], [[0.2, math.nan, 0.5]]):
        with pytest.raises(DataError) as caught:
            p3_query([*GOOD, *wrong], domain=DOMAIN, protected=[0, 1])
        assert "0.46" not in str(caught.value)
    for wrong in ([1.5, 1], [-7, 8], [1, 2, 3], [0, 0]):
        for ask in (p4_local_sensitivity, p4_smooth_sensitivity):
            with pytest.raises((ArgumentError, DataError)) as caught:
                ask(wrong, prior=[1, 1])
            assert "7" not in str(caught.value)
    for wrong in ({"p": [0.5, 0.6]}, {"y": [1.0, 0.0]}, {"frequencies": [1.5, -0.5]}, {"p": [0.2, 0.3, 0.5]}):
        with pytest.raises((ArgumentError, DataError)):
            p1_equation_4(**({"p": [0.5, 0.5], "frequencies": [0.5, 0.5], "y": [0.5, 0.5]} | wrong))
    with pytest.raises(DataError, match="finite"):
        p1_equation_12([1.0, np.inf])


def test_sample_size_is_where_theorem_2_begins_to_guarantee():
    n = p1_sample_size(eta=0.1, probability=0.05, order=5, epsilon=0.5, d=6)
    r = dirdp.papers.p1_theorem_1_concentration(order=5, epsilon=0.5)
    alpha = 1 + 16 * r
    assert p1_theorem_2(eta=0.1, beta=n * r, alpha=alpha, d=6) <= 0.05
    fewer = (n - 1) * r
    with_fewer = math.exp(-fewer * 0.01 / (2 * 2.1 * 4.3))
    assert with_fewer > 0.05 or fewer < 6 * alpha / math.expm1(0.05)
    # The exact tail needs far fewer.
    p = np.full(6, 1 / 6)
    assert DrawError.of_mechanism(p, n // 4, np.full(6, alpha), r).tail(0.1) < 0.05
