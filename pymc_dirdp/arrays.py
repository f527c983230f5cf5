"""Short names for the types of arrays, and what arrays of many equal values have in common."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def different[T: np.generic](values: NDArray[T]) -> tuple[NDArray[T], Integers]:
    """The different ones of many values, in order, and the place of each among them: where they are few, fast."""
    if values.dtype == np.int64 and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < values.size:
            # Integers that lie close together are looked up, which takes no search.
            there = np.zeros(high - low + 1, dtype=np.bool_)
            there[values - low] = True
            place = np.cumsum(there) - 1
            return np.flatnonzero(there).astype(values.dtype) + low, place[values - low]
    found = np.unique(values)
    return found, np.searchsorted(found, values)
