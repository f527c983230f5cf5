"""Curves of mechanisms with a bounded loss: randomised and erased response, and bounded range."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.numerics.roots import raised, round_up
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, rho_from_above

# Randomised response: no mechanism with pure differential privacy loses more than this pair of distributions.

# The closed forms have fewer roundings than this, so that no curve is below the true one.
_ULPS = 32


@final
@dataclass(frozen=True)
class RandomisedResponse(LossCurves):
    """Answers that are true with probability `1 / (1 + exp(-u))`, else false, `answers` times independently.

    For one answer every curve is the largest among all mechanisms that satisfy `u`-differential privacy, and for
    several the largest among all products of such mechanisms.

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
        return round_up(self.answers * Fraction(self.u))

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output."""
        return min(self._all_true, self.largest)

    @override
    def _renyi(self, order: float) -> float:
        """The sum of `log(cosh((order - 1/2) u) / cosh(u / 2)) / (order - 1)` over the answers."""
        return min(raised(self.answers * _renyi(self.u, order), _ULPS), self.pure_epsilon)

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
            return min(1.0, raised(-math.expm1(epsilon - top) / (1 + math.exp(-self.u)) ** n, _ULPS))
        i = np.arange(min(math.ceil((top - epsilon) / (2 * self.u)), n // 2 + 1), dtype=np.float64)
        gamma = float(gammaln(n + 1))
        logs = gamma - gammaln(i + 1) - gammaln(n - i + 1) - i * self.u - n * math.log1p(math.exp(-self.u))
        excess = np.maximum(top - epsilon - 2 * i * self.u, 0.0)
        # The relative error of the logarithm of a factorial; a binomial coefficient is made of three.
        rounding = math.exp(min(2e-15 * (gamma + top + 1), 1.0))
        return min(1.0, raised(inner(np.exp(logs), -np.expm1(-excess)) * rounding, _ULPS))


def _renyi(u: float, order: float) -> float:
    if order == math.inf:
        return u
    if order == 1:
        return u * math.tanh(u / 2)
    tilt = (order - 1) * u
    if tilt > 30:
        return u + (math.log1p(math.exp(-2 * (order - 0.5) * u)) - math.log1p(math.exp(-u))) / (order - 1)
    # cosh((order - 1/2) u) / cosh(u / 2) - 1, without cancellation where the order is near 1 or u is small.
    excess = math.expm1(tilt) * -math.expm1(-order * u) / (1 + math.exp(-u))
    return math.log1p(excess) / (order - 1)


# Randomised response whose answer may be erased, and the composition of several such steps.
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
        The probability of a true answer; with 1 / (1 + exp(-u)) no answer is erased.
    steps : int
        At least 1.
    blocks : int
        The number of independent blocks, at least 1.
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
    max_steps: ClassVar[int] = 64
    """If there are more steps than this, several are taken at a time."""

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output."""
        return min(round_up(self.blocks * self.steps * Fraction(self.u)), self.largest)

    @override
    def _renyi(self, order: float) -> float:
        if order == math.inf:
            return self.pure_epsilon
        return min(raised(self.blocks * self._block_renyi(order), 1), self.pure_epsilon)

    @override
    def _rho(self, omega: float) -> float:
        if self.steps == 1 and self.truth >= (1 + math.exp(-self.u / 2)) ** -2:
            # The divergence over its order falls with the order (Theory, Theorem 7).
            return self._renyi(1.0)
        return raised(self.blocks * rho_from_above(self._block_renyi, omega), 1)

    def _block_renyi(self, order: float) -> float:
        """The Rényi divergence of one block, from above.

        A loss and its negative together add terms that are positive and have no cancellation.
        """
        multiples, masses = self._block_distribution
        losses = np.nextafter(multiples * self.u, math.inf)
        largest = float(losses[-1])
        if order == 1:
            return raised(inner(masses, losses * -np.expm1(-losses)), _ULPS)
        if (order - 1) * largest > 1e200:
            # The divergence is the largest loss up to a part in 10^200.
            return largest
        tilt = (order - 1) * losses
        terms = np.log(masses), tilt, np.log(-np.expm1(-tilt)), np.log(-np.expm1(-losses - tilt))
        cumulant = float(np.logaddexp(0.0, np.logaddexp.reduce(np.sum(terms, axis=0))))
        # An error of a logarithm is a relative error of its exponential; a large sum is itself a logarithm.
        rounding = (len(masses) + 4) * float(np.max(np.sum(np.abs(terms), axis=0))) / max(cumulant, 1.0)
        return min(raised(cumulant / (order - 1), _ULPS + rounding), largest)

    @override
    def _deltas(self, epsilons: Array) -> Array:
        losses, masses = self._loss_distribution
        if len(epsilons) < len(losses):
            deltas = np.array(
                [inner(masses, -np.expm1(np.minimum(epsilon - losses, 0.0))) for epsilon in epsilons.tolist()]
            )
        else:
            deltas = np.zeros(len(epsilons))
            for loss, mass in zip(losses.tolist(), masses.tolist(), strict=True):
                deltas += mass * -np.expm1(np.minimum(epsilons - loss, 0.0))
        return np.where(epsilons >= self.pure_epsilon, 0.0, np.minimum(raised(deltas, _ULPS), 1.0))

    @cached_property
    def _block_distribution(self) -> tuple[NDArray[np.int64], Array]:
        """The positive losses of one block, in units of u, in ascending order, and their probabilities."""
        # Raised by more than its rounding error.
        truth = min(raised(self.truth, 64), 1.0)
        if self.steps == 1:
            return np.array([1]), np.array([truth])
        n_chunks = min(self.steps, self.max_steps)
        size, n_larger = divmod(self.steps, n_chunks)
        return _chain_distribution(self.u, truth, [size + 1] * n_larger + [size] * (n_chunks - n_larger))

    @cached_property
    def _loss_distribution(self) -> tuple[Array, Array]:
        """The positive losses of all blocks together, and their probabilities."""
        multiples, masses = self._block_distribution
        if self.blocks == 1:
            return np.nextafter(multiples * self.u, math.inf), masses
        top = int(multiples[-1])
        block = np.zeros(2 * top + 1)
        block[top + multiples] = masses
        block[top - multiples] = masses * np.exp(-multiples * self.u)
        block[top] = max(1 - block.sum(), 0.0)
        # Sums of products of numbers that are not negative: no digit is lost, and what underflows is less than 1e-300.
        distribution = reduce(np.convolve, [block] * self.blocks) * (1 + 1e-15 * len(block) * self.blocks)
        positive = np.arange(1, top * self.blocks + 1)
        return np.nextafter(positive * self.u, math.inf), distribution[top * self.blocks + 1 :] + 1e-300


