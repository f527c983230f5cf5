"""The input of inference for one table: its published outputs and the priors of the analyst.

1. An `ObservedTable` has everything that inference needs. :mod:`pymc_dirdp.releases.opened` creates those of a release.
2. A `MechanismOutput` is the output of a mechanism without a release.
3. Several releases of the same records are `pooled`: their likelihoods multiply.
4. `Beliefs` are the priors of the analyst for shares, rows and numbers of records; functions here validate them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS, integer, numbers_or_none, positive_array
from pymc_dirdp.errors import ArgumentError, InternalError, type_name
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.literals import Sampler
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.outputs import CellNoise, JointLikelihoods, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.sampling.exact import positive_frequencies

Labels = tuple[tuple[str, list[Any] | NDArray[Any] | None], ...]
"""The name of each axis, and the labels along it if it has any."""
# Nobody uses smaller priors; adding a record to a larger one does not change a double.
_LEAST_PRIOR, _MAX_PRIOR = 1e-100, 1e16
_FAR_TOO_LARGE = "no posterior can be computed from its numbers, some of which are far too large or too small"


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ObservedTable:
    """One table and its published outputs, from one or several releases or mechanisms.

    Attributes
    ----------
    name : str
        Name of the table.
    prior : array
        Default prior of the shares, in the shape of the table.
    n_records : int or None
        The number of records in the table; None if it is private.
    cell_labels, share_labels : Labels
        Axes of the table of counts, and of the shares in results.
    mechanism_names : tuple of str
        The mechanisms of the outputs.
    observed : sequence of (array, Labels)
        The published values and their axes, by release.
    row_likelihoods : callable
        Returns, for each row, the likelihoods of all outputs, which are independent given the counts. Raises
        ArgumentError if the distribution is not a product over cells.
    damaged : callable
        Returns the error for numbers that no mechanism can release, from a description of the problem.
    family : str, default "dirichlet"
        For `"beta"`, results have the shares of success.
    block_likelihoods : callable, optional
        Returns the likelihoods of the cells of blocks, from row numbers of shape `(blocks, rows)`. If it is not None,
        the cells of a block are treated as one row: a priori its records divide among its rows as
        `Dirichlet(sums of the prior of each row)`.
    least : int, default 0
        The public lower bound of the count of every cell.
    blocks : sequence of (array of int, int)
        Groups of rows, by number, whose total number of records is public or published, and this total; often empty.
    possible_records : range, optional
        Private numbers of records on which the release's own draws have a uniform prior, if they have one.
    cell_noise : CellNoise, optional
        The noise on each cell, if one noisy table is the only output.
    joint_rows : JointLikelihoods, optional
        The joint likelihood of all rows, if the noise has a latent radius.
    noise_group : tuple of str, default ()
        The names of all tables that share the radius, if there are several.
    measurements : sequence of Measurement
        The noisy marginals of all tables of the release, if it released marginals; often empty.
    cell_values : sequence of (str, array)
        The published arrays with a number for each cell, by what the numbers are; often empty.
    """

    name: str
    prior: Array
    n_records: int | None
    cell_labels: Labels
    share_labels: Labels
    mechanism_names: tuple[str, ...]
    observed: Sequence[tuple[Array, Labels]]
    row_likelihoods: Callable[[], list[list[RowLikelihood]]]
    damaged: Callable[[str], Exception]
    family: str = "dirichlet"
    block_likelihoods: Callable[[Integers], list[RowLikelihood]] | None = None
    least: int = 0
    blocks: Sequence[tuple[NDArray[np.intp], int]] = ()
    possible_records: range | None = None
    cell_noise: CellNoise | None = None
    joint_rows: JointLikelihoods | None = None
    noise_group: tuple[str, ...] = ()
    measurements: Sequence[Measurement] = ()
    cell_values: Sequence[tuple[str, Array]] = ()


@contextmanager
def computing(table: ObservedTable) -> Iterator[None]:
    """Turn a failed computation into an error about the output, or into an internal error.

    Raises
    ------
    InternalError
        If arithmetic fails for valid numbers.
    """
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except ArgumentError as error:
        raise table.damaged(f"no posterior can be computed from its numbers ({error})") from error
    except ArithmeticError as error:
        # The numbers are in the range for which all results must be computable.
        small = all(np.all(np.abs(values) <= MAX_RECORDS) for values, _ in table.observed)
        if small and np.all((table.prior >= _LEAST_PRIOR) & (table.prior <= _MAX_PRIOR)):
            raise InternalError(
                f"The posterior of {table.name!r} could not be computed. Please report this."
            ) from error
        raise table.damaged(_FAR_TOO_LARGE) from error


@final
@dataclass(frozen=True, eq=False)
class MechanismOutput:
    """The output of a mechanism's `release` or `sample` method, for `analyse` or `estimate`.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism of the output. The likelihood is a product over cells for all mechanisms except a
        :class:`~pymc_dirdp.papers.HellingerMechanism` with more than two categories. A
        :class:`~pymc_dirdp.mechanisms.ZeroSumJointTableMechanism` accepts one output only.
    values : array_like, shape `(..., d)` or `(k, ..., d)`
        One output, or k independent outputs for the same counts. Pass what the guarantee covers, such as noisy counts
        or Dirichlet draws, and not draws that were sampled *from* noisy counts.
    prior : array_like, shape `(..., d)`
        Your prior of the shares, positive, in the shape of the table. It does not use privacy budget.
    n_records : int, optional
        The number of records, if it is public and not a parameter of the mechanism.
    sampler : {"exact", "fast"}, optional
        The sampler of the output; by default the default of the mechanism, as in `sample` and `release`.
    steps : int, optional
        Number of steps of the urn, if you chose it; by default that of `sample`.
    name : str, default "p"
        The name of the shares.

    Notes
    -----
    The input of a :class:`~pymc_dirdp.papers.SimplexMechanism` is assumed to be positive counts divided by `n_records`.
    Higher floors of its domain are not used.

    References
    ----------
    Theory, section 16.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> mechanism = dirdp.papers.TruncatedNoiseMechanism([1, 1, 1], n_records=60, scale=2.0)
    >>> noisy = mechanism.release([30, 20, 10])
    >>> output = dirdp.mechanisms.MechanismOutput(mechanism, noisy, prior=[1, 1, 1])
    >>> round(float(dirdp.estimate(output).frame()["count"].sum()), 6)
    60.0
    """

    mechanism: Mechanism
    values: Array
    _: KW_ONLY
    prior: Array
    n_records: int | None = None
    sampler: Sampler | None = None
    steps: int | None = None
    name: str = "p"
    reproducible: ClassVar[bool] = False
    """Whether the release records the use of a seed."""

    @classmethod
    def of(cls, instance: object) -> Self | None:
        """The object if it is the output of a mechanism, and None otherwise."""
        return instance if isinstance(instance, cls) else None

    def __post_init__(self) -> None:
        known = Mechanism.of(self.mechanism)
        if known is None:
            raise ArgumentError(f"Expected a mechanism, got {type_name(self.mechanism)}.")
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise ArgumentError("Expected name to be a string without '/'.")
        prior, numbers = positive_array(prior=self.prior), numbers_or_none(self.values)
        if numbers is None or not np.all(np.isfinite(numbers)):
            raise ArgumentError("Expected values to be an array of finite numbers.")
        values = numbers[None] if numbers.ndim == prior.ndim else numbers.copy()
        if values.shape[1:] != prior.shape or len(values) == 0:
            raise ArgumentError(
                f"Expected values to have the shape of the prior, {prior.shape}, or several outputs of it, got "
                f"{numbers.shape}."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "n_records", self.mechanism.public_records(self.n_records))
        sampler = self.mechanism.checked_sampler(self.sampler)
        object.__setattr__(self, "sampler", sampler)
        object.__setattr__(self, "steps", self.mechanism.checked_steps(self.steps, sampler))
        # Raise errors about an unusable output here, and not later.
        if self.observed_table.joint_rows is None:
            self._row_likelihoods()

    @cached_property
    def observed_table(self) -> ObservedTable:
        """The output as input of inference."""
        labels = tuple((f"{self.name}_dim_{axis}", None) for axis in range(self.prior.ndim))
        mechanism, is_alone = self.mechanism, len(self.values) == 1
        joint_rows = mechanism.joint_rows(self.values[0])
        if joint_rows is not None and not is_alone:
            raise ArgumentError(
                "Expected one output of a joint mechanism, got several: inference cannot combine them. Pass one."
            )
        return ObservedTable(
            name=self.name,
            prior=self.prior,
            n_records=self.n_records,
            cell_labels=labels,
            share_labels=labels,
            mechanism_names=(type(mechanism).__name__,),
            observed=[(self.values[0], labels) if is_alone else (self.values, (("output", None), *labels))],
            row_likelihoods=self._row_likelihoods,
            damaged=self._damaged,
            least=math.ceil(mechanism.min_count or 0),
            blocks=self._blocks(),
            cell_noise=mechanism.cell_noise if is_alone else None,
            joint_rows=joint_rows,
        )

    @property
    def observed_tables(self) -> dict[str, ObservedTable]:
        """The table by name, as for a release."""
        return {self.name: self.observed_table}

    def replicates(self, counts: Mapping[str, Integers], rng: np.random.Generator) -> dict[str, Array]:
        """The same number of simulated outputs for each of several tables of counts, by the name of the table."""
        steps, table = self.steps, TableMechanism.of(self.mechanism)
        if steps is None and table is not None:
            steps = table.steps(self.mechanism.checked_sampler(self.sampler), self.n_records)
        return {self.name: replicates_of(self.mechanism, counts[self.name], len(self.values), steps, rng)}

    def _blocks(self) -> list[tuple[NDArray[np.intp], int]]:
        by_output = [
            [(rows, round(total)) for rows, total in self.mechanism.published_totals(output)] for output in self.values
        ]
        if len({tuple(total for _, total in blocks) for blocks in by_output}) > 1:
            raise ArgumentError(
                "Expected all outputs to have the same numbers of records in the rows, because the mechanism publishes "
                "these numbers. Pass outputs for the same counts."
            )
        return by_output[0]

    def _row_likelihoods(self) -> list[list[RowLikelihood]]:
        return self._rows

    @cached_property
    def _rows(self) -> list[list[RowLikelihood]]:
        by_output = [
            self.mechanism.likelihoods_of_rows(
                output, n_records=self.n_records, sampler=self.mechanism.checked_sampler(self.sampler), steps=self.steps
            )
            for output in self.values
        ]
        return [list(row) for row in zip(*by_output, strict=True)]

    def _damaged(self, problem: str) -> ArgumentError:
        return ArgumentError(f"{problem[:1].upper()}{problem[1:]}. Check the output, the mechanism and n_records.")


def replicates_of(mechanism: Mechanism, counts: Integers, n: int, steps: int | None, rng: np.random.Generator) -> Array:
    """`n` outputs for each table of counts, shape `(tables, n, ...)`; shares are rounded like those of the urn."""
    values = mechanism.replicates(counts.astype(np.float64), n, rng)
    if steps is None:
        return values
    # The counts of an urn given its limit are multinomial.
    return np.asarray(positive_frequencies(rng.multinomial(steps, values / values.sum(axis=-1, keepdims=True)), steps))


def pooled(tables: Sequence[ObservedTable], *, own_prior: bool) -> ObservedTable:
    """Combine the outputs of several releases of one table. Other attributes are those of the first.

    Parameters
    ----------
    tables : sequence of ObservedTable
        The table of each release.
    own_prior : bool
        Whether the analyst passes a prior; otherwise all models must have the same prior.

    Raises
    ------
    ArgumentError
        If the tables are not the same table of the same records.
    """
    first, *others = tables
    if others and any(table.joint_rows is not None for table in tables):
        raise ArgumentError(
            f"The rows of {first.name!r} share the noise of a joint release, which cannot be combined with other "
            "releases. Analyse each release separately."
        )
    if len({len(table.measurements) > 0 for table in tables}) > 1:
        raise ArgumentError(
            f"{first.name!r} was released by marginals in one release only, so the releases cannot be combined. "
            "Analyse each release separately."
        )
    for table in others:
        for what, a, b in (
            ("shape", first.prior.shape, table.prior.shape),
            ("family", first.family, table.family),
            ("labels", first.share_labels, table.share_labels),
            ("number of records", first.n_records, table.n_records),
        ):
            if a != b:
                raise ArgumentError(
                    f"The table {first.name!r} does not have the same {what} in another release, so they are not "
                    "about the same records. Analyse each release separately."
                )
        totals = [[(rows.tolist(), total) for rows, total in blocks] for blocks in (first.blocks, table.blocks)]
        if min(map(len, totals)) > 1 and totals[0] != totals[1]:
            raise ArgumentError(
                f"The outputs of {first.name!r} have different numbers of records in its rows, so they are not about "
                "the same records. Analyse each release separately."
            )
        if not own_prior and not np.array_equal(first.prior, table.prior):
            raise ArgumentError(
                f"The models of the releases have different priors of {first.name!r}. Pass your prior as prior=."
            )
    if not others:
        return first
    ranges = [table.possible_records for table in tables if table.possible_records is not None]
    common = (
        range(max(possible[0] for possible in ranges), min(possible[-1] for possible in ranges) + 1) if ranges else ()
    )
    return replace(
        first,
        mechanism_names=tuple(dict.fromkeys(chain.from_iterable(table.mechanism_names for table in tables))),
        observed=[output for table in tables for output in table.observed],
        row_likelihoods=partial(_all_likelihoods, [table.row_likelihoods for table in tables]),
        # All lower bounds hold, so the largest does.
        least=max(table.least for table in tables),
        # The output with the most public numbers of records; the others are consistent with it.
        blocks=max((table.blocks for table in tables), key=len),
        possible_records=common or None,
        # Several noisy tables do not have a single noise.
        cell_noise=None,
        measurements=[measurement for table in tables for measurement in table.measurements],
        cell_values=[values for table in tables for values in table.cell_values],
    )


def _all_likelihoods(functions: Sequence[Callable[[], list[list[RowLikelihood]]]]) -> list[list[RowLikelihood]]:
    return [list(chain.from_iterable(row)) for row in zip(*(likelihoods() for likelihoods in functions), strict=True)]


type OfTotal = Callable[[Array], Array]
"""A function that returns log-weights of totals."""


@final
@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """The priors of the analyst for one table. They do not use privacy budget.

    Attributes
    ----------
    prior : array_like, optional
        Prior of the shares, in the shape of the table; by default that of the model.
    n_prior : int or array_like, optional
        Of a private number of records. An integer n is a uniform prior on 0 to n, a `range` one on its numbers; an
        array has the weights of 0, 1, 2, ....
    row_prior : array_like, optional
        Dirichlet prior of the shares of the rows, in their shape; 1 for each row by default.
    """

    prior: ArrayLike | None = None
    n_prior: int | range | ArrayLike | None = None
    row_prior: ArrayLike | None = None


def prior_of(output: ObservedTable, prior: ArrayLike | None) -> Array:
    """The prior of the shares: that of the analyst, or the model's own."""
    alpha = output.prior if prior is None else positive_array(prior=prior, min_entries=1)
    if np.any((alpha < _LEAST_PRIOR) | (alpha > _MAX_PRIOR)):
        raise output.damaged(_FAR_TOO_LARGE)
    if alpha.shape != output.prior.shape:
        raise ArgumentError(
            f"Expected the prior of {output.name!r} to have the shape of the table, {output.prior.shape}, got "
            f"{alpha.shape}."
        )
    return alpha


