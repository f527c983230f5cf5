"""What bandits lose while they learn."""

from collections.abc import Sequence

import numpy as np

from pymc_dirdp.bandits.lower_bound import bandit_lower_bound
from pymc_dirdp.bandits.simulation import BanditRuns
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.axes import COLOURS, DASHES, Axes, axes_or_new, legend

__all__ = ["plot_regret"]


def plot_regret(runs: BanditRuns | Sequence[BanditRuns], *, bound: bool = True, ax: Axes | None = None) -> Axes:
    """Regret against the round: a line at the median of the runs, and a band from 5 to 95 % of them.

    The mean is left out, because a single run in thousands that settles on a wrong arm decides it.

    Parameters
    ----------
    runs : BanditRuns, or sequence of them
        From :func:`pymc_dirdp.simulate_bandit`, for one bandit.
    bound : bool, default True
        Whether to draw the lower bound of the strictest privacy among the runs, see
        :func:`pymc_dirdp.bandits.bandit_lower_bound`. It holds for horizons without end, and may lie above a good
        policy.
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
            # Bands that lie upon each other can be told apart by their ends alone.
            ends = np.column_stack([low, high])
            ax.plot(one.checkpoints, ends, color=colour, linestyle=dash, linewidth=0.7, alpha=0.7, label="_band")
        ax.plot(one.checkpoints, median, color=colour, linestyle=dash, label=_label(one, several))
    rounds = several[0].checkpoints
    strictest = min(one.epsilon for one in several)
    means = several[0].means
    if bound and np.all((means > 0) & (means < 1)):
        least = bandit_lower_bound(means, strictest) * np.log(rounds)
        privacy = f"for epsilon = {strictest:.3g}" if np.isfinite(strictest) else "without privacy"
        ax.plot(rounds, least, color="black", linewidth=1, linestyle=(0, (1, 2)), label=f"lower bound {privacy}")
    ax.set(xscale="log", xlabel="round", ylabel="regret", title="median of the runs, and 5 to 95 % of them")
    ax.set_ylim(bottom=0)
    return legend(ax)


def _label(one: BanditRuns, several: Sequence[BanditRuns]) -> str:
    """The name of the policy, with its privacy if another policy has the same name."""
    if [other.name for other in several].count(one.name) == 1:
        return one.name
    return f"{one.name}, epsilon = {one.epsilon:.3g}"
