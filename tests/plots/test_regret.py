"""Pictures of regret."""

import numpy as np
import pytest

import pymc_dirdp as dirdp


@pytest.fixture
def runs():
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    return dirdp.simulate_bandit(bandit, [0.7, 0.4], 500, 20, random_seed=1, progressbar=False)


def named(ax):
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


def test_policies_of_one_name_are_distinguished_by_their_privacy(runs):
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=0.25))
    other = dirdp.simulate_bandit(bandit, [0.7, 0.4], 500, 20, random_seed=1, progressbar=False)
    labels = [line.get_label() for line in named(dirdp.plots.plot_regret([runs, other], bound=False))]
    assert labels == [f"{runs.name}, epsilon = 1", f"{runs.name}, epsilon = 0.25"]
    assert dirdp.plots.plot_regret([runs], bound=False).lines[0].get_label() == runs.name


def test_in_a_grey_print_the_ends_of_a_band_belong_to_their_line(runs):
    ax = dirdp.plots.plot_regret([runs, runs, runs], bound=False)
    dashes = [line.get_linestyle() for line in named(ax)]
    assert len(set(dashes)) == 3
    ends = [line for line in ax.lines if line.get_label() == "_band"]
    assert [line.get_linestyle() for line in ends] == [dash for dash in dashes for _ in range(2)]
    for line, quantile in zip(ends, [0.05, 0.95] * 3, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.quantile(runs.regret, quantile, axis=0))


def played(**options):
    bandit = dirdp.ThompsonSampler(["a", "b", "c"], dirdp.PureDP(epsilon=1.0), first_batch=50, **options)
    bandit.update(["a"] * 400 + ["b"] * 100, [1, 1, 1, 0] * 100 + [1, 0] * 50)
    return bandit


def test_a_run_of_ones_own_has_the_posterior_of_its_regret():
    """Pulls times gaps, whose posterior is that of the released sums: computed here from draws of `posterior`."""
    bandit = played()
    sizes = bandit.released.to_dataframe().groupby("arm")["size"].sum()
    means = bandit.posterior(20_000)["posterior/mean_reward"].values[0]
    lost = (means.max(axis=1, keepdims=True) - means) * [sizes.get(arm, 0) for arm in bandit.arms]
    expected = np.quantile(np.column_stack([lost, lost.sum(axis=1)]), [0.05, 0.5, 0.95], axis=0)
    for source in (bandit, bandit.transcript()):
        ax = dirdp.plots.plot_regret(source)
        ends = np.array(ax.collections[0].get_segments())[:, :, 0]
        tolerance = {"rtol": 0.1, "atol": 0.5}
        np.testing.assert_allclose(ends.T, expected[[0, 2]], **tolerance)
        np.testing.assert_allclose(ax.lines[0].get_xdata(), expected[1], **tolerance)
        labels = [label.get_text() for label in ax.get_yticklabels()]
        pulls = {"of a": sizes["a"], "of b": sizes["b"], "of c": 0, "in all": sizes.sum()}
        assert labels == [f"{number} pulls {whose}" for whose, number in pulls.items()]
        assert "ten times the rounds" in ax.get_xlabel()
        assert "ten times" not in dirdp.plots.plot_regret(source, bound=False).get_xlabel()


def test_a_picture_leaves_the_next_choices_as_they_are():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        first, second = played(random_seed=1), played(random_seed=1)
    dirdp.plots.plot_regret(first)
    assert first.select(20) == second.select(20)
    first.retire_arm("b")
    rows = dirdp.plots.plot_regret(first).get_yticklabels()
    assert [row.get_text()[-4:] for row in rows] == ["of a", "of b", "of c", " all"]


def test_regret_in_units_of_worth():
    bandit = dirdp.ThompsonSampler(
        ["a", "b"], dirdp.PureDP(epsilon=1.0), utilities={"left": 0.0, "bought": 20.0}, first_batch=50
    )
    bandit.update(["a"] * 100 + ["b"] * 100, ["bought"] * 100 + ["left"] * 100)
    ax = dirdp.plots.plot_regret(bandit)
    assert "worth lost" in ax.get_xlabel()
    assert "ten times" not in ax.get_xlabel()
    assert ax.lines[0].get_xdata()[-1] > 1500


def test_what_has_no_regret_to_show(runs):
    new = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    other = dirdp.simulate_bandit(new, [0.7, 0.3], 500, 20, random_seed=1, progressbar=False)
    approximate = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    everyday = dirdp.ThompsonSampler(["a", "b"], approximate, schedule="every-round", horizon=5)
    wrong = {"simulate_bandit": new, "to use batches": everyday, "one bandit": [runs, other], "at most 5": [runs] * 6}
    for words, source in wrong.items():
        with pytest.raises(dirdp.errors.ArgumentError, match=words):
            dirdp.plots.plot_regret(source)
