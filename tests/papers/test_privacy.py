"""P2's conversion and its own calibration, against minimisation, mpmath and the library's exact forms."""

import math

import numpy as np
import pytest
from mpmath import mp
from printed_p2 import p2_lemma_1, p2_theorem_1_prior

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.papers import p2_theorem_1, p2_theorem_2


@pytest.mark.parametrize("rho", [1e-4, 0.1, 3.0])
@pytest.mark.parametrize("omega", [1.01, 3.0, 50.0, math.inf])
@pytest.mark.parametrize("delta", [1e-9, 1e-2, 0.9])
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
        gammas = np.linspace(0, alpha, 20_001)[1:-1]
        found = [
            p2_lemma_1(rho=bound.rho, omega=bound.omega, delta=delta).epsilon
            for bound in (p2_theorem_1(gamma=gamma, alpha_min=alpha) for gamma in gammas.tolist())
        ]
        assert p2_theorem_2(delta=delta, alpha_min=alpha).epsilon == pytest.approx(min(found), rel=1e-6)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 1e4])
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 500.0])
@pytest.mark.parametrize("r", [1e-3, 1.0, 7.0])
def test_the_prior_is_the_least_that_the_theorem_accepts(rho, gamma, r):
    alpha = p2_theorem_1_prior(rho=rho, gamma=gamma, r=r)
    assert p2_theorem_1(gamma=gamma, alpha_min=alpha, r=r).rho <= rho
    above = alpha - gamma
    with mp.workdps(30):
        exact = mp.findroot(lambda x: mp.log(mp.psi(1, x)) - mp.log(rho / mp.mpf(r) ** 2), above)
        assert float(exact) <= above + 1e-9 * alpha
        # It is no larger than it has to be, up to the rounding of the sum with gamma.
        assert above <= float(exact) * (1 + 1e-9) + 4 * math.ulp(alpha)


def test_the_numbers_of_appendix_c():
    """`rho` 0.01, 0.1 and 1 at `gamma = 2`, beside the smallest prior that is exactly enough."""
    for rho, bound, exact in ((0.01, 102.5, 100.01), (0.1, 12.49, 10.10), (1.0, 3.43, 2.03)):
        assert p2_theorem_1_prior(rho=rho, gamma=2.0) == pytest.approx(bound, abs=5.1e-3 * max(1, bound / 20))
        target = dirdp.TruncatedCDP(rho=rho, omega=3.0)
        least = dirdp.calibrate(target, prior=[1, 1], mechanism=Dirichlet(strategy="inflate")).alpha.min()
        assert least == pytest.approx(exact, abs=6e-3)


def test_arguments():
    for wrong in ({"rho": 0}, {"gamma": -1.0}, {"r": math.nan}, {"delta_inf": 0}, {"delta_2_squared": -2}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            p2_theorem_1_prior(**({"rho": 0.1, "gamma": 1.0} | wrong))
    for wrong in ({"rho": 0}, {"omega": 1}, {"delta": 0}, {"delta": 1}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            p2_lemma_1(**({"rho": 0.1, "omega": 5, "delta": 1e-6} | wrong))
