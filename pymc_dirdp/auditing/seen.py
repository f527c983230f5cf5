"""Outputs as an attack sees them: rows of numbers of one shape, and the kind of each output."""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.outputs import Outputs

__all__ = ["Keys", "Seen", "Statistic", "commonest_shape", "hashed", "seen"]

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
