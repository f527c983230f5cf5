"""Names and labels of a model's variables."""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dirdp.errors import UnsupportedModelError

if TYPE_CHECKING:
    from pymc_dirdp.models.table import Table

__all__ = [
    "DIAGNOSIS_NAMES",
    "PYMC_NAMES",
    "check_labels",
    "check_names",
    "dim_beside",
    "dim_name",
    "is_one_line",
    "is_path_name",
    "is_variable_name",
    "outcome_dim",
    "plain_labels",
]

# The names that a release can hold: it is a tree of paths with dims of its own, written to files and terminals.


# The dim that a release uses itself, beside those that PyMC refuses.
_TAKEN = "table"
# The names of the coordinates of draws. A variable of such a name would replace the coordinate.
_DRAWS = ("chain", "draw")
_SIGNS = "without '/', '\\' and control characters, such as line breaks"
PYMC_NAMES = (*_DRAWS, "__sample__")
"""The names of PyMC's own dims."""
DIAGNOSIS_NAMES = (
    *("draw", "elpd", "elpd_exact", "kl_posterior", "kl_release", "p", "pareto_k", "posterior", "records"),
    *("bias_of_draw", "error_of_draw", "error_of_estimate", "estimate", "released", "share"),
)
"""The names that the groups of a diagnosis use themselves."""


def is_one_line(text: str) -> bool:
    """Whether a text is free of line breaks and other control characters, and of halves of characters.

    A terminal obeys control characters, so a name could write what looks like another line of a report. No file can
    hold the halves of a character, nor the character NUL.
    """
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def is_path_name(text: str) -> bool:
    """Whether a text can name a group, a variable or a dim in every file."""
    return text not in ("", ".", "..") and not {"/", "\\"} & set(text) and is_one_line(text)


def is_variable_name(text: str) -> bool:
    """Whether a text can name a variable among the draws."""
    return is_path_name(text) and text not in _DRAWS


def dim_name(name: str, axis: int, dim: str | None) -> str:
    """The dim of an axis; ArviZ's own name for one without."""
    return f"{name}_dim_{axis}" if dim is None else dim


def dim_beside(dim: str, names: Iterable[str]) -> str:
    """The dim, or another name for it where a group holds a variable of its name."""
    return f"{dim}_labels" if dim in names else dim


def outcome_dim(name: str) -> str:
    """The dim of success and failure in the table of a Beta variable."""
    return f"{name}_outcome"


def check_names(tables: Sequence["Table"]) -> None:
    """Refuse names that no release can hold, before anything is planned, spent or drawn."""
    new_dims = {name: table.name for table in tables for name in _new_dims(table)}
    for table in tables:
        if not is_variable_name(table.name):
            raise UnsupportedModelError(
                f"A release keeps each table under its name, and {table.name!r} is no name of a group or that of the "
                f"draws. Rename the variable: not {' or '.join(_DRAWS)}, and {_SIGNS}."
            )
        for name in (table.name, *(table.dims or ())):
            if name in new_dims:
                raise UnsupportedModelError(
                    f"The name {name!r} of {table.name!r} is also that of an axis of {new_dims[name]!r} in a release. "
                    "Rename it."
                )
        if table.family == "beta" and outcome_dim(table.name) in (table.dims or ()):
            raise UnsupportedModelError(
                f"The dim {outcome_dim(table.name)!r} of {table.name!r} is that of success and failure. Rename it."
            )
        for likelihood in table.likelihoods:
            if not is_one_line(likelihood.name):
                raise UnsupportedModelError(
                    f"The name {likelihood.name!r} holds control characters, such as line breaks. Rename the variable."
                )
        for dim in table.dims or ():
            if dim is not None and (dim == _TAKEN or not is_path_name(dim)):
                raise UnsupportedModelError(
                    f"The dim {dim!r} of {table.name!r} is taken or is no name that a release can hold. Rename it: not "
                    f"{_TAKEN}, and {_SIGNS}."
                )
        for dim, labels in table.coords.items():
            # Of a million labels each function takes a second.
            texts = [label for label in labels or () if isinstance(label, str)]
            if not all(map(is_one_line, texts)):
                raise UnsupportedModelError(
                    f"The labels of the dim {dim!r} of {table.name!r} hold control characters, such as line breaks. "
                    "Leave those out."
                )
            if labels is not None:
                check_labels(dim, labels, table.name)


