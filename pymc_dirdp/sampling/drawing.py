"""The last steps with counts in hand: check them, and add noise or draw from a Dirichlet distribution.

This file is part of the trusted core, see the page on the threat model. Everything else about a draw, the noise
included, is prepared before the records are opened. It is public, or independent of the records.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NewType, NoReturn, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import DataError, InternalError, missing_values
from pymc_dirdp.sampling.bits import Bits, chosen
from pymc_dirdp.sampling.exact import exact_dirichlet
from pymc_dirdp.sampling.fast import fast_dirichlet

Published = NewType("Published", np.ndarray[Any, np.dtype[np.float64]])
"""Numbers that a mechanism drew, which may be published. Only a :class:`Drawing` makes them."""


@final
class SecretCounts:
    """The counts of records in each cell of a table. **Secret**.

    They are not an array, so functions of arrays do not accept them. They cannot be shown, compared, copied or
    pickled. Only files of the trusted core use `secret_cells`, and a test enforces this.

    Parameters
    ----------
    cells : array_like
        The counts. A drawing checks them.

    Examples
    --------
    >>> SecretCounts([3, 0, 5])
    SecretCounts(secret)
    """

    __slots__ = ("secret_cells",)

    def __init__(self, cells: ArrayLike) -> None:
        self.secret_cells = cells

    def __repr__(self) -> str:
        return "SecretCounts(secret)"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("Secret counts are not an array. Only a drawing reads them.")

    def __eq__(self, other: object) -> bool:
        raise TypeError("Secret counts cannot be compared, because the answer would reveal something about them.")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("Secret counts cannot be copied or pickled.")

    def __getstate__(self) -> NoReturn:
        raise TypeError("Secret counts have no state to show.")


@final
class Once[T]:
    """Noise, or a source of randomness, that is taken once.

    Noise that stands beside the numbers to which it was added gives the counts, and noise that is added twice cancels.

    Examples
    --------
    >>> noise = Once([3, -1])
    >>> noise
    Once(secret)
    >>> noise.take()
    [3, -1]
    """

    __slots__ = ("_left",)

    def __init__(self, thing: T) -> None:
        self._left = [thing]

    def take(self) -> T:
        """The noise or the source, which is then gone.

        Raises
        ------
        InternalError
            If it was taken before.
        """
        try:
            return self._left.pop()
        except IndexError:
            pass
        raise InternalError("A prepared draw was used twice.")

    def __repr__(self) -> str:
        return "Once(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A prepared draw cannot be copied or pickled, because the copy would have the same noise.")


@dataclass(frozen=True, eq=False, repr=False)
class Drawing(abc.ABC):
    """A draw that is prepared: its public parameters, and its noise or its source of randomness, without counts.

    Attributes
    ----------
    shape : tuple of int
        The shape of the table of counts.
    min_count, n_records : float, int or None
        What the guarantee assumes of every data set, see :class:`~pymc_dirdp.mechanisms.DirichletMechanism`.
    """

    shape: tuple[int, ...]
    min_count: float
    n_records: int | None

    def of(self, counts: SecretCounts) -> list[Published]:
        """Check the counts, and draw the published arrays. Prepare another drawing for each table of counts.

        Raises
        ------
        DataError
            If the counts are not integers of this shape, or the guarantee assumes something else. It shows none.
        """
        return [Published(array) for array in self._drawn(self.check(counts))]

    def check(self, counts: SecretCounts) -> Array:
        """**Secret**: the counts as doubles, or the errors of :meth:`of`."""
        return checked_counts(counts.secret_cells, self.shape, self.min_count, self.n_records)

    @abc.abstractmethod
    def _drawn(self, counts: Array) -> list[Array]:
        """The published arrays for checked counts."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class AddedNoise(Drawing):
    """Noise that was drawn before, to be added to some marginals of the counts.

    Attributes
    ----------
    marginals : tuple of (tuple of int, Once)
        For each marginal the axes of the table over which it sums, and its noise, of the shape of the marginal.
    """

    marginals: tuple[tuple[tuple[int, ...], Once[NDArray[Any]]], ...]

    @override
    def check(self, counts: SecretCounts) -> Array:
        table = super().check(counts)
        # Sums over rows are exact up to this number.
        if any(axes for axes, _ in self.marginals) and exact_sum(table) > MAX_RECORDS:
            raise DataError("The counts add up to more than 2**53 records, the maximum.")
        return table

    @override
    def _drawn(self, counts: Array) -> list[Array]:
        return [noisy_counts(counts.sum(axis=axes) if axes else counts, noise.take()) for axes, noise in self.marginals]


