"""The most powerful statistic: the likelihood ratio of two data sets, where a mechanism has a likelihood."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.auditing.neighbours import aggregated_laws
from pymc_dirdp.auditing.seen import Seen
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior

__all__ = ["likelihood_ratio"]

Array = NDArray[np.float64]
Statistic = Callable[[Seen], Array]

# Of a likelihood ratio.
_DECIMALS = 9
# The least normal double.
_TINY = 2.3e-308


def likelihood_ratio(mechanism: Mechanism, x: Array, y: Array, floor: float = 0.0) -> Statistic | None:
    """Logarithm of the likelihood ratio of x to y; None where it is not known.

    Parameters
    ----------
    mechanism : Mechanism
        Of this library.
    x, y : array
        The two data sets.
    floor : float
        Added to what a Dirichlet sampler on a grid puts out, which may be zero: half a step of the grid.
    """
    match mechanism:
        case DirichletMechanism():
            return _dirichlet_ratio(mechanism.concentration(x), mechanism.concentration(y), floor)
        case SimplexMechanism():
            return _dirichlet_ratio(mechanism.k * x, mechanism.k * y, floor)
        case NoisyCounts():
            return _noise_ratio(mechanism, x.ravel(), y.ravel())
        case WholePosterior():
            return _finite_ratio(mechanism, x, y)
    return None


def _noise_ratio(mechanism: NoisyCounts, x: Array, y: Array) -> Statistic | None:
    """Normal and Laplace noise; on whole numbers the ratios are the same, because the constants cancel."""
    sigma, scale = getattr(mechanism, "sigma", None), getattr(mechanism, "scale", None)
    if sigma is not None:
        # The difference of the squares, factored: nothing cancels where the counts are large.
        return lambda seen: np.asarray((seen.numbers - (x + y) / 2) @ (x - y) / sigma**2)
    if scale is not None:
        # Unrounded, where it is constant the last bits of this tell how the noise was added, not what the law says.
        return lambda seen: np.round(
            np.sum((np.abs(seen.numbers - y) - np.abs(seen.numbers - x)) / scale, axis=1), _DECIMALS
        )
    return None


def _dirichlet_ratio(u: Array, v: Array, floor: float) -> Statistic:
    def log_beta(a: Array) -> float:
        return float(np.sum(gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))))

    constant = log_beta(v) - log_beta(u)
    changed = (u != v).ravel()
    powers = (u - v).ravel()[changed]
    # What claims to be a mechanism may put out anything.
    return lambda seen: np.asarray(constant + np.log(np.maximum(seen.numbers[:, changed] + floor, _TINY)) @ powers)


def _finite_ratio(mechanism: WholePosterior, x: Array, y: Array) -> Statistic:
    outcomes, p, q = aggregated_laws(mechanism, x, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(p) - np.log(q), nan=0.0, posinf=1e300, neginf=-1e300)
    known = dict(zip(map(tuple, outcomes.tolist()), ratios.tolist(), strict=True))

    def ratio(seen: Seen) -> Array:
        return np.array([known.get(tuple(output), 0.0) for output in seen.numbers.astype(np.int64).tolist()])

    return ratio
