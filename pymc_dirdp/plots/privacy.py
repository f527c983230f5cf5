"""Pictures of what privacy costs: curves, comparisons, price lists and regret."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dirdp.bandits.simulation import BanditRuns, bandit_lower_bound
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.papers.privacy import p1_theorem_1, p2_theorem_2
from pymc_dirdp.planning.comparison import Comparison
from pymc_dirdp.planning.prices import Frontier
from pymc_dirdp.plots.axes import COLOURS, DASHES, MARKERS, Axes, axes_or_new, labelled_rows, legend, tidy
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.releases.interop import as_mechanism
from pymc_dirdp.signatures import user_facing

# A picture of privacy curves: the exact one and the published one.


_POINTS = 60


@user_facing
def plot_privacy(source: Any, *, curve: str = "delta", ax: Axes | None = None) -> Axes:
    """The exact privacy curve, with the published bound where there is one.

    Parameters
    ----------
    source : PrivacyCurves or xarray.DataTree
        A mechanism or a release.
    curve : {"delta", "renyi"}, default "delta"
        `"delta"`: delta against epsilon, with P2 Theorem 2 for a Dirichlet mechanism. `"renyi"`: the Rényi divergence
        against the order, with P1 Theorem 1.
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
    ax = axes_or_new(ax, figsize=(5.5, 3.6))
    return (_deltas if curve == "delta" else _divergences)(mechanism, dirichlet, ax)


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


def _divergences(mechanism: PrivacyCurves, dirichlet: TableMechanism | None, ax: Axes) -> Axes:
    orders = np.geomspace(1.01, 256, _POINTS)
    # The orders go to the end of where the curve is finite.
    orders = np.geomspace(1.01, np.max(orders[np.isfinite(mechanism.renyi(orders))], initial=1.01), _POINTS)
    exact = np.asarray(mechanism.renyi(orders))
    if dirichlet is not None and _one_record(dirichlet):
        known = [(order, _published(dirichlet, order)) for order in orders.tolist()]
        known = [(order, value) for order, value in known if value < 30 * exact[-1]]
        ax.plot(*zip(*known, strict=True), DASHES[1], color=COLOURS[1], label="P1 Theorem 1")
    ax.plot(orders, exact, DASHES[0], color=COLOURS[0], label="exact")
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


# The mechanisms that can keep one guarantee, from the most accurate to the least.


@user_facing
def plot_comparison(comparison: Comparison, *, column: str = "kl_posterior", ax: Axes | None = None) -> Axes:
    """A point for each mechanism on a logarithmic axis, the most accurate at the top.

    Parameters
    ----------
    comparison : Comparison
        From :func:`pymc_dirdp.compare`.
    column : {"kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger"}, default "kl_posterior"
        What to show. Mechanisms for which it is infinite are named at the bottom.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> found = dirdp.compare(
    ...     dirdp.PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50, public_totals=True
    ... )
    >>> ax = plot_comparison(found, column="kl_draw")
    """
    labels = {
        "kl_posterior": "expected KL, private posterior from posterior (nats)",
        "kl_draw": "expected KL, private draw from frequencies (nats)",
        "kl_estimate": "expected KL, release from frequencies (nats)",
        "l_inf": "expected largest error of a frequency",
        "hellinger": "expected Hellinger distance of frequencies",
    }
    one_of(labels, column=column)
    scores = sorted(comparison.scores, key=lambda score: getattr(score, column))
    ax = axes_or_new(ax, figsize=(7.5, 1.2 + 0.27 * len(scores)))
    values = [getattr(score, column) for score in scores]
    names = []
    others = (MARKERS[-1], COLOURS[-1])
    # The marker and the colour of each family. The markers alone tell them apart in a grey print.
    looks = dict(zip(("Dirichlet", "Gaussian", "Geometric"), zip(MARKERS, COLOURS, strict=True), strict=False))
    for place, (score, value) in enumerate(zip(scores, values, strict=True)):
        marker, colour = looks.get(score.mechanism.split(",")[0], others)
        if math.isfinite(value):
            ax.hlines(place, values[0] / 1.5, value, color="0.85", linewidth=1, zorder=1)
            ax.plot(value, place, marker, color=colour, markersize=6)
        names.append(score.mechanism if math.isfinite(value) else f"{score.mechanism} (infinite)")
    reference = getattr(comparison.baseline, column)
    if reference > 0:
        ax.axvline(reference, color="0.4", linestyle=":", linewidth=1)
        ax.annotate(
            "posterior, not private",
            (reference, 0),
            xycoords=("data", "axes fraction"),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize="small",
            color="0.3",
        )
    labelled_rows(ax, names)
    ax.set(xscale="log", xlabel=labels[column], title=f"{comparison.guarantee}, {comparison.adjacency}")
    return tidy(ax)


# What accuracy costs in privacy.


