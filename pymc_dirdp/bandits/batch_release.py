"""Releases of a batch of rewards: noise on its sum or on its counts.

A reported reward is counted in one of the cells of its open batch. If every category has its own cell, the category
decides. Otherwise a coin with the reward as its probability decides between "failure" and "success". The batch is then
a vector of counts, from which the mechanism releases once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import lt
from typing import ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.geometric import Geometric, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.noise import round_scale_up
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget, round_up
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace
from pymc_dirdp.sampling.geometric import fast_zero_sum_laplace, zero_sum_laplace
from pymc_dirdp.signatures import user_facing

type Output = int | tuple[int, ...]
"""The output for a batch: one number, or one for each cell."""


def coin(reward: Fraction, bits: Bits) -> int:
    """The cell of a reward in [0, 1]: 1, a success, with the probability `reward`, and otherwise 0, a failure."""
    return int(bits.uniform(reward.denominator) < reward.numerator)


# The distribution of a binomial count with two-sided geometric noise, in closed form.


def log_probability(z: int, n: int, mu: ArrayLike, scale: float) -> Array:
    """Logarithm of the probability of `z = X + G` for `X ~ Binomial(n, mu)` and two-sided geometric noise `G`.

    Parameters
    ----------
    z : int
        The noisy count; any integer.
    n : int
        Number of trials, at least 0.
    mu : array_like
        Probabilities of success, strictly between 0 and 1.
    scale : float
        `P[G = g]` is proportional to `exp(-abs(g) / scale)`.

    Returns
    -------
    log_p : array, shape of `mu`

    Notes
    -----
    With `q = exp(-1 / scale)` the two halves of the noise tilt the binomial distribution: `E[q**(z - X); X <= z]` is
    `q**z A**n P[Binomial(n, mu / (q A)) <= z]` with `A = 1 - mu + mu / q`, and the other half likewise with `1 / q`.
    The number of terms does not grow with n.

    References
    ----------
    Theory, section 17.

    Examples
    --------
    >>> log_probability(7, 10, [0.2, 0.7], 2.0).round(3)
    array([-3.688, -1.872])
    """
    n, z, u = integer(0, n=n), int(z), 1 / positive(scale=scale)
    share = np.asarray(mu, dtype=np.float64)
    if not np.all((share > 0) & (share < 1)):
        raise ArgumentError("Expected every mu strictly between 0 and 1.")
    success, failure = np.log(share), np.log1p(-share)
    raised, lowered = np.logaddexp(failure, success + u), np.logaddexp(failure, success - u)
    below = np.full(share.shape, -np.inf)
    above = np.full(share.shape, -np.inf)
    if z >= 0:
        below = n * raised - u * z + _log_at_most(z, n, success + u - raised, failure - raised)
    if z < n:
        above = n * lowered + u * z + _log_at_most(n - z - 1, n, failure - lowered, success - u - lowered)
    # The noise is 0 with probability (1 - q) / (1 + q).
    return np.asarray(np.log(np.tanh(u / 2)) + np.logaddexp(below, above))


def slope(z: int, n: int, mu: ArrayLike, scale: float) -> Array:
    """The derivative of :func:`log_probability` in `mu`, from one more trial that succeeds or fails."""
    if n == 0:
        return np.zeros(np.shape(mu))
    middle = log_probability(z, n, mu, scale)
    gain, loss = (log_probability(z - number, n - 1, mu, scale) for number in (1, 0))
    return np.asarray(n * (np.exp(gain - middle) - np.exp(loss - middle)))


def _log_at_most(z: int, n: int, log_p: Array, log_rest: Array, *, small: float = 1e-290) -> Array:
    """Logarithm of `P[Binomial(n, p) <= z]`, also if the probability underflows; `p + rest = 1`.

    Below `small` the incomplete Beta function loses digits to subnormal doubles.
    """
    if z >= n:
        return np.zeros(log_p.shape)
    if z < 0:
        return np.full(log_p.shape, -np.inf)
    a, b = float(n - z), float(z + 1)
    complement = np.exp(log_rest)
    value = betainc(a, b, complement)
    log_probability = np.log(np.maximum(value, small))
    tiny = value < small
    if tiny.any():
        log_probability[tiny] = (
            a * log_rest[tiny] + b * log_p[tiny] - np.log(a) - betaln(a, b) + _log_fraction(a, b, complement[tiny])
        )
    return np.asarray(log_probability)


def _log_fraction(a: float, b: float, x: Array) -> Array:
    """Logarithm of the continued fraction of the incomplete Beta function, by the method of Lentz.

    If the function is tiny, `x` is far below its mean `a / (a + b)`, and the fraction converges.
    """
    c, d = np.ones_like(x), 1 / (1 - (a + b) / (a + 1) * x)
    value = d.copy()
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = 1 + step / c, 1 / (1 + step * d)
            value *= c * d
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return np.asarray(np.log(value))


def _least_noise[Noise: PrivacyCurves](guarantee: Guarantee, noise: Callable[[float], Noise]) -> Noise:
    """The mechanism with the smallest scale that satisfies a guarantee."""
    guarantee = Guarantee.checked(guarantee=guarantee)

    def excess(inverse: float) -> float:
        return log_ratio_to_budget(*noise(1 / inverse).loss(guarantee))

    return noise(1 / largest_satisfying(excess, least=2.0**-900, most=2.0**900))


@user_facing
@final
@dataclass(frozen=True)
class BatchNoise(PrivacyCurves):
    """Two-sided geometric noise on the sum of each batch, with the privacy curves of a whole run.

    A reward is in a single batch, and only pulls determine which batch. So all outputs and choices are post-processing
    of the noisy sum that contains the reward (Theory, section 17).

    Parameters
    ----------
    scale : float
        Positive scale of the noise, rounded up to 41 binary digits.
    rewards : int
        The maximum number of rewards of one person, which is also their largest total change to all sums.

    Examples
    --------
    >>> BatchNoise(2.0).pure_epsilon
    0.5
    """

    scale: float
    rewards: int = 1

    name: ClassVar[str] = "geometric"
    output: ClassVar[str] = "noisy_sum"
    worths: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    largest_batch: ClassVar[int] = 2**53

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", round_scale_up(self.scale))
        object.__setattr__(self, "rewards", integer(1, rewards=self.rewards))

    @cached_property
    def _curves(self) -> RandomisedResponse:
        """The worst pair of distributions under pure privacy; for one reward the noisy sums attain it."""
        loss = round_up(self.rewards / Fraction(self.scale))
        return RandomisedResponse(loss, 1, loss)

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, rewards: int = 1, worths: tuple[float, ...] = ()) -> Self:
        """The least noise that satisfies a guarantee for the whole run. It does not depend on `worths`.

        Raises
        ------
        UnattainableError
            If the guarantee is so loose that no noise is needed, or so tight that none suffices.
        """
        return _least_noise(guarantee, lambda scale: cls(scale, rewards))

    @property
    def first_batch(self) -> int:
        """Size of a first batch whose rewards the noise does not hide completely: two scales of the noise."""
        # Rounding the scale up should not cost a pull.
        return max(1, math.ceil(2 * self.scale * (1 - 1e-9)))

    def cell(self, reward: Fraction, bits: Bits) -> int:
        """The cell of a reward."""
        return coin(reward, bits)

    def release(self, counts: tuple[int, ...], bits: Bits) -> int:
        """The noisy number of successes of a batch. The sampler uses only integers."""
        return counts[1] + int(discrete_laplace(Fraction(self.scale), (1,), bits)[0])

    def simulated(self, counts: tuple[int, ...], rng: np.random.Generator) -> int:
        """A noisy sum of simulated rewards, in floating point."""
        return counts[1] + int(Geometric(self.scale).fast((), rng))

    def log_likelihood(self, released: int, size: int, means: Array) -> Array:
        """Logarithm of the probability of a noisy sum, for mean rewards in (0, 1)."""
        return log_probability(released, size, means, self.scale)

    def slope(self, released: int, size: int, means: Array) -> Array:
        """The derivative of the log-likelihood in the mean reward."""
        return slope(released, size, means, self.scale)

    def facts(self) -> Sequence[tuple[str, str]]:
        """Lines about the noise for a report."""
        return [("noise", f"two-sided geometric noise of scale {self.scale:.6g}, drawn in integers, on each sum")]

    def fits(self, released: object, size: int) -> bool:
        """Whether a batch can have this output. Noise of 2000 scales has a probability below `exp(-1999)`."""
        return type(released) is int and abs(released) <= size + 2000 * Fraction(self.scale)


@user_facing
@final
@dataclass(frozen=True)
class BatchCounts(PrivacyCurves):
    """Zero-sum geometric noise on the counts of the categories of each batch.

    A coin that rounds a category to the smallest or the largest worth has the variance `mu * (1 - mu)` for all rewards,
    while the counts have the variance of the worths. Replacing a reward changes two cells, which costs the privacy of
    one noisy sum for any number of categories. The noise on the mean worth is larger than that of a sum, about twice
    for five categories. So counts are more accurate from about `15 / epsilon**2` rewards on.

    Parameters
    ----------
    scale : float
        Positive scale of the noise, rounded up to 41 binary digits. The probability of noise `z` with sum 0 is
        proportional to `exp(-sum(abs(z)) / scale)`.
    worths : tuple of float
        The worth of a reward in each cell, ascending from 0 to 1; at least two.
    rewards : int
        The maximum number of rewards of one person.

    References
    ----------
    Theory, section 17; the proof page of :class:`pymc_dirdp.mechanisms.ZeroSumGeometricMechanism`.

    Examples
    --------
    >>> BatchCounts(4.0, (0.0, 0.5, 1.0)).pure_epsilon
    0.5
    """

    scale: float
    worths: tuple[float, ...]
    rewards: int = 1

    name: ClassVar[str] = "counts"
    output: ClassVar[str] = "noisy_counts"
    largest_batch: ClassVar[int] = 2**53

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", round_scale_up(self.scale))
        object.__setattr__(self, "rewards", integer(1, rewards=self.rewards))
        worths = tuple(float(worth) for worth in self.worths)
        if len(worths) < 2 or worths[0] != 0 or worths[-1] != 1 or not all(map(lt, worths, worths[1:])):
            raise ArgumentError("Expected the values of the categories in ascending order, from 0 to 1.")
        object.__setattr__(self, "worths", worths)

    @cached_property
    def noise(self) -> ZeroSumGeometricMechanism:
        """The noise of one batch."""
        return ZeroSumGeometricMechanism(np.ones(len(self.worths)), self.scale)

    @cached_property
    def _curves(self) -> LossCurves:
        """Exact for one reward; for several, which may be in any batches, the worst pair with the same pure epsilon."""
        if self.rewards == 1:
            return self.noise._curves
        loss = round_up(2 * self.rewards / Fraction(self.scale))
        return RandomisedResponse(loss, 1, loss)

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, rewards: int = 1, worths: tuple[float, ...] = ()) -> Self:
        """The least noise that satisfies a guarantee for the whole run.

        Raises
        ------
        ArgumentError
            If no worths are given.
        UnattainableError
            If the guarantee is so loose that no noise is needed, or so tight that none suffices.
        """
        if not worths:
            raise ArgumentError(
                "Pass utilities=, the public value of each category, such as {'left': 0, 'bought': 1}: "
                "mechanism='counts' is for categorical rewards."
            )
        return _least_noise(guarantee, lambda scale: cls(scale, worths, rewards))

    @property
    def first_batch(self) -> int:
        """The size for one noisy sum, whose scale is half of this one at the same pure epsilon."""
        return max(1, math.ceil(self.scale * (1 - 1e-9)))

    def cell(self, reward: Fraction, bits: Bits) -> int:
        """The cell of a reward, that of its worth."""
        return self.worths.index(float(reward))

    def release(self, counts: tuple[int, ...], bits: Bits) -> tuple[int, ...]:
        """The noisy counts of a batch. The sampler uses only integers."""
        noise = zero_sum_laplace(Fraction(self.scale), len(self.worths), bits)
        return tuple(int(count + number) for count, number in zip(counts, noise, strict=True))

    def simulated(self, counts: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
        """Noisy counts of simulated rewards, in floating point."""
        noise = fast_zero_sum_laplace(self.scale, 1, len(self.worths), rng)[0]
        return tuple(int(count + number) for count, number in zip(counts, noise, strict=True))

    def facts(self) -> Sequence[tuple[str, str]]:
        """Lines about the noise for a report."""
        cells = len(self.worths)
        return [
            (
                "noise",
                f"two-sided geometric noise of scale {self.scale:.6g} that adds up to 0, drawn in integers, on the "
                f"counts of {cells} categories",
            )
        ]

    def fits(self, released: object, size: int) -> bool:
        """Whether a batch can have this output: integers that sum to its size, with noise below 2000 scales."""
        if type(released) is not tuple or len(released) != len(self.worths):
            return False
        if not all(type(number) is int for number in released) or sum(released) != size:
            return False
        return bool(sum(map(abs, released)) <= size + 2000 * len(released) * Fraction(self.scale))


type BatchMechanism = BatchNoise | BatchCounts
"""The mechanism of a batch. Add a new class here and to `KINDS`."""

KINDS: dict[str, type[BatchMechanism]] = {kind.name: kind for kind in (BatchNoise, BatchCounts)}
"""The mechanisms of a batch by name; the first is the default."""
