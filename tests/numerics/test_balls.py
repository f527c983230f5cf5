"""Numbers of lists in balls by enumeration, and the radius that several tables share."""

import itertools
import math

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.balls import Ball, JointBalls

BALLS = [Ball(2, True), Ball(3, True), Ball(5, True), Ball(1, False), Ball(4, False)]


def norm(z, ball):
    return sum(map(abs, z)) // (2 if ball.zero_sum else 1)


def listed(ball, radius):
    some = itertools.product(range(-radius, radius + 1), repeat=ball.dimension)
    lists = [(*z, -sum(z)) if ball.zero_sum else z for z in some]
    return [z for z in lists if norm(z, ball) <= radius]


@pytest.mark.parametrize("ball", BALLS)
def test_numbers_by_enumeration(ball):
    step = [1, -1 if ball.zero_sum else 0, *[0] * ball.cells][: ball.cells]
    for radius in range(4):
        lists = listed(ball, radius)
        assert ball.points(radius) == len(lists)
        assert ball.log_points(radius) == pytest.approx(math.log(len(lists)), abs=1e-14)
        assert ball.mean_squares(radius) == pytest.approx(np.mean([z[0] ** 2 for z in lists]), rel=1e-13)
        # A step in one direction takes as many lists outside as the ball with one cell less has.
        taken = [tuple(a + b for a, b in zip(z, step, strict=True)) for z in lists]
        assert sum(norm(z, ball) > radius for z in taken) == ball.smaller.points(radius)
        if radius:
            on = [sum(c > 0 if ball.zero_sum else c != 0 for c in z) for z in lists if norm(z, ball) == radius]
            shell = np.bincount(on)[1:].tolist()
            assert ball.shell(radius) == shell
            logs = np.exp(ball.log_shells(radius)[-1])
            np.testing.assert_allclose(logs[: len(shell)], shell, rtol=1e-13)
            assert not np.any(logs[len(shell) :])


@pytest.mark.parametrize("ball", [Ball(1, False), Ball(50, True), Ball(50, False)])
def test_logarithms_and_limits_of_large_radii(ball):
    radii = np.array([0, 1, 7, 100, 3000])
    exact = [math.log(ball.points(radius)) for radius in radii.tolist()]
    np.testing.assert_allclose(ball.log_points(radii), exact, rtol=ball.dimension * 2.0**-52)
    assert ball.mean_squares(10**9) == pytest.approx(ball.mean_square * 1e18, rel=1e-6)


def test_many_radii_are_not_listed():
    balls = (Ball(3, True),) * 2
    fine, coarse = (JointBalls(balls, (1, 1), scale) for scale in (8e3, 2e4))
    assert fine.is_listed
    assert not coarse.is_listed
    # Both ways to the variance agree where one takes over from the other.
    assert coarse.variances[0] / fine.variances[0] == pytest.approx((2e4 / 8e3) ** 2, rel=1e-6)
    assert coarse.step_outside == 1 / (1 + math.exp(-1 / 2e4)) > fine.step_outside
    with pytest.raises(ArgumentError, match="larger epsilon"):
        coarse.log_normaliser  # noqa: B018
