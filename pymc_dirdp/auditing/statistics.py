"""Statistics that distinguish two data sets: supports, exact values, one linear discriminant, and last bits."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self, cast, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import Sampler
from pymc_dirdp.mechanisms.base import Mechanism

BlackBox = Callable[[Array], object]
# The outputs along the first axis, or a list where their shapes may differ.
Outputs = Array | Sequence[Array]


@final
@dataclass(frozen=True)
class Source:
    """A mechanism of this library with a sampler, or a function of the counts with its own randomness."""

    mechanism: Mechanism | BlackBox
    sampler: Sampler | None = None  # None takes the default of the mechanism.
    steps: int | None = None  # The steps of the urn, for the exact sampler of a mechanism that draws from one.

    @property
    def known(self) -> Mechanism | None:
        """The mechanism of this library; None for a black box."""
        return Mechanism.of(self.mechanism)

    def checked(self) -> Self:
        """The source with the name of its sampler. Raises an error if there is no such sampler or it has no steps."""
        known = self.known
        if known is None:
            if self.sampler is not None or self.steps is not None:
                raise ArgumentError("Leave out sampler= and steps=: a black box has its own sampler.")
            return self
        sampler = known.checked_sampler(self.sampler)
        return replace(self, sampler=sampler, steps=known.checked_steps(self.steps, sampler))

    @property
    def name(self) -> str:
        """The class of the mechanism."""
        return "black box" if self.known is None else type(self.known).__name__

    @property
    def drawn_by(self) -> str:
        """The sampler in words."""
        named = self.sampler or "black box"
        return named if self.steps is None else f"{named}, steps={self.steps}"

    @property
    def default_draws(self) -> int:
        """The default number of releases of each data set in an audit."""
        return 100_000 if self.known is None else self.known.outputs_to_audit(self.known.checked_sampler(self.sampler))

    def releases(self, counts: Array, n: int, rng: np.random.Generator) -> Outputs:
        """`n` independent releases of artificial counts. A black box does not use `rng`."""
        if (known := self.known) is not None:
            sampler = known.checked_sampler(self.sampler)
            return known.releases(counts, n, sampler=sampler, random_seed=rng, steps=self.steps)
        box = cast(BlackBox, self.mechanism)
        return [np.asarray(box(counts), dtype=np.float64) for _ in range(n)]


Keys = NDArray[np.uint64]


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """The n outputs of one data set."""

    points: Array  # Shape (n, size): the entries of outputs with the commonest shape, and zeros for others.
    shape: tuple[int, ...]  # The commonest shape.
    inside: NDArray[np.bool_]  # Shape (n,): whether an output has it.
    kinds: Keys  # Shape (n,): a key of the shape of each output and of its zeros and non-finite entries.

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> Self:
        return type(self)(self.points[part], self.shape, self.inside[part], self.kinds[part])

    def entries(self, changed: NDArray[np.intp], most: int) -> NDArray[np.intp]:
        """At most `most` entries for an attack, beginning with those in which the two data sets differ."""
        return np.concatenate([changed, np.setdiff1d(np.arange(self.points.shape[1]), changed)])[:most]

    @cached_property
    def numbers(self) -> Array:
        """The entries, with 0 for NaN, whose places `kinds` has."""
        # The square of a larger value could overflow.
        return np.clip(np.nan_to_num(self.points), -1e100, 1e100)


# A number for each output, which is larger for the first data set.
Statistic = Callable[[Seen], Array]


def commonest_shape(*samples: Outputs) -> tuple[int, ...]:
    """The shape that most of these outputs have."""
    (shape, _), *_ = Counter(output.shape for outputs in samples for output in outputs).most_common(1)
    return shape


def as_rows(outputs: Outputs, shape: tuple[int, ...]) -> Seen:
    """Outputs as rows of numbers. The shape must be learned from other outputs than those that are counted."""
    inside = np.array([output.shape == shape for output in outputs], dtype=bool)
    size = int(np.prod(shape, dtype=np.int64))
    points = np.zeros((len(outputs), size))
    if np.all(inside):
        points[:] = np.asarray(outputs, dtype=np.float64).reshape(len(outputs), size)
    elif np.any(inside):
        points[inside] = [o.ravel() for o, has in zip(outputs, inside.tolist(), strict=True) if has]
    kinds = hashed(_marks(points))
    for i in np.flatnonzero(~inside).tolist():
        kinds[i] = zlib.crc32(repr(outputs[i].shape).encode() + _marks(outputs[i]).tobytes())
    return Seen(points, shape, inside, kinds)


def _marks(points: Array) -> Keys:
    """For each entry 1 if it is zero, 2 if it is not finite, and 0 otherwise."""
    marks: Keys = ((points == 0) + 2 * ~np.isfinite(points)).astype(np.uint64)
    return marks


def hashed(rows: Keys) -> Keys:
    """One key for each row of integers. A collision makes an attack weaker, not wrong."""
    # The multipliers are fixed, so that an audit is reproducible.
    multipliers = np.random.default_rng(0).integers(2**64, size=rows.shape[1], dtype=np.uint64) | np.uint64(1)
    # The low bits of a product modulo 2**64 do not depend on high bits, so fold these in.
    mixed = rows ^ (rows >> np.uint64(32))
    keys: Keys = (mixed * multipliers).sum(axis=1, dtype=np.uint64)
    return keys


def frequency_ratio(x_keys: Keys, y_keys: Keys) -> Callable[[Keys], Array]:
    """Log-ratio of the frequencies of a key for x and y, with half an observation added to each; 0 for other keys."""
    distinct_keys, index = np.unique(np.concatenate([x_keys, y_keys]), return_inverse=True)
    in_x = np.bincount(index[: len(x_keys)], minlength=len(distinct_keys))
    in_y = np.bincount(index[len(x_keys) :], minlength=len(distinct_keys))
    # Shares, because the two samples need not be of one size.
    ratios = np.log((in_x + 0.5) / (len(x_keys) + 0.5)) - np.log((in_y + 0.5) / (len(y_keys) + 0.5))

    def score(keys: Keys) -> Array:
        places = np.minimum(np.searchsorted(distinct_keys, keys), len(distinct_keys) - 1)
        return np.where(distinct_keys[places] == keys, ratios[places], 0.0)

    return score


def most_informative(x_keys: Sequence[Keys], y_keys: Sequence[Keys], n_max: int) -> list[int]:
    """The keys that distinguish the data sets best, learned on one half of these outputs and tested on the other."""

    def separation(keys_x: Keys, keys_y: Keys) -> float:
        half_x, half_y = len(keys_x) // 2, len(keys_y) // 2
        score = frequency_ratio(keys_x[:half_x], keys_y[:half_y])
        x, y = score(keys_x[half_x:]), score(keys_y[half_y:])
        return float((x.mean() - y.mean()) / np.sqrt(x.var() / len(x) + y.var() / len(y) + 1e-300))

    strength = [separation(x, y) for x, y in zip(x_keys, y_keys, strict=True)]
    return sorted(range(len(strength)), key=lambda i: -strength[i])[:n_max]


def repeated(x: Seen, y: Seen) -> list[Statistic]:
    """Statistics of exact values: the frequency ratio of an output, or of one of its entries.

    If outputs repeat, such as integers or those of a saturated generator, this finds outputs that only one data set
    gives. Continuous outputs hardly repeat, and it finds nothing.

    Parameters
    ----------
    x, y : Seen
        Outputs that are not counted later.
    """
    whole = frequency_ratio(hashed(_bits(x)), hashed(_bits(y)))
    # Try at most 32 entries, and select two.
    columns_x, columns_y = (list(_bits(sample)[:, :32].T) for sample in (x, y))
    scores = {i: frequency_ratio(columns_x[i], columns_y[i]) for i in most_informative(columns_x, columns_y, 2)}

    def of_entry(outputs: Seen, i: int) -> Array:
        return scores[i](_bits(outputs)[:, i])

    return [lambda outputs: whole(hashed(_bits(outputs))), *(partial(of_entry, i=i) for i in scores)]


def _bits(outputs: Seen) -> Keys:
    return outputs.points.view(np.uint64)


def the_data(x: Array, y: Array, priors: Sequence[Array] = ()) -> Statistic:
    """Whether an output equals a data set: at least 2 for x, at most -2 for y, and near 0 for most others.

    The search covers counts, frequencies of the table or of its rows, and posterior means. Single entries that agree
    with only one data set add less than 1 in all.

    Parameters
    ----------
    x, y : array
        The two data sets.
    priors : sequence of array
        Prior parameters to try, in addition to 0, 1/2 and 1 in each cell.
    """
    forms = [(_form(x, prior), _form(y, prior)) for prior in (None, 0.0, 0.5, 1.0, *priors)]
    forms += [(x / max(x.sum(), 1.0), y / max(y.sum(), 1.0))]

    def statistic(outputs: Seen) -> Array:
        scores = np.zeros(len(outputs))
        if outputs.shape != x.shape or not x.size:
            return scores
        for x_form, y_form in forms:
            like_x, like_y = (_agrees(outputs.points, form) for form in (x_form, y_form))
            tells = ~_agrees(x_form.reshape(1, -1), y_form)[0]
            if np.any(tells):
                scores += 2.0 * like_x.all(axis=1) - 2.0 * like_y.all(axis=1)
                entries = like_x[:, tells].astype(np.float64) - like_y[:, tells]
                scores += entries.sum(axis=1) / (len(forms) * (tells.sum() + 1))
        return scores

    return statistic


def _form(counts: Array, prior: float | Array | None) -> Array:
    if prior is None:
        return counts
    smooth = counts + prior
    total = smooth.sum(axis=-1, keepdims=True)
    return np.asarray(smooth / np.where(total > 0, total, 1.0))


def _agrees(points: Array, form: Array) -> NDArray[np.bool_]:
    target = form.ravel()
    # The relative rounding of a quotient.
    return np.asarray(np.abs(points - target) <= 1e-12 * np.abs(target))


# The last bits of a floating-point number, and whether it is a quotient, show how it was computed.

# Number of entries whose patterns are tried.
_ENTRIES = 12


def unreachable(values: Array) -> NDArray[np.bool_]:
    """Whether numbers are not a rounded `1 / S` for any double S.

    The largest component of a row is such a quotient if it was divided by the sum of `exp(logs - largest)`. Near 1 only
    half of all doubles are such quotients, so another way to normalise is soon detected.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        quotient = 1 / values
        near = (quotient, np.nextafter(quotient, 0.0), np.nextafter(quotient, np.inf))
        return ~np.any([1 / s == values for s in near], axis=0)