def erased_responses(
    u: float, truth: float, steps: int, blocks: int, largest: float, *, max_values: int = 2_000
) -> LossCurves:
    """The curves of several blocks; a composition if their loss has too many values to list.

    Blocks are convolved exactly if their loss has at most `max_values` values.
    """
    if blocks == 1 or blocks * steps <= max_values:
        return ErasedResponse(u, truth, steps, blocks, largest)
    return Composition(((ErasedResponse(u, truth, steps), blocks),))


def _chain_distribution(
    u: float, truth: float, sizes: list[int], *, min_level: float = 1e-290, max_exponent: float = 700.0
) -> tuple[NDArray[np.int64], Array]:
    """Positive losses, in units of u, of a chain of steps in groups of these sizes, and their probabilities.

    The largest power is a chain of increasing piecewise linear functions. Their kinks are traced back to the level
    where the chain starts; between two of those levels the slope is constant, and its logarithm is the loss. Levels
    below `min_level` are not followed.
    """
    gain = truth * -math.expm1(-u)
    levels = np.empty(0)
    for size in reversed(sizes):
        exponent, shift = min(size * u, max_exponent), size * gain
        factor = math.exp(-exponent)
        # The least of the three falls. Of small ones the levels before and after have few digits.
        falls = [levels * -math.expm1(-exponent), np.full(levels.shape, shift), (1 - levels) * math.expm1(exponent)]
        befores = [levels * factor, levels - shift, 1 - (1 - levels) / factor]
        levels = np.choose(np.argmin(falls, axis=0), befores)
        # Where the first piece ends, and the last one starts; without a piece between them both are one level.
        first = min(shift * factor / -math.expm1(-size * u), 1 / (1 + 1 / factor))
        last = max(1 - shift / -math.expm1(-size * u), first)
        levels = np.concatenate([levels, [first, last]])
    levels = np.concatenate([[0.0], np.unique(levels[(levels > min_level) & (levels < 1)]), [1.0]])
    powers, middle, multiples = levels, (levels[1:] + levels[:-1]) / 2, np.zeros(len(levels) - 1, dtype=np.int64)
    for size in sizes:
        exponent, shift = min(size * u, max_exponent), size * gain
        factor = math.exp(-exponent)
        rises = [middle * math.expm1(exponent), np.full(middle.shape, shift), (1 - middle) * -math.expm1(-exponent)]
        chosen = np.argmin(rises, axis=0)
        multiples += size * (1 - chosen)
        middle = np.choose(chosen, [middle / factor, middle + shift, 1 - (1 - middle) * factor])
        powers = np.minimum.reduce([powers / factor, powers + shift, 1 - (1 - powers) * factor])
    # Levels that were too small for doubles count as the least ones, with the largest loss.
    multiples[0] = sum(sizes)
    # Each power has been rounded a few times in each step.
    masses = np.diff(powers) + 1e-15 * (len(sizes) + 4) * powers[1:]
    positive, place = np.unique(multiples[multiples > 0], return_inverse=True)
    return positive, np.bincount(place, weights=masses[multiples > 0])


