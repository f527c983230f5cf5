"""Randomised response whose answer may be erased, and what it becomes when several such steps follow one another.

One record that moves from a cell to another under zero-sum geometric noise has exactly this loss, and several records
of one person make at most as many steps (see the proof page of `ZeroSumGeometricMechanism`).
"""

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.tcdp import rho_from_above

__all__ = ["ErasedResponse", "erased_responses"]

# The probability of a true answer, and every curve, are raised by more than their rounding errors.
_RAISED, _UP = 1 + 1e-14, 1 + 4e-15
# More steps than this are taken several at a time.
_MOST_STEPS = 64
# Blocks are convolved exactly as long as their loss takes so many values.
_MOST_VALUES = 2_000
# More than what underflows in such a convolution.
_TINY = 1e-300
# Smaller levels are not followed.
_LEAST, _STEEPEST = 1e-290, 700.0
# Where the divergence is the largest loss up to a part in 10^200.
_LARGEST_TILT = 1e200


@final
@dataclass(frozen=True)
class ErasedResponse(PrivacyCurves):
    """An answer that is true, false, or erased with loss 0, after several steps and in several independent blocks.

    In one step the answer is true with probability `kept` and loss `u`, false with probability `kept * exp(-u)` and
    loss `-u`, and else erased. After `steps` steps, two data sets are at either end of a chain of data sets of which
    any two that follow each other have such distributions, or less different ones.

    Parameters
    ----------
    u : float
        The loss of a true answer, positive.
    kept : float
        The probability of a true answer; 1 / (1 + exp(-u)) leaves nothing to be erased.
    steps : int
        At least 1.
    blocks : int
        So many independent ones, at least 1.
    largest : float
        A known upper bound of the loss, because `u` may have been rounded up.

    Notes
    -----
    Let `F` be the largest power of a test at each level. For one step it is the least of `exp(u) a`, `a + kept (1 -
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
    kept: float
    steps: int = 1
    blocks: int = 1
    largest: float = math.inf

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
        if self.steps == 1 and self.kept >= (1 + math.exp(-self.u / 2)) ** -2:
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
        if (order - 1) * largest > _LARGEST_TILT:
            return largest
        tilt = (order - 1) * losses
        logs = np.log(masses) + tilt + np.log(-np.expm1(-tilt)) + np.log(-np.expm1(-losses - tilt))
        return min(float(np.logaddexp(0.0, np.logaddexp.reduce(logs))) / (order - 1), largest)

    @override
    def _delta(self, epsilon: float) -> float:
        return float(self._deltas(np.array([epsilon]))[0])

    @override
    def _epsilon(self, delta: float) -> float:
        return min(super()._epsilon(delta), self.pure_epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        deltas = self._deltas(step * np.arange(points, dtype=np.float64))
        return deltas, deltas

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
        kept = min(self.kept * _RAISED, 1.0)
        if self.steps == 1:
            return np.array([1]), np.array([kept])
        number = min(self.steps, _MOST_STEPS)
        size, larger = divmod(self.steps, number)
        return _chained(self.u, kept, [size + 1] * larger + [size] * (number - larger))

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
        # Sums of products of numbers that are not negative: no digit is lost.
        law = reduce(np.convolve, [one] * self.blocks) * (1 + 1e-15 * len(one) * self.blocks)
        positive = np.arange(1, most * self.blocks + 1)
        return np.nextafter(positive * self.u, math.inf), law[most * self.blocks + 1 :] + _TINY


def erased_responses(u: float, kept: float, steps: int, blocks: int, largest: float) -> PrivacyCurves:
    """The curves of several blocks; a composition where their loss takes too many values to be listed."""
    if blocks == 1 or blocks * steps <= _MOST_VALUES:
        return ErasedResponse(u, kept, steps, blocks, largest)
    return Composition(((ErasedResponse(u, kept, steps), blocks),))


def _chained(u: float, kept: float, sizes: list[int]) -> tuple[NDArray[np.int64], Array]:
    """Positive losses, in units of u, of a chain that takes so many steps at a time, and their probabilities.

    The largest power is a chain of increasing piecewise linear functions. Their kinks are traced back to the level
    where the chain starts; between two of those levels the slope is constant, and its logarithm is the loss.
    """
    more = kept * -math.expm1(-u)
    levels = np.empty(0)
    for size in reversed(sizes):
        down, add = math.exp(-min(size * u, _STEEPEST)), size * more
        levels = np.maximum.reduce([levels * down, levels - add, 1 - (1 - levels) / down])
        # Where the first piece ends, and the last one starts; without a piece between them both are one level.
        first = min(add * down / -math.expm1(-size * u), 1 / (1 + 1 / down))
        last = max(1 - add / -math.expm1(-size * u), first)
        levels = np.concatenate([levels, [first, last]])
    levels = np.concatenate([[0.0], np.unique(levels[(levels > _LEAST) & (levels < 1)]), [1.0]])
    powers, middle, times = levels, (levels[1:] + levels[:-1]) / 2, np.zeros(len(levels) - 1, dtype=np.int64)
    for size in sizes:
        down, add = math.exp(-min(size * u, _STEEPEST)), size * more
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
