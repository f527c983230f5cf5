"""What is known of one table: what was published of it, whatever hands it over, and the analyst's own priors.

1. An `ObservedTable` is what inference has to know of a table. :mod:`pymc_dirdp.releases.opened` makes those of a
   release.
2. A `MechanismOutput` is the output of a mechanism without a release.
3. Several releases of the same records are `pooled`: their likelihoods multiply.
4. `Beliefs` are the analyst's, and the priors of shares, rows and numbers of records follow from them, checked.
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
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.outputs import CellNoise, JointLikelihoods, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.sampling.exact import positive_frequencies

Labels = tuple[tuple[str, list[Any] | NDArray[Any] | None], ...]
"""The name of each axis, and the labels along it if it has any."""
# Smaller priors are nobody's, and to larger ones a double cannot add a record.
_LEAST_PRIOR, _MOST_PRIOR = 1e-100, 1e16
_FAR_TOO_LARGE = "no posterior can be computed from its numbers, some of which are far too large or too small"


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ObservedTable:
    """One table, and all that was published of it: by a release, by a mechanism alone, or by several of those.

    Attributes
    ----------
    name : str
        That of the table.
    prior : array
        Of the shares, in the shape of the table: the default of an analyst.
    n_records : int or None
        How many records the table holds; None if that is private.
    cell_labels, share_labels : Labels
        Axes of the table of counts, and of the shares as they are shown.
    mechanism_names : tuple of str
        The mechanisms that put it out.
    observed : sequence of (array, Labels)
        What was published, by release: values and their axes.
    row_likelihoods : callable
        Returns, for each row, the likelihoods of all outputs, which are independent given the counts. An ArgumentError
        says that the distribution is no product.
    damaged : callable
        Returns the error about numbers that no mechanism can release, given what is wrong with them.
    family : str, default "dirichlet"
        Or `"beta"`, of which the shares of success are shown.
    block_likelihoods : callable, optional
        Returns the likelihoods of the cells of blocks, given their rows by number, shape `(blocks, rows)`. If there is
        one, the cells of a block are taken as one row: a priori its records divide among its rows as
        `Dirichlet(sums of the prior of each row)`.
    least : int, default 0
        What every cell is guaranteed to hold.
    blocks : sequence of (array of int, int)
        The rows, by number, whose records add up to a number that is public or that the output tells, and that number;
        often none.
    possible_records : range, optional
        Private numbers of records on which the release's own draws have a uniform prior, if they have one.
    cell_noise : CellNoise, optional
        The noise on each cell, where one noisy table is all that was released.
    joint_rows : JointLikelihoods, optional
        The likelihood of all rows together, where noise has a latent radius.
    noise_group : tuple of str, default ()
        The names of all tables that share the radius, if others do.
    measurements : sequence of Measurement
        The noisy marginals of all tables of the release, where the table was released by marginals; often none.
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


@contextmanager
def computing(seen: ObservedTable) -> Iterator[None]:
    """Turn a failed computation into an error: about the output if that fits no table of counts, or about us.

    Raises
    ------
    InternalError
        If arithmetic failed on numbers with which it must not.
    """
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except ArgumentError as error:
        raise seen.damaged(f"no posterior can be computed from its numbers ({error})") from error
    except ArithmeticError as error:
        # Numbers are such that what follows from them must be computable.
        small = all(np.all(np.abs(values) <= MAX_RECORDS) for values, _ in seen.observed)
        if small and np.all((seen.prior >= _LEAST_PRIOR) & (seen.prior <= _MOST_PRIOR)):
            raise InternalError(f"The posterior of {seen.name!r} could not be computed. Please report this.") from error
        raise seen.damaged(_FAR_TOO_LARGE) from error


