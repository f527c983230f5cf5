"""Noise that adds up to 0: the pieces of its sampler by enumeration, and the whole distribution by chi-square."""

import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import ZeroSumGeometricMechanism
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.geometric import (
    _accepted,
    _mode,
    decimal_coin,
    fast_zero_sum_laplace,
    uniform_composition,
    zero_sum_laplace,
)

LEVEL = 1e-6


@pytest.mark.parametrize(("total", "cells"), [(0, 3), (2, 4), (5, 2), (4, 3)])
def test_every_list_is_as_likely_as_any_other(total, cells):
    """By all answers of the uniform source."""
    few = min(cells - 1, total)
    sizes = range(total + cells - few, total + cells)
    seen = Counter()
    for answers in itertools.product(*map(range, sizes)):
        queue = iter(zip(answers, sizes, strict=True))

        def uniform(n, queue=queue):
            answer, size = next(queue)
            assert n == size
            return answer

        seen[tuple(uniform_composition(total, cells, uniform))] += 1
    assert len(seen) == math.comb(total + cells - 1, cells - 1)
    assert {sum(z) for z in seen} == {total}
    assert len(set(seen.values())) == 1


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
            return (
                mpmath.loggamma(n + cells)
                - mpmath.loggamma(n + 1)
                - mpmath.mpf(n) / scale.numerator * scale.denominator
            )

        share = mpmath.exp(log_weight(mpmath.mpf(total)) - log_weight(mpmath.mpf(mode)))
        assert share < 1
        number = int(mpmath.floor(share * 2**256))
    # Numbers that agree with the probability in 192 bits need more than one word; none is decided wrongly.
    below, above = Given(number - 2**40, 256), Given(number + 2**40, 256)
    assert _accepted(total, mode, scale, cells, below)
    assert not _accepted(total, mode, scale, cells, above)
    assert min(below.asked, above.asked) >= 3
    quick = Given(number - 2**250 if number > 2**250 else 0, 256)
    assert _accepted(total, mode, scale, cells, quick)


def test_a_coin_is_decided_by_bounds_that_hold_its_number_on_one_side():
    """Bounds from 1/4 to 3/4 around 1/3, then narrow ones: every number falls on its side of 1/3."""

    def share(digits):
        return (Decimal(1) / 3, Decimal(10) ** -digits) if digits > 30 else (Decimal("0.5"), Decimal("0.5"))

    third = 2**256 // 3
    near = {third + e for e in (-(2**190), -(2**100), 2**100, 2**190)}
    for number in near | {i * 2**250 + 1 for i in range(64)}:
        given = Given(number, 256)
        assert decimal_coin(share, 0, given) == (number <= third)
        # A cell of a number that touches a bound is not decided by it.
        assert (given.asked > 1) == (2**254 - 2**192 < number < 3 * 2**254)


@pytest.mark.parametrize("cells", [2, 3, 1000])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_mode_is_the_largest_weight(cells, scale):
    mode = _mode(Fraction(scale), cells)
    near = np.arange(max(0, mode - 3), mode + 4)
    weights = [math.lgamma(n + cells) - math.lgamma(n + 1) - n / scale for n in near]
    assert max(weights) - weights[list(near).index(mode)] < 1e-9
    assert _mode(Fraction(2) ** 1000, cells) > 2**900 or cells == 2


def test_hostile_scales():
    for scale, cells in ((Fraction(2) ** 1000, 3), (Fraction(1, 2**1000), 50), (Fraction(10**20), 1000)):
        noise = zero_sum_laplace(scale, cells, Bits())
        assert sum(noise.tolist()) == 0
        assert all(type(z) is int for z in noise)
        fast = fast_zero_sum_laplace(float(scale), 5, cells, np.random.default_rng(1))
        assert np.all(np.abs(fast.sum(axis=1)) <= 1e-12 * np.abs(fast).sum(axis=1))
    # On the other side of the scale where continuous noise takes over, the deviation is that of the mechanism.
    noise = fast_zero_sum_laplace(2.0**31, 20_000, 4, np.random.default_rng(3))
    assert noise.std() == pytest.approx(ZeroSumGeometricMechanism(np.ones(4), 2.0**31).noise_sd, rel=0.02)
    assert not np.any(zero_sum_laplace(Fraction(1, 2**1000), 50, Bits()))
