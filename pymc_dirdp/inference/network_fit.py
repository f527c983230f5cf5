"""Tables of a network from noisy marginals, all together: log-linear, with shrinkage that the marginals decide."""

from collections.abc import Sequence

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.family_fit import SEED, draws_of, fitted, noise_hides, rows
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.network_posterior import NetworkPosterior
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["fit_jointly"]

# Lengths of the gradient at which the modes count as found, one after the other.
_CLOSE = (0.1, 1e-3)


def fit_jointly(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted together so that they agree with every noisy marginal.

    As :func:`pymc_dirdp.inference.family_fit.fit_tables`, from whose tables it starts, but each measurement is compared
    with the marginal of the whole network. So what is measured of a variable's children says something of the variable.
    Effects have the scales that `fit_tables` finds for them, and the same mean takes the place of the mode where noise
    hides most.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements, n_records, bar
        As for `fit_tables`. The bar counts two steps more than for `fit_tables`.

    Raises
    ------
    EliminationError
        If the marginals of the network need a table of more than 10**7 cells.

    Examples
    --------
    >>> families = [Family("p_sex", ("sex",), (2,)), Family("p_left", ("sex", "left"), (2, 2))]
    >>> noisy = Measurement(("sex", "left"), np.array([[400.0, 41.0], [359.0, 30.0]]), variance=9.0)
    >>> fit_jointly(families, [noisy], n_records=830)["p_sex"].round(2)
    array([0.53, 0.47])
    """
    n = number_of_records(measurements) if n_records is None else float(n_records)
    ordered = [family.sorted for family in families]
    posterior = NetworkPosterior(ordered, measurements, n)
    start, found = fitted(ordered, measurements, n, bar)
    mode = posterior.coordinates(start)
    scales = [found[family.name] for family in families]
    for close in _CLOSE:
        # The variance of the sample is that of the tables so far.
        posterior.reweighted(mode)
        mode = posterior.mode(mode, scales, close)
        bar.advance()
    if noise_hides(measurements, n):
        draws = posterior.spread(mode, scales, np.random.default_rng(SEED), draws_of(sum(one.size for one in mode)))
        each = [posterior.tables(coordinates) for coordinates in draws]
        tables = {family.name: np.mean([one[family.name] for one in each], axis=0) for family in families}
    else:
        tables = posterior.tables(mode)
    return {family.name: family.as_given(rows(tables[family.name])) for family in families}
