"""Exact, independent draws of counts given their total."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.convolution import Convolution
from pymc_dirdp.inference.inversion import Inversion, refuse_too_many
from pymc_dirdp.inference.number_draws import NumberDraws
from pymc_dirdp.inference.number_laws import NumberLaws
from pymc_dirdp.inference.pair import Pair
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.tilted import TiltedCells, tilt_for

__all__ = ["draw_counts", "draw_row", "refuse_undrawable"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# One cell takes what the others leave if it has this share of the room; it is then accepted often enough.
_SHARE = 0.02
# So few proposals may be accepted before sums are taken number by number.
_RARE = 2e-3
# At least so many tables are proposed at a time, because every cell of a round takes some time of its own.
_AT_LEAST = 512
_MOST_ROUNDS = 5_000
# What takes more work than can be done is found out from so many cells.
_SOME = 64
# So many tables are proposed to see how many are accepted.
_TRIAL = 8_192


@dataclass
class _Tally:
    """How many tables were proposed and kept where the first cells are drawn."""

    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class _Sampler:
    tilted: TiltedCells
    numbers: NumberDraws
    order: Integers
    rng: np.random.Generator
    inversions: dict[int, Inversion] = field(default_factory=dict)

    def fill(self, counts: Integers, first: int, totals: Integers, tally: _Tally | None = None) -> None:
        """Draw the cells `order[first:]` of every row of `counts` given that they add up to `totals`.

        Some cells are drawn from their own distributions. The others have to take the rest; the draw is kept with a
        probability proportional to that of their doing so, and then they are drawn given the rest.
        """
        group = self.order[first:]
        if len(group) == 1:
            counts[:, group[0]] = totals
            return
        taking = self._taking(group)
        free = group[: len(group) - taking]
        waiting = np.arange(len(totals))
        for _ in range(_MOST_ROUNDS):
            # The first accepted one of several proposals counts; a few more than are needed spare rounds.
            repeats = 1 + _AT_LEAST // len(waiting)
            rows = np.repeat(waiting, repeats)
            proposed = np.stack([self.numbers.draw(int(cell), len(rows), self.rng) for cell in free], axis=1)
            rest = totals[rows] - proposed.sum(axis=1)
            accepted = np.log1p(-self.rng.random(len(rows))) <= self._log_share(first + len(free), rest)
            if tally is not None:
                tally.proposed += len(rows)
                tally.accepted += int(accepted.sum())
            took = accepted.reshape(-1, repeats)
            settled = took.any(axis=1)
            place = np.flatnonzero(settled) * repeats + took[settled].argmax(axis=1)
            counts[waiting[settled][:, None], free] = proposed[place]
            waiting = waiting[~settled]
            if len(waiting) == 0:
                self.fill(counts, first + len(free), totals - counts[:, free].sum(axis=1))
                return
        raise ArgumentError("The output is too far from what its total allows for draws to be accepted.")

    def _taking(self, group: Integers) -> int:
        """How many cells take the rest: the one with most room, or those with half of all room."""
        room = _room(self.tilted.cells)[group]
        if room[-1] >= _SHARE * room.sum():
            return 1
        return int(np.searchsorted(np.cumsum(room[::-1]), room.sum() / 2)) + 1

    def _log_share(self, first: int, rest: Integers) -> Array:
        """Logarithm of the probability that `order[first:]` add up to `rest`, by a bound of all such probabilities."""
        cells, taking = self.tilted.cells, self.order[first:]
        if len(taking) == 1:
            pivot = int(taking[0])
            return self.numbers.log_pmf(pivot, rest) - self.numbers.log_bound(pivot)
        if first not in self.inversions:
            self.inversions[first] = Inversion(cells, self.tilted.total, of=taking)
        inversion = self.inversions[first]
        return inversion.log_sum(rest) - inversion.log_bound


def _room(cells: NumberLaws) -> Array:
    """The variance of a normal law with the same largest probability: how well a cell can take what others leave.

    A cell that is probably empty may have a large variance, and yet nearly always refuse. It is rounded, so that the
    first of several cells with the same noise is taken on every machine, and a seed gives the same draws.
    """
    return np.exp(np.round(-2 * cells.peaks, 6)) / (2 * np.pi)


def draw_counts(tilted: TiltedCells, totals: Integers, rng: np.random.Generator) -> tuple[Integers, float]:
    """One table for each of some totals, and the share of the proposals that was accepted.

    Parameters
    ----------
    tilted : TiltedCells
        The cells; the totals are near theirs.
    totals : array of int, shape (draws,)
        What each table adds up to.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    counts : array of int, shape (draws, d)
        Independent draws from the distribution of the cells given their total.
    acceptance : float
        In (0, 1]; 1 where no draw is ever refused.
    """
    cells = tilted.cells
    numbers = NumberDraws(cells)
    order = np.argsort(_room(cells), kind="stable")
    sampler = _Sampler(tilted, numbers, order, rng)
    counts = np.empty((len(totals), cells.size), dtype=np.int64)
    expected = tilted.log_sum_of_products - cells.log_totals.sum() + cells.tilt * tilted.total
    if expected - numbers.log_bound(int(order[-1])) < np.log(_RARE):
        if isinstance(tilted.sums, Convolution):
            return tilted.sums.draw(totals, rng), 1.0
        if isinstance(tilted.sums, Pair) and np.all(totals == tilted.total):
            counts[:, 0] = NumberDraws(tilted.marginals).draw(0, len(totals), rng)
            counts[:, 1] = totals - counts[:, 0]
            return counts, 1.0
    tally = _Tally()
    sampler.fill(counts, 0, totals, tally)
    # A row of one cell holds all of its records, and nothing is proposed.
    return counts, tally.accepted / tally.proposed if tally.proposed else 1.0


def draw_row(law: ProductLaw, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
    """Independent draws of the counts of a row with a known total, and the share of the proposals that was accepted.

    Sums of cells, which take long for wide noise on very many records, are looked at only if they are needed: if no
    single cell takes what the others leave often enough.

    Parameters
    ----------
    law : ProductLaw
        The row.
    draws : int
        How many.
    rng : numpy.random.Generator
        The source of randomness.
    """
    cells = law.cells()
    cells.settle(tilt_for(cells, law.total))
    room = _room(cells)
    pivot = int(np.argmax(room))
    if room[pivot] >= _SHARE * room.sum():
        numbers = NumberDraws(cells)
        accepted = _by_pivot(cells, numbers, pivot, law.total, rng)
        if len(accepted) >= _RARE * _TRIAL:
            found, proposed, size = [accepted], _TRIAL, len(accepted)
            while size < draws:
                found.append(_by_pivot(cells, numbers, pivot, law.total, rng))
                proposed, size = proposed + _TRIAL, size + len(found[-1])
            return np.concatenate(found)[:draws], size / proposed
    return draw_counts(law.tilted, np.full(draws, law.total), rng)


def refuse_undrawable(law: ProductLaw) -> None:
    """Raise an error about a row of so many cells, or with noise so wide, that :func:`draw_row` could not draw it.

    It looks at some of its cells, evenly spaced, so it takes no time.

    Raises
    ------
    TooManyNodesError
    """
    d = len(law.alpha)
    some = np.unique(np.linspace(0, d - 1, min(d, _SOME)).astype(np.int64))
    part = replace(
        law, alpha=law.alpha[some], log_likelihood=lambda counts, cells: law.log_likelihood(counts, some[cells])
    )
    cells = part.cells()
    cells.settle(tilt_for(cells, law.total * len(some) // d))
    refuse_too_many(cells, d)


def _by_pivot(cells: NumberLaws, numbers: NumberDraws, pivot: int, total: int, rng: np.random.Generator) -> Integers:
    """The accepted ones of some proposals: one cell takes what the others leave."""
    counts = np.zeros((_TRIAL, cells.size), dtype=np.int64)
    for cell in np.delete(np.arange(cells.size), pivot).tolist():
        counts[:, cell] = numbers.draw(cell, _TRIAL, rng)
    counts[:, pivot] = total - counts.sum(axis=1)
    log_share = numbers.log_pmf(pivot, counts[:, pivot]) - numbers.log_bound(pivot)
    return counts[np.log1p(-rng.random(_TRIAL)) <= log_share]
