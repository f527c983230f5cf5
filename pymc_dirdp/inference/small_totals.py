"""Sums over all tables with each small total of a row: number by number, and all totals at once."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.inference.convolution import Convolution
from pymc_dirdp.inference.number_laws import ImpossibleError
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.tilted import TiltedCells, tilt_for

__all__ = ["KNOWN", "largest_small", "small_sums", "summed_up_to"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# So many products are added up at most, which takes some milliseconds.
_WORK = 1e7
# Weights down to this share of the largest of their cell are kept, on the logarithmic scale. A sum far above what is
# left out, and above what underflows, has the accuracy of its terms.
_CUT, KNOWN = 700.0, -600.0


def largest_small(law: ProductLaw) -> int:
    """Up to this total, sums are taken for all totals at once."""
    d = len(law.alpha)
    return int(min(law.total, law.least * d + np.sqrt(_WORK / d)))


def summed_up_to(law: ProductLaw, most: int) -> tuple[TiltedCells, Convolution] | None:
    """The cells of a row, and all their sums up to `most`; None if hardly any of these is possible."""
    cells = replace(law, total=most, smooth=False, near=None).cells()
    try:
        # Tilted to the middle, the probabilities of all totals are far from underflow.
        cells.settle(tilt_for(cells, most - (most - law.least * cells.size) // 2), cut=_CUT)
    except ImpossibleError:
        return None
    if cells.lows.sum() > most:
        return None
    sums = Convolution(cells, most, most)
    return TiltedCells(cells, most, sums), sums


def small_sums(law: ProductLaw, most: int) -> tuple[Integers, Array]:
    """Totals up to `most`, and the logarithms of the sums of products of weights over all tables with each of them."""
    summed = summed_up_to(law, most)
    if summed is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    tilted, sums = summed
    totals = np.arange(law.least * len(law.alpha), most + 1)
    totals = totals[sums.log_sum(totals) > KNOWN]
    return totals, tilted.log_sums_of_products(totals)