@final
@dataclass(frozen=True, eq=False, repr=False)
class DirichletDrawing(Drawing):
    """Draws from `Dirichlet(r * counts + alpha)`, from an urn or in floating point.

    Attributes
    ----------
    alpha : array, shape `shape`
    r : float
    draws : int
        The number of draws.
    source : Once
        Bits for the urn. A generator draws in floating point.
    steps : int or None
        The number of steps of the urn.
    """

    alpha: Array
    r: float
    draws: int
    source: Once[Bits | np.random.Generator]
    steps: int | None

    @override
    def _drawn(self, counts: Array) -> list[Array]:
        source = self.source.take()
        if not isinstance(source, Bits):
            parameters, least = np.asarray(self.r * counts + self.alpha), float(self.alpha.min())
            return [fast_dirichlet(parameters, self.draws, source, least=least)]
        if self.shape[-1] == 1:
            return [np.ones((self.draws, *self.shape))]
        assert self.steps is not None
        integers = counts.astype(np.int64)
        return [exact_dirichlet(self.alpha, self.r, integers, steps=self.steps, draws=self.draws, bits=source)]


@final
@dataclass(frozen=True, eq=False, repr=False)
class EdgesDrawing:
    """The prepared choice of edges of bins, see :class:`~pymc_dirdp.mechanisms.choices.QuantilesMechanism`.

    Attributes
    ----------
    n_bins, n_candidates : int
    scale : Fraction
        The scale of the choice.
    bits : Once
    """

    n_bins: int
    n_candidates: int
    scale: Fraction
    bits: Once[Bits]

    def of(self, tables: Sequence[SecretCounts]) -> tuple[int, ...]:
        """The positions of the edges among the candidates, in rising order and without repetitions.

        The only table has the numbers of records between candidates.
        """
        (counts,) = tables
        # Scores are integers, so there is no rounding.
        scale, bits = self.scale * self.n_bins, self.bits.take()
        return tuple(sorted({chosen(scores, scale, bits) for scores in self.scores(counts)}))

    def scores(self, counts: SecretCounts) -> list[list[int]]:
        """The scores of all candidates for each edge, times `n_bins`. **Secret.**"""
        cells = np.asarray(counts.secret_cells)
        if cells.shape != (self.n_candidates + 1,) or cells.dtype.kind not in "iu":
            raise DataError(
                f"Expected {self.n_candidates + 1} integers, the numbers of records between {self.n_candidates} "
                "candidates."
            )
        running = np.cumsum(cells).tolist()
        below, total = running[:-1], running[-1]
        return [[-abs(self.n_bins * c - edge * total) for c in below] for edge in range(1, self.n_bins)]


@final
@dataclass(frozen=True, eq=False, repr=False)
class PairsDrawing:
    """Noise that was drawn before, to be added to the counts of all pairs of columns.

    Attributes
    ----------
    noises : tuple of Once
        The noise of each table, as Python integers.
    """

    noises: tuple[Once[NDArray[np.object_]], ...]

    def of(self, tables: Sequence[SecretCounts]) -> tuple[Integers, ...]:
        """The noisy counts of each table."""
        pairs = zip(tables, self.noises, strict=True)
        return tuple(_added(np.asarray(counts.secret_cells), noise.take()) for counts, noise in pairs)


