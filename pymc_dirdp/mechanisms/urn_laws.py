"""Probabilities of the counts of urns at two data sets: what audits need of them."""

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.finite_laws import FiniteLaws, product_of

__all__ = ["urn_laws"]

# For more steps the counts of two cells are not listed together.
_MOST_STEPS = 256


def urn_laws(u: Array, v: Array, steps: int) -> FiniteLaws:
    """Two tables of urns, with parameters u and v of shape (..., d) and the same number of steps in every row.

    Of each row in which something changes, the counts of the first cell that changes are listed, and for up to 256
    steps those of the second one too. Cells that are left out have no probability of their own, so the divergences are
    lower bounds, and exact where at most two cells of a row change.

    Raises
    ------
    ArgumentError
        If nothing changes.
    """
    d = u.shape[-1]
    rows = [
        (p, q, np.flatnonzero(p != q))
        for p, q in zip(u.reshape(-1, d), v.reshape(-1, d), strict=True)
        if np.any(p != q)
    ]
    if not rows:
        raise ArgumentError("Expected two data sets that differ.")
    parts = []
    for p, q, changed in rows:
        listed = changed[: 2 if d > 2 and steps <= _MOST_STEPS else 1]
        parts.append(FiniteLaws(*(_law(parameters, listed, steps) for parameters in (p, q))))
    return product_of(parts)


def _law(parameters: Array, listed: Integers, steps: int) -> Array:
    """Logarithms of the probabilities of the counts of the listed cells; the other cells are taken together."""
    counts = np.stack(np.meshgrid(*[np.arange(steps + 1)] * len(listed), indexing="ij"), axis=-1)
    counts = counts.reshape(-1, len(listed))
    counts = counts[counts.sum(axis=-1) <= steps]
    cells = np.append(parameters[listed], np.delete(parameters, listed).sum())
    seen = np.column_stack([counts, steps - counts.sum(axis=-1)])
    logs = (gammaln(cells + seen) - gammaln(cells) - gammaln(seen + 1.0)).sum(axis=-1)
    return np.asarray(logs - np.logaddexp.reduce(logs))
