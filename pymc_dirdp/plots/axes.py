"""Axes to draw on, and the few habits that all pictures share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib.axes

# An alias is evaluated when it is asked for, so that Matplotlib is imported by those alone who draw.
type Axes = matplotlib.axes.Axes

# No two are equally light, so that a grey print keeps them apart; each goes with its dashes and marker.
COLOURS = ("#0b1f4d", "#a8321c", "#2a8c82", "#e0a526", "#8a8a8a")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")


def axes_or_new(ax: Axes | None, **figure: Any) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    new: Axes = pyplot().subplots(layout="constrained", **figure)[1]
    return new


def pyplot() -> Any:
    """The module that makes figures, or an ImportError with the line that installs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need Matplotlib: pip install matplotlib") from error
    return plt


def tidy(ax: Axes) -> Axes:
    """The axes without the upper and right side of their frame."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def labelled_rows(ax: Axes, names: Sequence[str]) -> None:
    """One row for each name, the first at the top."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def legend(ax: Axes) -> Axes:
    """The axes with a small legend, tidied."""
    ax.legend(frameon=False, fontsize="small")
    return tidy(ax)


def marked(ax: Axes) -> Axes:
    """The axes with the word "confidential" across the picture, where cutting off an edge does not remove it."""
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
        # The word lies upon the picture: clouds and filled areas would hide what is below them.
        zorder=10,
        in_layout=False,
    )
    return ax