type Pair = tuple[int, int]
"""Two variables of a tree."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class TreeDrawing:
    """The prepared choice of a tree, see :class:`~pymc_dirdp.mechanisms.choices.TreeMechanism`.

    Attributes
    ----------
    marginals : mapping of int to AddedNoise
        The noise on the marginal of each variable.
    pairs : tuple of (int, int)
        The pairs of variables that are counted.
    noise_sd : float
        The standard deviation of that noise in a cell.
    scale : Fraction
        The scale of the choices.
    bits : Once
    """

    marginals: Mapping[int, AddedNoise]
    pairs: tuple[Pair, ...]
    noise_sd: float
    scale: Fraction
    bits: Once[Bits]

    def of(self, tables: Sequence[SecretCounts]) -> tuple[Pair, ...]:
        """The edges of a forest: pairs of variables, the smaller first, in rising order.

        The tables are the marginals of the variables, and then the counts of the pairs.
        """
        n = len(self.marginals)
        counted = zip(self.marginals.values(), tables[:n], strict=True)
        noisy = [drawing.of(counts)[0] for drawing, counts in counted]
        return self.choose_edges(noisy, dict(zip(self.pairs, tables[n:], strict=True)))

    def choose_edges(self, noisy: Sequence[Array], pairs: Mapping[Pair, SecretCounts]) -> tuple[Pair, ...]:
        """Choose the edges, given the noisy marginals."""
        shares, total = self._predict(noisy)
        scores = {pair: self._score(pairs[pair], shares, total, pair) for pair in pairs}
        part_of = {i: i for i in self.marginals}
        edges, bits = list[Pair](), self.bits.take()
        for _ in range(len(self.marginals) - 1):
            candidates = [(i, j) for i, j in scores if part_of[i] != part_of[j]]
            candidate_scores = [*(scores[pair] for pair in candidates), self.stop_score(len(candidates))]
            place = chosen(candidate_scores, self.scale, bits)
            if place == len(candidates):
                break
            i, j = candidates[place]
            edges.append((i, j))
            part_of = {k: part_of[i] if part == part_of[j] else part for k, part in part_of.items()}
        return tuple(sorted(edges))

    def stop_score(self, n_candidates: int) -> int:
        """The score of "no more edges": about the maximum that the noise of the choice reaches among the candidates."""
        return math.ceil(float(self.scale) * math.log(n_candidates))

    def _predict(self, noisy: Sequence[Array]) -> tuple[dict[int, Array], float]:
        """The shares of all variables and the number of records, estimated from the noisy marginals."""
        counts = {i: np.clip(z, 0.0, MAX_RECORDS) for i, z in zip(self.marginals, noisy, strict=True)}
        total = float(np.clip(np.mean([np.sum(z) for z in noisy]), 0.0, MAX_RECORDS))
        return {i: (z + 1e-9) / np.sum(z + 1e-9) for i, z in counts.items()}, total

    def _score(self, counts: SecretCounts, shares: Mapping[int, Array], total: float, pair: Pair) -> int:
        """The l1 distance of a pair's counts from the prediction, minus its mean for independent variables."""
        first, second = (shares[k] for k in pair)
        expected = total * np.outer(first, second).ravel()
        rounded = np.round(expected)
        # All other terms are functions of the noisy marginals, which are published.
        cells = np.asarray(counts.secret_cells).ravel().astype(np.int64)
        distance = int(np.abs(cells - rounded.astype(np.int64)).sum())
        spread = np.outer(1 - first, 1 - second).ravel() * expected
        noise = self.noise_sd**2 * np.add.outer(first**2, second**2).ravel()
        variance = np.where(rounded > 0, spread + noise, np.minimum(expected**2, spread + noise))
        # The error of a cell that is predicted to be empty is its count.
        # The mean absolute value of a normal variable is its standard deviation times this.
        mean_size = math.sqrt(2 / math.pi)
        mean = np.where(rounded > 0, mean_size * np.sqrt(variance), expected).sum()
        n_variables = len(self.marginals)
        noise_reach = math.sqrt(2 * math.log(n_variables**2 / 2) * (1 - mean_size**2) * variance.sum())
        return distance - math.floor(min(float(mean) + noise_reach, float(MAX_RECORDS)))