# The exponential mechanism: its loss lies in an interval of known width, wherever that interval lies.


@final
@dataclass(frozen=True)
class BoundedRange(LossCurves):
    """One output whose loss lies, for each pair of neighbours, in an interval of width `u` that contains 0.

    This holds for a choice with probabilities proportional to `exp(score / scale)`, where neighbours
    change the differences of two scores by at most `u * scale`. Every curve is the largest among all such
    mechanisms. Different pairs of distributions attain it at different epsilons or orders. The curves are
    nevertheless those of one pair, so their products bound adaptive choices, too.

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
        bound = min(u, raised(order * u * u / 8, _ULPS))
        if u > 700:
            return bound
        return min(bound, _largest_divergence(u, order))

    @override
    def _rho(self, omega: float) -> float:
        return min(raised(self.u * self.u / 8, _ULPS), rho_from_above(self._renyi, omega))

    @override
    def _deltas(self, epsilons: Array) -> Array:
        """The largest of `p (1 - exp(epsilon - t))` over the largest loss t, which has probability p: at the middle."""
        half = -np.expm1(np.minimum(epsilons - self.u, 0.0) / 2)
        deltas: Array = np.minimum(raised(half * half / -math.expm1(-self.u), _ULPS), 1.0)
        return np.where(epsilons >= self.u, 0.0, deltas)


def _largest_divergence(u: float, order: float, *, rounding: float = 4e-14) -> float:
    """The largest Rényi divergence of two distributions whose loss is t or t - u, over t; from above."""
    if order == 1:
        ratio = u / math.expm1(u)
        return ratio - 1 - math.log(ratio) + rounding
    tilt = order - 1
    # The moment is exp(tilt t) (a - b exp(t)), and b is such that it is 1 at t = 0 and at t = u.
    a = math.expm1(-order * u) / math.expm1(-u)
    t = u + math.log(tilt / order) + math.log(math.expm1(-order * u) / math.expm1(-tilt * u))
    return t + math.log(a / order) / tilt + rounding * (1 + abs(math.log(tilt)) + u + 1 / tilt)
