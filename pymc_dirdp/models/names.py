"""Names that a release can hold: it is a tree of paths, with dims of its own, and goes to files and terminals."""

import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.tables import Table

__all__ = ["check_names", "is_one_line", "is_path_name"]

# Dims that a release uses itself, beside those that PyMC refuses.
_TAKEN = ("table",)


def is_one_line(text: str) -> bool:
    """Whether a text is free of line breaks and other control characters, and of halves of characters.

    A terminal obeys the former, so that a name could write what looks like another line of a report; no file can hold
    the latter, nor the character NUL.
    """
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def is_path_name(text: str) -> bool:
    """Whether a text can name a group, a variable or a dim in every file."""
    return text not in ("", ".", "..") and not {"/", "\\"} & set(text) and is_one_line(text)


def check_names(found: Iterable[Table]) -> None:
    """Refuse names that no release can hold, before anything is planned, spent or drawn."""
    for table in found:
        if not is_path_name(table.name):
            raise UnsupportedModelError(
                f"A release keeps each table under its name, and {table.name!r} is no name of a group. Rename the "
                "variable: without '/', '\\' and control characters, such as line breaks."
            )
        for likelihood in table.likelihoods:
            if not is_one_line(likelihood.name):
                raise UnsupportedModelError(
                    f"The name {likelihood.name!r} holds control characters, such as line breaks. Rename the variable."
                )
        for dim in table.dims or ():
            if dim is not None and (dim in _TAKEN or not is_path_name(dim)):
                raise UnsupportedModelError(
                    f"The dim {dim!r} of {table.name!r} is taken or is no name that a release can hold. Rename it: not "
                    f"{', '.join(_TAKEN)}, and without '/', '\\' and control characters, such as line breaks."
                )
        for dim, labels in table.coords.items():
            if labels is not None:
                _check_labels(dim, labels, table.name)


def _check_labels(dim: str, labels: Iterable[Any], name: str) -> None:
    where = f"The labels of the dim {dim!r} of {name!r}"
    given = list(labels)
    if any(np.ndim(label) for label in given):
        raise UnsupportedModelError(
            f"{where} are tuples or arrays, which no file can hold as labels. Use text or numbers."
        )
    if not all(is_one_line(label) for label in given if isinstance(label, str)):
        raise UnsupportedModelError(f"{where} hold control characters, such as line breaks. Leave those out.")
    # Only of texts can a file hold an array of Python objects; xarray writes None as the empty one.
    stored = xr.Dataset(coords={dim: given}).variables[dim].dtype
    if stored.kind == "O" and not all(isinstance(label, str | None) for label in given):
        raise UnsupportedModelError(
            f"{where} are objects or numbers that no file can hold as labels. Use text or numbers."
        )