def _new_dims(table: "Table") -> list[str]:
    """The names that a release gives to axes that have none in the model."""
    dims = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    return [dim_name(table.name, axis, None) for axis, dim in enumerate(dims) if dim is None]


# The labels of dims that a file can hold, and give back as they were.


# Texts, bytes, truth values, numbers, times and durations, as NumPy calls them.
_KINDS = "USbiufMm"
_MOST_BYTES = 8
# A file holds times as what passed since the first of them, in nanoseconds.
_LONGEST = 2**63 - 1


def plain_labels(labels: Iterable[Any]) -> list[Any]:
    """Labels as a release holds them: times and durations count nanoseconds, as they do when a file is read.

    Examples
    --------
    >>> plain_labels([datetime(2020, 1, 31), datetime(2020, 2, 29)])[0]
    np.datetime64('2020-01-31T00:00:00.000000000')
    """
    given = list(labels)
    kinds = set(map(type, given))
    if given and all(issubclass(kind, datetime | np.datetime64) for kind in kinds):
        import pandas as pd

        return list(pd.DatetimeIndex(given).as_unit("ns").to_numpy())
    if given and all(issubclass(kind, timedelta | np.timedelta64) for kind in kinds):
        import pandas as pd

        return list(pd.TimedeltaIndex(given).as_unit("ns").to_numpy())
    return given


def check_labels(dim: str, labels: Iterable[Any], name: str) -> None:
    """Refuse labels of a dim that no file can hold, or that come back from a file as others.

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
    given = list(labels)
    plain = set(map(type, given)) <= {int, str}
    if not plain and any(np.ndim(label) for label in given):
        raise UnsupportedModelError(
            f"{where} are tuples or arrays, which no file can hold as labels. Use text or numbers."
        )
    if not plain and not all(map(_equals_itself, given)):
        raise UnsupportedModelError(f"{where} are not all equal to themselves, such as nan. Use text or numbers.")
    if not plain and any(getattr(label, "tzinfo", None) is not None for label in given):
        raise UnsupportedModelError(
            f"{where} are times of a time zone, which no file can hold as labels. Write them as texts, or as times "
            "without a zone."
        )
    try:
        python_values = plain_labels(given)
        array = np.asarray(python_values)
        # The list holds Python's integers, which do not overflow.
        fits = array.dtype.kind not in "Mm" or max(array.tolist()) - min(array.tolist()) <= _LONGEST
    except (ArithmeticError, TypeError, ValueError):
        fits = False
    if not fits:
        raise UnsupportedModelError(
            f"{where} are times outside of the years 1678 to 2262, more than 292 years apart, or mixed with others. "
            "Write them as texts."
        )
    if array.dtype.kind not in _KINDS or (array.dtype.kind == "f" and array.dtype.itemsize > _MOST_BYTES):
        raise UnsupportedModelError(
            f"{where} are objects or numbers that no file can hold as labels. Use text or numbers."
        )
    # An array has one kind of labels: it turns 1 beside "a" into a text, and a large integer into a double.
    if array.dtype.kind not in "Mm" and array.tolist() != python_values:
        raise UnsupportedModelError(
            f"{where} are of several kinds, such as 1 and 'a', or numbers that no double holds, so a file would hold "
            "others in their place. Write all of them as texts."
        )


def _equals_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except TypeError:
        # The NA of pandas does not say whether it equals itself.
        return False
