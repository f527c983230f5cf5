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
            present = np.zeros(high - low + 1, dtype=np.bool_)
            present[values - low] = True
            place = np.cumsum(present) - 1
            return np.flatnonzero(present).astype(values.dtype) + low, place[values - low]
    unique = np.unique(values)
    return unique, np.searchsorted(unique, values)
