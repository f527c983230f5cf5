"""All posteriors that some data set of n records has: what P4's mechanisms choose from."""

import itertools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.hellinger_distance import AffinityRows, distance_of

__all__ = ["Candidates", "all_counts", "number_of_tables"]

# So many vectors of counts, and so many counts in all, are still listed and held in memory.
_MOST_LISTED, _MOST_COUNTS = 5_000_000, 20_000_000


def number_of_tables(n_records: int, d: int) -> int:
    """How many vectors of `d` counts add up to `n_records`."""
    return math.comb(n_records + d - 1, d - 1)


def all_counts(n_records: int, d: int) -> Integers:
    """All vectors of `d` counts that add up to `n_records`, in lexicographic order. Shape `(number_of_tables, d)`."""
    table = np.zeros((1, 0), dtype=np.int64)
    # Column by column: the running sum of the first entries, 0 to n, and all ways to go on from it.
    sums = np.zeros(1, dtype=np.int64)
    for _ in range(d - 1):
        ways = n_records + 1 - sums
        parents = np.repeat(np.arange(len(sums)), ways)
        steps = np.arange(len(parents)) - np.repeat(np.cumsum(ways) - ways, ways)
        sums = sums[parents] + steps
        table = np.column_stack([table[parents], steps])
    return np.column_stack([table, n_records - sums])


@final
class Candidates:
    """Posteriors `Dirichlet(prior + counts)` for all counts with `n_records` in all, in lexicographic order.

    Parameters
    ----------
    prior : array, shape (d,)
        Positive.
    n_records : int
        At least 1.
    """

    def __init__(self, prior: Array, n_records: int) -> None:
        self.prior = prior
        self.n_records = n_records
        self.size = number_of_tables(n_records, len(prior))
        most = min(_MOST_LISTED, _MOST_COUNTS // len(prior))
        if self.size > most:
            # Python refuses to print numbers of thousands of digits.
            many = str(self.size) if self.size < 10**15 else "more than 1e15"
            raise UnattainableError(
                f"{n_records} records in {len(prior)} categories have {many} posteriors, and this mechanism weighs "
                f"each of them; at most {most} can be. Use GeometricMechanism or DirichletMechanism."
            )

    @cached_property
    def counts(self) -> Integers:
        """Shape `(size, d)`."""
        counts = all_counts(self.n_records, len(self.prior))
        counts.flags.writeable = False
        return counts

    @cached_property
    def _rows(self) -> list[AffinityRows]:
        of = {value: AffinityRows(value, self.n_records) for value in set(self.prior.tolist())}
        return [of[value] for value in self.prior.tolist()]

    def distances(self, counts: Integers) -> Array:
        """Hellinger distance of every candidate from the posterior given these counts. Shape `(size,)`."""
        losses = [rows.row(count) for rows, count in zip(self._rows, counts.tolist(), strict=True)]
        if len(losses) == 2:
            loss = losses[0] + losses[1][::-1]
        else:
            loss = losses[0][self.counts[:, 0]]
            for column, row in enumerate(losses[1:], start=1):
                loss += row[self.counts[:, column]]
        return distance_of(loss)

    def layers(self) -> Iterator[range]:
        """The candidates that share their first count: neighbours are in the same layer or in two adjacent ones."""
        first = self.counts[:, 0]
        ends = np.searchsorted(first, np.arange(self.n_records + 2))
        return (range(start, stop) for start, stop in itertools.pairwise(ends.tolist()))

    @property
    def number_of_neighbours(self) -> int:
        """How many pairs of neighbours there are: two cells that hold one record more than those of n - 1 records."""
        return number_of_tables(self.n_records - 1, len(self.prior)) * math.comb(len(self.prior), 2)

    @cached_property
    def neighbours(self) -> list[tuple[Integers, Integers]]:
        """For each layer, two arrays of indices: the pairs of neighbours in it, or in it and the layer before."""
        ranks = {tuple(row): i for i, row in enumerate(self.counts.tolist())}
        return [self._pairs(layer, ranks) for layer in self.layers()]

    def _pairs(self, layer: range, ranks: dict[tuple[int, ...], int]) -> tuple[Integers, Integers]:
        first, second = [], []
        for i, row in zip(layer, self.counts[layer.start : layer.stop].tolist(), strict=True):
            # A move from the first cell leads into the layer before; one between two others is listed in one order.
            for left in (cell for cell, count in enumerate(row) if count):
                for joined in range(left + 1, len(row)):
                    moved = row.copy()
                    moved[left] -= 1
                    moved[joined] += 1
                    first.append(i)
                    second.append(ranks[tuple(moved)])
        return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
