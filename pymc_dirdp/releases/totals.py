"""Whether the numbers of records that a release rests on, or tells, are public and those of its tables."""

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from pymc_dirdp.errors import shown
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.stored.release import Stored
from pymc_dirdp.stored.untrusted import group_at

__all__ = ["other_records", "private_totals", "wrong_totals"]

# Noisy counts that are no whole doubles are rounded by this share of their size.
_ROUNDING = 2.0**-50


def private_totals(stored: Stored, people: Reading) -> str | None:
    """Which tables publish numbers of records that are private; None if none does."""
    if people.sizes_are_public:
        return None
    for name, table in stored.tables.items():
        if table.mechanism.needs_public_totals:
            return f"What is published of {shown(name)} adds up to its private number of records."
    return None


def other_records(stored: Stored, release: xr.DataTree, people: Reading) -> str | None:
    """Which tables have curves that rest on another number of records than their public one; None if none do."""
    sizes = group_at(release, "utility").any_array("n_records").tolist()
    for (name, table), n_records in zip(stored.tables.items(), sizes, strict=True):
        rests_on = table.mechanism.assumed_records
        if rests_on is not None and (rests_on != n_records or not people.sizes_are_public):
            return f"The curves of {shown(name)} rest on a number of records that is not its public one."
    return None


def wrong_totals(stored: Stored, release: xr.DataTree) -> str | None:
    """Whose noisy counts add up to another number than that of the records; None if none do."""
    sizes = group_at(release, "utility").any_array("n_records").tolist()
    by_table = dict(zip(stored.tables, sizes, strict=True))
    for name, found, size in _published(stored):
        n_records = by_table[name]
        if abs(math.fsum(found) - n_records) > _ROUNDING * size:
            return f"The noisy counts of {shown(name)} do not add up to its number of records."
        if min(found) < -_ROUNDING * size:
            return f"The noisy counts of {shown(name)} give a block of rows a negative number of records."
    return None


def _published(stored: Stored) -> Iterator[tuple[str, list[float], float]]:
    """The tables that publish numbers of records, these numbers, and the size of what they are summed from."""
    for name, table in stored.tables.items():
        mechanism = table.mechanism
        if mechanism.needs_public_totals and mechanism.publishes is not None:
            for part, output in mechanism.separately(table.output):
                yield name, [total for _, total in part.published_totals(output)], float(np.abs(output).sum())
