"""What accuracy costs in privacy."""

import math
from typing import Any

from pymc_dirdp.planning.frontier import Frontier
from pymc_dirdp.plots.axes import COLOURS, DASHES, MARKERS, Axes, axes_or_new, legend

__all__ = ["plot_frontier"]


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
        kept = [(x, y) for x, y in zip(frontier.amounts, errors, strict=True) if math.isfinite(y) and y > 0]
        style = place % len(COLOURS)
        # The choice of the best lies upon other lines: draw it broad and pale below them.
        look: dict[str, Any] = {"color": COLOURS[style], "linestyle": DASHES[style], "marker": MARKERS[style]}
        if mechanism == "auto":
            look |= {"linewidth": 6, "alpha": 0.25, "marker": "", "zorder": 1}
        ax.plot([x for x, _ in kept], [y for _, y in kept], label=mechanism, markersize=4, **look)
    first = frontier.guarantees[0]
    ax.set(
        xscale="log",
        yscale="log",
        xlabel=f"{first.budget_name} of {type(first).__name__}",
        ylabel="expected KL (nats)",
        title=f"KL of {frontier.measure}, {frontier.n_records} records",
    )
    return legend(ax)
