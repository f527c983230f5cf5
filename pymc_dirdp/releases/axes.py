"""The axes of tables and of their shares: their names in a tree, and their labels."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.mechanisms.outputs import DRAWS
from pymc_dirdp.mechanisms.registry import by_class_name
from pymc_dirdp.models.table import Table, dim_name, outcome_dim, plain_labels, unique_dim

type ListedLabels = tuple[tuple[str, list[Any] | None], ...]
"""The name of each axis, and its labels if it has any."""

_BETWEEN = (" and ", " & ", " | ")
"""What joins variables that share an axis, and their labels: the first that none of these has."""

PUBLIC_TOTALS = "public_totals"
"""The name of the variable with public row sizes."""


def share_dims(table: Table) -> list[str]:
    """The dims of the released variable, after `chain` and `draw`."""
    axes = table.dims or (None,) * len(table.released_shape)
    return [dim_name(table.name, axis, dim) for axis, dim in enumerate(axes)]


def outcome_dims(table: Table) -> list[str]:
    """The additional dim of the table of counts of a Beta: its two outcomes."""
    return [outcome_dim(table.name)] if table.family == "beta" else []


def cell_dims(table: Table) -> list[str]:
    """The dims of the table of counts, which differ from all names of variables in the group."""
    return [*map(free_dim_name, share_dims(table)), *outcome_dims(table)]


def labels(table: Table) -> dict[str, list[Any]]:
    """The coords of the released variable. Other coords of the model may contain data and are left out."""
    return {dim: plain_labels(values) for dim, values in table.coords.items() if values is not None}


def share_labels(table: Table) -> ListedLabels:
    """The axes of the released variable, with their labels, or numbers as in ArviZ."""
    labels_by_dim, sizes = labels(table), table.released_shape
    return tuple(
        (dim, _as_python(np.asarray(labels_by_dim.get(dim, range(size)))))
        for dim, size in zip(share_dims(table), sizes, strict=True)
    )


def cell_labels(table: Table) -> ListedLabels:
    """The axes of the table of counts, with their labels."""
    labels_by_dim: dict[str, list[Any] | None] = {free_dim_name(dim): values for dim, values in labels(table).items()}
    labels_by_dim |= {dim: ["success", "failure"] for dim in outcome_dims(table)}
    axes = ((dim, labels_by_dim.get(dim)) for dim in cell_dims(table))
    return tuple((dim, None if values is None else _as_python(np.asarray(values))) for dim, values in axes)


def labels_of(variable: xr.DataArray) -> ListedLabels:
    """Each dim of a variable but `chain` and `draw`, with its labels if it has any."""
    return tuple(
        (str(dim), _as_python(variable.coords[dim].values) if dim in variable.coords else None)
        for dim in variable.dims
        if dim not in ("chain", "draw")
    )


def _as_python(values: Any) -> list[Any]:
    """Labels as Python values, or as NumPy values if Python has no such type, as for nanoseconds."""
    return list(values) if values.dtype.kind in "Mmu" else values.tolist()


def free_dim_name(dim: str) -> str:
    """A name for a dim that differs from all names of variables in a group `mechanism`."""
    reserved = {PUBLIC_TOTALS}
    for kind in by_class_name().values():
        reserved |= {fact.name for fact in kind.facts if fact.is_variable} | {kind.publishes} - {DRAWS}
    return unique_dim(dim, reserved | {dim for name in reserved if re.fullmatch(rf"{name}(_\d+)+", dim)})


# Several variables may share one axis, with a label for each of their combinations.


def joined(labels: Mapping[str, Sequence[Any]]) -> tuple[str, list[Any]] | None:
    """The name and the labels of one axis for several variables; None if no text between them would be unmistakable.

    Examples
    --------
    >>> joined({"sex": ["f", "m"], "left": ["no", "yes"]})
    ('sex and left', ['f and no', 'f and yes', 'm and no', 'm and yes'])
    """
    if len(labels) == 1:
        ((name, values),) = labels.items()
        return name, list(values)
    for between in _BETWEEN:
        axis = between.join(labels), [between.join(map(str, cell)) for cell in itertools.product(*labels.values())]
        if divided(*axis) == [(name, [str(label) for label in values]) for name, values in labels.items()]:
            return axis
    return None


def divided(name: str, labels: Sequence[Any]) -> list[tuple[str, Sequence[Any]]]:
    """The variables that share an axis with their labels; the axis itself if it does not join several.

    Examples
    --------
    >>> divided("sex and left", ["f and no", "f and yes", "m and no", "m and yes"])
    [('sex', ['f', 'm']), ('left', ['no', 'yes'])]
    >>> divided("left", ["no", "yes"])
    [('left', ['no', 'yes'])]
    """
    for between in _BETWEEN:
        names, parts = name.split(between), [str(label).split(between) for label in labels]
        if len(names) > 1 and len(set(names)) == len(names) and all(len(part) == len(names) for part in parts):
            levels = [list(dict.fromkeys(level)) for level in zip(*parts, strict=True)]
            if [list(cell) for cell in itertools.product(*levels)] == parts:
                return list(zip(names, levels, strict=True))
    return [(name, labels)]