def noisy_counts(counts: Array, noise: NDArray[Any], *, largest: float = 2.0**1000) -> Array:
    """Counts plus noise, clipped to `largest`, so that sums over a table do not overflow.

    Noise of Python integers is added without rounding, and the sum is rounded once, to a double.
    """
    if noise.shape != counts.shape and noise.shape[-counts.ndim :] != counts.shape:
        raise InternalError("Noise has another shape than the counts.")
    if noise.dtype.kind == "f":
        clipped: Array = np.clip(counts + noise, -largest, largest)
        return clipped
    try:
        extra = noise.astype(np.int64)
    except OverflowError:
        extra = None
    # Counts are at most 2**53, so these sums are 64-bit integers.
    if extra is not None and extra.min(initial=0) > -(2**62) and extra.max(initial=0) < 2**62:
        return (counts.astype(np.int64) + extra).astype(np.float64)
    most, integers = int(largest), np.broadcast_to(counts, noise.shape)
    sums = [
        max(-most, min(int(count) + z, most))
        for count, z in zip(integers.ravel().tolist(), noise.ravel().tolist(), strict=True)
    ]
    rounded: Array = np.array([float(value) for value in sums]).reshape(noise.shape)
    return rounded


def _added(counts: Integers, noise: NDArray[np.object_]) -> Integers:
    """Counts plus noise as 64-bit integers, clipped to what these can hold."""
    if noise.shape != counts.shape:
        raise InternalError("Noise has another shape than the counts.")
    # Python integers do not overflow.
    sums: Integers = np.clip(counts.astype(object) + noise, -(2**63), 2**63 - 1).astype(np.int64)
    return sums


def checked_counts(
    counts: ArrayLike, shape: tuple[int, ...], min_count: float = 0.0, n_records: int | None = None
) -> Array:
    """A copy of the counts as floats. Errors never contain counts.

    Parameters
    ----------
    counts : array_like of integers, shape `shape`
        The secret counts, each at most 2**53.
    shape : tuple of int
        The public shape of the table.
    min_count : float
        The public lower bound on the records of each cell.
    n_records : int or None
        The public number of records of the guarantee.

    Returns
    -------
    counts : array of float, shape `shape`
    """
    try:
        array: Array | None = np.array(counts, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        # NumPy's error shows a value, so it must not be the context of another one.
        array = None
    if array is None:
        raise DataError("Expected counts to be an array of integers.")
    if array.shape != shape:
        raise DataError(f"Expected counts of shape {shape}, the shape of alpha, got another shape.")
    # Both propagate NaN.
    smallest, largest = array.min(), array.max()
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        raise DataError(
            f"Some counts are missing or not finite. Write 0 for a cell without records. {missing_values()}"
        )
    if smallest < 0:
        raise DataError("Some counts are negative.")
    if np.any(array != np.floor(array)):
        raise DataError(
            "Some counts are not integers. Pass unweighted counts of records; survey weights belong to the released "
            "shares."
        )
    if largest > MAX_RECORDS:
        raise DataError("Some counts are above 2**53, so a double cannot represent them exactly.")
    if min_count and np.any(array < min_count):
        raise DataError(
            "A cell has fewer records than min_count, so the guarantee would be false. Lower min_count, which must "
            "hold for every possible data set."
        )
    if n_records is not None and exact_sum(array) != n_records:
        raise DataError(
            "The counts do not add up to n_records, so the guarantee would be false. Every possible data set must have "
            "n_records records."
        )
    return array


def exact_sum(integers: Array) -> int:
    """The sum of integers up to 2**53, fewer than 2**36 of them, without rounding."""
    numbers = integers.astype(np.int64)
    high: int = (numbers >> 26).sum(dtype=np.int64).item()
    low: int = (numbers & (2**26 - 1)).sum(dtype=np.int64).item()
    return (high << 26) + low
