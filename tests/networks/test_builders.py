"""Naive Bayes and Bayesian networks: the models."""

import itertools
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.counting import tables as families
from tests.planned import counts_of

RNG = np.random.default_rng(5)
N = 400
CLASS = RNG.choice(["cat", "dog", "hen"], N, p=[0.5, 0.3, 0.2])
FRAME = pd.DataFrame(
    {
        "class": CLASS,
        "legs": np.where(CLASS == "hen", 2, 4),
        "size": np.where(RNG.random(N) < np.where(CLASS == "dog", 0.8, 0.2), "large", "small"),
    }
)
CATEGORIES = {"class": ["cat", "dog", "hen"], "legs": [2, 4], "size": ["small", "large", "huge"]}
NETWORK = {"size": ["class", "legs"], "class": [], "legs": ["class"]}
PAIRS = [("class", "size"), ("legs", "size"), ("class", "legs")]
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
# A view of networkx is a mapping from nodes or edges to dicts of attributes or neighbours, and no dict.
View = MappingProxyType
A_VIEW = r"got a mappingproxy, a view of a graph\. Pass the graph itself"


def bayes(X=FRAME, y=CLASS, **options):
    return dirdp.naive_bayes(X, y, **{"categories": CATEGORIES} | options)


def network(structure=NETWORK, **options):
    return dirdp.bayesian_network(FRAME, structure, **{"categories": CATEGORIES} | options)


def listed(model):
    return {name: counts.tolist() for name, counts in counts_of(model).items()}


def graph(directed=True, edges=(("class", "legs"),), **more):
    return SimpleNamespace(nodes=["class", "legs", "size"], edges=edges, is_directed=lambda: directed, **more)


