"""What a release says, beside what it would say to somebody who took it for the data; and whether that is true."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import beta

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of, open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.plots.axes import COLOURS, DASHES, MARKERS, Axes, axes_or_new, labelled_rows, legend, tidy
from pymc_dirdp.plots.draw import cell_labels
from pymc_dirdp.releases.concluding import conclusions
from pymc_dirdp.releases.opened import opened

__all__ = ["plot_analysis", "plot_calibration"]

_MOST_CELLS = 40


def plot_analysis(
    release: xr.DataTree,
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
    stored = opened(release)
    names = list(stored.tables)
    name = names[0] if var_name is None else one_of(names, var_name=var_name)
    own = {} if prior is None else {name: prior}
    number = {} if n_prior is None else {name: n_prior}
    found = conclusions(release, own, number, None, jointly=True)
    seen = found.tables[name]
    alpha = seen.prior if prior is None else np.asarray(prior, dtype=np.float64)
    draw = stored.tree.children["posterior"].to_dataset()[name].isel(chain=0, draw=0)
    if draw.size > _MOST_CELLS:
        raise ArgumentError(f"{name!r} has {draw.size} cells; at most {_MOST_CELLS} can be read in one picture.")
    aware = found.laws.estimate([level], np.random.default_rng(20261123))[name]
    released, naive = _read_as_data(release, name, alpha, aware)
    intervals = {
        "prior": (alpha / alpha.sum(axis=-1, keepdims=True), _beta(alpha, level)),
        "the release read as data": (naive / naive.sum(axis=-1, keepdims=True), _beta(naive, level)),
        "what the release says": (aware.share_means, aware.share_intervals[0]),
    }
    # The picture of a Beta shows the probability of success; that of failure is its mirror image.
    shown = slice(None, None, 2 if seen.family == "beta" else 1)
    ax = axes_or_new(ax, figsize=(6.5, 1.3 + 0.5 * draw.size))
    places = np.arange(draw.size)
    styles = zip(intervals, (4, 1, 0), (-0.26, 0.0, 0.26), strict=True)
    for label, style, offset in styles:
        means, ends = intervals[label]
        low, high = ends.reshape(-1, 2)[shown].T
        ax.hlines(places + offset, low, high, color=COLOURS[style], linestyle=DASHES[style], linewidth=2)
        ax.plot(np.ravel(means)[shown], places + offset, MARKERS[style], color=COLOURS[style], label=label)
    ax.vlines(released.ravel()[shown], places - 0.4, places + 0.4, color="black", linewidth=1)
    ax.plot([], [], "|", color="black", markersize=10, label="the release")
    labelled_rows(ax, cell_labels(draw))
    ax.set(xlabel=f"{name}: means and central {level:.0%} intervals", xlim=(0, None))
    ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return tidy(ax)


def _read_as_data(release: xr.DataTree, name: str, alpha: Array, aware: Estimate) -> tuple[Array, Array]:
    """The released shares, and the parameters of the posterior of somebody who takes the output for the data."""
    records = aware.count_means.reshape(alpha.shape).sum(axis=-1, keepdims=True)
    counts = opened(release).tables[name].output.as_counts(records)
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300), alpha + counts


def _beta(parameters: Array, level: float) -> Array:
    """Central intervals of the shares of a Dirichlet distribution, shape `(..., 2)`."""
    rest = parameters.sum(axis=-1, keepdims=True) - parameters
    ends = [beta.ppf(end, parameters, rest) for end in ((1 - level) / 2, (1 + level) / 2)]
    return np.stack(ends, axis=-1)


def plot_calibration(coverage: Mapping[str, Mapping[float, float]], *, ax: Axes | None = None) -> Axes:
    """How often intervals hold the truth, against how often they say they do: on the diagonal they are calibrated.

    Parameters
    ----------
    coverage : mapping from str to mapping from float to float
        For each reading, by its name, the share of truths that intervals of each probability held.
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
    for i, (label, held) in enumerate(coverage.items()):
        ax.plot(
            list(held), list(held.values()), DASHES[i], color=COLOURS[i], marker=MARKERS[i], markersize=5, label=label
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="probability of the interval", ylabel="share of truths within it")
    return legend(ax)