def bit_patterns(x: Seen, y: Seen, changed: NDArray[np.intp]) -> list[Statistic]:
    """Statistics of the patterns of low bits that are more frequent for one data set.

    Parameters
    ----------
    x, y : Seen
        Outputs that are not counted later.
    changed : array of int
        Entries in which the two data sets differ, which are used first.
    """
    entries = x.entries(changed, _ENTRIES)
    x_patterns, y_patterns = _patterns(x, entries), _patterns(y, entries)
    scores = {i: frequency_ratio(x_patterns[i], y_patterns[i]) for i in most_informative(x_patterns, y_patterns, 4)}

    def statistic(outputs: Seen, i: int) -> Array:
        return scores[i](_patterns(outputs, entries)[i])

    return [partial(statistic, i=i) for i in scores]


def _patterns(outputs: Seen, entries: NDArray[np.intp], *, n_joint: int = 4) -> list[Keys]:
    """For each entry: trailing zeros; the lowest byte; the lowest bits with the exponent; whether it is a quotient.

    The last bits of the first `n_joint` entries are combined.
    """
    numbers, rows = outputs.numbers, _rows(outputs)
    row_max = rows.max(axis=-1)[:, :_ENTRIES]
    values = np.column_stack([numbers[:, entries], row_max, 1 - row_max])
    bits, exponents = np.ascontiguousarray(values).view(np.uint64), np.frexp(values)[1]
    by_exponent = (bits & np.uint64(7)) + np.uint64(8) * (exponents + 2048).astype(np.uint64)
    quotients = unreachable(values) + 2 * (np.frexp(values)[0] > np.sqrt(0.5)) + 4 * exponents
    parity = np.bitwise_xor.reduce(bits[:, :n_joint] & np.uint64(1), axis=1)
    kinds = (_last_bits(values).astype(np.int64), bits & np.uint64(255), by_exponent, quotients)
    columns = [column.astype(np.int64).view(np.uint64) for kind in kinds for column in kind.T]
    low = hashed(bits[:, :n_joint] & np.uint64(3))
    return [*columns, parity, low, hashed(np.asarray(_missing(rows)).astype(np.int64).view(np.uint64))]


