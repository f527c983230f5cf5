"""Short names for the types of arrays."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Integers"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
