"""The names of the axes of a table of counts in a release."""

import re
from typing import TYPE_CHECKING

from pymc_dirdp.mechanisms.known import by_class_name
from pymc_dirdp.models.names import dim_beside, dim_name, outcome_dim

if TYPE_CHECKING:
    from pymc_dirdp.models.table import Table

__all__ = ["PUBLIC_TOTALS", "cell_dims", "renamed"]

PUBLIC_TOTALS = "public_totals"
"""The variable that holds the public numbers of records of the entries of some row axes."""


def cell_dims(table: "Table") -> list[str]:
    """The dims of the table of counts: those of the variable, and for a Beta the dim of its two outcomes."""
    axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    # A variable of the group may not have the name of a dim.
    dims = [renamed(dim_name(table.name, axis, dim)) for axis, dim in enumerate(axes)]
    return [*dims, outcome_dim(table.name)] if table.family == "beta" else dims


def renamed(dim: str) -> str:
    """A name for a dim that no variable of a group `mechanism` has."""
    taken = {PUBLIC_TOTALS}.union(*(kind.reserved_names() for kind in by_class_name().values()))
    return dim_beside(dim, taken | {dim for name in taken if re.fullmatch(rf"{name}(_\d+)+", dim)})
