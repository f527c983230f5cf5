"""Shares of tables that are fitted to the noisy counts of the marginals of all of them."""

from collections.abc import Mapping

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.family_fit import fit_tables
from pymc_dirdp.inference.margins import Family, Measurement
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.table import Table
from pymc_dirdp.releases.cell_dims import cell_dims

__all__ = ["fitted_shares", "measurements_of_table", "shares_fitted"]


def measurements_of_table(
    name: str, dims: tuple[str, ...], mechanism: TableMechanism, output: Output
) -> tuple[Family, list[Measurement]]:
    """One table and the noisy counts that were published of it.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The names of the axes of the table.
    mechanism : TableMechanism
    output : Output
        What it published.
    """
    found = output.measured(mechanism)
    if not found:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [
        Measurement(tuple(dims[axis] for axis in axes), noisy, variance, laplace_scale)
        for axes, noisy, variance, laplace_scale in found
    ]
    return Family(name, dims, mechanism.shape), measurements


def shares_fitted(
    tables: Mapping[str, Table],
    mechanisms: Mapping[str, TableMechanism],
    outputs: Mapping[str, Output],
    n_records: float | None,
) -> dict[str, Array]:
    """The shares of the tables of which margins were published, fitted to the margins of all of them.

    Parameters
    ----------
    tables : mapping of str to Table
    mechanisms : mapping of str to TableMechanism
        Of the same tables, or of more.
    outputs : mapping of str to Output
        What the mechanism of each table published.
    n_records : float or None
        The number of records; None if it is private.
    """
    chosen = {
        name: (tuple(cell_dims(table)), mechanisms[name], outputs[name])
        for name, table in tables.items()
        if mechanisms[name].output_kind is Marginals
    }
    return fitted_shares(chosen, n_records)


def fitted_shares(
    published: Mapping[str, tuple[tuple[str, ...], TableMechanism, Output]], n_records: float | None
) -> dict[str, Array]:
    """The shares of some tables, fitted to what was published of all of them.

    Parameters
    ----------
    published : mapping of str to tuple of (tuple of str, TableMechanism, Output)
        For each table the names of its axes, its mechanism, and what that put out.
    n_records : float or None
        The number of records; None if it is private.
    """
    if not published:
        return {}
    found = [measurements_of_table(name, *one) for name, one in published.items()]
    return fit_tables([family for family, _ in found], [each for _, own in found for each in own], n_records)
