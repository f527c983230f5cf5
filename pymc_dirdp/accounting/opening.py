"""Opens the records after the charge, counts them, draws, and lets them go.

This file is part of the trusted core, see the page on the threat model. The functions that count and draw are prepared
before, and hold no records. What they return is published, so no count leaves :meth:`Sealed.release`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import DataError, DirdpError, InternalError, LedgerError
from pymc_dirdp.sampling.drawing import Drawing, Published, SecretCounts, exact_sum

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


_USED: set[Receipt] = set()
"""The receipts that have opened records in this process. Each opens records once."""


@final
class Sealed[T]:
    """Records that are opened once, after the charge, with its receipt.

    Every function that releases something reads its records through this class.

    Parameters
    ----------
    records : T
        **Secret**.
    ledger : Ledger or None
        The ledger to charge. Without a ledger nothing adds up privacy losses, and no receipt is required.
    """

    def __init__(self, records: T, ledger: "Ledger | None") -> None:
        self._records, self.ledger = [records], ledger

    def __repr__(self) -> str:
        return "Sealed(secret)"

    def release[R](
        self,
        count: Callable[[T], Sequence[Integers]],
        draw: Callable[[Sequence[SecretCounts]], R],
        receipt: Receipt | None,
    ) -> R:
        """Count the records and draw from the counts, once. The counts are gone when it returns.

        An error reveals something about the data, so the ledger is charged first, and the error mentions the charge. It
        is raised outside of the handlers, so that its traceback has no frame with the data.

        Parameters
        ----------
        count : callable
            Takes the records and returns tables of counts.
        draw : callable
            Takes these tables and returns what may be published.
        receipt : Receipt or None
            The receipt of the entry of the ledger.
        """
        if self.ledger is not None:
            if receipt is None or receipt in _USED or not self.ledger.issued(receipt):
                raise LedgerError(
                    "The ledger was not charged for these records, so they are not read. Please report this."
                )
            _USED.add(receipt)
        kind: type[BaseException]
        arguments: tuple[Any, ...]
        charged = "" if self.ledger is None else " The ledger has been charged, because this error depends on the data."
        try:
            # The records are removed, so that no frame of an error refers to them.
            return draw([SecretCounts(table) for table in count(self._records.pop())])
        except DirdpError as error:
            kind, arguments = type(error), (f"{error}{charged}",)
        except ImportError as error:
            kind, arguments = ImportError, (f"{error}{charged}",)
        except (KeyboardInterrupt, SystemExit) as error:
            kind, arguments = type(error), error.args
        except OSError as error:
            # Its own text may quote a record; that of the operating system does not.
            reason = "The file cannot be read" if error.errno is None else os.strerror(error.errno)
            kind, arguments = OSError, (error.errno or 0, f"{reason}.{charged}" if charged else reason, error.filename)
        except MemoryError:
            # NumPy's text has the shape of an array, which may be a private number of records.
            kind, arguments = MemoryError, (f"There is not enough memory to count these records.{charged}",)
        except Exception as error:
            # Errors of other libraries show values.
            kind, arguments = InternalError, (f"Records could not be counted: {type(error).__name__}.{charged}",)
        raise kind(*arguments)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Counting[T]:
    """Records other than those of the model, and how to count them in its tables.

    Attributes
    ----------
    records : T
        **Secret**, or where they are.
    count : callable
        Returns the counts of all tables in their order. A function of the trusted core.
    arrays : tuple of ndarray
        Arrays that the release treats as public, beside the priors of the tables.
    has_numbers : bool, default False
        Whether the records must have the public numbers that the plan states, because it was made without them.
    """

    records: T
    count: Callable[[T], Sequence[Integers]]
    arrays: tuple[NDArray[Any], ...] = ()
    has_numbers: bool = False


@final
@dataclass(frozen=True, eq=False, repr=False)
class DrawnTables:
    """What was drawn from the counts of all tables.

    Attributes
    ----------
    arrays : dict of str to list of array
        The published arrays of each table, by its name.
    ranked : (str, int) or None
        A table and an axis along which its counts descend. It is for a warning that only the curator may see.
    """

    arrays: dict[str, list[Published]]
    ranked: tuple[str, int] | None


@final
@dataclass(frozen=True, eq=False, repr=False)
class TablesDrawing:
    """The prepared draws of all tables of a release.

    Attributes
    ----------
    drawings : mapping of str to Drawing
        By the names of the tables, in the order of their counts.
    rules : CountRules
        What their counts must not equal.
    numbers : mapping of str to int
        The public numbers of records that the plan states.
    """

    drawings: Mapping[str, Drawing]
    rules: "CountRules"
    numbers: Mapping[str, int]

    def of(self, tables: Sequence[SecretCounts]) -> DrawnTables:
        """Check all counts, and then draw.

        Raises
        ------
        DataError
            If the counts do not fit the plan, or the plan treats an array as public that equals counts.
        """
        by_name = dict(zip(self.drawings, tables, strict=True))
        checked = {name: self.drawings[name].check(counts) for name, counts in by_name.items()}
        if any(exact_sum(table) > MAX_RECORDS for table in checked.values()):
            raise DataError("The observations count more than 2**53 records in all.")
        if any(exact_sum(checked[name]) != number for name, number in self.numbers.items()):
            raise DataError("The data have another number of records than the plan states. Plan again from these data.")
        counts = {name: table.astype(np.int64) for name, table in checked.items()}
        self.rules.check(counts)
        drawn = {name: self.drawings[name].of(table) for name, table in by_name.items()}
        return DrawnTables(drawn, self.rules.ranked(counts))


# Public numbers that equal counts. A release would publish these counts.


@final
@dataclass(frozen=True, eq=False, repr=False)
class CountRules:
    """What the counts of a release must not equal, and labels that may come from them. All of it is public.

    Attributes
    ----------
    stages : frozenset of str
        The tables whose rows must not be the stages of a funnel.
    arrays : tuple of ndarray
        The arrays that the release treats as public.
    labelled : mapping of str to tuple of int
        For each table, the axes whose labels are texts, so that their order may be that of the counts.
    """

    stages: frozenset[str] = frozenset()
    arrays: tuple[NDArray[Any], ...] = ()
    labelled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def check(self, counts: Mapping[str, Integers]) -> None:
        """Refuse public numbers that equal counts.

        Raises
        ------
        DataError
            If there are such numbers. The error names a table and no number.
        """
        for name, table in counts.items():
            if name in self.stages:
                _refuse_stages(name, table)
        _refuse_copies(self.arrays, counts)

    def ranked(self, counts: Mapping[str, Integers]) -> tuple[str, int] | None:
        """A table and an axis along which its counts descend, as those of `value_counts()` do; None if there is none.

        The answer depends on the counts, so only the curator may see it.
        """
        for name, table in counts.items():
            for axis in self.labelled.get(name, ()):
                along = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis))
                if np.all(np.diff(along) < 0):
                    return name, axis
        return None


def parts_of(counts: Integers) -> Iterator[Integers]:
    """The counts of one category, of all others, of the first few and of the last few. **Secret**."""
    total = counts.sum(axis=-1)
    for k in range(counts.shape[-1]):
        yield counts[..., k]
        yield total - counts[..., k]
        if k > 0:
            yield counts[..., :k]
            yield counts[..., k:]


def _refuse_copies(arrays: Sequence[NDArray[Any]], counts: Mapping[str, Integers], *, no_chance: float = 12) -> None:
    """Refuse arrays that a release treats as public but that equal counts, or counts plus a constant.

    A prior of `counts + 1` uses the records twice, and would publish them. Whole tables are found, and so are the
    counts of one category in all rows, of all others, and of the first or last few. Few or small numbers may agree by
    chance and are accepted: at least `no_chance` bits have to agree.
    """
    # Numbers of trials have rules of their own, and may equal the counts: all trials may succeed.
    trials = [np.squeeze(table.sum(axis=-1)) for table in counts.values()]
    written = [
        array
        for array in map(np.squeeze, arrays)
        if array.size > 1
        and array.dtype.kind in "iuf"
        and np.ptp(array) > 0
        and not any(np.array_equal(array, totals) for totals in trials)
    ]
    for name, table in counts.items():
        for part in map(np.squeeze, (table, *parts_of(table)) if written else ()):
            # The constant uses up one of the numbers.
            if part.size < 2 or (part.size - 1) * np.log2(part.max() + 1) < no_chance:
                continue
            if any(array.shape == part.shape and np.ptp(array - part) == 0 for array in written):
                raise DataError(
                    f"A prior or another array of the model holds counts of {name!r}, which the release would publish. "
                    "Write numbers that anybody may know, such as those of an earlier study."
                )


def _refuse_stages(name: str, counts: Integers, *, no_chance: float = 12) -> None:
    """Refuse a table whose rows are the stages of a funnel: the people counted in one row are the trials of the next.

    Its number of records, which is public, then counts observations. At least `no_chance` bits have to agree.
    """
    totals = counts.sum(axis=-1)
    for axis, counted in product(range(totals.ndim), parts_of(counts)):
        if counted.shape != totals.shape:
            continue
        trials, outcomes = (np.moveaxis(array, axis, 0) for array in (totals, counted))
        for later, earlier in ((trials[1:], outcomes[:-1]), (trials[:-1], outcomes[1:])):
            if np.array_equal(later, earlier) and np.log2(earlier + 1.0).sum() >= no_chance:
                raise DataError(
                    f"The numbers of trials of the rows of {name!r} count what is observed in the rows before, so they "
                    "are not public. Observe one variable with a category for the last stage that a person has "
                    "reached; or pass adjacency='add-remove', where the numbers of records are private; or name the "
                    "observed variable in public= if anybody may know these numbers."
                )
