"""Numbers of lists of integers whose norm is at most a radius, and the common radius of several tables.

With `w = t / (1 - t)` the generating function of these numbers is `f(1 + 2 w) / (1 - t)`. For the l1 norm in n cells, f
is the n-th power, because each cell has the factor `(1 + t) / (1 - t)`. For half the l1 norm of zero-sum lists of n + 1
cells, f is the Legendre polynomial of degree n (see `log_legendre`). Both have positive coefficients in w, and the
coefficient of `w**j / (1 - t)` at `t**R` is `C(R, j)`, so all sums here have positive terms.
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
    """Lists of integers whose norm is at most a radius.

    Attributes
    ----------
    cells : int
        The length of a list.
    zero_sum : bool
        If True, only lists that add up to 0, with half the l1 norm. Otherwise all lists, with the l1 norm.

    Examples
    --------
    >>> [Ball(3, zero_sum=True).points(radius) for radius in range(4)]
    [1, 7, 19, 37]
    """

    cells: int
    zero_sum: bool

    @property
    def dimension(self) -> int:
        """The number of free integers."""
        return self.cells - self.zero_sum

    @property
    def smaller(self) -> "Ball":
        """The ball with one cell less. It has as many points as a step in one direction takes out of this ball."""
        return Ball(self.cells - 1, self.zero_sum)

    def norm(self, lists: Array) -> Array:
        """The norm along the last axis; with `zero_sum`, infinite for lists that do not add up to 0."""
        norm = np.abs(lists).sum(axis=-1)
        return np.asarray(np.where(adds_up_to_0(lists), norm / 2, np.inf) if self.zero_sum else norm)

    def points(self, radius: int) -> int:
        """The exact number of lists, for a radius of any size."""
        total, term, n = 1, 1, self.dimension
        for j in range(min(n, radius)):
            if self.zero_sum:
                term = term * (n - j) * (n + j + 1) * (radius - j) // (j + 1) ** 3
            else:
                term = 2 * term * (n - j) * (radius - j) // (j + 1) ** 2
            total += term
        return total

    def shell(self, norm: int) -> list[int]:
        """The numbers of lists with exactly this positive norm and 1, 2, ... gains (without zero sum, nonzero cells).

        The free choices are the places of the gains, the positive gains with their sum, and the losses in the other
        cells, which may be 0, or (without zero sum) the signs.
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

        The relative error is below `n * 2**-52` for the dimension n, for example 1e-12 for up to fifty cells.
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
            # C(s + d - 2, d - 2) as a sum of logarithms.
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
        """The mean of the square of one cell over the square of the radius, in the limit of large radii."""
        n = self.dimension
        if self.zero_sum:
            return 4 * n * (2 * n + 1) / ((n + 1) ** 2 * (n + 2) ** 2)
        return 2 / ((n + 1) * (n + 2))


@final
@dataclass(frozen=True)
class JointBalls:
    """Several lists of integers z with the weight `exp(-max_k norm(z_k) / (records_k scale))`.

    A radius r, an integer in units of 1 / `unit`, has a probability proportional to `exp(-r / (scale * unit))` times
    the number of lists with `norm(z_k) <= r * records_k / unit` for all k. Given r, lists are independent and uniform.
    So the weight of lists with the least radius r is a geometric series, with the sum `exp(-r / (scale unit))`.

    Attributes
    ----------
    balls : tuple of Ball
    records : tuple of int
        A positive number for each ball.
    scale : float
        Positive.
    """

    balls: tuple[Ball, ...]
    records: tuple[int, ...]
    scale: float
    unlikely: ClassVar[float] = 80.0
    """The probability of radii beyond the list is below exp of minus this number."""
    most_radii: ClassVar[int] = 2**20
    """Maximum number of radii in the list."""

    @property
    def unit(self) -> int:
        """The least common multiple of `records`, which is the number of radii for each unit of the norm."""
        return math.lcm(*self.records)

    @property
    def dimension(self) -> int:
        """The total number of free integers."""
        return sum(ball.dimension for ball in self.balls)

    @cached_property
    def kinds(self) -> dict[tuple[Ball, int], int]:
        """The number of times that each ball occurs with each number of records."""
        return Counter(zip(self.balls, self.records, strict=True))

    def limits(self, records: int, radii: Integers) -> Integers:
        """The largest norm of a list with this number of records, for each radius."""
        return radii * records // self.unit

    @property
    def is_listed(self) -> bool:
        """Whether the number of radii is small enough for a list."""
        return self._span * sum(set(self.records)) <= self.most_radii

    @property
    def _span(self) -> float:
        """Approximate upper quantile of the radius over `unit`, from a sum of exponential variables."""
        n = self.dimension
        return 2 + self.scale * (n + 12 * math.sqrt(n) + self.unlikely)

    @cached_property
    def listed(self) -> tuple[Integers, Array, Array]:
        """The radii at which a limit grows, their log-probabilities, and their log-weights.

        The weight is the probability of a radius over the number of its lists, so its part of the probability of each.

        Raises
        ------
        ArgumentError
            If there are too many radii.
        """
        if not self.is_listed:
            raise ArgumentError(
                f"Noise of scale {self.scale:g} has more than {self.most_radii} radii, which is too many to list. Use "
                "a larger epsilon, or fewer different numbers of records."
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
        """The logarithm of the sum of the weights of all lists."""
        _, _, weights = self.listed
        return float(np.log(-np.expm1(-1 / (self.scale * max(self.records)))) - weights[0])

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """The variance of one cell of each list. Without a list of radii that of continuous noise, within 1e-6."""
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
        """An upper bound of the probability that one step of a person in every list increases the largest norm.

        A step is the greatest common divisor of `records`. For unequal `records`, or without a list of radii, the bound
        is the probability of randomised response, which is the largest possible.
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
        # The errors of `log_points`, whose values are below the maximum here, and the radii beyond the list.
        error = 2.0**-50 * (self.dimension + 2) * (1 + float(np.abs(weights).max()))
        return min(probability * (1 + error) + math.exp(-self.unlikely / 2), most)


def adds_up_to_0(noise: Array, *, rounding: float = 2.0**-50) -> NDArray[np.bool_]:
    """Whether numbers along the last axis add up to 0, up to the rounding of very large noise to doubles."""
    return np.asarray(np.abs(noise.sum(axis=-1)) <= rounding * np.abs(noise).sum(axis=-1))


def _log(values: Array) -> Array:
    """The logarithm, or minus infinity if there are no lists."""
    with np.errstate(divide="ignore"):
        logs: Array = np.log(np.maximum(values, 0.0))
    return logs
