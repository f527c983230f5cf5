"""Shares that are drawn given noisy tables, or fitted to noisy marginals: functions of what was published.

How the records divide among the rows is drawn, too, where the noisy table leaves it open. A priori the rows share them
as `Dirichlet(sums of the prior of each row)`, so that all cells of the table have one Dirichlet prior. The sums over
totals that any other prior takes could need minutes where noise is wide.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.inference.estimates import draw_shares
from pymc_dirdp.inference.joint_tables import JointTables, SharedNoise, of_blocks
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.numbers import TooManyNumbersError
from pymc_dirdp.inference.rows import KnownTotals, RowPosterior
from pymc_dirdp.inference.table_fit import fit_tables
from pymc_dirdp.inference.tables import CountTree
from pymc_dirdp.mechanisms.outputs import Marginals, NoisyTable, Output
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.releases.axes import cell_dims
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.texts.grammar import digest


def drawn_shares(plan: Plan, output: Mapping[str, Output]) -> dict[str, Array]:
    """The shares that a release shows of each table, shape `(draws, ...)`; of a Beta variable those of success.

    Draws given noisy counts take their random numbers from a generator that the digest of the output seeds, so the same
    text has the same draws everywhere.

    Parameters
    ----------
    plan : Plan
    output : mapping of str to Output
        What the mechanism of each table published.
    """
    public = plan.reading.sizes_are_public
    # Only noisy counts leave anything to be drawn, and a digest of a million rows takes a while.
    facts = {name: published.facts for name, published in output.items()} if plan.publishing(NoisyTable) else {}
    rng = np.random.default_rng(int(digest(facts), 16))
    fitted = fitted_shares(
        {
            part.table.name: (tuple(cell_dims(part.table)), part.mechanism, output[part.table.name])
            for part in plan.publishing(Marginals)
        },
        plan.parts[0].n_records if public else None,
    )
    known = {name: shares[None] for name, shares in fitted.items()} | draws_together(plan, output, plan.draws, rng)
    shares: dict[str, Array] = {}
    for part in plan.parts:
        name, published = part.table.name, output[part.table.name]
        if name in known:
            values = known[name]
        elif published.shares is not None:
            values = published.shares
        else:
            noisy = published.values[0]
            values = draws_given(part, noisy, plan.draws, rng, n_prior=number_prior(part, noisy, public=public))
        # A Beta variable is the probability of success, the first of its two categories.
        shares[name] = values[..., 0] if part.table.family == "beta" else values
    return shares


def number_prior(part: PlannedTable, published: Array, *, public: bool) -> range | None:
    """The numbers of records that the draws take for as likely as one another; None where the number is public."""
    return None if public else part.mechanism.possible_records(published)


def shared_noises(plan: Plan, output: Mapping[str, Output]) -> dict[str, tuple[SharedNoise, int]]:
    """The outputs of the tables that share a noise with a table, by its name, and its place among them."""
    found: dict[str, tuple[SharedNoise, int]] = {}
    for parts in plan.together:
        noise = SharedNoise(
            tuple(part.mechanism for part in parts),
            tuple(output[part.table.name].values[0] for part in parts),
            tuple(part.table.prior for part in parts),
        )
        found |= {part.table.name: (noise, i) for i, part in enumerate(parts)}
    return found


def draws_together(plan: Plan, output: Mapping[str, Output], draws: int, rng: np.random.Generator) -> dict[str, Array]:
    """Independent draws of the shares of all tables that share a noise, given all of their noisy tables.

    Other arguments are those of :func:`draws_given`.
    """
    found: dict[str, Array] = {}
    for parts in plan.together:
        tables = [part.table for part in parts]
        noise, _ = shared_noises(plan, output)[tables[0].name]
        uniforms = rng.random(draws)
        for table, seen in zip(tables, noise.likelihoods, strict=True):
            counts = JointTables(seen, of_blocks(table.prior, seen)).counts(draws, rng, uniforms)
            found[table.name] = draw_shares(np.stack(counts, axis=1).reshape(draws, *table.shape), table.prior, rng)
    return found


def draws_given(
    part: PlannedTable, published: Array, draws: int, rng: np.random.Generator, *, n_prior: range | None
) -> Array:
    """Independent draws of the shares given a noisy table, shape `(draws, *shape)`.

    Parameters
    ----------
    part : PlannedTable
    published : array, shape of the table
        The noisy counts.
    draws : int
    rng : numpy.random.Generator
        Public in effect: anyone who sees the draws may come to know its state. No noise may have come from it.
    n_prior : range or None
        From :func:`number_prior`.
    """
    if (together := part.mechanism.joint_rows(published)) is not None:
        of_rows = np.stack(JointTables(together, of_blocks(part.table.prior, together)).counts(draws, rng), axis=1)
        return draw_shares(of_rows.reshape(draws, *part.table.shape), part.table.prior, rng)
    prior = part.table.prior
    if n_prior is not None:
        counts = _private_number(part, published, n_prior).counts(draws, rng)
        return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)
    rows, known = _known_numbers(part, published)
    counts = np.empty((draws, prior.size // prior.shape[-1], prior.shape[-1]), dtype=np.int64)
    counts[:, rows] = known.draw(draws, rng).reshape(draws, -1, prior.shape[-1])
    return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)


def _private_number(part: PlannedTable, published: Array, n_prior: range) -> CountTree:
    """All cells of a table whose number of records is private, below that number."""
    row = _distribution(part, part.table.prior, published, n_prior[-1])

    def log_prior(totals: Array) -> Array:
        return np.where(totals >= n_prior[0], 0.0, -np.inf)

    return CountTree([row], [np.zeros_like], n_prior[-1], log_prior, None).summable


def _known_numbers(part: PlannedTable, published: Array) -> tuple[NDArray[np.intp], KnownTotals]:
    """The cells of rows that hold a known number of records together, taken as one row; and the numbers of the rows."""
    known = _known_totals(part)
    together = [_distribution_of_rows(part, published, rows, total) for rows, total in known]
    return np.concatenate([rows for rows, _ in known]), KnownTotals.summable(together)


def try_distribution(part: PlannedTable, *, public: bool) -> None:
    """Raise the error about a table that exact draws are not for, before any count is read.

    Raises
    ------
    ArgumentError
        If the table is too large, or its noise too wide for so many cells.
    UnattainableError
        If the noise is so wide that noisy counts may add up to more records than any table holds.
    """
    # Any noisy table will do: how much work there is depends on the size of the table and the number of records.
    prior, n_records = part.table.prior, part.n_records or 0
    each, more = divmod(n_records, prior.size)
    planned = (each + (np.arange(prior.size) < more)).astype(np.float64).reshape(prior.shape)
    if (together := part.mechanism.joint_rows(planned)) is not None:
        JointTables(together, of_blocks(prior, together))
        return
    possible = number_prior(part, planned, public=public)
    # The noisy total lies so far from the true one, and the true one from that again. No draws of cells are refused for
    # their total as long as both together stay below the largest.
    if possible is not None and possible[-1] > MOST_RECORDS // 2:
        raise UnattainableError(
            f"{part.mechanism.in_short} in {part.table.name!r} hides any number of records, so the release would tell "
            "nothing. Loosen the guarantee."
        )
    _distribution(part, prior, planned, n_records if possible is None else possible[-1])
    if possible is not None:
        _refusing(part, lambda: _private_number(part, planned, possible).counts(1, np.random.default_rng(0)))
    else:
        # Blocks are equally large, and no noise is wider in one of them.
        rows, total = max(_known_totals(part), key=lambda block: block[1])
        _refusing(part, KnownTotals([_distribution_of_rows(part, planned, rows, total)]).check)


def _refusing(part: PlannedTable, check: Callable[[], object]) -> None:
    """Turn the error about too many numbers into one about the table."""
    try:
        check()
    except TooManyNumbersError as error:
        raise ArgumentError(
            f"Use mechanism='dirichlet', or loosen the guarantee: {part.table.prior.size} cells with "
            f"{part.mechanism.in_short} in {part.table.name!r} are too many to draw their posterior."
        ) from error


def _known_totals(part: PlannedTable) -> list[tuple[NDArray[np.intp], int]]:
    """Rows, by number, and how many records they hold together, which is public."""
    rows = part.mechanism.contributed.rows_by_entry(part.table.shape)
    return list(zip(rows, part.totals or (part.n_records or 0,), strict=True))


def _distribution_of_rows(part: PlannedTable, published: Array, rows: NDArray[np.intp], total: int) -> RowPosterior:
    """The cells of the rows with these numbers, which hold so many records together."""
    of_rows, noisy = (table.reshape(-1, table.shape[-1])[rows] for table in (part.table.prior, published))
    return _distribution(part, of_rows, noisy, total)


def _distribution(part: PlannedTable, prior: Array, published: Array, most: int) -> RowPosterior:
    """The cells of some rows given their noisy counts, taken as one row of at most so many records."""
    # The noise is the same in all cells.
    (row,) = part.mechanism.row_likelihoods(published.reshape(1, -1))
    # Counts that are looked at one by one where a likelihood follows no smooth curve.
    if not row.smooth and most * published.size > 10**7:
        raise ArgumentError(
            f"No posterior can be drawn given the noisy counts of {part.table.name!r}: {most} records in "
            f"{published.size} cells are too many to evaluate one by one. Set smooth_noise = True in the class of the "
            "noise of "
            f"{type(part.mechanism).__name__} if its distribution follows a smooth curve between integers."
        )
    return RowPosterior(
        alpha=prior.ravel(),
        total=most,
        log_likelihood=row.of_cells,
        least=math.ceil(part.mechanism.min_count or 0),
        smooth=row.smooth,
    )


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
    found = mechanism.measured(output)
    if not found:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [Measurement(tuple(dims[axis] for axis in axes), noisy, variance) for axes, noisy, variance in found]
    return Family(name, dims, mechanism.shape), measurements


def fitted_shares(
    published: Mapping[str, tuple[tuple[str, ...], TableMechanism, Output]], n_records: float | None
) -> dict[str, Array]:
    """The shares of some tables, fitted to what was published of all of them.

    Parameters
    ----------
    published : mapping of str to tuple of (tuple of str, TableMechanism, Output)
        For each table the names of its axes, its mechanism, and the output of that.
    n_records : float or None
        The number of records; None if it is private.
    """
    if not published:
        return {}
    found = [measurements_of_table(name, *one) for name, one in published.items()]
    return fit_tables([family for family, _ in found], [each for _, own in found for each in own], n_records)
