"""The picture of what a release says: its intervals against those of the functions. How it looks was looked at."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from scipy.stats import beta

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.posteriors import plot_analysis, plot_calibration
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def released(**options):
    with pm.Model(coords={"vote": ["yes", "no", "abstain"]}):
        p = pm.Dirichlet("p", a=[1, 2, 3], dims="vote")
        pm.Multinomial("votes", n=120, p=p, observed=[60, 40, 20])
        return planned_sample(APPROX, **options)


def segments(ax):
    """Ends of the intervals of the prior, the naive and the aware reading, and the places of the release."""
    prior, naive, aware, release = (np.array(lines.get_segments()) for lines in ax.collections)
    return prior[:, :, 0], naive[:, :, 0], aware[:, :, 0], release[:, 0, 0]


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_three_readings_and_the_release(mechanism):
    release = released(mechanism=mechanism)
    _, axes = plt.subplots()
    ax = plot_analysis(release, prob=0.8, ax=axes)
    assert ax is axes
    prior, naive, aware, shown = segments(ax)
    np.testing.assert_allclose(prior[:, 1], beta.ppf(0.9, [1, 2, 3], [5, 4, 3]))
    np.testing.assert_allclose(aware, dirdp.estimate(release, [0.8]).tables["p"].share_intervals[0])
    if mechanism == "geometric":
        counts = np.maximum(release["mechanism/p"]["noisy_counts"].values, 0)
    else:
        counts = 120 * release["posterior"]["p"].values[0, 0]
    np.testing.assert_allclose(shown, counts / counts.sum())
    read = counts + [1, 2, 3]
    np.testing.assert_allclose(naive[:, 0], beta.ppf(0.1, read, read.sum() - read), rtol=1e-6)
    assert np.ptp(naive, axis=1).sum() < np.ptp(aware, axis=1).sum()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["yes", "no", "abstain"]
    assert "confidential" not in [text.get_text() for text in ax.texts]


def test_of_a_beta_the_successes_of_each_row():
    with pm.Model(coords={"department": list("AB")}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        release = dirdp.sample(APPROX)
    aware = segments(plot_analysis(release))[2]
    expected = dirdp.estimate(release, [0.95]).tables["rate"].share_intervals[0, ::2]
    np.testing.assert_allclose(aware, expected)


def test_private_numbers_and_priors_of_ones_own():
    release = released(adjacency="add-remove", n_records=120)
    with pytest.raises(ArgumentError, match="n_prior"):
        plot_analysis(release)
    aware = segments(plot_analysis(release, n_prior=500, prior=[1e4, 1e4, 1e4]))[2]
    np.testing.assert_allclose(aware.mean(axis=1), 1 / 3, rtol=0.02)


def test_what_cannot_be_shown_is_refused():
    for options, words in (({"var_name": "q"}, "var_name"), ({"prob": 1.0}, "prob"), ({"prior": [1, 1]}, "prior")):
        with pytest.raises(ArgumentError, match=words):
            plot_analysis(released(), **options)
    with pm.Model():
        p = pm.Dirichlet("p", a=np.ones(41))
        pm.Multinomial("x", n=82, p=p, observed=np.full(41, 2))
        wide = dirdp.sample(APPROX)
    with pytest.raises(ArgumentError, match="at most 40"):
        plot_analysis(wide)


def test_calibration_has_a_line_for_each_reading():
    coverage = {"exact": {0.5: 0.5, 0.95: 0.951}, "naive": {0.5: 0.18, 0.95: 0.49}}
    _, axes = plt.subplots()
    ax = plot_calibration(coverage, ax=axes)
    assert ax is axes
    for line, (label, rates) in zip(ax.lines[1:], coverage.items(), strict=True):
        assert line.get_label() == label
        np.testing.assert_array_equal(line.get_xydata(), list(rates.items()))
    for wrong in ({}, {key: {0.5: 0.5} for key in "abcdef"}):
        with pytest.raises(ArgumentError, match="readings"):
            plot_calibration(wrong)
