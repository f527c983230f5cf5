"""Noise of several tables at once, whose largest norm decides: drawn exactly with random bits; and in floating point.

The norm has a latent radius (see `JointBalls`): given it, the tables are independent and uniform on balls. The radius
is drawn, used, and forgotten; it must not be published, because given the radius the loss is unbounded.
"""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import Uniform, geometric
from pymc_dirdp.sampling.zero_sum import _context, _decimal, decimal_coin, uniform_list

__all__ = ["common_radius", "fast_joint_noise", "joint_noise", "uniform_point"]

Blocks = tuple[tuple[Ball, int], ...]
_DIGITS = 30


def joint_noise(scale: Fraction, blocks: Blocks, bits: Bits, first: int | None = None) -> NDArray[np.object_]:
    """Lists of integers with `P[z]` proportional to `exp(-max_k norm(z_k) / (records_k scale))`, side by side.

    Parameters
    ----------
    scale : Fraction
        Positive, of any size.
    blocks : tuple of pairs
        The ball of each list, and its number of records.
    bits : Bits
        The source of randomness.
    first : int, optional
        How many lists are drawn, by default all; what the others would be is in the radius.

    Returns
    -------
    noise : array of Python integers, shape `(cells of these lists,)`

    Notes
    -----
    The time depends on the noise and on no count. About `sqrt(n)` radii are proposed for n free integers.

    References
    ----------
    Hardt and Talwar (2010), On the geometry of differential privacy, https://doi.org/10.1145/1806689.1806786, for
    continuous noise of a norm. The proof page of `JointMechanism`.

    Examples
    --------
    >>> noise = joint_noise(Fraction(3), ((Ball(2, zero_sum=True), 1), (Ball(4, zero_sum=True), 1)), Bits())
    >>> int(noise[:2].sum()), int(noise[2:].sum())
    (0, 0)
    """
    radius, unit = common_radius(scale, blocks, bits), math.lcm(*(m for _, m in blocks))
    drawn = [uniform_point(ball, radius * m // unit, bits.uniform) for ball, m in blocks[:first]]
    noise = np.empty(sum(map(len, drawn)), dtype=object)
    noise[:] = [z for one in drawn for z in one]
    return noise


def uniform_point(ball: Ball, radius: int, uniform: Uniform) -> list[int]:
    """A list of integers whose norm is at most the radius, every list as likely as any other.

    A uniform number below the number of lists tells the norm, found by bisection, and the number of gains.
    """
    number = uniform(ball.points(radius))
    low, norm = -1, radius
    while norm - low > 1:
        middle = (low + norm) // 2
        if ball.points(middle) > number:
            norm = middle
        else:
            low = middle
    noise = [0] * ball.cells
    if norm == 0:
        return noise
    number, gains = number - ball.points(norm - 1), 0
    for weight in ball.shell(norm):
        gains += 1
        if number < weight:
            break
        number -= weight
    order = list(range(ball.cells))
    for i in range(gains):
        j = i + uniform(ball.cells - i)
        order[i], order[j] = order[j], order[i]
    for cell, more in zip(order, uniform_list(norm - gains, gains, uniform), strict=False):
        noise[cell] = more + 1 if ball.zero_sum or uniform(2) else -more - 1
    if ball.zero_sum:
        for cell, less in zip(order[gains:], uniform_list(norm, ball.cells - gains, uniform), strict=True):
            noise[cell] = -less
    return noise


def common_radius(scale: Fraction, blocks: Blocks, bits: Bits) -> int:
    """The latent radius in units of one over the least common multiple of the records. **Secret**: never publish it.

    Its probability is `exp(-r / (scale unit))` times the numbers of points of all balls, up to a factor. The logarithm
    of a number of points is concave in the radius, so it lies below each of its tangents. A radius is proposed from the
    geometric distribution that a tangent makes of it, which has no end, and accepted with the ratio of both.
    """
    touched, slope = _tangent(scale, blocks)
    unit = math.lcm(*(m for _, m in blocks))
    left, counted = 1 / (scale * unit) - slope, Counter(blocks)

    def log_points(radius: int) -> int:
        return math.prod(ball.points(radius * m // unit) ** many for (ball, m), many in counted.items())

    highest = log_points(touched)
    while True:
        radius = geometric(bits.uniform, left.denominator, left.numerator)
        points, tilt = log_points(radius), slope * (touched - radius)

        def share(digits: int, points: int = points, tilt: Fraction = tilt) -> tuple[Decimal, Decimal]:
            # Two divisions, an exponential and a product; the exponent is rounded before the exponential is taken.
            error = Decimal(10) ** (1 - digits) * (10 + abs(_decimal(tilt)))
            return Decimal(points) / Decimal(highest) * _decimal(tilt).exp(), error

        if radius == touched or decimal_coin(share, len(str(abs(round(tilt)))), bits):
            return radius


@lru_cache(maxsize=64)
def _tangent(scale: Fraction, blocks: Blocks) -> tuple[int, Fraction]:
    """Where a tangent touches the logarithm of the number of points, and its slope, which is below the rate.

    Between integer limits of a ball the logarithm is interpolated, which leaves it concave and makes it no smaller. At
    a corner any slope between those of the two sides will do. The best tangent has the rate less one over the radius.
    """
    unit, counted = math.lcm(*(m for _, m in blocks)), Counter(blocks)
    rate = 1 / (scale * unit)

    def flat(at: int) -> bool:
        rise = 0.0
        for (ball, m), many in counted.items():
            points = ball.points(at * m)
            rise += many * m * math.log1p((ball.points(at * m + 1) - points) / points)
        return rise + 1 / at <= 1 / scale

    high = 1
    while not flat(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if flat(middle) else (middle, high)
    digits = _DIGITS + 2 * len(str(high))
    while True:
        with localcontext(_context(digits)):
            # Every operation is rounded, and so is each sum of positive numbers.
            error = Decimal(10) ** (1 - digits) * (10 + 2 * len(counted))
            after, before = (_slope(counted, high, side, error) for side in (1, 0))
        least, most = Fraction(after) / unit, Fraction(before) / unit
        if least < most:
            slope = min(max(rate - Fraction(1, unit * high + 1), least), most)
            if slope < rate:
                return unit * high, slope
            high += 1
        digits *= 2


def _slope(counted: Counter[tuple[Ball, int]], at: int, side: int, error: Decimal) -> Decimal:
    """The slope after (`side` 1, from above) or before (0, from below) the limits `at * m`, per norm of one record."""
    total = Decimal(0)
    for (ball, m), many in counted.items():
        points = [Decimal(ball.points(at * m + side - 1 + i)) for i in range(2)]
        # An error of the quotient, which is above 1, is one of its logarithm.
        rise = (points[1] / points[0]).ln()
        total += many * m * (rise * (1 + error) + 3 * error if side else rise * (1 - error) - 3 * error)
    return total * (1 + error) if side else total * (1 - error)


def fast_joint_noise(distribution: JointBalls, size: int, rng: np.random.Generator, first: int | None = None) -> Array:
    """The same noise many times in floating point, shape `(size, cells)`, of all lists or of the first ones."""
    if not distribution.is_listed:
        bits, blocks = Bits(rng), tuple(zip(distribution.balls, distribution.records, strict=True))
        return np.stack(
            [joint_noise(Fraction(distribution.scale), blocks, bits, first).astype(np.float64) for _ in range(size)]
        )
    radii, logs, _ = distribution.listed
    drawn = radii[rng.choice(len(radii), size=size, p=np.exp(logs))]
    limits = {m: distribution.limits(m, drawn) for m in set(distribution.records)}
    tables = {ball: (ball.log_points(np.arange(int(radii[-1]) + 1)), ball) for ball in set(distribution.balls)}
    lists = list(zip(distribution.balls, distribution.records, strict=True))[:first]
    each = [_fast_points(ball, tables[ball][0], limits[m], rng) for ball, m in lists]
    return np.concatenate(each, axis=1)


def _fast_points(ball: Ball, log_points: Array, limits: Integers, rng: np.random.Generator) -> Array:
    size, d = len(limits), ball.cells
    norms = np.searchsorted(log_points, np.log1p(-rng.random(size)) + log_points[limits])
    norms = np.minimum(norms, limits)
    most = int(norms.max(initial=0))
    if most == 0:
        return np.zeros((size, d))
    shells = ball.log_shells(most)
    shares = np.cumsum(np.exp(shells - shells.max(axis=1, keepdims=True)), axis=1)
    of = shares[np.maximum(norms, 1) - 1]
    gains = 1 + np.sum(of < rng.random((size, 1)) * of[:, -1:], axis=1, keepdims=True)
    first = rng.random((size, d)).argsort(axis=1).argsort(axis=1) < gains
    raised = 1.0 * first + _fast_list((norms[:, None] - gains)[:, 0], first, rng)
    if ball.zero_sum:
        noise = raised - _fast_list(norms, ~first, rng)
    else:
        noise = raised * rng.choice([-1.0, 1.0], size=(size, d))
    return np.where(norms[:, None] == 0, 0.0, noise)


def _fast_list(totals: Integers, cells: NDArray[np.bool_], rng: np.random.Generator) -> Array:
    """Uniform lists of integers of at least 0 in some cells, with these sums."""
    shares = rng.standard_exponential(cells.shape) * cells
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(rng.multinomial(np.maximum(totals, 0), shares), dtype=np.float64)
