"""The Dirichlet mechanism: one draw from a tempered and smoothed posterior."""

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MAX_RECORDS, at_least, integer, positive, positive_array, within
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName, Sampler
from pymc_dirdp.mechanisms.audit_distributions import dirichlet_distributions
from pymc_dirdp.mechanisms.base import FileField, Mechanism, Tempered
from pymc_dirdp.mechanisms.outputs import DRAWS, Draws, Output, RowLikelihood, add_up_to_1
from pymc_dirdp.mechanisms.table import TableMechanism, neighbouring_tables
from pymc_dirdp.privacy.curves import LossCurves, NoLoss
from pymc_dirdp.privacy.divergences import renyi_add, renyi_remove
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.privacy.unit import MAX_PARAMETER, MIN_PARAMETER, dominating_pair, is_binary_row
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.sampling.drawing import DirichletDrawing, Once, SecretCounts, exact_sum
from pymc_dirdp.sampling.exact import default_steps, fewest_steps, positive_frequencies, urn_counts
from pymc_dirdp.sampling.fast import fast_dirichlet
from pymc_dirdp.signatures import user_facing

# The least normal double.
_TINY = 2.3e-308


class DirichletDraws(Mechanism):
    """Release draws from a Dirichlet distribution with secret parameters.

    The exact sampler draws integer counts from a Pólya urn.
    """

    @override
    def _is_urn(self, sampler: Sampler) -> bool:
        return sampler == "exact"

    @abc.abstractmethod
    def concentration(self, counts: ArrayLike) -> Array:
        """The parameters of the Dirichlet distribution. **Secret**, like the counts."""

    @abc.abstractmethod
    def _parameters(self, secret: Array) -> Array:
        """The parameters of the Dirichlet distribution for validated counts."""

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # Cells that are equal in both data sets cancel exactly.
        u, v = self.concentration(x), self.concentration(y)
        changed = u != v
        # The program under audit may return anything.
        logs = np.log(np.maximum(outputs[..., changed] + floor, _TINY))
        return np.asarray(_log_beta(v) - _log_beta(u) + logs @ (u - v)[changed])

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        return dirichlet_distributions(self.concentration(x), self.concentration(y), cells)

    @staticmethod
    def _log_likelihood_of_rows(u: Array, output: ArrayLike, steps: int | None) -> Array:
        """Log-likelihood of each row with parameters u: log density, or log probability of the urn."""
        statistics = _statistics(output, steps)
        cells = (_terms(u, statistics, steps) - _of_output(statistics, steps)).sum(axis=-1)
        return np.asarray(cells + _row_terms(u.sum(axis=-1), steps))

    @staticmethod
    def _row_likelihood(alpha: Array, r: float, output: Array, steps: int | None) -> RowLikelihood:
        """One row of an output as a function of its counts, with parameters `r * counts + alpha`. Shapes (d,)."""
        if steps is None and (np.any(output <= 0) or not add_up_to_1(output)):
            raise ArgumentError(
                "Expected a draw of positive shares that add up to 1, as the samplers return it. Pass the draw "
                "unchanged."
            )
        statistics, total = _statistics(output, steps), alpha.sum()
        # These terms depend on the output only. They are computed once, the others for millions of counts.
        output_terms = _of_output(statistics, steps)
        return RowLikelihood(
            lambda counts, cells: _terms(r * counts + alpha[cells], statistics[cells], steps) - output_terms[cells],
            lambda totals: _row_terms(r * totals + total, steps),
            smooth=True,
        )


def _log_beta(u: Array) -> float:
    """The sum over rows of the logarithm of the Beta function."""
    return float(np.sum(gammaln(u).sum(axis=-1) - gammaln(u.sum(axis=-1))))


def _statistics(output: ArrayLike, steps: int | None) -> Array:
    """Sufficient statistics: logarithms of the components, or the counts of the urn."""
    y = np.asarray(output, dtype=np.float64)
    return np.log(np.maximum(y, _TINY)) if steps is None else urn_counts(y, steps).astype(np.float64)


