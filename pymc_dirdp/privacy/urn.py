"""What the counts of an urn lose at most, which the exact sampler of a Dirichlet draw outputs.

They are `steps` synthetic records in each row. They are a function of the continuous draw and of chance, so they keep
its curves. For finitely many steps their loss is bounded besides, so they also keep pure differential privacy: it is
largest where all steps hit one cell, a sum of `log(1 + r / (alpha + j))`. The proofs are on the page "urn".
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.gamma import mean_digamma
from pymc_dirdp.privacy.people import Contribution, adjacency_named
from pymc_dirdp.privacy.unit import partitions

# Up to so many steps their losses are added one by one.
_ADDED = 1_000
# Relative rounding errors: of a parameter, of r and of a sum of positive terms; and of a mean of digamma.
_RAISED, _ROUNDING = 1 + 4e-15, 4e-15
# Those of a sum and of a product, and of a logarithm of a Gamma function and what is done with it.
_UP, _ROUNDED_GAMMA = 1 + 1e-14, 1e-15
# All ways to spread so many records of a person are tried; of more, so many change at a time.
_MOST_SPREAD = 12
# An interval is halved until what its ends differ by adds no more to a loss, and no more often.
_LOOSE, _HALVINGS = 1e-12, 40

# What decides the loss of a block of rows: the smallest prior parameters of rows that a record may leave, with the sums
# of rows that it may come into; or the parameters of a single row in rising order, the last being the sum of the rest.
type _Rows = tuple[tuple[float, float], ...]
type _Row = tuple[float, ...]


def largest_urn_loss(a: float, r: float, steps: int) -> float:
    """The loss of an urn all of whose steps hit one cell, where the cell's parameter may be `a + r` or `a`.

    It is `L(a + r + m) - L(a + r) - L(a + m) + L(a)` with `L = log Gamma` and m the number of steps, that is the sum of
    `log(1 + r / (a + j))` over the steps `j = 0, ..., m - 1`. It rises with `r` and m and falls with `a`.

    Parameters
    ----------
    a : float
        The parameter of the cell without the record, positive.
    r : float
        What the record adds to it, positive.
    steps : int
        At least 1.

    Returns
    -------
    loss : float
        In nats, rounded up.

    Examples
    --------
    One step that hits a cell of parameter 1, or 2 with the record, is twice as likely with it:

    >>> round(largest_urn_loss(1.0, 1.0, 1) / math.log(2), 6)
    1.0
    """
    if steps <= _ADDED:
        return math.fsum(np.log1p(r / (a + np.arange(steps, dtype=np.float64))).tolist()) * _RAISED
    last, first = mean_digamma(a + steps, r), mean_digamma(a, r)
    # Where `a` is far larger than the number of steps, the difference is rounded more than the bound is loose.
    return min(r * (last - first + _ROUNDING * (abs(last) + abs(first))), steps * math.log1p(r / a)) * _RAISED


@final
@dataclass(frozen=True)
class UrnCells:
    """Those cells of a table that decide what urns lose of one person's records.

    A calibration looks at the table only once, because adding the same number to every prior parameter does not change
    which cells they are.

    Attributes
    ----------
    people : tuple
        The blocks of rows of every kind of person, and how many blocks are alike.
    records : int
        The most records of a person in each block.
    d : int
        The number of categories.
    """

    people: tuple[tuple[tuple[_Row | _Rows, int], ...], ...]
    records: int
    d: int

    def pure_epsilon(self, r: float, steps: int, adjacency: str, *, more: float = 0.0) -> float:
        """The largest loss, for data sets of any size, with `more` added to every prior parameter.

        Where a person has one record in each block, or up to 12 records in blocks of one row, it is the supremum over
        all neighbours; with k records in blocks of several rows it is at most k times that of one.

        References
        ----------
        The page of proofs "urn", statements 1 to 4.

        Examples
        --------
        Ten thousand steps of an urn with the hair colours of students, at (1, 1e-6):

        >>> urn_cells(np.full(4, 1.9), Contribution(1)).pure_epsilon(0.2, 10_000, "replace-one")
        1.7...
        """
        replaced = adjacency_named(adjacency).records_are_public
        losses = (
            math.fsum(count * self._block(block, r, steps, more, replaced=replaced) for block, count in blocks)
            for blocks in self.people
        )
        return max(losses, default=0.0) * _UP

    def _block(self, block: _Row | _Rows, r: float, steps: int, more: float, *, replaced: bool) -> float:
        if isinstance(block[0], tuple):
            # One record after the other moves, so the largest losses add up. Each leaves a cell of a row that is full
            # elsewhere, and comes into an empty row.
            return self.records * max(
                largest_urn_loss(low + more, r, steps)
                + (largest_urn_loss(total + self.d * more, r, steps) if replaced else 0.0)
                for low, total in block
            )
        # Not all cells of a row can gain records: those cells that lose them, or a group of others, are in one.
        cells = (np.array(block[:-1]) + more)[: self.d - 1]
        total = math.fsum(block) + self.d * more
        times, left = divmod(self.records, _MOST_SPREAD)
        largest = _spread_loss(cells, total, r, steps, left, replaced=replaced)
        return (
            largest + times * _spread_loss(cells, total, r, steps, _MOST_SPREAD, replaced=replaced)
            if times
            else largest
        )


def urn_cells(alpha: Array, contribution: Contribution) -> UrnCells:
    """Where one person's records may lie in a table with the prior parameters `alpha`, shape (..., d)."""
    axes = contribution.fitted(alpha.shape).axes
    own, each, rest = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each", "any"))
    shape = [math.prod(alpha.shape[i] for i in some) for some in (own, each, rest)]
    d = alpha.shape[-1]
    table = np.sort(alpha.transpose([*own, *each, *rest, alpha.ndim - 1]).reshape(*shape, d), axis=-1)
    if d == 1:
        return UrnCells((), contribution.records, d)
    # A person has these blocks, each of some rows.
    people = dict.fromkeys(
        tuple(sorted(Counter(_deciding(rows, contribution.records) for rows in person).items())) for person in table
    )
    return UrnCells(tuple(people), contribution.records, d)


