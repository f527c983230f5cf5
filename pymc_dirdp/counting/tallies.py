"""Codes of records to counts of cells. **Secret**."""

import math
from collections.abc import Sequence

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.counting.codes import Frame
from pymc_dirdp.counting.columns import column_of, values_of
from pymc_dirdp.errors import DataError

__all__ = ["row_counts", "tabulate"]


def tabulate(columns: Sequence[Integers], shape: tuple[int, ...], times: Integers | None = None) -> Integers:
    """How many records have each combination of codes, where `times` says how many each row stands for. **Secret**."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    # With weights NumPy adds in doubles, which are exact for as many records as `row_counts` allows.
    return np.bincount(cells, times, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def row_counts(frame: Frame, name: str) -> Integers:
    """How many records each row of a frame stands for, according to a column. **Secret**.

    Raises
    ------
    DataError
        If an entry is no integer from 0 on, or they add up to more than 2**53. The message holds no number.
    """
    values = values_of(column_of(frame, name), name)
    whole = all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_RECORDS and value % 1 == 0
        for value in values
    )
    if not whole or sum(map(int, values)) > MOST_RECORDS:
        raise DataError(
            f"The column {name!r} holds something other than whole numbers from 0 on, or more records than 2**53."
        )
    return np.array(values, dtype=np.int64)
