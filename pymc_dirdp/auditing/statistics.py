"""Statistics: one number for each output, which tells two data sets apart as well as possible.

It is larger for the first data set, as far as is known. A lower bound is valid for any statistic, because only the
counting has to be independent. A poor statistic finds a lower bound.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.frequencies import frequency_ratio
from pymc_dirdp.auditing.last_bits import bit_features, bit_patterns
from pymc_dirdp.auditing.parities import parities
from pymc_dirdp.auditing.seen import Seen, Statistic
from pymc_dirdp.auditing.supports import repeated, the_data

__all__ = ["learned"]

# The least variance, as a share of the pooled one: without it an entry that never varies would have infinite weight.
_LEAST_VARIANCE = 1e-9
# How many entries are also looked at alone.
_SINGLE = 4


def learned(
    from_x: Seen,
    from_y: Seen,
    x: Array,
    y: Array,
    *,
    discriminants: bool = True,
    last_bits: bool = False,
    priors: Sequence[Array] = (),
) -> list[Statistic]:
    """Statistics learned from outputs of a black box.

    They are, the simplest first: the shape of an output and where it is zero or not finite; whether it is one of the
    data sets; exact values that only one data set gives; products of signs; a linear and a quadratic discriminant of
    the outputs of the commonest shape, as logarithms if none is negative.

    Parameters
    ----------
    from_x, from_y : Seen
        Outputs that are not used again to count.
    x, y : array
        The two data sets.
    discriminants : bool
        Whether to learn discriminants of the values; a likelihood ratio makes them superfluous.
    last_bits : bool
        Whether to learn patterns and discriminants of the last bits too.
    priors : sequence of array
        Prior parameters with which a posterior mean is sought among the outputs.

    References
    ----------
    Hastie, Tibshirani and Friedman (2009), The elements of statistical learning, section 4.3.
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    of_kinds = frequency_ratio(from_x.kinds, from_y.kinds)
    statistics: list[Statistic] = [lambda outputs: of_kinds(outputs.kinds), the_data(x, y, priors)]
    of_x, of_y = from_x[from_x.inside], from_y[from_y.inside]
    if not of_x.points.size or min(len(of_x), len(of_y)) < 2:
        return statistics
    changed = np.flatnonzero(x != y) if x.shape == of_x.shape == y.shape else np.arange(0)
    statistics += [*repeated(of_x, of_y), *parities(of_x, of_y, changed)]
    if discriminants:
        statistics += _discriminants(of_x, of_y, _scaled(of_x, of_y))
    if last_bits:
        statistics += [*_discriminants(of_x, of_y, bit_features, single=True), *bit_patterns(of_x, of_y, changed)]
    first, *others = statistics
    return [first, *(partial(_joined, kinds=first, statistic=other) for other in others)]


def _joined(outputs: Seen, kinds: Statistic, statistic: Statistic) -> Array:
    """A statistic of the outputs of the commonest shape, added to what their kind says."""
    scores = kinds(outputs)
    if np.all(outputs.inside):
        return scores + statistic(outputs)
    if np.any(outputs.inside):
        scores[outputs.inside] += statistic(outputs[outputs.inside])
    return scores


def _scaled(x: Seen, y: Seen) -> Statistic:
    """Logarithms, if none of these numbers is negative; the numbers themselves otherwise."""
    pooled = np.concatenate([x.numbers, y.numbers])
    positive = pooled[pooled > 0]
    if not positive.size or pooled.min() < 0:
        return lambda outputs: outputs.numbers
    floor = float(positive.min()) / 2
    # A negative value that appears only later is treated as zero.
    return lambda outputs: np.asarray(np.log(np.maximum(outputs.numbers, 0.0) + floor))


def _discriminants(x: Seen, y: Seen, features: Statistic, *, single: bool = False) -> list[Statistic]:
    pooled = np.concatenate([features(x), features(y)])
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    varies = spread > 0
    if not np.any(varies):
        return []

    def standard(outputs: Seen) -> Array:
        return np.asarray((features(outputs) - centre)[:, varies] / spread[varies])

    of_x, of_y = standard(x), standard(y)
    functions = [_linear(of_x, of_y), _quadratic(of_x, of_y)]
    if single:
        # A single bit that is lower than any bit of a sum is enough.
        functions += _single(of_x, of_y)

    def statistic(outputs: Seen, function: Callable[[Array], Array]) -> Array:
        return function(standard(outputs))

    return [partial(statistic, function=function) for function in functions]


def _linear(x: Array, y: Array) -> Callable[[Array], Array]:
    pooled = (np.atleast_2d(np.cov(x.T)) + np.atleast_2d(np.cov(y.T))) / 2
    values, vectors = np.linalg.eigh(pooled)
    direction = vectors @ ((vectors.T @ (x.mean(axis=0) - y.mean(axis=0))) / np.maximum(values, _LEAST_VARIANCE))
    return lambda points: np.asarray(points @ direction)


def _single(x: Array, y: Array) -> list[Callable[[Array], Array]]:
    """The few entries whose means differ most."""
    apart = x.mean(axis=0) - y.mean(axis=0)

    def entry(points: Array, i: int) -> Array:
        return np.asarray(math.copysign(1.0, apart[i]) * points[:, i])

    return [partial(entry, i=i) for i in np.argsort(-np.abs(apart), kind="stable")[:_SINGLE].tolist()]


def _quadratic(x: Array, y: Array) -> Callable[[Array], Array]:
    of_x, of_y = _normal(x), _normal(y)
    return lambda points: of_x(points) - of_y(points)


def _normal(sample: Array) -> Callable[[Array], Array]:
    """Logarithmic density of the normal distribution with the moments of a sample, up to a constant."""
    mean = sample.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(sample.T)))
    values = np.maximum(values, _LEAST_VARIANCE)
    return lambda points: -np.sum(((points - mean) @ vectors) ** 2 / values + np.log(values), axis=1) / 2
