"""Pictures of privacy curves, and of the errors of mechanisms."""

import math
from typing import Any

import numpy as np

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import CurveName, options_of
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.papers.privacy import p1_theorem_1, p2_theorem_2
from pymc_dirdp.planning.comparison import Comparison
from pymc_dirdp.planning.prices import Frontier
from pymc_dirdp.plots.axes import (
    DASHES,
    MARKERS,
    Axes,
    axes_or_new,
    ink,
    label_rows,
    legend,
    log_axis,
    style_colours,
    tidy,
)
from pymc_dirdp.plots.kinds import is_release, plot_hint, refuse
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.claims import Claiming
from pymc_dirdp.releases.facts import range_text
from pymc_dirdp.releases.opened import LoadedRelease, content_of, open_release
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.wording import abbreviated
from pymc_dirdp.signatures import user_facing

# Exact and published privacy curves.


_POINTS = 60


@user_facing
def plot_privacy(source: Any, *, curve: CurveName = "delta", ax: Axes | None = None) -> Axes:
    """Plot the exact privacy curve, with the published bound if there is one.

    Parameters
    ----------
    source : PrivacyCurves, xarray.DataTree, Plan or ThompsonSampler
        A mechanism, a release, a plan or a bandit.
    curve : {"delta", "renyi"}, default "delta"
        `"delta"`: delta against epsilon, with P2 Theorem 2 for a Dirichlet mechanism. `"renyi"`: the Rényi divergence
        against the order, with P1 Theorem 1.
    ax : matplotlib Axes or None
        None creates a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> ax = plot_privacy(dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.5), curve="renyi")
    """
    one_of(options_of(CurveName), curve=curve)
    mechanism, whose = _curves(source)
    table = TableMechanism.of(mechanism)
    dirichlet = None if table is None or table.tempered is None else table
    ax = axes_or_new(ax)
    (_deltas if curve == "delta" else _divergences)(mechanism, dirichlet, ax)
    tidy(ax, title=f"{'Privacy curve' if curve == 'delta' else 'Rényi divergence'}: {whose}")
    return legend(ax)


def _curves(source: Any) -> tuple[PrivacyCurves, str]:
    """The privacy curves of an object that states a guarantee, and a description."""
    if isinstance(source, PrivacyCurves):
        table = TableMechanism.of(source)
        if table is None:
            return source, type(source).__name__
        return source, ", ".join([*([table.formula.partition(",")[0]] if table.tempered else []), table.summary])
    if not is_release(source) and not isinstance(source, Plan | Claiming) and plot_hint(source):
        refuse("a mechanism, a release, a plan or a bandit", source=source)
    content = content_of(source)
    if isinstance(content, Claiming):
        claim = content._claim()
        return claim.curves, f"{claim.what}, {abbreviated(claim.guarantee)}"
    stored = LoadedRelease(content) if isinstance(content, Plan) else open_release(source)
    what = "plan" if stored.release is None else "release"
    return stored.curves, f"{what}, {abbreviated(stored.plan.guarantee)}"


def _deltas(mechanism: PrivacyCurves, dirichlet: TableMechanism | None, ax: Axes) -> None:
    last = min(mechanism.epsilon(1e-10), 60.0)
    epsilons = np.linspace(0, last, _POINTS)
    deltas = np.asarray(mechanism.delta(epsilons))
    is_visible, colours = deltas > 1e-12, style_colours()
    ax.plot(epsilons[is_visible], deltas[is_visible], DASHES[0], color=colours[0], label="exact")
    if dirichlet is not None and _one_record(dirichlet):
        grid = np.geomspace(1e-10, 0.5, 30).tolist()
        bound = [p2_theorem_2(delta=delta, **_parameters(dirichlet)).epsilon for delta in grid]
        ax.plot(bound, grid, DASHES[1], color=colours[1], label="P2 Theorem 2")
        ax.set_xlim(0, min(max(bound), 3 * last))
    ax.set(yscale="log", xlabel="epsilon (nats)", ylabel="delta (probability)", ylim=(1e-10, 1.5))


def _divergences(mechanism: PrivacyCurves, dirichlet: TableMechanism | None, ax: Axes) -> None:
    orders, colours = np.geomspace(1.01, 256, _POINTS), style_colours()
    # Only orders with a finite divergence are plotted.
    orders = np.geomspace(1.01, np.max(orders[np.isfinite(mechanism.renyi(orders))], initial=1.01), _POINTS)
    exact = np.asarray(mechanism.renyi(orders))
    if dirichlet is not None and _one_record(dirichlet):
        points = [(order, _published(dirichlet, order)) for order in orders.tolist()]
        points = [(order, value) for order, value in points if value < 30 * exact[-1]]
        ax.plot(*zip(*points, strict=True), DASHES[1], color=colours[1], label="P1 Theorem 1")
    ax.plot(orders, exact, DASHES[0], color=colours[0], label="exact")
    log_axis(ax.xaxis)
    log_axis(ax.yaxis)
    ax.set(xlabel="Rényi order", ylabel="Rényi divergence (nats)")


def _one_record(mechanism: TableMechanism) -> bool:
    """Whether a person has one record, for which the published bounds are plotted."""
    return mechanism.contributed.total(mechanism.shape) == 1


def _parameters(mechanism: TableMechanism) -> dict[str, float]:
    """The arguments of the published bounds."""
    tempered, relation = mechanism.tempered, adjacency_by_name(mechanism.adjacency)
    assert tempered is not None
    return {
        "r": tempered.r,
        "alpha_min": float(tempered.alpha.min()) + tempered.r * (mechanism.min_count or 0.0),
        "delta_2_squared": relation.delta_2_squared,
        "delta_inf": relation.delta_inf,
    }


