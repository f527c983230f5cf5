"""The Pólya urn: Dirichlet-multinomial counts from whole numbers and random bits alone."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.sampling.bits import Bits, Words

__all__ = ["row_totals", "urn"]

Integers = NDArray[np.int64]

_LARGEST_WORD = np.uint64(2**64 - 1)
# What a step adds up stays below this, so that no sum of 64-bit integers overflows.
_LIMIT = 2**63


def urn(weights: Integers, denominator: int, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Counts from the Dirichlet-multinomial law with parameters `weights / denominator`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new one from the weights. The counts of
    all steps have the law of a table of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(weights / denominator)`. No floating-point number takes part.

    Parameters
    ----------
    weights : array of int, shape (..., d)
        Whole numbers, at least 1. The secret; errors never show it.
    denominator : int
        At least 1.
    steps : int
        Records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        Where the randomness comes from. Rows and draws take their words one after the other.

    Returns
    -------
    counts : array of int, shape (draws, ..., d)
        Each row adds up to `steps`.

    Raises
    ------
    UnattainableError
        If the whole numbers would not fit into 63 bits. With weights from :func:`pymc_dirdp.sampling.rationals.rounded`
        they always do.

    Notes
    -----
    The law is exact, but the memory that is touched depends on the secret, the number of random words that are thrown
    away depends on it too, and so does the running time: the counts are not safe from somebody who can measure these.

    The urn is compiled at its first use in a process, which takes one to two seconds. Then a million steps take about
    0.03 s.

    References
    ----------
    Theory, Theorem 6.
    """
    rows = np.ascontiguousarray(weights, dtype=np.int64).reshape(-1, weights.shape[-1])
    if max(row_totals(rows), default=0) + denominator * steps >= _LIMIT:
        raise UnattainableError(
            f"The urn needs whole numbers of more than 63 bits for {steps} steps. Use a smaller denominator, or fewer "
            "steps."
        )
    walk = compiled()
    counts = np.zeros((draws, *rows.shape), dtype=np.int64)
    records = np.empty(steps, dtype=np.int32)
    for i, row in enumerate(rows):
        cumulative = np.cumsum(row).astype(np.uint64)
        done = 0
        while done < draws * steps:
            done, used = walk(cumulative, denominator, bits.ahead(), records, counts[:, i], done, _LARGEST_WORD)
            bits.spend(used)
    return counts.reshape(draws, *weights.shape)


def row_totals(table: Integers) -> list[int]:
    """Sums over the last axis of a table of whole numbers >= 0, as Python integers: nothing overflows."""
    rows = table.reshape(-1, table.shape[-1])
    high, low = (rows >> 32).sum(axis=-1), (rows & 0xFFFFFFFF).sum(axis=-1)
    return [(h << 32) + rest for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def _walk(
    cumulative: Words, denominator: int, words: Words, records: NDArray[np.int32], counts: Integers, done: int, top: int
) -> tuple[int, int]:
    """As many steps as the words are good for. All of them unsigned: mixed with signed ones they would turn to floats.

    Parameters
    ----------
    cumulative : array of uint64, shape (d,)
        Cumulative weights.
    denominator : uint64
        What each earlier record weighs.
    words : array of uint64, shape (n,)
        Uniform on 0, ..., top.
    records : array of int32, shape (steps,)
        Categories of the records of the draw in progress. Kept between calls.
    counts : array of int64, shape (draws, d)
        Added to.
    done : int
        Steps done by earlier calls, over all draws.
    top : uint64
        The largest word there is: 2**64 - 1, or less in tests.

    Returns
    -------
    done : int
    used : int
        Words that were looked at.
    """
    draws, steps = counts.shape[0], records.size
    draw, earlier, used = done // steps, done % steps, 0
    one, weight = np.uint64(1), cumulative[-1]
    while draw < draws and used < words.size:
        total = weight + denominator * np.uint64(earlier)
        word = words[used]
        used += 1
        point = word % total
        # The words above the last full round of `total` would favour small remainders: they are thrown away.
        if word - point > top - (total - one):
            continue
        if point < weight:
            # The first category whose cumulative weight exceeds the point.
            category, last = 0, cumulative.size - 1
            while category < last:
                middle = (category + last) // 2
                if cumulative[middle] > point:
                    last = middle
                else:
                    category = middle + 1
        else:
            category = records[(point - weight) // denominator]
        records[earlier] = category
        counts[draw, category] += 1
        earlier += 1
        if earlier == steps:
            draw, earlier = draw + 1, 0
    return draw * steps + earlier, used


@cache
def compiled() -> Callable[..., tuple[int, int]]:
    """The compiled walk. Not cached on disk: that would fail where no directory can be written to."""
    from numba import njit  # Here, because it takes half a second to import.

    words = "Array(uint64, 1, 'C', readonly=True)"
    signature = f"UniTuple(int64, 2)({words}, uint64, {words}, int32[::1], int64[:, :], int64, uint64)"
    walk: Callable[..., tuple[int, int]] = njit(signature)(_walk)
    return walk
