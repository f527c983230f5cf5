"""Names that a release can hold: it is a tree of paths, with dims of its own."""

from collections.abc import Iterable

import numpy as np

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.tables import Table

__all__ = ["check_names"]

# Dims that a release uses itself, beside those that PyMC refuses.
_TAKEN = ("table",)


def check_names(found: Iterable[Table]) -> None:
    """Refuse names that no release can hold, before anything is planned, spent or drawn."""
    for table in found:
        if table.name in ("", ".", ".."):
            raise UnsupportedModelError(
                f"A release keeps each table under its name, and {table.name!r} is no name of a group. Rename the "
                "variable."
            )
        for name in (table.name, *(dim for dim in table.dims or () if dim is not None)):
            # Not every engine writes them, and a terminal obeys some.
            if "\\" in name or not name.isprintable():
                raise UnsupportedModelError(
                    f"The name {name!r} holds a backslash or a sign that cannot be seen, which not every file can "
                    "hold. Rename it."
                )
        for dim in table.dims or ():
            if dim is not None and (dim in _TAKEN or dim in ("", ".", "..") or "/" in dim):
                raise UnsupportedModelError(
                    f"The dim {dim!r} of {table.name!r} is taken or is no name that a release can hold. Rename it: not "
                    f"{', '.join(_TAKEN)}, and without '/'."
                )
        for dim, labels in table.coords.items():
            if labels is not None and any(np.ndim(label) for label in labels):
                raise UnsupportedModelError(
                    f"The labels of the dim {dim!r} of {table.name!r} are tuples or arrays, which no file can hold as "
                    "labels. Use text or numbers."
                )
