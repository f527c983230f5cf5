"""Axes to draw on, and the few habits that all pictures share."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "DASHES", "MARKERS", "axes_or_new", "marked", "tidy"]

# Of falling lightness, so that a grey print keeps them apart; with them go dashes and markers.
COLOURS = ("#0b1f4d", "#c8452d", "#2a8c82", "#e0a526", "#8a8a8a")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")


def axes_or_new(ax: "Axes | None", **figure: Any) -> "Axes":
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need Matplotlib: pip install 'pymc-dirdp[plots]'") from error
    new: Axes = plt.subplots(layout="constrained", **figure)[1]
    return new


def tidy(ax: "Axes") -> "Axes":
    """Without the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def marked(ax: "Axes") -> "Axes":
    """With the word "confidential" across the picture, where cutting off a margin does not remove it."""
    ax.text(
        *(0.5, 0.5, "confidential"),
        transform=ax.transAxes,
        rotation=25,
        ha="center",
        va="center",
        fontsize="xx-large",
        fontweight="bold",
        color=COLOURS[1],
        alpha=0.4,
        # Upon the picture: clouds and filled areas would hide what is below them.
        zorder=10,
        in_layout=False,
    )
    return ax
