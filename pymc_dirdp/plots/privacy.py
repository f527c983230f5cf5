"""A picture of privacy curves: the exact one, the published one, and those of given neighbours."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.papers.privacy import p1_theorem_1, p2_theorem_2
from pymc_dirdp.plots.axes import COLOURS, DASHES, Axes, axes_or_new, legend
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.releases.interop import as_mechanism

__all__ = ["plot_privacy"]

_POINTS = 60


def plot_privacy(
    source: Any,
    *,
    curve: str = "delta",
    pairs: Iterable[tuple[ArrayLike, ArrayLike]] = (),
    ax: Axes | None = None,
) -> Axes:
    """The exact privacy curve, with the published bound and with given pairs of neighbours where there are any.

    Parameters
    ----------
    source : PrivacyCurves or xarray.DataTree
        A mechanism or a release.
    curve : {"delta", "renyi"}, default "delta"
        `"delta"`: delta against epsilon, with P2 Theorem 2 for a Dirichlet mechanism. `"renyi"`: the Rényi divergence
        against the order, with P1 Theorem 1.
    pairs : iterable of (array, array)
        Neighbouring tables of counts whose divergence is drawn too, for `"renyi"` and a Dirichlet mechanism: brute
        force that stays below the curve. Made-up data only: a picture of the observed ones must not be published.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> ax = plot_privacy(dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.5), curve="renyi")
    """
    one_of(("delta", "renyi"), curve=curve)
    mechanism = as_mechanism(source)
    table = TableMechanism.of(mechanism)
    dirichlet = None if table is None or table.tempered is None else table
    neighbours = list(pairs)
    drawn = None if dirichlet is None else dirichlet.tempered
    if neighbours and (drawn is None or drawn.steps is not None or curve != "renyi"):
        raise ArgumentError("pairs= is for curve='renyi' of a DirichletMechanism without urn_steps.")
    ax = axes_or_new(ax, figsize=(5.5, 3.6))
    if curve == "delta":
        return _deltas(mechanism, dirichlet, ax)
    return _divergences(mechanism, dirichlet, neighbours, ax)


def _deltas(mechanism: PrivacyCurves, dirichlet: TableMechanism | None, ax: Axes) -> Axes:
    last = min(mechanism.epsilon(1e-10), 60.0)
    epsilons = np.linspace(0, last, _POINTS)
    deltas = np.asarray(mechanism.delta(epsilons))
    shown = deltas > 1e-12
    ax.plot(epsilons[shown], deltas[shown], DASHES[0], color=COLOURS[0], label="exact")
    if dirichlet is not None and _one_record(dirichlet):
        grid = np.geomspace(1e-10, 0.5, 30).tolist()
        bound = [p2_theorem_2(delta=delta, **_parameters(dirichlet)).epsilon for delta in grid]
        ax.plot(bound, grid, DASHES[1], color=COLOURS[1], label="P2 Theorem 2")
        ax.set_xlim(0, min(max(bound), 3 * last))
    ax.set(yscale="log", xlabel="epsilon", ylabel="delta", ylim=(1e-10, 1.5))
    return legend(ax)


def _divergences(
    mechanism: PrivacyCurves, dirichlet: TableMechanism | None, pairs: list[tuple[ArrayLike, ArrayLike]], ax: Axes
) -> Axes:
    orders = np.geomspace(1.01, 256, _POINTS)
    exact = np.asarray(mechanism.renyi(orders))
    finite = np.isfinite(exact)
    if dirichlet is not None:
        # The orders go to the end of where the curve is finite.
        end = orders[finite][-1]
        orders = np.geomspace(1.01, end, _POINTS)
        exact, finite = np.asarray(mechanism.renyi(orders)), np.ones(_POINTS, dtype=bool)
        if _one_record(dirichlet):
            known = [(order, _published(dirichlet, order)) for order in orders.tolist()]
            known = [(order, value) for order, value in known if value < 30 * exact[-1]]
            ax.plot(*zip(*known, strict=True), DASHES[1], color=COLOURS[1], label="P1 Theorem 1")
    ax.plot(orders[finite], exact[finite], DASHES[0], color=COLOURS[0], label="exact")
    drawn = None if dirichlet is None else dirichlet.tempered
    for number, (x, y) in enumerate(pairs):
        assert drawn is not None
        u, v = (drawn.r * np.asarray(counts) + drawn.alpha for counts in (x, y))
        values = np.array([_of_pair(order, u, v) for order in orders.tolist()])
        shown = np.isfinite(values) & (values > 0)
        label = "these neighbours" if not number else None
        ax.plot(orders[shown], values[shown], DASHES[3], color=COLOURS[2], label=label)
    ax.set(xscale="log", yscale="log", xlabel="Rényi order", ylabel="divergence (nats)")
    return legend(ax)


def _one_record(mechanism: TableMechanism) -> bool:
    """Whether the published bounds, which are drawn for one record of a person, are about this mechanism."""
    return mechanism.contributed.total(mechanism.shape) == 1


def _parameters(mechanism: TableMechanism) -> dict[str, float]:
    """What the published bounds take."""
    drawn, relation = mechanism.tempered, adjacency_named(mechanism.adjacency)
    assert drawn is not None
    return {
        "r": drawn.r,
        "alpha_min": float(drawn.alpha.min()) + drawn.r * (mechanism.min_count or 0.0),
        "delta_2_squared": relation.delta_2_squared,
        "delta_inf": relation.delta_inf,
    }


def _published(mechanism: TableMechanism, order: float) -> float:
    try:
        return p1_theorem_1(order=order, **_parameters(mechanism)).epsilon
    except ArgumentError:
        return math.inf


def _of_pair(order: float, u: Array, v: Array) -> float:
    """Rényi divergence of two tables of Dirichlet distributions, from beta functions."""
    mixed = order * u - (order - 1) * v
    if np.any(mixed <= 0):
        return math.inf

    def log_beta(z: Array) -> Array:
        return np.asarray(gammaln(z).sum(axis=-1) - gammaln(z.sum(axis=-1)))

    return float(np.sum(log_beta(mixed) - order * log_beta(u) + (order - 1) * log_beta(v)) / (order - 1))
