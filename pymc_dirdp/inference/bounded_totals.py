"""Where the totals of rows end in practice: beyond, they are improbable by a bound that takes no exact sums."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.evidence import Evidence
from pymc_dirdp.inference.number_laws import CUT
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.tilted import tilt_for

__all__ = ["bounded"]

Array = NDArray[np.float64]

# A row is looked at up to so many times its even share of the records at least.
_SHARES = 64
# Beyond that number, the bounds of all totals take longer than they save.
_MOST = 100_000
# Rough sums may be that much too small, on the logarithmic scale.
_SLACK = 0.1
# The tilts of bounds are made for totals that grow by this factor.
_GROWTH = 8
# With a sum that is as probable as that, what is left out of a row stays negligible.
_PROBABLE = -12.0


def bounded(
    totals: ProductLaw, evidences: Sequence[Evidence], log_factors: Sequence[Callable[[Array], Array]] | None
) -> ProductLaw:
    """The distribution of the totals of rows, without numbers that are improbable by more than what is always left out.

    Most rows of a table of many hold few records. With a tilt s, all tables of a row with total n together weigh at
    most `exp(K(s) - s n)`, where `exp(K)` is the sum of the tilted weights of all tables (Chernoff). That is compared
    with what the smaller totals weigh.

    Parameters
    ----------
    totals : ProductLaw
        Of the totals.
    evidences : sequence of Evidence
        Of the rows.
    log_factors : sequence of callables, optional
        Logarithms of the factors of totals, by row.
    """
    size = len(evidences)
    first = evidences[0].least + _SHARES * (1 + totals.total // size)
    if totals.total <= evidences[0].small or totals.total > _MOST or 2 * first > totals.total:
        return totals
    ends = np.full(size, first, dtype=np.int64)
    cells = replace(totals, at_most=ends).cells()
    try:
        cells.settle(tilt_for(cells, totals.total), short=False)
    except ArgumentError:
        return totals
    for row, evidence in enumerate(evidences):
        n = np.arange(first + 1.0, totals.total + 1)
        beyond = totals.log_prior_weight(n, np.full(n.shape, row)) + cells.tilt * n + _bound(evidence, n)
        beyond += log_factors[row](n) if log_factors else 0.0
        matters = np.logaddexp.accumulate(beyond[::-1])[::-1] > cells.log_totals[row] - CUT
        ends[row] = first + np.count_nonzero(matters)
    # A row that reaches further than at first lowers the tilt, and with it what is left out of the others.
    found = replace(totals, at_most=ends)
    tilted = found.tilted
    probable = tilted.log_sum_of_products - tilted.cells.log_totals.sum() + tilted.cells.tilt * totals.total
    return found if tilted.cells.cut == CUT and probable > _PROBABLE else totals


def _bound(evidence: Evidence, n: Array) -> Array:
    """At least the logarithm of the probability of an output for each of some totals."""
    cells, found = evidence.law.cells(), np.full(n.shape, np.inf)
    target = n[0]
    while True:
        try:
            tilt = tilt_for(cells, int(min(target, n[-1])))
            cells.settle(tilt, tolerance=1e-3, short=False)
        except ArgumentError:
            # Hardly any table has so many records; the bounds so far hold for them, too.
            break
        found = np.minimum(found, cells.log_totals.sum() - tilt * n)
        if target >= n[-1]:
            break
        target *= _GROWTH
    return np.asarray(found + _SLACK + evidence.law.log_normaliser(n))
