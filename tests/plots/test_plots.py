"""What is on the pictures. How they look was looked at."""

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
from pymc_dirdp.plots.posteriors import plot_analysis, plot_calibration, plot_draw, plot_posteriors
from pymc_dirdp.plots.privacy import plot_comparison, plot_frontier, plot_privacy
from tests.planned import planned_sample
from tests.plots.test_kinds import TARGET, votes

VOTES, LABELS, PRIOR = np.array([20, 40, 60]), ["yes", "no", "abstain"], np.array([1, 2, 3])
MECHANISM = dirdp.mechanisms.DirichletMechanism(np.full(4, 2.7), 0.2)


@pytest.fixture(scope="module")
def release():
    return dirdp.sample(TARGET, votes())


@pytest.fixture(scope="module")
def diagnosis(release):
    return dirdp.diagnose(release, votes(), draws=200)


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def rows(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def intervals(ax):
    """The ends of the intervals of each collection of lines: shape (collections, rows, 2)."""
    return np.array([lines.get_segments() for lines in ax.collections])[..., 0]


# Releases.


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_three_readings_and_the_release(mechanism):
    release = planned_sample(TARGET, votes(prior=PRIOR), mechanism=mechanism)
    ax = plot_analysis(release, prob=0.8)
    prior, naive, aware, shown = intervals(ax)
    np.testing.assert_allclose(prior.T, beta.ppf([[0.1], [0.9]], PRIOR, 6 - PRIOR))
    np.testing.assert_allclose(aware, dirdp.estimate(release, [0.8]).tables["p"].share_intervals[0])
    if mechanism == "geometric":
        counts = np.maximum(release["mechanism/p"]["noisy_counts"].values, 0)
    else:
        counts = 120 * release["posterior"]["p"].values[0, 0]
    np.testing.assert_allclose(shown[:, 0], counts / counts.sum())
    read = counts + PRIOR
    np.testing.assert_allclose(naive.T, beta.ppf([[0.1], [0.9]], read, read.sum() - read), rtol=1e-6)
    assert np.ptp(naive, axis=1).sum() < np.ptp(aware, axis=1).sum()
    means = PRIOR / 6, read / read.sum(), dirdp.estimate(release).tables["p"].share_means
    np.testing.assert_allclose([line.get_xdata() for line in ax.lines[:3]], means)
    assert rows(ax) == LABELS


def test_of_a_beta_the_successes_of_each_row():
    with pm.Model(coords={"department": list("AB")}) as model:
        rate = pm.Beta("rate", 1, 9, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
    # Draws that are far on one side of the data.
    release = dirdp.sample(TARGET, model, mechanism=Dirichlet(strategy="inflate"))
    aware = intervals(plot_analysis(release))[2]
    np.testing.assert_allclose(aware, dirdp.estimate(release, [0.95]).tables["rate"].share_intervals[0, ::2])
    assert_bands(plot_draw(release, prob=0.8), release["posterior"]["rate"], release["mechanism/rate"], [1, 9], 35)
    drawn = plot_posteriors(dirdp.diagnose(release, model, draws=100))
    for ax, label, x, n in zip(drawn, "AB", [10, 20], [30, 40], strict=True):
        points, heights = line(ax, "posterior").get_data()
        np.testing.assert_allclose(heights, beta.pdf(points, 1 + x, 9 + n - x))
        assert ax.get_title() == label


def test_private_numbers_and_priors_of_ones_own():
    release = planned_sample(TARGET, votes(), adjacency="add-remove", n_records=120)
    with pytest.raises(ArgumentError, match="n_prior"):
        plot_analysis(release)
    aware = intervals(plot_analysis(release, n_prior=500, prior=[1e4, 1e4, 1e4]))[2]
    np.testing.assert_allclose(aware.mean(axis=1), 1 / 3, rtol=0.02)


def test_what_cannot_be_shown_is_refused(release, diagnosis):
    for options, words in (({"var_name": "q"}, "var_name"), ({"prob": 1.0}, "prob"), ({"prior": [1, 1]}, "prior")):
        with pytest.raises(ArgumentError, match=words):
            plot_analysis(release, **options)
    wide = votes(range(61))
    many = dirdp.sample(TARGET, wide)
    forty = dirdp.sample(TARGET, votes(range(41)))
    diagnosis_of_many = dirdp.diagnose(many, wide, draws=100)
    for verb, source in ((plot_analysis, forty), (plot_draw, many), (plot_posteriors, diagnosis_of_many)):
        with pytest.raises(ArgumentError, match=r"at most (40|60) can be read"):
            verb(source)
    private = dirdp.sample(TARGET, votes(), adjacency="add-remove", mechanism=Dirichlet(strategy="temper"))
    for shown, options, words in ((private, {}, "n_records"), (release, {"var_name": "q"}, "var_name")):
        with pytest.raises(ArgumentError, match=words):
            plot_draw(shown, **options)
    with pytest.raises(ArgumentError, match="axes to be 3 axes, one for each cell, got 2"):
        plot_posteriors(diagnosis, axes=plt.subplots(1, 2)[1])


def assert_bands(ax, draw, group, prior, n):
    """Bands of 80 %. Oracle: draws for 20,000 tables of the prior; data + error is the draw, the error has no data."""
    (ends,), points = intervals(ax), ax.lines[0].get_xdata()
    np.testing.assert_array_equal(points, draw.values[0, 0])
    rng = np.random.default_rng(3)
    x = rng.multinomial(n, rng.dirichlet(prior, 20_000))
    parameters = float(group["r"]) * x + np.broadcast_to(group["alpha"].values, (len(points), len(prior)))[0]
    drawn = rng.gamma(parameters)
    errors = (drawn / drawn.sum(axis=1, keepdims=True) - x / n)[:, : len(points) if len(prior) > 2 else 1]
    expected = np.clip(points - np.quantile(errors, [0.9, 0.1], axis=0).T.reshape(-1, 2, 1), 0, 1)
    for i, found in enumerate(ends):
        np.testing.assert_allclose(found, expected[i % len(expected), :, i], atol=0.02)


def test_the_band_of_a_draw_is_that_of_the_data_that_the_prior_predicts():
    release = dirdp.sample(TARGET, votes(prior=PRIOR))
    ax = plot_draw(release, prob=0.8)
    assert_bands(ax, release["posterior"]["p"], release["mechanism/p"], PRIOR, 120)
    assert rows(ax) == LABELS


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
@pytest.mark.thorough
def test_the_band_of_a_draw_covers_the_frequencies(mechanism):
    covered = []
    for _ in range(12):
        ((low, high),) = np.moveaxis(intervals(plot_draw(dirdp.sample(TARGET, votes(), mechanism=mechanism))), -1, 1)
        covered += ((low <= VOTES / 120) & (high >= VOTES / 120)).tolist()
        plt.close("all")
    assert np.mean(covered) > 0.7


# A diagnosis.


def test_posteriors_go_into_given_axes(diagnosis, release):
    _, axes = plt.subplots(1, 3)
    found = plot_posteriors(diagnosis, axes=axes)
    assert list(found) == list(axes)
    assert [ax.get_title() for ax in found] == LABELS
    group = release["mechanism/p"]
    a, b = VOTES + 1, float(group["r"]) * VOTES + group["alpha"].values
    for cell, (ax, value) in enumerate(zip(found, release["posterior"]["p"].values[0, 0], strict=True)):
        own, private = ax.lines
        # Both are densities in closed form, and the private posterior is wider.
        for curve, parameters in ((own, a), (private, b)):
            points, heights = curve.get_data()
            np.testing.assert_allclose(
                heights, beta.pdf(points, parameters[cell], parameters.sum() - parameters[cell]), atol=1e-8
            )
        assert np.ptp(private.get_xdata()) > np.ptp(own.get_xdata())
        assert own.get_linestyle() != private.get_linestyle()
        assert ax.collections[0].get_segments()[0][0, 0] == value
    for ax in plot_posteriors(diagnosis):
        assert ax.get_ylim() == pytest.approx((0, 1.08 * max(curve.get_ydata().max() for curve in ax.lines)))


def test_a_density_without_a_bound_leaves_the_others_readable():
    """A Beta(0.3, ...) density is infinite at 0, and set the height of the picture."""
    model = votes(prior=np.full(3, 0.3), counts=[20, 0, 0])
    for ax in plot_posteriors(dirdp.diagnose(dirdp.sample(TARGET, model, mechanism="geometric"), model, draws=100)):
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
    for ax in (*plot_posteriors(diagnosis), *plot_posteriors(diagnosis, axes=given)):
        (mark,) = [text for text in ax.texts if text.get_text() == "confidential"]
        assert darkened(ax, mark) > 100
        assert mark.get_position() == (0.5, 0.5)
    for ax in (plot_draw(release), plot_privacy(release), plot_analysis(release)):
        assert "confidential" not in [text.get_text() for text in ax.texts]
    with pytest.raises(ArgumentError, match="diagnosis"):
        plot_posteriors(diagnosis["private"])


# Privacy and its price.


def test_the_frontier_shows_every_loss():
    grid = [dirdp.ApproxDP(epsilon=e, delta=1e-6) for e in (0.1, 1, 10)]
    frontier = dirdp.privacy_utility(
        grid, prior=np.ones(3), n_records=100, mechanisms=("dirichlet", "geometric", "auto")
    )
    ax = plot_frontier(frontier)
    for name, losses in frontier.expected_kl.items():
        np.testing.assert_allclose(line(ax, name).get_xydata(), np.column_stack([frontier.amounts, losses]))
    pure = dirdp.privacy_utility([dirdp.PureDP(epsilon=1)], prior=np.ones(3), n_records=100)
    assert line(plot_frontier(pure), "gaussian (not attainable)").get_xydata().size == 0


def test_privacy_curves_are_the_mechanisms_own_and_bounds_lie_above():
    ax = plot_privacy(MECHANISM)
    exact, bound = line(ax, "exact").get_xydata(), line(ax, "P2 Theorem 2").get_xydata()
    np.testing.assert_allclose(MECHANISM.delta(exact[:, 0]), exact[:, 1])
    assert np.all(MECHANISM.delta(bound[:, 0]) <= bound[:, 1])
    # From 0 to where delta leaves the picture.
    assert exact[[0, -1], 0] == pytest.approx([0, MECHANISM.epsilon(ax.get_ylim()[0])], rel=1e-6)
    assert ax.get_xlim() == pytest.approx((0, min(bound[:, 0].max(), 3 * exact[-1, 0])))
    ax = plot_privacy(MECHANISM, curve="renyi")
    exact, bound = line(ax, "exact").get_xydata(), line(ax, "P1 Theorem 1").get_xydata()
    np.testing.assert_allclose(MECHANISM.renyi(exact[:, 0]), exact[:, 1])
    assert np.all(MECHANISM.renyi(bound[:, 0]) <= bound[:, 1] * (1 + 1e-12))
    assert exact[0, 0] == pytest.approx(1.01)
    assert np.isinf(MECHANISM.renyi(1.1 * exact[-1, 0]))


def test_a_plan_and_a_bandit_have_a_privacy_curve():
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    for source, what in ((dirdp.plan(TARGET, votes()), "plan, (1, 1e-06)-DP"), (bandit, "bandit, 1-DP")):
        ax = plot_privacy(source)
        assert ax.get_title() == f"Privacy curve: {what}"
        epsilons, deltas = line(ax, "exact").get_data()
        assert np.interp(1.0, epsilons, np.log(deltas), right=-np.inf) <= np.log(1.2e-6)


@pytest.fixture(scope="module")
def comparison():
    return dirdp.compare(TARGET, prior=np.ones(2), n_records=100, simulations=20)


@pytest.mark.parametrize("column", ["kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger"])
def test_every_mechanism_of_a_comparison_is_there_in_order(comparison, column):
    ax = plot_comparison(comparison, column=column)
    names = [name.replace("\n", " ").removesuffix(" (infinite)") for name in rows(ax)]
    scores = {score.mechanism: getattr(score, column) for score in comparison.scores}
    assert sorted(names) == sorted(set(scores) - {"posterior, not private"})
    values = [scores[name] for name in names]
    assert values == sorted(values)
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    shown = {name: value for name, value in zip(names, values, strict=True) if np.isfinite(value)}
    assert [point.get_xdata()[0] for point in points] == [*shown.values()]
    # A marker and a colour tell the families apart; a grey print keeps the markers.
    looks = {(name.split(",")[0], point.get_marker()) for name, point in zip(shown, points, strict=True)}
    colours = {(point.get_marker(), point.get_color()) for point in points}
    assert {name for name, _ in looks} <= {"Dirichlet", "Gaussian", "Geometric"}
    assert len(colours) == len(looks) == len(dict(looks)) == len(dict(colours))
    reference = getattr(comparison.baseline, column)
    shown = [each.get_segments()[0][0, 0] for each in ax.collections if each.get_label() == "posterior, not private"]
    assert shown == ([reference] if reference > 0 else [])
    with pytest.raises(ArgumentError, match="kl_posterior"):
        plot_comparison(comparison, column="kl")


def test_calibration_has_a_line_for_each_reading():
    coverage = {"exact": {0.5: 0.5, 0.95: 0.951}, "naive": {0.5: 0.18, 0.95: 0.49}, "$\\frac": {0.5: 0.4}}
    ax = plot_calibration(coverage)
    for line, rates in zip(ax.lines[1:], coverage.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), list(rates.items()))
    ax.get_figure().draw_without_rendering()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["exact", "naive", r"\$\frac"]
    for wrong in ({}, {key: {0.5: 0.5} for key in "abcdef"}):
        with pytest.raises(ArgumentError, match="readings"):
            plot_calibration(wrong)


# All of them.


def test_lines_are_distinguished_in_grey():
    """At 0.1.0 two of the colours were equally light."""
    # How light a colour is in a grey print, between 0 and 1.
    greys = [float(np.dot(mpl.colors.to_rgb(colour), (0.299, 0.587, 0.114))) for colour in COLOURS]
    assert np.diff(sorted(greys)).min() > 0.08
    assert max(greys) < 0.7  # and all of them from paper
    assert len(set(map(str, DASHES))) == len(set(MARKERS)) == len(COLOURS)


def test_colours_follow_the_style_that_is_set():
    assert style_colours() == COLOURS
    with plt.style.context("seaborn-v0_8-colorblind"):
        assert style_colours() == tuple(mpl.rcParams["axes.prop_cycle"].by_key()["color"][: len(COLOURS)])
    # A dark ground has light letters and lines.
    with plt.style.context("dark_background"):
        ax = plot_calibration({"exact": {0.5: 0.5}})
        assert ax.lines[0].get_color() == ax.title.get_color() == "white"
