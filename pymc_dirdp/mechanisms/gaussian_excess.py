"""The integral behind every hockey-stick divergence of Gaussian noise, without cancellation."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.numerics.quadrature import bulk_breaks, nodes

__all__ = ["GaussianExcess", "gaussian_excess"]

Array = NDArray[np.float64]

# Beyond so many standard deviations below 0 there is a probability of 1e-33; it is added.
_LEFT, _LEFT_OUT = -12.0, 1e-32
# exp(-50) of the integrand is left out above; its bound is added.
_REACH = 100.0


@final
@dataclass(frozen=True)
class GaussianExcess:
    """Two numbers about `f(x) = phi(x) (1 - exp(-ratio (x - start)))`, 0 below `start`; phi is the normal density.

    Attributes
    ----------
    integral : float
        Of f, from above up to rounding.
    variation : float
        An upper bound on the total variation of the derivative of f, its jump at `start` included.
    """

    integral: float
    variation: float


def gaussian_excess(ratio: float, start: float) -> GaussianExcess:
    """The integral of :class:`GaussianExcess` and its bound.

    With `start = epsilon / ratio - ratio / 2` the integral is the hockey-stick divergence at epsilon of two normal laws
    whose centres are `ratio` standard deviations apart. Its integrand is positive, so nothing cancels.

    Parameters
    ----------
    ratio : float
        Positive.
    start : float
        Any real number.
    """
    # Everything is relative to the density at the start, if that is in the upper tail.
    reference = max(start, 0.0)
    left = max(0.0, _LEFT - start)
    end = math.sqrt(reference**2 + _REACH)
    y, weights = nodes(left + bulk_breaks(min(1.0, 1 / ratio, 1 / (1 + reference)), end - start - left))
    x = start + y
    # (x**2 - reference**2) / 2, of which nothing cancels in the upper tail.
    density = np.exp(-(y * (y / 2 + start) if start > 0 else x**2 / 2)) * weights
    fallen = np.exp(-ratio * y)
    integral = float(density @ -np.expm1(-ratio * y))
    bends = (x**2 + 1) * (1 - fallen) + ratio * (2 * np.abs(x) + ratio) * fallen
    at_start = math.exp(-(start**2 - reference**2) / 2)
    beyond = math.exp(-_REACH / 2) * min(1 / end, ratio * (1 + abs(start) / end))
    scale = math.exp(-(reference**2) / 2) / math.sqrt(2 * math.pi)
    below = _LEFT_OUT if left else 0.0
    return GaussianExcess(scale * (integral + beyond) + below, scale * (float(density @ bends) + ratio * at_start))
