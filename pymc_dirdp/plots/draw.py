"""A released draw, with the error that was to be expected of it before any data were read."""

import itertools

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of, open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.simulated import predicted_data
from pymc_dirdp.plots.axes import COLOURS, Axes, axes_or_new, labelled_rows, tidy
from pymc_dirdp.releases.opened import opened
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["cell_labels", "plot_draw"]

_MOST_CELLS = 60


def plot_draw(release: xr.DataTree, *, var_name: str | None = None, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Each category of the first draw, with an a priori band for the frequency in the data. Public.

    The band is what the draw's error spans with this probability over data sets that the prior predicts, for each
    category by itself. It uses no data: it is the same for every release of this plan, and it may be published.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`.
    var_name : str or None
        Which table; the first one by default.
    prob : float, default 0.9
        Probability of the band, in (0, 1).
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ReleaseError
        If it is no release, or is damaged.
    ArgumentError
        If there is no such table, it has too many cells for a picture, no number of records was planned for, or the
        release holds an estimate that is fitted to marginals, and no draw.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.2, delta=1e-6), model)
    >>> ax = dirdp.plots.plot_draw(release)
    """
    stored = opened(release)
    release, tables = stored.tree, {name: table.view for name, table in stored.tables.items()}
    name = next(iter(tables)) if var_name is None else one_of(tables, var_name=var_name)
    table, mechanism = tables[name], stored.tables[name].mechanism
    if mechanism.output_kind is Marginals:
        raise ArgumentError(
            f"The release holds one estimate of {name!r}, fitted to noisy margins, and no draw, so there is no band "
            "around it. dirdp.report(release) has the noise of each margin. Sample "
            "dirdp.releases.analyst_model(release) for intervals, and draw them with arviz.plot_forest."
        )
    n_records = float(release["utility"]["n_records"].sel(table=name))
    if not n_records >= 1:
        raise ArgumentError("No a priori band without n_records, the size to plan for: pass it to sample().")
    prior = table["prior"].values
    if prior.size > _MOST_CELLS:
        raise ArgumentError(f"{name!r} has {prior.size} cells; at most {_MOST_CELLS} can be read in one picture.")
    errors = _errors(mechanism, prior, int(n_records))
    low, high = np.quantile(errors, [(1 - open_unit_interval(prob=prob)) / 2, (1 + prob) / 2], axis=0)
    draw = release.children["posterior"].to_dataset()[name].isel(chain=0, draw=0)
    value = np.asarray(draw.values, dtype=np.float64)
    if table.attrs["family"] == "beta":
        # The picture shows the probability of success, of which that of failure is the mirror image.
        low, high = low[..., 0], high[..., 0]
    value, low, high = value.ravel(), low.ravel(), high.ravel()
    ax = axes_or_new(ax, figsize=(5.5, 0.9 + 0.32 * len(value)))
    places = np.arange(len(value))
    # The error is draw minus frequency, so the frequency is draw minus error.
    ax.hlines(
        places, np.clip(value - high, 0, 1), np.clip(value - low, 0, 1), color=COLOURS[2], linewidth=5, alpha=0.35
    )
    ax.plot(value, places, "o", color=COLOURS[0], markersize=5)
    labelled_rows(ax, cell_labels(draw))
    ax.set(xlabel=f"{name}: private draw, and a {prob:.0%} band for the data's frequency, a priori", xlim=(0, None))
    return tidy(ax)


def _errors(mechanism: TableMechanism, prior: Array, n_records: int) -> Array:
    """Errors of a draw as an estimate of the frequencies, on simulated data sets. Shape (simulations, *prior.shape)."""
    data = predicted_data(prior, n_records)
    rng = np.random.default_rng(20261123)
    private = mechanism.posterior_parameters(data, rng)
    sizes = data.sum(axis=-1, keepdims=True)
    errors: Array = dirichlet(private, 1, rng)[0] - data / np.where(sizes > 0, sizes, 1)
    return errors


def cell_labels(values: xr.DataArray) -> list[str]:
    """The labels of each cell; the name of the variable if it has no axes."""
    if values.ndim == 0:
        return [str(values.name)]
    return [", ".join(map(str, labels)) for labels in itertools.product(*(values[dim].values for dim in values.dims))]
