"""What the papers print and no release uses (`examples/experiments/printed_p*.py`), against independent sums."""

import itertools
import math

import mpmath as mp
import numpy as np
import printed_p1
import printed_p2
import printed_p4
import pytest
from printed_p3 import p3_query
from scipy.special import ndtr, rel_entr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.papers import p4_lap_mech
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.hellinger_distributions import hellinger_distance
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain
from tests.oracles import dirichlet_renyi

# P1: noise, clipping, and expected divergences from unknown shares.


@pytest.mark.parametrize("order", [1.0, 1 + 1e-6, 200.0])
def test_noise_of_a_part_of_the_budget(order):
    """Oracle: the divergence of Laplace distributions with 60 digits."""
    scale = printed_p1.p1_laplace_scale(order=order, epsilon=0.3, tables=7)
    assert printed_p1.p1_laplace_renyi(order=order, scale=scale) <= 0.3 / 7
    assert printed_p1.p1_laplace_renyi(order=order, scale=scale * (1 - 1e-9)) > 0.3 / 7
    # ERRATA P1.11: what two counts that move by 1 really lose.
    assert 2 * printed_p1.p1_laplace_renyi(order=order, scale=scale, sensitivity=1.0) < 0.3 / 7
    for u in (1e-9, 3.0):
        with mp.workdps(60):
            u_, o = mp.mpf(u), mp.mpf(order)
            inside = (o * mp.exp((o - 1) * u_) + (o - 1) * mp.exp(-o * u_)) / (2 * o - 1)
            exact = u_ + mp.expm1(-u_) if order == 1 else mp.log(inside) / (o - 1)
        assert printed_p1.p1_laplace_renyi(order=order, scale=1 / u, sensitivity=1.0) == pytest.approx(
            float(exact), rel=1e-9
        )


def test_expected_divergences_from_unknown_shares_by_simulation():
    rng, prior, alpha = np.random.default_rng(11), np.array([[1.0, 1.0, 4.0]]), np.array([[2.0, 2.0, 3.0]])
    r, n, many = 0.4, 30, 20_000
    found = printed_p1.unknown_shares_kl(DirichletMechanism(alpha, r), prior=prior, n_records=n)
    p = rng.dirichlet(prior[0], many)
    gamma = rng.gamma(r * rng.multinomial(n, p) + alpha[0])
    y = gamma / gamma.sum(axis=1, keepdims=True)
    for exact, values in ((found.forward, rel_entr(p, y).sum(axis=1)), (found.reverse, rel_entr(y, p).sum(axis=1))):
        assert abs(values.mean() - exact) < 5 * values.std() / np.sqrt(many)
    # Equation 4 bounds the divergence draw by draw.
    for one, other in zip(p[:40], y[:40], strict=True):
        frequencies = rng.multinomial(20, one) / 20
        assert rel_entr(one, other).sum() <= printed_p1.p1_equation_4(p=one, frequencies=frequencies, y=other) * (
            1 + 1e-12
        )


@pytest.mark.parametrize("omega", [1.01, math.inf])
@pytest.mark.parametrize(("rho", "delta"), [(1e-4, 0.9), (0.1, 1e-9)])
def test_lemma_1_is_the_best_order_of_a_looser_lemma(rho, omega, delta):
    """`order * rho + log(1 / delta) / (order - 1)`, least over the orders that the guarantee covers."""
    epsilon = printed_p2.p2_lemma_1(rho=rho, omega=omega, delta=delta).epsilon
    orders = 1 + np.exp(np.linspace(-25, 25, 40_001))
    orders = np.append(orders[orders < omega], omega if math.isfinite(omega) else [])
    assert epsilon == pytest.approx(float(np.min(orders * rho - math.log(delta) / (orders - 1))), rel=1e-6)
    tighter = dirdp.privacy.convert(dirdp.TruncatedCDP(rho=rho, omega=omega), dirdp.ApproxDP, delta=delta).epsilon
    assert tighter <= epsilon * (1 + 1e-12)


def test_theorem_3_bounds_the_expected_divergence():
    p, n, alpha = [0.5, 0.3, 0.2], 20, np.ones(3)
    data = np.random.default_rng(3).multinomial(n, p, 400)
    found = dirichlet_renyi(1, data + alpha, data + alpha + 0.5) / len(data)
    assert found <= printed_p2.p2_theorem_3(p=p, n_records=n, alpha=alpha, inflated=alpha + 0.5)
    with pytest.raises(ArgumentError, match="alpha >= 1"):
        printed_p2.p2_theorem_3(p=p, n_records=n, alpha=alpha - 0.1, inflated=alpha)


