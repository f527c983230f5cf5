"""What a list of noisy counts above a threshold says of the counts: of listed cells, of all others, of their sum."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism

__all__ = ["CountLaw", "SparseLaw", "SparsePrior"]

# A count whose probability is exp of minus this, relative to the largest one, is left out.
_UNLIKELY = 60.0
# A law is listed over so many counts at most.
_MOST_COUNTS = 20_000_000
# The prior is computed once for counts up to this one.
_MOST_KEPT = 5_000_000


@final
@dataclass(frozen=True)
class SparsePrior:
    """Independent negative binomial counts in all cells: the records of shares with a symmetric Dirichlet prior.

    Shares that are `Dirichlet(a, ..., a)` and a number of records that is negative binomial with shape ``a * n_cells``
    make the counts independent, each negative binomial with shape `a`.

    Parameters
    ----------
    n_records : float
        The number of records that is expected. Positive.
    n_occupied : float
        How many cells are expected to hold a record: below `n_records` and below the number of cells.
    n_cells : int, optional
        Of the whole table; a release knows its own.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> prior = dirdp.sparse.SparsePrior(n_records=1000, n_occupied=100).over(10**6)
    >>> x = np.arange(20_000)
    >>> law = np.exp(prior.log_mass(x))
    >>> bool(abs(law @ x - 1e-3) < 1e-9), bool(abs(law[1:].sum() - 1e-4) < 1e-10)
    (True, True)
    """

    n_records: float
    n_occupied: float
    n_cells: int | None = None

    def __post_init__(self) -> None:
        records, occupied = positive(n_records=self.n_records), positive(n_occupied=self.n_occupied)
        if not occupied < min(records, self._cells) * (1 - 1e-9):
            raise ArgumentError(
                "Expected n_occupied below n_records and below the number of cells, got "
                f"n_occupied={occupied:g} and n_records={records:g}."
            )

    @property
    def _cells(self) -> float:
        return math.inf if self.n_cells is None else self.n_cells

    def over(self, n_cells: int) -> "SparsePrior":
        """The same for a table of so many cells."""
        return replace(self, n_cells=n_cells)

    @cached_property
    def concentration(self) -> float:
        """The sum of the parameters of the Dirichlet prior: what makes `n_occupied` cells hold a record on average."""
        from scipy.optimize import brentq

        def log_excess(log_a: float) -> float:
            return math.log(self._occupied(math.exp(log_a))) - math.log(self.n_occupied)

        low = high = math.log(self.n_occupied)
        while log_excess(low) > 0:
            low -= 2
        while log_excess(high) < 0:
            high += 2
            if high > 600:
                raise ArgumentError(
                    "n_occupied is too close to n_records, or to the number of cells. Take a lower one."
                )
        return math.exp(brentq(log_excess, low, high, xtol=1e-12))

    def _occupied(self, concentration: float) -> float:
        empty = -concentration / self._cells * math.log1p(self.n_records / concentration)
        return -self._cells * math.expm1(empty)

    def log_mass(self, counts: NDArray[np.int64]) -> Array:
        """Logarithm of the probability of counts of one cell. Elementwise."""
        from scipy.special import gammaln

        x, total = np.asarray(counts, dtype=np.float64), self.concentration
        a = total / self._cells
        log_ratio = -math.log1p(total / self.n_records)
        ways = gammaln(x + a) - gammaln(a) - gammaln(x + 1)
        return np.asarray(ways - a * math.log1p(self.n_records / total) + x * log_ratio)


@final
@dataclass(frozen=True, eq=False)
class CountLaw:
    """The distribution of the count of one cell.

    Attributes
    ----------
    counts : array of int, shape (n,)
        In order.
    weights : array, shape (n,)
        Their probabilities.
    """

    counts: Integers
    weights: Array

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self.weights @ self.counts)

    @property
    def variance(self) -> float:
        """The variance."""
        return float(self.weights @ (self.counts - self.mean) ** 2)

    @property
    def occupied(self) -> float:
        """The probability that the cell holds a record."""
        return float(self.weights[self.counts > 0].sum())

    def interval(self, prob: float) -> tuple[int, int]:
        """Both ends of a central interval, which holds at least this probability."""
        up, tail = np.cumsum(self.weights), (1 - prob) / 2
        ends = np.searchsorted(up, [tail, 1 - tail]).clip(max=len(up) - 1)
        return int(self.counts[ends[0]]), int(self.counts[ends[1]])

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Integers:
        """Independent draws."""
        up = np.cumsum(self.weights)
        places = np.searchsorted(up, rng.random(shape) * up[-1], side="right").clip(max=len(up) - 1)
        drawn: Integers = self.counts[places]
        return drawn


@final
@dataclass(frozen=True, eq=False)
class SparseLaw:
    """The counts of all cells given a list, which are independent of one another.

    Attributes
    ----------
    mechanism : SparseGeometricMechanism
    noisy : array of int64, shape (k,)
        The noisy counts that are listed.
    prior : SparsePrior
    """

    mechanism: SparseGeometricMechanism
    noisy: Integers
    prior: SparsePrior

    @property
    def n_others(self) -> int:
        """The number of cells that are not listed."""
        return self.mechanism.n_cells - len(self.noisy)

    @property
    def _reach(self) -> int:
        """How far from a noisy count the counts are that are looked at first."""
        return math.ceil(_UNLIKELY * self.mechanism.scale) + 50

    @cached_property
    def other(self) -> CountLaw:
        """The distribution of the count of each cell that is not listed."""
        return self._listed(self._log_below, self.mechanism.threshold)

    def given(self, z: int) -> CountLaw:
        """The distribution of the count of a listed cell with this noisy count."""
        u = 1 / self.mechanism.scale
        return self._listed(lambda x: -u * np.abs(z - x), z)

    def _log_below(self, counts: Integers) -> Array:
        """Logarithm of the probability that the noisy count is below the threshold."""
        u, room = 1 / self.mechanism.scale, self.mechanism.threshold - 1 - counts
        total = math.log1p(math.exp(-u))
        with np.errstate(over="ignore"):
            inside = np.log1p(-np.exp(-u * (np.maximum(room, 0) + 1) - total))
        return np.where(room >= 0, inside, u * room - total)

    def _listed(self, log_likelihood: Callable[[Integers], Array], middle: int) -> CountLaw:
        """The distribution over the counts near 0 and near `middle`, as far as it is not negligible."""
        reach = self._reach
        while True:
            if reach > _MOST_COUNTS // 3:
                raise ArgumentError(
                    "A count is left so open that its law cannot be listed. Take a larger n_records, or a smaller "
                    "n_occupied: a noisy count far above what the prior expects contradicts it."
                )
            if middle <= 2 * reach:
                counts, inner = np.arange(middle + reach + 1), []
            else:
                low, high = np.arange(reach + 1), np.arange(middle - reach, middle + reach + 1)
                counts, inner = np.concatenate([low, high]), [reach, reach + 1]
            logs = self._log_prior(counts) + log_likelihood(counts)
            # Between the two parts the logarithm is convex if the prior's shape is below 1, and otherwise it has one
            # peak. So if it is low at all ends, it is low between them.
            if np.all(logs[[*inner, -1]] < logs.max() - _UNLIKELY / 2):
                weights = np.exp(logs - logs.max())
                return CountLaw(counts, weights / weights.sum())
            reach *= 2

    def _log_prior(self, counts: Integers) -> Array:
        """The prior at counts in order, looked up where it was computed before."""
        table = self._prior_table
        return table[counts] if counts[-1] < len(table) else self.prior.log_mass(counts)

    @cached_property
    def _prior_table(self) -> Array:
        most = int(self.noisy.max(initial=self.mechanism.threshold)) + 2 * self._reach
        return self.prior.log_mass(np.arange(min(most, _MOST_KEPT)))

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Draws of the counts of listed cells, shape `(draws, k)`, and of the sum over all others, shape `(draws,)`."""
        listed = np.empty((draws, len(self.noisy)), dtype=np.int64)
        order = np.argsort(self.noisy)
        values, starts = np.unique(self.noisy[order], return_index=True)
        for z, here in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
            listed[:, here] = self.given(z).draw((draws, len(here)), rng)
        return listed, self._others_drawn(draws, rng)

    def _others_drawn(self, draws: int, rng: np.random.Generator) -> Integers:
        """The sum over the cells that are not listed: how many hold 1, 2, ... records is multinomial."""
        left, sums = np.full(draws, self.n_others), np.zeros(draws, dtype=np.int64)
        remaining = 1.0
        # The largest count comes last, and the cells without records are those that are left.
        for count, weight in zip(self.other.counts[1:].tolist(), self.other.weights[1:].tolist(), strict=True):
            times = rng.binomial(left, min(weight / remaining, 1.0))
            sums, left, remaining = sums + count * times, left - times, remaining - weight
        return sums
