"""What a list of noisy counts above a threshold says of the counts: of listed cells, of all others, of their sum."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Distributions, LogWeight, NumberDraws
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
from pymc_dirdp.signatures import user_facing

__all__ = ["SparsePosterior", "SparsePrior", "occupied"]

# Beyond counts whose likelihood is exp of minus this of the largest there is nothing.
_UNLIKELY = 60.0
# Below this count Gamma functions are looked at one by one.
_FEW = 1000.0


@user_facing
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
    >>> mass = np.exp(prior.log_mass(x))
    >>> bool(abs(mass @ x - 1e-3) < 1e-9), bool(abs(mass[1:].sum() - 1e-4) < 1e-10)
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

    def log_mass(self, counts: ArrayLike) -> Array:
        """Logarithm of the probability of counts of one cell. Elementwise."""
        from scipy.special import gammaln

        x, total = np.asarray(counts, dtype=np.float64), self.concentration
        a = total / self._cells
        log_ratio = -math.log1p(total / self.n_records)
        # Of large counts without the cancellation of the logarithms of two factorials.
        few = x < _FEW
        ratio = np.where(few, gammaln(x + a) - gammaln(x + 1), _log_gamma_ratio(np.where(few, _FEW, x), a))
        ways = ratio - gammaln(a)
        return np.asarray(ways - a * math.log1p(self.n_records / total) + x * log_ratio)


@final
@dataclass(frozen=True, eq=False)
class SparsePosterior:
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

    @cached_property
    def other(self) -> Distributions:
        """The distribution of the count of each cell that is not listed."""
        return self._settled(lambda x, _: self._log_below(x), np.array([self.mechanism.threshold]))

    def given(self, noisy: Integers) -> Distributions:
        """The distributions of the counts of listed cells with these noisy counts."""
        z, u = noisy.astype(np.float64), 1 / self.mechanism.scale
        return self._settled(lambda x, i: -u * np.abs(z[i] - x), noisy)

    def _log_below(self, counts: Array) -> Array:
        """Logarithm of the probability that the noisy count is below the threshold."""
        u, room = 1 / self.mechanism.scale, self.mechanism.threshold - 1 - counts
        total = math.log1p(math.exp(-u))
        with np.errstate(over="ignore"):
            inside = np.log1p(-np.exp(-u * (np.maximum(room, 0) + 1) - total))
        return np.where(room >= 0, inside, u * room - total)

    def _settled(self, log_likelihood: LogWeight, middle: Integers) -> Distributions:
        """Distributions with a likelihood that falls like the noise from the middle on."""
        prior, mean = self.prior, self.prior.n_records / self.prior.concentration
        # Beyond its mode the prior falls, too.
        mode = max(0.0, prior.concentration / self.mechanism.n_cells - 1) * mean
        most = np.maximum(middle, math.ceil(mode)) + math.ceil(_UNLIKELY * self.mechanism.scale) + 50
        found = Distributions(lambda x, i: prior.log_mass(x) + log_likelihood(x, i), len(middle), 0, most)
        found.settle(0.0)
        return found

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Draws of the counts of listed cells, shape `(draws, k)`, and of the sum over all others, shape `(draws,)`."""
        listed = np.empty((draws, len(self.noisy)), dtype=np.int64)
        values, place = np.unique(self.noisy, return_inverse=True)
        if len(values):
            numbers = NumberDraws(self.given(values))
            for i in range(len(values)):
                here = np.flatnonzero(place == i)
                listed[:, here] = numbers.draw(i, draws * len(here), rng).reshape(draws, -1)
        return listed, self._others_drawn(draws, rng)

    def _others_drawn(self, draws: int, rng: np.random.Generator) -> Integers:
        """The sum over the cells that are not listed: how many hold 1, 2, ... records is multinomial."""
        left, sums = np.full(draws, self.n_others), np.zeros(draws, dtype=np.int64)
        counts = np.arange(1, int(self.other.highs[0]) + 1)
        weights = np.exp(self.other.log_pmf(counts.astype(np.float64), np.zeros(len(counts), dtype=np.int64)))
        remaining = 1.0
        # The largest count comes last, and the cells without records are those that are left.
        for count, weight in zip(counts.tolist(), weights.tolist(), strict=True):
            times = rng.binomial(left, min(weight / remaining, 1.0))
            sums, left, remaining = sums + count * times, left - times, remaining - weight
        return sums


def occupied(counts: Distributions) -> Array:
    """The probability of each of some counts that it is not 0. The first numbers are all nodes."""
    return np.bincount(counts.node_distribution, counts.masses * (counts.nodes > 0.5), counts.size)
