"""Every picture of every kind of thing: it is drawn, or the error names the function that draws it."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.plots.axes import is_covered
from pymc_dirdp.plots.kinds import plot_hint

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
VERBS = {name: getattr(dirdp.plots, name) for name in dirdp.plots.__all__}


def votes(labels=("yes", "no", "abstain"), *, prior=None, counts=None):
    counts = 20 * np.arange(1, len(labels) + 1) if counts is None else counts
    with pm.Model(coords={"vote": list(labels)}) as model:
        p = pm.Dirichlet("p", a=np.ones(len(labels)) if prior is None else prior, dims="vote")
        pm.Multinomial("votes", n=np.sum(counts), p=p, observed=counts)
    return model


def beside():
    """Two tables, one of which has one category."""
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        rate, only = pm.Beta("rate", 1, 1, dims="group"), pm.Dirichlet("only", [1.0])
        pm.Binomial("bought", n=[30, 30], p=rate, observed=[10, 20])
        pm.Multinomial("all", n=60, p=only, observed=[60])
    return model


def network():
    frame = {"a": ["x", "y"] * 20, "b": ["p", "p", "q", "q"] * 10}
    return dirdp.bayesian_network(frame, {"a": [], "b": ["a"]}, categories={"a": ["x", "y"], "b": ["p", "q"]})


def run():
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    bandit.update(["a"] * 64 + ["b"] * 64, [1] * 64 + [0, 1] * 32)
    return bandit


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    release = dirdp.sample(TARGET, votes())
    path = tmp_path_factory.mktemp("kinds") / "release.json"
    dirdp.save(release, path)
    bandit = run()
    table = {"prior": [1, 1], "n_records": 100}
    wide = {name: ["x", "y"] * 20 for name in "abc"}
    return {
        "release": release,
        "noisy release": dirdp.sample(TARGET, votes(), mechanism="geometric"),
        "release of long labels": dirdp.sample(TARGET, votes(["a long name of a category " * 4, "$\\frac", "no"])),
        "release of many": dirdp.sample(TARGET, votes(list(map(str, range(30))))),
        "release of two tables": dirdp.sample(TARGET, beside()),
        "release without N": dirdp.sample(TARGET, votes(), adjacency="add-remove", n_records=120),
        "release of marginals": dirdp.sample(TARGET, network(), mechanism="marginals"),
        "release of pairs": dirdp.sample(
            TARGET, dirdp.latent_class(wide, categories={name: ["x", "y"] for name in wide})
        ),
        "path": path,
        "plan": dirdp.plan(TARGET, votes()),
        "diagnosis": dirdp.diagnose(release, votes(), draws=100),
        "diagnosis of two tables": dirdp.diagnose(dirdp.sample(TARGET, beside()), beside(), draws=100),
        "posterior": dirdp.analyse(release, draws=100, progressbar=False),
        "comparison": dirdp.compare(TARGET, simulations=20, progressbar=False, **table),
        "frontier": dirdp.privacy_utility([TARGET], **table),
        "frontier of none": dirdp.privacy_utility([dirdp.PureDP(epsilon=1)], mechanisms=["gaussian"], **table),
        "runs": dirdp.simulate_bandit(bandit, [0.6, 0.4], 500, 20, random_seed=1, progressbar=False),
        "bandit": bandit,
        "transcript": bandit.transcript(),
        "new bandit": dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0)),
        "mechanism": dirdp.mechanisms.GeometricMechanism([1, 1], 2.0),
        "coverage": {"aware": {0.5: 0.5, 0.95: 0.9}},
        "ledger": dirdp.Ledger(TARGET),
        "report": dirdp.report(release),
        "model": votes(),
        "array": np.ones(3),
        "list": [1, 2],
        "number": 3,
        "nothing": None,
    }


RELEASES = {
    *("release", "noisy release", "release of long labels", "release of many", "release of two tables"),
    *("release without N", "release of marginals", "release of pairs", "path"),
}
BANDITS = {"bandit", "transcript", "new bandit"}
# What is drawn of what; of the others an error says what to do.
DRAWN = {
    "plot_analysis": RELEASES - {"release without N", "release of pairs"},
    "plot_draw": RELEASES - {"release of marginals", "release of pairs"},
    "plot_privacy": RELEASES | BANDITS | {"plan", "mechanism"},
    "plot_posteriors": {"diagnosis", "diagnosis of two tables"},
    "plot_comparison": {"comparison"},
    "plot_frontier": {"frontier"},
    "plot_regret": {"runs", "bandit", "transcript"},
    "plot_calibration": {"coverage"},
}


LINEAR, DELTA = ["", "linear", "linear"], ["epsilon (nats)", "delta (probability)", "linear", "log"]
# Of a verb and a thing: the title, texts and scales of the axes; the legend; width and height in inches, and columns.
FIGURES = {
    ("plot_analysis", "noisy release"): (
        ["Means and 95% intervals, (1, 1e-06)-DP", "p (share)", *LINEAR],
        ["prior", "the release treated as the data", "posterior given the release", "the release"],
        [5.5, 3.4, 2],
    ),
    ("plot_draw", "release"): (
        ["Private draw, (1, 1e-06)-DP", "p (share)", *LINEAR],
        ["a priori 90% band for the data's share", "released draw"],
        [5.5, 2.56, 2],
    ),
    ("plot_privacy", "release"): (["Privacy curve: release, (1, 1e-06)-DP", *DELTA], ["exact"], [5.5, 3.6, 1]),
    ("plot_privacy", "mechanism"): (
        ["Privacy curve: Geometric noise of standard deviation 2.799", *DELTA],
        ["exact"],
        [5.5, 3.6, 1],
    ),
    ("plot_posteriors", "diagnosis"): (
        ["yes", "p (share)", *LINEAR],
        ["posterior", "private posterior", "the release"],
        [5.5, 2.6, 3],
    ),
    ("plot_posteriors", "diagnosis of two tables"): (
        ["a", "rate (share)", *LINEAR],
        ["posterior", "private posterior", "the release"],
        [4.4, 2.6, 3],
    ),
    ("plot_comparison", "comparison"): (
        ["(1, 1e-06)-DP, replace-one", "expected KL, private posterior from posterior (nats)", "", "log", "linear"],
        ["Geometric", "Dirichlet", "Gaussian"],
        [5.5, 5.14, 2],
    ),
    ("plot_frontier", "frontier"): (
        [
            "KL of the private posterior from the posterior, 100 records",
            *("epsilon (nats) of ApproxDP at delta = 1e-06", "expected KL (nats)", "log", "log"),
        ],
        ["dirichlet", "gaussian", "geometric"],
        [5.5, 3.6, 1],
    ),
    ("plot_regret", "runs"): (
        [
            "Regret: median of 20 runs, and 5 to 95 % of them",
            *("round", "regret (mean rewards lost)", "log", "linear"),
        ],
        ["private Thompson sampling (geometric)", "least asymptotic slope for epsilon = 1"],
        [5.5, 3.6, 1],
    ),
    ("plot_regret", "bandit"): (
        ["Regret given what was released, 1-DP", "regret in finished batches (mean rewards lost)", *LINEAR],
        ["90% interval", "posterior median"],
        [5.5, 2.86, 2],
    ),
    ("plot_calibration", "coverage"): (
        [
            "Coverage of credible intervals",
            *("nominal coverage (probability)", "share of true values in the intervals", "linear", "linear"),
        ],
        ["aware"],
        [4.2, 4.4, 1],
    ),
}


@pytest.mark.parametrize(("verb", "thing"), FIGURES, ids=[" of ".join(pair) for pair in FIGURES])
def test_what_a_figure_has_beside_its_data(verb, thing, things):
    ax = np.ravel(VERBS[verb](things[thing]))[0]
    figure = ax.get_figure()
    figure.draw_without_rendering()
    texts, entries, (width, height, columns) = FIGURES[verb, thing]
    xlabel = ax.get_xlabel().partition("\nasymptotically, ten times the rounds lose ")[0]
    assert [ax.get_title(), xlabel, ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()] == texts
    (legend,) = figure.legends or [ax.get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == entries
    assert len({text.get_window_extent().x0 for text in legend.get_texts()}) == columns
    assert figure.get_size_inches() == pytest.approx([width, height])
    if verb == "plot_privacy":
        assert ax.get_ylim() == (1e-10, 1.5)
    if verb != "plot_posteriors":
        _, own = plt.subplots()
        assert VERBS[verb](things[thing], ax=own) is own


def test_the_lists_are_complete(things):
    assert set(DRAWN) == set(VERBS) == {verb for verb, _ in FIGURES}
    assert {thing for thing in things if "release" in thing} <= RELEASES
    assert set().union(*DRAWN.values()) <= set(things)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS)
def test_a_picture_or_the_name_of_the_right_function(verb, things):
    for thing, value in things.items():
        needed = set(re.findall(r"plot_\w+", plot_hint(value)))
        if thing in DRAWN[verb]:
            for ax in np.ravel(VERBS[verb](value)):
                assert_readable(ax)
        else:
            with pytest.raises(ArgumentError) as caught:
                VERBS[verb](value)
            assert caught.value.__context__ is None or caught.value.__suppress_context__, thing
            if needed and verb not in needed:
                assert set(re.findall(r"plot_\w+", str(caught.value))) == needed, thing
        plt.close("all")


def assert_readable(ax):
    """Title and labels are there and within the figure, something is drawn, and the legend covers none of it."""
    figure = ax.get_figure()
    figure.draw_without_rendering()
    whole = figure.bbox.padded(1)
    assert ax.get_title()
    assert ax.get_xlabel()
    low, high = sorted(ax.get_ylim())
    rows = [text for place, text in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True) if low <= place <= high]
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *rows):
        if not text.get_text():
            continue
        box = text.get_window_extent()
        assert whole.contains(box.x0, box.y0), text
        assert whole.contains(box.x1, box.y1), text
    assert any(len(line.get_xdata()) for line in ax.lines) or ax.collections
    if (legend := ax.get_legend()) is not None:
        box = legend.get_window_extent()
        assert whole.contains(box.x0, box.y0)
        assert whole.contains(box.x1, box.y1)
        assert not is_covered(ax, box)
