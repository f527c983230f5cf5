"""Pictures of what bandits lose while they learn: simulated runs, and a run of one's own."""

from collections.abc import Sequence

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.bandits.simulation import BanditRuns, bandit_lower_bound
from pymc_dirdp.bandits.view import BanditView
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.axes import (
    DASHES,
    MARKERS,
    Axes,
    axes_or_new,
    ink,
    labelled_rows,
    legend,
    log_axis,
    plain,
    style_colours,
    tidy,
)
from pymc_dirdp.plots.kinds import refuse
from pymc_dirdp.releases.wording import abbreviated
from pymc_dirdp.signatures import user_facing


@user_facing
def plot_regret(
    runs: BanditRuns | Sequence[BanditRuns] | BanditView, *, bound: bool = True, ax: Axes | None = None
) -> Axes:
    """Regret of simulated runs against the round, or what each arm of your own run has cost so far.

    Of simulated runs the line is the median, and the band goes from 5 to 95 % of them. The mean is left out, because a
    single run in thousands that settles on a wrong arm decides it.

    Of your own run nobody knows the true mean rewards. The picture shows the posterior of the regret given what was
    released: for each arm, and for all of them, its median and its central 90 % interval. It counts the pulls in
    finished batches, against the best of all arms, retired ones included. It is public.

    Parameters
    ----------
    runs : BanditRuns, sequence of them, ThompsonSampler or Transcript
        From :func:`pymc_dirdp.simulate_bandit`, for one bandit; or a run of your own.
    bound : bool, default True
        Whether to draw the slope that the lower bound has with the strictest privacy among the runs, see
        :func:`pymc_dirdp.bandits.bandit_lower_bound`, at the end of its median. The bound is asymptotic: it says how
        regret grows with the logarithm of the round in the long run, and nothing of the height of a line. The picture
        of your own run has the slope in words, as its posterior median.
    ax : matplotlib Axes or None
        None makes a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ArgumentError
        If the runs are of different bandits, or there are more than five; or if your own run has released nothing yet,
        or has `schedule="every-round"`, which has no posterior.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> ax = dirdp.plots.plot_regret(runs)

    A run of your own, with 200 rewards:

    >>> arms = bandit.select(200)
    >>> bandit.update(arms, [int(arm == "a") for arm in arms])
    >>> ax = dirdp.plots.plot_regret(bandit)
    """
    if isinstance(runs, BanditView):
        return _own_run(runs, ax, bound=bound)
    several = [runs] if isinstance(runs, BanditRuns) else list(runs) if isinstance(runs, Sequence) else []
    if not all(isinstance(one, BanditRuns) for one in several) or not isinstance(runs, BanditRuns | Sequence):
        refuse("runs from dirdp.simulate_bandit, or a bandit", runs=runs)
    if not several or any(not np.array_equal(one.means, several[0].means) for one in several):
        raise ArgumentError("Expected runs of one bandit, with the same true means.")
    if len(several) > len(MARKERS):
        raise ArgumentError(f"Expected at most {len(MARKERS)} policies in one picture. Draw the others beside it.")
    ax = axes_or_new(ax)
    for colour, dash, one in zip(style_colours(), DASHES, several, strict=False):
        low, median, high = np.quantile(one.regret, [0.05, 0.5, 0.95], axis=0)
        ax.fill_between(one.checkpoints, low, high, color=colour, alpha=0.15, linewidth=0)
        if len(several) > 1:
            # Bands that lie upon each other differ at their ends alone.
            ends = np.column_stack([low, high])
            ax.plot(one.checkpoints, ends, color=colour, linestyle=dash, linewidth=0.7, alpha=0.7, label="_band")
        ax.plot(one.checkpoints, median, color=colour, linestyle=dash, label=_label(one, several))
    if bound:
        _draw_slope(several, ax)
    ax.set_ylim(bottom=0)
    log_axis(ax.xaxis)
    numbers = sorted({len(one.regret) for one in several})
    of_runs = f"{numbers[0]} runs" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} runs"
    tidy(
        ax,
        title=f"Regret: median of {of_runs}, and 5 to 95 % of them",
        xlabel="round",
        ylabel="regret (mean rewards lost)",
    )
    return legend(ax)


