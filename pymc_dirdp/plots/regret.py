"""Pictures of the regret of bandits, in simulated runs and in your own run."""

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
    escape,
    ink,
    label_rows,
    legend,
    log_axis,
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
    """Plot the regret of simulated runs against the round, or the regret of each arm in your own run.

    For simulated runs, the line is the median, and the band contains 5 to 95 % of them. The mean is not shown, because
    a single run in thousands that settles on a wrong arm dominates it.

    The true mean rewards of your own run are unknown. The picture shows the posterior of the regret given the released
    numbers, with its median and its central 90 % interval, for each arm and for all arms together. It counts the pulls
    in finished batches, compared with the best of all arms, including retired ones. It is public.

    Parameters
    ----------
    runs : BanditRuns, sequence of them, ThompsonSampler or Transcript
        From :func:`pymc_dirdp.simulate_bandit`, for one bandit, or your own run.
    bound : bool, default True
        Whether to draw the slope of the lower bound for the strictest privacy among the runs, see
        :func:`pymc_dirdp.bandits.bandit_lower_bound`, at the end of its median. The bound is asymptotic. It shows how
        regret grows with the logarithm of the round in the long run, not the height of a line. The picture of your own
        run has the posterior median of the slope in words.
    ax : matplotlib Axes or None
        None creates a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Raises
    ------
    ArgumentError
        If the runs are of different bandits, if there are more than five of them, or if your own run has not released
        a batch yet, or has `schedule="every-round"`, which has no posterior.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> ax = dirdp.plots.plot_regret(runs)

    Your own run, with 200 rewards:

    >>> arms = bandit.select(200)
    >>> bandit.update(arms, [int(arm == "a") for arm in arms])
    >>> ax = dirdp.plots.plot_regret(bandit)
    """
    if isinstance(runs, BanditView):
        return _own_run(runs, ax, bound=bound)
    policies = [runs] if isinstance(runs, BanditRuns) else list(runs) if isinstance(runs, Sequence) else []
    if not all(isinstance(policy, BanditRuns) for policy in policies) or not isinstance(runs, BanditRuns | Sequence):
        refuse("runs from dirdp.simulate_bandit, or a bandit", runs=runs)
    if not policies or any(not np.array_equal(policy.means, policies[0].means) for policy in policies):
        raise ArgumentError("Expected runs of one bandit, with the same true means.")
    if len(policies) > len(MARKERS):
        raise ArgumentError(f"Expected at most {len(MARKERS)} policies in one picture. Draw the others beside it.")
    ax = axes_or_new(ax)
    for colour, dash, policy in zip(style_colours(), DASHES, policies, strict=False):
        low, median, high = np.quantile(policy.regret, [0.05, 0.5, 0.95], axis=0)
        ax.fill_between(policy.checkpoints, low, high, color=colour, alpha=0.15, linewidth=0)
        if len(policies) > 1:
            # Lines at the ends distinguish overlapping bands.
            ends = np.column_stack([low, high])
            ax.plot(policy.checkpoints, ends, color=colour, linestyle=dash, linewidth=0.7, alpha=0.7, label="_band")
        ax.plot(policy.checkpoints, median, color=colour, linestyle=dash, label=_label(policy, policies))
    if bound:
        _draw_slope(policies, ax)
    ax.set_ylim(bottom=0)
    log_axis(ax.xaxis)
    numbers = sorted({len(policy.regret) for policy in policies})
    of_runs = f"{numbers[0]} runs" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} runs"
    tidy(
        ax,
        title=f"Regret: median of {of_runs}, and 5 to 95 % of them",
        xlabel="round",
        ylabel="regret (mean rewards lost)",
    )
    return legend(ax)


def _draw_slope(policies: Sequence[BanditRuns], ax: Axes) -> None:
    """Draw the slope of the lower bound of the most private runs, from a tenth of their rounds on."""
    most_private = min(policies, key=lambda policy: policy.epsilon)
    strictest, means, rounds = most_private.epsilon, most_private.means, most_private.checkpoints
    if np.any((means <= 0) | (means >= 1)):
        return
    end = float(np.median(most_private.regret[:, -1]))
    slope = end + bandit_lower_bound(means, strictest) * np.log(rounds / rounds[-1])
    is_late = (slope >= 0) & (rounds >= rounds[-1] / 10)
    privacy = f"for epsilon = {strictest:.3g}" if np.isfinite(strictest) else "without privacy"
    label = f"least asymptotic slope {privacy}"
    ax.plot(rounds[is_late], slope[is_late], color=ink(), linewidth=1, linestyle=(0, (1, 2)), label=label)


def _label(policy: BanditRuns, policies: Sequence[BanditRuns]) -> str:
    """The name of the policy, with its epsilon if another policy has the same name."""
    if [item.name for item in policies].count(policy.name) == 1:
        return escape(policy.name)
    return f"{escape(policy.name)}, epsilon = {policy.epsilon:.3g}"


# Your own run, in which the true means are unknown, and have a posterior given the released numbers.


def _own_run(bandit: BanditView, ax: Axes | None, *, bound: bool, draws: int = 4000) -> Axes:
    """Plot the posterior of the regret of each arm, and of all arms together."""
    # The draws use released numbers only, so a seed does not affect privacy. The bandit does not change.
    labels, pulls, shares = bandit._released_pulls(draws, np.random.default_rng(20261130))
    if not pulls.any():
        raise ArgumentError(
            "This run has not released a batch yet, so its regret is unknown. simulate_bandit(bandit, means, horizon) "
            "shows the regret of simulated runs of this bandit."
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
    label_rows(ax, [*names, f"{pulls.sum()} pulls in all"])
    ax.set_xlim(0, None)
    unit = "worth" if len(bandit._worth) else "mean rewards"
    tidy(
        ax,
        title=f"Regret given what was released, {abbreviated(bandit.guarantee)}",
        xlabel=f"regret in finished batches ({unit} lost){_slope_text(bandit, shares) if bound else ''}",
    )
    return legend(ax, columns=2, above=True)


def _slope_text(bandit: BanditView, shares: Array) -> str:
    """The posterior median of the lower bound on the regret of ten times the rounds; empty if there is no bound."""
    epsilon = float(bandit.privacy.pure_epsilon)
    if len(bandit._worth) or shares.shape[1] < 2 or not np.isfinite(epsilon):
        return ""
    inside = np.clip(shares[:400], 1e-9, 1 - 1e-9)
    least = np.median([bandit_lower_bound(means, epsilon) for means in inside]) * np.log(10)
    return f"\nasymptotically, ten times the rounds lose {least:.2g} more"
