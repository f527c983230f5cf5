"""The mechanisms that can keep one guarantee, from the most accurate to the least."""

import math

from pymc_dirdp.checks import one_of
from pymc_dirdp.planning.comparison import Comparison
from pymc_dirdp.plots.axes import COLOURS, MARKERS, Axes, axes_or_new, labelled_rows, tidy

__all__ = ["plot_comparison"]

_LABELS = {
    "kl_posterior": "expected KL, private posterior from posterior (nats)",
    "kl_draw": "expected KL, private draw from frequencies (nats)",
    "kl_estimate": "expected KL, release from frequencies (nats)",
    "l_inf": "expected largest error of a frequency",
    "hellinger": "expected Hellinger distance of frequencies",
}
# The marker and the colour of each family. The markers alone tell them apart in a grey print.
_LOOKS = dict(zip(("Dirichlet", "Gaussian", "Laplace", "Geometric"), zip(MARKERS, COLOURS, strict=True), strict=False))
_LOOKS["Floored draw"] = ("P", "#7b4fa3")
_OTHERS = (MARKERS[-1], COLOURS[-1])


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
    >>> found = dirdp.compare(dirdp.PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50)
    >>> ax = plot_comparison(found, column="kl_draw")
    """
    one_of(_LABELS, column=column)
    known = [score for score in comparison.scores if getattr(score, column) is not None]
    scores = sorted(known, key=lambda score: getattr(score, column))
    ax = axes_or_new(ax, figsize=(7.5, 1.2 + 0.27 * len(scores)))
    values = [getattr(score, column) for score in scores]
    names = []
    for place, (score, value) in enumerate(zip(scores, values, strict=True)):
        marker, colour = _LOOKS.get(score.mechanism.split(",")[0], _OTHERS)
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
    ax.set(xscale="log", xlabel=_LABELS[column], title=f"{comparison.guarantee}, {comparison.adjacency}")
    return tidy(ax)
