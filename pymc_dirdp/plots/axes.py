"""Axes to draw on, and the style that all pictures share."""

import itertools
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pymc_dirdp.display import escape_invisible

if TYPE_CHECKING:
    import matplotlib.axes

# An alias is evaluated on first use, so that Matplotlib is imported only to draw.
type Axes = matplotlib.axes.Axes

# They differ in lightness, so that a grey print distinguishes them. Each has its own dashes and marker.
COLOURS = ("#0b1f4d", "#a8321c", "#2a8c82", "#e0a526", "#8a8a8a")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
# The width of a page of the documentation, in inches. A wider picture would have small letters on a phone.
WIDTH = 5.5


def axes_or_new(ax: Axes | None, *, height: float = 3.6, width: float = WIDTH) -> Axes:
    """The axes, or those of a new figure, whose height increases with the font size of the style."""
    if ax is not None:
        return ax
    plt = pyplot()
    axes: Axes = plt.subplots(layout="constrained", figsize=(width, height * plt.rcParams["font.size"] / 10))[1]
    return axes


def pyplot() -> Any:
    """Matplotlib's module for figures, or an ImportError with the command that installs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need Matplotlib: pip install matplotlib") from error
    return plt


def style_colours() -> tuple[Any, ...]:
    """Five colours, from the current style, such as one of ArviZ, or the default colours without a style."""
    import matplotlib as mpl

    cycle = mpl.rcParams["axes.prop_cycle"]
    styled = cycle.by_key().get("color")
    if not styled or cycle == mpl.rcParamsDefault["axes.prop_cycle"]:
        return COLOURS
    return tuple(itertools.islice(itertools.cycle(styled), len(COLOURS)))


def ink() -> Any:
    """The colour of texts and axes, which is light in a style with a dark background."""
    return pyplot().rcParams["text.color"]


def escape(text: object) -> str:
    """A text of a user, such as a label, with escaped dollar signs, which would begin a formula."""
    return escape_invisible(str(text)).replace("$", r"\$")


def wrap(text: object, width: int, *, most_lines: int = 2) -> str:
    """A text of a user, wrapped to lines of a maximum width. Text that does not fit is cut off."""
    return "\n".join(textwrap.wrap(escape(text), width, max_lines=most_lines, placeholder=" ..."))


def tidy(ax: Axes, **texts: str) -> Axes:
    """The axes without the upper and right side of their frame. Titles and labels are wrapped."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(**texts)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_wrap(True)
    return ax


def label_rows(ax: Axes, names: Sequence[str], *, width: int = 24) -> None:
    """Label one row for each name, the first at the top. A long name takes two lines."""
    ax.set_yticks(range(len(names)), [wrap(name, width) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def legend(ax: Axes, *, columns: int = 1, above: bool = False) -> Axes:
    """The axes with a small legend in an empty place, in a single column if more columns do not fit.

    Without an empty place, or with `above`, the axes are extended at the top.
    """
    look: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    entries, figure = ax.legend(ncols=columns, **look), cast(Any, ax.get_figure(root=True))
    figure.draw_without_rendering()
    if columns > 1 and entries.get_window_extent().width > ax.get_window_extent().width:
        entries = ax.legend(**look)
        figure.draw_without_rendering()
    # Thick lines and markers extend beyond their points.
    extent = entries.get_window_extent().padded(5)
    if above or is_covered(ax, extent):
        share = min(extent.height / ax.get_window_extent().height, 0.8)
        transform = ax.yaxis.get_transform()
        low, high = transform.transform(np.array(ax.get_ylim()))
        ax.set_ylim(top=float(transform.inverted().transform(np.array([low + (high - low) / (1 - share)]))[0]))
        entries.set_loc("upper left")
    return ax


def is_covered(ax: Axes, box: Any) -> bool:
    """Whether a box, in units of the display, covers a line, a band or an interval of the axes."""
    paths: list[tuple[Any, Any]] = [(line.get_path(), line.get_transform()) for line in ax.lines]
    for collection in ax.collections:
        paths += [(path, collection.get_transform()) for path in collection.get_paths()]
    return any(
        transform.transform_path(path).intersects_bbox(box, filled=False)
        for path, transform in paths
        if len(path.vertices)
    )


def log_axis(axis: Any, *, narrow: float = 120.0) -> None:
    """Make an axis logarithmic, with ticks at 1, 2 and 5 if its limits differ by less than a factor of `narrow`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    if 0 < low < high < narrow * low:
        write: Callable[..., str] = lambda value, _: f"{value:g}"  # noqa: E731
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(write))
        axis.set_minor_formatter(NullFormatter())


def mark_confidential(ax: Axes) -> Axes:
    """The axes with the word "confidential" across the picture, where cropping does not remove it."""
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
        # In front of filled areas, which would hide the word.
        zorder=10,
        in_layout=False,
    )
    return ax