def _deciding(rows: Array, records: int) -> _Row | _Rows:
    """What the loss of one block depends on. Each row is in rising order."""
    if len(rows) == 1:
        most = max(2, min(records, _MOST_SPREAD))
        return (*rows[0, :most].tolist(), math.fsum(rows[0, most:].tolist()))
    smallest, totals = rows[:, 0], rows.sum(axis=1)
    # Both terms of the loss fall with their parameter, and the two rows are different ones.
    leaving, joining = (np.argsort(values, kind="stable")[:2].tolist() for values in (smallest, totals))
    pairs = {(float(smallest[i]), float(totals[j])) for i in leaving for j in joining if i != j}
    return tuple(sorted(pairs))


def _spread_loss(cells: Array, total: float, r: float, steps: int, records: int, *, replaced: bool) -> float:
    """The largest loss of an urn of one row by up to so many records of a person, which may be spread over the cells.

    `g_i` records in the cells with the smallest parameters, the larger part in the smaller one, make so many steps the
    more likely as the sum of the largest of `log(1 + g_i r / (alpha_i + j))`, `j = 0, 1, ...`, says. If they are
    replaced by more records in another cell, those that are missing make every outcome elsewhere more likely.

    Parameters
    ----------
    cells : array
        The smallest parameters of the row in rising order, without that of its last cell.
    total : float
        The sum of all parameters of the row.
    """
    if records < 2:
        return largest_urn_loss(float(cells[0]), r, steps) if records else 0.0
    parts = _ways_to_spread(records, min(len(cells), records), fewer=replaced)
    cells = cells[: parts.shape[1]]
    gained = parts.sum(axis=1)
    # As many steps go to each cell as have a term of log(1 + r / x) or more; x is such that they are enough.
    # With real numbers of steps it would be the least of these, and less than one step a cell is lost by whole ones.
    # Where no record is added there are no terms.
    added, needed = np.maximum(np.cumsum(parts, axis=1), 1.0), steps + np.cumsum(cells)
    high = np.min(needed / added, axis=1)
    low = np.maximum(np.min((needed - np.arange(1, len(cells) + 1)) / added, axis=1), 0.0)
    low = np.where(gained > 0, low, high)

    def hits(x: Array) -> Array:
        return np.where(parts > 0, np.maximum(np.floor(parts * x[:, None] - cells) + 1, 0.0), 0.0)

    for _ in range(_HALVINGS):
        with np.errstate(divide="ignore"):
            if np.max(len(cells) * np.log1p(r * (high - low) / (low * (high + r)))) <= _LOOSE:
                break
        middle = (low + high) / 2
        enough = hits(middle).sum(axis=1) >= steps
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    counts = hits(high)
    # Steps too many have the least term. Whatever x is, this is a bound.
    rest = np.where(gained > 0, (steps - counts.sum(axis=1)) * np.log1p(r / high), 0.0)
    without, missing = total + r * gained, r * (records - gained)
    terms = [gammaln(cells + parts * r + counts), -gammaln(cells + parts * r), -gammaln(cells + counts), gammaln(cells)]
    others = [gammaln(without + missing + steps), -gammaln(without + missing), -gammaln(without + steps)]
    others.append(gammaln(without))
    size = sum(np.abs(np.broadcast_to(term, parts.shape)).sum(axis=1) for term in terms) + sum(map(np.abs, others))
    losses, error = sum(terms).sum(axis=1) + sum(others) + rest, _ROUNDED_GAMMA * size
    # Those that may be the largest are added up without cancellation.
    return max(
        math.fsum(
            [
                float(rest[i]),
                *(
                    largest_urn_loss(a, k * r, int(hit))
                    for a, k, hit in zip(cells.tolist(), parts[i].tolist(), counts[i].tolist(), strict=True)
                    if hit
                ),
                largest_urn_loss(float(without[i]), float(missing[i]), steps) if missing[i] else 0.0,
            ]
        )
        for i in np.flatnonzero(losses + error >= np.max(losses - error))
    )


@cache
def _ways_to_spread(records: int, most: int, *, fewer: bool) -> Array:
    """All ways to put so many records, or fewer too, into at most so many cells, as rows of falling numbers."""
    numbers = range(records + 1) if fewer else (records,)
    ways = [way for number in numbers for way in partitions(number, most)]
    parts = np.zeros((len(ways), most))
    for row, way in zip(parts, ways, strict=True):
        row[: len(way)] = way
    parts.flags.writeable = False
    return parts
