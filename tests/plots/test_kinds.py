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


def votes(labels=("yes", "no", "abstain")):
    counts = 20 * np.arange(1, len(labels) + 1)
    with pm.Model(coords={"vote": list(labels)}) as model:
        p = pm.Dirichlet("p", a=np.ones(len(labels)), dims="vote")
        pm.Multinomial("votes", n=counts.sum(), p=p, observed=counts)
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


def test_the_lists_are_complete(things):
    assert set(DRAWN) == set(VERBS)
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