def _published(mechanism: TableMechanism, order: float) -> float:
    try:
        return p1_theorem_1(order=order, **_parameters(mechanism)).epsilon
    except ArgumentError:
        return math.inf


# Mechanisms with the same guarantee.


@user_facing
def plot_comparison(comparison: Comparison, *, column: str = "kl_posterior", ax: Axes | None = None) -> Axes:
    """Plot the expected error of each mechanism on a logarithmic axis, the most accurate at the top.

    Parameters
    ----------
    comparison : Comparison
        From :func:`pymc_dirdp.compare`.
    column : {"kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger"}, default "kl_posterior"
        The error. Mechanisms with an infinite error are named at the bottom.
    ax : matplotlib Axes or None
        None creates a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> found = dirdp.compare(
    ...     dirdp.PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50, public=["n_records"]
    ... )
    >>> ax = plot_comparison(found, column="kl_draw")
    """
    labels = {
        "kl_posterior": "expected KL, private posterior from posterior (nats)",
        "kl_draw": "expected KL, private draw from frequencies (nats)",
        "kl_estimate": "expected KL, release from frequencies (nats)",
        "l_inf": "expected largest error of a frequency (share)",
        "hellinger": "expected Hellinger distance of frequencies (0 to 1)",
    }
    if not isinstance(comparison, Comparison):
        refuse("a Comparison from dirdp.compare", comparison=comparison)
    one_of(labels, column=column)
    scores = sorted(comparison.scores, key=lambda score: getattr(score, column))
    ax = axes_or_new(ax, height=1.9 + 0.36 * len(scores))
    values = [getattr(score, column) for score in scores]
    names, families, colours = [], [], style_colours()
    others = (MARKERS[-1], colours[-1])
    # The marker and the colour of each family. The markers distinguish them in a grey print.
    looks = dict(zip(("Dirichlet", "Gaussian", "Geometric"), zip(MARKERS, colours, strict=True), strict=False))
    for place, (score, value) in enumerate(zip(scores, values, strict=True)):
        family = score.mechanism.split(",")[0]
        marker, colour = looks.get(family, others)
        if math.isfinite(value):
            ax.hlines(place, values[0] / 1.5, value, color=ink(), alpha=0.2, linewidth=1, zorder=1)
            label: dict[str, Any] = {} if family in families else {"label": family}
            ax.plot(value, place, marker, color=colour, markersize=6, **label)
            families.append(family)
        names.append(score.mechanism if math.isfinite(value) else f"{score.mechanism} (infinite)")
    reference = getattr(comparison.baseline, column)
    if reference > 0:
        look: dict[str, Any] = {"color": ink(), "alpha": 0.7, "linestyle": ":", "linewidth": 1}
        ax.vlines(reference, -0.6, len(names) - 0.4, label="posterior, not private", **look)
    label_rows(ax, names, width=30)
    log_axis(ax.xaxis)
    tidy(ax, xlabel=labels[column], title=f"{abbreviated(comparison.guarantee)}, {comparison.adjacency}")
    return legend(ax, columns=2, above=True)


# The tradeoff of privacy and accuracy.


@user_facing
def plot_frontier(frontier: Frontier, *, ax: Axes | None = None) -> Axes:
    """Plot the expected error of each mechanism against the privacy budget, on logarithmic axes.

    Parameters
    ----------
    frontier : Frontier
        From :func:`pymc_dirdp.privacy_utility`, with guarantees of one kind.
    ax : matplotlib Axes or None
        None creates a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> grid = [dirdp.ApproxDP(epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0)]
    >>> ax = plot_frontier(dirdp.privacy_utility(grid, prior=[1, 1], n_records=100, mechanisms=["dirichlet"]))
    """
    if not isinstance(frontier, Frontier):
        refuse("a Frontier from dirdp.privacy_utility", frontier=frontier)
    if not any(math.isfinite(error) for errors in frontier.expected_kl.values() for error in errors):
        raise ArgumentError("No mechanism of this frontier attains any of its guarantees, so there is nothing to draw.")
    ax, colours = axes_or_new(ax), style_colours()
    for place, (mechanism, errors) in enumerate(frontier.expected_kl.items()):
        points = [(x, y) for x, y in zip(frontier.amounts, errors, strict=True) if math.isfinite(y) and y > 0]
        style = place % len(MARKERS)
        # The line of "auto" coincides with others, so it is broad and pale, and below them.
        look: dict[str, Any] = {"color": colours[style], "linestyle": DASHES[style], "marker": MARKERS[style]}
        look["markersize"] = 4
        if mechanism == "auto":
            look |= {"linewidth": 6, "alpha": 0.25, "marker": "o", "markersize": 6, "zorder": 1}
        label = mechanism if points else f"{mechanism} (not attainable)"
        ax.plot([x for x, _ in points], [y for _, y in points], label=label, **look)
    first = frontier.guarantees[0]
    fixed = "".join(
        f" at {name} = {range_text([item.fixed[name] for item in frontier.guarantees])}" for name in first.fixed
    )
    log_axis(ax.xaxis)
    log_axis(ax.yaxis)
    tidy(
        ax,
        xlabel=f"{first.budget_name} (nats) of {type(first).__name__}{fixed}",
        ylabel="expected KL (nats)",
        title=f"KL of {frontier.measure}, {frontier.n_records} records",
    )
    return legend(ax)
