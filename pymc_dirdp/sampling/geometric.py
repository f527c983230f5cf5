"""Special forms of geometric noise, drawn exactly from random bits, and in floating point for simulations.

1. *Zero-sum noise.* Two-sided geometric numbers are differences of one-sided ones. Given their sum A, one-sided numbers
   are uniform over all lists of non-negative integers with this sum. So the noise is the difference of two independent
   uniform lists with the same sum, and this sum has the weight `C(A + d - 1, d - 1)**2 exp(-2 A / scale)`.
2. *Joint noise of several tables*, whose density depends on their largest norm. It has a latent radius (see
   `JointBalls`). Given the radius, tables are independent and uniform on balls. The radius is drawn, used and
   discarded. It must not be published, because given the radius the privacy loss is unbounded.

A coin with an irrational probability compares uniform bits with bounds on the probability in decimal arithmetic, with
as many digits as necessary.
"""

import math
from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
from pymc_dirdp.sampling.bits import Bits, Uniform
from pymc_dirdp.sampling.discrete_noise import discrete_laplace, geometric

# Initial number of decimal digits; each attempt doubles it.
_DIGITS = 30


def zero_sum_laplace(scale: Fraction, cells: int, bits: Bits) -> NDArray[np.object_]:
    """Integers that add up to 0, with `P[z]` proportional to `exp(-sum |z| / scale)`.

    Parameters
    ----------
    scale : Fraction
        Positive, of any size.
    cells : int
        At least 2.
    bits : Bits
        The source of randomness.

    Returns
    -------
    noise : array of Python integers, shape `(cells,)`

    Notes
    -----
    One-sided geometric numbers are drawn, and their sum A is accepted with a probability proportional to its own
    probability, so that it is distributed like two equal sums. About 70 % of the sums are accepted. A second uniform
    list with the same sum is drawn as a random set of separators (Floyd). The coin uses decimal arithmetic with a
    bounded error and as many digits as necessary. The time depends on the noise but not on the counts.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2. Bentley and Floyd
    (1987), Programming pearls: a sample of brilliance, https://doi.org/10.1145/30401.315746.

    Examples
    --------
    >>> int(zero_sum_laplace(Fraction(10), 5, Bits()).sum())
    0
    """
    mode = _mode(scale, cells)
    while True:
        two_sided = discrete_laplace(scale, (cells,), bits).tolist()
        # The non-negative one of x and -1 - x is one-sided.
        gains = [max(x, -1 - x) for x in two_sided]
        if _accepted(sum(gains), mode, scale, cells, bits):
            break
    losses = uniform_composition(sum(gains), cells, bits.uniform)
    noise = np.empty(cells, dtype=object)
    noise[:] = [gain - loss for gain, loss in zip(gains, losses, strict=True)]
    return noise


def fast_zero_sum_laplace(
    scale: float, tables: int, cells: int, rng: np.random.Generator, *, continuous: float = 2.0**30
) -> Array:
    """Zero-sum noise of many tables in floating point, shape `(tables, cells)`, for simulations.

    If the scale is above `continuous`, it is rounded continuous noise.
    """
    if scale > continuous:
        size = rng.gamma(2 * cells - 1, scale / 2, size=(tables, 1))
        gains, losses = rng.dirichlet(np.ones(cells), size=(2, tables))
        noise: Array = np.rint(size * (gains - losses))
        # Numbers above 2**53 have a rounded sum, too.
        noise[:, 0] = -noise[:, 1:].sum(axis=1)
        return noise
    sums = _fast_sums(scale, tables, cells, rng)
    gains, losses = (rng.multinomial(sums, rng.dirichlet(np.ones(cells), size=tables)) for _ in range(2))
    return np.asarray(gains - losses, dtype=np.float64)


