"""The noisy counts that a release publishes, as measurements of margins of its tables."""

import math
from collections.abc import Mapping

import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.family_fit import fit_tables
from pymc_dirdp.inference.margins import Family, Measurement
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.tables import Table
from pymc_dirdp.releases.description import cell_dims
from pymc_dirdp.releases.sources import checked
from pymc_dirdp.stored.untrusted import group_at

__all__ = ["measurements_of", "measurements_of_table", "shares_fitted"]


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
    sds = [part.noise_sd for part, _ in parts]
    if not sds or None in sds:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [
        Measurement(tuple(dims[axis] for axis in axes), published[called], sd**2)
        for (called, axes), sd in zip(mechanism.published_axes.items(), sds, strict=True)
        if sd is not None
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
    fitted = {name: table for name, table in tables.items() if mechanisms[name].fits_all_tables}
    if not fitted:
        return {}
    found = [
        measurements_of_table(name, tuple(cell_dims(table)), mechanisms[name], published[name])
        for name, table in fitted.items()
    ]
    return fit_tables([family for family, _ in found], [each for _, own in found for each in own], n_records)
