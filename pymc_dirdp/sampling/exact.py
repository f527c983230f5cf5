"""Exact draws from a Dirichlet distribution: the counts of a Pólya urn, in integers."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers, different
from pymc_dirdp.checks import at_least, checked_counts, integer, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import _POWERS, Bits
from pymc_dirdp.sampling.compiled_urn import MAX_STEPS, urns_in_jumps
from pymc_dirdp.sampling.discrete_noise import over_one_power

# So many steps are drawn at once. Their arrays take a few megabytes.
_AT_ONCE = 2**16
# Points among the weights are compared by so many leading bits, and by all others only where these do not decide. Sums
# of numbers below this power of two are 64-bit integers.
_LEADING = 62


def urn(
    rows: Sequence[Sequence[int]] | NDArray[np.object_], digits: int, *, steps: int, draws: int, bits: Bits
) -> Integers:
    """Counts from the Dirichlet-multinomial distribution with parameters `rows / 2**digits`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new one from the weights. The counts of
    all steps have the distribution of a table of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(rows / 2**digits)`. No floating-point number takes part, and no size is refused.

    Parameters
    ----------
    rows : sequence of sequences of int, or array of int of any size
        Secret weights, at least 1: a row for each row of the table.
    digits : int
        Binary digits of the weights after the point.
    steps : int
        Records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        The source of randomness. Parts of many urns take their words one after the other.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The distribution is exact, but the memory that is touched, the number of random words that are rejected and the
    running time depend on the secret. The counts are not safe from somebody who can measure these.

    Which earlier record a step copies does not depend on what that record is. So these numbers are drawn for many steps
    at once, and then the copies are followed back to the records that came from the weights.

    Urns of many rows and draws go side by side. No two of them share a word: `Bits.uniforms` gives each of its limits
    words of its own, which are independent and uniform. So each urn sees the numbers that it would see alone, and all
    are independent, whatever the order in which their words are taken.

    Where there are many steps, they are not drawn one by one: :mod:`pymc_dirdp.sampling.compiled_urn`.

    References
    ----------
    Theory, Theorem 6 and section 11.
    """
    table = np.asarray(rows, dtype=object)
    weights, which = np.unique(table, return_inverse=True)
    return _urn(weights.tolist(), which.reshape(table.shape), digits, steps, draws, bits)


def _urn(
    weights: list[int], which: Integers, digits: int, steps: int, draws: int, bits: Bits, *, worth: int = 2**24
) -> Integers:
    """The same with different weights, and the place of that of each cell among them.

    Urns of `worth` steps or more together are drawn in jumps, which are compiled.
    """
    n_rows, d = which.shape
    # An urn for each draw of each row, the draws of a row one after the other.
    counts, jumps = np.zeros((n_rows, draws, d), dtype=np.int64), np.zeros(n_rows, dtype=np.bool_)
    if steps * n_rows * draws >= worth and max(steps, d) <= MAX_STEPS:
        whole = np.array([min(weight >> digits, MAX_STEPS) for weight in weights], dtype=np.int64)
        jumps = whole[which].sum(axis=1) <= steps
        drawn = counts if jumps.all() else counts[jumps]
        urns_in_jumps(which[jumps], weights, digits, draws=draws, steps=steps, bits=bits, counts=drawn.reshape(-1, d))
        counts[jumps] = drawn
    slow = np.flatnonzero(~jumps)
    walked = np.zeros((len(slow) * draws, d), dtype=np.int64)
    side_by_side = max(1, min(_AT_ONCE, 2**20 // max(steps, d)))
    for start in range(0, len(walked), side_by_side):
        part = walked[start : start + side_by_side]
        row = np.arange(start, start + len(part)) // draws
        slow_weights = np.array(weights, dtype=object)[which[slow[row[0] : row[-1] + 1]]]
        _of_rows(slow_weights, row - row[0], digits, steps, bits, part)
    counts[slow] = walked.reshape(-1, draws, d)
    return np.ascontiguousarray(counts.swapaxes(0, 1))


def _of_rows(rows: NDArray[np.object_], row: Integers, digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Add the records of some urns, each with the weights of a row, to their `counts`, shape (urns, d)."""
    cumulative = np.add.accumulate(rows, axis=1)
    # Every earlier record is a cell of size 1, and the weights lie on the cells after these, of which the last may be
    # covered in part.
    cells = -(-cumulative[:, -1] >> digits)
    large = (cells + steps >= 2**_LEADING).astype(np.bool_)[row]
    for urn in np.flatnonzero(large).tolist():
        counts[urn] += _in_python(cumulative[row[urn]].tolist(), cells[row[urn]], digits, steps, bits)
    if not large.any():
        _walk(cumulative, row, cells.astype(np.int64), digits, steps, bits, counts)
    elif not large.all():
        distinct, row = np.unique(row[~large], return_inverse=True)
        small = np.zeros_like(counts[~large])
        _walk(cumulative[distinct], row, cells[distinct].astype(np.int64), digits, steps, bits, small)
        counts[~large] += small


def _in_python(cumulative: list[int], cells: int, digits: int, steps: int, bits: Bits) -> Integers:
    """The counts of one draw, shape (d,), with numbers of any size."""
    uniform, denominator = bits.uniform, 1 << digits
    # The first category whose cumulative weight exceeds the point.
    records = [bisect_right(cumulative, uniform(cumulative[-1]))]
    while len(records) < steps:
        earlier = len(records)
        cell = uniform(earlier + cells)
        if cell < earlier:
            records.append(records[cell])
        else:
            category = bisect_right(cumulative, ((cell - earlier) << digits) + uniform(denominator))
            # A place that no weight covers is drawn again.
            if category < len(cumulative):
                records.append(category)
    return np.bincount(records, minlength=len(cumulative))


def _walk(
    cumulative: NDArray[np.object_],
    row: Integers,
    cells: Integers,
    digits: int,
    steps: int,
    bits: Bits,
    counts: Integers,
) -> None:
    """Add the records of urns that go side by side to their `counts`, shape (urns, d)."""
    urns, d = counts.shape
    records = np.empty((urns, steps), dtype=np.int32)
    # The first record comes from the weights. Were it to wait for its place among the cells, tiny weights would take
    # billions of trials.
    first = _Weights(cumulative, [(int(total) - 1).bit_length() for total in cumulative[:, -1]])
    later = _Weights(cumulative, [(cell - 1).bit_length() + digits for cell in cells.tolist()])
    within = later.leading - np.searchsorted(_POWERS, cells - 1, side="right")
    start, length = 0, max(1, _AT_ONCE // urns)
    while start < steps:
        stop = min(start + length, steps) if start else 1
        earlier = records[:, :start]
        block = _block(earlier, stop, row, cells, within, later, bits) if start else _first(first, row, bits)
        records[:, start:stop] = block
        places = block + d * np.arange(urns)[:, None]
        counts += np.bincount(places.ravel(), minlength=counts.size).reshape(counts.shape)
        start = stop


class _Weights:
    """Cumulative weights of rows, among which points of so many bits find their category."""

    def __init__(self, cumulative: NDArray[np.object_], lengths: list[int]) -> None:
        self._cumulative = cumulative
        # How many bits are compared at first, and how many are left, by row.
        self.leading: Integers = np.minimum(lengths, _LEADING).astype(np.int64)
        self._left: Integers = np.array(lengths, dtype=np.int64) - self.leading
        self.outside = cumulative.shape[1]
        self._high = (cumulative >> self._left.astype(object)[:, None]).astype(np.int64)

    def categories(self, points: Integers, row: Integers, bits: Bits) -> Integers:
        """The first category whose cumulative weight exceeds each point, given by its leading bits; d if there is none.

        The bits that are left are drawn where they matter.
        """
        # At most so many cumulative weights are below the point or equal to it, and this one may be equal to it.
        category, width = np.zeros(len(points), dtype=np.int64), 1 << (self.outside.bit_length() - 1)
        while width:
            further = category + width
            inside = further <= self.outside
            inside &= self._high[row, np.minimum(further, self.outside) - 1] <= points
            category[inside] = further[inside]
            width >>= 1
        if self._left.any():
            for i in np.flatnonzero((self._high[row, category - 1] == points) & (self._left[row] > 0)).tolist():
                left = int(self._left[row[i]])
                point = (int(points[i]) << left) + bits.uniform(1 << left)
                category[i] = bisect_right(self._cumulative[row[i]].tolist(), point)
        return category


def _first(weights: _Weights, row: Integers, bits: Bits) -> Integers:
    """The category of the first record of each urn, shape (urns, 1)."""
    category = np.empty(len(row), dtype=np.int64)
    todo = np.arange(len(row))
    while todo.size:
        rows = row[todo]
        category[todo] = weights.categories(bits.uniforms(1 << weights.leading[rows]), rows, bits)
        todo = todo[category[todo] == weights.outside]
    return category[:, None]


def _block(
    earlier: NDArray[np.int32],
    stop: int,
    row: Integers,
    cells: Integers,
    within: Integers,
    weights: _Weights,
    bits: Bits,
) -> Integers:
    """The categories of the records behind the earlier ones up to `stop`, shape (urns, stop - start)."""
    urns, start = earlier.shape
    length = stop - start
    record = np.tile(np.arange(start, stop), urns)
    row = np.repeat(row, length)
    limits = record + cells[row]
    # Each record has a place: that of an earlier one, which it copies, or a cell behind these, where the weights are.
    place, category = bits.uniforms(limits), np.empty_like(record)
    new = np.flatnonzero(place >= record)
    while new.size:
        rows = row[new]
        points = (place[new] - record[new]) << within[rows]
        if within.any():
            points += bits.uniforms(1 << within[rows])
        category[new] = weights.categories(points, rows, bits)
        # A place that no weight covers is drawn again.
        rejected = new[category[new] == weights.outside]
        place[rejected] = bits.uniforms(limits[rejected])
        new = rejected[place[rejected] >= record[rejected]]
    copies = np.flatnonzero(place < record)
    draw, place = copies // length, place[copies]
    within_block = place >= start
    before = ~within_block
    category[copies[before]] = earlier[draw[before], place[before]]
    # A copy of a record of this block is followed to its origin, in steps that double.
    copies = copies[within_block]
    origin = np.arange(record.size)
    origin[copies] = draw[within_block] * length + place[within_block] - start
    todo = copies
    while todo.size:
        further = origin[origin[todo]]
        differ = further != origin[todo]
        origin[todo] = further
        todo = todo[differ]
    category[copies] = category[origin[copies]]
    return category.reshape(urns, length)


@dataclass(frozen=True)
class GridShare:
    """What the grid of an exact release adds to the error of a Dirichlet draw. Both numbers are public.

    Attributes
    ----------
    weight : float
        `w = d / (2 m + d)`: the mean of a component is `(1 - w) p + w / d`, where p is that of the Dirichlet
        distribution.
    variance : float
        At most `u0 / m`: the variance of a component is `(1 - w)**2 (1 + u0 / m)` times that of the Dirichlet
        distribution.
    """

    weight: float
    variance: float


def grid_share(alpha: ArrayLike, r: float, n_records: int, *, steps: int) -> GridShare:
    """What the grid adds to a Dirichlet draw, for the largest row that `n_records` records can make.

    Parameters
    ----------
    alpha, r, n_records
        Same as in :func:`default_steps`.
    steps : int
        The number of steps of the urn, `m`.

    Returns
    -------
    share : GridShare

    References
    ----------
    Theory, section 11: the counts of the urn have mean `m p` and variance `m p (1 - p) (u0 + m) / (u0 + 1)`.

    Examples
    --------
    >>> grid_share([1, 1], 0.5, 196, steps=10_000).variance
    0.01
    """
    priors, m = positive_array(alpha=alpha, min_entries=1), integer(1, steps=steps)
    d = priors.shape[-1]
    return GridShare(weight=d / (2 * m + d), variance=_largest_concentration(priors, r, n_records) / m)


def default_steps(alpha: ArrayLike, r: float, n_records: int) -> int:
    """The number of synthetic records whose grid adds at most 1 % to the variance of a Dirichlet draw.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    n_records : int
        A **public** number of records: N under replace-one, a guess under add-remove. Row totals are secret.

    Returns
    -------
    steps : int
        The largest of 10,000, `50 * d` and `100 * (r * n_records + largest row sum of alpha)`. The last is cut at
        10,000,000, because steps take time. Where a row's `u0` is above 100,000 the grid adds more than 1 %, the share
        `u0 / steps` of :func:`grid_share`.
    """
    priors = positive_array(alpha=alpha, min_entries=1)
    finer = min(100_000, _largest_concentration(priors, r, n_records))
    return max(math.ceil(100 * finer), fewest_steps(priors.shape[-1]))


def fewest_steps(d: int) -> int:
    """The least default for rows of d categories, with which the weight of the grid is 1 %."""
    return max(50 * d, 10_000)


def synthetic_counts(alpha: ArrayLike, r: float, counts: ArrayLike, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Tables of synthetic records, each row a Multinomial of its own draw from `Dirichlet(r * counts + alpha)`.

    The doubles `alpha` and `r` are used as the rational numbers that they are: nothing is rounded on the way, so the
    distribution is that of the pair given, to the last bit.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    counts : array_like of integers, shape of `alpha`
        They are secret, and errors never show them.
    steps : int
        Records in every row of the synthetic table, at least 1. Must be public.
    draws : int
        Number of independent draws. A guarantee is for one of them.
    bits : Bits
        The source of randomness.

    Returns
    -------
    synthetic : array of int, shape (draws, ..., d)
        Each row adds up to `steps`. A draw is a function of `y` and chance, so it has the guarantee of `y`.

    Raises
    ------
    DataError
        If the counts are not integers of that shape, or above 2**53. No smaller count is refused for its size,
        because that would tell about the data.

    References
    ----------
    Theory, section 11.
    """
    prior_table = positive_array(alpha=alpha, min_entries=1)
    whole = checked_counts(counts, prior_table.shape).astype(np.int64)
    # Priors are public, and most of them have few different entries; so have counts of many cells.
    priors, of_prior = different(prior_table)
    distinct_counts, of_count = different(whole)
    pairs, which = different(of_count * len(priors) + of_prior)
    (per_record, *prior), digits = over_one_power([positive(r=r), *priors.tolist()])
    weights = [per_record * int(distinct_counts[i // len(priors)]) + prior[i % len(priors)] for i in pairs.tolist()]
    d = prior_table.shape[-1]
    table = _urn(weights, which.reshape(-1, d), digits, integer(1, steps=steps), integer(1, draws=draws), bits)
    return table.reshape(-1, *prior_table.shape)


def exact_dirichlet(alpha: ArrayLike, r: float, counts: ArrayLike, *, steps: int, draws: int, bits: Bits) -> Array:
    """Dirichlet draws on a grid: the :func:`positive_frequencies` of :func:`synthetic_counts`, with its arguments.

    Returns
    -------
    y : array, shape (draws, ..., d)
        :func:`grid_share` compares its mean and variance with those of the Dirichlet distribution.
    """
    return positive_frequencies(synthetic_counts(alpha, r, counts, steps=steps, draws=draws, bits=bits), steps)


def positive_frequencies(synthetic: Integers, steps: int) -> Array:
    """Frequencies `(2 c + 1) / (2 m + d)` of the counts c of an urn of m steps: a positive and public map of them.

    With 1/2 added, the mean of `log(c + 1/2)` given y is `log(m y) + 1 / (2 m)` up to the order `1 / (m y)**2`. The
    second term is the same for all categories and cancels in their ratios.

    Parameters
    ----------
    synthetic : array of int, shape (..., d)
        Each row adds up to `steps`.
    steps : int
        The number of steps of the urn, public.

    Returns
    -------
    y : array, shape (..., d)
        Positive; each row sums to 1 up to rounding. :func:`urn_counts` is the inverse.
    """
    y: Array = (2 * synthetic + 1) / (2 * steps + synthetic.shape[-1])
    return y


def urn_counts(y: ArrayLike, steps: int) -> Integers:
    """The counts of the urn behind an exact release: the inverse of :func:`positive_frequencies`.

    Inference from a release uses these counts, whose distribution given the data is exactly Dirichlet-multinomial.

    Parameters
    ----------
    y : array_like, shape (..., d)
        All components of the release; those of a Beta variable are its two probabilities.
    steps : int
        The number of steps of the urn, as stated in the release.

    Returns
    -------
    counts : array of int, shape (..., d)
        Each row adds up to `steps`.

    Raises
    ------
    ArgumentError
        If `y` does not lie on the grid of so many steps.

    Examples
    --------
    >>> urn_counts([0.375, 0.625], steps=3)
    array([1, 2])
    """
    released = positive_array(y=y, min_entries=1)
    m = integer(1, steps=steps)
    places = ((2 * m + released.shape[-1]) * released - 1) / 2
    counts = np.round(places)
    # Rounding moves a count by less than 1e-6.
    if np.any(np.abs(places - counts) > 1e-3) or np.any(counts.sum(axis=-1) != m):
        raise ArgumentError(
            f"y is not on the grid of an exact release with steps={m}. Take steps from the release, and all components "
            "of each row."
        )
    whole: Integers = counts.astype(np.int64)
    return whole


def _largest_concentration(alpha: Array, r: float, n_records: int) -> float:
    return float(alpha.sum(axis=-1).max()) + positive(r=r) * at_least(0, n_records=n_records)
