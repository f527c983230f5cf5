"""The tables of a network end to end, so that a graph has as few operations for many tables as for one."""

import math
from collections.abc import Sequence
from typing import final

import numpy as np
from scipy.linalg import block_diag

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.margins import Family
from pymc_dirdp.inference.shrinkage import SCALES

__all__ = ["FlatTables", "JointCells"]

# The effects of so many cells are multiplied by one matrix, and those of more cells table by table.
_MOST_IN_ONE_MATRIX = 1000
# So many products of shares at each step of a sampler are a part of a millisecond.
_MOST_PRODUCTS = 200_000


@final
class FlatTables:
    """The cells of some tables in one vector, in the order of the tables, and the effects that they are made of.

    Parameters
    ----------
    families : sequence of Family
    whole : bool
        Whether the shares of all cells of a table add up to 1, and not those of each row.

    Attributes
    ----------
    families : tuple of Family
    starts : array of int, shape (tables + 1,)
        Where the cells of each table start.
    sums : array of int, shape (n, most)
        The cells whose shares add up to 1, one set in each row; the number of all cells where there are no more.
    places : array of int, shape (cells,)
        Where each cell stands among those of `sums`.
    sum_of : array of int, shape (cells,)
        In which row of `sums` it stands.
    kept : tuple of array of int
        The places of the effects of each table that change the shares, in the table of its effects.
    scale_of : array of int, shape (effects,)
        The scale of each of these effects.
    spreads : array, shape (scales,)
        The prior scale of each scale.
    scale_names : tuple of str
        What the effects of each scale depend on.

    Examples
    --------
    >>> tables = FlatTables([Family("p", ("a",), (3,)), Family("q", ("a", "b"), (3, 2))], whole=False)
    >>> tables.sums.tolist()
    [[0, 1, 2], [3, 4, 9], [5, 6, 9], [7, 8, 9]]
    >>> tables.scale_names
    ('p: a', 'q: b', 'q: a, b')
    """

    def __init__(self, families: Sequence[Family], *, whole: bool) -> None:
        self.families = tuple(families)
        sizes = [math.prod(family.shape) for family in families]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.cells = int(self.starts[-1])
        widths = [size if whole else family.shape[-1] for family, size in zip(families, sizes, strict=True)]
        many = np.concatenate([np.full(size // width, width) for size, width in zip(sizes, widths, strict=True)])
        ends = np.cumsum(many)
        columns = np.arange(many.max())
        self.sums: Integers = np.where(columns < many[:, None], (ends - many)[:, None] + columns, self.cells)
        self.sum_of: Integers = np.repeat(np.arange(len(many)), many)
        self.places: Integers = self.sum_of * len(columns) + np.arange(self.cells) - (ends - many)[self.sum_of]
        self._effects = [Effects(family.shape) for family in families]
        self._make_scales(whole)

    def _make_scales(self, whole: bool) -> None:
        kept, scale_of = [], []
        spreads: list[float] = []
        names: list[str] = []
        for family, effects in zip(self.families, self._effects, strict=True):
            # Those that are the same wherever shares add up to 1 change none of them.
            moves = np.ones(family.shape, dtype=bool)
            moves[(0,) * len(family.shape) if whole else (..., 0)] = False
            kept.append(np.flatnonzero(moves))
            groups = effects.groups.ravel()[kept[-1]]
            found, place = np.unique(groups, return_inverse=True)
            scale_of.append(place + len(names))
            spreads += np.maximum(SCALES[np.minimum(effects.orders[found], len(SCALES) - 1)], SCALES[-1]).tolist()
            for group in found:
                index = np.unravel_index(np.flatnonzero(effects.groups.ravel() == group), family.shape)
                alike = len({tuple(np.array(one) > 0) for one in zip(*index, strict=True)}) == 1
                own = [axis for axis, along in zip(family.axes, index, strict=True) if along[0] > 0]
                names.append(f"{family.name}: {', '.join(own) if alike else 'more than 3'}")
        self.kept = tuple(kept)
        self.scale_of: Integers = np.concatenate(scale_of)
        self.spreads: Array = np.array(spreads)
        self.scale_names = tuple(names)

    @property
    def matrix(self) -> Array | None:
        """The logit of each cell for each effect, shape (cells, effects); None if there are many cells."""
        if self.cells > _MOST_IN_ONE_MATRIX:
            return None
        blocks = []
        for effects, kept in zip(self._effects, self.kept, strict=True):
            cells = math.prod(effects.shape)
            blocks.append(effects.logits(np.eye(cells).reshape(-1, *effects.shape)).reshape(cells, cells)[kept].T)
        return np.asarray(block_diag(*blocks))

    def margins(self, wanted: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[Integers, Integers]:
        """Sums of cells: which cell, and where it is added, for the marginals of some tables end to end.

        Parameters
        ----------
        wanted : sequence of (int, tuple of str)
            The number of a table, and the axes that are kept, in their order in the table.
        """
        from_, to, start = [], [], 0
        for number, axes in wanted:
            family = self.families[number]
            sizes = dict(zip(family.axes, family.shape, strict=True))
            index = dict(zip(family.axes, np.indices(family.shape).reshape(len(family.shape), -1), strict=True))
            from_.append(np.arange(self.starts[number], self.starts[number + 1]))
            to.append(start + _cell(axes, index, sizes))
            start += math.prod(sizes[axis] for axis in axes)
        return np.concatenate(from_), np.concatenate(to)


@final
class JointCells:
    """All combinations of the values of all variables, for a network with few of them.

    Parameters
    ----------
    tables : FlatTables
    sizes : mapping of str to int
        The number of values of each variable.

    Attributes
    ----------
    factors : array of int, shape (tables, combinations)
        The cell of each table whose share is a factor of the probability of each combination.
    """

    def __init__(self, tables: FlatTables, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        grid = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
        self._index = dict(zip(sizes, grid, strict=True))
        self.factors: Integers = np.stack(
            [
                start + _cell(family.axes, self._index, sizes)
                for family, start in zip(tables.families, tables.starts, strict=False)
            ]
        )

    @staticmethod
    def fits(sizes: dict[str, int], tables: int, margins: int) -> bool:
        """Whether the combinations are few enough to have all their probabilities computed."""
        return math.prod(sizes.values()) * (2 * tables + margins) <= _MOST_PRODUCTS

    def margins(self, wanted: Sequence[tuple[str, ...]]) -> Integers:
        """Where each combination is added for the marginals end to end: shape (marginals, combinations)."""
        starts = np.cumsum([0, *(math.prod(self.sizes[axis] for axis in axes) for axes in wanted)])
        return np.stack(
            [start + _cell(axes, self._index, self.sizes) for start, axes in zip(starts, wanted, strict=False)]
        )


def _cell(axes: Sequence[str], index: dict[str, Integers], sizes: dict[str, int]) -> Integers:
    """The number of the cell of a marginal, in the order of its axes."""
    return np.asarray(
        np.ravel_multi_index(tuple(index[axis] for axis in axes), tuple(sizes[axis] for axis in axes)), dtype=np.int64
    )