def _draw_slope(several: Sequence[BanditRuns], ax: Axes) -> None:
    """The slope of the lower bound, in the last tenth of the rounds of the most private runs."""
    most_private = min(several, key=lambda one: one.epsilon)
    strictest, means, rounds = most_private.epsilon, most_private.means, most_private.checkpoints
    if np.any((means <= 0) | (means >= 1)):
        return
    end = float(np.median(most_private.regret[:, -1]))
    slope = end + bandit_lower_bound(means, strictest) * np.log(rounds / rounds[-1])
    late = (slope >= 0) & (rounds >= rounds[-1] / 10)
    privacy = f"for epsilon = {strictest:.3g}" if np.isfinite(strictest) else "without privacy"
    label = f"least asymptotic slope {privacy}"
    ax.plot(rounds[late], slope[late], color=ink(), linewidth=1, linestyle=(0, (1, 2)), label=label)


def _label(one: BanditRuns, several: Sequence[BanditRuns]) -> str:
    """The name of the policy, with its privacy if another policy has the same name."""
    if [other.name for other in several].count(one.name) == 1:
        return plain(one.name)
    return f"{plain(one.name)}, epsilon = {one.epsilon:.3g}"


# A run of one's own: the true means are unknown, and what was released says how likely they are.


def _own_run(bandit: BanditView, ax: Axes | None, *, bound: bool, draws: int = 4000) -> Axes:
    """What the pulls of each arm have cost, and those of all arms."""
    # The draws are made of released numbers, so a seed is harmless; the bandit's own numbers stay as they are.
    labels, pulls, shares = bandit._released_pulls(draws, np.random.default_rng(20261130))
    if not pulls.any():
        raise ArgumentError(
            "This run has released no batch yet, so nothing is known of its regret. simulate_bandit(bandit, means, "
            "horizon) shows what runs of this bandit lose."
        )
    gaps = shares.max(axis=1, keepdims=True) - shares
    lost = pulls * gaps * bandit._worth.span
    rows = np.column_stack([lost, lost.sum(axis=1)])
    low, median, high = np.quantile(rows, [0.05, 0.5, 0.95], axis=0)
    places, colours = np.arange(rows.shape[1]), style_colours()
    ax = axes_or_new(ax, height=1.9 + 0.32 * len(places))
    ax.hlines(places, low, high, color=colours[0], linewidth=2, label="90% interval")
    ax.plot(median, places, "o", color=colours[0], markersize=5, label="posterior median")
    names = [f"{number} pulls of {label}" for label, number in zip(labels, pulls.tolist(), strict=True)]
    labelled_rows(ax, [*names, f"{pulls.sum()} pulls in all"])
    ax.set_xlim(0, None)
    unit = "worth" if len(bandit._worth) else "mean rewards"
    tidy(
        ax,
        title=f"Regret given what was released, {abbreviated(bandit.guarantee)}",
        xlabel=f"regret in finished batches ({unit} lost){_slope_in_words(bandit, shares) if bound else ''}",
    )
    return legend(ax, columns=2, above=True)


def _slope_in_words(bandit: BanditView, shares: Array) -> str:
    """The lower bound on what ten times the rounds lose, as its posterior median; nothing where there is no bound."""
    epsilon = float(bandit.privacy.pure_epsilon)
    if len(bandit._worth) or shares.shape[1] < 2 or not np.isfinite(epsilon):
        return ""
    inside = np.clip(shares[:400], 1e-9, 1 - 1e-9)
    least = np.median([bandit_lower_bound(means, epsilon) for means in inside]) * np.log(10)
    return f"\nasymptotically, ten times the rounds lose {least:.2g} more"
