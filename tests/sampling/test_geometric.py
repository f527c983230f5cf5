"""Noise that adds up to 0 and joint noise: their uniform lists by enumeration, their coins, and hostile scales.

The chi-square tests of whole samplers are in `tests/mechanisms/test_noise.py`.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import ZeroSumGeometricMechanism
from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.sampling import geometric
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.geometric import (
    _accepted,
    _mode,
    _tangent,
    common_radius,
    decimal_coin,
    fast_joint_noise,
    fast_zero_sum_laplace,
    joint_noise,
    uniform_composition,
    uniform_point,
    zero_sum_laplace,
)
from tests.oracles import agrees

NOTHING_LEFT = Fraction(0)


@pytest.mark.parametrize(("total", "cells"), [(0, 3), (2, 4), (5, 2), (4, 3)])
def test_every_list_is_as_likely_as_any_other(total, cells):
    lists = [z for z in itertools.product(range(total + 1), repeat=cells) if sum(z) == total]
    exact = dict.fromkeys(lists, Fraction(1, len(lists)))
    assert agrees(lambda tape: tuple(uniform_composition(total, cells, tape.uniform)), exact, left=NOTHING_LEFT)


@pytest.mark.parametrize("ball", [Ball(2, True), Ball(3, True), Ball(1, False), Ball(2, False), Ball(3, False)])
@pytest.mark.parametrize("radius", [0, 1, 2])
def test_every_point_of_a_ball_is_as_likely_as_any_other(ball, radius):
    most = radius * (2 if ball.zero_sum else 1)
    points = [z for z in itertools.product(range(-most, most + 1), repeat=ball.cells) if sum(map(abs, z)) <= most]
    points = [z for z in points if not ball.zero_sum or sum(z) == 0]
    exact = dict.fromkeys(points, Fraction(1, len(points)))
    assert agrees(lambda tape: tuple(uniform_point(ball, radius, tape.uniform)), exact, left=NOTHING_LEFT)


# Coins with a probability that is computed to as many digits as it takes.


class Given:
    """A source that answers with the leading bits of one number, and counts how many it was asked for."""

    def __init__(self, number, bits):
        self.number, self.left, self.asked = number, bits, 0

    def uniform(self, n):
        self.asked += 1
        self.left -= 64
        return self.number >> self.left & n - 1


@pytest.mark.parametrize(
    ("total", "cells", "scale"),
    [(3, 4, Fraction(1)), (40, 3, Fraction(9)), (0, 30, Fraction(7, 3)), (900, 1000, Fraction(2)), (10**30, 5, 10**30)],
)
def test_the_coin_is_exact(total, cells, scale):
    scale = Fraction(scale)
    mode = _mode(scale, cells)
    with mpmath.workdps(120):

        def log_weight(n):
            weight = mpmath.loggamma(n + cells) - mpmath.loggamma(n + 1)
            return weight - mpmath.mpf(n) / scale.numerator * scale.denominator

        share = mpmath.exp(log_weight(mpmath.mpf(total)) - log_weight(mpmath.mpf(mode)))
        assert share < 1
        number = int(mpmath.floor(share * 2**256))
    # Numbers that agree with the probability in 192 bits need more than one word; none is decided wrongly.
    below, above = Given(number - 2**40, 256), Given(number + 2**40, 256)
    assert _accepted(total, mode, scale, cells, below)
    assert not _accepted(total, mode, scale, cells, above)
    assert min(below.asked, above.asked) >= 3
    assert _accepted(mode, mode, scale, cells, Given(2**256 - 1, 256))


def test_a_coin_is_decided_by_bounds_that_hold_its_number_on_one_side():
    """Bounds from 1/4 to 3/4 around 1/3, then narrow ones: every number falls on its side of 1/3."""

    def share(digits):
        return (Decimal(1) / 3, Decimal(10) ** -digits) if digits > 30 else (Decimal("0.5"), Decimal("0.5"))

    third = 2**256 // 3
    near = {third + e for e in (-(2**190), -(2**100), 2**100, 2**190)}
    for number in near | {i * 2**250 + 1 for i in range(64)}:
        source = Given(number, 256)
        assert decimal_coin(share, 0, source) == (number <= third)
        # A cell of a number that touches a bound is not decided by it.
        assert (source.asked > 1) == (2**254 - 2**192 < number < 3 * 2**254)


@pytest.mark.parametrize("cells", [2, 3, 1000])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_mode_is_the_largest_weight(cells, scale):
    mode = _mode(Fraction(scale), cells)
    near = np.arange(max(0, mode - 3), mode + 4)
    weights = [math.lgamma(n + cells) - math.lgamma(n + 1) - n / scale for n in near]
    assert max(weights) - weights[list(near).index(mode)] < 1e-9
    assert _mode(Fraction(2) ** 1000, cells) > 2**900 or cells == 2


# The radius that several lists share.


@pytest.mark.parametrize(
    ("blocks", "scale"),
    [
        (((Ball(30, True), 1),) * 3, Fraction(1, 5)),
        (((Ball(2, True), 1), (Ball(5, False), 7), (Ball(3, True), 3)), Fraction(2)),
        (((Ball(9, False), 2),) * 4, Fraction(1, 100)),
    ],
    ids=["equal lists", "other lists", "small scale"],
)
def test_the_radius_of_joint_noise(blocks, scale, monkeypatch):
    """Each radius is proposed with a probability and accepted with another: their product is what is stated."""
    touched, slope = _tangent(scale, blocks)
    unit, accepted, logs = math.lcm(*(m for _, m in blocks)), [], []
    assert touched % unit == 0

    def proposed(uniform, t, s):
        # What doubles do not see: the tangent's slope is taken off the rate, and nothing is rounded.
        assert Fraction(s, t) == 1 / (scale * unit) - slope > 0
        return radius

    def coin(share, digits, tape):
        accepted.append(float(share(60)[0].ln()))
        return True

    monkeypatch.setattr(geometric, "geometric", proposed)
    monkeypatch.setattr(geometric, "decimal_coin", coin)
    for radius in {*range(5 * unit), *range(max(touched - 50, 0), touched + 50), 3 * touched, 40 * touched}:
        accepted.append(0.0)
        assert common_radius(scale, blocks, Bits(0)) == radius
        # The tangent lies above everywhere, so the ratio with which a radius is accepted is a probability.
        assert accepted[-1] <= 0
        exact = math.fsum(math.log(ball.points(radius * m // unit)) for ball, m in blocks) - radius / (scale * unit)
        logs.append(float(-radius * (1 / (scale * unit) - slope)) + accepted[-1] - exact)
    np.testing.assert_allclose(logs, logs[0], rtol=1e-10, atol=1e-9)


def test_hostile_scales():
    for scale, cells, number in ((Fraction(2) ** 980, 3, 3), (Fraction(1, 2**1000), 50, 4), (Fraction(10**20), 30, 2)):
        alone = zero_sum_laplace(scale, cells, Bits())
        together = joint_noise(scale, ((Ball(cells, True), 1),) * number, Bits())
        assert alone.sum() == 0
        assert not np.any(together.reshape(number, cells).sum(axis=1))
        assert all(type(z) is int for z in [*alone, *together])
        assert np.any(alone) == np.any(together) == (scale > 1)
        rng = np.random.default_rng(1)
        fast = fast_zero_sum_laplace(float(scale), 5, cells, rng)
        assert np.all(np.abs(fast.sum(axis=1)) <= 1e-12 * np.abs(fast).sum(axis=1))
        fast = fast_joint_noise(JointBalls((Ball(cells, True),) * number, (1,) * number, float(scale)), 2, rng)
        assert fast.shape == (2, number * cells)
    # On the other side of the scale where continuous noise takes over, the deviation is that of the mechanism.
    noise = fast_zero_sum_laplace(2.0**31, 5_000, 4, np.random.default_rng(3))
    assert noise.std() == pytest.approx(ZeroSumGeometricMechanism(np.ones(4), 2.0**31).noise_sd, rel=0.05)
    # A draw for 500 tables takes a moment.
    assert len(joint_noise(Fraction(1), ((Ball(2, True), 1),) * 500, Bits())) == 1000
