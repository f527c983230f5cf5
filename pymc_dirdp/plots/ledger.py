"""What has been spent of a budget."""

from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import visible
from pymc_dirdp.plots.axes import COLOURS, Axes, axes_or_new, labelled_rows, tidy

__all__ = ["plot_ledger"]


def plot_ledger(ledger: Ledger, *, ax: Axes | None = None) -> Axes:
    """A bar for each amount that the ledger limits: spent, left, and the limit as 100 per cent.

    The title says the limit, the number of releases, and whom they are about.

    Parameters
    ----------
    ledger : Ledger
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> ax = plot_ledger(dirdp.Ledger(dirdp.ApproxDP(epsilon=1.0, delta=1e-6)))
    """
    spent, left = ledger.spent, ledger.left
    ax = axes_or_new(ax, figsize=(6, 1.2 + 0.5 * len(spent)))
    names = list(spent)
    shares = [spent[name] / (spent[name] + left[name]) if spent[name] + left[name] > 0 else 0.0 for name in names]
    places = range(len(names))
    ax.barh(places, [1.0] * len(names), color="0.9", height=0.55)
    ax.barh(places, shares, color=COLOURS[0], height=0.55)
    for place, name, share in zip(places, names, shares, strict=True):
        inside = share > 0.55
        ax.annotate(
            f"{spent[name]:.4g} spent, {left[name]:.4g} left",
            (share, place),
            xytext=(-6 if inside else 6, 0),
            textcoords="offset points",
            ha="right" if inside else "left",
            va="center",
            color="white" if inside else "0.2",
            fontsize="small",
        )
    labelled_rows(ax, names)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    many, unit = sum(not entry.reserved for entry in ledger.entries()), ledger.unit
    about = "" if unit is None else f", unit {visible(unit)}"
    # A dollar in the name of a unit is no formula.
    title = f"{ledger.limit}: {many} release{'s' * (many != 1)}{about}"
    # The names of amounts are long and leave little room for the bars, beyond which a title in one line would run.
    ax.set_title(title, fontsize="medium", parse_math=False, wrap=True)
    return tidy(ax)