@final
@dataclass(frozen=True, eq=False)
class MechanismOutput:
    """The output of a mechanism, by its own `release` or `sample`, to be passed to `analyse` or `estimate`.

    Parameters
    ----------
    mechanism : Mechanism
        What drew it. Its distribution is a product over cells for all mechanisms here, except a
        :class:`~pymc_dirdp.papers.HellingerMechanism` with more than two categories. Of a
        :class:`~pymc_dirdp.mechanisms.ZeroSumJointTableMechanism`, one output.
    values : array_like, shape `(..., d)` or `(k, ..., d)`
        One output, or k independent ones of the same counts: what the guarantee is about, such as noisy counts or
        draws of a Dirichlet distribution. Draws that were made *from* noisy counts are not.
    prior : array_like, shape `(..., d)`
        Of the shares, positive; in the shape of the table. It is yours, and costs no privacy.
    n_records : int, optional
        The number of records, where it is public and the mechanism does not hold it.
    sampler : {"exact", "fast"}, optional
        What drew it; by default the mechanism's own default, as in `sample` and `release`.
    steps : int, optional
        Of the urn that drew it, if they were chosen; by default those that `sample` takes.
    name : str, default "p"
        What the shares are called.

    Notes
    -----
    The input of a :class:`~pymc_dirdp.papers.SimplexMechanism` is taken to be counts by `n_records`, none of them
    0. Floors of its domain that are higher are not used.

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
    sampler: str | None = None
    steps: int | None = None
    name: str = "p"
    reproducible: ClassVar[bool] = False
    """Whether it says that a seed was used, as a release does."""

    @classmethod
    def of(cls, thing: object) -> Self | None:
        """The thing if it is the output of a mechanism, and None if it is anything else."""
        return thing if isinstance(thing, cls) else None

    def __post_init__(self) -> None:
        known = Mechanism.of(self.mechanism)
        if known is None:
            raise ArgumentError(f"Expected a mechanism, got {type_name(self.mechanism)}.")
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise ArgumentError("Expected name to be a text without '/'.")
        prior, given = positive_array(prior=self.prior), numbers_or_none(self.values)
        if given is None or not np.all(np.isfinite(given)):
            raise ArgumentError("Expected values to be an array of finite numbers.")
        values = given[None] if given.ndim == prior.ndim else given.copy()
        if values.shape[1:] != prior.shape or len(values) == 0:
            raise ArgumentError(
                f"Expected values to have the shape of the prior, {prior.shape}, or several outputs of it, got "
                f"{given.shape}."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "n_records", self.mechanism.public_records(self.n_records))
        object.__setattr__(self, "sampler", self.mechanism.checked_sampler(self.sampler))
        object.__setattr__(self, "steps", self.mechanism.checked_steps(self.steps, str(self.sampler)))
        # Anyone who hands over what cannot be read learns of it here.
        if self.observed_table.joint_rows is None:
            self._row_likelihoods()

    @cached_property
    def observed_table(self) -> ObservedTable:
        """What inference reads of it."""
        labels = tuple((f"{self.name}_dim_{axis}", None) for axis in range(self.prior.ndim))
        mechanism, is_alone = self.mechanism, len(self.values) == 1
        joint_rows = mechanism.joint_rows(self.values[0])
        if joint_rows is not None and not is_alone:
            raise ArgumentError("Expected one output of a joint mechanism: several are not read together.")
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
            blocks=[(rows, round(total)) for rows, total in mechanism.published_totals(self.values[0])],
            cell_noise=mechanism.cell_noise if is_alone else None,
            joint_rows=joint_rows,
        )

    @property
    def observed_tables(self) -> dict[str, ObservedTable]:
        """The table by its name, as those of a release."""
        return {self.name: self.observed_table}

    def replicates(self, counts: Mapping[str, Integers], rng: np.random.Generator) -> dict[str, Array]:
        """As many outputs of each of several tables of counts, by the name of the table."""
        steps, table = self.steps, TableMechanism.of(self.mechanism)
        if steps is None and table is not None:
            steps = table.steps(str(self.sampler), self.n_records)
        return {self.name: replicates_of(self.mechanism, counts[self.name], len(self.values), steps, rng)}

    def _row_likelihoods(self) -> list[list[RowLikelihood]]:
        return self._rows

    @cached_property
    def _rows(self) -> list[list[RowLikelihood]]:
        each = [
            self.mechanism.likelihoods_of_rows(
                output, n_records=self.n_records, sampler=str(self.sampler), steps=self.steps
            )
            for output in self.values
        ]
        return [list(row) for row in zip(*each, strict=True)]

    def _damaged(self, problem: str) -> ArgumentError:
        return ArgumentError(f"{problem[:1].upper()}{problem[1:]}. Check the output, the mechanism and n_records.")


def replicates_of(mechanism: Mechanism, counts: Integers, n: int, steps: int | None, rng: np.random.Generator) -> Array:
    """`n` outputs of each of several tables of counts, shape `(tables, n, ...)`; of shares those of an urn's steps."""
    values = mechanism.replicates(counts.astype(np.float64), n, rng)
    if steps is None:
        return values
    # What an urn of so many steps shows of shares: its counts given its own limit are multinomial.
    return np.asarray(positive_frequencies(rng.multinomial(steps, values / values.sum(axis=-1, keepdims=True)), steps))


