"""The draws of a release that publishes a noisy table: exact draws from the posterior given that table.

They use what is published alone, so everybody may repeat them with :func:`pymc_dirdp.analyse`, for as many draws.
"""

import math

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.blocks import BlockLaws, law_of
from pymc_dirdp.inference.table_law import Beliefs, TableLaw
from pymc_dirdp.releases.planned import PlannedTable
from pymc_dirdp.stored.draws import Drawn
from pymc_dirdp.stored.outputs import Output
from pymc_dirdp.stored.untrusted import Group

__all__ = ["draws_given", "number_prior", "try_law"]


def number_prior(part: PlannedTable, published: Array, *, public: bool) -> range | None:
    """The numbers of records that the draws take for as likely as one another; None where the number is public."""
    return None if public else part.mechanism.possible_records(published)


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
        Public in effect: whoever sees the draws may come to know its state. No noise may have come from it.
    n_prior : range or None
        From :func:`number_prior`.
    """
    return _law(part, published, n_prior).draw(draws, rng).shares


def try_law(part: PlannedTable, *, public: bool) -> None:
    """Raise the error about a table that is too large for exact draws, before any count is read."""
    # Any noisy table will do: how much work there is depends on the size of the table and the number of records.
    planned = np.full(part.mechanism.shape, (part.n_records or 0) / math.prod(part.mechanism.shape))
    try:
        _law(part, planned, number_prior(part, planned, public=public))
    except ArgumentError as error:
        raise ArgumentError(
            f"No posterior could be drawn given the noisy counts of {part.table.name!r}. {error}"
        ) from None


def _law(part: PlannedTable, published: Array, n_prior: range | None) -> TableLaw | BlockLaws:
    group = Group(f"mechanism/{part.table.name}", xr.Dataset())
    output = Output(
        # There are no draws yet.
        Drawn(group, part.table.family, np.empty((1, 0, *part.table.shape)), ()),
        part.mechanism,
        part.table.prior,
        published[None],
        steps=None,
        n_records=part.n_records if n_prior is None else None,
        least=math.ceil(part.mechanism.min_count or 0),
    )
    return law_of(output, Beliefs(n_prior=n_prior))