def _fast_sums(scale: float, tables: int, cells: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The sum of the positive parts, by the same rejection."""
    rate = -math.expm1(-1 / scale)
    mode = float(max(0, math.ceil((cells * (1 - rate) - 1) / rate)))
    highest = _log_gamma_ratio(np.array([mode]), cells)[0] - mode / scale
    sums = np.zeros(tables, dtype=np.int64)
    missing = np.arange(tables)
    while len(missing):
        proposals = rng.negative_binomial(cells, rate, size=len(missing))
        log_share = _log_gamma_ratio(proposals.astype(np.float64), cells) - proposals / scale - highest
        accepted = -rng.standard_exponential(len(missing)) <= log_share
        sums[missing[accepted]] = proposals[accepted]
        missing = missing[~accepted]
    return sums


def uniform_composition(total: int, cells: int, uniform: Callable[[int], int]) -> list[int]:
    """A uniform list of non-negative integers that add up to `total`."""
    places = total + cells - 1
    # The separators are a uniform set of places. So are the other places, which may be fewer.
    few = min(cells - 1, total)
    chosen: set[int] = set()
    for last in range(places - few, places):
        place = uniform(last + 1)
        chosen.add(last if place in chosen else place)
    marks = sorted(chosen)
    if few == cells - 1:
        return [after - before - 1 for before, after in zip([-1, *marks], [*marks, places], strict=True)]
    parts = [0] * cells
    for units_before, place in enumerate(marks):
        parts[place - units_before] += 1
    return parts


def _accepted(total: int, mode: int, scale: Fraction, cells: int, bits: Bits) -> bool:
    """A coin with the probability of this sum of geometric numbers over that of the most likely sum."""
    if total == mode:
        return True
    low, high, sign = (mode, total, 1) if total > mode else (total, mode, -1)
    # C(high + d - 1, d - 1) / C(low + d - 1, d - 1) as the shorter of two products.
    if high - low < cells - 1:
        factors = [(j + cells - 1, j) for j in range(low + 1, high + 1)]
    else:
        factors = [(high + j, low + j) for j in range(1, cells)]

    def share(digits: int) -> tuple[Decimal, Decimal]:
        ratio = Decimal(1)
        for numerator, denominator in factors:
            ratio = ratio * numerator / denominator
        # Each operation rounds to this number of digits, and so does the exponent of the exponential.
        error = Decimal(10) ** (1 - digits) * (2 * len(factors) + 10 + _decimal((high - low) / scale))
        return (ratio * (-_decimal((high - low) / scale)).exp()) ** sign, error

    return decimal_coin(share, len(str(len(factors))), bits)


def decimal_coin(share: Callable[[int], tuple[Decimal, Decimal]], digits: int, bits: Bits, *, word: int = 64) -> bool:
    """True with exactly a probability that can be computed to any number of digits.

    Parameters
    ----------
    share : callable
        `share(digits)` returns the probability in a decimal context of this number of digits, and a bound of its
        relative error.
    digits : int
        Initial number of digits in addition to the usual number.
    bits : Bits
        The source of randomness.
    word : int, default 64
        Initial number of bits of the uniform number; each attempt adds as many.
    """
    digits, number, length = _DIGITS + digits, bits.uniform(2**word), word
    while True:
        with localcontext(_context(digits)):
            about, error = share(digits)
            least, most = about * (1 - error), about * (1 + error)
            if (number + 1) <= least * 2**length:
                return True
            if number >= most * 2**length:
                return False
        digits, number, length = 2 * digits, number << word | bits.uniform(2**word), length + word


def _mode(scale: Fraction, cells: int) -> int:
    """The most likely sum, which is the least non-negative A with `(A + d) / (A + 1) <= exp(1 / scale)`."""
    if 1 / scale >= cells.bit_length():
        return 0
    digits = _DIGITS + len(str(max(cells, math.ceil(scale))))
    while True:
        with localcontext(_context(digits)):
            ratio = _decimal(1 / scale).exp()
            error = Decimal(10) ** (2 - digits) * ratio
            ends = [(cells - value) / (value - 1) for value in (ratio + error, ratio - error)]
            # These numbers are not integers, because exp(1 / scale) is irrational.
            least, most = (max(0, int(end.to_integral_value("ROUND_CEILING"))) for end in ends)
        if least == most:
            return least
        digits *= 2


def _context(digits: int, *, exponent: int = 10**18 - 1) -> Context:
    return Context(prec=digits, rounding="ROUND_HALF_EVEN", Emax=exponent, Emin=-exponent)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


Blocks = tuple[tuple[Ball, int], ...]


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
        The number of lists to draw, by default all. The radius accounts for the other lists.

    Returns
    -------
    noise : array of Python integers, shape `(cells of these lists,)`

    Notes
    -----
    The time depends on the noise but not on the counts. There are about `sqrt(n)` proposals of a radius for n free
    integers.

    References
    ----------
    Hardt and Talwar (2010), On the geometry of differential privacy, https://doi.org/10.1145/1806689.1806786, for
    continuous noise of a norm. The proof page of `JointTableMechanism`.

    Examples
    --------
    >>> noise = joint_noise(Fraction(3), ((Ball(2, zero_sum=True), 1), (Ball(4, zero_sum=True), 1)), Bits())
    >>> int(noise[:2].sum()), int(noise[2:].sum())
    (0, 0)
    """
    radius, unit = common_radius(scale, blocks, bits), math.lcm(*(m for _, m in blocks))
    drawn = [uniform_point(ball, radius * m // unit, bits.uniform) for ball, m in blocks[:first]]
    noise = np.empty(sum(map(len, drawn)), dtype=object)
    noise[:] = [z for vector in drawn for z in vector]
    return noise


def uniform_point(ball: Ball, radius: int, uniform: Uniform) -> list[int]:
    """A uniform list of integers with a norm of at most the radius.

    A uniform number below the number of lists determines the norm, by bisection, and the number of gains.
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
    for cell, size in zip(order, uniform_composition(norm - gains, gains, uniform), strict=False):
        noise[cell] = size + 1 if ball.zero_sum or uniform(2) else -size - 1
    if ball.zero_sum:
        for cell, size in zip(order[gains:], uniform_composition(norm, ball.cells - gains, uniform), strict=True):
            noise[cell] = -size
    return noise


def common_radius(scale: Fraction, blocks: Blocks, bits: Bits) -> int:
    """The latent radius in units of one over the least common multiple of the records. **Secret**: never publish it.

    Its probability is proportional to `exp(-r / (scale unit))` times the numbers of points of all balls. The logarithm
    of a number of points is concave in the radius, so it is below each of its tangents. With a tangent instead of the
    logarithm, the radius is geometric. It is proposed from this distribution and accepted with the ratio of both.
    """
    touched, slope = _tangent(scale, blocks)
    unit = math.lcm(*(m for _, m in blocks))
    left, counted = 1 / (scale * unit) - slope, Counter(blocks)

    def log_points(radius: int) -> int:
        return math.prod(ball.points(radius * m // unit) ** count for (ball, m), count in counted.items())

    highest = log_points(touched)
    while True:
        radius = geometric(bits.uniform, left.denominator, left.numerator)
        points, tilt = log_points(radius), slope * (touched - radius)

        def share(digits: int, points: int = points, tilt: Fraction = tilt) -> tuple[Decimal, Decimal]:
            # Two divisions, an exponential and a product. The exponent is rounded before the exponential.
            error = Decimal(10) ** (1 - digits) * (10 + abs(_decimal(tilt)))
            return Decimal(points) / Decimal(highest) * _decimal(tilt).exp(), error

        if radius == touched or decimal_coin(share, len(str(abs(round(tilt)))), bits):
            return radius


@lru_cache(maxsize=64)
def _tangent(scale: Fraction, blocks: Blocks) -> tuple[int, Fraction]:
    """The point and the slope of a tangent to the logarithm of the number of points. The slope is below the rate.

    Between integer radii of a ball the logarithm is interpolated, so it is concave and not smaller. At a corner any
    slope between those of the two sides is valid. The best tangent has the rate minus one over the radius.
    """
    unit, counted = math.lcm(*(m for _, m in blocks)), Counter(blocks)
    rate = 1 / (scale * unit)

    def flat(limit: int) -> bool:
        rise = 0.0
        for (ball, m), count in counted.items():
            points = ball.points(limit * m)
            rise += count * m * math.log1p((ball.points(limit * m + 1) - points) / points)
        return rise + 1 / limit <= 1 / scale

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
            # Every operation rounds, also each sum of positive numbers.
            error = Decimal(10) ** (1 - digits) * (10 + 2 * len(counted))
            after, before = (_slope(counted, high, side, error) for side in (1, 0))
        least, most = Fraction(after) / unit, Fraction(before) / unit
        if least < most:
            slope = min(max(rate - Fraction(1, unit * high + 1), least), most)
            if slope < rate:
                return unit * high, slope
            high += 1
        digits *= 2


def _slope(counted: Counter[tuple[Ball, int]], limit: int, side: int, error: Decimal) -> Decimal:
    """An upper bound of the slope after (`side` 1), or a lower bound before (0) the radii `limit * m`, per record."""
    total = Decimal(0)
    for (ball, m), count in counted.items():
        points = [Decimal(ball.points(limit * m + side - 1 + i)) for i in range(2)]
        # The relative error of the quotient, which is above 1, bounds the absolute error of its logarithm.
        rise = (points[1] / points[0]).ln()
        total += count * m * (rise * (1 + error) + 3 * error if side else rise * (1 - error) - 3 * error)
    return total * (1 + error) if side else total * (1 - error)


def fast_joint_noise(distribution: JointBalls, size: int, rng: np.random.Generator, first: int | None = None) -> Array:
    """Many draws of joint noise in floating point, shape `(size, cells)`, of all or of the first lists."""
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
    vectors = [_fast_points(ball, tables[ball][0], limits[m], rng) for ball, m in lists]
    return np.concatenate(vectors, axis=1)


def _fast_points(ball: Ball, log_points: Array, limits: Integers, rng: np.random.Generator) -> Array:
    size, d = len(limits), ball.cells
    norms = np.searchsorted(log_points, np.log1p(-rng.random(size)) + log_points[limits])
    norms = np.minimum(norms, limits)
    most = int(norms.max(initial=0))
    if most == 0:
        return np.zeros((size, d))
    shells = ball.log_shells(most)
    shares = np.cumsum(np.exp(shells - shells.max(axis=1, keepdims=True)), axis=1)
    cumulative = shares[np.maximum(norms, 1) - 1]
    gains = 1 + np.sum(cumulative < rng.random((size, 1)) * cumulative[:, -1:], axis=1, keepdims=True)
    first = rng.random((size, d)).argsort(axis=1).argsort(axis=1) < gains
    raised = 1.0 * first + _fast_list((norms[:, None] - gains)[:, 0], first, rng)
    if ball.zero_sum:
        noise = raised - _fast_list(norms, ~first, rng)
    else:
        noise = raised * rng.choice([-1.0, 1.0], size=(size, d))
    return np.where(norms[:, None] == 0, 0.0, noise)


def _fast_list(totals: Integers, cells: NDArray[np.bool_], rng: np.random.Generator) -> Array:
    """Uniform lists of non-negative integers in these cells, with these sums."""
    shares = rng.standard_exponential(cells.shape) * cells
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(rng.multinomial(np.maximum(totals, 0), shares), dtype=np.float64)
