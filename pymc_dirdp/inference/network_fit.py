"""Tables of a network from noisy margins, all together: log-linear, with shrinkage that the margins decide."""

from collections.abc import Sequence

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.family_fit import MOST_ROUNDS, fit_tables
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.network_posterior import NetworkPosterior
from pymc_dirdp.inference.shrinkage import Shrinkage
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["fit_jointly"]

# Lengths of the gradient at which a mode counts as found: while the scales change, and at the end.
_ROUGH, _CLOSE = 0.1, 1e-3


def fit_jointly(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted together so that they agree with every noisy margin.

    As :func:`pymc_dirdp.inference.family_fit.fit_tables`, from whose tables it starts, but each measurement is compared
    with the margin of the whole network. So what is measured of a variable's children says something of the variable.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements, n_records, bar
        As for `fit_tables`. The bar counts the steps of `fit_tables`, and then one for each further round.

    Raises
    ------
    EliminationError
        If the margins of the network need a table of more than 10**7 cells.

    Examples
    --------
    >>> import numpy as np
    >>> families = [Family("p_sex", ("sex",), (2,)), Family("p_left", ("sex", "left"), (2, 2))]
    >>> noisy = Measurement(("sex", "left"), np.array([[400.0, 41.0], [359.0, 30.0]]), variance=9.0)
    >>> fit_jointly(families, [noisy], n_records=830)["p_sex"].round(2)
    array([0.53, 0.47])
    """
    n = number_of_records(measurements) if n_records is None else float(n_records)
    ordered = [_sorted(family) for family in families]
    posterior = NetworkPosterior(ordered, measurements, n)
    start = fit_tables(ordered, measurements, n, bar)
    mode = posterior.coordinates(start)
    posterior.reweighted(mode)
    shrinkage = Shrinkage(
        {family.name: effects.orders for family, effects in zip(ordered, posterior.effects, strict=True)}
    )
    names = [family.name for family in ordered]
    for _ in range(MOST_ROUNDS):
        scales = [shrinkage.scales[name] for name in names]
        mode = posterior.mode(mode, scales, _ROUGH)
        posterior.reweighted(mode)
        squares, known = posterior.squares(mode), posterior.known(mode, scales)
        bar.advance()
        if shrinkage.update(dict(zip(names, squares, strict=True)), dict(zip(names, known, strict=True))):
            break
    mode = posterior.mode(mode, [shrinkage.scales[name] for name in names], _CLOSE)
    bar.advance()
    tables = posterior.tables(mode)
    return {
        family.name: tables[family.name].transpose([own.axes.index(axis) for axis in family.axes])
        for family, own in zip(families, ordered, strict=True)
    }


def _sorted(family: Family) -> Family:
    """The family with its parents in the order of their names, so that their order makes no difference."""
    places = [*sorted(range(len(family.parents)), key=lambda i: family.axes[i]), len(family.parents)]
    return Family(family.name, tuple(family.axes[i] for i in places), tuple(family.shape[i] for i in places))
