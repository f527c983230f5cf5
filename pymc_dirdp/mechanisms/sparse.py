"""Geometric noise on a table with far more cells than records, of which only what passes a threshold is listed."""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MOST_RECORDS, at_least, checked_counts, integer, positive
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Bits, Seed
from pymc_dirdp.sampling.discrete_noise import discrete_laplace
from pymc_dirdp.sampling.geometric import noise_above
from pymc_dirdp.signatures import user_facing

__all__ = ["SparseGeometricMechanism", "least_threshold"]

# A listed cell takes about 10 microseconds, so that a release of so many takes seconds.
_MOST_FALSE = 1e6
# Within these bounds a threshold is at most 10**15 times the scale, which the sampler wants.
_LEAST_SCALE, _LARGEST_SCALE, _LARGEST_THRESHOLD = 2.0**-9, 2.0**40, 2**40
_MOST_CELLS = 2**63 - 1


@user_facing
@final
@dataclass(frozen=True)
class SparseGeometricMechanism(CurvesOf):
    """List the cells of a table whose noisy count is at least a public threshold, with their noisy counts.

    The table may have 10**10 cells, of which few hold a record. Every cell gets two-sided geometric noise, also the
    empty ones, and a cell is listed if its noisy count passes the threshold. Only the cells that hold records and those
    that are listed are ever drawn. The list has exactly the distribution that it would have if the whole table had been
    drawn.

    Parameters
    ----------
    n_cells : int
        Number of cells of the whole table, from 2 to 2**63 - 1. It has to be public, and so has the meaning of each
        cell: the list of the cells that hold a record is secret.
    threshold : int
        The least noisy count that is listed, from 1 to 2**40. It has to be chosen without the data.
    scale : float
        Scale of the noise, between 2**-9 and 2**40. It is rounded up to 41 binary digits, and the attribute is the
        number that is used.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    contribution : int, default 1
        The largest number of records of one unit.

    Raises
    ------
    ArgumentError
        If more than a million empty cells would be listed on average. The message names a threshold that works.

    Notes
    -----
    The curves are those of :class:`GeometricMechanism` on a table of this contribution: the list is a function of the
    noisy table.

    The running time is proportional to the number of cells that hold records, plus the number of empty ones that are
    listed. So anyone who can time a release learns about how many cells hold records. Let nobody time it who may not
    know that.

    References
    ----------
    Cormode, Procopiuc, Srivastava and Tran (2012), Differentially private summaries for sparse data,
    https://doi.org/10.1145/2274576.2274608, for the lazy draw; the page of proofs on sparse tables.

    Examples
    --------
    >>> mechanism = SparseGeometricMechanism(10**10, threshold=50, scale=2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> cells, noisy = mechanism.release([7, 123_456_789], [1000, 3])
    >>> int(cells[0]), bool(np.all(noisy >= 50))
    (7, True)
    """

    n_cells: int
    threshold: int
    scale: float
    _: KW_ONLY
    adjacency: str = "replace-one"
    contribution: int = 1

    kind: ClassVar[str] = "sparse-geometric"

    def __post_init__(self) -> None:
        n_cells = integer(2, n_cells=self.n_cells)
        if n_cells > _MOST_CELLS:
            raise ArgumentError("Expected n_cells below 2**63, the largest number by which a cell can be named.")
        scale = positive(scale=self.scale)
        if not _LEAST_SCALE <= scale <= _LARGEST_SCALE:
            raise ArgumentError(
                f"Expected scale between 2**-9 and 2**40, got scale={scale:g}. Ask for another epsilon."
            )
        object.__setattr__(self, "n_cells", n_cells)
        object.__setattr__(self, "scale", scale)
        # This checks what is left, and rounds the scale up.
        object.__setattr__(self, "contribution", integer(1, contribution=self.contribution))
        object.__setattr__(self, "scale", self.dense.scale)
        object.__setattr__(self, "threshold", self._checked_threshold(self.threshold))

    def _checked_threshold(self, threshold: int) -> int:
        if at_least(-math.inf, finite=False, threshold=threshold) < 1:
            raise ArgumentError(
                f"Expected threshold >= 1, got threshold={threshold:g}: below it about half of all cells would be "
                "listed. To list exactly the cells that hold records is not private either, because which these are "
                f"is the secret. Take threshold={_least(self.n_cells, self.scale, 1.0)}, which lists 1 empty cell on "
                "average, or release the whole table with GeometricMechanism if it is small."
            )
        threshold = integer(1, threshold=threshold)
        if threshold > _LARGEST_THRESHOLD:
            raise ArgumentError("Expected threshold of at most 2**40. Take a lower one.")
        false = _expected_false(self.n_cells, self.scale, threshold)
        if false > _MOST_FALSE:
            raise ArgumentError(
                f"With threshold={threshold} about {false:.3g} empty cells would be listed, and at most "
                f"{_MOST_FALSE:.0e} are drawn. The least threshold that lists so few is "
                f"{_least(self.n_cells, self.scale, _MOST_FALSE)}, and {_least(self.n_cells, self.scale, 1.0)} lists 1 "
                "on average."
            )
        return threshold

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        n_cells: int,
        threshold: int,
        adjacency: str = "replace-one",
        contribution: int = 1,
    ) -> Self:
        """The mechanism with the least noise that keeps `guarantee`; arguments as for the mechanism itself."""
        scale = _scale_for(guarantee, adjacency=adjacency, contribution=contribution)
        return cls(n_cells, threshold, scale, adjacency=adjacency, contribution=contribution)

    @cached_property
    def dense(self) -> GeometricMechanism:
        """The mechanism for a small table with the same noise and curves: they do not depend on the number of cells."""
        return GeometricMechanism(
            np.ones(2), self.scale, adjacency=self.adjacency, contribution=integer(1, contribution=self.contribution)
        )

    @property
    @override
    def _curves(self) -> PrivacyCurves:
        return self.dense

    @property
    def expected_false(self) -> float:
        """The number of empty cells that are listed, on average, if nearly all cells are empty."""
        return _expected_false(self.n_cells, self.scale, self.threshold)

    def release(self, cells: ArrayLike, counts: ArrayLike, *, random_seed: Seed = None) -> tuple[Integers, Integers]:
        """The list: the cells whose noisy counts pass the threshold, in order, and these noisy counts.

        Parameters
        ----------
        cells : array_like of int, shape (m,)
            The cells that hold records, from 0 to `n_cells - 1`, each once and in any order. Secret.
        counts : array_like of integers, shape (m,)
            How many records each of them holds. Secret.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        listed : array of int64, shape (k,)
        noisy : array of int64, shape (k,)
            Each at least `threshold`; one above 2**53 is given as 2**53.

        Raises
        ------
        DataError
            If a cell is no integer, is outside of the table or is named twice, or a count is no integer from
            0 to 2**53. The message shows no cell and no count.
        """
        own, occupied = self._checked(cells, counts)
        bits, scale = Bits(random_seed), Fraction(self.scale)
        # The noise of the cells that hold records, and that of all cells, of which the former are left out again: then
        # what is drawn for the empty ones does not depend on which these are.
        noise = discrete_laplace(scale, own.shape, bits)
        places, drawn = noise_above(self.n_cells, self.threshold, scale, bits)
        noisy = [count + extra for count, extra in zip(occupied.tolist(), noise.tolist(), strict=True)]
        passed = np.array([value >= self.threshold for value in noisy], dtype=bool)
        empty = ~np.isin(places, own)
        values = [*_only(noisy, passed), *_only(drawn, empty)]
        listed = np.concatenate([own[passed], places[empty]])
        order = np.argsort(listed)
        capped = np.array([min(value, MOST_RECORDS) for value in values], dtype=np.int64)
        return listed[order], capped[order]

    def _checked(self, cells: ArrayLike, counts: ArrayLike) -> tuple[Integers, Integers]:
        try:
            own = np.asarray(cells)
        except (OverflowError, TypeError, ValueError):
            own = np.empty(0, dtype=object)
        if own.size == 0 and own.ndim == 1 and own.dtype.kind in "fiu":
            own = own.astype(np.int64)
        if own.ndim != 1 or own.dtype.kind not in "iu":
            raise DataError("Expected cells to be a list of integers. Declare categories= for cells with labels.")
        if own.size and (int(own.min()) < 0 or int(own.max()) >= self.n_cells):
            raise DataError("Some cell is outside of the table: cells are numbered from 0 to n_cells - 1.")
        if len(np.unique(own)) < own.size:
            raise DataError("Some cell is named twice. Add the counts of each cell first.")
        if np.shape(counts) != own.shape:
            # How many cells hold records is secret, so no shape is shown.
            raise DataError("Expected one count for each cell.")
        return own.astype(np.int64), checked_counts(counts, own.shape).astype(np.int64)