def _rows(outputs: Seen) -> Array:
    """The outputs as rows of a table, shape (n, rows, d)."""
    d = outputs.shape[-1] if outputs.shape else 1
    return outputs.numbers.reshape(len(outputs), -1, d)


def _missing(rows: Array) -> Array:
    """The difference of the sum of each row from 1 in units of 2**-53, clipped to a thousand."""
    return np.clip((rows.sum(axis=-1) - 1) * 2.0**53, -1e3, 1e3)


def _last_bits(values: Array) -> Array:
    """The binary exponent of the last bit that is set; 0 for the number 0."""
    mantissa, exponent = np.frexp(values)
    integers = np.abs(mantissa * 2.0**53).astype(np.int64)
    # The lowest bit of an integer, as a power of two.
    _, lowest = np.frexp((integers & -integers).astype(np.float64))
    return np.where(integers == 0, 0.0, exponent - 54.0 + lowest)


# Statistics: one number for each output that distinguishes two data sets, and tends to be larger for the first.
#
# A lower bound is valid for any statistic, because only the counted outputs have to be independent. A poor statistic
# finds a smaller bound.


def learned(
    from_x: Seen,
    from_y: Seen,
    x: Array,
    y: Array,
    *,
    discriminant: bool = True,
    last_bits: bool = False,
    priors: Sequence[Array] = (),
) -> list[Statistic]:
    """Statistics of outputs whose likelihood is not known.

    They are, simplest first: the shape of an output and its zeros and non-finite entries; whether it equals one of the
    data sets; exact values that only one data set gives; and a linear discriminant of outputs of the commonest shape,
    of their logarithms if none is negative.

    Parameters
    ----------
    from_x, from_y : Seen
        Outputs that are not counted later.
    x, y : array
        The two data sets.
    discriminant : bool
        Whether to learn the linear discriminant, which is superfluous beside a likelihood ratio.
    last_bits : bool
        Whether to use patterns of the last bits, too.
    priors : sequence of array
        Prior parameters of the posterior means to search for among the outputs.

    References
    ----------
    Hastie, Tibshirani and Friedman (2009), The elements of statistical learning, section 4.3.
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    kind_ratio = frequency_ratio(from_x.kinds, from_y.kinds)
    statistics: list[Statistic] = [lambda outputs: kind_ratio(outputs.kinds), the_data(x, y, priors)]
    x_rows, y_rows = from_x[from_x.inside], from_y[from_y.inside]
    if not x_rows.points.size or min(len(x_rows), len(y_rows)) < 2:
        return statistics
    changed = np.flatnonzero(x != y) if x.shape == x_rows.shape == y.shape else np.arange(0)
    statistics += repeated(x_rows, y_rows)
    if discriminant:
        statistics += _linear(x_rows, y_rows)
    if last_bits:
        statistics += bit_patterns(x_rows, y_rows, changed)
    first, *others = statistics
    return [first, *(partial(_joined, kinds=first, statistic=other) for other in others)]


def _joined(outputs: Seen, kinds: Statistic, statistic: Statistic) -> Array:
    """The sum of a statistic of outputs of the commonest shape and the statistic of their kinds."""
    scores = kinds(outputs)
    if np.all(outputs.inside):
        return scores + statistic(outputs)
    if np.any(outputs.inside):
        scores[outputs.inside] += statistic(outputs[outputs.inside])
    return scores


def _scaled(x: Seen, y: Seen) -> Statistic:
    """Logarithms, if none of these numbers is negative; the numbers themselves otherwise."""
    pooled = np.concatenate([x.numbers, y.numbers])
    positive = pooled[pooled > 0]
    if not positive.size or pooled.min() < 0:
        return lambda outputs: outputs.numbers
    floor = float(positive.min()) / 2
    # A negative value that appears only later is treated as zero.
    return lambda outputs: np.asarray(np.log(np.maximum(outputs.numbers, 0.0) + floor))


def _linear(x: Seen, y: Seen) -> list[Statistic]:
    """The linear discriminant of the entries that vary; none if none does."""
    features = _scaled(x, y)
    pooled = np.concatenate([features(x), features(y)])
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    varies = spread > 0
    if not np.any(varies):
        return []

    def standard(outputs: Seen) -> Array:
        return np.asarray((features(outputs) - centre)[:, varies] / spread[varies])

    x_standard, y_standard = standard(x), standard(y)
    covariance = (np.atleast_2d(np.cov(x_standard.T)) + np.atleast_2d(np.cov(y_standard.T))) / 2
    values, vectors = np.linalg.eigh(covariance)
    separation = vectors.T @ (x_standard.mean(axis=0) - y_standard.mean(axis=0))
    # Without a smallest variance, as a share of the pooled one, a constant entry would have infinite weight.
    direction = vectors @ (separation / np.maximum(values, 1e-9))
    return [lambda outputs: np.asarray(standard(outputs) @ direction)]
