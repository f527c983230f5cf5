"""The private posterior beside the one without privacy. From a diagnosis, so **confidential**."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.axes import COLOURS, Axes, axes_or_new, marked, pyplot, tidy
from pymc_dirdp.plots.draw import cell_labels

__all__ = ["plot_posteriors", "plot_ternary"]

_LABELS = {"non_private": "posterior", "private": "private posterior"}
_HEIGHT = np.sqrt(3) / 2
_SHOWN = 1500


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
    >>> diagnosis = dirdp.diagnose(release, model, nuts=False, draws=100)
    >>> axes = dirdp.plots.plot_posteriors(diagnosis)
    """
    import arviz_plots as azp

    name = _checked(diagnosis, var_name)
    values = {label: _values(diagnosis, key, name) for key, label in _LABELS.items()}
    first = values["posterior"]
    shape = first.shape[2:]
    grid = np.asarray(_new_axes(shape) if axes is None else axes, dtype=object).reshape(shape)
    azp.plot_dist(
        {label: xr.DataTree.from_dict({"/posterior": value.to_dataset()}) for label, value in values.items()},
        var_names=[name],
        backend="matplotlib",
        kind="kde",
        visuals={"credible_interval": False, "point_estimate": False, "point_estimate_text": False, "title": False},
        plot_collection=_collection(azp, values, grid),
    )
    for ax, value, title in zip(
        grid.ravel(), _released(diagnosis, name).ravel(), cell_labels(first.isel(chain=0, draw=0)), strict=True
    ):
        ax.axvline(float(value), color=COLOURS[1], linestyle=":")
        marked(ax).set_title(title, fontsize="medium")
    first = grid.flat[0]
    # This leaves room for the legend above the curves.
    first.set_ylim(0, 1.6 * first.get_ylim()[1])
    first.legend(
        first.lines[:3], [*_LABELS.values(), "released draw"], frameon=False, fontsize="small", loc="upper left"
    )
    return grid


def _new_axes(shape: tuple[int, ...]) -> Any:
    cells = int(np.prod(shape, dtype=int))
    columns = min(cells, 4)
    rows = -(-cells // columns)
    axes = pyplot().subplots(rows, columns, figsize=(3 * columns, 2.6 * rows), layout="constrained", squeeze=False)[1]
    for unused in axes.ravel()[cells:]:
        unused.set_axis_off()
    return axes.ravel()[:cells]


def _collection(azp: Any, values: dict[str, xr.DataArray], axes: Any) -> Any:
    """ArviZ's own bookkeeping of a figure, for axes that exist already."""
    first = values["posterior"]
    dims = first.dims[2:]
    plots = xr.DataArray(axes, dims=dims, coords={dim: first[dim] for dim in dims if dim in first.coords})
    viz = {
        "/": xr.Dataset({"figure": xr.DataArray(axes.flat[0].figure)}),
        "/plot": xr.Dataset({str(first.name): plots}),
    }
    model = xr.Variable("model", list(values))
    return azp.PlotCollection(
        xr.concat([value.to_dataset() for value in values.values()], dim=model),
        xr.DataTree.from_dict(viz),
        # Before 1.3, `plot_dist` looks for the heights of interval lines, which are not drawn here.
        aes={"color": ["model"], "linestyle": ["model"], "y": ["model"]},
        backend="matplotlib",
        y=[0, 0],
        color=[COLOURS[3], COLOURS[0]],
        linestyle=["-", "--"],
    )


def plot_ternary(diagnosis: xr.DataTree, *, var_name: str | None = None, ax: Axes | None = None) -> Axes:
    """Both posteriors of three categories as clouds of draws in a triangle, with the released draw. **Confidential**.

    The word is written across the picture.

    Parameters
    ----------
    diagnosis : xarray.DataTree
        From :func:`pymc_dirdp.diagnose`.
    var_name : str or None
        Which table; the first one by default. It holds one row of three categories.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1])
    ...     x = pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> diagnosis = dirdp.diagnose(release, model, nuts=False, draws=100)
    >>> ax = dirdp.plots.plot_ternary(diagnosis)
    """
    name = _checked(diagnosis, var_name)
    values = _values(diagnosis, "non_private", name)
    if values.shape[2:] != (3,):
        raise ArgumentError(f"A triangle is for one row of three categories; {name!r} has shape {values.shape[2:]}.")
    ax = axes_or_new(ax, figsize=(4.6, 4.2))
    corners = np.array([[0, 0], [1, 0], [0.5, _HEIGHT]])
    ax.fill(*corners.T, facecolor="none", edgecolor="0.3", linewidth=1)
    for share in (0.25, 0.5, 0.75):
        for i in range(3):
            ends = np.zeros((2, 3))
            ends[:, i] = share
            ends[0, (i + 1) % 3] = ends[1, (i + 2) % 3] = 1 - share
            ax.plot(*(ends @ corners).T, color="0.9", linewidth=0.7, zorder=0)
    # The narrower cloud is drawn on top of the wider one.
    for key, colour in (("private", COLOURS[0]), ("non_private", COLOURS[3])):
        label = _LABELS[key]
        draws = _values(diagnosis, key, name).values.reshape(-1, 3)
        draws = draws[:: max(1, len(draws) // _SHOWN)]
        ax.plot(*(draws @ corners).T, ".", color=colour, markersize=3, alpha=0.6, label=label)
    released = _released(diagnosis, name)
    ax.plot(*(released @ corners), "X", color="white", markersize=11, markeredgecolor="black", label="released draw")
    dim = values.dims[-1]
    names = [str(label) for label in values[dim].values] if dim in values.coords else ["0", "1", "2"]
    for corner, text, offset, side in zip(
        corners, names, ((-4, -14), (4, -14), (0, 5)), ("left", "right", "center"), strict=True
    ):
        ax.annotate(text, corner, xytext=offset, textcoords="offset points", ha=side)
    ax.legend(frameon=False, fontsize="small", loc="upper right", markerscale=1)
    ax.set(aspect="equal", xlim=(-0.08, 1.12), ylim=(-0.1, 1.0))
    ax.set_axis_off()
    return tidy(marked(ax))


def _checked(diagnosis: xr.DataTree, var_name: str | None) -> str:
    if not {"non_private", "private", "release"} <= set(getattr(diagnosis, "children", ())):
        raise ArgumentError("Expected a diagnosis from pymc_dirdp.diagnose.")
    # Deterministics have no posterior in closed form to be compared with; any variable of both can be shown.
    names = [str(name) for name in diagnosis["release"].data_vars]
    return names[0] if var_name is None else one_of(names, var_name=var_name)


def _values(diagnosis: xr.DataTree, key: str, name: str) -> xr.DataArray:
    return diagnosis.children[key].children["posterior"].to_dataset()[name]


def _released(diagnosis: xr.DataTree, name: str) -> Array:
    draw = diagnosis.children["release"].to_dataset()[name].isel(chain=0, draw=0)
    return np.asarray(draw.values, dtype=np.float64)
