"""One number for each output, which tells two data sets apart as well as it can.

A lower bound is valid for any of them: only the counting has to be honest. A poor one finds less.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.auditing.neighbours import aggregated_laws
from pymc_dirdp.auditing.outputs import Outputs
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior

__all__ = ["Statistic", "learned", "likelihood_ratio"]

Array = NDArray[np.float64]
Statistic = Callable[[Outputs], Array]

# A variance below this share of the pooled one counts as this: what does not vary at all is told apart by any step.
_LEAST_VARIANCE = 1e-9
# Entries that are also looked at alone.
_SINGLE = 4
# Of a likelihood ratio.
_DECIMALS = 9
# The square of a larger value could overflow.
_LARGEST = 1e100


def likelihood_ratio(mechanism: Mechanism, x: Array, y: Array) -> Statistic | None:
    """Logarithm of the likelihood ratio of x to y, the most powerful statistic; None where it is not known."""
    match mechanism:
        case DirichletMechanism():
            return _dirichlet_ratio(mechanism.concentration(x), mechanism.concentration(y))
        case SimplexMechanism():
            return _dirichlet_ratio(mechanism.k * x, mechanism.k * y)
        case GaussianMechanism(sigma=sigma) | DiscreteGaussianMechanism(sigma=sigma):
            return lambda outputs: _summed(((outputs - y) ** 2 - (outputs - x) ** 2) / (2 * sigma**2))
        case LaplaceMechanism(scale=scale) | GeometricMechanism(scale=scale):
            # Unrounded, where it is constant the last bits of this tell how the noise was added, not what the law says.
            return lambda outputs: np.round(_summed((np.abs(outputs - y) - np.abs(outputs - x)) / scale), _DECIMALS)
        case WholePosterior():
            return _finite_ratio(mechanism, x, y)
    return None


def _summed(terms: Array) -> Array:
    return np.asarray(terms.reshape(len(terms), -1).sum(axis=1))


def _dirichlet_ratio(u: Array, v: Array) -> Statistic:
    def log_beta(a: Array) -> float:
        return float(np.sum(gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))))

    constant = log_beta(v) - log_beta(u)
    changed = u != v
    return lambda outputs: constant + np.log(np.asarray(outputs)[:, changed]) @ (u - v)[changed]


def _finite_ratio(mechanism: WholePosterior, x: Array, y: Array) -> Statistic:
    outcomes, p, q = aggregated_laws(mechanism, x, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(p) - np.log(q), nan=0.0, posinf=1e300, neginf=-1e300)
    known = dict(zip(map(tuple, outcomes.tolist()), ratios.tolist(), strict=True))

    def ratio(outputs: Outputs) -> Array:
        return np.array([known.get(tuple(output), 0.0) for output in np.asarray(outputs, dtype=np.int64).tolist()])

    return ratio


def learned(from_x: Outputs, from_y: Outputs, *, last_bits: bool = False) -> list[Statistic]:
    """Statistics learned from outputs of a black box: by pattern, and with a linear or a quadratic discriminant.

    The pattern of an output is its shape and where it is zero or not finite. The discriminants see the outputs of the
    commonest shape, as logarithms if none is negative.

    Parameters
    ----------
    from_x, from_y : array or list of array
        Outputs that are not used again to count.
    last_bits : bool
        Discriminants of the places of the last bits that are set instead of the numbers themselves.

    References
    ----------
    Hastie, Tibshirani and Friedman (2009), The elements of statistical learning, section 4.3.
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    patterns = _pattern_ratio(from_x, from_y)
    (shape, _), *_ = Counter([output.shape for output in [*from_x, *from_y]]).most_common(1)
    x, y = _of_shape(from_x, shape), _of_shape(from_y, shape)
    if not x.size or min(len(x), len(y)) < 2:
        return [patterns]
    pooled = np.concatenate([x, y])
    features = _last_bits if last_bits else _scaled(pooled)

    centre, spread = features(pooled).mean(axis=0), features(pooled).std(axis=0)
    varies = spread > 0
    if not np.any(varies):
        return [patterns]

    def standard(values: Array) -> Array:
        return np.asarray((features(values) - centre)[:, varies] / spread[varies])

    discriminants = [_linear(standard(x), standard(y)), _quadratic(standard(x), standard(y))]
    if last_bits:
        # A single bit below all that a sum can have is enough.
        discriminants += _single(standard(x), standard(y))

    def joined(discriminant: Callable[[Array], Array]) -> Statistic:
        def statistic(outputs: Outputs) -> Array:
            scores = patterns(outputs)
            inside = np.array([output.shape == shape for output in outputs])
            if np.any(inside):
                scores[inside] += discriminant(standard(_of_shape(outputs, shape)))
            return scores

        return statistic

    return [patterns, *(joined(discriminant) for discriminant in discriminants)]


