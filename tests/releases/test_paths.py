"""What takes a release takes the path of one: the answer is the same."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
FRAME = pd.DataFrame({"class": ["cat", "hen"] * 20, "legs": ["four", "two"] * 20})
CATEGORIES = {"class": ["cat", "hen"], "legs": ["two", "four"]}


def network():
    return dirdp.naive_bayes(FRAME[["legs"]], FRAME["class"], categories=CATEGORIES)


def of_class():
    """A table of the class alone, which a classifier predicts without features."""
    return dirdp.bayesian_network(FRAME, {"class": []}, categories={"class": ["cat", "hen"]})


def hair():
    with pm.Model(coords={"hair": ["black", "brown", "red"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
    return model


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Each as a tree and as a path."""
    folder = tmp_path_factory.mktemp("releases")
    trees = {
        "hair": dirdp.sample(APPROX, hair(), mechanism="geometric"),
        "network": dirdp.sample(APPROX, network(), mechanism="geometric"),
        "class": dirdp.sample(APPROX, of_class(), mechanism="geometric"),
    }
    for name, tree in trees.items():
        dirdp.save(tree, folder / f"{name}.json")
    return {name: (tree, folder / f"{name}.json") for name, tree in trees.items()}


def drawn(ax):
    """All numbers of a picture."""
    lines = [line.get_xydata().tolist() for line in ax.lines]
    points = [part.get_offsets().tolist() for part in ax.collections]
    return repr((lines, points, [text.get_text() for text in ax.get_yticklabels()]))


def logp(release):
    value = dirdp.release_logp(release, np.array([0.5, 0.3, 0.2]))
    return float(value.eval())


def logp_of_model(model):
    return sorted(model.named_vars), float(model.compile_logp()(model.initial_point(1)))


def diagnosis(release):
    return dirdp.diagnose(release, hair(), draws=100, random_seed=1)


VERBS = {
    "verify": ("hair", lambda r: (bool(dirdp.verify(r)), dirdp.verify(r).recomputed, dirdp.verify(r).assumptions)),
    "report": ("hair", lambda r: str(dirdp.report(r))),
    "statement": ("hair", lambda r: str(dirdp.statement(r)) + dirdp.statement(r).to_json()),
    "estimate": ("hair", lambda r: str(dirdp.estimate(r))),
    "analyse": ("hair", lambda r: dirdp.analyse(r, 50, random_seed=1, progressbar=False)),
    "analyse a list": ("hair", lambda r: dirdp.analyse([r], 50, random_seed=1, progressbar=False)),
    "predictive": (
        "hair",
        lambda r: dirdp.releases.sample_posterior_predictive(r, n_records=10, random_seed=1),
    ),
    "fit": ("network", lambda r: dirdp.fit(r, progressbar=False)),
    "predict": ("network", lambda r: dirdp.predict_log_proba(r, FRAME[["legs"]], target="class", draws=50)),
    "predict by the draw": (
        "network",
        lambda r: dirdp.predict_log_proba(r, FRAME[["legs"]], target="class", draws="released"),
    ),
    "log-likelihood": ("network", lambda r: dirdp.log_likelihood(r, FRAME, draws=50)),
    "synthetic": ("network", lambda r: dirdp.synthetic(r, n_records=20, random_seed=1)),
    "classifier": ("class", lambda r: dirdp.Classifier(r).powers),
    "analyst's model": ("hair", lambda r: logp_of_model(dirdp.releases.analyst_model(r))),
    "logp": ("hair", logp),
    "curves": ("hair", lambda r: dirdp.interop.as_mechanism(r).epsilon(1e-6)),
    "diagnose": ("hair", diagnosis),
    "plot_draw": ("hair", lambda r: drawn(dirdp.plots.plot_draw(r))),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_says_what_its_tree_says(releases, verb, tmp_path):
    name, ask = VERBS[verb]
    tree, path = releases[name]
    right = ask(tree)
    for place in (path, str(path)):
        answer = ask(place)
        if isinstance(right, xr.DataTree):
            assert answer.identical(right)
        elif isinstance(right, xr.DataArray | np.ndarray):
            np.testing.assert_array_equal(answer, right)
        elif isinstance(right, pd.DataFrame):
            pd.testing.assert_frame_equal(answer, right)
        else:
            assert answer == right
    for place in (tmp_path / "nothing.json", str(tmp_path / "nothing.json")):
        with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
            ask(place)
    other = tmp_path / "text.json"
    other.write_text("mine")
    with pytest.raises(ReleaseError, match=r"text\.json"):
        ask(other)
    plt.close("all")


def test_a_classifier_takes_the_paths_of_its_files(tmp_path):
    rng = np.random.default_rng(1)
    records = {name: rng.choice(kinds, 10_000, p=[0.3, 0.7]) for name, kinds in CATEGORIES.items()}
    made = dirdp.Classifier.sample(dirdp.ZeroCDP(rho=10.0), records, "class", categories=CATEGORIES)
    assert made.calibration is not None
    for name, tree in (("tables", made.tables), ("calibration", made.calibration)):
        dirdp.save(tree, tmp_path / name)
    again = dirdp.Classifier(tmp_path / "tables", str(tmp_path / "calibration"))
    xr.testing.assert_identical(again.powers, made.powers)
    xr.testing.assert_identical(again.predict_log_proba(FRAME), made.predict_log_proba(FRAME))
    with pytest.raises(FileNotFoundError):
        dirdp.Classifier(tmp_path / "tables", tmp_path / "nothing")
