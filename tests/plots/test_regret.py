"""Pictures of regret."""

import numpy as np
import pytest

import pymc_dirdp as dirdp

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def runs():
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    return dirdp.simulate_bandit(bandit, [0.7, 0.4], 500, 20, random_seed=1, progressbar=False)


def named(ax):
    """The lines of a legend."""
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_a_line_a_band_and_the_slope_of_the_lower_bound(runs):
    """The bound is asymptotic: drawn as a height it lay above a good policy, for 20,000 rounds."""
    ax = dirdp.plots.plot_regret(runs)
    median, slope = ax.lines
    assert median.get_ydata() == pytest.approx(np.median(runs.regret, axis=0))
    rounds, heights = slope.get_data()
    assert heights[-1] == pytest.approx(median.get_ydata()[-1])
    assert rounds[0] >= 50
    least = dirdp.bandits.bandit_lower_bound([0.7, 0.4], runs.epsilon)
    assert np.diff(heights) == pytest.approx(least * np.diff(np.log(rounds)))
    assert "slope" in slope.get_label()
    assert len(ax.collections) == 1
    assert len(named(dirdp.plots.plot_regret([runs, runs], bound=False))) == 2
    assert "median of 20 runs" in str(runs)
    plt.close("all")


def test_policies_of_one_name_are_distinguished_by_their_privacy(runs):
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=0.25))
    other = dirdp.simulate_bandit(bandit, [0.7, 0.4], 500, 20, random_seed=1, progressbar=False)
    labels = [line.get_label() for line in named(dirdp.plots.plot_regret([runs, other], bound=False))]
    assert labels == [f"{runs.name}, epsilon = 1", f"{runs.name}, epsilon = 0.25"]
    assert dirdp.plots.plot_regret([runs], bound=False).lines[0].get_label() == runs.name
    plt.close("all")


def test_in_a_grey_print_the_ends_of_a_band_belong_to_their_line(runs):
    ax = dirdp.plots.plot_regret([runs, runs, runs], bound=False)
    dashes = [line.get_linestyle() for line in named(ax)]
    assert len(set(dashes)) == 3
    ends = [line for line in ax.lines if line.get_label() == "_band"]
    assert [line.get_linestyle() for line in ends] == [dash for dash in dashes for _ in range(2)]
    for line, quantile in zip(ends, [0.05, 0.95] * 3, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.quantile(runs.regret, quantile, axis=0))
    plt.close("all")


def test_runs_of_different_bandits_are_not_compared(runs):
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    other = dirdp.simulate_bandit(bandit, [0.7, 0.3], 500, 20, random_seed=1, progressbar=False)
    with pytest.raises(dirdp.errors.ArgumentError, match="one bandit"):
        dirdp.plots.plot_regret([runs, other])
    with pytest.raises(dirdp.errors.ArgumentError, match="at most 5"):
        dirdp.plots.plot_regret([runs] * 6)
