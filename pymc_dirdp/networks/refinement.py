"""Refinement of synthetic records: single values change while this brings counts of pairs nearer to their expectation.

Random records have a sampling error, which is larger for few records. Each change lowers the sum of squared errors of
all pairs. Simultaneous changes would overshoot.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.sampling.bits import compiled

_SWEEPS = 2


def refine(codes: Integers, lengths: Sequence[int], expected: Array, rng: np.random.Generator) -> Integers:
    """Records whose counts of pairs are nearer to their expectation.

    Parameters
    ----------
    codes : array of int, shape (records, columns)
    lengths : sequence of int
        The number of categories of each column.
    expected : array, shape (categories, categories)
        The expected count of each pair of categories, with the categories of all columns side by side.
    rng : numpy.random.Generator

    Returns
    -------
    codes : array of int, shape (records, columns)

    Examples
    --------
    >>> always_alike = np.array([[0, 0, 2, 0], [0, 0, 0, 2], [2, 0, 0, 0], [0, 2, 0, 0]])
    >>> records = refine(np.array([[0, 0], [0, 0], [0, 1], [0, 1]]), [2, 2], always_alike, np.random.default_rng(0))
    >>> sorted(records.tolist())
    [[0, 0], [0, 0], [1, 1], [1, 1]]
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    codes = np.ascontiguousarray(codes, dtype=np.int64)
    errors = -np.asarray(expected, dtype=np.float64)
    for first in range(len(lengths)):
        for second in range(len(lengths)):
            if first != second:
                np.add.at(errors, (starts[first] + codes[:, first], starts[second] + codes[:, second]), 1.0)
    for _ in range(_SWEEPS):
        if not compiled_sweep()(codes, starts, errors, rng.permutation(codes.size)):
            break
    return codes


@cache
def compiled_sweep() -> Callable[..., int]:
    """The sweep, compiled at the first call."""
    return compiled("int64(int64[:, ::1], int64[::1], float64[:, ::1], int64[::1])", _sweep)


def _sweep(codes: Any, starts: Any, errors: Any, order: Any) -> int:
    """Change each value for the one that lowers the sum of squares most, if any does. Return the number of changes."""
    columns, changes = codes.shape[1], 0
    sums = np.zeros(errors.shape[0])
    for number in order:
        row, column = number // columns, number % columns
        start, size, value = starts[column], starts[column + 1] - starts[column], codes[row, column]
        sums[:size] = 0.0
        for other in range(columns):
            if other != column:
                place = starts[other] + codes[row, other]
                for k in range(size):
                    sums[k] += errors[place, start + k]
        # From a to b the sum of squares grows by twice sums[b] - sums[a] + columns - 1.
        best, least = value, sums[value] - (columns - 1) - 1e-9
        for k in range(size):
            if k != value and sums[k] < least:
                best, least = k, sums[k]
        if best != value:
            changes += 1
            codes[row, column] = best
            for other in range(columns):
                if other != column:
                    place = starts[other] + codes[row, other]
                    errors[place, start + value] -= 1
                    errors[start + value, place] -= 1
                    errors[place, start + best] += 1
                    errors[start + best, place] += 1
    return changes
