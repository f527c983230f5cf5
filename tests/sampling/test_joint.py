"""Joint noise: uniform points of balls, the latent radius, and the whole distribution by chi-square."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.geometric import _tangent, common_radius, fast_joint_noise, joint_noise, uniform_point

LEVEL = 1e-6
BLOCKS = {
    "public": (((Ball(2, True), 1), (Ball(3, True), 1)), 0.8),
    "unequal": (((Ball(2, True), 1), (Ball(2, True), 2)), 0.6),
    "private": (((Ball(2, False), 1), (Ball(1, False), 3)), 0.5),
    "two records": (((Ball(2, False), 2), (Ball(1, False), 2)), 0.45),
}


def norm(z, ball):
    return sum(map(abs, z)) // (2 if ball.zero_sum else 1)


def formula(blocks, scale, reach=12):
    """The probabilities from the definition alone."""
    tables = []
    for ball, records in blocks:
        some = itertools.product(range(-reach, reach + 1), repeat=ball.dimension)
        lists = [(*z, -sum(z)) if ball.zero_sum else z for z in some]
        tables.append([(z, norm(z, ball) / records) for z in lists if norm(z, ball) <= reach])
    weights = {}
    for together in itertools.product(*tables):
        z = sum((part for part, _ in together), ())
        weights[z] = math.exp(-max(size for _, size in together) / scale)
    total = math.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def p_value(draws, probabilities):
    """Chi-square of outcomes with at least five expected draws, all others together."""
    seen, n = Counter(draws), len(draws)
    common = [z for z, p in probabilities.items() if n * p >= 5]
    observed = [seen[z] for z in common]
    expected = [n * probabilities[z] for z in common]
    return chisquare([*observed, n - sum(observed)], [*expected, n - sum(expected)]).pvalue


@pytest.mark.parametrize("name", BLOCKS)
def test_the_distribution_is_the_formula(name):
    blocks, scale = BLOCKS[name]
    probabilities, bits = formula(blocks, scale), Bits(5)
    exact = [tuple(joint_noise(Fraction(scale), blocks, bits).tolist()) for _ in range(8_000)]
    distribution = JointBalls(tuple(ball for ball, _ in blocks), tuple(m for _, m in blocks), scale)
    fast = fast_joint_noise(distribution, 40_000, np.random.default_rng(3)).astype(int).tolist()
    assert p_value(exact, probabilities) > LEVEL
    assert p_value(list(map(tuple, fast)), probabilities) > LEVEL
    # Another scale, and independent noise of the same scale, are found out.
    assert p_value(exact, formula(blocks, 0.8 * scale)) < LEVEL
    alone = [formula((block,), scale) for block in blocks]
    apart = {a + b: alone[0][a] * alone[1][b] for a in alone[0] for b in alone[1]}
    assert p_value(exact, apart) < LEVEL


@pytest.mark.parametrize("ball", [Ball(2, True), Ball(4, True), Ball(1, False), Ball(3, False)])
def test_every_point_of_a_ball_is_as_likely_as_any_other(ball):
    bits = Bits(7)
    draws = Counter(tuple(uniform_point(ball, 3, bits.uniform)) for _ in range(100 * ball.points(3)))
    assert len(draws) == ball.points(3)
    assert all(norm(z, ball) <= 3 and (not ball.zero_sum or sum(z) == 0) for z in draws)
    assert chisquare(list(draws.values())).pvalue > LEVEL


@pytest.mark.parametrize(("cells", "number", "scale"), [(2, 10, 1.0), (3, 2, 0.05), (4, 3, 7.0)])
def test_the_radius_has_its_distribution_far_into_the_tail(cells, number, scale):
    ball, bits = Ball(cells, True), Bits(11)
    blocks = ((ball, 1),) * number
    drawn = np.array([common_radius(Fraction(scale), blocks, bits) for _ in range(4_000)])
    radii, logs, _ = JointBalls((ball,) * number, (1,) * number, float(scale)).listed
    share = np.exp(logs)
    likely = 4_000 * share >= 5
    observed, expected = np.bincount(drawn, minlength=len(radii))[: len(radii)][likely], 4_000 * share[likely]
    assert chisquare([*observed, 4_000 - observed.sum()], [*expected, 4_000 - expected.sum()]).pvalue > LEVEL
    # The proposal has no end: a source that answers 0 for long enough gives any radius.
    far = 50 * radii[share.argmax()] + 100
    assert drawn.max() < far


@pytest.mark.parametrize(
    ("blocks", "scale"),
    [
        (((Ball(2, True), 1),) * 40, 1.0),
        (((Ball(30, True), 1),) * 3, 0.2),
        (((Ball(2, True), 1), (Ball(5, False), 7), (Ball(3, True), 3)), 2.0),
        (((Ball(9, False), 2),) * 4, 0.01),
        (((Ball(2, True), 5),), 100.0),
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