def _row_terms(total: Array, steps: int | None) -> Array:
    """The logarithm of the factor of each row whose parameters add up to `total`."""
    if steps is None:
        return np.asarray(gammaln(total))
    return np.asarray(gammaln(total) - gammaln(total + steps) + gammaln(steps + 1.0))


def _terms(u: Array, statistics: Array, steps: int | None) -> Array:
    if steps is None:
        return np.asarray(u * statistics - gammaln(u))
    return np.asarray(gammaln(u + statistics) - gammaln(u))


def _of_output(statistics: Array, steps: int | None) -> Array:
    """The terms of the log-likelihood of each cell, with a minus sign, that do not depend on its parameter."""
    return statistics if steps is None else np.asarray(gammaln(statistics + 1.0))


def blocks(alpha: Array, contribution: Contribution, weigh: Callable[[float, float], float]) -> NDArray[np.intp]:
    """The cells of each block of one person's records, for the person with the largest loss: blocks x cells.

    Along an axis "own" a person has one entry. The function selects the entry whose blocks have the largest total
    weight; `weigh` is a function of the two smallest priors of a block.
    """

    def weight(person: NDArray[np.intp]) -> float:
        return math.fsum(weigh(*np.partition(alpha.flat[cells], 1)[:2].tolist()) for cells in person)

    worst: NDArray[np.intp] = max(contribution.by_person(np.arange(alpha.size).reshape(alpha.shape)), key=weight)
    return worst


def smallest_two(alpha: Array, cells: NDArray[np.intp], d: int) -> tuple[int, int]:
    """The cells with the two smallest priors of a block; among ties two cells of one row, which attain the supremum."""
    a, b = cells[np.argsort(alpha.flat[cells], kind="stable")[:2]].tolist()
    # A block consists of complete rows.
    for row in cells.reshape(-1, d):
        i, j = row[np.argsort(alpha.flat[row], kind="stable")[:2]].tolist()
        if (alpha.flat[i], alpha.flat[j]) == (alpha.flat[a], alpha.flat[b]):
            return i, j
    return a, b


def fill_row(base: Array, cell: int, d: int, *, group: int = 1_000_000) -> None:
    """Put many records into another cell of the row of this cell, so that one added record has the largest loss.

    The curve of a record that is added, or that changes rows, is a supremum. It is approached as the row fills up.
    """
    row, column = divmod(cell, d)
    base.flat[row * d + (column + 1) % d] += group


