"""Outputs of a mechanism at two data sets, what an attack sees of them, and how often."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, cast, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = [
    "BlackBox",
    "Keys",
    "Outputs",
    "Seen",
    "Source",
    "Statistic",
    "commonest_shape",
    "frequency_ratio",
    "hashed",
    "most_telling",
    "seen",
]

# What is audited, and many independent releases of it.


BlackBox = Callable[[Array], object]
# The outputs along the first axis, or a list where their shapes may differ.
Outputs = Array | Sequence[Array]

# The default number of outputs of a black box.
_DRAWS = 100_000


@final
@dataclass(frozen=True)
class Source:
    """A mechanism of this library with one of its samplers, or a function of the counts that has its own randomness."""

    mechanism: Mechanism | BlackBox
    sampler: str | None = None  # None takes the default of the mechanism.
    steps: int | None = None  # The steps of the urn, for the exact sampler of a mechanism that draws from one.

    @property
    def known(self) -> Mechanism | None:
        """The mechanism of this library; None for a black box."""
        return Mechanism.of(self.mechanism)

    def checked(self) -> Self:
        """The source with the name of its sampler, or an error if there is no such sampler or it takes no steps."""
        known = self.known
        if known is None:
            if self.sampler is not None or self.steps is not None:
                raise ArgumentError("A black box brings its own sampler. Leave out sampler= and steps=.")
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
        """How many releases an audit makes of each data set by default."""
        return _DRAWS if self.known is None else self.known.outputs_to_audit(str(self.sampler))

    def releases(self, counts: Array, n: int, rng: np.random.Generator) -> Outputs:
        """`n` independent releases of made-up counts; a black box does not use `rng`."""
        if (known := self.known) is not None:
            sampler = known.checked_sampler(self.sampler)
            return known.releases(counts, n, sampler=sampler, random_seed=rng, steps=self.steps)
        box = cast(BlackBox, self.mechanism)
        return [np.asarray(box(counts), dtype=np.float64) for _ in range(n)]


# Outputs as an attack sees them: rows of numbers of one shape, and the kind of each output.


Keys = NDArray[np.uint64]

# The square of a larger value could overflow.
_LARGEST = 1e100


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """Outputs of one data set, n of them."""

    points: Array  # Shape (n, size): the entries of the outputs that have the commonest shape, and zeros for others.
    shape: tuple[int, ...]  # The commonest shape.
    inside: NDArray[np.bool_]  # Shape (n,): which outputs have it.
    kinds: Keys  # Shape (n,): a key of the shape of each output and of where it is zero or not finite.

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> Self:
        return type(self)(self.points[part], self.shape, self.inside[part], self.kinds[part])

    def entries(self, changed: NDArray[np.intp], most: int) -> NDArray[np.intp]:
        """The entries that an attack looks at: at most so many, and first those in which the two data sets differ."""
        return np.concatenate([changed, np.setdiff1d(np.arange(self.points.shape[1]), changed)])[:most]

    @cached_property
    def numbers(self) -> Array:
        """The entries, with 0 for what is not a number, because `kinds` has its place."""
        return np.clip(np.nan_to_num(self.points), -_LARGEST, _LARGEST)


# A number for each output, which is larger for the first data set.
Statistic = Callable[[Seen], Array]


def commonest_shape(*samples: Outputs) -> tuple[int, ...]:
    """The shape that most of these outputs have."""
    (shape, _), *_ = Counter(output.shape for outputs in samples for output in outputs).most_common(1)
    return shape


def seen(outputs: Outputs, shape: tuple[int, ...]) -> Seen:
    """Outputs as rows of numbers. A shape that was learned from other outputs keeps the counting honest."""
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
    """One key for each row of integers. Two rows that share one by chance make an attack weaker, not wrong."""
    # The multipliers are fixed, so that an audit can be repeated.
    multipliers = np.random.default_rng(0).integers(2**64, size=rows.shape[1], dtype=np.uint64) | np.uint64(1)
    # A product modulo 2**64 keeps few low bits apart from their neighbours, so the high ones are folded in.
    mixed = rows ^ (rows >> np.uint64(32))
    keys: Keys = (mixed * multipliers).sum(axis=1, dtype=np.uint64)
    return keys


# Keys that one data set gives more often than the other, learned from counts.


def frequency_ratio(of_x: Keys, of_y: Keys) -> Callable[[Keys], Array]:
    """Logarithm of how much commoner a key is for x, with half an observation added to each count; 0 if never seen."""
    known, which = np.unique(np.concatenate([of_x, of_y]), return_inverse=True)
    in_x = np.bincount(which[: len(of_x)], minlength=len(known))
    in_y = np.bincount(which[len(of_x) :], minlength=len(known))
    # Shares, because the two samples need not be of one size.
    ratios = np.log((in_x + 0.5) / (len(of_x) + 0.5)) - np.log((in_y + 0.5) / (len(of_y) + 0.5))

    def score(keys: Keys) -> Array:
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[places] == keys, ratios[places], 0.0)

    return score


def most_telling(of_x: Sequence[Keys], of_y: Sequence[Keys], most: int) -> list[int]:
    """The keys that tell the data sets apart best: learned on one half of these outputs, tried on the other."""

    def apart(keys_x: Keys, keys_y: Keys) -> float:
        half_x, half_y = len(keys_x) // 2, len(keys_y) // 2
        score = frequency_ratio(keys_x[:half_x], keys_y[:half_y])
        x, y = score(keys_x[half_x:]), score(keys_y[half_y:])
        return float((x.mean() - y.mean()) / np.sqrt(x.var() / len(x) + y.var() / len(y) + 1e-300))

    strength = [apart(x, y) for x, y in zip(of_x, of_y, strict=True)]
    return sorted(range(len(strength)), key=lambda i: -strength[i])[:most]
