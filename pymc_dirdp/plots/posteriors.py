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
    escape,
    ink,
    label_rows,
    legend,
    mark_confidential,
    pyplot,
    style_colours,
    tidy,
    wrap,
)
from pymc_dirdp.plots.kinds import is_diagnosis, refuse, refuse_unless_release
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.opened import Published, ReleasedTable, open_release
from pymc_dirdp.releases.wording import abbreviated
from pymc_dirdp.sampling.fast import dirichlet
from pymc_dirdp.signatures import user_facing

# The posteriors with and without privacy, from a diagnosis. **Confidential**.


@user_facing
def plot_posteriors(
    diagnosis: xr.DataTree, *, var_name: str | None = None, axes: ArrayLike | None = None
) -> NDArray[np.object_]:
    """Marginals of both posteriors and the released draw. **Confidential**, as the word across each picture says.

    Parameters
    ----------
    diagnosis : xarray.DataTree
        From :func:`pymc_dirdp.diagnose`.
    var_name : str or None
        The name of the table; by default the first one.
    axes : array_like of matplotlib Axes or None
        One for each cell, in any shape. None creates a new figure.

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
    draws = [diagnosis[f"{group}/posterior"].to_dataset()[name] for group in ("non_private", "private")]
    dims, shape = draws[0].dims[2:], draws[0].shape[2:]
    n_cells = int(np.prod(shape, dtype=int))
    _refuse_many(name, n_cells, 60)
    grid = np.asarray(_new_axes(n_cells) if axes is None else axes, dtype=object)
    if grid.size != n_cells:
        raise ArgumentError(f"Expected axes to be {n_cells} axes, one for each cell, got {grid.size}.")
    grid = grid.reshape(shape)
    colours = style_colours()
    looks = [("posterior", colours[3], DASHES[0]), ("private posterior", colours[0], DASHES[1])]
    curves = [_densities(diagnosis, name, what, variable) for what, variable in zip(_PARAMETERS, draws, strict=True)]
    values = diagnosis["release"].to_dataset()[name].values[0, 0].ravel()
    titles = cell_labels(name, [draws[0][dim].values for dim in dims])
    for cell, (ax, title) in enumerate(zip(grid.ravel(), titles, strict=True)):
        tops = [0.0]
        for (label, colour, dash), densities in zip(looks, curves, strict=True):
            points, heights, top = densities[cell]
            ax.plot(points, heights, linestyle=dash, color=colour, label=label)
            tops.append(top)
        top = max(tops)
        ax.vlines(float(values[cell]), 0, 1.05 * top, color=colours[1], linestyle=":", label="the release")
        # The heights of densities carry no information.
        ax.set(yticks=[], ylim=(0, 1.08 * top))
        ax.spines["left"].set_visible(False)
        mark_confidential(tidy(ax, xlabel=f"{escape(name)} (share)"))
        ax.set_title(wrap(title, 22), fontsize="medium")
    first = grid.flat[0]
    if axes is None:
        look = {"frameon": False, "fontsize": "small", "loc": "outside upper center", "ncols": 3}
        first.get_figure().legend(*first.get_legend_handles_labels(), **look)
    else:
        legend(first)
    return grid


# The parameters of each posterior in the group `cells` of a diagnosis.
_PARAMETERS = "posterior_parameter", "private_parameter"
type _Curve = tuple[Array, Array, float]


def _densities(diagnosis: xr.DataTree, name: str, what: str, draws: xr.DataArray) -> list[_Curve]:
    """The points and heights of the density of each cell, and the height of the picture.

    The marginals of a Dirichlet distribution are Beta distributions. A posterior given noise has no closed form, so
    its density is estimated from draws.
    """
    errors = diagnosis["cells"].children
    if name not in errors:  # A single category has probability 1.
        return [(np.ones(2), np.array([0.0, 1.0]), 1.0)] * int(np.prod(draws.shape[2:], dtype=int))
    cells = errors[name]
    if what not in cells:
        # This import takes most of a second.
        from arviz_stats import kde  # type: ignore[attr-defined]  # exported by a star

        points, heights = kde(draws, dim=["chain", "draw"]).values.reshape(2, -1, 512)
        return [(*curve, float(curve[1].max())) for curve in zip(points, heights, strict=True)]
    alphas = cells.to_dataset()[what].values
    rest = alphas.sum(axis=-1, keepdims=True) - alphas
    if alphas.ndim > draws.ndim - 2:
        # Only the probability of success of a Beta is shown, because that of failure is its mirror image.
        alphas, rest = alphas[..., 0], rest[..., 0]
    curves = []
    for a, b in zip(alphas.ravel(), rest.ravel(), strict=True):
        points = np.unique(np.concatenate([beta.ppf([1e-4, 1 - 1e-4], a, b), beta.ppf(_INSIDE, a, b)]))
        heights = beta.pdf(points, a, b)
        # A density that is unbounded at 0 or 1 is cut off there.
        edge = 0.02 * float(np.ptp(points)) * (min(a, b) < 1)
        inside = (points >= edge) & (points <= 1 - edge) & np.isfinite(heights)
        curves.append((points, heights, float(heights[inside].max(initial=0.0))))
    return curves


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
    # Deterministics have no closed-form posterior to compare with. Any variable of both posteriors can be shown.
    names = [str(name) for name in diagnosis["release"].data_vars]
    return names[0] if var_name is None else one_of(names, var_name=var_name)


# Inference from a release, a naive reading that treats it as the data, and their coverage.


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
    """Plot the prior, the posterior given the release, a naive reading and the release for each share. Public.

    A naive reading treats the output as the data: noisy counts, with negative ones set to 0, or a draw times the number
    of records. Its intervals are too narrow, because it ignores the noise.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`.
    var_name : str or None
        The name of the table; by default the first one.
    prob : float, default 0.95
        The probability of the central intervals, in (0, 1).
    n_prior, prior
        The priors for this table, as for :func:`pymc_dirdp.analyse`.
    ax : matplotlib Axes or None
        None creates a new figure.

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
    priors = {} if prior is None else {name: prior}
    number = {} if n_prior is None else {name: n_prior}
    setup = inferences(release, priors, number, None, same_records=True)
    table_setup = setup.tables[name]
    alpha = table_setup.prior if prior is None else np.asarray(prior, dtype=np.float64)
    estimate = setup.distributions.estimate([level])[name]
    shares, naive = _naive_reading(table.output, alpha, estimate)
    intervals = {
        "prior": (alpha / alpha.sum(axis=-1, keepdims=True), _beta(alpha, level)),
        "the release treated as the data": (naive / naive.sum(axis=-1, keepdims=True), _beta(naive, level)),
        "posterior given the release": (estimate.share_means, estimate.share_intervals[0]),
    }
    # Only the probability of success of a Beta is shown, because that of failure is its mirror image.
    cells = slice(None, None, 2 if table_setup.family == "beta" else 1)
    places = np.arange(table.draws[0].size)
    ax = axes_or_new(ax, height=1.9 + 0.5 * len(places))
    colours = style_colours()
    styles = zip(intervals, (4, 1, 0), (-0.26, 0.0, 0.26), strict=True)
    for label, style, offset in styles:
        means, ends = intervals[label]
        low, high = ends.reshape(-1, 2)[cells].T
        ax.hlines(places + offset, low, high, color=colours[style], linestyle=DASHES[style], linewidth=2)
        ax.plot(np.ravel(means)[cells], places + offset, MARKERS[style], color=colours[style], label=label)
    ax.vlines(shares.ravel()[cells], places - 0.4, places + 0.4, color=ink(), linewidth=1)
    ax.plot([], [], "|", color=ink(), markersize=10, label="the release")
    label_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
    ax.set_xlim(0, None)
    tidy(
        ax,
        xlabel=f"{escape(name)} (share)",
        title=f"Means and {level:.0%} intervals, {abbreviated(table.stored.plan.guarantee)}",
    )
    return legend(ax, columns=2, above=True)


def _table(release: Published, var_name: str | None, *, most_cells: int) -> ReleasedTable:
    """The table to plot, whose cells must fit into one picture."""
    refuse_unless_release(release)
    tables = open_release(release).tables
    table = tables[next(iter(tables)) if var_name is None else one_of(tables, var_name=var_name)]
    _refuse_many(table.name, table.draws[0].size, most_cells)
    return table


def _refuse_many(name: str, n_cells: int, most_cells: int) -> None:
    if n_cells > most_cells:
        raise ArgumentError(f"{name!r} has {n_cells} cells; at most {most_cells} can be read in one picture.")


def _naive_reading(output: Output, alpha: Array, estimate: Estimate) -> tuple[Array, Array]:
    """The released shares, and the parameters of the naive posterior, which treats the output as the data."""
    records = estimate.count_means.reshape(alpha.shape).sum(axis=-1, keepdims=True)
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
    """Plot the coverage of credible intervals against their probability. Calibrated intervals are on the diagonal.

    Parameters
    ----------
    coverage : mapping from str to mapping from float to float
        For each reading, by its name, the share of true values that intervals of each probability cover.
    ax : matplotlib Axes or None
        None creates a new figure.

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
        ax.plot(list(rates), list(rates.values()), markersize=5, label=escape(label), **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    tidy(
        ax,
        title="Coverage of credible intervals",
        xlabel="nominal coverage (probability)",
        ylabel="share of true values in the intervals",
    )
    return legend(ax)


# A released draw, with its expected error, which uses no data.


@user_facing
def plot_draw(release: Published, *, var_name: str | None = None, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Plot the first draw of each category, with an a priori band for the frequency in the data. Public.

    The band has the error of the draw with this probability, over data sets that the prior predicts, separately for
    each category. It uses no data, is the same for every release of this plan, and may be published.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`.
    var_name : str or None
        The name of the table; by default the first one.
    prob : float, default 0.9
        The probability of the band, in (0, 1).
    ax : matplotlib Axes or None
        None creates a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ReleaseError
        If it is not a release, or is damaged.
    ArgumentError
        If there is no such table, it has too many cells for a picture, there is no planning size, or the release has
        an estimate that is fitted to marginals instead of a draw.

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
            f"The release has an estimate of {name!r}, fitted to noisy marginals, and no draw, so there is no band. "
            "dirdp.report(release) has the noise of each marginal, and dirdp.estimate(release) has intervals."
        )
    if not n_records:
        raise ArgumentError("There is no a priori band without n_records, the planning size. Pass it to sample().")
    errors = _errors(mechanism, table.prior, n_records)
    low, high = np.quantile(errors, [(1 - open_unit_interval(prob=prob)) / 2, (1 + prob) / 2], axis=0)
    value = table.draws[0]
    if table.family == "beta":
        # Only the probability of success is shown, because that of failure is its mirror image.
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
    label_rows(ax, cell_labels(name, [labels for _, labels in table.share_labels]))
    ax.set_xlim(0, None)
    tidy(ax, xlabel=f"{escape(name)} (share)", title=f"Private draw, {abbreviated(table.stored.plan.guarantee)}")
    return legend(ax, columns=2, above=True)


def _errors(mechanism: TableMechanism, prior: Array, n_records: int) -> Array:
    """Errors of draws as estimates of the frequencies, on simulated data sets, shape (simulations, *prior.shape)."""
    data = predicted_data(prior, n_records)
    rng = np.random.default_rng(20261123)
    private = mechanism.posterior_parameters(data, rng)
    sizes = data.sum(axis=-1, keepdims=True)
    errors: Array = dirichlet(private, 1, rng)[0] - data / np.where(sizes > 0, sizes, 1)
    return errors


def cell_labels(name: str, axes: Sequence[Any]) -> list[str]:
    """The label of each cell, from the labels of the axes; the name of the variable if it has no axes."""
    return [", ".join(map(str, labels)) for labels in itertools.product(*axes)] if axes else [name]
