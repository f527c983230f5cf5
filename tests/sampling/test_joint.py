"""Joint noise: uniform points of balls, the latent radius, and the whole distribution by chi-square."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.geometric import _tangent, fast_joint_noise, joint_noise, uniform_point

LEVEL = 1e-6


def norm(z, ball):
    return sum(map(abs, z)) // (2 if ball.zero_sum else 1)


@pytest.mark.parametrize("ball", [Ball(4, True), Ball(3, False)])
def test_every_point_of_a_ball_is_as_likely_as_any_other(ball):
    bits = Bits(7)
    draws = Counter(tuple(uniform_point(ball, 3, bits.uniform)) for _ in range(100 * ball.points(3)))
    assert len(draws) == ball.points(3)
    assert all(norm(z, ball) <= 3 and (not ball.zero_sum or sum(z) == 0) for z in draws)
    assert chisquare(list(draws.values())).pvalue > LEVEL


@pytest.mark.parametrize(
    ("blocks", "scale"),
    [
        (((Ball(30, True), 1),) * 3, 0.2),
        (((Ball(2, True), 1), (Ball(5, False), 7), (Ball(3, True), 3)), 2.0),
        (((Ball(9, False), 2),) * 4, 0.01),
    ],
)
def test_the_tangent_lies_above_everywhere(blocks, scale):
    """So the ratio with which a radius is kept is a probability."""
    touched, slope = _tangent(Fraction(scale), blocks)
    unit = math.lcm(*(m for _, m in blocks))
    assert touched % unit == 0
    assert 0 < slope < 1 / Fraction(scale) / unit

    def log_points(radius):
        return math.fsum(math.log(ball.points(radius * m // unit)) for ball, m in blocks)

    for radius in {*range(5 * unit), *range(max(touched - 200, 0), touched + 200), 3 * touched, 40 * touched}:
        assert log_points(radius) - log_points(touched) <= float(slope * (radius - touched)) + 1e-9


def test_hostile_scales():
    for scale, cells, number in ((Fraction(2) ** 980, 2, 3), (Fraction(1, 2**1000), 5, 4), (Fraction(10**20), 30, 2)):
        noise = joint_noise(scale, ((Ball(cells, True), 1),) * number, Bits())
        assert all(type(z) is int for z in noise)
        assert not np.any(noise.reshape(number, cells).sum(axis=1))
        fast = fast_joint_noise(JointBalls((Ball(cells, True),) * number, (1,) * number, float(scale)), 2, rng())
        assert fast.shape == (2, number * cells)
    assert not np.any(joint_noise(Fraction(1, 2**1000), ((Ball(3, False), 1),) * 5, Bits()))
    # A draw for 500 tables takes a moment.
    assert len(joint_noise(Fraction(1), ((Ball(2, True), 1),) * 500, Bits())) == 1000


def rng():
    return np.random.default_rng(1)
