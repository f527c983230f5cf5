"""What takes a release takes the path of one: the answer is the same."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.models.graph import PLAIN
from tests.planned import one_row

RECORDS = {"class": ["cat", "hen"] * 20, "legs": ["four", "two"] * 20}
CATEGORIES = {"class": ["cat", "hen"], "legs": ["two", "four"]}
LEGS, SEEDED = {"legs": RECORDS["legs"]}, {"random_seed": 1}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Each as a tree and as a path."""
    folder = tmp_path_factory.mktemp("releases")
    models = {
        "hair": one_row(),
        "network": dirdp.naive_bayes(LEGS, RECORDS["class"], categories=CATEGORIES),
        # A table of the class alone, which a classifier predicts without features.
        "class": dirdp.bayesian_network(RECORDS, {"class": []}, categories={"class": ["cat", "hen"]}),
    }
    trees = {
        name: dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric") for name, model in models.items()
    }
    for name, tree in trees.items():
        dirdp.save(tree, folder / f"{name}.json")
    return {name: (tree, folder / f"{name}.json") for name, tree in trees.items()}


def tree_of(tree):
    return {node.path: node.to_dataset().to_dict() for node in tree.subtree}


def model_of(model):
    return sorted(model.named_vars), float(model.compile_logp(mode=PLAIN)(model.initial_point(1)))


def picture(ax):
    """All numbers of a picture."""
    lines = [line.get_xydata().tolist() for line in ax.lines]
    points = [part.get_offsets().tolist() for part in ax.collections]
    return lines, points, [text.get_text() for text in ax.get_yticklabels()]


VERBS = {
    "verify": ("hair", lambda r: (bool(dirdp.verify(r)), dirdp.verify(r).recomputed)),
    "report": ("hair", lambda r: str(dirdp.report(r))),
    "statement": ("hair", lambda r: dirdp.statement(r).to_json()),
    "estimate": ("hair", lambda r: str(dirdp.estimate(r))),
    "analyse": ("hair", lambda r: tree_of(dirdp.analyse(r, 50, **SEEDED))),
    "analyse a list": ("hair", lambda r: tree_of(dirdp.analyse([r], 50, **SEEDED))),
    "analyst's model": ("hair", lambda r: model_of(dirdp.releases.analyst_model(r))),
    "logp": ("hair", lambda r: float(dirdp.release_logp(r, np.array([0.5, 0.3, 0.2])).eval(mode=PLAIN))),
    "curves": ("hair", lambda r: dirdp.interop.as_mechanism(r).epsilon(1e-6)),
    "diagnose": ("hair", lambda r: tree_of(dirdp.diagnose(r, one_row(), draws=100, **SEEDED))),
    "plot_draw": ("hair", lambda r: picture(dirdp.plots.plot_draw(r))),
    "predictive": (
        "hair",
        lambda r: dirdp.releases.sample_posterior_predictive(r, n_records=10, **SEEDED).to_dict(),
    ),
    "fit": ("network", lambda r: tree_of(dirdp.fit(r, progressbar=False))),
    "predict": ("network", lambda r: dirdp.predict_log_proba(r, LEGS, target="class", draws=50).to_dict()),
    "log-likelihood": ("network", lambda r: dirdp.log_likelihood(r, RECORDS, draws=50).tolist()),
    "synthetic": ("network", lambda r: dirdp.synthetic(r, n_records=20, **SEEDED).to_dict()),
    "classifier": ("class", lambda r: dirdp.Classifier(r).powers.to_dict()),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_says_what_its_tree_says(releases, verb, tmp_path):
    name, ask = VERBS[verb]
    tree, path = releases[name]
    assert repr(ask(path)) == repr(ask(str(path))) == repr(ask(tree))
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        ask(tmp_path / "nothing.json")
    (tmp_path / "text.json").write_text("mine")
    with pytest.raises(ReleaseError, match=r"text\.json"):
        ask(tmp_path / "text.json")
    plt.close("all")
