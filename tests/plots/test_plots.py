"""What is on the pictures. How they look was looked at."""

import inspect

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from scipy.stats import beta

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.plots.axes import COLOURS, DASHES, MARKERS, style_colours

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
VOTES = np.array([60, 40, 20])
MECHANISM = dirdp.mechanisms.DirichletMechanism(np.full(4, 2.7), 0.2)


def votes():
    with pm.Model(coords={"vote": ["yes", "no", "abstain"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(3), dims="vote")
        pm.Multinomial("votes", n=120, p=p, observed=VOTES)
    return model


@pytest.fixture(scope="module")
def release():
    return dirdp.sample(TARGET, votes())


@pytest.fixture(scope="module")
def diagnosis(release):
    return dirdp.diagnose(release, votes(), draws=200)


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_the_frontier_shows_every_loss():
    grid = [dirdp.ApproxDP(epsilon=e, delta=1e-6) for e in (0.1, 1, 10)]
    frontier = dirdp.privacy_utility(
        grid, prior=np.ones(3), n_records=100, mechanisms=("dirichlet", "geometric", "auto")
    )
    _, ax = plt.subplots()
    assert dirdp.plots.plot_frontier(frontier, ax=ax) is ax
    for name, losses in frontier.expected_kl.items():
        np.testing.assert_allclose(line(ax, name).get_xydata(), np.column_stack([frontier.amounts, losses]))
    assert "delta = 1e-06" in ax.get_xlabel()
    pure = dirdp.privacy_utility([dirdp.PureDP(epsilon=1)], prior=np.ones(3), n_records=100)
    assert line(dirdp.plots.plot_frontier(pure), "gaussian (not attainable)").get_xydata().size == 0


def test_privacy_curves_are_the_mechanisms_own_and_bounds_lie_above():
    ax = dirdp.plots.plot_privacy(MECHANISM)
    exact, bound = line(ax, "exact").get_xydata(), line(ax, "P2 Theorem 2").get_xydata()
    np.testing.assert_allclose(MECHANISM.delta(exact[:, 0]), exact[:, 1])
    assert np.all(MECHANISM.delta(bound[:, 0]) <= bound[:, 1])
    ax = dirdp.plots.plot_privacy(MECHANISM, curve="renyi")
    exact = line(ax, "exact").get_xydata()
    bound = line(ax, "P1 Theorem 1").get_xydata()
    np.testing.assert_allclose(MECHANISM.renyi(exact[:, 0]), exact[:, 1])
    assert np.all(MECHANISM.renyi(bound[:, 0]) <= bound[:, 1] * (1 + 1e-12))


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
@pytest.mark.thorough
def test_the_band_of_a_draw_is_public_and_covers_the_frequencies(mechanism):
    covered = []
    for _ in range(12):
        release = dirdp.sample(TARGET, votes(), mechanism=mechanism)
        ax = dirdp.plots.plot_draw(release, prob=0.9)
        (bands,) = ax.collections
        ends = np.array([segment[:, 0] for segment in bands.get_segments()])
        covered += ((ends[:, 0] <= VOTES / 120) & (ends[:, 1] >= VOTES / 120)).tolist()
        points = ax.lines[0].get_xdata()
        np.testing.assert_array_equal(points, release["posterior"]["p"].values[0, 0])
        plt.close(ax.figure)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["yes", "no", "abstain"]
    assert np.mean(covered) > 0.7


def test_bands_need_a_size_and_some_room(release):
    private = dirdp.sample(TARGET, votes(), adjacency="add-remove", mechanism=Dirichlet(strategy="temper"))
    with pytest.raises(ArgumentError, match="n_records"):
        dirdp.plots.plot_draw(private)
    with pytest.raises(ArgumentError, match="var_name"):
        dirdp.plots.plot_draw(release, var_name="q")


def test_posteriors_go_into_given_axes(diagnosis, release):
    _, axes = plt.subplots(1, 3)
    found = dirdp.plots.plot_posteriors(diagnosis, axes=axes)
    assert list(found) == list(axes)
    assert [ax.get_title() for ax in found] == ["yes", "no", "abstain"]
    a = VOTES + 1
    for ax, value, first in zip(found, release["posterior"]["p"].values[0, 0], a, strict=True):
        own, private = ax.lines
        # Both are densities in closed form, and the private posterior is wider.
        points, heights = own.get_data()
        np.testing.assert_allclose(heights, beta.pdf(points, first, a.sum() - first))
        assert np.trapezoid(*private.get_data()[::-1]) == pytest.approx(1, abs=0.01)
        assert np.ptp(private.get_xdata()) > np.ptp(points)
        assert own.get_linestyle() != private.get_linestyle()
        assert ax.collections[0].get_segments()[0][0, 0] == value


def test_a_density_without_a_bound_leaves_the_others_readable():
    """A Beta(0.3, ...) density is infinite at 0, and set the height of the picture."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.full(3, 0.3))
        pm.Multinomial("votes", n=20, p=p, observed=[20, 0, 0])
    found = dirdp.diagnose(dirdp.sample(TARGET, model, mechanism="geometric"), model, draws=100)
    for ax in dirdp.plots.plot_posteriors(found):
        own, private = ax.lines
        assert ax.get_ylim()[1] < 100
        assert len(own.get_xdata()) > 100
        assert len(private.get_xdata()) > 100


def darkened(ax, mark):
    """How many points of the picture the mark changes, inside of the axes."""
    figure = ax.figure
    figure.set_dpi(50)
    box = ax.get_window_extent()
    drawn = []
    for visible in (True, False):
        mark.set_visible(visible)
        figure.canvas.draw()
        whole = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3].astype(int)
        drawn.append(whole[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)])
    mark.set_visible(True)
    return int((np.abs(drawn[0] - drawn[1]).max(axis=-1) > 40).sum())


def test_pictures_of_the_curator_alone_say_that_they_are_confidential(diagnosis, release):
    """In every one of the axes and not in a marginal, upon what is drawn: at 0.1.0 nothing said so."""
    _, given = plt.subplots(1, 3, figsize=(6, 2))
    pictures = [
        *dirdp.plots.plot_posteriors(diagnosis),
        *dirdp.plots.plot_posteriors(diagnosis, axes=given),
    ]
    for ax in pictures:
        (mark,) = [text for text in ax.texts if text.get_text() == "confidential"]
        assert darkened(ax, mark) > 100
        assert mark.get_position() == (0.5, 0.5)
    for ax in (dirdp.plots.plot_draw(release), dirdp.plots.plot_privacy(release)):
        assert "confidential" not in [text.get_text() for text in ax.texts]
    with pytest.raises(ArgumentError, match="diagnosis"):
        dirdp.plots.plot_posteriors(diagnosis["private"])


def grey(colour):
    """How light a colour is in a grey print, between 0 and 1."""
    return float(np.dot(mpl.colors.to_rgb(colour), (0.299, 0.587, 0.114)))


def test_lines_are_distinguished_in_grey():
    """At 0.1.0 two of the colours were equally light."""
    assert np.diff(sorted(map(grey, COLOURS))).min() > 0.08
    assert max(map(grey, COLOURS)) < 0.7  # and all of them from paper
    assert len(set(map(str, DASHES))) == len(set(MARKERS)) == len(COLOURS)


def test_every_picture_has_axes_in_and_out():
    assert len(dirdp.plots.__all__) == 8
    for name in dirdp.plots.__all__:
        assert {"ax", "axes"} & set(inspect.signature(getattr(dirdp.plots, name)).parameters)


def test_colours_follow_the_style_that_is_set():
    assert style_colours() == COLOURS
    with plt.style.context("seaborn-v0_8-colorblind"):
        assert style_colours() == tuple(mpl.rcParams["axes.prop_cycle"].by_key()["color"][: len(COLOURS)])
    # A dark ground has light letters and lines.
    with plt.style.context("dark_background"):
        ax = dirdp.plots.plot_calibration({"exact": {0.5: 0.5}})
        assert ax.lines[0].get_color() == ax.title.get_color() == "white"


def test_labels_are_shown_as_they_are_written():
    ax = dirdp.plots.plot_calibration({"$\\frac": {0.5: 0.5, 0.9: 0.8}})
    ax.get_figure().draw_without_rendering()
    assert ax.get_legend().get_texts()[0].get_text() == r"\$\frac"


def test_a_plan_and_a_bandit_have_a_privacy_curve():
    plan = dirdp.plan(TARGET, votes())
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    for source, what in ((plan, "plan, (1, 1e-06)-DP"), (bandit, "bandit, 1-DP")):
        ax = dirdp.plots.plot_privacy(source)
        assert ax.get_title() == f"Privacy curve: {what}"
        epsilons, deltas = line(ax, "exact").get_data()
        assert np.interp(1.0, epsilons, np.log(deltas), right=-np.inf) <= np.log(1.2e-6)
