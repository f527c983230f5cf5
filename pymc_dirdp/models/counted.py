"""Counts the observations of a model in the cells of its tables.

This file is part of the trusted core, see the page on the threat model. It has arrays of records in hand. All that can
be known without them is prepared before, by :mod:`pymc_dirdp.models.observations` and
:mod:`pymc_dirdp.models.outcomes`: which arrays to read, and the cell of each record. No error contains a value.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.counting.counts import live_bound, tabulate
from pymc_dirdp.errors import DataError

type Source = Callable[[], Any]
"""Returns an array of records. Nothing calls it before the charge."""


class Records(NamedTuple):
    """**Secret**: the checked observations of one likelihood.

    Attributes
    ----------
    values : ndarray of int64
        The observations.
    row : ndarray of int64
        The number of the row that each observation feeds, among the rows that the likelihood sees; of length 1 along
        each batch axis on which it does not depend.
    records : ndarray of int64, shape (*batch, d), or None
        The observations as counts of categories; None for a Categorical, whose values are their numbers.
    """

    values: Integers
    row: Integers
    records: Integers | None

    def __repr__(self) -> str:
        return "Records(secret)"


@final
@dataclass(frozen=True, eq=False, repr=False)
class CodesReading:
    """How to read the codes that choose the rows of observations.

    Attributes
    ----------
    source : callable or None
        None if they cannot be computed.
    axes : tuple of int
        The axes of the observations that the codes follow.
    places : tuple of int
        For each axis of the arrays behind the codes, the axis of the codes that it follows.
    lengths : tuple of int
        The shape of one of these arrays.
    truth : bool
        Whether they are truth values.
    """

    source: Source | None
    axes: tuple[int, ...]
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    truth: bool

    def codes(self, length: int, observed: str, batch: tuple[int, ...]) -> Integers:
        """**Secret**: the code of each observation, from 0 to `length` - 1, with an axis for each batch axis."""
        index = read_array(self.source, observed)
        if index.size != math.prod(self.lengths) or tuple(index.shape[axis] for axis in self.places) != self.lengths:
            raise invalid(observed, "do not have one code for each observation", "parents")
        index = (index != 0).astype(np.int64) if self.truth else index
        code = integers(index.reshape([batch[axis] for axis in self.axes]), observed, "parents")
        if np.any(code >= length):
            raise invalid(observed, f"are not all codes from 0 to {length - 1}", "parents")
        return align_axes(code, self.axes, batch)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Reading:
    """How to count the records of one observed variable in a table.

    Attributes
    ----------
    name : str
        The observed variable.
    source : callable or None
        The observations; None if they cannot be computed.
    kind : {"codes", "counts", "successes"}
        Whether an observation is the number of a category, a count for each category, or a number of successes.
    has_trials : bool
        Whether the distribution has a number of trials. Otherwise each observation is one record.
    table : tuple of int
        The shape of the table.
    likelihood_shape : tuple of int
        The shape of the counts that the likelihood sees.
    cells : ndarray of int64, or None
        For each cell that it sees, the number of the cell of the table; None if it sees the table itself.
    rows : tuple of int or None
        For each row axis that it sees, the batch axis that follows it; None where codes choose the row.
    lengths : tuple of int
        The lengths of the batch axes.
    trials : ndarray or None
        The numbers of trials.
    codes : tuple of CodesReading
        One for each None in `rows`.
    in_float32 : bool
        Whether the observations may have been rounded to 24 bits.
    people : tuple of int or None
        The batch axes of the people whose numbers of records are bounded.
    most : int or None
        The largest number of records of one of them, and `too_many` is the error.
    too_many : str
        The error if somebody has more.
    unstated : int or None
        The largest number of records of a unit that may be protected by record; None if the unit is stated.
    """

    name: str
    source: Source | None
    kind: str
    has_trials: bool
    table: tuple[int, ...]
    likelihood_shape: tuple[int, ...]
    cells: Integers | None
    rows: tuple[int | None, ...]
    lengths: tuple[int, ...]
    trials: Integers | None
    codes: tuple[CodesReading, ...]
    in_float32: bool
    people: tuple[int, ...] | None = None
    most: int | None = None
    too_many: str = ""
    unstated: int | None = None

    @property
    def all_trials(self) -> Integers:
        """The number of trials of every observation, 1 where it is one record, with axes of length 1 as in `trials`."""
        return np.ones((1,) * len(self.lengths), dtype=np.int64) if self.trials is None else self.trials

    def checked_trials(self) -> Integers:
        """As `all_trials`, or an error if there are more than 2**53 records."""
        if self.trials is not None:
            check_total(np.broadcast_to(self.trials, self.lengths), self.name)
        return self.all_trials

    def records_of(self, people: tuple[int, ...]) -> Integers:
        """The number of records of each entry of the axes `people`."""
        others = tuple(axis for axis in range(len(self.lengths)) if axis not in people)
        return np.asarray(np.broadcast_to(self.all_trials, self.lengths).sum(axis=others))

    def check_people(self) -> None:
        """Refuse data in which an entry of the unit has more records than stated."""
        if self.people is not None and self.most is not None and np.any(self.records_of(self.people) > self.most):
            raise DataError(self.too_many)

    def records(self) -> Records:
        """**Secret**: the checked observations.

        Raises
        ------
        DataError
            If the observations do not fit their likelihood: not integers >= 0, not adding up to `n` or above it, codes
            outside the categories, shapes that do not fit the rows, a total above 2**53. The error names the variable
            and the problem, never a value, a position or a number of records.
        """
        array, codes = read_array(self.source, self.name), iter(self.codes)
        if self.unstated is not None:
            refuse_lost_unit(self.name, array, self.unstated)
        values = integers(array, self.name, in_float32=self.in_float32)
        row = np.zeros((1,) * len(self.lengths), dtype=np.int64)
        for axis, length in zip(self.rows, self.likelihood_shape[:-1], strict=True):
            if axis is None:
                entry = next(codes).codes(length, self.name, self.lengths)
            else:
                entry = align_axes(np.arange(length), [axis], self.lengths)
            row = row * length + entry
        if self.kind == "codes":
            if np.any(values >= self.likelihood_shape[-1]):
                raise invalid(self.name, f"are not all codes from 0 to {self.likelihood_shape[-1] - 1}")
            return Records(values, row, None)
        trials = self.checked_trials()
        if self.kind == "counts":
            check_total(values, self.name)
            if np.any(values.sum(axis=-1) != trials):
                raise invalid(
                    self.name,
                    "do not add up to `n` in every row. For shares within rows pass n=counts.sum(axis=-1). For the "
                    "shares of all cells of a table pass observed=counts.ravel(), with one Dirichlet of this length. "
                    "Use unweighted counts, because PyMC rounds others down, and weight the released shares instead",
                )
            return Records(values, row, values)
        if np.any(values > trials):
            raise invalid(self.name, "are above `n` in some row" if self.has_trials else "are not all 0 or 1")
        return Records(values, row, np.stack([values, trials - values], axis=-1))

    def counts(self) -> Integers:
        """**Secret**: the number of records in each cell of the table, or the errors of :meth:`records`."""
        observed = self.records()
        if observed.records is None:
            # Count each category in each row, without an indicator for each record and category.
            places = observed.row * self.likelihood_shape[-1] + observed.values
            counts = np.bincount(places.ravel(), minlength=math.prod(self.likelihood_shape))
        else:
            # Sum the records along the axes that no row follows, and then by the row that they feed.
            repeated = tuple(axis for axis, length in enumerate(observed.row.shape) if length == 1)
            records = observed.records.sum(axis=repeated, keepdims=True)
            counts = np.zeros((math.prod(self.likelihood_shape[:-1]), self.likelihood_shape[-1]), dtype=np.int64)
            np.add.at(counts, observed.row.ravel(), records.reshape(-1, self.likelihood_shape[-1]))
        counts = counts.reshape(self.likelihood_shape)
        if self.cells is None:
            return counts
        table, inside = np.zeros(math.prod(self.table), dtype=np.int64), self.cells >= 0
        np.add.at(table, self.cells[inside], counts[inside])
        return table.reshape(self.table)


def count_readings(readings: Sequence[Sequence[Reading]]) -> list[Integers]:
    """**Secret**: the counts of several tables, each from the readings of all its observed variables.

    PyMC converts the observations first. It truncates a plain array to integers: `observed=[1.5, 2]` arrives as `[1,
    2]`, which is detected only if it does not add up to `n`. A `pm.Data` of floats arrives unchanged. PyMC stores
    integer arrays in 32 bits, so counts of 2**31 and more wrap around; lists and floats do not. Under
    `floatX="float32"` it stores them in 16 bits, and counts of 2**24 and more are refused.

    Raises
    ------
    DataError
        As for :meth:`Reading.records`; also if a person has more records than stated.
    """
    tables = []
    for of_table in readings:
        counts = np.zeros(of_table[0].table, dtype=np.int64)
        for reading in of_table:
            counts += reading.counts()
        tables.append(counts)
    for reading in (reading for of_table in readings for reading in of_table):
        reading.check_people()
    return tables


def read_array(source: Source | None, observed: str) -> NDArray[Any]:
    """**Secret**: the array of a source; no error shows it."""
    if source is not None:
        with suppress(Exception):
            return np.asarray(source())
    # Raised here and not in a handler, because PyTensor's message holds values and would be attached as the context.
    raise invalid(observed, "or their number of trials cannot be computed")


def integers(values: NDArray[Any], observed: str, what: str = "observations", *, in_float32: bool = False) -> Integers:
    """The same values as integers, or an error that names the problem and shows no value.

    A short float has rounded large integers before they arrive, so that two neighbouring data sets could differ by more
    than one record. Above 2**24 `float32` has only even numbers and rounds 2**24 + 1 to 2**24, so 2**24 itself is
    refused, too. PyMC casts observations to floatX and then to integers, so their dtype no longer shows that they were
    cast `in_float32`.
    """
    if values.dtype.kind not in "biuf":
        raise invalid(observed, "are not a dense array of numbers", what)
    if not np.all(np.isfinite(values)):
        raise invalid(observed, "are not all finite", what)
    if np.any(values < 0):
        missing = "; a missing value, such as the code -1 of pandas, needs a category of its own"
        raise invalid(observed, f"are not all >= 0{'' if what == 'numbers of trials' else missing}", what)
    if values.dtype.kind == "f" and np.any(values != np.floor(values)):
        raise invalid(
            observed, "are not all integers. Pass unweighted counts, and weight the released shares instead", what
        )
    if np.any(values > MAX_RECORDS):
        raise invalid(observed, "are above 2**53", what)
    precision = np.finfo(values.dtype if values.dtype.kind == "f" else np.float64)
    if in_float32 and precision.bits > 32:
        precision = np.finfo(np.float32)
    if precision.bits < 64 and np.any(values >= 2 ** (precision.nmant + 1)):
        problem = f"reach 2**{precision.nmant + 1}, from where {precision.dtype} no longer holds every integer. "
        raise invalid(observed, problem + "Use floatX='float64' and arrays of that dtype", what)
    return values.astype(np.int64)


def align_axes(values: NDArray[Any], on: Sequence[int], batch: tuple[int, ...]) -> NDArray[Any]:
    """An array whose axes are some of the batch axes, with axes of length 1 for all others."""
    lengths = [1] * len(batch)
    for axis, length in zip(on, values.shape, strict=True):
        lengths[axis] = length
    return values.transpose(np.argsort(on)).reshape(lengths)


def check_total(values: Integers, observed: str) -> None:
    """Refuse more than 2**53 records."""
    # Sum in doubles first, because the exact sum of many large numbers would wrap around.
    if values.sum(dtype=np.float64) > MAX_RECORDS or int(values.sum()) > MAX_RECORDS:
        raise invalid(observed, "count more than 2**53 records in all")


def invalid(observed: str, problem: str, what: str = "observations") -> DataError:
    """An error that names the problem and no value."""
    return DataError(f"The {what} of {observed!r} {problem}.")


def refuse_lost_unit(name: str, values: NDArray[Any], contribution: int) -> None:
    """Refuse observations that equal bounded counts of this process but lost their bound, if it is larger.

    Two tables may agree by chance, or because nobody has more records than are counted, so the answer depends on the
    records.

    Raises
    ------
    DataError
        If there are such counts. The error names the observed variable, the unit and the bound.
    """
    bound = live_bound(values)
    if bound is not None and bound.records > contribution:
        raise bound.lost_bound_error(repr(name))


# Observations of any model, as outcomes by rows of covariates.


@final
@dataclass(frozen=True, eq=False, repr=False)
class AnswersReading:
    """How to count an observed variable of which each observation is a person.

    Attributes
    ----------
    name : str
        The observed variable.
    source : callable or None
    shape : tuple of int
        The number of rows of covariates, and of outcomes.
    support : ndarray of int64, shape (values, ...)
        The values of one answer.
    pattern : ndarray of int64
        The number of the row of each record by its public covariates.
    axis : int
        The axis of the people.
    questions : tuple of ndarray of int64, or None
        For each of several questions, the possible values as positions in `support`.
    levels : tuple of (str, callable or None, int)
        The private covariates, which are codes: name, source and number of levels.
    unstated : int or None
        As for :class:`Reading`.
    """

    name: str
    source: Source | None
    shape: tuple[int, int]
    support: Integers
    pattern: Integers
    axis: int
    questions: tuple[Integers, ...] | None
    levels: tuple[tuple[str, Source | None, int], ...]
    unstated: int | None = None

    def cells(self) -> tuple[Integers, Integers]:
        """**Secret**: the number of the row and of the outcome of each record."""
        observed = read_array(self.source, self.name)
        if self.unstated is not None:
            refuse_lost_unit(self.name, observed, self.unstated)
        observed = observed if self.questions is None else np.moveaxis(observed, self.axis, 0)
        codes = self._codes(observed.reshape(-1, *self.support.shape[1:]))
        if self.questions is not None:
            codes = self._combinations(codes.reshape(len(observed), len(self.questions)))
        row = self.pattern
        for name, source, length in self.levels:
            level = read_array(source, name).astype(np.int64)
            if np.any(level < 0) or np.any(level >= length):
                raise DataError(
                    f"Some code of {name!r} is missing, or is not one of 0, ..., {length - 1}, as levels= says. "
                    "Subtract 1 from codes that begin at 1."
                )
            row = row * length + level
        return row, codes

    def counts(self) -> Integers:
        """**Secret**: the number of records in each cell."""
        return tabulate(self.cells(), self.shape)

    def _codes(self, values: NDArray[Any]) -> Integers:
        """The position of each observation among the values, or an error that shows none of them."""
        codes = np.full(len(values), -1, dtype=np.int64)
        if values.dtype.kind in "biuf" and np.all(np.isfinite(values)):
            # The size is written out, because there may be no record.
            flat, known = (array.reshape(len(array), math.prod(array.shape[1:])) for array in (values, self.support))
            for k, array in enumerate(known):
                codes[(flat == array).all(axis=1)] = k
        if np.any(codes < 0) or values.dtype.kind not in "biuf":
            raise DataError(
                f"Some observation of {self.name!r} is missing, or is a value that its distribution cannot have. Check "
                "the data. Categories are coded from 0, so subtract 1 from answers of 1 to 5."
            )
        return codes

    def _combinations(self, values: Integers) -> Integers:
        """The number of each person's combination of answers, shape (people, questions)."""
        assert self.questions is not None
        codes = np.zeros(len(values), dtype=np.int64)
        for answers, possible in zip(values.T, self.questions, strict=True):
            place = np.searchsorted(possible, answers).clip(max=len(possible) - 1)
            if np.any(possible[place] != answers):
                raise DataError(f"Some answer in {self.name!r} has a probability of 0 in the model. Check the data.")
            codes = codes * len(possible) + place
        return codes


