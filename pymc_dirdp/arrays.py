"""Short names for the types of arrays, and their distinct values."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def distinct_values[T: np.generic](values: NDArray[T]) -> tuple[NDArray[T], Integers]:
    """The distinct values in ascending order, and the index of each value among them."""
    if values.dtype == np.int64 and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < values.size:
            # A table of integers in a short range is faster than a search.
            present = np.zeros(high - low + 1, dtype=np.bool_)
            present[values - low] = True
            place = np.cumsum(present) - 1
            return np.flatnonzero(present).astype(values.dtype) + low, place[values - low]
    unique = np.unique(values)
    return unique, np.searchsorted(unique, values)
