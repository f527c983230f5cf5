"""Guarantees: their domains, what follows from them, and the published bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest

from pymc_dirdp import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, papers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (RenyiDP, {"order": 0.5, "epsilon": 1}),
        (RenyiDP, {"order": 2, "epsilon": 0}),
        (RenyiDP, {"order": math.inf, "epsilon": 1}),
        (TruncatedCDP, {"rho": 1, "omega": 1}),
        (TruncatedCDP, {"rho": -1, "omega": 2}),
        (ApproxDP, {"epsilon": -1, "delta": 0.1}),
        (ApproxDP, {"epsilon": 1, "delta": 0}),
        (ApproxDP, {"epsilon": 1, "delta": 1}),
        (ApproxDP, {"epsilon": math.nan, "delta": 0.1}),
        (ZeroCDP, {"rho": math.inf}),
        (PureDP, {"epsilon": True}),
        (PureDP, {"epsilon": "1"}),
    ],
)
def test_domains(kind, arguments):
    with pytest.raises(ArgumentError):
        kind(**arguments)


def test_no_delta_is_another_guarantee():
    for none in (0, 0.0):
        with pytest.raises(
            ArgumentError, match=r"got delta=0\. For a guarantee without delta, write PureDP\(epsilon=1\)"
        ):
            ApproxDP(epsilon=1, delta=none)


def test_arguments_are_keywords():
    with pytest.raises(TypeError):
        ApproxDP(1, 1e-6)


def test_published_bounds_hold_on_the_exact_curves():
    for alpha, r in [(1.0, 0.05), (5.0, 0.3), (50.0, 2.0)]:
        mechanism = DirichletMechanism([alpha, alpha], r)
        for order in (1.0, 2.0, 5.0):
            assert mechanism.satisfies(papers.p1_theorem_1(order=order, r=r, alpha_min=alpha))
        assert mechanism.satisfies(papers.p2_theorem_1(gamma=alpha / 2, alpha_min=alpha, r=r))
        assert mechanism.satisfies(papers.p2_theorem_2(delta=1e-6, alpha_min=alpha, r=r))
    with pytest.raises(ArgumentError, match="alpha_min"):
        papers.p1_theorem_1(order=5, r=1, alpha_min=4)


@pytest.mark.parametrize("value", [1.0000004, 0.99999951, 1e-6 * (1 + 1e-9), 1234567.8, 2 / 3])
def test_the_text_of_a_guarantee_follows_from_the_guarantee(value):
    """Found by attack: epsilon 1.0000004 was printed, and published, as 1."""

    def numbers(guarantee):
        text = str(guarantee).split("-differential")[0].split("-zero")[0].split(")")[0]
        return [float(number) for number in text.strip("(").split(", ")]

    assert numbers(PureDP(epsilon=value))[0] >= value
    assert numbers(ZeroCDP(rho=value))[0] >= value
    delta = min(value, 0.5000003)
    epsilon, printed = numbers(ApproxDP(epsilon=value, delta=delta))
    assert epsilon >= value
    assert printed >= delta
    order, epsilon = numbers(RenyiDP(order=1 + value, epsilon=value))
    assert order <= 1 + value
    assert epsilon >= value
    rho, omega = numbers(TruncatedCDP(rho=value, omega=1 + value))
    assert rho >= value
    assert omega <= 1 + value
    assert epsilon == pytest.approx(value, rel=1.1e-5)
    assert str(PureDP(epsilon=0.1)) == "0.1-differential privacy"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (PureDP, {}),
        (ZeroCDP, {}),
        (RenyiDP, {"order": 5}),
        (TruncatedCDP, {"omega": 10}),
        (ApproxDP, {"delta": 1.1e-7}),
    ],
)
def test_the_two_guarantees_add_up_to_the_whole_and_no_more(kind, fields):
    name = "rho" if kind in (ZeroCDP, TruncatedCDP) else "epsilon"
    for budget in (*np.random.default_rng(2).exponential(size=200), 1.0, 0.1, 5e-300, 1e300):
        whole = kind(**fields, **{name: float(budget)})
        first, second = whole.split(0.8)
        for exact in (Fraction, lambda value: Fraction(repr(value))):
            assert exact(whole.budget) * (1 - Fraction(1, 10**14)) <= exact(first.budget) + exact(second.budget)
            assert exact(first.budget) + exact(second.budget) <= exact(whole.budget)
        assert first.fixed.keys() == whole.fixed.keys()
        if kind is ApproxDP:
            assert Fraction(first.delta) + Fraction(second.delta) <= Fraction(whole.delta)
            assert Fraction(repr(first.delta)) + Fraction(repr(second.delta)) <= Fraction(repr(whole.delta))
        assert first.budget == pytest.approx(0.8 * whole.budget)
