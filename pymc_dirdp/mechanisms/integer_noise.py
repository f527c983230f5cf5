"""Integer noise outside of the exact sampler: the scale that is used, moments, and draws in floating point."""

import math

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.discrete_noise import dyadic_above

__all__ = ["adds_up_to_0", "gaussian_deviation", "gaussian_noise", "geometric_noise", "round_scale_up"]

# A double cannot hold noise of a larger scale; with a scale below the inverse all noise is 0.
_LARGEST = 2.0**1000
# Above this variance a discrete Gaussian variable is a rounded normal one up to 1e-7 of the variance.
_MOST_LISTED = 1e6
# Numbers that add up to 0 do so up to this share of their sizes if they are rounded.
_ROUNDING = 2.0**-50


def round_scale_up(scale: float) -> float:
    """A scale rounded up to the rational number that the exact sampler uses."""
    if not 1 / _LARGEST <= positive(scale=scale) <= _LARGEST:
        raise ArgumentError(
            f"Expected scale between 2**-1000 and 2**1000, got scale={scale:g}. Ask for a larger epsilon, or a smaller "
            "one: noise of this size is never, or always, more than a double can hold."
        )
    return float(dyadic_above(float(scale)))


def adds_up_to_0(noise: Array) -> NDArray[np.bool_]:
    """Whether numbers along the last axis do. Very large noise is rounded to a double, cell by cell."""
    return np.asarray(np.abs(noise.sum(axis=-1)) <= _ROUNDING * np.abs(noise).sum(axis=-1))


def geometric_noise(scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """The difference of two geometric variables, which are exponential ones rounded down, as doubles."""
    first, second = scale * rng.standard_exponential((2, *shape))
    return np.asarray(np.floor(first) - np.floor(second))


def gaussian_noise(variance: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Discrete Gaussian noise as doubles, by the inverse of its distribution function."""
    if variance > _MOST_LISTED:
        return np.rint(rng.normal(0.0, math.sqrt(variance), size=shape))
    k, distribution = _listed(variance)
    return np.asarray(
        k[np.minimum(np.searchsorted(np.cumsum(distribution), rng.random(shape), side="right"), len(k) - 1)]
    )


def gaussian_deviation(variance: float) -> float:
    """The true standard deviation of discrete Gaussian noise; nearly the root of its parameter if that is above 1."""
    if variance > 100:
        return math.sqrt(variance)
    k, distribution = _listed(variance)
    return math.sqrt(float(distribution @ k**2))


def _listed(variance: float) -> tuple[Array, Array]:
    reach = 1 + math.ceil(10 * math.sqrt(variance))
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    weights: Array = np.exp(-(k**2) / (2 * variance))
    return k, weights / weights.sum()
