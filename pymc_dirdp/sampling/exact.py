"""Exact Dirichlet draws: the counts of a Pólya urn, in integers."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import at_least, integer, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import _POWERS, Bits
from pymc_dirdp.sampling.compiled_urn import MAX_STEPS, urns_in_jumps

# Number of steps in a batch, with arrays of a few megabytes.
_AT_ONCE = 2**16
# Number of leading bits that are compared first, so that sums fit into 64-bit integers. Other bits are compared in case
# of a tie.
_LEADING = 62


def urn(
    rows: Sequence[Sequence[int]] | NDArray[np.object_], digits: int, *, steps: int, draws: int, bits: Bits
) -> Integers:
    """Counts from the Dirichlet-multinomial distribution with parameters `rows / 2**digits`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new record from the weights. The counts of
    all steps have the distribution of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(rows / 2**digits)`. The algorithm uses no floating-point numbers and accepts weights of any size.

    Parameters
    ----------
    rows : sequence of sequences of int, or array of int of any size
        Secret weights, at least 1, with a row for each row of the table.
    digits : int
        Binary digits of the weights after the point.
    steps : int
        Number of records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        The source of randomness.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The distribution is exact, but memory access, the number of rejected random words, and the running time depend on
    the secret. The counts are not protected from anyone who can measure these.

    The index of the copied record does not depend on the category of that record. So the indices of many steps are
    drawn at once, and then copies are traced back to the records that came from the weights.

    Urns of many rows and draws run side by side. No two urns share a word, because `Bits.uniforms` uses separate words
    for each limit. So all urns are independent, in whatever order they take their words.

    Many steps are drawn in jumps, see :mod:`pymc_dirdp.sampling.compiled_urn`.

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
    """Counts as from :func:`urn`, with the distinct weights and the index of the weight of each cell.

    Compiled code draws urns with at least `worth` steps in all.
    """
    n_rows, d = which.shape
    # One urn for each draw of each row; the draws of a row are consecutive.
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
    # Every earlier record is a cell of size 1. The weights lie on the cells after these, and the last may be partly
    # empty.
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
            # Rejected if no weight covers the point.
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
    """Add the records of urns that run side by side to their `counts`, shape (urns, d)."""
    urns, d = counts.shape
    records = np.empty((urns, steps), dtype=np.int32)
    # The first record is drawn directly, because rejection from the cells takes billions of trials for tiny weights.
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
    """Cumulative weights of rows, to find the categories of points with a number of bits for each row."""

    def __init__(self, cumulative: NDArray[np.object_], lengths: list[int]) -> None:
        self._cumulative = cumulative
        # The number of bits that are compared first, and of the other bits, by row.
        self.leading: Integers = np.minimum(lengths, _LEADING).astype(np.int64)
        self._left: Integers = np.array(lengths, dtype=np.int64) - self.leading
        self.outside = cumulative.shape[1]
        self._high = (cumulative >> self._left.astype(object)[:, None]).astype(np.int64)

    def categories(self, points: Integers, row: Integers, bits: Bits) -> Integers:
        """The first category whose cumulative weight exceeds each point; d if there is none.

        `points` are the leading bits. The other bits are drawn only in case of a tie.
        """
        # The number of cumulative weights whose leading bits are at most those of the point; the last may be a tie.
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
    """The categories of the records after the earlier ones up to `stop`, shape (urns, stop - start)."""
    urns, start = earlier.shape
    length = stop - start
    record = np.tile(np.arange(start, stop), urns)
    row = np.repeat(row, length)
    limits = record + cells[row]
    # The place of each record is that of an earlier record, which it copies, or a cell of the weights after these.
    place, category = bits.uniforms(limits), np.empty_like(record)
    new = np.flatnonzero(place >= record)
    while new.size:
        rows = row[new]
        points = (place[new] - record[new]) << within[rows]
        if within.any():
            points += bits.uniforms(1 << within[rows])
        category[new] = weights.categories(points, rows, bits)
        # Rejected if no weight covers the point.
        rejected = new[category[new] == weights.outside]
        place[rejected] = bits.uniforms(limits[rejected])
        new = rejected[place[rejected] >= record[rejected]]
    copies = np.flatnonzero(place < record)
    draw, place = copies // length, place[copies]
    within_block = place >= start
    before = ~within_block
    category[copies[before]] = earlier[draw[before], place[before]]
    # Copies of records of this block are traced to their origins, in steps that double.
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
    """The error that the grid of an exact release adds to a Dirichlet draw. Both numbers are public.

    Attributes
    ----------
    weight : float
        `w = d / (2 m + d)`. The mean of a component is `(1 - w) p + w / d`, where p is its mean in the Dirichlet
        distribution.
    variance : float
        At most `u0 / m`. The variance of a component is `(1 - w)**2 (1 + u0 / m)` times its variance in the Dirichlet
        distribution.
    """

    weight: float
    variance: float


def grid_share(alpha: ArrayLike, r: float, n_records: int, *, steps: int) -> GridShare:
    """The error that the grid adds to a Dirichlet draw, for the largest row that `n_records` records can make.

    Parameters
    ----------
    alpha, r, n_records
        As in :func:`default_steps`.
    steps : int
        The number of steps of the urn, `m`.

    Returns
    -------
    share : GridShare

    References
    ----------
    Theory, section 11. The counts of the urn have mean `m p` and variance `m p (1 - p) (u0 + m) / (u0 + 1)`.

    Examples
    --------
    >>> grid_share([1, 1], 0.5, 196, steps=10_000).variance
    0.01
    """
    priors, m = positive_array(alpha=alpha, min_entries=1), integer(1, steps=steps)
    d = priors.shape[-1]
    return GridShare(weight=d / (2 * m + d), variance=_largest_concentration(priors, r, n_records) / m)


def default_steps(alpha: ArrayLike, r: float, n_records: int) -> int:
    """The number of steps with which the grid adds at most 1 % to the variance of a Dirichlet draw.

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
        The largest of 10,000, `50 * d` and `100 * (r * n_records + largest row sum of alpha)`. The last is capped at
        10,000,000, because steps take time. If `u0` of a row is above 100,000, the grid adds more than 1 %, namely the
        share `u0 / steps` of :func:`grid_share`.
    """
    priors = positive_array(alpha=alpha, min_entries=1)
    finer = min(100_000, _largest_concentration(priors, r, n_records))
    return max(math.ceil(100 * finer), fewest_steps(priors.shape[-1]))


def fewest_steps(d: int) -> int:
    """The least default number of steps for rows of d categories, with which the weight of the grid is at most 1 %."""
    return max(50 * d, 10_000)


def synthetic_counts(alpha: Array, r: float, counts: Integers, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Tables of synthetic records, where each row is `Multinomial(steps, y)` with `y ~ Dirichlet(r * counts + alpha)`.

    The doubles `alpha` and `r` are converted to rational numbers without rounding, so the distribution is exactly that
    of these arguments.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    counts : array of int, shape of `alpha`
        **Secret**. A :class:`~pymc_dirdp.sampling.drawing.Drawing` has checked them.
    steps : int
        Number of records in every row of the synthetic table, at least 1. Must be public.
    draws : int
        Number of independent draws, at least 1. A guarantee is for one draw.
    bits : Bits
        The source of randomness.

    Returns
    -------
    synthetic : array of int, shape (draws, ..., d)
        Each row adds up to `steps`. A draw is post-processing of `y`, so it satisfies the guarantee of `y`.

    References
    ----------
    Theory, section 11.
    """
    # Tables often have few distinct priors and counts.
    priors, of_prior = np.unique(alpha, return_inverse=True)
    distinct_counts, of_count = np.unique(counts, return_inverse=True)
    pairs, which = np.unique(of_count * len(priors) + of_prior, return_inverse=True)
    (per_record, *prior), digits = over_one_power([float(r), *priors.tolist()])
    weights = [per_record * int(distinct_counts[i // len(priors)]) + prior[i % len(priors)] for i in pairs.tolist()]
    table = _urn(weights, which.reshape(-1, alpha.shape[-1]), digits, steps, draws, bits)
    return table.reshape(-1, *alpha.shape)


def over_one_power(values: Sequence[float]) -> tuple[list[int], int]:
    """Doubles as integers over one power of two, exactly.

    Parameters
    ----------
    values : sequence of float
        Finite.

    Returns
    -------
    numerators : list of int
    digits : int
        Binary digits after the point. Each value is its numerator over `2**digits`.

    Examples
    --------
    >>> over_one_power([0.75, 3.0])
    ([3, 12], 2)
    """
    ratios = [value.as_integer_ratio() for value in values]
    digits = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    return [numerator << digits + 1 - denominator.bit_length() for numerator, denominator in ratios], digits


def exact_dirichlet(alpha: Array, r: float, counts: Integers, *, steps: int, draws: int, bits: Bits) -> Array:
    """Dirichlet draws on a grid: the :func:`positive_frequencies` of :func:`synthetic_counts`, with the same arguments.

    Returns
    -------
    y : array, shape (draws, ..., d)
        :func:`grid_share` compares its mean and variance with those of the Dirichlet distribution.
    """
    return positive_frequencies(synthetic_counts(alpha, r, counts, steps=steps, draws=draws, bits=bits), steps)


def positive_frequencies(synthetic: Integers, steps: int) -> Array:
    """Positive frequencies `(2 c + 1) / (2 m + d)` of the counts c of an urn with m steps.

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
        All components of the release; for a Beta variable, the probabilities of success and failure.
    steps : int
        The number of steps of the urn, as stated in the release.

    Returns
    -------
    counts : array of int, shape (..., d)
        Each row adds up to `steps`.

    Raises
    ------
    ArgumentError
        If `y` is not on the grid of this number of steps.

    Examples
    --------
    >>> urn_counts([0.375, 0.625], steps=3)
    array([1, 2])
    """
    released = positive_array(y=y, min_entries=1)
    m = integer(1, steps=steps)
    places = ((2 * m + released.shape[-1]) * released - 1) / 2
    counts = np.round(places)
    # The rounding error of a count is below 1e-6.
    if np.any(np.abs(places - counts) > 1e-3) or np.any(counts.sum(axis=-1) != m):
        raise ArgumentError(
            f"y is not on the grid of an exact release with steps={m}. Pass the steps of the release, and all "
            "components of each row."
        )
    whole: Integers = counts.astype(np.int64)
    return whole


def _largest_concentration(alpha: Array, r: float, n_records: int) -> float:
    return float(alpha.sum(axis=-1).max()) + positive(r=r) * at_least(0, n_records=n_records)
