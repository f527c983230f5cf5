"""The noisy counts that a release publishes, as measurements of marginals of its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import final

import xarray as xr

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.releases.inference_setup import checked
from pymc_dirdp.releases.opened import Opened, ReleasedTable, opened
from pymc_dirdp.releases.view import measurements_of_table

__all__ = ["Network", "measurements_of", "network_of"]

_APART = "Take consistency='tables', which takes each table by itself."


@final
@dataclass(frozen=True, eq=False)
class Network:
    """The tables of a release whose records are the same, and the noisy counts that it published of them.

    Attributes
    ----------
    families : tuple of Family
        One for each table. A variable with one category has no parents here.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.
    drawn : dict of str to ReleasedTable
        The tables as the release holds them, by name.
    of_marginals : bool
        Whether marginals of the tables were measured, and not the tables alone.
    """

    families: tuple[Family, ...]
    measurements: tuple[Measurement, ...]
    n_records: int | None
    drawn: dict[str, ReleasedTable]
    of_marginals: bool

    def refuse_parts(self) -> None:
        """An error if some parent has no table, or the tables depend on each other in a circle."""
        own = {family.variable for family in self.families}
        if orphans := {parent for family in self.families for parent in family.parents} - own:
            raise ArgumentError(
                f"The release has no table of {min(orphans)!r}, which is a parent in it, so it is no whole network. "
                f"{_APART}"
            )
        try:
            TopologicalSorter({family.variable: family.parents for family in self.families}).prepare()
        except CycleError:
            raise ArgumentError(
                f"The tables depend on each other in a circle, so they are no network. {_APART}"
            ) from None


def network_of(release: xr.DataTree) -> Network:
    """The tables of a release by noise on counts, as those of one network, or of parts of one.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a table was not released by noise on counts, or tables are not those of the same records.
    """
    found, measurements, n_records = measurements_of(release)
    stored = opened(release)
    _refuse_other_records(stored)
    drawn = stored.tables
    # A variable with one category has no noisy counts, and may be a parent.
    others = sorted(drawn.keys() - {family.name for family in found})
    families = (*found, *(Family(name, (_variable(drawn[name]),), (1,)) for name in others))
    _refuse_others(families)
    return Network(families, measurements, n_records, drawn, stored.is_estimate)


def _variable(drawn: ReleasedTable) -> str:
    """The variable of a table, by the name that its axis has in the table of counts."""
    return str(drawn.view["prior"].dims[-1])


def _refuse_other_records(stored: Opened) -> None:
    if stored.plan.reading.sizes_are_public and len({part.n_records for part in stored.plan.parts}) > 1:
        raise ArgumentError(
            "The tables hold different numbers of records, so nothing is fitted to them together. Release tables of "
            "other records as models of their own."
        )


def _refuse_others(families: Sequence[Family]) -> None:
    """Refuse tables that are not tables of the same records."""
    own: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for family in families:
        if (other := own.setdefault(family.variable, family.name)) != family.name:
            raise ArgumentError(
                f"{other!r} and {family.name!r} both hold shares of {family.variable!r}, so they are no tables of a "
                "network, and nothing is fitted to them together. Release them as models of their own."
            )
        for axis, size in zip(family.axes, family.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ArgumentError(
                    f"The axis {axis!r} has different lengths in different tables, so they are no tables of a network."
                )


def measurements_of(release: xr.DataTree) -> tuple[tuple[Family, ...], tuple[Measurement, ...], int | None]:
    """What a release says of its tables.

    The families of variables, noisy counts of marginals, and the number of records.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, of tables that are released by noise on counts.

    Returns
    -------
    families : tuple of Family
        One for each table with two categories or more, by the name of the table.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a table was not released by noise on counts.
    """
    stored = checked(release)
    families, measurements = [], []
    for name, table in stored.tables.items():
        if table.prior.shape[-1] == 1:
            continue
        dims = tuple(str(dim) for dim in table.view["prior"].dims)
        family, own = measurements_of_table(name, dims, table.mechanism, table.output)
        families.append(family)
        measurements += own
    sizes = {part.n_records for part in stored.plan.parts} if stored.plan.reading.sizes_are_public else set()
    return tuple(families), tuple(measurements), sizes.pop() if len(sizes) == 1 else None
