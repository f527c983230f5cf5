"""Products of signs: patterns in several entries together of which no single entry shows anything."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.auditing.seen import Seen

__all__ = ["parities"]

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

# Entries that are looked at, and how many of their signs are multiplied at most. Pairs are of fewer entries.
_ENTRIES, _LARGEST_SUBSET = 8, 4
_ORDERED, _LARGEST_OF_ORDERS = 6, 3
_KEPT = 2
# Beyond, a double holds no odd numbers.
_WHOLE = 2.0**53


@final
@dataclass(frozen=True, eq=False)
class _Reader:
    """Signs of an output, +1 or -1: above zero, above the median, odd, and which of two entries is the larger."""

    entries: NDArray[np.intp]
    medians: Array

    def read(self, outputs: Seen) -> list[tuple[Signs, int]]:
        """Each kind of sign, shape (n, m), and how many of them are multiplied at most."""
        values = outputs.numbers[:, self.entries]
        first = values[:, :_ORDERED]
        i, j = np.triu_indices(first.shape[1], 1)
        return [
            (_sign(values > 0), _LARGEST_SUBSET),
            (_sign(values > self.medians), _LARGEST_SUBSET),
            (_sign((np.abs(values) < _WHOLE) & (np.mod(np.floor(values), 2) == 1)), _LARGEST_SUBSET),
            (_sign(first[:, i] > first[:, j]), _LARGEST_OF_ORDERS),
        ]


def parities(x: Seen, y: Seen, changed: NDArray[np.intp]) -> list[Callable[[Seen], Array]]:
    """The products of signs that differ most between the data sets, over all small subsets of a few entries.

    Parameters
    ----------
    x, y : Seen
        Outputs that are not used again to count.
    changed : array of int
        Entries in which the two data sets differ; they are looked at first.
    """
    entries = x.entries(changed, _ENTRIES)
    reader = _Reader(entries, np.median(np.concatenate([x.numbers, y.numbers])[:, entries], axis=0))
    found: list[tuple[float, int, tuple[int, ...], float]] = []
    for kind, ((of_x, most), (of_y, _)) in enumerate(zip(reader.read(x), reader.read(y), strict=True)):
        for length in range(1, min(most, of_x.shape[1]) + 1):
            for subset in combinations(range(of_x.shape[1]), length):
                apart = float(_product(of_x, subset).mean() - _product(of_y, subset).mean())
                # A statistic is the larger for x.
                found.append((-abs(apart), kind, subset, math.copysign(1.0, apart)))
    return [_statistic(reader, kind, subset, sign) for _, kind, subset, sign in sorted(found)[:_KEPT]]


def _statistic(reader: _Reader, kind: int, subset: tuple[int, ...], sign: float) -> Callable[[Seen], Array]:
    return lambda outputs: np.asarray(sign * _product(reader.read(outputs)[kind][0], subset))


def _sign(yes: NDArray[np.bool_]) -> Signs:
    return np.where(yes, 1, -1).astype(np.int8)


def _product(signs: Signs, subset: tuple[int, ...]) -> Signs:
    product: Signs = signs[:, subset[0]]
    for i in subset[1:]:
        product = product * signs[:, i]
    return product
