"""Pictures of posteriors, draws and estimates."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of, open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.expected_kl import predicted_data
from pymc_dirdp.plots.axes import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    axes_or_new,
    labelled_rows,
    legend,
    marked,
    pyplot,
    tidy,
)
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.opened import Published, ReleasedTable, opened
from pymc_dirdp.sampling.fast import dirichlet
from pymc_dirdp.signatures import user_facing

# The private posterior beside the one without privacy. From a diagnosis, so **confidential**.


@user_facing
def plot_posteriors(
    diagnosis: xr.DataTree, *, var_name: str | None = None, axes: ArrayLike | None = None
) -> NDArray[np.object_]:
    """Marginals of both posteriors and the released draw. **Confidential**, and so it is written across each of them.

    Parameters
    ----------
    diagnosis : xarray.DataTree
        From :func:`pymc_dirdp.diagnose`.
    var_name : str or None
        Which table; the first one by default.
    axes : array_like of matplotlib Axes or None
        One for each cell, in any shape; None makes a new figure.

    Returns
    -------
    axes : array of matplotlib Axes

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1])
    ...     x = pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> diagnosis = dirdp.diagnose(release, model, draws=100)
    >>> axes = dirdp.plots.plot_posteriors(diagnosis)
    """
    # Here, because it takes most of a second to import.
    from arviz_stats import kde  # type: ignore[attr-defined]  # by a star

    name = _checked(diagnosis, var_name)
    labels = {"non_private": "posterior", "private": "private posterior"}
    draws = [diagnosis[f"{group}/posterior"].to_dataset()[name] for group in labels]
    dims, shape = draws[0].dims[2:], draws[0].shape[2:]
    cells = int(np.prod(shape, dtype=int))
    grid = np.asarray(_new_axes(cells) if axes is None else axes, dtype=object)
    if grid.size != cells:
        raise ArgumentError(f"Expected axes to be {cells} axes, one for each cell, got {grid.size}.")
    grid = grid.reshape(shape)
    titles = cell_labels(name, [draws[0][dim].values for dim in dims])
    looks = list(zip(labels.values(), (COLOURS[3], COLOURS[0]), DASHES, strict=False))
    # The points of each curve and its heights, shape (2, cells, points).
    curves = [kde(drawn, dim=["chain", "draw"]).values.reshape(2, cells, -1) for drawn in draws]
    released = diagnosis["release"].to_dataset()[name].values[0, 0].ravel()
    for cell, (ax, title) in enumerate(zip(grid.ravel(), titles, strict=True)):
        for (label, colour, dash), (points, heights) in zip(looks, curves, strict=True):
            ax.plot(points[cell], heights[cell], linestyle=dash, color=colour, label=label)
        ax.axvline(float(released[cell]), color=COLOURS[1], linestyle=":", label="released draw")
        # The heights of densities say nothing.
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        marked(tidy(ax)).set_title(title, fontsize="medium")
    first = grid.flat[0]
    # This leaves room for the legend above the curves.
    first.set_ylim(0, 1.6 * first.get_ylim()[1])
    first.legend(frameon=False, fontsize="small", loc="upper left")
    return grid


def _new_axes(cells: int) -> Any:
    columns = min(cells, 4)
    rows = -(-cells // columns)
    axes = pyplot().subplots(rows, columns, figsize=(3 * columns, 2.6 * rows), layout="constrained", squeeze=False)[1]
    for unused in axes.ravel()[cells:]:
        unused.set_axis_off()
    return axes.ravel()[:cells]


def _checked(diagnosis: xr.DataTree, var_name: str | None) -> str:
    if not {"non_private", "private", "release"} <= set(getattr(diagnosis, "children", ())):
        raise ArgumentError("Expected a diagnosis from pymc_dirdp.diagnose.")
    # Deterministics have no posterior in closed form to be compared with; any variable of both can be shown.
    names = [str(name) for name in diagnosis["release"].data_vars]
    return names[0] if var_name is None else one_of(names, var_name=var_name)


# What a release says, beside what it would say to somebody who took it for the data; and whether that is true.


@user_facing
def plot_analysis(
    release: Published,
    *,
    var_name: str | None = None,
    prob: float = 0.95,
    n_prior: int | ArrayLike | None = None,
    prior: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """For each share the prior, what the release says, what a naive reading of it says, and the release. Public.

    A naive reading takes the output for the data: noisy counts as they are, negative ones as 0, and a draw times
    the number of records. Its intervals are too short, because it knows of no noise.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`.
    var_name : str or None
        Which table; the first one by default.
    prob : float, default 0.95
        Probability of the central intervals, in (0, 1).
    n_prior, prior
        Of the table that is shown, as for :func:`pymc_dirdp.analyse`.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=0.1), mechanism="geometric")
    >>> ax = dirdp.plots.plot_analysis(release)
    """
    level = open_unit_interval(prob=prob)
    table = _table(release, var_name, most_cells=40)
    name = table.name
    own = {} if prior is None else {name: prior}
    number = {} if n_prior is None else {name: n_prior}
    found = inferences(release, own, number, None, same_records=True)
    seen = found.tables[name]
    alpha = seen.prior if prior is None else np.asarray(prior, dtype=np.float64)
    aware = found.distributions.estimate([level])[name]
    released, naive = _naive_reading(table.output, alpha, aware)
    intervals = {
        "prior": (alpha / alpha.sum(axis=-1, keepdims=True), _beta(alpha, level)),
        "the release treated as the data": (naive / naive.sum(axis=-1, keepdims=True), _beta(naive, level)),
        "what the release says": (aware.share_means, aware.share_intervals[0]),
    }
    # The picture of a Beta shows the probability of success; that of failure is its mirror image.
    shown = slice(None, None, 2 if seen.family == "beta" else 1)
    places = np.arange(table.draws[0].size)
    ax = axes_or_new(ax, figsize=(6.5, 1.3 + 0.5 * len(places)))
    styles = zip(intervals, (4, 1, 0), (-0.26, 0.0, 0.26), strict=True)
    for label, style, offset in styles:
        means, ends = intervals[label]
        low, high = ends.reshape(-1, 2)[shown].T
        ax.hlines(places + offset, low, high, color=COLOURS[style], linestyle=DASHES[style], linewidth=2)
        ax.plot(np.ravel(means)[shown], places + offset, MARKERS[style], color=COLOURS[style], label=label)
    ax.vlines(released.ravel()[shown], places - 0.4, places + 0.4, color="black", linewidth=1)
    ax.plot([], [], "|", color="black", markersize=10, label="the release")
    labelled_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
    ax.set(xlabel=f"{name}: means and central {level:.0%} intervals", xlim=(0, None))
    ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return tidy(ax)


def _table(release: Published, var_name: str | None, *, most_cells: int) -> ReleasedTable:
    """The table that is shown, of which all cells can be read in one picture."""
    tables = opened(release).tables
    table = tables[next(iter(tables)) if var_name is None else one_of(tables, var_name=var_name)]
    if table.draws[0].size > most_cells:
        raise ArgumentError(
            f"{table.name!r} has {table.draws[0].size} cells; at most {most_cells} can be read in one picture."
        )
    return table


def _naive_reading(output: Output, alpha: Array, aware: Estimate) -> tuple[Array, Array]:
    """The released shares, and the parameters of the posterior of somebody who takes the output for the data."""
    records = aware.count_means.reshape(alpha.shape).sum(axis=-1, keepdims=True)
    if output.shares is None:
        counts = np.asarray(np.maximum(output.values[0], 0))
    else:
        middle = output.shares.mean(axis=0)
        counts = np.asarray(records * middle / np.maximum(middle.sum(axis=-1, keepdims=True), 1e-300))
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300), alpha + counts


def _beta(parameters: Array, level: float) -> Array:
    """Central intervals of the shares of a Dirichlet distribution, shape `(..., 2)`."""
    rest = parameters.sum(axis=-1, keepdims=True) - parameters
    ends = [beta.ppf(end, parameters, rest) for end in ((1 - level) / 2, (1 + level) / 2)]
    return np.stack(ends, axis=-1)


@user_facing
def plot_calibration(coverage: Mapping[str, Mapping[float, float]], *, ax: Axes | None = None) -> Axes:
    """Coverage of credible intervals against their level: on the diagonal they are calibrated.

    Parameters
    ----------
    coverage : mapping from str to mapping from float to float
        For each reading, by its name, the share of truths that intervals of each probability cover.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> ax = plot_calibration({"aware": {0.5: 0.499, 0.95: 0.951}, "naive": {0.5: 0.184, 0.95: 0.493}})
    """
    if not coverage or len(coverage) > len(COLOURS):
        raise ArgumentError(f"Expected one to {len(COLOURS)} readings, got {len(coverage)}.")
    ax = axes_or_new(ax, figsize=(4.2, 4.0))
    ax.plot([0, 1], [0, 1], color="0.75", linewidth=1, zorder=1)
    for i, (label, rates) in enumerate(coverage.items()):
        ax.plot(
            list(rates), list(rates.values()), DASHES[i], color=COLOURS[i], marker=MARKERS[i], markersize=5, label=label
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="probability of the interval", ylabel="share of truths within it")
    return legend(ax)


# A released draw, with the error that was to be expected of it before any data were read.


@user_facing
def plot_draw(release: Published, *, var_name: str | None = None, prob: float = 0.9, ax: Axes | None = None) -> Axes:
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
    table = _table(release, var_name, most_cells=60)
    name, mechanism, n_records = table.name, table.mechanism, table.part.n_records
    if mechanism.output_kind is Marginals:
        raise ArgumentError(
            f"The release holds one estimate of {name!r}, fitted to noisy marginals, and no draw, so there is no band "
            "around it. dirdp.report(release) has the noise of each marginal, and dirdp.estimate(release) intervals."
        )
    if not n_records:
        raise ArgumentError("No a priori band without n_records, the size to plan for: pass it to sample().")
    errors = _errors(mechanism, table.prior, n_records)
    low, high = np.quantile(errors, [(1 - open_unit_interval(prob=prob)) / 2, (1 + prob) / 2], axis=0)
    value = table.draws[0]
    if table.family == "beta":
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
    labelled_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
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


def cell_labels(name: str, axes: Sequence[Any]) -> list[str]:
    """The labels of each cell by those of each axis; the name of the variable if it has no axes."""
    return [", ".join(map(str, labels)) for labels in itertools.product(*axes)] if axes else [name]
