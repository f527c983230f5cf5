"""The draws of a release that publishes a noisy table: exact draws from the posterior given that table.

They use what is published alone, so everybody may repeat them with :func:`pymc_dirdp.analyse`, for as many draws.

How the records divide among the rows is drawn, too, where the noisy table leaves it open. A priori the rows share them
as `Dirichlet(sums of the prior of each row)`, so that all cells of the table have one Dirichlet prior. The sums over
totals that any other prior takes could need minutes where noise is wide.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.inference.drawing import FreeTotal, draw_row, refuse_undrawable
from pymc_dirdp.inference.estimates import draw_shares
from pymc_dirdp.inference.joint_tables import JointTables, SharedNoise, of_blocks
from pymc_dirdp.inference.rows import RowPosterior, summed_at_once
from pymc_dirdp.inference.sums import TooManyNodesError
from pymc_dirdp.mechanisms.outputs import Output
from pymc_dirdp.releases.plan_types import Plan, PlannedTable

__all__ = ["draws_given", "draws_together", "number_prior", "shared_noises", "try_distribution"]

# Counts that are looked at one by one where a likelihood follows no smooth curve.
_MOST_LOOKED_AT = 10**7
# So much larger numbers of records are tried where the posterior reaches beyond those looked at.
_WIDER = 16


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

    Where no posterior given it is computed, what was released are the parameters of a posterior, and these its draws.

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
    if not part.mechanism.has_inference:
        return draw_shares(np.broadcast_to(published, (draws, *published.shape)), prior, rng)
    if n_prior is not None:
        counts, _ = _free_total(part, published, n_prior).draw(draws, rng)
        return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)
    counts = np.empty((draws, prior.size // prior.shape[-1], prior.shape[-1]), dtype=np.int64)
    each = [(rows, _distribution_of_rows(part, published, rows, total)) for rows, total in _known_totals(part)]
    waiting = dict(enumerate(each))
    for places, known in summed_at_once([of_rows for _, of_rows in each]):
        drawn = known.draw(draws, rng)
        for i, place in enumerate(places.tolist()):
            rows, _ = waiting.pop(place)
            counts[:, rows] = drawn[:, i].reshape(draws, len(rows), -1)
    for rows, distribution in waiting.values():
        alone, _ = draw_row(distribution, draws, rng)
        counts[:, rows] = alone.reshape(draws, len(rows), -1)
    return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)


def _free_total(part: PlannedTable, published: Array, n_prior: range) -> FreeTotal:
    """All cells of a table whose number of records is private.

    The numbers that are taken for possible hold nearly all of the posterior, unless the prior contradicts the noisy
    counts. Then nearly all draws of cells would be refused for their total, so none is: numbers beyond are possible,
    too. If the prior counts less than one record, it contradicts nothing, and draws must be refused in proportion.
    """
    prior, most = part.table.prior, n_prior[-1]
    distribution = _distribution(part, prior, published, most)
    if prior.sum() <= 1 or not distribution.smooth:
        return FreeTotal(distribution, n_prior[0])
    while (row := FreeTotal(distribution)).is_cut_off and most < MOST_RECORDS:
        most = min(_WIDER * (most + 1), MOST_RECORDS)
        distribution = distribution.at(most)
    return row


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
    if possible is None:
        # Blocks are equally large, and no noise is wider in one of them.
        rows, total = max(_known_totals(part), key=lambda block: block[1])
        try:
            refuse_undrawable(_distribution_of_rows(part, planned, rows, total))
        except TooManyNodesError as error:
            raise ArgumentError(
                f"Use mechanism='dirichlet', or loosen the guarantee: {prior.size} cells with "
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
    mechanism, seen = part.mechanism, published.ravel()
    rows = mechanism.row_likelihoods(published)
    smooth = all(row.smooth for row in rows)
    if not smooth and most * seen.size > _MOST_LOOKED_AT:
        raise ArgumentError(
            f"No posterior can be drawn given the noisy counts of {part.table.name!r}: {most} records in {seen.size} "
            "cells are too many to evaluate one by one. Set smooth_noise = True in the class "
            f"{type(mechanism).__name__} if its distribution follows a smooth curve between integers."
        )
    return RowPosterior(
        alpha=prior.ravel(),
        total=most,
        log_likelihood=rows[0].of_cells
        if len(rows) == 1
        else lambda counts, cells: mechanism.cell_log_likelihood(seen[cells], counts),
        least=math.ceil(mechanism.min_count or 0),
        smooth=smooth,
    )