@user_facing
@final
@dataclass(frozen=True, eq=False)
class DirichletMechanism(TableMechanism, DirichletDraws):
    """Release `y ~ Dirichlet(r * counts + alpha)`, one draw for every row of a table.

    The privacy curves are exact: they are suprema over all neighbouring data sets. If a person has one record, they
    depend only on `r` and the two smallest entries of `alpha`, and not on the data or the numbers of records,
    categories or rows. If a person has several records, or several blocks of them, the curves may be upper bounds
    (Theory, section 6).

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters between 1e-100 and 1e100. The leading axes are the rows of the table. With `d = 1` every draw
        is 1, and the privacy loss is 0.
    r : float
        Concentration, between 1e-100 and 1e100: the weight of one record. 1 is the ordinary posterior.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change, see :mod:`pymc_dirdp.privacy.people`.
    min_count : float, default 0.0
        A public lower bound of the records in every cell of every data set that could occur. It is an assumption about
        the world, not about these data, and the guarantee depends on it.
    contribution : Contribution or int, default 1
        The records that one person adds to the table; all of them may change together. An integer is the maximum
        number of records anywhere in the table. The attribute is always a
        :class:`~pymc_dirdp.privacy.people.Contribution` with one entry for each row axis.
    n_records : int, optional
        The public number of records of every data set that could occur, for a table with one row of two categories
        under replace-one. The two cells cannot both be empty, so the curves are smaller (Theory, Theorem 14). By
        default the curves hold for any number of records.

    Notes
    -----
    Objects are frozen and hold public numbers only. The curves are those of one draw. At every Rényi order `K` draws
    from the same counts have `K` times the loss.

    References
    ----------
    P1 section 3, P2 section 3, Theory, section 1 to 6.

    Examples
    --------
    >>> mechanism = DirichletMechanism([1, 1, 1, 1], 0.1)
    >>> mechanism.epsilon(1e-6)
    1.15...

    A survey of 10 items with 3 possible answers; every person answers each item once:

    >>> survey = DirichletMechanism([[1, 1, 1]] * 10, 0.03, contribution=Contribution(1, ("each",)))
    >>> survey.epsilon(1e-6)
    0.757...

    A share of 1000 people, whose number is public:

    >>> DirichletMechanism([8, 8], 0.3).epsilon(1e-6)
    0.68...
    >>> DirichletMechanism([8, 8], 0.3, n_records=1000).epsilon(1e-6)
    0.57...

    >>> mechanism.sample([108, 286, 71, 127]).shape
    (1, 4)
    """

    alpha: Array
    r: float
    _: KW_ONLY
    adjacency: AdjacencyName = "replace-one"
    min_count: float = 0.0
    contribution: Contribution | int = 1
    n_records: int | None = None

    kind: ClassVar[str] = "dirichlet"
    output_kind: ClassVar[type[Output]] = Draws
    publishes: ClassVar[str] = DRAWS
    formula: ClassVar[str] = "Dirichlet(r x + alpha), x the counts"
    facts: ClassVar[tuple[FileField, ...]] = (
        FileField("alpha", "alpha", "table"),
        FileField("r", "r", "scalar"),
        FileField("min_count", "min_count", "attribute"),
        FileField("public_records", "n_records", "attribute", optional=True),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive_array(alpha=self.alpha, min_entries=1))
        object.__setattr__(self, "r", positive(r=self.r))
        object.__setattr__(self, "adjacency", adjacency_by_name(self.adjacency).name)
        object.__setattr__(self, "min_count", at_least(0, min_count=self.min_count))
        within(MIN_PARAMETER, MAX_PARAMETER, alpha=self.alpha)
        within(MIN_PARAMETER, MAX_PARAMETER, r=self.r)
        within(0, MAX_RECORDS, min_count=self.min_count)
        object.__setattr__(self, "contribution", Contribution.of(self.contribution).fitted(self.alpha.shape))
        if self.n_records is not None:
            self._check_n_records()

    def _check_n_records(self) -> None:
        n_records = integer(0, n_records=self.n_records)
        within(0, MAX_RECORDS, n_records=n_records)
        object.__setattr__(self, "n_records", n_records)
        if not is_binary_row(self.alpha.shape) or not adjacency_by_name(self.adjacency).records_are_public:
            raise ArgumentError(
                "n_records is for one row of two categories under replace-one. Otherwise the curves are the same for "
                "every number of records. Leave it out."
            )

    @property
    def _is_constant(self) -> bool:
        """Whether there is only one category, so that every draw is 1 for all counts."""
        return bool(self.alpha.shape[-1] == 1)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.alpha.shape)

    @property
    @override
    def assumed_records(self) -> int | None:
        return self.n_records

    @property
    @override
    def tempered(self) -> Tempered:
        return Tempered(self.alpha, self.r)

    @property
    @override
    def summary(self) -> str:
        if self._is_constant:
            return "one category, so every share is 1 and the privacy loss is 0"
        least, most = float(self.alpha.min()), float(self.alpha.max())
        return f"r {self.r:.4g}, alpha {least:.4g}" + ("" if least == most else f" to {most:.4g}")

    @cached_property
    @override
    def _curves(self) -> LossCurves:
        """The dominating pair of distributions.

        If a person has records in several blocks, a composition of such pairs.
        """
        if self._is_constant:
            return NoLoss()
        assumed = self.min_count, self.contribution
        return dominating_pair(self.alpha, self.r, self.adjacency, *assumed, self.n_records)

    @override
    def concentration(self, counts: ArrayLike) -> Array:
        """Parameters `r * counts + alpha` of the distribution that :meth:`sample` draws from.

        **Secret**, like the counts.

        Parameters
        ----------
        counts : array_like of integers, shape of `alpha`

        Returns
        -------
        concentration : array, shape of `alpha`
        """
        return self._parameters(self.check(counts))

    @override
    def _parameters(self, secret: Array) -> Array:
        return np.asarray(self.r * secret + self.alpha)

    def sample(
        self,
        counts: ArrayLike,
        *,
        released_draws: int = 1,
        sampler: Sampler = "exact",
        random_seed: Seed = None,
        steps: int | None = None,
    ) -> Array:
        """Independent draws. The curves of this object are for **one** of them.

        Parameters
        ----------
        counts : array_like of integers, shape of `alpha`
            The secret. Errors never show it.
        released_draws : int, default 1
            Number of draws, at least 1.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws integer counts from a Pólya urn, without rounding. If c of the `steps` draws are in a
            category, its component is the public number `(2 c + 1) / (2 steps + d)`. `"fast"` draws in floating point
            with NumPy and rounds to a public grid of `2**-32`. Its distribution is close to that of the curves; there
            is no proved bound of the difference.
        random_seed : int, SeedSequence, Generator or None
            None uses entropy from the operating system, for `"fast"` as the key of a generator. Pass anything else in
            tests only, because the draw is then reproducible.
        steps : int, optional
            Public number of steps of the urn, for `"exact"`; by default :meth:`default_steps`.

        Returns
        -------
        y : array, shape ``(released_draws, *alpha.shape)``
            Positive; the last axis sums to 1 up to rounding.

        References
        ----------
        Theory, section 11, for the exact sampler.
        """
        secret, steps = SecretCounts(counts), self.checked_steps(steps, self.checked_sampler(sampler))
        if steps is None and self._is_urn(sampler):
            # Integers, because the rounding of a sum of doubles may depend on the cells of the records.
            public = adjacency_by_name(self.adjacency).records_are_public
            steps = self.default_steps(exact_sum(self.check(counts)) if public else None)
        return self._prepared(released_draws, sampler, random_seed, steps).of(secret)[0]

    def _prepared(self, draws: int, sampler: Sampler, random_seed: Seed, steps: int | None) -> DirichletDrawing:
        return DirichletDrawing(
            self.shape,
            self.min_count,
            self.n_records,
            self.alpha,
            self.r,
            integer(1, released_draws=draws),
            Once(self._source(sampler, random_seed)),
            steps,
        )

    def default_steps(self, n_records: int | None) -> int:
        """Public number of steps of the exact sampler, for a grid that adds 1 % to the variance of a draw.

        `100 * (r * n_records + largest row sum of alpha)`, at most 10,000,000 per row and 100,000,000 per table, and at
        least 10,000 and `50 * d`. :func:`pymc_dirdp.sampling.exact.grid_share` has the exact increase of the variance.

        Parameters
        ----------
        n_records : int or None
            The public number of records. None means that it is private; the number of steps is then a million.

        Returns
        -------
        steps : int
        """
        least = fewest_steps(int(self.alpha.shape[-1]))
        n_steps = max(least, 1_000_000) if n_records is None else default_steps(self.alpha, self.r, n_records)
        n_rows = int(self.alpha.size) // int(self.alpha.shape[-1])
        # More steps would take minutes for a table.
        return min(n_steps, max(least, 100_000_000 // n_rows))

    @override
    def steps(self, sampler: Sampler, n_records: int | None) -> int | None:
        return self.default_steps(n_records) if sampler == "exact" else None

    @override
    def prepare(
        self, released_draws: int, *, sampler: Sampler, random_seed: Seed = None, n_records: int | None = None
    ) -> DirichletDrawing:
        return self._prepared(released_draws, sampler, random_seed, self.steps(sampler, n_records))

    @override
    def read_output(self, facts: Mapping[str, Any], table: str, *, n: int, of_success: bool) -> Output:
        shape = self.shape[:-1] if of_success else self.shape
        return Draws.read(facts, {DRAWS: (n, *shape)}, table, of_success=of_success)

    @property
    @override
    def draws_note(self) -> str:
        return (
            "one draw is not a posterior sample, so az.summary has no standard deviation to show; "
            "dirdp.analyse(release) draws from the posterior given the release"
        )

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: Sampler = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        return self.sample(counts, released_draws=n, sampler=sampler, random_seed=random_seed, steps=steps)

    @override
    def replicates(self, counts: Array, n: int, rng: np.random.Generator) -> Array:
        concentration = np.repeat(self._parameters(counts)[:, None], n, axis=1)
        return np.asarray(fast_dirichlet(concentration, 1, rng, least=float(self.alpha.min()))[0])

    @override
    def posterior_parameters(self, counts: NDArray[np.int64], rng: np.random.Generator) -> Array:
        return self._parameters(counts.astype(np.float64))

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        rows = self._log_likelihood_of_rows(self._parameters(np.asarray(counts, dtype=np.float64)), output, steps)
        return np.asarray(rows.sum(axis=tuple(range(rows.ndim - self.alpha.ndim + 1, rows.ndim))))

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        d = self.alpha.shape[-1]
        if self._is_constant:
            return [RowLikelihood.of_nothing()] * (output.size // d)
        rows = zip(self.alpha.reshape(-1, d), output.reshape(-1, d), strict=True)
        return [self._row_likelihood(alpha, self.r, y, steps) for alpha, y in rows]

    @override
    def stronger(self, factor: float) -> tuple[str, "DirichletMechanism"]:
        return "the same mechanism with a larger r", replace(self, r=self.r * factor)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        # The grid of a release without a number of steps is unknown.
        if steps is None:
            return False
        try:
            exact = positive_frequencies(urn_counts(output, steps), steps)
        except ArgumentError:
            return False
        # Compare all bits: any of them could carry information. A Beta variable releases the share of success.
        of_success = np.stack([exact[..., 0], 1 - exact[..., 0]], axis=-1)
        return np.array_equal(output, exact) or np.array_equal(output, of_success)

    @override
    def worst_neighbours(self) -> tuple[Array, Array]:
        if self._is_constant:
            return neighbouring_tables(np.zeros(self.alpha.shape), [(0, 0)], self.contributed.records, "add-remove")
        alpha, d = self.alpha, self.alpha.shape[-1]
        records, replaced = self.contributed.records, adjacency_by_name(self.adjacency).records_are_public
        r = records * self.r

        def weigh(least: float, second: float) -> float:
            # The Kullback-Leibler divergence is always finite.
            return renyi_remove(1.0, least, r) + (renyi_add(1.0, second, r) if replaced else 0.0)

        base = np.full(alpha.shape, math.ceil(self.min_count), dtype=np.float64)
        moves = []
        for cells in blocks(alpha, self.contributed, weigh):
            a, b = smallest_two(alpha, cells, d)
            moves.append((a, b))
            if not replaced:
                fill_row(base, a, d)
            elif self.n_records is not None:
                # All records that do not change lie in the cell with the larger prior.
                others = max(self.n_records - int(base.sum()), 0)
                records = min(records, others)
                base.flat[b] += others - records
            elif a // d != b // d:
                fill_row(base, a, d)
                fill_row(base, b, d)
        return neighbouring_tables(base, moves, records, self.adjacency)
