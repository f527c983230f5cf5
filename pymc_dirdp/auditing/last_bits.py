"""What the last bits of a floating-point number, and whether it is a quotient, tell about how it was computed."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.frequencies import frequency_ratio, most_telling
from pymc_dirdp.auditing.seen import Keys, Seen, Statistic, hashed

__all__ = ["bit_features", "bit_patterns", "unreachable"]

# How many entries' patterns are tried, how many patterns are kept, and how many entries' last bits are combined.
_ENTRIES, _KEPT, _TOGETHER = 12, 4, 4


def unreachable(values: Array) -> NDArray[np.bool_]:
    """Numbers that are not `1 / S`, rounded, for any double S.

    A component that is the largest of its row and was divided by the sum of `exp(logs - largest)` is such a quotient.
    Near 1 only half of all doubles are such quotients, so another way to normalise shows soon.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        quotient = 1 / values
        near = (quotient, np.nextafter(quotient, 0.0), np.nextafter(quotient, np.inf))
        return ~np.any([1 / s == values for s in near], axis=0)


def bit_features(outputs: Seen) -> Array:
    """Numbers for a discriminant: the place of the last bit that is set in each entry, and facts about each row.

    The facts are whether the row's largest entry is out of reach of a quotient, and by how many units in the last
    place the row's sum misses 1.
    """
    rows = _rows(outputs)
    out_of_reach = unreachable(rows.max(axis=-1)).astype(np.float64)
    some = [out_of_reach.sum(axis=1), out_of_reach.all(axis=1)]
    return np.column_stack([_last_bits(outputs.numbers), out_of_reach, *some, _missing(rows)])


def bit_patterns(x: Seen, y: Seen, changed: NDArray[np.intp]) -> list[Statistic]:
    """Statistics of the patterns of low bits that are commoner for one data set, with the arguments of `parities`."""
    entries = x.entries(changed, _ENTRIES)
    of_x, of_y = _patterns(x, entries), _patterns(y, entries)
    scores = {i: frequency_ratio(of_x[i], of_y[i]) for i in most_telling(of_x, of_y, _KEPT)}

    def statistic(outputs: Seen, i: int) -> Array:
        return scores[i](_patterns(outputs, entries)[i])

    return [partial(statistic, i=i) for i in scores]


def _patterns(outputs: Seen, entries: NDArray[np.intp]) -> list[Keys]:
    """For each entry: trailing zeros; the lowest byte; the lowest bits with the exponent; whether it is a quotient."""
    numbers, rows = outputs.numbers, _rows(outputs)
    largest = rows.max(axis=-1)[:, :_ENTRIES]
    values = np.column_stack([numbers[:, entries], largest, 1 - largest])
    bits, exponents = np.ascontiguousarray(values).view(np.uint64), np.frexp(values)[1]
    by_exponent = (bits & np.uint64(7)) + np.uint64(8) * (exponents + 2048).astype(np.uint64)
    quotients = unreachable(values) + 2 * (np.frexp(values)[0] > np.sqrt(0.5)) + 4 * exponents
    parity = np.bitwise_xor.reduce(bits[:, :_TOGETHER] & np.uint64(1), axis=1)
    kinds = (_last_bits(values).astype(np.int64), bits & np.uint64(255), by_exponent, quotients)
    columns = [column.astype(np.int64).view(np.uint64) for kind in kinds for column in kind.T]
    low = hashed(bits[:, :_TOGETHER] & np.uint64(3))
    return [*columns, parity, low, hashed(np.asarray(_missing(rows)).astype(np.int64).view(np.uint64))]


def _rows(outputs: Seen) -> Array:
    """The outputs as rows of a table, shape (n, rows, d)."""
    d = outputs.shape[-1] if outputs.shape else 1
    return outputs.numbers.reshape(len(outputs), -1, d)


def _missing(rows: Array) -> Array:
    """By how many units of 2**-53 the sum of each row misses 1, clipped to a thousand."""
    return np.clip((rows.sum(axis=-1) - 1) * 2.0**53, -1e3, 1e3)


def _last_bits(values: Array) -> Array:
    """The binary exponent of the last bit that is set; 0 for the number 0."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    # The lowest bit of a whole number, as a power of two.
    _, lowest = np.frexp((whole & -whole).astype(np.float64))
    return np.where(whole == 0, 0.0, exponent - 54.0 + lowest)
