"""Axes to draw on, and the few habits that all pictures share."""

import itertools
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pymc_dirdp.display import visible

if TYPE_CHECKING:
    import matplotlib.axes

# An alias is evaluated when it is asked for, so that Matplotlib is imported by those alone who draw.
type Axes = matplotlib.axes.Axes

# No two are equally light, so that a grey print keeps them apart; each goes with its dashes and marker.
COLOURS = ("#0b1f4d", "#a8321c", "#2a8c82", "#e0a526", "#8a8a8a")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
# A page of the documentation is so wide, in inches: a wider picture has small letters on a telephone.
WIDTH = 5.5


def axes_or_new(ax: Axes | None, *, height: float = 3.6, width: float = WIDTH) -> Axes:
    """The axes given, or those of a new figure, which is the higher the larger the letters of the style are."""
    if ax is not None:
        return ax
    plt = pyplot()
    new: Axes = plt.subplots(layout="constrained", figsize=(width, height * plt.rcParams["font.size"] / 10))[1]
    return new


def pyplot() -> Any:
    """The module that makes figures, or an ImportError with the line that installs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need Matplotlib: pip install matplotlib") from error
    return plt


def style_colours() -> tuple[Any, ...]:
    """Five colours: those of the style that is set, such as one of ArviZ, or our own where none is."""
    import matplotlib as mpl

    cycle = mpl.rcParams["axes.prop_cycle"]
    styled = cycle.by_key().get("color")
    if not styled or cycle == mpl.rcParamsDefault["axes.prop_cycle"]:
        return COLOURS
    return tuple(itertools.islice(itertools.cycle(styled), len(COLOURS)))


def ink() -> Any:
    """The colour of texts and axes, which is light where a style has a dark ground."""
    return pyplot().rcParams["text.color"]


def plain(text: object) -> str:
    """A text that came from a user, such as a label: it is shown as it is, and a dollar begins no formula."""
    return visible(str(text)).replace("$", r"\$")


def broken(text: object, width: int, *, most_lines: int = 2) -> str:
    """A text of a user in lines of so many characters; what does not fit is cut off."""
    return "\n".join(textwrap.wrap(plain(text), width, max_lines=most_lines, placeholder=" ..."))


def tidy(ax: Axes, **texts: str) -> Axes:
    """The axes without the upper and right side of their frame; titles and labels are broken where a line is full."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(**texts)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_wrap(True)
    return ax


def labelled_rows(ax: Axes, names: Sequence[str], *, width: int = 24) -> None:
    """One row for each name, the first at the top; a long name takes two lines."""
    ax.set_yticks(range(len(names)), [broken(name, width) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def legend(ax: Axes, *, columns: int = 1, above: bool = False) -> Axes:
    """The axes with a small legend where nothing is drawn, in fewer columns if it is wider than they are.

    The picture gets room for it above if there is no such place, or if it is asked for.
    """
    look: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    shown, figure = ax.legend(ncols=columns, **look), cast(Any, ax.get_figure(root=True))
    figure.draw_without_rendering()
    if columns > 1 and shown.get_window_extent().width > ax.get_window_extent().width:
        shown = ax.legend(**look)
        figure.draw_without_rendering()
    # Thick lines and markers reach beyond their points.
    box = shown.get_window_extent().padded(5)
    if above or is_covered(ax, box):
        share = min(box.height / ax.get_window_extent().height, 0.8)
        transform = ax.yaxis.get_transform()
        low, high = transform.transform(np.array(ax.get_ylim()))
        ax.set_ylim(top=float(transform.inverted().transform(np.array([low + (high - low) / (1 - share)]))[0]))
        shown.set_loc("upper left")
    return ax


def is_covered(ax: Axes, box: Any) -> bool:
    """Whether a box, in the units of the screen, covers a line, a band or an interval of the axes."""
    paths: list[tuple[Any, Any]] = [(line.get_path(), line.get_transform()) for line in ax.lines]
    for collection in ax.collections:
        paths += [(path, collection.get_transform()) for path in collection.get_paths()]
    return any(
        transform.transform_path(path).intersects_bbox(box, filled=False)
        for path, transform in paths
        if len(path.vertices)
    )


def log_axis(axis: Any, *, narrow: float = 120.0) -> None:
    """Set a logarithmic axis, with ticks at 1, 2 and 5 where the numbers span less than `narrow`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    if 0 < low < high < narrow * low:
        write: Callable[..., str] = lambda value, _: f"{value:g}"  # noqa: E731
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(write))
        axis.set_minor_formatter(NullFormatter())


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
