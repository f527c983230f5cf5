"""What every mechanism is, and the check of the counts it is given."""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import numbers_or_none
from pymc_dirdp.errors import DataError
from pymc_dirdp.privacy.curves import PrivacyCurves

__all__ = ["Mechanism", "checked_counts"]

Array = NDArray[np.float64]

# Above 2**53 a double no longer holds every whole number, and the sums that follow would be rounded.
_LARGEST_COUNT = 2.0**53


class Mechanism(PrivacyCurves):
    """A randomised release of a table of counts, with exact or upper-bound privacy curves."""

    covers_all_draws: ClassVar[bool] = False
    """Whether one release serves any number of draws; otherwise each draw is a release of its own."""


def checked_counts(counts: ArrayLike, shape: tuple[int, ...], min_count: float = 0.0) -> Array:
    """Counts as floats, or an error that says what is wrong with them and never what they are.

    Parameters
    ----------
    counts : array_like of whole numbers, shape `shape`
        The secret. Each below 2**53.
    shape : tuple of int
        The public shape of the table.
    min_count : float
        The public promise that no cell holds fewer records than this.

    Returns
    -------
    counts : array of float, shape `shape`
    """
    array = numbers_or_none(counts)
    if array is None:
        raise DataError("Expected counts to be an array of whole numbers.")
    if array.shape != shape:
        raise DataError(f"Expected counts of shape {shape}, the shape of alpha, got another shape.")
    if not np.all(np.isfinite(array)):
        raise DataError("Some counts are missing or not finite. Drop those records or give them a category.")
    if np.any(array < 0):
        raise DataError("Some counts are negative.")
    if np.any(array != np.floor(array)):
        raise DataError(
            "Some counts are not whole numbers. The guarantee is for whole records; see published.p1_theorem_1."
        )
    if np.any(array > _LARGEST_COUNT):
        raise DataError("Some counts are above 2**53 and cannot be held exactly.")
    if min_count and np.any(array < min_count):
        raise DataError(
            "Some cell holds fewer records than min_count promises, so the guarantee would be false. "
            "Lower min_count; it must hold for every data set that could have occurred."
        )
    return array