@user_facing
def least_threshold(
    guarantee: Guarantee,
    n_cells: int,
    *,
    false_cells: float = 1.0,
    adjacency: str = "replace-one",
    contribution: int = 1,
) -> int:
    """The least threshold at which at most so many empty cells are listed on average.

    Parameters
    ----------
    guarantee : Guarantee
        What :func:`pymc_dirdp.sparse.release_sparse` is asked to keep.
    n_cells : int
        Number of cells of the whole table.
    false_cells : float, default 1
        The number of empty cells that may be listed, on average. Positive.
    adjacency, contribution
        As for :class:`SparseGeometricMechanism`.

    Returns
    -------
    threshold : int
        It depends on no data. A cell with so many records is listed with a probability of more than one half.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> least_threshold(PureDP(epsilon=1), 10**10)
    46
    >>> least_threshold(PureDP(epsilon=1), 10**10, false_cells=1000)
    32
    """
    scale = _scale_for(guarantee, adjacency=adjacency, contribution=contribution)
    return _least(integer(2, n_cells=n_cells), scale, positive(false_cells=false_cells))


def _scale_for(guarantee: Guarantee, **facts: Any) -> float:
    return GeometricMechanism.for_guarantee(guarantee, prior=[1.0, 1.0], **facts).scale


def _least(n_cells: int, scale: float, false_cells: float) -> int:
    # n exp(-threshold / scale) / (1 + exp(-1 / scale)) is at most the number of false cells.
    least = max(1, math.ceil(scale * (math.log(n_cells / false_cells) - math.log1p(math.exp(-1 / scale)))))
    return least + (_expected_false(n_cells, scale, least) > false_cells)


def _expected_false(n_cells: int, scale: float, threshold: int) -> float:
    return n_cells * math.exp(-threshold / scale) / (1 + math.exp(-1 / scale))


def _only(values: list[int], selected: Any) -> list[int]:
    return [value for value, keep in zip(values, selected.tolist(), strict=True) if keep]