@user_facing
def plot_frontier(frontier: Frontier, *, ax: Axes | None = None) -> Axes:
    """Expected error against the privacy loss allowed, a line for each mechanism, both axes logarithmic.

    Parameters
    ----------
    frontier : Frontier
        From :func:`pymc_dirdp.privacy_utility`, with guarantees of one kind.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> grid = [dirdp.ApproxDP(epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0)]
    >>> ax = plot_frontier(dirdp.privacy_utility(grid, prior=[1, 1], n_records=100, mechanisms=["dirichlet"]))
    """
    ax = axes_or_new(ax, figsize=(5.5, 3.6))
    for place, (mechanism, errors) in enumerate(frontier.expected_kl.items()):
        points = [(x, y) for x, y in zip(frontier.amounts, errors, strict=True) if math.isfinite(y) and y > 0]
        style = place % len(COLOURS)
        # The choice of the best lies upon other lines: draw it broad and pale below them.
        look: dict[str, Any] = {"color": COLOURS[style], "linestyle": DASHES[style], "marker": MARKERS[style]}
        if mechanism == "auto":
            look |= {"linewidth": 6, "alpha": 0.25, "marker": "", "zorder": 1}
        ax.plot([x for x, _ in points], [y for _, y in points], label=mechanism, markersize=4, **look)
    first = frontier.guarantees[0]
    ax.set(
        xscale="log",
        yscale="log",
        xlabel=f"{first.budget_name} of {type(first).__name__}",
        ylabel="expected KL (nats)",
        title=f"KL of {frontier.measure}, {frontier.n_records} records",
    )
    return legend(ax)


# What bandits lose while they learn.


@user_facing
def plot_regret(runs: BanditRuns | Sequence[BanditRuns], *, bound: bool = True, ax: Axes | None = None) -> Axes:
    """Regret against the round: a line at the median of the runs, and a band from 5 to 95 % of them.

    The mean is left out, because a single run in thousands that settles on a wrong arm decides it.

    Parameters
    ----------
    runs : BanditRuns, or sequence of them
        From :func:`pymc_dirdp.simulate_bandit`, for one bandit.
    bound : bool, default True
        Whether to draw the slope that the lower bound has with the strictest privacy among the runs, see
        :func:`pymc_dirdp.bandits.bandit_lower_bound`, at the end of its median. The bound says how regret grows
        with the logarithm of the round at last; it says nothing of the height of a line, nor of any horizon.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ArgumentError
        If the runs are of different bandits, or there are more than five.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> ax = plot_regret(runs)
    """
    several = [runs] if isinstance(runs, BanditRuns) else list(runs)
    if not several or any(not np.array_equal(one.means, several[0].means) for one in several):
        raise ArgumentError("Expected runs of one bandit, with the same true means.")
    if len(several) > len(COLOURS):
        raise ArgumentError(f"Expected at most {len(COLOURS)} policies in one picture. Draw the others beside it.")
    ax = axes_or_new(ax, figsize=(5.5, 3.6))
    for colour, dash, one in zip(COLOURS, DASHES, several, strict=False):
        low, median, high = np.quantile(one.regret, [0.05, 0.5, 0.95], axis=0)
        ax.fill_between(one.checkpoints, low, high, color=colour, alpha=0.15, linewidth=0)
        if len(several) > 1:
            # Bands that lie upon each other differ at their ends alone.
            ends = np.column_stack([low, high])
            ax.plot(one.checkpoints, ends, color=colour, linestyle=dash, linewidth=0.7, alpha=0.7, label="_band")
        ax.plot(one.checkpoints, median, color=colour, linestyle=dash, label=_label(one, several))
    rounds = several[0].checkpoints
    most_private = min(several, key=lambda one: one.epsilon)
    strictest = most_private.epsilon
    means = several[0].means
    if bound and np.all((means > 0) & (means < 1)):
        end = float(np.median(most_private.regret[:, -1]))
        slope = end + bandit_lower_bound(means, strictest) * np.log(rounds / rounds[-1])
        late = (slope >= 0) & (rounds >= rounds[-1] / 10)
        privacy = f"for epsilon = {strictest:.3g}" if np.isfinite(strictest) else "without privacy"
        label = f"least slope in the long run {privacy}"
        ax.plot(rounds[late], slope[late], color="black", linewidth=1, linestyle=(0, (1, 2)), label=label)
    ax.set(xscale="log", xlabel="round", ylabel="regret", title="median of the runs, and 5 to 95 % of them")
    ax.set_ylim(bottom=0)
    return legend(ax)


def _label(one: BanditRuns, several: Sequence[BanditRuns]) -> str:
    """The name of the policy, with its privacy if another policy has the same name."""
    if [other.name for other in several].count(one.name) == 1:
        return one.name
    return f"{one.name}, epsilon = {one.epsilon:.3g}"
