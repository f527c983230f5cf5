"""Numbers of lists of integers whose norm is at most a radius, and the radius that several tables share.

With `w = t / (1 - t)` the generating function of such numbers is `f(1 + 2 w) / (1 - t)`. For the l1 norm in n cells f
is the n-th power, because one cell adds `(1 + t) / (1 - t)`. For half the l1 norm of lists that add up to 0 it is the
Legendre polynomial of degree n for n + 1 cells (see `legendre`). Both have positive coefficients in w, and that of
`w**j / (1 - t)` at `t**R` is `C(R, j)`; so all sums here have positive terms.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError


@final
@dataclass(frozen=True)
class Ball:
    """The lists of integers whose norm is at most a radius.

    Attributes
    ----------
    cells : int
        The length of a list.
    zero_sum : bool
        Whether the lists add up to 0, with half the l1 norm; otherwise all lists, with the l1 norm.

    Examples
    --------
    >>> [Ball(3, zero_sum=True).points(radius) for radius in range(4)]
    [1, 7, 19, 37]
    """

    cells: int
    zero_sum: bool

    @property
    def dimension(self) -> int:
        """How many of the integers are free."""
        return self.cells - self.zero_sum

    @property
    def smaller(self) -> "Ball":
        """The ball with one cell less. Its points are as many as those that a step in one direction takes outside."""
        return Ball(self.cells - 1, self.zero_sum)

    def norm(self, lists: Array) -> Array:
        """The norm along the last axis; infinite for lists that should add up to 0 and do not."""
        norm = np.abs(lists).sum(axis=-1)
        return np.asarray(np.where(adds_up_to_0(lists), norm / 2, np.inf) if self.zero_sum else norm)

    def points(self, radius: int) -> int:
        """The number of lists: exact, for a radius of any size."""
        total, term, n = 1, 1, self.dimension
        for j in range(min(n, radius)):
            if self.zero_sum:
                term = term * (n - j) * (n + j + 1) * (radius - j) // (j + 1) ** 3
            else:
                term = 2 * term * (n - j) * (radius - j) // (j + 1) ** 2
            total += term
        return total

    def shell(self, norm: int) -> list[int]:
        """The numbers of lists with just this positive norm and 1, 2, ... gains; without zero sum, of cells but 0.

        The places of the gains, the gains as positive numbers with a sum, and the losses in the other cells, where 0 is
        allowed, or the signs, are free choices.
        """
        d = self.cells
        if not self.zero_sum:
            weights = [2 * d]
            for j in range(1, min(d, norm)):
                weights.append(weights[-1] * 2 * (d - j) * (norm - j) // ((j + 1) * j))
            return weights
        weights = [d * math.comb(norm + d - 2, d - 2)]
        for j in range(1, min(d - 1, norm)):
            factor = (d - j) * (norm - j) * (d - j - 1)
            weights.append(weights[-1] * factor // ((j + 1) * j * (norm + d - j - 1)))
        return weights

    def log_points(self, radii: ArrayLike) -> Array:
        """Logarithm of the number of lists for each radius.

        The error is below `n * 2**-52` of the logarithm, n the dimension: 1e-12 for up to fifty cells.
        """
        s, n = np.asarray(radii, dtype=np.float64), self.dimension
        term, total = np.zeros(s.shape), np.zeros(s.shape)
        for j in range(min(n, int(s.max(initial=0)))):
            factor = (n - j) * (n + j + 1) / (j + 1) ** 3 if self.zero_sum else 2 * (n - j) / (j + 1) ** 2
            term = term + _log(factor * (s - j))
            total = np.logaddexp(total, term)
        return total

    def log_shells(self, most: int) -> Array:
        """Logarithms of the numbers of :meth:`shell` for the norms 1 to `most`, shape `(most, gains)`."""
        d, s = self.cells, np.arange(1, most + 1, dtype=np.float64)
        if self.zero_sum:
            # C(s + d - 2, d - 2) as a running sum.
            first = math.log(d) + sum((np.log1p(s / i) for i in range(1, d - 1)), np.zeros(most))
        else:
            first = np.full(most, math.log(2 * d))
        logs = [first]
        for j in range(1, self.dimension):
            factor = (d - j) * (s - j) / ((j + 1) * j)
            logs.append(logs[-1] + _log(factor * (d - j - 1) / (s + d - j - 1) if self.zero_sum else 2 * factor))
        return np.stack(logs, axis=-1)

    def mean_squares(self, radii: ArrayLike) -> Array:
        """The mean of the square of one cell over all lists, for each radius."""
        s, n = np.asarray(radii, dtype=np.float64), self.dimension
        if self.zero_sum:
            # sum z_1^2 t^h(z) = 2 n / ((n + 1) (n + 2)) (1 + w) sum_j j f_j w^j, f_j as above, but for n + 1.
            term, total = _log(s + 1), np.full(s.shape, -np.inf)
            for j in range(n + 1):
                term = term + _log((n + 1 - j) * (n + 2 + j) / ((j + 1) ** 2 * (j + 2)) * (s - j))
                total = np.logaddexp(total, term + math.log(j + 1))
            total = total + math.log(2 * n / ((n + 1) * (n + 2)))
        else:
            # sum z_1^2 t^|z| = 2 w (1 + w) (1 + 2 w)^n.
            term = _log(s * (s + 1))
            total = term
            for j in range(n):
                term = term + _log(2 * (n - j) / ((j + 1) * (j + 3)) * (s - 1 - j))
                total = np.logaddexp(total, term)
        return np.asarray(np.exp(total - self.log_points(s)))

    @property
    def mean_square(self) -> float:
        """The mean of the square of one cell over the square of the radius, in the limit of large ones."""
        n = self.dimension
        if self.zero_sum:
            return 4 * n * (2 * n + 1) / ((n + 1) ** 2 * (n + 2) ** 2)
        return 2 / ((n + 1) * (n + 2))


@final
@dataclass(frozen=True)
class JointBalls:
    """Several lists of integers z whose largest norm over `records` has the weight `exp(-norm / scale)`.

    A radius r, an integer in units of 1 / `unit`, has a probability in proportion to `exp(-r / (scale * unit))` times
    the number of lists with `norm(z_k) <= r * records_k / unit` for all k. Given r, the lists are independent and
    uniform. So the weight of lists whose radius is at least r is a geometric series, which is `exp(-r / (scale unit))`.

    Attributes
    ----------
    balls : tuple of Ball
    records : tuple of int
        One for each ball, positive.
    scale : float
        Positive.
    """

    balls: tuple[Ball, ...]
    records: tuple[int, ...]
    scale: float
    unlikely: ClassVar[float] = 80.0
    """Listed radii end where what is left has a probability below exp of minus this."""
    most_radii: ClassVar[int] = 2**20
    """More radii are not listed."""

    @property
    def unit(self) -> int:
        """How many radii there are between a norm of one and two times `records`: their least common multiple."""
        return math.lcm(*self.records)

    @property
    def dimension(self) -> int:
        """How many integers are free in all."""
        return sum(ball.dimension for ball in self.balls)

    @cached_property
    def kinds(self) -> dict[tuple[Ball, int], int]:
        """How often each ball occurs with each number of records."""
        return Counter(zip(self.balls, self.records, strict=True))

    def limits(self, records: int, radii: Integers) -> Integers:
        """The largest norm of a list with so many records, for each radius."""
        return radii * records // self.unit

    @property
    def is_listed(self) -> bool:
        """Whether there are so few radii that they are listed."""
        return self._span * sum(set(self.records)) <= self.most_radii

    @property
    def _span(self) -> float:
        """About the largest radius that is not too unlikely, over `unit`: of a sum of exponential variables."""
        n = self.dimension
        return 2 + self.scale * (n + 12 * math.sqrt(n) + self.unlikely)

    @cached_property
    def listed(self) -> tuple[Integers, Array, Array]:
        """The radii at which some limit grows, the logarithms of their probabilities, and those of their lists' weight.

        The last is the probability of a radius over the number of its lists: what it adds to the probability of each.

        Raises
        ------
        ArgumentError
            If there are too many.
        """
        if not self.is_listed:
            raise ArgumentError(
                f"The noise of scale {self.scale:g} has more than {self.most_radii} radii, too many to be listed. Ask "
                "for a larger epsilon, or for fewer different numbers of records."
            )
        rate, span = 1 / (self.scale * self.unit), math.ceil(self._span)
        while True:
            integers: NDArray[np.int64] = np.unique(
                np.concatenate([np.arange(span * m + 1) * (self.unit // m) for m in set(self.records)])
            )
            radii, gaps = integers[:-1], np.diff(integers)
            weights = -rate * radii + np.log(-np.expm1(-rate * gaps))
            logs = weights + sum(
                count * ball.log_points(self.limits(m, radii)) for (ball, m), count in self.kinds.items()
            )
            total = np.logaddexp.reduce(logs)
            if logs[-1] < total - self.unlikely:
                return radii, logs - total, weights - total
            span *= 2

    @property
    def log_normaliser(self) -> float:
        """Logarithm of the sum of the weights of all lists."""
        _, _, weights = self.listed
        return float(np.log(-np.expm1(-1 / (self.scale * max(self.records)))) - weights[0])

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """The variance of one cell of each list; if radii are not listed, for continuous noise, up to 1e-6 of it."""
        if not self.is_listed:
            n = self.dimension
            square = (n + 1) * (n + 2) * self.scale**2
            return tuple(m * m * square * ball.mean_square for ball, m in zip(self.balls, self.records, strict=True))
        radii, logs, _ = self.listed
        shares = np.exp(logs)
        by_kind = {(ball, m): float(shares @ ball.mean_squares(self.limits(m, radii))) for ball, m in self.kinds}
        return tuple(by_kind[kind] for kind in zip(self.balls, self.records, strict=True))

    @property
    def step_outside(self) -> float:
        """The probability that a step of a person in every list makes the largest norm larger; never below the truth.

        In one step the person has as many records as divide all of `records`. For unequal ones, or where radii are not
        listed, it is that of randomised response, which is the largest possible.
        """
        u = 1 / (self.scale * math.gcd(*self.records))
        most = 1 / (1 + math.exp(-u))
        if len(set(self.records)) > 1 or not self.is_listed:
            return most
        radii, logs, weights = self.listed
        inside = np.zeros(len(radii))
        with np.errstate(divide="ignore"):
            for (ball, m), count in self.kinds.items():
                limits = self.limits(m, radii)
                outside = ball.smaller.log_points(limits) - ball.log_points(limits)
                inside += count * np.log1p(-np.exp(np.minimum(outside, 0)))
        probability = float(np.exp(logs) @ -np.expm1(inside)) / -math.expm1(-u)
        # The errors of `log_points`, whose values are below the largest one here; and radii that are not listed.
        error = 2.0**-50 * (self.dimension + 2) * (1 + float(np.abs(weights).max()))
        return min(probability * (1 + error) + math.exp(-self.unlikely / 2), most)


def adds_up_to_0(noise: Array, *, rounding: float = 2.0**-50) -> NDArray[np.bool_]:
    """Whether numbers along the last axis do. Very large noise is rounded to a double, cell by cell."""
    return np.asarray(np.abs(noise.sum(axis=-1)) <= rounding * np.abs(noise).sum(axis=-1))


def _log(values: Array) -> Array:
    """The logarithm, or minus infinity where there are no lists any more."""
    with np.errstate(divide="ignore"):
        logs: Array = np.log(np.maximum(values, 0.0))
    return logs
