"""Promises: their domains, what follows from them, and the published bounds."""

import math
import subprocess
import sys

import numpy as np
import pytest

from pymc_dirdp import ApproxDP, ArgumentError, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, published
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.privacy import convert
from pymc_dirdp.privacy.composition import Composition


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


def test_arguments_are_keywords():
    with pytest.raises(TypeError):
        ApproxDP(1, 1e-6)


MECHANISM = DirichletMechanism([5, 5], 0.3)


def test_what_is_implied_holds_on_the_exact_curve():
    renyi = RenyiDP(order=8, epsilon=MECHANISM.renyi(8))
    truncated = TruncatedCDP(rho=MECHANISM.rho(10), omega=10)
    for known in (renyi, truncated):
        assert MECHANISM.satisfies(convert(known, RenyiDP, order=4))
        assert MECHANISM.satisfies(convert(known, TruncatedCDP, omega=6))
        for delta in (1e-2, 1e-5, 1e-9):
            assert MECHANISM.satisfies(convert(known, ApproxDP, delta=delta))


def test_pure_implies_everything():
    pure = PureDP(epsilon=0.5)
    assert convert(pure, ZeroCDP).rho == 0.125
    assert convert(pure, RenyiDP, order=100).epsilon == 0.5
    assert convert(pure, ApproxDP, delta=1e-9).epsilon == 0.5


@pytest.mark.parametrize(
    ("known", "kind", "at"),
    [
        (ApproxDP(epsilon=1, delta=1e-6), PureDP, {}),
        (ApproxDP(epsilon=1, delta=1e-6), ApproxDP, {"delta": 1e-7}),
        (ApproxDP(epsilon=1, delta=1e-6), RenyiDP, {"order": 2}),
        (RenyiDP(order=2, epsilon=1), RenyiDP, {"order": 3}),
        (RenyiDP(order=2, epsilon=1), ZeroCDP, {}),
        (TruncatedCDP(rho=1, omega=3), ZeroCDP, {}),
        (TruncatedCDP(rho=1, omega=3), RenyiDP, {"order": 4}),
        (ZeroCDP(rho=1), PureDP, {}),
    ],
)
def test_what_does_not_follow_is_refused(known, kind, at):
    with pytest.raises(ArgumentError, match="does not follow"):
        convert(known, kind, **at)


def test_renyi_conversion_is_p1_lemma_3():
    order, epsilon, delta = 8.0, 0.5, 1e-6
    implied = convert(RenyiDP(order=order, epsilon=epsilon), ApproxDP, delta=delta).epsilon
    # Equation 13, solved for delta at the epsilon that came out.
    back = math.exp((order - 1) * (epsilon - implied)) / (order - 1) * (1 - 1 / order) ** order
    assert back == pytest.approx(delta, rel=1e-12)


def test_truncated_conversion_is_never_above_p2_lemma_1():
    for rho, omega, delta in [(0.5, 3, 1e-6), (0.01, 50, 1e-3), (2, 100, 1e-9)]:
        log = math.log(1 / delta)
        lemma = rho + 2 * math.sqrt(rho * log) if log <= (omega - 1) ** 2 * rho else rho * omega + log / (omega - 1)
        assert convert(TruncatedCDP(rho=rho, omega=omega), ApproxDP, delta=delta).epsilon <= lemma


def test_the_example_of_the_errata():
    """ERRATA, P2.5: three epsilons of one mechanism at delta = 1e-5, each larger than the next."""
    grid = np.linspace(1.01, 1 + 4.99 / 0.3, 4000)
    bound = min(
        convert(published.p1_theorem_1(order=order, r=0.3, alpha_min=5), ApproxDP, delta=1e-5).epsilon for order in grid
    )
    assert bound == pytest.approx(1.405, abs=1e-3)
    renyi = min(
        convert(RenyiDP(order=order, epsilon=MECHANISM.renyi(order)), ApproxDP, delta=1e-5).epsilon
        for order in grid[:-9]
    )
    assert renyi == pytest.approx(0.9185, abs=1e-4)
    assert MECHANISM.epsilon(1e-5) == pytest.approx(0.79205, abs=1e-5)
    assert published.p2_theorem_2(delta=1e-5, alpha_min=5, r=0.3).epsilon > bound


def test_published_bounds_hold_on_the_exact_curves():
    for alpha, r in [(1.0, 0.05), (5.0, 0.3), (50.0, 2.0)]:
        mechanism = DirichletMechanism([alpha, alpha], r)
        for order in (1.0, 2.0, 5.0):
            assert mechanism.satisfies(published.p1_theorem_1(order=order, r=r, alpha_min=alpha))
        assert mechanism.satisfies(published.p2_theorem_1(gamma=alpha / 2, alpha_min=alpha, r=r))
        assert mechanism.satisfies(published.p2_theorem_2(delta=1e-6, alpha_min=alpha, r=r))
    with pytest.raises(ArgumentError, match="alpha_min"):
        published.p1_theorem_1(order=5, r=1, alpha_min=4)


def test_draws_compose():
    three = Composition(((MECHANISM, 3),))
    assert three.renyi(4) == pytest.approx(3 * MECHANISM.renyi(4), rel=1e-15)
    assert three.rho(5) == pytest.approx(3 * MECHANISM.rho(5), rel=1e-15)
    assert three.epsilon(1e-6) > Composition(((MECHANISM, 1),)).epsilon(1e-6) == MECHANISM.epsilon(1e-6)
    assert three.delta(three.epsilon(1e-6)) <= 1e-6 * (1 + 1e-6)


def test_the_mathematics_needs_numpy_and_scipy_alone():
    """The import rule of the architecture, in a process of its own."""
    code = """
import sys
import pymc_dirdp
import pymc_dirdp.privacy.composition, pymc_dirdp.sampling.fast, pymc_dirdp.utility.expected_kl
heavy = {"pymc", "pytensor", "xarray", "pandas", "matplotlib", "arviz", "dp_accounting"} & set(sys.modules)
assert not heavy, heavy
assert pymc_dirdp.__all__ == sorted(pymc_dirdp.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", [1.0000004, 0.99999951, 1e-6 * (1 + 1e-9), 1234567.8, 2 / 3])
def test_the_text_of_a_promise_follows_from_the_promise(value):
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