def test_networks_hold_every_configuration_of_the_parents_however_the_structure_is_written():
    model = network()
    counts = counts_of(model)
    assert counts["p_size"].shape == (3, 2, 3)
    for (i, c), (j, n), (k, s) in itertools.product(*(enumerate(CATEGORIES[v]) for v in ("class", "legs", "size"))):
        here = (FRAME["class"] == c) & (FRAME["legs"] == n) & (FRAME["size"] == s)
        assert counts["p_size"][i, j, k] == here.sum()
    assert model.named_vars_to_dims["p_size"] == ("class", "legs", "size")
    for same in ({name: tuple(parents) for name, parents in NETWORK.items()}, PAIRS, graph(edges=PAIRS)):
        assert listed(network(same)) == listed(model)
    # Naive Bayes is Pr[feature | class] (ERRATA P1.2), also for a size that nobody has. Oracle: pandas.crosstab.
    by_hand = pd.crosstab(FRAME["class"], FRAME["size"]).reindex(columns=CATEGORIES["size"], fill_value=0)
    np.testing.assert_array_equal(counts_of(bayes())["p_size"], by_hand)
    assert listed(bayes()) == listed(network({"class": [], "legs": ["class"], "size": ["class"]}))
    assert dirdp.plan(TARGET, bayes(), mechanism="geometric").objective == "estimate"


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"class": ["legs"], "legs": ["class"]}, "cycle: (class -> legs -> class|legs -> class -> legs)"),
        ({"class": ["tail"]}, "not a variable of the structure"),
        ({"class": [], "legs": ["class", "class"]}, "the same parent twice"),
        ({"class": "legs", "legs": []}, "list of names"),
        ({}, "at least one variable"),
        (["class"], "parent, child"),
        (None, "got None"),
        ({"class": [], "p_class": []}, "Rename"),
        # Found by attack: `G.nodes` had no arrows, and `G.adj` all of them the wrong way round, without a word.
        (View({("class", "legs"): {}}), A_VIEW),
        (View({"class": {"legs": {}}, "legs": {}}), A_VIEW),
        (View({"class": View({"legs": {}}), "legs": View({})}), A_VIEW),
        (graph(False), "directed graph, got a SimpleNamespace"),
        (graph(edges=View({("class", "legs", 0): {}}), is_multigraph=lambda: True), r"edges\. Pass networkx.DiGraph\("),
    ],
)
def test_what_is_no_structure(structure, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        network(structure)


def test_priors_by_variable():
    tables = dirdp.tables(network(prior={"size": [1.0, 2.0, 3.0], "class": 0.5}))
    priors = {table.name: table.prior for table in tables}
    np.testing.assert_array_equal(priors["p_size"], np.broadcast_to([1.0, 2.0, 3.0], (3, 2, 3)))
    np.testing.assert_array_equal(priors["p_class"], [0.5] * 3)
    np.testing.assert_array_equal(priors["p_legs"], np.ones((3, 2)))


def test_large_counts_are_preserved(monkeypatch):
    """PyMC stores integer arrays in 32 bits, which 3e9 records of one value would pass."""
    many = 3_000_000_001
    monkeypatch.setattr(families, "tabulate", lambda columns, shape, times: np.full(shape, many, dtype=np.int64))
    for counts in counts_of(bayes()).values():
        np.testing.assert_array_equal(counts, np.full(counts.shape, float(many)))


def test_the_class_is_a_column_of_the_features_or_has_the_name_that_is_given():
    expected = listed(bayes())
    assert listed(bayes(y="class")) == expected
    named = {"kind" if name == "class" else name: labels for name, labels in CATEGORIES.items()}
    for y, options in ((FRAME["class"].rename("kind"), {}), (CLASS.tolist(), {"target": "kind"})):
        model = bayes(y=y, categories=named, **options)
        assert listed(model)["p_kind"] == expected["p_class"]
        assert model.named_vars_to_dims["p_size"] == ("kind", "size")


def of_name(name):
    return bayes({name: [0, 1]}, ["cat", "dog"], categories={"class": ["cat", "dog"], name: [0, 1]})


def of_labels(labels):
    return dirdp.bayesian_network({"x": labels}, {"x": []}, categories={"x": labels})


WRONG = {
    r"prior\['size'\] to broadcast": lambda: bayes(prior={"size": [1.0, 2.0]}),
    "> 0": lambda: bayes(prior=0.0),
    "prior has 'sise'": lambda: bayes(prior={"sise": 2.0}),
    "different lengths": lambda: bayes(y=CLASS[:-1]),
    "'size'": lambda: bayes(categories=CATEGORIES | {"size": ["small", "huge"]}),
    "target=": lambda: bayes(categories={"legs": [2, 4]}),
    r"categories\['spam'\] to list the classes": lambda: bayes(y="spam"),
    "no column 'class'": lambda: bayes({"size": [], "legs": []}, "class"),
    "target='size' name different columns": lambda: bayes(y="class", target="size"),
    "at least one feature": lambda: bayes(categories={"class": CATEGORIES["class"]}),
    "'class'.*not a feature": lambda: bayes(structure={"class": ["legs"]}),
    "'tail'.*not a feature": lambda: bayes(structure={"tail": ["legs"]}),
    "parent": lambda: bayes(structure={"legs": ["tail"]}),
    "PyMC reserves": lambda: of_name("chain"),
    "'p_class' is a variable and also the table of 'class'": lambda: of_name("p_class"),
    "'n_class' is a variable and also the table of 'class'": lambda: of_name("n_class"),
    "a, b, c has 1000000000 cells": lambda: dirdp.bayesian_network(
        {}, {"a": [], "b": [], "c": ["a", "b"]}, categories={name: range(1000) for name in "abc"}
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_model_is_refused(message):
    with pytest.raises(dirdp.errors.DirdpError, match=message):
        WRONG[message]()


def test_names_and_labels_that_a_model_keeps_or_cannot_keep():
    """As coords 1 and "1" would be one text, and no record would be found in the release."""
    for names, message in (
        (("a/b", "", "..", "a\\b", 1), "without '/'"),
        (("a\n", "\x1b[2J", "a\0", "\ud800"), "control"),
    ):
        for name in names:
            with pytest.raises(dirdp.errors.ArgumentError, match=message):
                of_name(name)
    for labels in ([1, 2.5], [False, True], ["1", "2"], [2, 1]):
        assert list(of_labels(labels).coords["x"]) == labels
    for labels in ([1, "1"], ["True", True], [(0, 1), (1, 2)], [(0,), (0, 1)], [2**64, 1], [1j, 2]):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"categories\['x'\] to be .*texts or"):
            of_labels(labels)
    for label in ("a\nb", "a\x1b[2J", "\ud800", "a\x9b"):
        with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"labels of the dim 'x' .* hold control"):
            of_labels([label, "b"])


def test_a_parent_with_one_label_divides_nothing():
    records = {"a": list("xyxy"), "only": list("kkkk"), "other": list("kkkk"), "c": list("ppqq")}
    categories = {"a": ["x", "y"], "only": ["k"], "other": ["k"], "c": ["p", "q"]}
    structure = {"a": [], "only": ["a"], "c": ["only", "a"]}
    model = dirdp.bayesian_network(records, structure, categories=categories)
    assert model.named_vars_to_dims["p_c"] == ("a", "c")
    release = dirdp.sample(TARGET, model, mechanism="geometric")
    asked = {"a": ["x", "y"], "only": ["k", "k"]}
    assert dirdp.predict_log_proba(release, asked, target="c").shape == (2, 2)
    assert np.isfinite(dirdp.log_likelihood(release, records)).all()
    # Where no parent divides anything, one of them stays.
    alone = {"only": [], "other": [], "c": ["only", "other"]}
    model = dirdp.bayesian_network(records, alone, categories=categories)
    assert model.named_vars_to_dims["p_c"] == ("only", "c")
    assert len(dirdp.tables(model)) == 3


def test_rows_that_stand_for_many_records_and_values_that_are_missing():
    structure, labels = {"a": [], "b": ["a"]}, {"a": ["x", "y"], "b": ["u", "v"]}
    cells = {"a": ["x", "y", "x"], "b": ["u", "u", "v"], "n": [3, 1, 2]}
    model = dirdp.bayesian_network(cells, structure, categories=labels, counts="n")
    assert listed(model) == {"p_a": [5, 1], "p_b": [[3, 2], [1, 0]]}
    records = {"a": ["x", None, "z", "x"], "b": ["u", "v", "v", "v"]}
    model = dirdp.bayesian_network(records, structure, categories=labels, otherwise={"a": "y"})
    assert listed(model) == {"p_a": [2, 2], "p_b": [[1, 1], [0, 2]]}


def test_a_tree_of_features_is_beside_the_arcs_from_the_class():
    """The model is that of the network with these parents, and the cost of a chosen tree is asked for."""
    features = {name: labels for name, labels in CATEGORIES.items() if name != "class"}
    tree = dirdp.choose_structure(dirdp.PureDP(epsilon=50.0), FRAME, categories=features)
    assert dict(tree)["size"] == ("legs",)
    model = bayes(structure=tree)
    same = network({"class": [], "legs": ["class"], "size": ["legs", "class"]})
    assert dirdp.tables(model) == dirdp.tables(same)
    with pytest.raises(dirdp.errors.ArgumentError, match="after=structure"):
        dirdp.plan(TARGET, model, mechanism="marginals")
