"""P1's baselines against the library's exact mechanisms and quadrature."""

import math

import mpmath as mp
import numpy as np
import pytest
from printed_p1 import p1_equation_12, p1_gaussian_sigma, p1_laplace_renyi, p1_laplace_scale
from scipy import integrate

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError


def test_equation_12_row_by_row():
    noisy = np.array([[3.0, -5.0, 0.0], [-1.0, -2.0, -3.0], [10.0, 20.0, 30.0]])
    found = p1_equation_12(noisy)
    for row, shares in zip(noisy.tolist(), found.tolist(), strict=True):
        clipped = [max(value, 1e-6) for value in row]
        assert shares == pytest.approx([value / math.fsum(clipped) for value in clipped], rel=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    # Without noise and empty cells it is the maximum likelihood.
    np.testing.assert_allclose(p1_equation_12([1, 3]), [0.25, 0.75])


def test_the_clipping_decides_the_cross_entropy():
    """The same noisy counts: clipped at 1e-6, and with a part of the noise added to every cell."""
    rng = np.random.default_rng(4)
    p = np.full(20, 0.05)
    counts = rng.multinomial(100, p, size=2000)
    noisy = counts + rng.normal(0, p1_gaussian_sigma(order=5, epsilon=0.2), counts.shape)
    smoothed = np.maximum(noisy, 0) + 0.25 * p1_gaussian_sigma(order=5, epsilon=0.2)
    printed = -(p * np.log(p1_equation_12(noisy))).sum(axis=1).mean()
    better = -(p * np.log(smoothed / smoothed.sum(axis=1, keepdims=True))).sum(axis=1).mean()
    assert printed > 5 > 3.3 > better


@pytest.mark.parametrize("order", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("tables", [1, 13])
def test_the_gaussian_keeps_its_part_exactly(order, tables):
    sigma = p1_gaussian_sigma(order=order, epsilon=0.4, tables=tables)
    assert dirdp.mechanisms.DiscreteGaussianMechanism([1, 1], sigma).renyi(order) == pytest.approx(
        0.4 / tables, rel=1e-11
    )


@pytest.mark.parametrize("order", [1.0, 1.5, 5.0])
@pytest.mark.parametrize("shift", [0.1, 2.0])
def test_the_laplace_divergence_by_quadrature(order, shift):
    def integrand(x):
        first, second = -abs(x), -abs(x - shift)
        return math.exp(first) / 2 * ((first - second) if order == 1 else math.exp((order - 1) * (first - second)))

    whole = sum(integrate.quad(integrand, a, b)[0] for a, b in ((-60, 0), (0, shift), (shift, 60)))
    expected = whole if order == 1 else math.log(whole) / (order - 1)
    found = p1_laplace_renyi(order=order, scale=1.0, sensitivity=shift)
    assert found == pytest.approx(expected, rel=1e-7)
    if order > 1:
        # Mironov's Corollary 2 as printed.
        up, down = order * math.exp((order - 1) * shift), (order - 1) * math.exp(-order * shift)
        assert found == pytest.approx(math.log((up + down) / (2 * order - 1)) / (order - 1), rel=1e-9)


@pytest.mark.parametrize("u", [1e-9, 1e-5, 0.01, 0.4, 3.0, 40.0])
@pytest.mark.parametrize("order", [1.0, 1 + 1e-6, 1.5, 4.0, 300.0])
def test_the_laplace_divergence_with_fifty_digits(u, order):
    with mp.workdps(60):
        u_, o = mp.mpf(u), mp.mpf(order)
        if order == 1:
            exact = u_ + mp.expm1(-u_)
        else:
            inside = (o * mp.exp((o - 1) * u_) + (o - 1) * mp.exp(-o * u_)) / (2 * o - 1)
            exact = mp.log(inside) / (o - 1)
    assert p1_laplace_renyi(order=order, scale=1 / u, sensitivity=1.0) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("order", [1.0, 5.0, 200.0])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_the_laplace_scale_is_the_least_and_more_than_needed(order, epsilon):
    scale = p1_laplace_scale(order=order, epsilon=epsilon, tables=7)
    assert p1_laplace_renyi(order=order, scale=scale) <= epsilon / 7
    assert p1_laplace_renyi(order=order, scale=scale * (1 - 1e-9)) > epsilon / 7
    # Only the ratio of the two counts.
    assert p1_laplace_scale(order=order, epsilon=epsilon, tables=7, sensitivity=1.0) == pytest.approx(scale / 2)
    # ERRATA P1.11: what two counts that move by 1 really lose.
    assert 2 * p1_laplace_renyi(order=order, scale=scale, sensitivity=1.0) < epsilon / 7


def test_extremes_and_arguments():
    assert p1_laplace_renyi(order=1e6, scale=1e-6) == pytest.approx(2e6, rel=1e-4)
    # Where the closed form cancels it is `order * shift**2 / 2`.
    assert p1_laplace_renyi(order=5, scale=1e9) == pytest.approx(5 * (2e-9) ** 2 / 2, rel=1e-6)
    assert p1_laplace_scale(order=5, epsilon=1e-18) == pytest.approx(math.sqrt(5 / 2e-18) * 2, rel=1e-6)
    with pytest.raises(DataError, match="finite"):
        p1_equation_12([1.0, np.inf])
    for wrong in ("counts", 3.0, []):
        with pytest.raises(ArgumentError, match="noisy_counts"):
            p1_equation_12(wrong)
    for wrong in ({"order": 0.5}, {"epsilon": 0}, {"tables": 0}):
        arguments = {"order": 5, "epsilon": 0.1} | wrong
        for function in (p1_gaussian_sigma, p1_laplace_scale):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                function(**arguments)
