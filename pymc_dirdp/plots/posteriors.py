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
    DASHES,
    MARKERS,
    WIDTH,
    Axes,
    axes_or_new,
    broken,
    ink,
    labelled_rows,
    legend,
    marked,
    plain,
    pyplot,
    style_colours,
    tidy,
)
from pymc_dirdp.plots.kinds import is_diagnosis, refuse, refuse_unless_release
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.opened import Published, ReleasedTable, open_release
from pymc_dirdp.releases.wording import abbreviated
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
    name = _checked(diagnosis, var_name)
    drawn = [diagnosis[f"{group}/posterior"].to_dataset()[name] for group in ("non_private", "private")]
    dims, shape = drawn[0].dims[2:], drawn[0].shape[2:]
    n_cells = int(np.prod(shape, dtype=int))
    _refuse_many(name, n_cells, 60)
    grid = np.asarray(_new_axes(n_cells) if axes is None else axes, dtype=object)
    if grid.size != n_cells:
        raise ArgumentError(f"Expected axes to be {n_cells} axes, one for each cell, got {grid.size}.")
    grid = grid.reshape(shape)
    colours = style_colours()
    looks = [("posterior", colours[3], DASHES[0]), ("private posterior", colours[0], DASHES[1])]
    curves = [_densities(diagnosis, name, what, draws) for what, draws in zip(_PARAMETERS, drawn, strict=True)]
    released = diagnosis["release"].to_dataset()[name].values[0, 0].ravel()
    titles = cell_labels(name, [drawn[0][dim].values for dim in dims])
    for cell, (ax, title) in enumerate(zip(grid.ravel(), titles, strict=True)):
        tops = [0.0]
        for (label, colour, dash), densities in zip(looks, curves, strict=True):
            points, heights, top = densities[cell]
            ax.plot(points, heights, linestyle=dash, color=colour, label=label)
            tops.append(top)
        top = max(tops)
        ax.vlines(float(released[cell]), 0, 1.05 * top, color=colours[1], linestyle=":", label="the release")
        # The heights of densities say nothing.
        ax.set(yticks=[], ylim=(0, 1.08 * top))
        ax.spines["left"].set_visible(False)
        marked(tidy(ax, xlabel=f"{plain(name)} (share)"))
        ax.set_title(broken(title, 22), fontsize="medium")
    first = grid.flat[0]
    if axes is None:
        shown = {"frameon": False, "fontsize": "small", "loc": "outside upper center", "ncols": 3}
        first.get_figure().legend(*first.get_legend_handles_labels(), **shown)
    else:
        legend(first)
    return grid


# By posterior, the parameters in the group `cells` of a diagnosis.
_PARAMETERS = "posterior_parameter", "private_parameter"
type _Curve = tuple[Array, Array, float]


def _densities(diagnosis: xr.DataTree, name: str, what: str, draws: xr.DataArray) -> list[_Curve]:
    """Points of the density of each cell, its heights there, and the height that the picture shows.

    The marginals of a Dirichlet distribution are Beta distributions. A posterior given noise has no closed form, and
    its density is estimated from draws.
    """
    errors = diagnosis["cells"].children
    if name not in errors:  # The only category has the probability 1, for certain.
        return [(np.ones(2), np.array([0.0, 1.0]), 1.0)] * int(np.prod(draws.shape[2:], dtype=int))
    cells = errors[name]
    if what not in cells:
        # Here, because it takes most of a second to import.
        from arviz_stats import kde  # type: ignore[attr-defined]  # by a star

        points, heights = kde(draws, dim=["chain", "draw"]).values.reshape(2, -1, 512)
        return [(*curve, float(curve[1].max())) for curve in zip(points, heights, strict=True)]
    first = cells.to_dataset()[what].values
    rest = first.sum(axis=-1, keepdims=True) - first
    if first.ndim > draws.ndim - 2:
        # The picture of a Beta shows the probability of success; that of failure is its mirror image.
        first, rest = first[..., 0], rest[..., 0]
    found = []
    for a, b in zip(first.ravel(), rest.ravel(), strict=True):
        points = np.unique(np.concatenate([beta.ppf([1e-4, 1 - 1e-4], a, b), beta.ppf(_INSIDE, a, b)]))
        heights = beta.pdf(points, a, b)
        # A density without a bound at 0 or 1 is cut off near it.
        edge = 0.02 * float(np.ptp(points)) * (min(a, b) < 1)
        inside = (points >= edge) & (points <= 1 - edge) & np.isfinite(heights)
        found.append((points, heights, float(heights[inside].max(initial=0.0))))
    return found