@pytest.mark.parametrize(("accuracy", "rho"), [(0.01, 30.0), (0.3, 0.01)])
@pytest.mark.parametrize("d", [2, 1000])
def test_sample_sizes_are_the_first_that_are_enough(accuracy, rho, d):
    n = printed_p2.p2_sample_size(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    alpha = np.full(d, printed_p2.p2_theorem_1_prior(rho=rho, gamma=1.0))
    assert printed_p2.p2_theorem_4(probability=0.05, effective_records=n, alpha=alpha) <= accuracy
    assert printed_p2.p2_theorem_4(probability=0.05, effective_records=n - 1, alpha=alpha) > accuracy
    # Equations 14 and 15 have the right order; by equation 17 Gaussian noise needs fewer records.
    order = printed_p2.p2_equation_14(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    assert 0.25 < n / order < 4
    assert printed_p2.p2_equation_16_sample_size(accuracy=accuracy, probability=0.05, rho=rho, d=d) < n
    bound = printed_p2.p2_equation_16(probability=0.05, n_records=200, rho=rho, d=d)
    exceeded = -math.expm1(d * math.log1p(-2 * float(ndtr(-bound * 200 * math.sqrt(rho)))))
    assert 0.05 / 20 < exceeded < 0.05


def test_more_records_than_memory_lists_are_refused_before_it_is_asked_for():
    for n in (2**53, 10**8):
        with pytest.raises(UnattainableError, match="up to 10000000"):
            printed_p4.p4_global_sensitivity(prior=[1, 1], n_records=n)
        for counts in ([n - 5, 5], [n - 5, 2, 3]):
            with pytest.raises(UnattainableError, match="up to 10000000") as raised:
                printed_p4.p4_smooth_sensitivity(counts, prior=np.ones(len(counts)))
            assert str(n - 5) not in str(raised.value)
    with pytest.raises(UnattainableError, match="Raise the smoothness"):
        printed_p4.p4_smooth_sensitivity([1_000_000] * 3, prior=[1] * 3, smoothness=1e-3)


def test_the_local_mechanism_is_its_definition_and_guarantees_nothing():
    prior, n, exponent, distributions = [2, 0.3], 9, 0.7, []
    posteriors = np.array([[z + prior[0], n - z + prior[1]] for z in range(n + 1)])
    for x in range(n + 1):
        distances = hellinger_distance(posteriors[x], posteriors)
        local = max(distances[z] for z in (x - 1, x + 1) if 0 <= z <= n)
        weights = np.exp(-exponent * distances / local)
        distributions.append(weights / weights.sum())
        found = printed_p4.p4_local_distance([x, n - x], prior=prior, exponent=exponent)
        assert found == pytest.approx(float(distributions[-1] @ distances), rel=1e-11)
    losses = [np.abs(np.log(p / q)).max() for p, q in itertools.pairwise(distributions)]
    assert printed_p4.p4_local_loss(prior=prior, n_records=n, exponent=exponent) == pytest.approx(
        max(losses), rel=2e-10
    )
    # ERRATA P4.12: 1.037 at nominal 1. The global sensitivity keeps what it says.
    assert printed_p4.p4_local_loss(prior=[0.1, 0.1], n_records=300, exponent=0.5) == pytest.approx(1.037, abs=5e-4)
    assert HellingerMechanism([0.1, 0.1], 300, 0.5, sensitivity="global").pure_epsilon <= 1


DOMAIN, GOOD = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4), [[0.2, 0.3, 0.5], [0.4, 0.1, 0.5]]
# Arguments of which one is refused by its name.
REFUSED = [
    (printed_p1.p1_gaussian_sigma, "tables", {"order": 5, "epsilon": 0.1, "tables": 0}),
    (printed_p2.p2_theorem_1_prior, "delta_inf", {"rho": 0.1, "gamma": 1.0, "delta_inf": 0}),
    (printed_p2.p2_lemma_1, "omega", {"rho": 0.1, "omega": 1, "delta": 1e-6}),
    (p3_query, "weights", {"vectors": GOOD, "domain": DOMAIN, "protected": [0, 1], "weights": [1.01, -0.01]}),
    (p4_lap_mech, "epsilon", {"epsilon": math.nan, "prior": [1, 1], "n_records": 9}),
    (printed_p4.p4_local_loss, "exponent", {"prior": [1, 1], "n_records": 9, "exponent": -1.0}),
]


def test_arguments_are_refused_by_name_and_data_are_never_shown():
    for function, name, arguments in REFUSED:
        with pytest.raises(ArgumentError, match=name):
            function(**arguments)
    for wrong in ([[0.04, 0.46, 0.5]], [[0.5, 0.46, 0.04]], [[0.2, 0.3, 0.6]], [[0.2, math.nan, 0.5]]):
        with pytest.raises(DataError) as caught:
            p3_query([*GOOD, *wrong], domain=DOMAIN, protected=[0, 1])
        assert "0.46" not in str(caught.value)
    for wrong in ([1.5, 1], [-7, 8], [1, 2, 3], [0, 0]):
        for ask in (printed_p4.p4_local_sensitivity, printed_p4.p4_smooth_sensitivity):
            with pytest.raises((ArgumentError, DataError)) as caught:
                ask(wrong, prior=[1, 1])
            assert "7" not in str(caught.value)
    for wrong in ({"p": [0.5, 0.6]}, {"y": [1.0, 0.0]}, {"frequencies": [1.5, -0.5]}, {"p": [0.2, 0.3, 0.5]}):
        with pytest.raises((ArgumentError, DataError)):
            printed_p1.p1_equation_4(**({"p": [0.5, 0.5], "frequencies": [0.5, 0.5], "y": [0.5, 0.5]} | wrong))
    with pytest.raises(DataError, match="finite"):
        printed_p1.p1_equation_12([1.0, np.inf])


def test_sample_size_is_where_theorem_2_begins_to_guarantee():
    n = printed_p1.p1_sample_size(eta=0.1, probability=0.05, order=5, epsilon=0.5, d=6)
    r = dirdp.papers.p1_theorem_1_concentration(order=5, epsilon=0.5)
    assert printed_p1.p1_theorem_2(eta=0.1, beta=n * r, alpha=1 + 16 * r, d=6) <= 0.05