def _of_shape(outputs: Outputs, shape: tuple[int, ...]) -> Array:
    """Shape (m, size); what is not a number counts as 0, its pattern is seen elsewhere."""
    chosen = [output.ravel() for output in outputs if output.shape == shape]
    return np.asarray(
        np.clip(np.nan_to_num(np.array(chosen).reshape(len(chosen), math.prod(shape))), -_LARGEST, _LARGEST)
    )


def _scaled(pooled: Array) -> Callable[[Array], Array]:
    """Logarithms, if none of these numbers is negative; the numbers themselves otherwise."""
    positive = pooled[pooled > 0]
    if not positive.size or pooled.min() < 0:
        return lambda values: values
    floor = float(positive.min()) / 2
    # A negative value that appears only later is as low as zero.
    return lambda values: np.asarray(np.log(np.maximum(values, 0.0) + floor))


def _last_bits(values: Array) -> Array:
    """Binary exponent of the last bit that is set; that of 0 is 0."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    # The lowest bit of a whole number, as a power of two.
    _, lowest = np.frexp((whole & -whole).astype(np.float64))
    return np.where(whole == 0, 0.0, exponent - 54.0 + lowest)


def _pattern(output: Array) -> tuple[tuple[int, ...], bytes]:
    # 0, 1 or 2 for each entry.
    return output.shape, ((output == 0) + 2 * ~np.isfinite(output)).astype(np.int8).tobytes()


def _pattern_ratio(from_x: Outputs, from_y: Outputs) -> Statistic:
    """Logarithm of how much commoner a pattern is, with half an observation added to each count."""
    in_x, in_y = (Counter(_pattern(output) for output in outputs) for outputs in (from_x, from_y))
    return lambda outputs: np.array(
        [np.log((in_x[kind] + 0.5) / (in_y[kind] + 0.5)) for kind in map(_pattern, outputs)]
    )


def _linear(x: Array, y: Array) -> Callable[[Array], Array]:
    pooled = (np.atleast_2d(np.cov(x.T)) + np.atleast_2d(np.cov(y.T))) / 2
    values, vectors = np.linalg.eigh(pooled)
    direction = vectors @ ((vectors.T @ (x.mean(axis=0) - y.mean(axis=0))) / np.maximum(values, _LEAST_VARIANCE))
    return lambda points: np.asarray(points @ direction)


def _single(x: Array, y: Array) -> list[Callable[[Array], Array]]:
    """The few entries of which the means differ most."""
    furthest = np.argsort(-np.abs(x.mean(axis=0) - y.mean(axis=0)), kind="stable")[:_SINGLE].tolist()
    return [partial(_entry, i=i) for i in furthest]


def _entry(points: Array, i: int) -> Array:
    return np.asarray(points[:, i])


def _quadratic(x: Array, y: Array) -> Callable[[Array], Array]:
    of_x, of_y = _normal(x), _normal(y)
    return lambda points: of_x(points) - of_y(points)


def _normal(sample: Array) -> Callable[[Array], Array]:
    """Logarithmic density of the normal law with the moments of a sample, up to a constant."""
    mean = sample.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(sample.T)))
    values = np.maximum(values, _LEAST_VARIANCE)
    return lambda points: -np.sum(((points - mean) @ vectors) ** 2 / values + np.log(values), axis=1) / 2
