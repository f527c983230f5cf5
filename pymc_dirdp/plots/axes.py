"""Axes to draw on, and the few habits that all pictures share."""

from typing import TYPE_CHECKING, Any

from pymc_dirdp.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "DASHES", "MARKERS", "axes_or_new", "tidy"]

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
    except ImportError:
        raise ArgumentError("Pictures need Matplotlib: pip install matplotlib") from None
    new: Axes = plt.subplots(layout="constrained", **figure)[1]
    return new


def tidy(ax: "Axes") -> "Axes":
    """Without the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax
