"""The axes of tables and of their shares: what a tree calls them, and the labels along them."""

import re
from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.mechanisms.outputs import DRAWS
from pymc_dirdp.mechanisms.registry import by_class_name
from pymc_dirdp.models.table import Table, dim_beside, dim_name, outcome_dim, plain_labels

type ListedLabels = tuple[tuple[str, list[Any] | None], ...]
"""The name of each axis, and the labels along it if it has any."""

PUBLIC_TOTALS = "public_totals"
"""The variable that holds the public numbers of records of the entries of some row axes."""


def cell_dims(table: Table) -> list[str]:
    """The dims of the table of counts: those of the variable, and for a Beta the dim of its two outcomes."""
    axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    # A variable of the group may not have the name of a dim.
    dims = [renamed(dim_name(table.name, axis, dim)) for axis, dim in enumerate(axes)]
    return [*dims, outcome_dim(table.name)] if table.family == "beta" else dims


def share_dims(table: Table) -> list[str]:
    """The dims of the released variable, after `chain` and `draw`."""
    axes = table.dims or (None,) * len(table.released_shape)
    return [dim_name(table.name, axis, dim) for axis, dim in enumerate(axes)]


def labels(table: Table) -> dict[str, list[Any]]:
    """The coords of the released variable. No others come along, because they may hold data."""
    return {dim: plain_labels(values) for dim, values in table.coords.items() if values is not None}


def cell_coords(table: Table) -> dict[str, list[Any]]:
    """The coords of the table of counts."""
    dims = cell_dims(table)
    outcomes = {dims[-1]: ["success", "failure"]} if table.family == "beta" else {}
    return {dim: values for name, values in labels(table).items() if (dim := renamed(name)) in dims} | outcomes


def share_coords(table: Table) -> dict[str, Any]:
    """The coords of the released variable; ArviZ numbers the entries of a dim without labels."""
    known = labels(table)
    return {dim: known.get(dim, range(size)) for dim, size in zip(share_dims(table), table.released_shape, strict=True)}


def cell_labels(table: Table) -> ListedLabels:
    """The axes of the table of counts, with their labels as a tree has them."""
    coords = cell_coords(table)
    return tuple((dim, _as_in_tree(coords[dim]) if dim in coords else None) for dim in cell_dims(table))


def share_labels(table: Table) -> ListedLabels:
    """The axes of the released variable, with their labels as a tree has them."""
    return tuple((dim, _as_in_tree(values)) for dim, values in share_coords(table).items())


def labels_of(variable: xr.DataArray) -> ListedLabels:
    """Each dim of a variable but `chain` and `draw`, with its labels if it has any."""
    return tuple(
        (str(dim), _as_python(variable.coords[dim].values) if dim in variable.coords else None)
        for dim in variable.dims
        if dim not in ("chain", "draw")
    )


def _as_in_tree(values: Any) -> list[Any]:
    return _as_python(np.asarray(values))


def _as_python(values: Any) -> list[Any]:
    """Labels as Python values; those that Python has no kind for, such as nanoseconds, as NumPy's."""
    return list(values) if values.dtype.kind in "Mmu" else values.tolist()


def renamed(dim: str) -> str:
    """A name for a dim that no variable of a group `mechanism` has."""
    taken = {PUBLIC_TOTALS}
    for kind in by_class_name().values():
        taken |= {fact.name for fact in kind.facts if fact.is_variable} | {kind.publishes} - {DRAWS}
    return dim_beside(dim, taken | {dim for name in taken if re.fullmatch(rf"{name}(_\d+)+", dim)})