@final
@dataclass(frozen=True, eq=False, repr=False)
class JointReading:
    """How to count the combinations of the answers of the same people to several variables.

    Attributes
    ----------
    name : str
    parts : tuple of AnswersReading
    shape : tuple of int
        The number of rows of covariates, and of combinations.
    """

    name: str
    parts: "tuple[AnswersReading | JointReading, ...]"
    shape: tuple[int, int]

    def cells(self) -> tuple[Integers, Integers]:
        """**Secret**: the number of the row and of the combination of each person."""
        by_part = [part.cells() for part in self.parts]
        if len({len(numbers) for _, numbers in by_part}) > 1:
            raise DataError(f"The variables of {self.name!r} are not answers of the same people: their numbers differ.")
        codes = np.zeros_like(by_part[0][1])
        for part, (_, numbers) in zip(self.parts, by_part, strict=True):
            codes = codes * part.shape[1] + numbers
        rows: Integers = np.stack([row for row, _ in by_part]).max(axis=0)
        return rows, codes

    def counts(self) -> Integers:
        """**Secret**: the number of people in each cell."""
        return tabulate(self.cells(), self.shape)


@final
@dataclass(frozen=True, eq=False, repr=False)
class NumbersReading:
    """How to read observations that are numbers of people.

    Attributes
    ----------
    name : str
    source : callable or None
    trials : ndarray of int64, or None
        The numbers of trials, shape of the batch; None if the observations are the counts.
    has_categories : bool
        Whether an observation has a count for each category. Otherwise it is the number of successes of `trials`.
    log_p : tuple of callable
        Functions of the observations that return their log-probabilities at some points. One of them is finite.
    dtype : str
        The type of their argument.
    unstated : int or None
        As for :class:`Reading`.
    """

    name: str
    source: Source | None
    trials: Integers | None
    has_categories: bool
    log_p: tuple[Callable[..., Any], ...]
    dtype: str
    unstated: int | None = None

    def counts(self) -> Integers:
        """**Secret**: the counts, as rows of outcomes if there are trials."""
        values = read_array(self.source, self.name)
        if self.unstated is not None:
            refuse_lost_unit(self.name, values, self.unstated)
        is_number = values.dtype.kind in "biuf"
        if not is_number or not np.all(np.isfinite(values) & (values >= 0) & (values == np.floor(values))):
            raise DataError(f"The observations of {self.name!r} are not all numbers of people. Check the data.")
        whole = values.astype(np.int64)
        if self.trials is None:
            with np.errstate(all="ignore"):
                finite = [np.isfinite(log_p(whole.astype(self.dtype))).all() for log_p in self.log_p]
            if not any(finite):
                raise DataError(
                    f"Some observation of {self.name!r} has a probability of 0 in the model. Check the data."
                )
            return whole.ravel()
        trials = self.trials.ravel()
        rows = whole if self.has_categories else np.stack([whole, self.trials - whole], axis=-1)
        counts = rows.reshape(len(trials), -1)
        if np.any(counts < 0) or np.any(counts.sum(axis=1) != trials):
            raise DataError(f"The observations of {self.name!r} are not counts of its trials. Check the data.")
        return counts


type OutcomesReading = AnswersReading | JointReading | NumbersReading


def count_outcomes(readings: Sequence[tuple[OutcomesReading, tuple[int, ...]]]) -> list[Integers]:
    """**Secret**: the counts of tables of these shapes, whose last cells may be empty."""
    tables = []
    for reading, shape in readings:
        counts, table = reading.counts(), np.zeros(shape, dtype=np.int64)
        table.flat[: counts.size] = counts.ravel()
        tables.append(table)
    return tables