def row_prior_of(output: ObservedTable, row_prior: ArrayLike | None) -> Array | None:
    """The prior of the shares of rows, if there is one."""
    if row_prior is None:
        return None
    shape = output.prior.shape[:-1]
    if not shape or output.prior.size == output.prior.shape[-1]:
        raise ArgumentError(f"row_prior is for tables of several rows, and {output.name!r} has one row. Leave it out.")
    alpha = positive_array(row_prior=row_prior)
    if alpha.shape != shape:
        raise ArgumentError(f"Expected row_prior of {output.name!r} to have the shape {shape}, got {alpha.shape}.")
    return alpha.ravel()


def number_of(output: ObservedTable, n_prior: int | range | ArrayLike | None) -> tuple[int, OfTotal | None]:
    """The largest possible number of records, and the log-prior of a private number."""
    if output.n_records is not None:
        if n_prior is not None:
            raise ArgumentError(
                f"n_prior is for a private number of records, and {output.name!r} has {output.n_records}, which is "
                "public. Leave it out."
            )
        return output.n_records, None
    if n_prior is None:
        raise ArgumentError(
            f"The number of records of {output.name!r} is private, so an inference needs your own prior for it. Pass "
            "n_prior=n, for a uniform prior on 0 to n, or the weights of 0, 1, 2, ... as an array."
        )
    if isinstance(n_prior, range):
        if len(n_prior) == 0 or n_prior.step != 1 or n_prior[0] < 0:
            raise ArgumentError("Expected n_prior to be a range of nonnegative integers with step 1.")
        least, weight = n_prior[0], -float(np.log(len(n_prior)))
        return n_prior[-1], lambda totals: np.where(totals >= least, weight, -np.inf)
    weights = numbers_or_none(n_prior)
    if weights is None or weights.ndim == 0:
        most = integer(1, n_prior=n_prior)
        return most, lambda totals: np.full(np.shape(totals), -np.log(most + 1.0))
    if weights.ndim != 1 or len(weights) < 2 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise ArgumentError("Expected n_prior to be an integer, or nonnegative weights that are not all 0.")
    with np.errstate(divide="ignore"):
        logs = np.log(weights / weights.sum())

    def log_prior(totals: Array) -> Array:
        below = np.floor(totals).astype(np.int64)
        part = totals - below
        # Next to a weight of 0 no number is possible. This avoids 0 times infinity.
        with np.errstate(invalid="ignore"):
            between = (1 - part) * logs[below] + part * logs[np.minimum(below + 1, len(logs) - 1)]
        return np.asarray(np.where(part == 0, logs[below], between))

    return int(np.flatnonzero(weights)[-1]), log_prior
