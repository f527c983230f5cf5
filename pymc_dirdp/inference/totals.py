"""Totals that are not known: a private number of records, and rows that share a public number."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.bounded_totals import bounded
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.evidence import Evidence
from pymc_dirdp.inference.number_draws import NumberDraws
from pymc_dirdp.inference.number_laws import NumberLaws
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.tilted import OfCount, count_itself

__all__ = ["PrivateTotal", "RowTotals"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
OfTotal = Callable[[Array], Array]

# Up to this total every total is looked at.
_EVERY_TOTAL = 4096
# Relative error of what an output says about a total: several sums far from zero, and interpolation between them.
_NOISE = 1e-9
# Totals with less probability are left out of an average.
_NEGLIGIBLE = 1e-18


class PrivateTotal:
    """The distribution of one row whose number of records is not known.

    Parameters
    ----------
    law : ProductLaw
        Of the row, with the largest total that is possible.
    log_prior : callable
        `log_prior(totals)`, up to a constant if the evidence is not asked for. It belongs to anyone who infers.
    log_factor : callable, optional
        Logarithm of the factor of the likelihood that depends on the total alone; 0 by default.

    Examples
    --------
    >>> z = np.array([3.0, 12.0, 8.0])
    >>> row = ProductLaw(
    ...     alpha=[1, 1, 1], total=100, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2
    ... )
    >>> PrivateTotal(row, log_prior=lambda totals: 0 * totals).mean_and_sd
    (21.859..., 4.609...)
    """

    def __init__(self, law: ProductLaw, *, log_prior: OfTotal, log_factor: OfTotal | None = None) -> None:
        self.law = law
        self._evidence = Evidence(law)
        self._log_prior = log_prior
        self._log_factor = log_factor

    @cached_property
    def totals(self) -> NumberLaws:
        """The distribution of the total given the output."""

        def log_weight(totals: Array, _: Integers) -> Array:
            found = self._log_prior(totals) + (self._log_factor(totals) if self._log_factor else 0.0)
            possible = found > -np.inf
            found[possible] += self._evidence(totals[possible])
            return np.asarray(found)

        smooth = self.law.smooth and self.law.total > _EVERY_TOTAL
        laws = NumberLaws(log_weight, 1, self._evidence.least, self.law.total, smooth=smooth, noise=_NOISE)
        laws.settle(0.0)
        return laws

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of the output, total and counts summed out."""
        return float(self.totals.log_totals[0])

    @property
    def mean_and_sd(self) -> tuple[float, float]:
        """Mean and standard deviation of the total given the output."""
        return float(self.totals.means[0]), float(np.sqrt(self.totals.variances[0]))

    def expectations(self, of: OfCount) -> Array:
        """Expected functions of each count given the output, shape `(d, m)`."""
        totals, masses = self.totals.nodes, self.totals.masses
        kept = masses > _NEGLIGIBLE
        found: Array = np.tensordot(masses[kept], self._evidence.expectations(of, totals[kept]), axes=1)
        return found

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent tables given the output, shape `(draws, d)`, and the share of proposals that was accepted."""
        totals = NumberDraws(self.totals).draw(0, draws, rng)
        return self._evidence.draw(totals, rng)


class RowTotals:
    """The distribution of several rows whose totals are not known, and add up to a public number.

    A priori the rows have the shares `Dirichlet(row_prior)` of the records. What a row's output says of its total is
    a likelihood of that total; so the totals follow a product distribution, too.

    Parameters
    ----------
    rows : sequence of ProductLaw
        One for each row, with the largest total that it may have: its guaranteed least counts, and all records that
        other rows need not have.
    total : int
        Number of records in all rows.
    row_prior : array, shape (rows,), optional
        1 for each row by default.
    log_factors : sequence of callables, optional
        For each row, the logarithm of the factor of its likelihood that depends on its total alone.
    """

    def __init__(
        self,
        rows: Sequence[ProductLaw],
        *,
        total: int,
        row_prior: ArrayLike | None = None,
        log_factors: Sequence[OfTotal] | None = None,
    ) -> None:
        if len(rows) < 2:
            raise ArgumentError(f"Expected at least two rows, got {len(rows)}. The total of a single row is `total`.")
        total = integer(0, total=total)
        prior = positive_array(row_prior=np.ones(len(rows)) if row_prior is None else row_prior)
        if prior.shape != (len(rows),):
            raise ArgumentError(f"Expected row_prior to have one entry a row, {len(rows)}, got shape {prior.shape}.")
        if log_factors is not None and len(log_factors) != len(rows):
            raise ArgumentError(f"Expected log_factors to have one entry a row, {len(rows)}, got {len(log_factors)}.")
        self._evidences = [Evidence(row) for row in rows]
        self._log_factors = log_factors
        # Rows may be promised different least counts; the totals are looked at from the least of all.
        least = min(evidence.least for evidence in self._evidences)
        smooth = all(row.smooth for row in rows) and total > _EVERY_TOTAL
        self.totals = ProductLaw(
            alpha=prior, total=total, log_likelihood=self._log_likelihood, least=least, smooth=smooth, noise=_NOISE
        )

    @cached_property
    def _known(self) -> ProductLaw:
        """The distribution of the totals for their public sum."""
        return bounded(self.totals, self._evidences, self._log_factors)

    def _log_likelihood(self, totals: Array, rows: Integers) -> Array:
        totals, rows = np.broadcast_arrays(totals, rows)
        found = np.full(totals.size, -np.inf)
        order = np.argsort(rows, axis=None, kind="stable")
        ends = np.searchsorted(rows.ravel()[order], np.arange(len(self._evidences) + 1))
        for row, evidence in enumerate(self._evidences):
            here = order[ends[row] : ends[row + 1]]
            of_row = totals.ravel()[here]
            possible = (of_row >= evidence.least) & (of_row <= evidence.law.total)
            here, of_row = here[possible], of_row[possible]
            if len(here):
                values = self._log_factors[row](of_row) if self._log_factors else np.zeros(len(here))
                # Sums take time, also where a factor rules the total out.
                reached = values > -np.inf
                values[reached] += evidence(of_row[reached])
                found[here] = values
        return found.reshape(totals.shape)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of all outputs, totals and counts summed out."""
        return self._known.log_evidence

    def expectations(self, of: OfCount) -> Array:
        """Expected functions of each row's total given all outputs, shape `(rows, m)`."""
        (found,) = self._known.tilted.expectations(of, np.array([self.totals.total]))
        return np.asarray(found)

    @property
    def marginals(self) -> NumberLaws:
        """The distributions of the totals given all outputs."""
        return self._known.tilted.marginals

    def count_means(self, totals: Array, rows: Integers) -> Array:
        """Expected counts in each row given its total, shape `(..., d)`."""
        found = np.empty((*totals.shape, len(self._evidences[0].law.alpha)))
        for row, evidence in enumerate(self._evidences):
            here = rows == row
            if here.any():
                found[here] = evidence.expectations(count_itself, totals[here])[..., 0]
        return found

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[list[Integers], float]:
        """Independent tables given all outputs, for each row of shape `(draws, d)`, and the share accepted."""
        totals, acceptance = draw_counts(self._known.tilted, np.full(draws, self.totals.total), rng)
        tables, share = self.tables(totals, rng)
        return tables, min(acceptance, share)

    def tables(self, totals: Integers, rng: np.random.Generator) -> tuple[list[Integers], float]:
        """One table for each row of totals, shape `(draws, rows)`; returned as by :meth:`draw`."""
        tables = [evidence.draw(totals[:, row], rng) for row, evidence in enumerate(self._evidences)]
        return [counts for counts, _ in tables], min(share for _, share in tables)
