"""The picture of a comparison: what is on it. How it looks was looked at."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.privacy import plot_comparison

COMPARISON = dirdp.compare(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), prior=np.ones(2), n_records=100, simulations=20)


@pytest.mark.parametrize("column", ["kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger"])
def test_every_mechanism_is_there_in_order(column):
    ax = plot_comparison(COMPARISON, column=column)
    names = [label.get_text().replace("\n", " ").removesuffix(" (infinite)") for label in ax.get_yticklabels()]
    scores = {score.mechanism: getattr(score, column) for score in COMPARISON.scores}
    assert sorted(names) == sorted(set(scores) - {"posterior, not private"})
    values = [scores[name] for name in names]
    assert values == sorted(values)
    points = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    assert points == [value for value in values if np.isfinite(value)]


def test_a_marker_and_a_colour_tell_the_families_apart():
    """A grey print keeps the markers."""
    ax = plot_comparison(COMPARISON, column="l_inf")
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    names = [label.get_text().split(",")[0] for label in ax.get_yticklabels()]
    looks = {name: (point.get_marker(), point.get_color()) for name, point in zip(names, points, strict=True)}
    families = ["Dirichlet", "Gaussian", "Geometric"]
    assert set(families) == set(looks)
    for part in (0, 1):
        assert len({looks[name][part] for name in families}) == len(families)


def test_axes_go_in_and_come_out():
    _, ax = plt.subplots()
    assert plot_comparison(COMPARISON, ax=ax) is ax
    with pytest.raises(ArgumentError, match="kl_posterior"):
        plot_comparison(COMPARISON, column="kl")
