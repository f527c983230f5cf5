"""A private bandit in a shop like that of the Open Bandit data (Saito, Aihara, Matsutani and Narita 2020).

`uv run examples/experiments/open_bandit.py --data DIR --out DIR [--quick]` reads `open_bandit.csv.gz` (columns policy,
campaign, item_id, click) and writes `open_bandit.csv` and `open_bandit.png`.

The log itself cannot show learning: 10,000 random impressions of a campaign have 46 clicks, at most four of one item.
Anyone who replays it sees chance. So the log only says what click rates are like. They are drawn near the mean of the
campaign, with the spread that the log makes likeliest, but at least that of 3000 impressions, because the log makes no
spread at all likeliest. Then the shop is simulated for a million visitors.
"""

from dataclasses import replace

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import parser, present
from scipy.optimize import minimize_scalar
from scipy.special import betaln

import pymc_dirdp as dirdp


def shop(log, rng):
    """Click rates of as many items as the log has, from a Beta distribution whose spread is the likeliest one."""
    items = log.groupby("item_id")["click"].agg(["sum", "count"])
    clicks, shown = items["sum"].to_numpy(float), items["count"].to_numpy(float)
    mean = clicks.sum() / shown.sum()

    def misfit(log_size):
        a, b = np.exp(log_size) * mean, np.exp(log_size) * (1 - mean)
        return -np.sum(betaln(a + clicks, b + shown - clicks) - betaln(a, b))

    size = float(np.exp(minimize_scalar(misfit, bounds=(0, np.log(3000)), method="bounded").x))
    return rng.beta(size * mean, size * (1 - mean), len(items)), mean, size


def main():
    chosen = parser(__doc__, data=True).parse_args()
    if not present(chosen.data, ["open_bandit"]):
        print("open_bandit: nothing is written.")
        return
    log = pd.read_csv(chosen.data / "open_bandit.csv.gz")
    log = log[log["policy"] == "random"]
    horizon, n_runs = (10**4, 3) if chosen.quick else (10**6, 50)
    rows, (figure, axes) = [], plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for campaign, ax in zip(("men", "women"), axes, strict=True):
        rates, mean, size = shop(log[log["campaign"] == campaign], np.random.default_rng(20261122))
        print(f"{campaign}: {len(rates)} items, mean {mean:.4f}, worth {size:.0f} impressions, best {rates.max():.4f}")
        runs = []
        for epsilon in (0.1, 1.0, 10.0):
            # Anyone who knows that clicks are seldom may say so: the prior is public.
            bandit = dirdp.ThompsonSampler(range(len(rates)), dirdp.PureDP(epsilon=epsilon), prior=(1, 200))
            one = dirdp.simulate_bandit(bandit, rates, horizon, n_runs, random_seed=1, progressbar=False)
            runs.append(replace(one, name=f"epsilon {epsilon:g}"))
            clicks = horizon * rates.max() - one.regret[:, -1]
            low, median, high = np.quantile(one.regret[:, -1], [0.05, 0.5, 0.95])
            rows.append((campaign, epsilon, low, median, high, float(np.median(clicks)), horizon * rates.mean()))
        dirdp.plots.plot_regret(runs, bound=False, ax=ax)
        lost = float(rates.max() - rates.mean()) * runs[0].checkpoints
        ax.plot(runs[0].checkpoints, lost, color="black", linewidth=1, linestyle=":", label="items at random")
        ax.legend(frameon=False, fontsize="small")
        ax.set(title=f"{campaign}: {len(rates)} items", ylim=(0, None))
    columns = ["campaign", "epsilon", "regret_q05", "regret_median", "regret_q95", "clicks", "clicks_at_random"]
    frame = pd.DataFrame(rows, columns=columns)
    chosen.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(chosen.out / "open_bandit.csv", index=False)
    figure.savefig(chosen.out / "open_bandit.png", dpi=130)
    print(frame.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