_INSIDE = np.linspace(0.001, 0.999, 300)


def _new_axes(n_cells: int) -> Any:
    columns = min(n_cells, 3)
    rows = -(-n_cells // columns)
    size = (max(WIDTH * columns / 3, 4.4), 2.3 * rows + 0.3)
    axes = pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)[1]
    for unused in axes.ravel()[n_cells:]:
        unused.set_axis_off()
    return axes.ravel()[:n_cells]


def _checked(diagnosis: xr.DataTree, var_name: str | None) -> str:
    if not is_diagnosis(diagnosis):
        refuse("a diagnosis from dirdp.diagnose", diagnosis=diagnosis)
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
    ax = axes_or_new(ax, height=1.9 + 0.5 * len(places))
    colours = style_colours()
    styles = zip(intervals, (4, 1, 0), (-0.26, 0.0, 0.26), strict=True)
    for label, style, offset in styles:
        means, ends = intervals[label]
        low, high = ends.reshape(-1, 2)[shown].T
        ax.hlines(places + offset, low, high, color=colours[style], linestyle=DASHES[style], linewidth=2)
        ax.plot(np.ravel(means)[shown], places + offset, MARKERS[style], color=colours[style], label=label)
    ax.vlines(released.ravel()[shown], places - 0.4, places + 0.4, color=ink(), linewidth=1)
    ax.plot([], [], "|", color=ink(), markersize=10, label="the release")
    labelled_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
    ax.set_xlim(0, None)
    tidy(
        ax,
        xlabel=f"{plain(name)} (share)",
        title=f"Means and {level:.0%} intervals, {abbreviated(table.stored.plan.guarantee)}",
    )
    return legend(ax, columns=2, above=True)


def _table(release: Published, var_name: str | None, *, most_cells: int) -> ReleasedTable:
    """The table that is shown, of which all cells can be read in one picture."""
    refuse_unless_release(release)
    tables = open_release(release).tables
    table = tables[next(iter(tables)) if var_name is None else one_of(tables, var_name=var_name)]
    _refuse_many(table.name, table.draws[0].size, most_cells)
    return table


def _refuse_many(name: str, n_cells: int, most_cells: int) -> None:
    if n_cells > most_cells:
        raise ArgumentError(f"{name!r} has {n_cells} cells; at most {most_cells} can be read in one picture.")


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
    if not isinstance(coverage, Mapping) or isinstance(coverage, xr.DataTree):
        refuse("a dict from names of readings to their coverage", coverage=coverage)
    if not coverage or len(coverage) > len(MARKERS):
        raise ArgumentError(f"Expected one to {len(MARKERS)} readings, got {len(coverage)}.")
    ax = axes_or_new(ax, width=4.2, height=4.4)
    ax.plot([0, 1], [0, 1], color=ink(), alpha=0.3, linewidth=1, zorder=1)
    for i, (label, rates) in enumerate(coverage.items()):
        look: dict[str, Any] = {"color": style_colours()[i], "marker": MARKERS[i], "linestyle": DASHES[i]}
        ax.plot(list(rates), list(rates.values()), markersize=5, label=plain(label), **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    tidy(
        ax,
        title="Coverage of credible intervals",
        xlabel="nominal coverage (probability)",
        ylabel="share of truths in the intervals",
    )
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
    ax = axes_or_new(ax, height=1.6 + 0.32 * len(value))
    places, colours = np.arange(len(value)), style_colours()
    # The error is draw minus frequency, so the frequency is draw minus error.
    ends = np.clip(value - high, 0, 1), np.clip(value - low, 0, 1)
    ax.hlines(
        places, *ends, color=colours[2], linewidth=5, alpha=0.35, label=f"a priori {prob:.0%} band for the data's share"
    )
    ax.plot(value, places, "o", color=colours[0], markersize=5, label="released draw")
    labelled_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
    ax.set_xlim(0, None)
    tidy(ax, xlabel=f"{plain(name)} (share)", title=f"Private draw, {abbreviated(table.stored.plan.guarantee)}")
    return legend(ax, columns=2, above=True)


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
