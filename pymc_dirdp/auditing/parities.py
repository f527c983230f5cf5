"""Products of signs: patterns of several entries that no single entry shows."""

import math
from functools import partial, reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.seen import Seen, Statistic

__all__ = ["parities"]

Signs = NDArray[np.int8]

# How many entries are looked at, and how many of their signs are multiplied at most. Pairs are of fewer entries.
_ENTRIES, _LARGEST_SUBSET = 8, 4
_ORDERED, _LARGEST_OF_ORDERS = 6, 3
_KEPT = 2
# No larger double is odd.
_WHOLE = 2.0**53


def parities(x: Seen, y: Seen, changed: NDArray[np.intp]) -> list[Statistic]:
    """The products of signs that differ most between the data sets, over all small subsets of a few entries.

    Parameters
    ----------
    x, y : Seen
        Outputs that are not used again to count.
    changed : array of int
        Entries in which the two data sets differ; they are looked at first.
    """
    entries = x.entries(changed, _ENTRIES)
    medians = np.median(np.concatenate([x.numbers, y.numbers])[:, entries], axis=0)
    differences: list[tuple[float, int, tuple[int, ...], float]] = []
    of_both = zip(_signs(x, entries, medians), _signs(y, entries, medians), strict=True)
    for kind, ((of_x, most), (of_y, _)) in enumerate(of_both):
        for length in range(1, min(most, of_x.shape[1]) + 1):
            for subset in combinations(range(of_x.shape[1]), length):
                apart = float(_product(of_x, subset).mean() - _product(of_y, subset).mean())
                # A statistic has to be larger for x.
                differences.append((-abs(apart), kind, subset, math.copysign(1.0, apart)))

    def statistic(outputs: Seen, kind: int, subset: tuple[int, ...], sign: float) -> Array:
        return np.asarray(sign * _product(_signs(outputs, entries, medians)[kind][0], subset))

    best = sorted(differences)[:_KEPT]
    return [partial(statistic, kind=kind, subset=subset, sign=sign) for _, kind, subset, sign in best]


def _signs(outputs: Seen, entries: NDArray[np.intp], medians: Array) -> list[tuple[Signs, int]]:
    """Each kind of sign, shape (n, m), and how many of them are multiplied at most.

    A sign is +1 where an entry is above zero, above the median or odd, or the larger of two; otherwise it is -1.
    """
    values = outputs.numbers[:, entries]
    first = values[:, :_ORDERED]
    i, j = np.triu_indices(first.shape[1], 1)
    return [
        (_sign(values > 0), _LARGEST_SUBSET),
        (_sign(values > medians), _LARGEST_SUBSET),
        (_sign((np.abs(values) < _WHOLE) & (np.mod(np.floor(values), 2) == 1)), _LARGEST_SUBSET),
        (_sign(first[:, i] > first[:, j]), _LARGEST_OF_ORDERS),
    ]


def _sign(yes: NDArray[np.bool_]) -> Signs:
    return np.where(yes, 1, -1).astype(np.int8)


def _product(signs: Signs, subset: tuple[int, ...]) -> Signs:
    return reduce(np.multiply, (signs[:, i] for i in subset))
