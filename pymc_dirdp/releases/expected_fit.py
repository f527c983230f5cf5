"""How far the shares that are fitted to noisy margins are expected to be off, before any data are seen."""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.table import Table
from pymc_dirdp.planning.margins import Axes
from pymc_dirdp.releases.fitted import fitted_shares
from pymc_dirdp.releases.measured import axes_of
from pymc_dirdp.releases.predicting import simulated_network
from pymc_dirdp.utility.estimate_error import EstimateError

__all__ = ["fit_errors"]

# So many cells are fitted in a second or two; more of them would make plans slow, and nothing is simulated then.
_MOST_CELLS = 2_000
# Networks that are simulated at most, and cells that they have together unless one has more.
_NETWORKS, _CELLS = 16, 800
_SEED = 20261123


def fit_errors(
    tables: Mapping[str, Table], mechanisms: Mapping[str, TableMechanism], n_records: int, *, public: bool
) -> dict[str, EstimateError]:
    """The expected error of each table that is fitted to margins, over made-up networks of the same shape.

    Networks are made up as for :func:`pymc_dirdp.releases.predicting.best_for_prediction`: the effects on the logits
    fall with the number of parents. Each is released, and fitted table by table. Errors are averaged over the records,
    so a row counts as much as it holds of them.

    Parameters
    ----------
    tables : mapping of str to Table
    mechanisms : mapping of str to TableMechanism
        Of these tables. Those that do not fit all tables together are left out.
    n_records : int
        The public number of records, or that to plan for.
    public : bool
        Whether whoever fits knows the number of records.

    Returns
    -------
    errors : dict of str to EstimateError
        Empty if there are no such tables or no records, or the tables have more than 2,000 cells together.
    """
    chosen = tuple((name, axes_of(tables[name]), one) for name, one in mechanisms.items() if one.fits_all_tables)
    cells = sum(math.prod(length for _, length in axes) for _, axes, _ in chosen)
    if not chosen or n_records == 0 or cells > _MOST_CELLS:
        return {}
    errors = _simulated(chosen, n_records, public, min(_NETWORKS, max(1, _CELLS // cells)))
    return {name: error for (name, *_), error in zip(chosen, errors, strict=True)}


@lru_cache(maxsize=64)
def _simulated(
    tables: tuple[tuple[str, Axes, TableMechanism], ...], n_records: int, public: bool, networks: int
) -> tuple[EstimateError, ...]:
    axes = {name: own for name, own, _ in tables}
    # A fixed seed is harmless: there is no data here, and what is planned twice comes out the same.
    rng = np.random.default_rng(_SEED)
    kl, squares = np.zeros(len(tables)), np.zeros(len(tables))
    for _ in range(networks):
        made = simulated_network(axes, n_records, rng)
        published = {
            name: (
                tuple(axis for axis, _ in own),
                mechanism,
                mechanism.draw(made.counts[name], 1, sampler="fast", random_seed=rng).published,
            )
            for name, own, mechanism in tables
        }
        found = fitted_shares(published, float(n_records) if public else None)
        for i, name in enumerate(found):
            p, q = made.shares[name], found[name]
            in_rows = made.counts[name].sum(axis=-1)
            weights = in_rows / in_rows.sum() / networks
            kl[i] += np.sum(weights * np.sum(p * (np.log(p) - np.log(q)), axis=-1))
            squares[i] += np.sum(weights * np.mean((p - q) ** 2, axis=-1))
    return tuple(EstimateError(float(a), math.sqrt(float(b))) for a, b in zip(kl, squares, strict=True))
