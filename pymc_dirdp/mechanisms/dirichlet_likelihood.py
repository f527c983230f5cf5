"""The likelihood of a Dirichlet draw, or of the urn that draws it in whole numbers: a product over cells and rows."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood
from pymc_dirdp.sampling.exact import urn_counts

__all__ = ["cell_terms", "log_ratio", "row_likelihood", "row_terms"]

Array = NDArray[np.float64]

# The least normal double.
_TINY = 2.3e-308


def cell_terms(u: Array, output: ArrayLike, steps: int | None) -> Array:
    """The factor of each cell with parameter u, as a logarithm. Shapes broadcast.

    Parameters
    ----------
    u : array, shape (..., d)
        Parameters of the Dirichlet law.
    output : array_like, shape (..., d)
        A draw.
    steps : int or None
        Of the urn: then it is the probability of its counts, in place of a density.
    """
    return _terms(u, _seen(output, steps), steps)


def row_likelihood(alpha: Array, r: float, output: ArrayLike, steps: int | None) -> RowLikelihood:
    """The likelihood of one row of an output as a function of counts, with parameters `r * counts + alpha`.

    Parameters
    ----------
    alpha : array, shape (d,)
    r : float
    output : array_like, shape (d,)
    steps : int or None
    """
    seen, total = _seen(output, steps), alpha.sum()
    return RowLikelihood(
        lambda counts, cells: _terms(r * counts + alpha[cells], seen[cells], steps),
        lambda totals: row_terms(r * totals + total, steps),
        smooth=True,
    )


def _seen(output: ArrayLike, steps: int | None) -> Array:
    """What the likelihood depends on: logarithms of the components, or the counts of the urn."""
    y = np.asarray(output, dtype=np.float64)
    return np.log(np.maximum(y, _TINY)) if steps is None else urn_counts(y, steps).astype(np.float64)


def _terms(u: Array, seen: Array, steps: int | None) -> Array:
    if steps is None:
        return np.asarray((u - 1) * seen - gammaln(u))
    return np.asarray(gammaln(u + seen) - gammaln(u) - gammaln(seen + 1.0))


def row_terms(total: Array, steps: int | None) -> Array:
    """The factor of each row whose parameters add up to `total`, as a logarithm. Elementwise."""
    if steps is None:
        return np.asarray(gammaln(total))
    return np.asarray(gammaln(total) - gammaln(total + steps) + gammaln(steps + 1.0))


def log_ratio(outputs: Array, u: Array, v: Array, floor: float) -> Array:
    """Logarithm of the density with parameters u over that with v; cells that do not change cancel exactly.

    Parameters
    ----------
    outputs : array, shape (n, ...)
    u, v : array, shape (...)
    floor : float
        Added to the outputs.
    """

    def log_beta(a: Array) -> float:
        return float(np.sum(gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))))

    changed = u != v
    # What claims to be a mechanism may put out anything.
    logs = np.log(np.maximum(outputs[..., changed] + floor, _TINY))
    return np.asarray(log_beta(v) - log_beta(u) + logs @ (u - v)[changed])
