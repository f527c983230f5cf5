"""Curves of what has a bounded loss: randomised and erased response, and bounded range."""

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, rho_from_above

# Randomised response: no mechanism with pure differential privacy loses more than this pair of distributions.


# The closed forms are raised by their rounding error, so that no curve comes out below the true one.
_UP = 1 + 4e-15


@final
@dataclass(frozen=True)
class RandomisedResponse(LossCurves):
    """Answers that are true with probability `1 / (1 + exp(-u))`, else false, `answers` times independently.

    For one answer every curve is the largest among all mechanisms that keep `u`-differential privacy, and for several
    the largest among all products of such mechanisms.

    Attributes
    ----------
    u : float
        The loss of a true answer, positive; that of a false one is `-u`.
    answers : int
        The number of answers, at least 1.
    largest : float
        A known upper bound of the loss, because `u` may have been rounded up.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy, Theorem 3.3.
    """

    u: float
    answers: int = 1
    largest: float = math.inf

    @property
    def _all_true(self) -> float:
        """The loss of an output whose answers are all true."""
        loss = self.answers * self.u
        # Multiplication by a power of two is exact; any other product may have been rounded down.
        return loss if self.answers & (self.answers - 1) == 0 else math.nextafter(loss, math.inf)

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output."""
        return min(self._all_true, self.largest)

    @override
    def _renyi(self, order: float) -> float:
        """The sum of `log(cosh((order - 1/2) u) / cosh(u / 2)) / (order - 1)` over the answers."""
        return min(self.answers * _renyi(self.u, order) * _UP, self.pure_epsilon)

    @override
    def _rho(self, omega: float) -> float:
        """The divergence at order 1, because `D_order / order` falls with the order (Theory, Theorem 7)."""
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at epsilon >= 0: a sum over i false answers, with loss `(answers - 2 i) u`.

        With two answers only the largest loss, `2 u`, can be above epsilon: the others are 0 and `-2 u`.
        """
        if epsilon >= self.pure_epsilon:
            return 0.0
        n, top = self.answers, self._all_true
        if n <= 2:
            return min(1.0, _UP * -math.expm1(epsilon - top) / (1 + math.exp(-self.u)) ** n)
        i = np.arange(min(math.ceil((top - epsilon) / (2 * self.u)), n // 2 + 1), dtype=np.float64)
        gamma = float(gammaln(n + 1))
        logs = gamma - gammaln(i + 1) - gammaln(n - i + 1) - i * self.u - n * math.log1p(math.exp(-self.u))
        excess = np.maximum(top - epsilon - 2 * i * self.u, 0.0)
        # The relative error of the logarithm of a factorial; a binomial coefficient is made of three.
        rounding = math.exp(min(2e-15 * (gamma + top + 1), 1.0))
        return min(1.0, inner(np.exp(logs), -np.expm1(-excess)) * rounding)


def _renyi(u: float, order: float) -> float:
    if order == math.inf:
        return u
    if order == 1:
        return u * math.tanh(u / 2)
    tilt = (order - 1) * u
    if tilt > 30:
        return u + (math.log1p(math.exp(-2 * (order - 0.5) * u)) - math.log1p(math.exp(-u))) / (order - 1)
    # cosh((order - 1/2) u) / cosh(u / 2) - 1, without cancellation where the order is near 1 or u is small.
    more = math.expm1(tilt) * -math.expm1(-order * u) / (1 + math.exp(-u))
    return math.log1p(more) / (order - 1)


# Randomised response whose answer may be erased, and what it becomes when several such steps follow one another.
#
# One record that moves from a cell to another under zero-sum geometric noise has exactly this loss, and several records
# of one person make at most as many steps (see the proof page of `ZeroSumGeometricMechanism`).


@final
@dataclass(frozen=True)
class ErasedResponse(LossCurves):
    """An answer that is true, false, or erased with loss 0, after several steps and in several independent blocks.

    In one step the answer is true with probability `truth` and loss `u`, false with probability `truth * exp(-u)` and
    loss `-u`, and else erased. After `steps` steps, two data sets are at either end of a chain of data sets of which
    any two that follow each other have such distributions, or less different ones.

    Parameters
    ----------
    u : float
        The loss of a true answer, positive.
    truth : float
        The probability of a true answer; 1 / (1 + exp(-u)) leaves nothing to be erased.
    steps : int
        At least 1.
    blocks : int
        So many independent ones, at least 1.
    largest : float
        A known upper bound of the loss, because `u` may have been rounded up.

    Notes
    -----
    Let `F` be the largest power of a test at each level. For one step it is the least of `exp(u) a`, `a + truth (1 -
    exp(-u))` and `1 - exp(-u) (1 - a)` at the level a. A test of level a at one data set has a power of at most `F(a)`
    at the next, which is its level for the step after that. So several steps have at most `F` applied as often (Dong,
    Roth and Su 2022, Theorem 2.14). The curves are those of the pair of distributions that has just these powers; by
    Blackwell's theorem no pair with smaller powers has a larger curve. Where there are more than 64 steps, several are
    taken at a time: each of the three bounds is applied as often, and the least of the results is taken.

    References
    ----------
    Dong, Roth and Su (2022), Gaussian differential privacy, https://doi.org/10.1111/rssb.12454.

    Examples
    --------
    >>> ErasedResponse(1.0, 0.5).delta(0.0)
    0.316...
    """

    u: float
    truth: float
    steps: int = 1
    blocks: int = 1
    largest: float = math.inf
    most_steps: ClassVar[int] = 64
    """More steps than this are taken several at a time."""

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output."""
        return min(math.nextafter(self.blocks * self.steps * self.u, math.inf), self.largest)

    @override
    def _renyi(self, order: float) -> float:
        if order == math.inf:
            return self.pure_epsilon
        return min(self.blocks * self._block_renyi(order) * _UP, self.pure_epsilon)

    @override
    def _rho(self, omega: float) -> float:
        if self.steps == 1 and self.truth >= (1 + math.exp(-self.u / 2)) ** -2:
            # The divergence over its order falls with the order (Theory, Theorem 7).
            return self._renyi(1.0)
        return self.blocks * rho_from_above(self._block_renyi, omega) * _UP

    def _block_renyi(self, order: float) -> float:
        """The Rényi divergence of one block.

        A loss and its negative together add terms that are positive and have no cancellation.
        """
        times, masses = self._positive
        losses = np.nextafter(times * self.u, math.inf)
        largest = float(losses[-1])
        if order == 1:
            return inner(masses, losses * -np.expm1(-losses))
        if (order - 1) * largest > 1e200:
            # The divergence is the largest loss up to a part in 10^200.
            return largest
        tilt = (order - 1) * losses
        logs = np.log(masses) + tilt + np.log(-np.expm1(-tilt)) + np.log(-np.expm1(-losses - tilt))
        return min(float(np.logaddexp(0.0, np.logaddexp.reduce(logs))) / (order - 1), largest)

    @override
    def _deltas(self, epsilons: Array) -> Array:
        losses, masses = self._whole
        if len(epsilons) < len(losses):
            found = np.array([inner(masses, -np.expm1(np.minimum(one - losses, 0.0))) for one in epsilons.tolist()])
        else:
            found = np.zeros(len(epsilons))
            for loss, mass in zip(losses.tolist(), masses.tolist(), strict=True):
                found += mass * -np.expm1(np.minimum(epsilons - loss, 0.0))
        return np.where(epsilons >= self.pure_epsilon, 0.0, np.minimum(found * _UP, 1.0))

    @cached_property
    def _positive(self) -> tuple[NDArray[np.int64], Array]:
        """The positive losses of one block, in units of u, in rising order, and their probabilities."""
        # Raised by more than its rounding error.
        truth = min(self.truth * (1 + 1e-14), 1.0)
        if self.steps == 1:
            return np.array([1]), np.array([truth])
        number = min(self.steps, self.most_steps)
        size, larger = divmod(self.steps, number)
        return _chained(self.u, truth, [size + 1] * larger + [size] * (number - larger))

    @cached_property
    def _whole(self) -> tuple[Array, Array]:
        """The positive losses of all blocks together, and their probabilities."""
        times, masses = self._positive
        if self.blocks == 1:
            return np.nextafter(times * self.u, math.inf), masses
        most = int(times[-1])
        one = np.zeros(2 * most + 1)
        one[most + times] = masses
        one[most - times] = masses * np.exp(-times * self.u)
        one[most] = max(1 - one.sum(), 0.0)
        # Sums of products of numbers that are not negative: no digit is lost, and what underflows is less than 1e-300.
        distribution = reduce(np.convolve, [one] * self.blocks) * (1 + 1e-15 * len(one) * self.blocks)
        positive = np.arange(1, most * self.blocks + 1)
        return np.nextafter(positive * self.u, math.inf), distribution[most * self.blocks + 1 :] + 1e-300


def erased_responses(
    u: float, truth: float, steps: int, blocks: int, largest: float, *, most_values: int = 2_000
) -> LossCurves:
    """The curves of several blocks; a composition where their loss takes too many values to be listed.

    Blocks are convolved exactly as long as their loss takes `most_values`.
    """
    if blocks == 1 or blocks * steps <= most_values:
        return ErasedResponse(u, truth, steps, blocks, largest)
    return Composition(((ErasedResponse(u, truth, steps), blocks),))


def _chained(
    u: float, truth: float, sizes: list[int], *, least: float = 1e-290, steepest: float = 700.0
) -> tuple[NDArray[np.int64], Array]:
    """Positive losses, in units of u, of a chain that takes so many steps at a time, and their probabilities.

    The largest power is a chain of increasing piecewise linear functions. Their kinks are traced back to the level
    where the chain starts; between two of those levels the slope is constant, and its logarithm is the loss. Levels
    below the least one are not followed.
    """
    more = truth * -math.expm1(-u)
    levels = np.empty(0)
    for size in reversed(sizes):
        down, add = math.exp(-min(size * u, steepest)), size * more
        levels = np.maximum.reduce([levels * down, levels - add, 1 - (1 - levels) / down])
        # Where the first piece ends, and the last one starts; without a piece between them both are one level.
        first = min(add * down / -math.expm1(-size * u), 1 / (1 + 1 / down))
        last = max(1 - add / -math.expm1(-size * u), first)
        levels = np.concatenate([levels, [first, last]])
    levels = np.concatenate([[0.0], np.unique(levels[(levels > least) & (levels < 1)]), [1.0]])
    powers, middle, times = levels, (levels[1:] + levels[:-1]) / 2, np.zeros(len(levels) - 1, dtype=np.int64)
    for size in sizes:
        down, add = math.exp(-min(size * u, steepest)), size * more
        bounds = np.stack([middle / down, middle + add, 1 - (1 - middle) * down])
        times += size * (1 - np.argmin(bounds, axis=0))
        middle = bounds.min(axis=0)
        powers = np.minimum.reduce([powers / down, powers + add, 1 - (1 - powers) * down])
    # Levels that were too small for doubles count as the least ones, with the largest loss.
    times[0] = sum(sizes)
    # Each power has been rounded a few times in each step.
    masses = np.diff(powers) + 1e-15 * (len(sizes) + 4) * powers[1:]
    positive, place = np.unique(times[times > 0], return_inverse=True)
    return positive, np.bincount(place, weights=masses[times > 0])


# The exponential mechanism: its loss lies in an interval of known width, wherever that interval lies.


@final
@dataclass(frozen=True)
class BoundedRange(LossCurves):
    """One output whose loss lies, for each pair of neighbours, in an interval of width `u` that contains 0.

    So it is for a choice with probabilities in proportion to `exp(score / scale)`, where neighbours change the
    differences of two scores by at most `u * scale`. Every curve is the largest among all such mechanisms. The pairs of
    distributions that attain it are different ones at different epsilons or orders. The curves together are still those
    of one pair, so products of them are bounds for choices that depend on earlier ones, too.

    Attributes
    ----------
    u : float
        The width in nats, positive.

    References
    ----------
    Dong, Durfee and Rogers (2020), Optimal differential privacy composition for exponential mechanisms, Lemma 2.4 and
    Lemma 3.2. Cesar and Rogers (2021), Bounding, concentrating, and truncating, Lemma 3.4. The page of proofs on
    structures.

    Examples
    --------
    >>> choice = BoundedRange(1.0)
    >>> choice.pure_epsilon
    1.0
    >>> choice.rho(100) <= 1 / 8
    True
    """

    u: float

    @property
    @override
    def pure_epsilon(self) -> float:
        """The width itself: the interval contains 0."""
        return self.u

    @override
    def _renyi(self, order: float) -> float:
        u = self.u
        if order == math.inf:
            return u
        # Hoeffding's lemma; the closed form loses digits where u is small.
        bound = min(u, order * u * u / 8 * _UP)
        if u > 700:
            return bound
        return max(min(bound, _largest_divergence(u, order)), 5e-324)

    @override
    def _rho(self, omega: float) -> float:
        return max(min(self.u * self.u / 8 * _UP, rho_from_above(self._renyi, omega)), 5e-324)

    @override
    def _deltas(self, epsilons: Array) -> Array:
        """The largest of `p (1 - exp(epsilon - t))` over the largest loss t, which has probability p: at the middle."""
        half = -np.expm1(np.minimum(epsilons - self.u, 0.0) / 2)
        deltas: Array = np.minimum(half * half / -math.expm1(-self.u) * _UP, 1.0)
        return deltas


def _largest_divergence(u: float, order: float, *, rounding: float = 4e-14) -> float:
    """The largest Rényi divergence of two distributions whose loss is t or t - u, over t; from above."""
    if order == 1:
        over = u / math.expm1(u)
        return over - 1 - math.log(over) + rounding
    tilt = order - 1
    # The moment is exp(tilt t) (a - b exp(t)), and b is such that it is 1 at t = 0 and at t = u.
    a = math.expm1(-order * u) / math.expm1(-u)
    t = u + math.log(tilt / order) + math.log(math.expm1(-order * u) / math.expm1(-tilt * u))
    return t + math.log(a / order) / tilt + rounding * (1 + abs(math.log(tilt)) + u + 1 / tilt)
