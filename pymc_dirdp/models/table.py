"""The public facts about a table and its likelihoods, and the names and labels that a release can hold.

They contain no graph, no model and no data.
"""

import hashlib
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.texts.codec import facts_of, value_of
from pymc_dirdp.texts.grammar import to_builtin

Family = Literal["dirichlet", "beta"]
KindName = Literal["multinomial", "categorical", "dirichlet-multinomial", "binomial", "bernoulli", "beta-binomial"]


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """A public map from the cells that a likelihood counts in to those of a table.

    Parameters
    ----------
    cells : ndarray of int64, shape (*rows, k)
        For every cell that the likelihood counts in: its number among the cells of the table, in C order; -1 if it
        belongs to another table.
    by_codes : bool, default False
        Whether codes, which are data, decide between this table and others.
    """

    cells: Integers
    by_codes: bool = False

    def __post_init__(self) -> None:
        cells = np.array(self.cells, dtype=np.int64)
        cells.flags.writeable = False
        object.__setattr__(self, "cells", cells)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the likelihood's counts."""
        return self.cells.shape

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which rows of the likelihood belong to this table."""
        return np.asarray(self.cells[..., 0] >= 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        return np.array_equal(self.cells, other.cells) and self.by_codes == other.by_codes

    def __hash__(self) -> int:
        return hash((self.shape, self.cells.tobytes(), self.by_codes))

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (np.array(self.cells), self.by_codes)

    def __repr__(self) -> str:
        # The digest of a plan contains this text, so it must differ between views.
        digest = hashlib.sha256(self.cells.tobytes()).hexdigest()[:16]
        return f"View(shape={self.shape}, by_codes={self.by_codes}, sha256={digest})"


@dataclass(frozen=True)
class Likelihood:
    """One observed variable whose records are counted in a table.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : str
        One of `KINDS`.
    rows : tuple of (int or None)
        For every row axis of the likelihood's view of the table, the batch axis of the observed variable that follows
        it; None where codes choose the row. All other batch axes are repeated records and are summed over.
    parents : tuple of str
        For every None in `rows`, the variable with the codes: its name, or "an array" without one.
    view : View or None
        The likelihood's view of the table; None if it sees the table itself.
    """

    name: str
    kind: KindName
    rows: tuple[int | None, ...]
    parents: tuple[str, ...] = ()
    view: View | None = None

    def __post_init__(self) -> None:
        for axis in self.rows:
            if axis is not None:
                integer(0, rows=axis)

    def shape(self, of_table: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the likelihood's counts, for a table of this shape."""
        return of_table if self.view is None else self.view.shape

    def table_rows(self, of_table: tuple[int, ...]) -> Integers:
        """The number of the table's row behind each row that it sees; -1 if that belongs to another table."""
        if self.view is None:
            return np.arange(math.prod(of_table[:-1])).reshape(of_table[:-1])
        return np.where(self.view.inside, self.view.cells[..., 0] // of_table[-1], -1)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The public facts about one table of counts and its conjugate prior.

    A table holds no graph, no model and no data, and can be pickled. Two tables are equal if all their facts are equal.

    Attributes
    ----------
    name : str
        The variable that is released: the Dirichlet or Beta variable, or `f"{observed}_p"` for a
        `pm.DirichletMultinomial` or `pm.BetaBinomial`, where it is integrated out.
    family : {"dirichlet", "beta"}
        The family of the prior.
    prior : ndarray of float64, shape (..., d), read-only
        The parameters of the prior, one for each cell of the table. A Beta has d = 2: success, then failure. With d = 1
        every share is 1, whatever the data are, so a release reveals nothing about them at no cost.
    dims : tuple of (str or None), or None
        PyMC's dims of the released variable. A Beta has no axis of categories.
    coords : mapping of str to tuple or None
        The labels of these dims; None for a dim without labels.
    likelihoods : tuple of Likelihood
        The observed variables whose records are counted. With several, a person's records may be in each of them.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> (table,) = dirdp.tables(model)
    >>> table.prior
    array([1., 1., 1., 1.])
    """

    name: str
    family: Family
    prior: NDArray[np.float64]
    dims: tuple[str | None, ...] | None = None
    coords: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    likelihoods: tuple[Likelihood, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(min_entries=1, **{f"the prior of {self.name!r}": self.prior}))
        object.__setattr__(self, "coords", MappingProxyType(dict(self.coords)))
        if self.family == "beta" and self.n_categories != 2:
            raise ArgumentError(f"{self.name!r} is a Beta and has more than two categories.")
        lengths = self.released_shape if self.dims else ()
        if self.dims is not None and (len(self.dims) != len(lengths) or set(self.coords) != set(self.dims) - {None}):
            raise ArgumentError(f"The dims of {self.name!r} do not fit its shape.")
        for dim, length in zip(self.dims or (), lengths, strict=True):
            labels = None if dim is None else self.coords[dim]
            if labels is not None and len(labels) != length:
                raise ArgumentError(f"The dim {dim!r} does not have one label for each entry.")
        for view in [likelihood.view for likelihood in self.likelihoods if likelihood.view is not None]:
            # The last axis holds the categories, and -1 stands for a cell of another table.
            if not view.cells.ndim or not np.all((view.cells >= -1) & (view.cells < self.prior.size)):
                raise ArgumentError("A view refers to cells that its table does not have.")

    @property
    def with_text_labels(self) -> Self:
        """The same table, with labels of the types that reading them from a text gives."""
        kind = tuple[Any, ...]
        labels = {
            dim: values and value_of(kind, to_builtin(facts_of(plain_labels(values))))
            for dim, values in self.coords.items()
        }
        return replace(self, coords=labels, dims=self.dims or None)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table of counts, categories last."""
        return self.prior.shape

    @property
    def released_shape(self) -> tuple[int, ...]:
        """The shape of the variable; for a Beta, that of the probabilities of success."""
        return self.shape[:-1] if self.family == "beta" else self.shape

    @property
    def n_rows(self) -> int:
        """The number of vectors of probabilities."""
        return math.prod(self.shape[:-1])

    @property
    def n_categories(self) -> int:
        """The number of cells of a row."""
        return self.shape[-1]

    def _facts(self) -> tuple[Any, ...]:
        return self.name, self.family, self.dims, dict(self.coords), self.likelihoods

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self._facts() == other._facts() and np.array_equal(self.prior, other.prior)

    def __hash__(self) -> int:
        labels = tuple((dim, *(self.coords[dim] or ())) for dim in sorted(self.coords))
        return hash((self.name, self.family, self.shape, self.dims, self.likelihoods, self.prior.tobytes(), labels))

    def __reduce__(self) -> tuple[Any, ...]:
        # __init__ rebuilds it, because pickle does not preserve that an array is read-only.
        return Table, (self.name, self.family, np.array(self.prior), self.dims, dict(self.coords), self.likelihoods)

    def __repr__(self) -> str:
        observed = ", ".join(repr(likelihood.name) for likelihood in self.likelihoods)
        return f"Table({self.name!r}, {self.family}, shape={self.shape}, observed as {observed})"


# The names that a release can hold: it is a tree of paths with dims of its own, written to files and terminals.


# The names of the coordinates of draws. A variable with such a name would replace the coordinate.
_DRAWS = ("chain", "draw")
PYMC_NAMES = (*_DRAWS, "__sample__")
"""The names of PyMC's own dims."""
DIAGNOSIS_NAMES = (
    *("draw", "kl_posterior", "kl_release", "records"),
    *("bias_of_draw", "error_of_draw", "error_of_estimate", "estimate", "released", "share"),
    *("posterior_parameter", "private_parameter"),
)
"""The names that the groups of a diagnosis use themselves."""


def is_one_line(text: str) -> bool:
    """Whether a text has no line breaks, other control characters or surrogates.

    A terminal obeys control characters, so a name could write what looks like another line of a report. Format
    characters change the direction of text or are invisible; those that join letters are a part of some scripts. No
    file can hold surrogates or the character NUL.
    """
    # The last two are invisible and not printable, and are used in Persian, in Hindi and in emoji.
    return text.isprintable() or not any(
        unicodedata.category(character) in ("Cc", "Cs", "Cf", "Zl", "Zp") and character not in "\u200c\u200d"
        for character in text
    )


def is_path_name(text: str) -> bool:
    """Whether a text can name a group, a variable or a dim in every file."""
    return text not in ("", ".", "..") and not {"/", "\\"} & set(text) and is_one_line(text)


def is_variable_name(text: str) -> bool:
    """Whether a text can name a variable among the draws."""
    return is_path_name(text) and text not in _DRAWS


def dim_name(name: str, axis: int, dim: str | None) -> str:
    """The dim of an axis; without one, ArviZ's own name for it."""
    return f"{name}_dim_{axis}" if dim is None else dim


def unique_dim(dim: str, names: Iterable[str]) -> str:
    """The dim, or another name for it if a group has a variable of this name."""
    return f"{dim}_labels" if dim in names else dim


def outcome_dim(name: str) -> str:
    """The dim of success and failure in the table of a Beta variable."""
    return f"{name}_outcome"


def check_names(tables: Sequence["Table"]) -> None:
    """Refuse names that no release can hold, before anything is planned, spent or drawn."""
    # The names that a release gives to axes that have none in the model.
    new_dims: dict[str, str] = {}
    for table in tables:
        dims = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
        new_dims |= {dim_name(table.name, k, None): table.name for k, dim in enumerate(dims) if dim is None}
    signs = "without '/', '\\' and control characters, such as line breaks"
    for table in tables:
        if not is_variable_name(table.name):
            raise UnsupportedModelError(
                f"A release stores each table under its name, and {table.name!r} cannot name a group or is the name of "
                f"the draws. Rename the variable: not {' or '.join(_DRAWS)}, and {signs}."
            )
        for name in (table.name, *(table.dims or ())):
            if name in new_dims:
                raise UnsupportedModelError(
                    f"The name {name!r} of {table.name!r} is also the name of an axis of {new_dims[name]!r} in a "
                    "release. Rename it."
                )
        if table.family == "beta" and outcome_dim(table.name) in (table.dims or ()):
            raise UnsupportedModelError(
                f"The dim {outcome_dim(table.name)!r} of {table.name!r} is reserved for success and failure. Rename it."
            )
        for likelihood in table.likelihoods:
            if not is_one_line(likelihood.name):
                raise UnsupportedModelError(
                    f"The name {likelihood.name!r} holds control characters, such as line breaks. Rename the variable."
                )
        for dim in table.dims or ():
            # The dim that a release uses itself, beside those that PyMC refuses.
            if dim is not None and (dim == "table" or not is_path_name(dim)):
                raise UnsupportedModelError(
                    f"The dim {dim!r} of {table.name!r} is taken, or a release cannot hold its name. Rename it: not "
                    f"table, and {signs}."
                )
        for dim, labels in table.coords.items():
            if labels is not None:
                check_labels(dim, labels, table.name)


# The labels of dims that a file can hold and return unchanged.


def plain_labels(labels: Iterable[Any]) -> list[Any]:
    """Labels as a release holds them: times and durations count nanoseconds, as they do when a file is read.

    Examples
    --------
    >>> plain_labels([datetime(2020, 1, 31), datetime(2020, 2, 29)])[0]
    np.datetime64('2020-01-31T00:00:00.000000000')
    """
    values = list(labels)
    kinds = set(map(type, values))
    if values and all(issubclass(kind, datetime | np.datetime64) for kind in kinds):
        import pandas as pd

        return list(pd.DatetimeIndex(values).as_unit("ns").to_numpy())
    if values and all(issubclass(kind, timedelta | np.timedelta64) for kind in kinds):
        import pandas as pd

        return list(pd.TimedeltaIndex(values).as_unit("ns").to_numpy())
    return values


def check_labels(dim: str, labels: Iterable[Any], name: str) -> None:
    """Refuse labels of a dim that no file can hold, that a file would change, or that look like others.

    Parameters
    ----------
    dim : str
        The dim.
    labels : iterable
        Its labels, which are public.
    name : str
        The variable that has this dim.
    """
    where = f"The labels of the dim {dim!r} of {name!r}"
    values = list(labels)
    # For a million labels each function takes a second.
    texts = [label for label in values if isinstance(label, str)]
    if not all(map(is_one_line, texts)):
        raise UnsupportedModelError(
            f"{where} hold control characters, such as line breaks. Write labels of one line of printable text."
        )
    non_ascii = {text for text in texts if not text.isascii()}
    if len({unicodedata.normalize("NFC", text) for text in non_ascii}) < len(non_ascii):
        raise UnsupportedModelError(
            f"Two labels of the dim {dim!r} of {name!r} are the same characters in two Unicode forms, which look "
            "the same. Write all labels in one form, such as NFC of unicodedata.normalize."
        )
    is_plain = set(map(type, values)) <= {int, str}
    if not is_plain and any(np.ndim(label) for label in values):
        raise UnsupportedModelError(
            f"{where} are tuples or arrays, which no file can hold as labels. Use text or numbers."
        )
    if not is_plain and not all(map(_equals_itself, values)):
        raise UnsupportedModelError(f"{where} are not all equal to themselves, such as nan. Use text or numbers.")
    if not is_plain and any(getattr(label, "tzinfo", None) is not None for label in values):
        raise UnsupportedModelError(
            f"{where} are times with a time zone, which no file can hold as labels. Write them as text, or as times "
            "without a zone."
        )
    try:
        python_values = plain_labels(values)
        array = np.asarray(python_values)
        # A file holds times as nanoseconds since the first of them. Python's integers do not overflow.
        fits = array.dtype.kind not in "Mm" or max(array.tolist()) - min(array.tolist()) <= 2**63 - 1
    except (ArithmeticError, TypeError, ValueError):
        fits = False
    if not fits:
        raise UnsupportedModelError(
            f"{where} are times outside of the years 1678 to 2262, more than 292 years apart, or mixed with others. "
            "Write them as text."
        )
    # Texts, bytes, truth values, numbers, times and durations, as NumPy calls them.
    if array.dtype.kind not in "USbiufMm" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        raise UnsupportedModelError(
            f"{where} are objects or numbers that no file can hold as labels. Use text or numbers."
        )
    # An array has labels of one type: it turns 1 next to "a" into text, and a large integer into a double.
    if array.dtype.kind not in "Mm" and array.tolist() != python_values:
        raise UnsupportedModelError(
            f"{where} are of several types, such as 1 and 'a', or numbers that no double holds, so a file would change "
            "them. Write all of them as text."
        )


def _equals_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except TypeError:
        # The NA of pandas does not say whether it equals itself.
        return False