def pooled(tables: Sequence[ObservedTable], *, own_prior: bool) -> ObservedTable:
    """One table that several releases tell of, checked. Whatever does not add up is that of the first.

    Parameters
    ----------
    tables : sequence of ObservedTable
        The table of each release.
    own_prior : bool
        Whether the analyst has a prior of their own; otherwise all models must have the same.

    Raises
    ------
    ArgumentError
        If they are not the same table of the same records.
    """
    first, *others = tables
    if others and any(table.joint_rows is not None for table in tables):
        raise ArgumentError(
            f"The rows of {first.name!r} share the noise of a joint release, which is not read together with others. "
            "Analyse each by itself."
        )
    if len({len(table.measurements) > 0 for table in tables}) > 1:
        raise ArgumentError(
            f"{first.name!r} was released by marginals, and in another release it was not, so they are not read "
            "together. Analyse each by itself."
        )
    for other in others:
        for what, one, two in (
            ("shape", first.prior.shape, other.prior.shape),
            ("family", first.family, other.family),
            ("labels", first.share_labels, other.share_labels),
            ("number of records", first.n_records, other.n_records),
        ):
            if one != two:
                raise ArgumentError(
                    f"The table {first.name!r} has another {what} in another release, so they do not tell of the same "
                    "records. Analyse each by itself."
                )
        totals = [[(rows.tolist(), total) for rows, total in one.blocks] for one in (first, other)]
        if min(map(len, totals)) > 1 and totals[0] != totals[1]:
            raise ArgumentError(
                f"The outputs of {first.name!r} tell of different numbers of records in its rows, so they are not "
                "about the same records. Analyse each by itself."
            )
        if not own_prior and not np.array_equal(first.prior, other.prior):
            raise ArgumentError(
                f"The models of the releases have different priors of {first.name!r}. Say which you hold, as prior=."
            )
    if not others:
        return first
    ranges = [table.possible_records for table in tables if table.possible_records is not None]
    common = range(max(some[0] for some in ranges), min(some[-1] for some in ranges) + 1) if ranges else ()
    return replace(
        first,
        mechanism_names=tuple(dict.fromkeys(chain.from_iterable(table.mechanism_names for table in tables))),
        observed=[one for table in tables for one in table.observed],
        row_likelihoods=partial(_all_likelihoods, [table.row_likelihoods for table in tables]),
        # All guarantees hold, so the largest does.
        least=max(table.least for table in tables),
        # That output which tells most of numbers of records; the others do not contradict it.
        blocks=max((table.blocks for table in tables), key=len),
        possible_records=common or None,
        # Several noisy tables are no single one.
        cell_noise=None,
        measurements=[one for table in tables for one in table.measurements],
    )


def _all_likelihoods(each: Sequence[Callable[[], list[list[RowLikelihood]]]]) -> list[list[RowLikelihood]]:
    return [list(chain.from_iterable(row)) for row in zip(*(likelihoods() for likelihoods in each), strict=True)]


type OfTotal = Callable[[Array], Array]
"""Logarithms of weights of totals."""


@final
@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """What the analyst takes for granted about one table. Their own, and free: no privacy is spent.

    Attributes
    ----------
    prior : array_like, optional
        Of the shares, in the shape of the table; by default that of the model.
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
    given = output.prior if prior is None else positive_array(prior=prior, min_entries=1)
    if np.any((given < _LEAST_PRIOR) | (given > _MOST_PRIOR)):
        raise output.damaged(_FAR_TOO_LARGE)
    if given.shape != output.prior.shape:
        raise ArgumentError(
            f"Expected the prior of {output.name!r} to have the shape of the table, {output.prior.shape}, got "
            f"{given.shape}."
        )
    return given


def row_prior_of(output: ObservedTable, row_prior: ArrayLike | None) -> Array | None:
    """The prior of the shares of rows, if there is one."""
    if row_prior is None:
        return None
    shape = output.prior.shape[:-1]
    if not shape or output.prior.size == output.prior.shape[-1]:
        raise ArgumentError(f"row_prior is for tables of several rows, and {output.name!r} has one.")
    given = positive_array(row_prior=row_prior)
    if given.shape != shape:
        raise ArgumentError(f"Expected row_prior of {output.name!r} to have the shape {shape}, got {given.shape}.")
    return given.ravel()


def number_of(output: ObservedTable, n_prior: int | range | ArrayLike | None) -> tuple[int, OfTotal | None]:
    """The largest number of records that is possible, and the prior of a private one."""
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
            raise ArgumentError("Expected the range of n_prior to hold integers from 0 on, in steps of 1.")
        least, weight = n_prior[0], -float(np.log(len(n_prior)))
        return n_prior[-1], lambda totals: np.where(totals >= least, weight, -np.inf)
    weights = numbers_or_none(n_prior)
    if weights is None or weights.ndim == 0:
        most = integer(1, n_prior=n_prior)
        return most, lambda totals: np.full(np.shape(totals), -np.log(most + 1.0))
    if weights.ndim != 1 or len(weights) < 2 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise ArgumentError("Expected n_prior to be an integer or a list of weights, at least 0 and not all 0.")
    with np.errstate(divide="ignore"):
        logs = np.log(weights / weights.sum())

    def log_prior(totals: Array) -> Array:
        below = np.floor(totals).astype(np.int64)
        part = totals - below
        # Where a weight is 0 nothing between it and its neighbour is possible; 0 times infinity must not be.
        with np.errstate(invalid="ignore"):
            between = (1 - part) * logs[below] + part * logs[np.minimum(below + 1, len(logs) - 1)]
        return np.asarray(np.where(part == 0, logs[below], between))

    return int(np.flatnonzero(weights)[-1]), log_prior
