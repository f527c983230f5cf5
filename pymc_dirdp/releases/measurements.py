"""The noisy counts that a release publishes, as measurements of margins of its tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import final

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.family_fit import fit_tables
from pymc_dirdp.inference.margins import Family, Measurement
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.tables import Table
from pymc_dirdp.releases.cell_dims import cell_dims
from pymc_dirdp.releases.sources import checked
from pymc_dirdp.stored.draws import Drawn, drawn_tables
from pymc_dirdp.stored.untrusted import group_at

__all__ = ["Network", "fitted_shares", "measurements_of", "measurements_of_table", "network_of", "shares_fitted"]

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
    drawn : dict of str to Drawn
        The tables as the release holds them, by name.
    of_margins : bool
        Whether margins of the tables were measured, and not the tables alone.
    """

    families: tuple[Family, ...]
    measurements: tuple[Measurement, ...]
    n_records: int | None
    drawn: dict[str, Drawn]
    of_margins: bool

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

    def only(self, names: Sequence[str]) -> "Network":
        """Some of the tables, with what was measured of their variables."""
        families = tuple(family for family in self.families if family.name in names)
        known = tuple(dict.fromkeys(axis for family in families for axis in family.axes))
        measured = (one.onto(known) for one in self.measurements)
        drawn = {name: one for name, one in self.drawn.items() if name in names}
        return Network(
            families, tuple(one for one in measured if one is not None), self.n_records, drawn, self.of_margins
        )


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
    _refuse_other_records(release)
    drawn = drawn_tables(release)
    # A variable with one category has no noisy counts, and may be a parent.
    others = sorted(drawn.keys() - {family.name for family in found})
    families = (*found, *(Family(name, (_variable(drawn[name]),), (1,)) for name in others))
    _refuse_others(families)
    return Network(families, measurements, n_records, drawn, "estimate" in release.attrs)


def _variable(drawn: Drawn) -> str:
    """The variable of a table, by the name that its axis has in the table of counts."""
    return str(drawn.group.dataset["prior"].dims[-1])


def _refuse_other_records(release: xr.DataTree) -> None:
    utility = group_at(release, "utility")
    sizes = utility.any_array("n_records")
    if utility.text("records") == "public" and len(np.unique(sizes[~np.isnan(sizes)])) > 1:
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
    """What a release says of its tables: the families of variables, noisy counts of margins, and the number of records.

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
        dims = tuple(str(dim) for dim in table.group.dataset["prior"].dims)
        published = {called: table.group.array(called) for called in table.mechanism.published_axes}
        family, own = measurements_of_table(name, dims, table.mechanism, published)
        families.append(family)
        measurements += own
    utility = group_at(release, "utility")
    sizes = set(utility.any_array("n_records").tolist()) if utility.text("records") == "public" else set()
    known = len(sizes) == 1 and not any(map(math.isnan, sizes))
    return tuple(families), tuple(measurements), int(sizes.pop()) if known else None


def measurements_of_table(
    name: str, dims: tuple[str, ...], mechanism: TableMechanism, published: Mapping[str, Array]
) -> tuple[Family, list[Measurement]]:
    """One table and the noisy counts that were published of it.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The names of the axes of the table.
    mechanism : TableMechanism
    published : mapping of str to array
        What it put out, by the names of `mechanism.published_axes`.
    """
    parts = mechanism.separately(mechanism.as_output(published)) if published else []
    variances = [part.free_variance for part, _ in parts]
    if not variances or None in variances:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [
        Measurement(tuple(dims[axis] for axis in axes), published[called], variance, part.laplace_scale)
        for (called, axes), (part, _), variance in zip(mechanism.published_axes.items(), parts, variances, strict=True)
        if variance is not None
    ]
    return Family(name, dims, mechanism.shape), measurements


def shares_fitted(
    tables: Mapping[str, Table],
    mechanisms: Mapping[str, TableMechanism],
    published: Mapping[str, Mapping[str, Array]],
    n_records: float | None,
) -> dict[str, Array]:
    """The shares of the tables of which margins were published, fitted to the margins of all of them.

    Parameters
    ----------
    tables : mapping of str to Table
    mechanisms : mapping of str to TableMechanism
        Of the same tables, or of more.
    published : mapping of str to mapping of str to array
        What the mechanism of each table put out.
    n_records : float or None
        The number of records; None if it is private.
    """
    chosen = {
        name: (tuple(cell_dims(table)), mechanisms[name], published[name])
        for name, table in tables.items()
        if mechanisms[name].fits_all_tables
    }
    return fitted_shares(chosen, n_records)


def fitted_shares(
    published: Mapping[str, tuple[tuple[str, ...], TableMechanism, Mapping[str, Array]]], n_records: float | None
) -> dict[str, Array]:
    """The shares of some tables, fitted to what was published of all of them.

    Parameters
    ----------
    published : mapping of str to tuple of (tuple of str, TableMechanism, mapping of str to array)
        For each table the names of its axes, its mechanism, and what that put out.
    n_records : float or None
        The number of records; None if it is private.
    """
    if not published:
        return {}
    found = [measurements_of_table(name, *one) for name, one in published.items()]
    return fit_tables([family for family, _ in found], [each for _, own in found for each in own], n_records)
