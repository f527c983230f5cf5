"""Posterior draws of the shares given noisy tables, or fits to noisy marginals: functions of the published output.

The division of the records among the rows is drawn, too, if it is private. Its prior is `Dirichlet(sums of the prior of
each row)`, so that all cells of the table have one Dirichlet prior and form a single row. Any other prior requires sums
over row totals, which could take minutes if the noise is wide.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.inference.joint_tables import JointTables, of_blocks
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.numbers import TooManyNumbersError
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable
from pymc_dirdp.inference.table_fit import fit_tables
from pymc_dirdp.inference.tables import Posteriors, TablePosterior
from pymc_dirdp.mechanisms.outputs import Output, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.releases.plan_types import PlannedTable


def draw_shares(
    tables: Mapping[str, tuple[TableMechanism, ObservedTable]], draws: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Independent draws of the shares given noisy tables, shape `(draws, ...)`.

    Parameters
    ----------
    tables : mapping of str to (TableMechanism, ObservedTable)
        The mechanism and the output of each table.
    draws : int
    rng : numpy.random.Generator
        Effectively public, because draws can reveal its state. It must not be the source of any noise.
    """
    observed = {name: _as_one_row(*table) for name, table in tables.items()}
    beliefs = {name: Beliefs(n_prior=output.possible_records) for name, output in observed.items()}
    return {name: table_draws.shares for name, table_draws in Posteriors(observed, beliefs).draw(draws, rng).items()}


def _as_one_row(mechanism: TableMechanism, output: ObservedTable) -> ObservedTable:
    """The table as a single row with all cells, which have the same noise."""
    ((noisy, _),) = output.observed

    def of_blocks(rows: Integers) -> list[RowLikelihood]:
        return mechanism.row_likelihoods(noisy.reshape(-1, noisy.shape[-1])[rows].reshape(len(rows), -1))

    return replace(output, block_likelihoods=of_blocks)


def try_draws(part: PlannedTable, *, public: bool) -> None:
    """Raise an error if exact draws are not possible for a table, before any count is read.

    Parameters
    ----------
    part : PlannedTable
    public : bool
        Whether the number of records is public.

    Raises
    ------
    ArgumentError
        If the table is too large, or its noise too wide for so many cells.
    UnattainableError
        If the noise is so wide that the sum of noisy counts may exceed the maximum number of records.
    """
    # The cost depends only on the size of the table and the number of records, so any noisy table will do.
    mechanism, prior, n_records = part.mechanism, part.table.prior, part.n_records or 0
    quotient, remainder = divmod(n_records, prior.size)
    noisy = (quotient + (np.arange(prior.size) < remainder)).astype(np.float64).reshape(prior.shape)
    if (joint_rows := mechanism.joint_rows(noisy)) is not None:
        JointTables(joint_rows, of_blocks(prior, joint_rows))
        return
    possible = None if public else mechanism.possible_records(noisy)
    # The noisy total may differ this much from the true one, and a drawn total from the noisy one. With half of the
    # maximum no draw is refused because of its total.
    if possible is not None and possible[-1] > MAX_RECORDS // 2:
        raise UnattainableError(
            f"{mechanism.summary} in {part.table.name!r} hides any number of records, so the release would tell "
            "nothing. Loosen the guarantee."
        )
    if part.totals:
        # All blocks have the same size and the same noise, so one is sufficient.
        n_records = max(part.totals)
        rows = mechanism.contributed.rows_by_entry(prior.shape)[part.totals.index(n_records)]
        prior, noisy = (table.reshape(-1, table.shape[-1])[rows] for table in (prior, noisy))
    output = ObservedTable(
        name=part.table.name,
        prior=prior,
        n_records=n_records if public else None,
        cell_labels=(),
        share_labels=(),
        mechanism_names=(type(mechanism).__name__,),
        observed=[(noisy, ())],
        row_likelihoods=list,
        damaged=lambda problem: ArgumentError(
            f"Of {part.table.name!r} {problem}, so a release would tell nothing. Check its prior and min_count."
        ),
        least=math.ceil(mechanism.min_count or 0),
    )
    try:
        TablePosterior(_as_one_row(mechanism, output), Beliefs(n_prior=possible)).check()
    except TooManyNumbersError as error:
        raise ArgumentError(
            f"Use mechanism='dirichlet', or loosen the guarantee: {part.table.prior.size} cells with "
            f"{mechanism.summary} in {part.table.name!r} are too many to draw their posterior."
        ) from error


def measurements_of_table(
    name: str, dims: tuple[str, ...], mechanism: TableMechanism, output: Output
) -> tuple[Family, list[Measurement]]:
    """The family of a table and the measurements of its published noisy counts.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The names of the axes of the table.
    mechanism : TableMechanism
    output : Output
        The published output.
    """
    measured = mechanism.measured(output)
    if not measured:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [
        Measurement(tuple(dims[axis] for axis in axes), noisy, variance) for axes, noisy, variance in measured
    ]
    return Family(name, dims, mechanism.shape), measurements


def fitted_shares(measured: Collection[tuple[Family, list[Measurement]]], n_records: float | None) -> dict[str, Array]:
    """The shares of tables, fitted jointly to their published noisy counts.

    Parameters
    ----------
    measured : collection of (Family, list of Measurement)
        From :func:`measurements_of_table`, for each table.
    n_records : float or None
        The number of records; None if it is private.
    """
    if not measured:
        return {}
    return fit_tables(
        [family for family, _ in measured], [item for _, measurements in measured for item in measurements], n_records
    )
